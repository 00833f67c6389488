//! Holds: a server that is to hold (`--recovery hold`) holds whatever an earlier one has attempts of out, before it records
//! anything else of it; one that is to go on holds nothing.

use super::history::HistoryCheck;
use super::{Checked, Committed, Violation, ensure};
use crate::coverage::{Coverage, Mark};
use crate::store::Change;
use orbit_core::execution::event::{Event, Recorded};
use orbit_core::id::{ExecutionId, UnitKey};
use orbit_core::store::append::Fence;
use std::collections::BTreeMap;

const CHECK: &str = "hold";

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct HoldCheck {
    /// Whether servers are to hold.
    holds: bool,
    /// Under which fence each attempt that is out was handed out, or was known when it was held or recovered.
    known: BTreeMap<(ExecutionId, UnitKey), Fence>,
}

impl HoldCheck {
    /// For servers that are to hold, or not.
    pub fn new(holds: bool) -> HoldCheck {
        HoldCheck { holds, ..HoldCheck::default() }
    }

    /// Before the histories take the same commit in.
    pub fn on_commit(&mut self, committed: &Committed<'_>, histories: &HistoryCheck, marks: &mut Coverage) -> Checked {
        for change in &committed.commit.changes {
            match change {
                Change::FenceRaised { .. } if histories.held().next().is_some() => marks.hit(Mark::HeldOverTakeover),
                Change::Group { fence, group, repeated: false, .. } => {
                    for member in &group.members {
                        let decoded = member.events.iter().map(|event| Recorded::decode(&event.bytes));
                        let events: Result<Vec<Recorded>, _> = decoded.collect();
                        let events = events.map_err(|e| Violation::safety(CHECK, e.to_string()))?;
                        self.on_events(*fence, &member.execution, &events, histories, marks)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn on_events(
        &mut self,
        fence: Fence,
        id: &ExecutionId,
        events: &[Recorded],
        histories: &HistoryCheck,
        marks: &mut Coverage,
    ) -> Checked {
        let Some(first) = events.first() else { return Ok(()) };
        let before = histories.get(id);
        let of = |unit: &UnitKey| (id.clone(), unit.clone());
        let earlier = before.filter(|tracked| tracked.held.is_none()).and_then(|tracked| {
            tracked.out.keys().find(|unit| self.known.get(&of(unit)).is_some_and(|known| *known != fence))
        });
        let held = matches!(first.event, Event::WorkflowHeld { .. });
        let must = self.holds && earlier.is_some();
        ensure!(held || !must, CHECK, "{id}: {earlier:?} was out before, and is not held: {:?}", first.event);
        for recorded in events {
            match &recorded.event {
                Event::StepDispatched { step, .. } => drop(self.known.insert(of(step), fence)),
                Event::WorkflowHeld { .. } => {
                    ensure!(must, CHECK, "{id} is held, and nobody asked for that");
                    marks.hit(Mark::HeldAtTakeover);
                }
                _ => continue,
            }
        }
        if events.iter().any(|e| matches!(e.event, Event::WorkflowHeld { .. } | Event::WorkflowRecovered { .. })) {
            // From now on it is this writer's as it is.
            let of_it = self.known.iter_mut().filter(|((execution, _), _)| execution == id);
            of_it.for_each(|(_, known)| *known = fence);
        }
        Ok(())
    }
}
