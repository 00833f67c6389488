//! Executions that are held (design, section 8): a server with `--recovery hold` that takes over goes on with none of which
//! an attempt was out. The first thing that it records of one says so; nothing is decided or handed out until somebody
//! recovers it, or wants its end. What comes from outside (results, signals, the silence of a worker) is taken in.

use super::Node;
use super::ask::finished;
use super::draft::Draft;
use super::slot::{Slot, task_id};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::response::{Reply, Response};
use crate::cluster::Recovery;
use crate::execution::{Command, Refusal, UnitStatus};
use crate::id::Token;
use crate::mutant::{Mutant, Mutants};
use crate::time::ClusterMs;
use crate::worker::attempt::Holder;
use uuid::Uuid;

impl<M: Mutants> Node<M> {
    /// Holds what was in memory when this server took over, where an attempt of it is out: before anything else of it is
    /// decided.
    pub(super) fn hold(&self, slot: &Slot, draft: &mut Draft, now: ClusterMs) {
        let Some(resident) = draft.resident.as_ref().filter(|_| slot.recovers) else { return };
        if self.config.recovery == Recovery::Auto {
            return;
        }
        let state = &resident.state;
        let doubtful = state.scheduled().filter(|(_, _, seq)| resident.doubtful.contains(&task_id(state, *seq)));
        let mut queued: Vec<_> = doubtful.map(|(unit, ..)| unit.clone()).collect();
        if self.mutants.planted(Mutant::HoldForgetsRepeats) {
            queued.clear();
        }
        let (node_id, term) = (self.config.node_id.as_str(), self.fence().expect("serving").term);
        let reason = format!("attempts were out when server `{node_id}` took over at term {term}");
        // Refused where nothing is out, or where it is held since before.
        let _ = self.take_command(draft, Command::Hold { reason, queued }, now);
    }

    /// Somebody wants what is held to go on.
    pub(super) fn take_recover(&self, draft: &mut Draft, reason: Option<String>, now: ClusterMs) -> Response {
        for token in self.overdue(draft, now) {
            let reason = "it was held past the time-out of the attempt, and no worker has told of it".into();
            let _ = self.take_command(draft, Command::Uncertain { token, reason }, now);
        }
        let refused = self.take_command(draft, Command::Recover { reason }, now).and_then(Result::err);
        let resident = draft.resident.as_ref().expect("the caller looked it up");
        match refused {
            Some(Refusal::Finished) => return finished(resident).into(),
            Some(_) => {
                let (id, status) = (&resident.state.identity.execution_id, resident.state.status().as_str());
                return ApiError::new(ErrorCode::NotHeld, format!("execution {id} is not held: it is {status}")).into();
            }
            None => draft.decide(now, &self.rules().forgetting(self.mutants.planted(Mutant::HoldForgetsRepeats))),
        }
        let resident = draft.resident.as_ref().expect("the caller looked it up");
        Response::ok(Reply::Recovered(self.view(&resident.definition, &resident.state)))
    }

    /// Attempts of a held execution whose time-out has passed and that no worker has: nobody could be told to stop or asked
    /// for a result, so they are delivered again rather than failed.
    fn overdue(&self, draft: &Draft, now: ClusterMs) -> Vec<Uuid> {
        let state = &draft.resident.as_ref().expect("the caller looked it up").state;
        let now = now.max(state.last_at);
        let is_out = |id: Uuid| {
            let token = Token { execution: state.identity.execution_id.clone(), id };
            matches!(self.attempts.holder(&token), Some(Holder::Session(_)))
        };
        let held = state.open_tokens().filter(|_| state.held.is_some());
        let over = held.filter(|(id, _, unit)| match unit.status {
            UnitStatus::Dispatched { deadline: Some(at), .. } => at <= now && !is_out(*id),
            _ => false,
        });
        over.map(|(id, ..)| id).collect()
    }
}
