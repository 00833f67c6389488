//! Runs a recorded history through today's [`decide`] and names the first difference.

use crate::definition::Definition;
use crate::execution::decide::decide;
use crate::execution::event::{Event, Recorded};
use crate::execution::state::{FoldError, State};
use crate::id::{ExecutionId, Seq};

/// Where a history and today's decisions part.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Difference {
    /// The history itself is broken.
    #[error(transparent)]
    Broken(#[from] FoldError),
    /// It belongs to another definition.
    #[error("the history was made with definition {recorded}, and this is {given}")]
    OtherDefinition { recorded: String, given: String },
    /// Recorded time goes back.
    #[error("event {seq} was recorded earlier than the event before it")]
    TimeGoesBack { seq: Seq },
    /// Something follows the end.
    #[error("event {seq} follows the end of the execution")]
    AfterTheEnd { seq: Seq },
    /// A decided event that `decide` does not decide there.
    #[error("event {seq} is {recorded:?}, and the decisions there are {decided:?}")]
    NotDecided { seq: Seq, recorded: Box<Event>, decided: Vec<Event> },
}

/// Folds `events`, and requires of every decided one that it is among what [`decide`] answers at its time.
///
/// After each event of an answer the rest is still decided, and so it does not matter where an answer ends.
pub fn replay(definition: &Definition, execution: &ExecutionId, events: &[Recorded]) -> Result<State, Difference> {
    let (first, rest) = events.split_first().ok_or(FoldError::Empty)?;
    let mut state = State::begin(execution, first).ok_or(FoldError::Beginning)?;
    if state.definition_hash != definition.hash {
        let (recorded, given) = (state.definition_hash.to_string(), definition.hash.to_string());
        return Err(Difference::OtherDefinition { recorded, given });
    }
    for event in rest {
        if event.seq != state.last.next() {
            return Err(FoldError::Gap { expected: state.last.next(), found: event.seq }.into());
        }
        if event.at_ms < state.last_at {
            return Err(Difference::TimeGoesBack { seq: event.seq });
        }
        if state.has_ended() {
            return Err(Difference::AfterTheEnd { seq: event.seq });
        }
        if !event.event.is_external() {
            let decided = decide(definition, &state, event.at_ms);
            if !decided.contains(&event.event) {
                let recorded = Box::new(event.event.clone());
                return Err(Difference::NotDecided { seq: event.seq, recorded, decided });
            }
        }
        state.apply(event);
    }
    Ok(state)
}
