//! What one run leaves to the next: continue-as-new.

use crate::execution::event::{Carried, Continued, Event, Json, Sent};
use crate::execution::state::State;
use crate::id::Run;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keys of senders that a run knows of those before it, and about how many bytes they and the answers take. Every run
/// stores them anew, so they are bounded: the newest are kept.
pub const MAX_REMEMBERED: usize = 10_000;
pub const MAX_REMEMBERED_BYTES: usize = 1 << 20;

/// The newest keys, as many as are kept.
fn remembered(before: &State) -> Arc<BTreeMap<String, Sent>> {
    let mut all: Vec<(&String, &Sent)> = before.sent_before.iter().chain(&before.sent).collect();
    all.sort_by_key(|(_, sent)| std::cmp::Reverse((sent.run, sent.seq)));
    let mut room = MAX_REMEMBERED_BYTES;
    let kept = all.into_iter().take(MAX_REMEMBERED).take_while(|(key, sent)| {
        const BESIDE: usize = 50;
        let result = sent.result.as_ref().map_or(0, |result| result.to_string().len());
        match room.checked_sub(BESIDE + key.len() + sent.name.as_str().len() + result) {
            Some(left) => room = left,
            None => return false,
        }
        true
    });
    Arc::new(kept.map(|(key, sent)| (key.clone(), sent.clone())).collect())
}

/// The first events of the next run, from the state in which the one before ended: its input is new, what was sent and
/// nothing has taken comes again, and the newest of the senders' keys are still known.
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
        continued: Some(Continued {
            created_at_ms: before.created_at,
            started_with: before.started_with(),
            sent: remembered(before),
        }),
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
