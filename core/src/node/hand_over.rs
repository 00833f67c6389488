//! A leader that is asked to step down (`orbit cluster step-down`): it takes nothing new in, finishes what is in flight,
//! gives the fence and the lock up, and waits for a moment, so that another server leads. It is a standby then.

use super::lifecycle::Phase;
use super::{Connection, LogEvent, Node, Purpose, RequestId};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::response::{Leader, Reply, Response, SteppedDown};
use crate::id::Term;
use crate::mutant::Mutants;
use crate::store::statement::FenceRow;
use crate::store::transaction::Transaction;
use std::time::Duration;

/// How long it waits for another to lead before it stands for election again. Whoever waits in line has the lock at once;
/// one that has just lost its connection needs a moment.
pub(super) const WAITS_FOR: Duration = Duration::from_secs(3);
/// How often it looks meanwhile.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A lead that is being handed over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandOver {
    request: RequestId,
    /// The term that ends.
    term: Term,
}

impl<M: Mutants> Node<M> {
    /// Whether the lead is being handed over, or was just now.
    pub(super) fn hands_over(&self) -> bool {
        self.cluster.handing.is_some()
    }

    /// Begins to hand the lead over; answered once another leads, or nobody does.
    /// A request that names an earlier term was sent before, and is done.
    pub(super) fn hand_lead_over(&mut self, request: RequestId, wanted: Option<Term>) {
        let Phase::Serving { fence, cluster_id } = self.phase else {
            return self.answer(request, ApiError::new(ErrorCode::NotReady, "the server does not lead yet"));
        };
        if self.standby().is_none() {
            let message = "this server is alone on its database: there is nobody to hand the lead to";
            return self.answer(request, ApiError::new(ErrorCode::NotInCluster, message));
        }
        let (node_id, term) = (self.config.node_id.clone(), fence.term);
        match wanted {
            Some(wanted) if wanted < term => return self.answer(request, stepped_down(wanted, self.known_leader())),
            Some(wanted) if wanted > term => {
                let message = format!("fenced: this server leads term {term}, and term {wanted} is newer");
                return self.answer(request, ApiError::new(ErrorCode::Fenced, message));
            }
            _ => {}
        }
        self.log(LogEvent::HandingOver { node_id, term });
        self.cluster.handing = Some(HandOver { request, term });
        self.begin_to_stop(fence, cluster_id);
    }

    /// The fence is given up: now the lock.
    pub(super) fn free_the_lock(&mut self) {
        if self.lease_ttl().is_some() {
            // A lease went with the fence.
            return self.on_unlocked();
        }
        self.send(Connection::Election, Transaction::Unlock, Purpose::Unlock);
    }

    /// The lock is free, or went with its connection: this server is a standby, which lets others go before.
    pub(super) fn on_unlocked(&mut self) {
        if self.has_exited() {
            return;
        }
        let Some(HandOver { term, .. }) = self.cluster.handing else {
            // It was told to stop meanwhile.
            self.log(LogEvent::Stopped { clean: true });
            return self.exit(0);
        };
        let node_id = self.config.node_id.clone();
        self.log(LogEvent::HandedOver { node_id, term });
        self.refuse_all("this server has handed the lead over");
        self.forget();
        // Whoever waits for a lease looks at each check whether it is free.
        let wait = WAITS_FOR.max(self.config.check_interval * 2);
        self.phase = Phase::Campaigning { since: self.now.mono, again: Some(self.now.mono + wait) };
    }

    /// The fence row, seen by a server that has given the lead up: another may lead by now.
    pub(super) fn see_successor(&mut self, row: &FenceRow, leader: Option<&Leader>) {
        let Some(HandOver { request, term }) = self.cluster.handing else { return };
        // Not before its own release has come to its end: without a hand-over, that is the end of a stop.
        if !self.follows() {
            return;
        }
        if let Some(leader) = leader.filter(|_| row.fence.term > term) {
            let leader = Some(leader.clone());
            self.cluster.handing = None;
            self.answer(request, stepped_down(term, leader));
            // A standby like any other: in line at once.
            self.stand_in_line_now();
        }
    }

    fn stand_in_line_now(&mut self) {
        if let Phase::Campaigning { since, .. } = self.phase {
            self.phase = Phase::Campaigning { since, again: Some(self.now.mono) };
        }
    }

    /// Nobody else was there.
    pub(super) fn nobody_else(&mut self) {
        let Some(HandOver { request, term }) = self.cluster.handing.take() else { return };
        self.answer(request, stepped_down(term, None));
    }

    /// It comes to nothing: the server stops, or has lost the lead otherwise.
    pub(super) fn end_hand_over(&mut self, error: ApiError) {
        if let Some(HandOver { request, .. }) = self.cluster.handing.take() {
            self.answer(request, error);
        }
    }
}

fn stepped_down(term: Term, leader: Option<Leader>) -> Response {
    Response::ok(Reply::SteppedDown(SteppedDown { term, leader }))
}
