//! What lies on a worker's desk: the tasks that it runs, and the results that no server has answered yet.
//!
//! A result stays until a server has said what became of it, whatever happens to sessions and connections meanwhile.

use super::context::Canceller;
use super::protocol::{Outcome, ResultOutcome, TaskResult};
use crate::TaskFailure;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tracing::{debug, warn};

/// Tokens that are remembered after their end.
const REMEMBERED: usize = 256;
/// Bytes of results in one request: well below the largest body that a server takes (4 MiB).
const BATCH_BYTES: usize = 1 << 20;

/// Refusals that speak of the server's state rather than of the result: it is sent again.
const PASSING: &[&str] =
    &["STORAGE_ERROR", "OUTCOME_UNKNOWN", "NOT_READY", "NOT_LEADER", "FENCED", "RESOURCE_EXHAUSTED"];

#[derive(Debug)]
enum Held {
    /// A handler runs it.
    Running(Canceller),
    /// A handler still runs it, but nobody wants the result.
    Cancelled,
    /// The handler has ended. `sent`: a request with the result is under way. `replaced`: the server refused what the
    /// handler returned, and this says so.
    Finished { outcome: Outcome, bytes: usize, sent: bool, replaced: bool },
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    held: BTreeMap<String, Held>,
    /// Results in the order in which they came.
    finished: VecDeque<String>,
    /// Tokens that were here, so that one that is answered again late does not run again.
    past: VecDeque<String>,
    past_set: BTreeSet<String>,
    /// Results of requests that were refused as a whole: each is sent alone until a server has answered it, which shows
    /// whose fault it was. Whatever else is answered meanwhile, they do not come together again.
    suspects: BTreeSet<String>,
}

impl Desk {
    /// Takes a delivery; false if it is here already, or was.
    pub(crate) fn accept(&mut self, token: &str, canceller: Canceller) -> bool {
        if self.held.contains_key(token) || self.past_set.contains(token) {
            return false;
        }
        self.held.insert(token.into(), Held::Running(canceller));
        true
    }

    /// A handler ended. Its result is kept unless nobody wants it.
    pub(crate) fn finish(&mut self, token: &str, outcome: Outcome) {
        match self.held.get_mut(token) {
            Some(Held::Cancelled) => self.forget(token),
            Some(held @ Held::Running(_)) => {
                let bytes = match &outcome {
                    Outcome::Output(value) => value.to_string().len(),
                    Outcome::Error(failure) => failure.message.len() + 256,
                };
                *held = Held::Finished { outcome, bytes, sent: false, replaced: false };
                self.finished.push_back(token.into());
            }
            Some(Held::Finished { .. }) | None => {}
        }
    }

    /// A handler ended without a result that could be reported: the server will notice that nobody holds the token.
    pub(crate) fn abandon(&mut self, token: &str) {
        // Not remembered: the server may well hand it out again.
        self.held.remove(token);
    }

    /// The server wants no result for these: their handlers are told. Results that are there already stay until the
    /// server has answered them.
    pub(crate) fn cancel(&mut self, tokens: &[String]) {
        for token in tokens {
            if let Some(held @ Held::Running(_)) = self.held.get_mut(token)
                && let Held::Running(canceller) = std::mem::replace(held, Held::Cancelled)
            {
                debug!(target: "orbit", %token, "task cancelled");
                canceller.cancel();
            }
        }
    }

    /// Results to send now, at most what one request takes. They count as under way until [`Desk::settle`] or
    /// [`Desk::unsent`].
    pub(crate) fn take_results(&mut self) -> Vec<TaskResult> {
        let mut taken = Vec::new();
        let mut room = BATCH_BYTES;
        for token in &self.finished {
            let Some(Held::Finished { outcome, bytes, sent, .. }) = self.held.get_mut(token) else { continue };
            if *sent {
                continue;
            }
            let alone = self.suspects.contains(token);
            if !taken.is_empty() && (alone || *bytes > room) {
                break;
            }
            room = room.saturating_sub(*bytes);
            *sent = true;
            taken.push(TaskResult { token: token.clone(), outcome: outcome.clone() });
            if alone {
                break;
            }
        }
        taken
    }

    /// Whether [`Desk::take_results`] would give anything.
    pub(crate) fn has_results_to_send(&self) -> bool {
        self.held.values().any(|held| matches!(held, Held::Finished { sent: false, .. }))
    }

    /// A request with these results has no answer: they are sent again. Says how many there are.
    pub(crate) fn unsent(&mut self, tokens: &[String]) -> usize {
        let mut count = 0;
        for token in tokens {
            if let Some(Held::Finished { sent: sent @ true, .. }) = self.held.get_mut(token) {
                *sent = false;
                count += 1;
            }
        }
        count
    }

    /// A server answered a request with the results of these tokens. False where some have to be sent again: it could
    /// not take them just now, or said nothing about them.
    pub(crate) fn settle(&mut self, sent: &[String], outcomes: &[ResultOutcome]) -> bool {
        for ResultOutcome { token, outcome, error } in outcomes {
            let code = error.as_ref().map_or("", |error| error.code.as_str());
            match outcome.as_str() {
                "refused" if PASSING.contains(&code) => {}
                "refused" => self.refused(token, code, error.as_ref().map_or("", |error| error.message.as_str())),
                _ => {
                    if outcome == "stale" {
                        debug!(target: "orbit", %token, "the result came too late");
                    }
                    self.forget(token);
                }
            }
        }
        self.unsent(sent) == 0
    }

    /// A request with these results was refused as a whole, for what it holds.
    pub(crate) fn refused_together(&mut self, tokens: &[String], code: &str, message: &str) {
        match tokens {
            [token] => self.refused(token, code, message),
            several => {
                self.suspects.extend(several.iter().cloned());
                self.unsent(several);
            }
        }
    }

    /// A result that the server will never take becomes a failure that says so, unless nothing waits for it anyway. A
    /// step whose result stayed away silently would wait for ever.
    fn refused(&mut self, token: &str, code: &str, message: &str) {
        warn!(target: "orbit", %token, code, message, "the server refused a result");
        if matches!(code, "UNKNOWN_TOKEN" | "EXECUTION_FINISHED" | "UNKNOWN_EXECUTION") {
            return self.forget(token);
        }
        self.suspects.remove(token);
        match self.held.get_mut(token) {
            Some(held @ Held::Finished { replaced: false, .. }) => {
                let code = if code.is_empty() { "RESULT_REFUSED" } else { code };
                let message: String = message.chars().take(1000).collect();
                let failure = TaskFailure::fatal(code, format!("the server refused the task's result: {message}"));
                let bytes = 256 + message.len();
                *held = Held::Finished { outcome: Outcome::Error(failure), bytes, sent: false, replaced: true };
            }
            _ => self.forget(token),
        }
    }

    /// The tokens to name to the server: all but those that nobody wants.
    pub(crate) fn holding(&self) -> Vec<&str> {
        let wanted = self.held.iter().filter(|(_, held)| !matches!(held, Held::Cancelled));
        wanted.map(|(token, _)| token.as_str()).collect()
    }

    /// Handlers that run, those of cancelled tasks too.
    pub(crate) fn running(&self) -> usize {
        self.held.len() - self.finished.len()
    }

    /// Results that no server has answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.finished.len()
    }

    fn forget(&mut self, token: &str) {
        self.suspects.remove(token);
        if let Some(held) = self.held.remove(token) {
            if matches!(held, Held::Finished { .. }) {
                self.finished.retain(|finished| finished != token);
            }
            if self.past.len() == REMEMBERED
                && let Some(oldest) = self.past.pop_front()
            {
                self.past_set.remove(&oldest);
            }
            self.past.push_back(token.into());
            self.past_set.insert(token.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::Refusal;
    use super::*;
    use crate::worker::context::Context;
    use serde_json::json;

    fn delivery(desk: &mut Desk, token: &str) -> (bool, Context) {
        let assignment = serde_json::from_value(json!({
            "token": token, "execution_id": "x", "workflow": "W", "workflow_version": "1", "step_id": "s",
            "task_name": "t", "contract_version": "1", "idempotency_key": "k", "attempt": 1,
        }));
        let (context, canceller) = Context::new(assignment.unwrap());
        (desk.accept(token, canceller), context)
    }

    fn answer(token: &str, outcome: &str, code: Option<&str>) -> ResultOutcome {
        let error = code.map(|code| Refusal { code: code.into(), message: "no".into() });
        ResultOutcome { token: token.into(), outcome: outcome.into(), error }
    }

    fn tokens(results: &[TaskResult]) -> Vec<&str> {
        results.iter().map(|result| result.token.as_str()).collect()
    }

    fn output() -> Outcome {
        Outcome::Output(json!({"ok": true}))
    }

    #[test]
    fn a_token_that_is_here_or_was_here_is_not_taken_again() {
        let mut desk = Desk::default();
        assert!(delivery(&mut desk, "x/1").0);
        assert!(!delivery(&mut desk, "x/1").0);
        desk.finish("x/1", output());
        assert!(!delivery(&mut desk, "x/1").0);
        desk.take_results();
        assert!(desk.settle(&["x/1".into()], &[answer("x/1", "accepted", None)]));
        assert!(!delivery(&mut desk, "x/1").0);
        assert!(delivery(&mut desk, "x/2").0);
    }

    #[test]
    fn a_result_is_sent_again_until_it_is_answered() {
        let mut desk = Desk::default();
        delivery(&mut desk, "x/1");
        desk.finish("x/1", output());
        assert_eq!(tokens(&desk.take_results()), ["x/1"]);
        assert!(!desk.has_results_to_send(), "it is under way");
        desk.unsent(&["x/1".into()]);
        assert_eq!(tokens(&desk.take_results()), ["x/1"]);
        assert!(!desk.settle(&["x/1".into()], &[answer("x/1", "refused", Some("STORAGE_ERROR"))]));
        assert_eq!(tokens(&desk.take_results()), ["x/1"]);
        assert!(!desk.settle(&["x/1".into()], &[]), "an answer that does not speak of it settles nothing");
        assert_eq!(tokens(&desk.take_results()), ["x/1"]);
        assert_eq!(desk.holding(), ["x/1"]);
        assert!(desk.settle(&["x/1".into()], &[answer("x/1", "stale", None)]));
        assert_eq!((desk.unanswered(), desk.holding().len()), (0, 0));
    }

    #[test]
    fn a_cancelled_task_is_named_no_more_and_its_result_is_dropped() {
        let mut desk = Desk::default();
        let (_, context) = delivery(&mut desk, "x/1");
        desk.cancel(&["x/1".into(), "x/unknown".into()]);
        assert!(context.is_cancelled());
        assert_eq!(desk.holding(), Vec::<&str>::new());
        assert_eq!(desk.running(), 1, "its handler still runs");
        desk.finish("x/1", output());
        assert_eq!((desk.running(), desk.unanswered()), (0, 0));
    }

    #[test]
    fn a_result_that_is_there_already_outlives_a_cancel() {
        let mut desk = Desk::default();
        delivery(&mut desk, "x/1");
        desk.finish("x/1", output());
        desk.cancel(&["x/1".into()]);
        assert_eq!(tokens(&desk.take_results()), ["x/1"]);
    }

    #[test]
    fn an_output_that_is_too_large_becomes_a_failure_that_says_so() {
        let mut desk = Desk::default();
        delivery(&mut desk, "x/1");
        desk.finish("x/1", output());
        desk.take_results();
        desk.settle(&["x/1".into()], &[answer("x/1", "refused", Some("PAYLOAD_TOO_LARGE"))]);
        let again = desk.take_results();
        assert!(matches!(&again[0].outcome, Outcome::Error(e) if e.code == "PAYLOAD_TOO_LARGE" && !e.retryable));
        desk.settle(&["x/1".into()], &[answer("x/1", "refused", Some("PAYLOAD_TOO_LARGE"))]);
        assert_eq!(desk.unanswered(), 0, "there is nothing smaller to say");
    }

    #[test]
    fn a_batch_that_is_refused_as_a_whole_goes_one_by_one() {
        let mut desk = Desk::default();
        for token in ["x/1", "x/2", "x/3"] {
            delivery(&mut desk, token);
            desk.finish(token, output());
        }
        let all: Vec<String> = desk.take_results().into_iter().map(|result| result.token).collect();
        assert_eq!(all.len(), 3);
        desk.refused_together(&all, "INVALID_REQUEST", "no");
        assert_eq!(tokens(&desk.take_results()), ["x/1"]);
        desk.refused_together(&["x/1".into()], "INVALID_REQUEST", "no");
        let again = desk.take_results();
        assert!(matches!(&again[0], TaskResult { outcome: Outcome::Error(e), .. } if e.code == "INVALID_REQUEST"));
    }

    #[test]
    fn answers_about_other_things_do_not_bring_a_refused_batch_together_again() {
        let mut desk = Desk::default();
        for token in ["x/1", "x/2", "x/3"] {
            delivery(&mut desk, token);
            desk.finish(token, output());
        }
        let all: Vec<String> = desk.take_results().into_iter().map(|result| result.token).collect();
        desk.refused_together(&all, "INVALID_REQUEST", "no");
        // A poll without results is answered, and other work goes on.
        assert!(desk.settle(&[], &[]));
        for token in ["x/4", "x/5"] {
            delivery(&mut desk, token);
            desk.finish(token, output());
        }
        assert_eq!(tokens(&desk.take_results()), ["x/1"]);
        assert!(!desk.settle(&["x/1".into()], &[answer("x/1", "refused", Some("STORAGE_ERROR"))]));
        assert_eq!(tokens(&desk.take_results()), ["x/1"], "alone again");
        assert!(desk.settle(&["x/1".into()], &[answer("x/1", "accepted", None)]));
        assert_eq!(tokens(&desk.take_results()), ["x/2"]);
        desk.refused_together(&["x/2".into()], "INVALID_REQUEST", "no");
        let said = desk.take_results();
        assert_eq!(tokens(&said), ["x/2"], "what is wrong with it is known: it is said");
        assert!(desk.settle(&["x/2".into()], &[answer("x/2", "accepted", None)]));
        assert_eq!(tokens(&desk.take_results()), ["x/3"]);
        assert!(desk.settle(&["x/3".into()], &[answer("x/3", "accepted", None)]));
        assert_eq!(tokens(&desk.take_results()), ["x/4", "x/5"], "these were in no refused batch");
    }

    #[test]
    fn one_request_carries_about_a_mebibyte_of_results() {
        let mut desk = Desk::default();
        for token in ["x/1", "x/2", "x/3"] {
            delivery(&mut desk, token);
            desk.finish(token, Outcome::Output(json!("x".repeat(600_000))));
        }
        assert_eq!(tokens(&desk.take_results()), ["x/1"]);
        assert_eq!(tokens(&desk.take_results()), ["x/2"]);
    }
}
