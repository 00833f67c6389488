//! From run to run: where by the definition a run continues as new, the next one begins with the input that it gave and the
//! signals that it left.

use super::{Interpreter, Limits, Round, Unit, ended};
use crate::check::history::Tracked;
use crate::check::runs::Runs;
use crate::check::{Checked, Violation};
use crate::schema;
use orbit_core::execution::event::{Carried, Event, Json, TaskError, codes};
use orbit_core::id::{ExecutionId, Seq, SignalName};

/// A signal that a run left to the next one, and where it was taken in.
type Left = (SignalName, Json, Carried);

/// Compares what each run of an execution led to with what the interpreter says of it.
pub fn check(id: &ExecutionId, runs: &Runs, limits: Limits) -> Checked {
    let mut before: Option<(Json, Vec<Left>)> = None;
    for tracked in runs.iter() {
        let run = tracked.run;
        let wrong = |message: String| Err(Violation::safety("interpreter", format!("{id}, run {run}: {message}")));
        let Some(mut interpreter) = Interpreter::new(id, tracked, limits) else {
            return wrong("the history does not begin with WorkflowCreated".into());
        };
        if let Some((input, left)) = before.take() {
            if *interpreter.input != input {
                return wrong(format!("it is given {}, and by the definition {input}", interpreter.input));
            }
            let came = again(tracked);
            if came != left {
                return wrong(format!("{came:?} come again, and by the definition {left:?} were left"));
            }
        }
        let predicted = match interpreter.run(&tracked.events) {
            Err(message) => return wrong(message),
            Ok(predicted) => predicted,
        };
        match (&tracked.continues, tracked.terminal().and_then(ended)) {
            (Some(input), _) if interpreter.continues.as_ref() == Some(input) => {
                before = Some((input.clone(), interpreter.left()));
            }
            (Some(input), _) => {
                let by_definition = &interpreter.continues;
                return wrong(format!("it continues as new with {input}, and by the definition: {by_definition:?}"));
            }
            (None, Some(recorded)) if predicted.as_ref() != Some(&recorded) => {
                return wrong(format!("it ended as {recorded:?}, and by the definition as {predicted:?}"));
            }
            (None, _) => {}
        }
    }
    Ok(())
}

/// What comes again in a run.
fn again(tracked: &Tracked) -> Vec<Left> {
    let carried = tracked.events.iter().filter_map(|recorded| match &recorded.event {
        Event::SignalReceived { signal, payload, carried: Some(carried), .. } => {
            Some((signal.clone(), payload.clone(), *carried))
        }
        _ => None,
    });
    carried.collect()
}

impl Interpreter<'_> {
    /// A run ends once nothing of it is open and nothing goes on: with the input that the next one is given.
    pub(super) fn continues(&mut self, round: &Round, handling: bool) -> bool {
        let Some(input) = round.continues.clone() else { return false };
        let goes_on = handling || !round.acts.is_empty() || round.take.is_some() || round.failure.is_some();
        if goes_on || !self.units.values().all(Unit::is_over) {
            return false;
        }
        if self.is_too_large(None, [&input]) {
            return true;
        }
        let schema = self.definition.input_schema.as_ref();
        if schema.is_some_and(|schema| schema::matches(schema, &input).is_err()) {
            self.winds(super::Cause::Failed(TaskError::last(codes::INPUT_CONTRACT_VIOLATION, "")));
            return true;
        }
        self.continues = Some(input);
        true
    }

    /// What nothing has taken, in order of arrival.
    fn left(&self) -> Vec<Left> {
        let waiting = self.buffered.iter().flat_map(|(name, waiting)| waiting.iter().map(move |one| (name, one)));
        let mut left: Vec<(Seq, Left)> = waiting
            .map(|(name, (seq, payload))| {
                let here = Carried { run: self.run, seq: *seq };
                (*seq, (name.clone(), payload.clone(), self.carried.get(seq).copied().unwrap_or(here)))
            })
            .collect();
        left.sort_by_key(|(seq, _)| *seq);
        left.into_iter().map(|(_, left)| left).collect()
    }

    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some() || self.continues.is_some()
    }
}
