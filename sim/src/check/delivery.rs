//! Deliveries: a task that is handed out is recorded, for that session, with that input and key; a repeat says so.

use super::history::HistoryCheck;
use super::{Answer, Checked, Violation, ensure};
use crate::coverage::{Coverage, Mark};
use orbit_core::api::response::Assignment;
use orbit_core::api::{Reply, Request};
use orbit_core::id::{ExecutionId, Run, SessionId, StepId, Token};
use std::collections::BTreeSet;

const CHECK: &str = "delivery";

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct DeliveryCheck {
    /// Attempts of which a delivery was put on the wire.
    sent: BTreeSet<(ExecutionId, Run, StepId, u32)>,
    /// Tokens that stood in an answer, whether or not it was put on the wire.
    answered: BTreeSet<Token>,
    /// Attempts that waited, or were out, when a replica was promoted: they are offered as repeats (protocols, 10).
    doubtful: BTreeSet<(ExecutionId, Run, StepId, u32)>,
}

impl DeliveryCheck {
    /// A replica was promoted that has these histories. What was handed out before is handed out again, and says so, where
    /// the replica knows of the attempt; of one that it does not know, nobody could say it.
    pub fn over_promotion(&mut self, before: &DeliveryCheck, histories: &HistoryCheck) {
        let knows = |(id, run, step, attempt): &(ExecutionId, Run, StepId, u32)| {
            let tracked = histories.runs(id).and_then(|runs| runs.get(*run));
            tracked.is_some_and(|t| t.scheduled.get(step.as_str()).is_some_and(|given| given.attempt >= *attempt))
        };
        self.sent = before.sent.iter().filter(|attempt| knows(attempt)).cloned().collect();
        self.answered.clone_from(&before.answered);
        for (id, tracked) in histories.all() {
            for (unit, given) in &tracked.scheduled {
                self.doubtful.insert((id.clone(), tracked.run, StepId::new(unit.as_str()), given.attempt));
            }
        }
    }

    pub fn on_answer(&mut self, answer: &Answer<'_>, histories: &HistoryCheck, marks: &mut Coverage) -> Checked {
        match (&*answer.exchange.request, &answer.response.reply) {
            (Request::Poll(poll), Reply::Polled(polled)) => {
                let room = polled.tasks.len() <= poll.max_tasks as usize;
                // A token that is answered again is no new task (protocols, 24).
                let again = polled.tasks.iter().filter(|t| self.answered.contains(&t.token)).count();
                let bounded = room || polled.tasks.len() - again <= poll.max_tasks as usize;
                ensure!(bounded, CHECK, "{} tasks for a poll that takes {}", polled.tasks.len(), poll.max_tasks);
                for task in &polled.tasks {
                    self.on_task(task, poll.session, answer, histories, marks)?;
                }
                if !polled.cancel.is_empty() {
                    marks.hit(Mark::CancelListed);
                }
            }
            (Request::Heartbeat { .. }, Reply::Heartbeat(cancels)) if !cancels.cancel.is_empty() => {
                marks.hit(Mark::CancelListed);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_task(
        &mut self,
        task: &Assignment,
        session: SessionId,
        answer: &Answer<'_>,
        histories: &HistoryCheck,
        marks: &mut Coverage,
    ) -> Checked {
        let (token, current, on_the_wire) = (&task.token, answer.current, answer.on_the_wire);
        ensure!(token.execution == task.execution_id, CHECK, "{token} belongs to {}", task.execution_id);
        let tracked = histories.runs(&task.execution_id).and_then(|runs| runs.of_delivery(token));
        let Some((tracked, dispatched)) = tracked.and_then(|t| Some((t, t.dispatched.get(token)?))) else {
            return Err(Violation::safety(CHECK, format!("{token} is handed out, and no StepDispatched is recorded")));
        };
        let same = dispatched.unit.as_str() == task.step_id.as_str() && dispatched.attempt == task.attempt;
        ensure!(same, CHECK, "{token} is handed out as {} {}, recorded as {dispatched:?}", task.step_id, task.attempt);
        ensure!(
            // A worker that names a token of an older session under a new one takes it along.
            dispatched.session == session || task.redelivery,
            CHECK,
            "{token} is handed to session {session:?}, and recorded for {:?}",
            dispatched.session
        );
        let given = tracked.scheduled.get(&dispatched.unit).expect("checked when it was recorded");
        ensure!(given.input == task.input, CHECK, "{token} is handed out with another input than was recorded");
        let key = given.idempotency_key == task.idempotency_key;
        ensure!(key, CHECK, "{token} is handed out under another idempotency key than was recorded");
        let definition = &tracked.definition;
        ensure!(
            (&task.workflow, &task.workflow_version) == (&definition.name, &definition.version),
            CHECK,
            "{token} is handed out as of {} {}",
            task.workflow,
            task.workflow_version
        );
        let right = definition.task_of(&dispatched.unit);
        let timeout = right.and_then(|right| right.timeout).map(|limit| limit.as_millis());
        ensure!(
            right.is_some_and(|right| right.task == task.task_name && right.contract_version == task.contract_version)
                && timeout == task.timeout_ms.map(u128::from)
                && dispatched.deadline == task.deadline_ms,
            CHECK,
            "{token} is handed out as {task:?}, recorded as {dispatched:?} of {right:?}"
        );
        let attempt = (task.execution_id.clone(), tracked.run, task.step_id.clone(), task.attempt);
        let repeat = self.sent.contains(&attempt);
        let again = !self.answered.insert(token.clone());
        ensure!(
            // What a server that was replaced sends after a pause, nobody can flag (protocols, 29).
            task.redelivery || !repeat || !current,
            CHECK,
            "attempt {} of {} of {} was sent before, and {token} does not say so",
            task.attempt,
            task.step_id,
            task.execution_id
        );
        let earlier = again || tracked.deliveries(task.step_id.as_str(), task.attempt) > 1;
        let doubtful = self.doubtful.contains(&attempt);
        if task.redelivery && !earlier && doubtful {
            marks.hit(Mark::RepeatOfQueued);
        }
        ensure!(
            earlier || doubtful || !task.redelivery,
            CHECK,
            "{token} says that it is a repeat, and nothing came before it"
        );
        if again {
            marks.hit(Mark::TokenAnsweredAgain);
        }
        if on_the_wire {
            self.sent.insert(attempt);
        }
        Ok(())
    }
}
