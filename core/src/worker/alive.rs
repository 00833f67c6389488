//! What is known of the workers that are alive, as an execution that waits for them sees it.

use crate::api::request::Contract;
use crate::execution::waiting::{Keeper, Offers};
use crate::id::{ContractVersion, TaskName, Token, WorkerId};
use crate::time::{ClusterMs, Mono};
use crate::worker::attempt::{Attempts, Holder};
use crate::worker::session::Sessions;

/// The workers of this server at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Alive<'n> {
    pub sessions: &'n Sessions,
    pub attempts: &'n Attempts,
    /// The moment, by this server's clock and by the cluster's.
    pub now: Mono,
    pub cluster_now: ClusterMs,
}

impl Alive<'_> {
    /// The cluster's time at another moment.
    pub fn at(&self, moment: Mono) -> ClusterMs {
        let ms = |from: Mono, to: Mono| i64::try_from(to.since(from).as_millis()).unwrap_or(i64::MAX);
        let (before, after) = (ms(moment, self.now), ms(self.now, moment));
        ClusterMs(self.cluster_now.0.saturating_sub(before).saturating_add(after))
    }
}

impl Offers for Alive<'_> {
    fn sessions(&self, contract: &Contract) -> u32 {
        self.sessions.offering(contract)
    }

    fn versions(&self, task: &TaskName) -> Vec<ContractVersion> {
        self.sessions.versions(task)
    }

    fn keeper(&self, token: &Token, worker: &WorkerId) -> Keeper {
        let registered = |worker| self.sessions.of_worker(worker).next_back().map(|(_, session)| session.opened());
        let known = match self.attempts.holder(token) {
            None => return Keeper::default(),
            Some(Holder::Nobody { until, .. }) => {
                let again = registered(worker).map(|at| self.at(at));
                let offered_again_ms = Some(self.at(until));
                return Keeper { offered_again_ms, registered_again_ms: again, ..Keeper::default() };
            }
            Some(Holder::Session(id)) => self.sessions.get(id).map(|session| (id, session)),
        };
        let Some((id, session)) = known else { return Keeper::default() };
        let again = registered(&session.worker_id).filter(|at| *at > session.opened());
        let silent = self.now.since(session.last_contact());
        Keeper {
            session_id: Some(id),
            silent_ms: Some(u64::try_from(silent.as_millis()).unwrap_or(u64::MAX)),
            offered_again_ms: Some(self.at(self.sessions.lost_at(session))),
            registered_again_ms: again.map(|at| self.at(at)),
        }
    }
}
