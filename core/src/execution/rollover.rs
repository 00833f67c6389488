//! What one run leaves to the next: continue-as-new.

use crate::execution::event::{Carried, Continued, Event, Json};
use crate::execution::state::State;
use crate::id::Run;

/// The first events of the next run, from the state in which the one before ended: its input is new, what was sent and
/// nothing has taken comes again, and the senders' keys are still known.
pub fn next_run(before: &State, input: Json, run: Run) -> Vec<Event> {
    let created = Event::WorkflowCreated {
        workflow: before.workflow.clone(),
        version: before.version.clone(),
        definition_hash: before.definition_hash.clone(),
        input,
        labels: before.labels.clone(),
        cluster_id: before.identity.cluster_id,
        run,
        parent: before.parent.clone(),
        continued: Some(Continued { created_at_ms: before.created_at, sent: before.sent.clone() }),
    };
    let mut waiting: Vec<_> =
        before.buffered.iter().flat_map(|(signal, waiting)| waiting.iter().map(move |one| (signal, one))).collect();
    waiting.sort_by_key(|(_, one)| one.seq);
    let again = waiting.into_iter().map(|(signal, one)| Event::SignalReceived {
        signal: signal.clone(),
        payload: one.payload.clone(),
        signal_id: None,
        carried: Some(one.carried.unwrap_or(Carried { run: before.identity.run, seq: one.seq })),
    });
    std::iter::once(created).chain(again).collect()
}
