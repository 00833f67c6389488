//! What decided values must be, that `decide` does not know: no larger than a payload may be, and as their schemas say.

use super::Node;
use super::slot::Resident;
use crate::definition::{Boundary, Definition, SchemaCheck, StepKind};
use crate::execution::event::{Event, Json};
use crate::execution::{Command, State, UnitStatus, admit, decide, next_run};
use crate::id::Run;
use crate::mutant::{Mutant, Mutants};
use crate::time::ClusterMs;
use serde_json::Value;
use std::sync::Arc;

/// What decided values must be, that `decide` does not know.
#[derive(Clone)]
pub(super) struct Rules {
    schemas: Arc<dyn SchemaCheck>,
    max_payload: u64,
    max_fan_out: u64,
    mistakes: Mistakes,
}

/// Planted mistakes in what is decided.
#[derive(Clone, Copy)]
struct Mistakes {
    compensation_forwards: bool,
    parallel_leaks: bool,
    child_outlives_parent: bool,
    signal_lost_between_runs: bool,
    signal_carried_twice: bool,
    keys_forgotten_between_runs: bool,
    repeats_forgotten: bool,
    back_off_stands_still: bool,
    await_forgets_timeout: bool,
}

impl Mistakes {
    fn any(self) -> bool {
        self.compensation_forwards
            || self.parallel_leaks
            || self.child_outlives_parent
            || self.repeats_forgotten
            || self.back_off_stands_still
            || self.await_forgets_timeout
    }

    fn decide(self, definition: &Definition, state: &State, now: ClusterMs) -> Vec<Event> {
        let (mut definition, mut state) = (definition.clone(), state.clone());
        let forgets = self.child_outlives_parent && !state.is_running();
        for unit in state.units.values_mut().filter(|_| forgets) {
            if let UnitStatus::Child { .. } = unit.status {
                unit.status = UnitStatus::Cancelled;
            }
        }
        for step in &mut definition.steps {
            match &mut step.kind {
                StepKind::For(each) if self.parallel_leaks => each.parallel += 1,
                StepKind::Task(task) if self.back_off_stands_still => task.retry.factor_milli = 1_000,
                StepKind::Await(wait) if self.await_forgets_timeout => wait.timeout = None,
                _ => {}
            }
        }
        let mut decided = decide(&definition, &state, now);
        for event in &mut decided {
            if let (Event::CompensationStarted { steps, .. }, true) = (&mut *event, self.compensation_forwards) {
                steps.reverse();
            }
            if let (Event::StepScheduled { redelivery, .. }, true) = (event, self.repeats_forgotten) {
                *redelivery = false;
            }
        }
        decided
    }

    fn next_run(self, state: &State, input: Json, run: Run) -> Vec<Event> {
        let mut events = next_run(state, input, run);
        if let (Some(Event::WorkflowCreated { continued: Some(left), .. }), true) =
            (events.first_mut(), self.keys_forgotten_between_runs)
        {
            left.sent = Default::default();
        }
        if let (Some(carried), true) = (events.get(1).cloned(), self.signal_carried_twice) {
            events.push(carried);
        }
        if events.len() > 1 && self.signal_lost_between_runs {
            events.pop();
        }
        events
    }
}

impl Rules {
    /// The planted mistake: what is delivered again does not say so.
    pub fn forgetting(mut self, repeats: bool) -> Rules {
        self.mistakes.repeats_forgotten = repeats;
        self
    }

    /// What the next run begins with.
    pub fn next_run(&self, state: &State, input: Json, run: Run) -> Vec<Event> {
        self.mistakes.next_run(state, input, run)
    }

    /// What is to be recorded next.
    pub fn decide(&self, resident: &Resident, now: ClusterMs) -> Vec<Event> {
        let Resident { definition, state, .. } = resident;
        if self.mistakes.any() {
            return self.mistakes.decide(definition, state, now);
        }
        decide(definition, state, now)
    }

    /// Why an update cannot be answered with what the workflow gives.
    pub fn too_large_an_answer(&self, event: &Event) -> Option<String> {
        let max = self.max_payload;
        match event {
            Event::UpdateAccepted { result, .. } if json_bytes(result) > max => {
                Some(format!("its answer is larger than {max} bytes of JSON (max_payload_bytes)"))
            }
            _ => None,
        }
    }

    /// The event that is recorded instead of `event`, where that may not be.
    pub fn refusal(&self, resident: &Resident, event: &Event, now: ClusterMs) -> Option<Event> {
        let Resident { definition, state, .. } = resident;
        let (unit, what, bytes) = match event {
            Event::StepScheduled { step, input, .. } => (Some(step), format!("the input of {step}"), json_bytes(input)),
            Event::StepSucceeded { step, output, token: None, .. } => {
                (Some(step), format!("the output of {step}"), json_bytes(output))
            }
            Event::StepFanOut { step, items } => {
                let max = self.max_fan_out;
                if items.len() as u64 > max {
                    let command = Command::ListTooLong { unit: step.clone(), items: items.len(), max };
                    return admit(definition, state, &command, now).ok();
                }
                (Some(step), format!("the list of {step}"), items.iter().map(|item| json_bytes(item)).sum())
            }
            Event::ChildScheduled { step, input, .. } => {
                (Some(step), format!("the input of {step}"), json_bytes(input))
            }
            Event::WorkflowContinuedAsNew { input, .. } => {
                (None, "the input of the next run".into(), json_bytes(input))
            }
            Event::WorkflowCompleted { output, .. } => (None, "the workflow's output".into(), json_bytes(output)),
            _ => return None,
        };
        let max = self.max_payload;
        if bytes > max {
            let command = Command::PayloadTooLarge { unit: unit.cloned(), what, max };
            return admit(definition, state, &command, now).ok();
        }
        let (boundary, schema, value) = match event {
            Event::WorkflowCompleted { output, .. } => (Boundary::Output, &definition.output_schema, output),
            Event::WorkflowContinuedAsNew { input, .. } => (Boundary::Input, &definition.input_schema, input),
            _ => return None,
        };
        let what = boundary.as_str();
        let violation = self.schemas.check(&definition.hash, boundary.clone(), schema.as_ref()?, value).err()?;
        let message = format!("`{}` does not match the {what} schema: {}", violation.place(what), violation.message);
        let command = match boundary {
            Boundary::Output => Command::RefuseOutput { message },
            _ => Command::RefuseInput { message },
        };
        admit(definition, state, &command, now).ok()
    }
}

/// How long a value is as JSON text.
fn json_bytes(value: &Value) -> u64 {
    struct Count(u64);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).expect("a JSON value is written to a counter");
    count.0
}

impl<M: Mutants> Node<M> {
    pub(super) fn rules(&self) -> Rules {
        let limits = &self.config.limits;
        let (max_payload, max_fan_out) = (limits.max_payload_bytes, limits.max_fan_out);
        let mistakes = Mistakes {
            compensation_forwards: self.mutants.planted(Mutant::CompensationForwards),
            parallel_leaks: self.mutants.planted(Mutant::ParallelLeaks),
            child_outlives_parent: self.mutants.planted(Mutant::ChildOutlivesParent),
            signal_lost_between_runs: self.mutants.planted(Mutant::SignalLostBetweenRuns),
            signal_carried_twice: self.mutants.planted(Mutant::SignalCarriedTwice),
            keys_forgotten_between_runs: self.mutants.planted(Mutant::KeysForgottenBetweenRuns),
            repeats_forgotten: false,
            back_off_stands_still: self.mutants.planted(Mutant::BackOffStandsStill),
            await_forgets_timeout: self.mutants.planted(Mutant::AwaitForgetsTimeout),
        };
        Rules { schemas: self.schemas.clone(), max_payload, max_fan_out, mistakes }
    }
}
