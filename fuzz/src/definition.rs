//! A text as a workflow definition, in YAML and in JSON.

use super::life::Life;
use orbit_core::definition::{Boundary, Definition, SchemaCheck, StepKind};
use orbit_core::execution::replay;
use orbit_core::id::{ExecutionId, StepId};
use orbit_io::definition::{Format, Schemas, check};
use serde_json::json;

/// Checks the text. What is refused is explained, and what is accepted is the same when written again, and runs.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for format in [Format::Yaml, Format::Json] {
        match check(text, format) {
            Ok(definition) => accepted(&definition),
            Err(error) => {
                let report = error.render("a.yaml", text);
                assert!(report.starts_with("error: "), "{report}");
                assert!(!error.to_string().is_empty());
            }
        }
    }
}

fn accepted(definition: &Definition) {
    let again = check(&definition.document.to_string(), Format::Json);
    let again = again.unwrap_or_else(|error| panic!("what was accepted is refused as JSON: {error}"));
    assert_eq!(again.hash, definition.hash);
    assert_eq!(&again, definition);

    let input =
        json!({"order_id": "o-1", "amount": 59.9, "n": 3, "items": [{"sku": "mug", "quantity": 2}], "none": null});
    let schemas = Schemas::new();
    for (boundary, schema) in
        [(Boundary::Input, &definition.input_schema), (Boundary::Output, &definition.output_schema)]
    {
        if let Some(schema) = schema {
            let _ = schemas.check(&definition.hash, boundary, schema, &input);
        }
    }

    for step in &definition.steps {
        assert_eq!(definition.step(step.id.as_str()), Some(step));
        let known = |id: &StepId| definition.step(id.as_str()).is_some();
        assert!(step.after.iter().all(known), "`after` names a step that is not there");
        let read = match &step.kind {
            StepKind::Task(task) => Some(&task.input),
            StepKind::Workflow(child) => Some(&child.input),
            StepKind::For(each) => Some(&each.list),
            StepKind::Compute(template) | StepKind::Sleep(template) | StepKind::ContinueAsNew(template) => {
                Some(template)
            }
            StepKind::Await(wait) => {
                let declared =
                    definition.signals.contains_key(&wait.signal) || definition.updates.contains_key(&wait.signal);
                assert!(
                    declared && !definition.on.event.contains_key(&wait.signal),
                    "nothing can come to `{}`",
                    step.id
                );
                wait.otherwise.as_ref()
            }
        };
        let read = read.into_iter().chain(step.compensate.as_ref().map(|undo| &undo.input));
        assert!(
            read.flat_map(|template| template.references()).all(known),
            "an expression reads a step that is not there"
        );
    }

    let mut life = Life::begin(definition, input);
    life.live(definition, |n| n % 3 == 0);
    let replayed = replay(definition, &ExecutionId::new("e-1"), &life.events);
    assert_eq!(replayed.as_ref().map_err(ToString::to_string), Ok(&life.state));
}
