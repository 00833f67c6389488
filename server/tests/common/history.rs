//! Histories as the API shows them, and what holds for each of them.
#![allow(dead_code)]

use orbit_core::definition::Definition;
use orbit_core::execution::event::{Event, Recorded};
use orbit_core::execution::replay::replay;
use orbit_core::id::ExecutionId;
use orbit_sdk::Client;
use std::collections::BTreeSet;

/// A whole history, in small pages, so that there are several.
pub async fn read(client: &Client, id: &str) -> Result<Vec<Recorded>, String> {
    let mut history = Vec::new();
    loop {
        let after = history.last().map_or(0, |event: &Recorded| event.seq.0);
        let page = client.history(id, after, Some(10)).await.map_err(|error| error.to_string())?;
        for event in page.events {
            let event = serde_json::to_value(event).expect("plain data");
            history.push(serde_json::from_value(event).map_err(|error| format!("an event is unreadable: {error}"))?);
        }
        if !page.more {
            return Ok(history);
        }
    }
}

/// What is wrong with a history that has ended: it is gapless, has one end, which is its last event, one success of a
/// step, and is exactly what `decide` says.
pub fn faults(definition: &Definition, id: &str, history: &[Recorded]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |text: String| faults.push(format!("{id}: {text}"));
    for (index, event) in history.iter().enumerate() {
        if event.seq.0 != index as u64 + 1 {
            fault(format!("event {} stands where {} belongs", event.seq, index + 1));
        }
    }
    let ends = history.iter().filter(|event| event.event.is_terminal()).count();
    if ends != 1 || !history.last().is_some_and(|last| last.event.is_terminal()) {
        fault(format!("{ends} ends, and the last event is {:?}", history.last()));
    }
    if let Err(difference) = replay(definition, &ExecutionId::new(id), history) {
        fault(format!("it does not replay: {difference}"));
    }
    let mut succeeded = BTreeSet::new();
    for event in history {
        if let Event::StepSucceeded { step, .. } = &event.event
            && !succeeded.insert(step.clone())
        {
            fault(format!("step {step} succeeded twice"));
        }
    }
    faults
}
