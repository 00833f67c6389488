//! What must hold once everything has come to its end.

use super::world::{World, definition};
use orbit_core::execution::{Event, Recorded, replay};
use orbit_core::id::ExecutionId;
use orbit_core::store::append::Status;
use orbit_sim::world::book::Book;
use std::collections::BTreeMap;

/// Every acknowledged start is there and has ended as it should, and nothing else is; each step succeeded once; each
/// history is what `decide` says.
pub fn at_end(world: &World) -> Result<(), String> {
    let documents = Book::new(vec![definition()]);
    let acknowledged = world.book.all();
    world.database.read(|store| {
        for (id, input) in &acknowledged {
            let execution = ExecutionId::new(id.as_str());
            let row = store.executions().get(&execution).ok_or(format!("{id} was acknowledged, and is not there"))?;
            if row.summary.status != Status::Completed {
                return Err(format!("{id} is {:?}", row.summary.status));
            }
            let stored = store.run_history(&execution, row.run).iter();
            let events: Result<Vec<Recorded>, _> = stored.map(|event| Recorded::decode(&event.bytes)).collect();
            let events = events.map_err(|error| format!("the history of {id}: {error}"))?;
            let known = documents.definition(&row.summary.workflow, &row.summary.version);
            let known = known.ok_or(format!("{id} is of no workflow that was deployed"))?;
            replay(&known, &execution, &events).map_err(|difference| format!("{id}: {difference}"))?;
            let mut successes = BTreeMap::<String, u32>::new();
            for event in &events {
                match &event.event {
                    Event::StepSucceeded { step, .. } => *successes.entry(step.to_string()).or_default() += 1,
                    Event::WorkflowCompleted { output, .. } if **output != input["of"] => {
                        return Err(format!("{id} was given {input}, and has {output}"));
                    }
                    _ => {}
                }
            }
            if successes.len() != 2 || successes.values().any(|count| *count != 1) {
                return Err(format!("the steps of {id} succeeded {successes:?} times"));
            }
        }
        let unasked = store.executions().keys().find(|id| id.as_str().starts_with("half-"));
        unasked.map_or(Ok(()), |id| Err(format!("{id} was started, though half of its request never came")))
    })
}
