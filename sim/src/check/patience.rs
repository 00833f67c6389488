//! Long polls and waits: they end early only with something to say, and they do end.

use super::{Answer, Checked, Violation, ensure};
use crate::world::network::Exchange;
use orbit_core::api::{ErrorCode, Reply, Request};
use std::time::Duration;

const CHECK: &str = "patience";

/// How much faster than true time a server's clock may run, in thousandths.
const FAST_CLOCK: u128 = 2;

/// An answer: in a calm world no outcome stays unknown, and a poll or wait does not end early.
pub fn on_answer(answer: &Answer<'_>) -> Checked {
    if let (Reply::Error(error), true) = (&answer.response.reply, answer.calm) {
        let unknown = error.code == ErrorCode::OutcomeUnknown;
        ensure!(!unknown, CHECK, "nothing is broken, and the outcome of {:?} stays unknown", answer.exchange.request);
    }
    let (asked, nothing) = match (&*answer.exchange.request, &answer.response.reply) {
        (Request::Wait { timeout, .. }, Reply::Execution(view)) => (*timeout, !view.item.status.is_terminal()),
        (Request::Poll(poll), Reply::Polled(polled)) => {
            let nothing = polled.tasks.is_empty() && polled.cancel.is_empty() && polled.outcomes.is_empty();
            (poll.wait.min(answer.session_timeout / 2), nothing)
        }
        _ => return Ok(()),
    };
    let waited = Duration::from_micros(answer.now.0 - answer.exchange.arrived.0);
    let least = asked.as_micros() * (1_000 - FAST_CLOCK) / 1_000;
    let early = nothing && !answer.stopping && waited.as_micros() < least;
    ensure!(!early, CHECK, "{:?} was answered with nothing after {waited:?}", answer.exchange.request);
    Ok(())
}

/// Somebody gave up waiting for a healthy server.
pub fn on_silence(exchange: &Exchange) -> Violation {
    Violation::liveness(CHECK, format!("a healthy server left {:?} without an answer", exchange.request))
}
