//! The definitions in `docs/examples` are definitions, and give what their comments say.

use orbit_core::definition::{Definition, Scope, StepKind, Template};
use orbit_core::id::{ExecutionId, Run, StepId};
use orbit_io::definition::{Format, check};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples")
}

fn read(path: &Path) -> Definition {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let format = Format::of_file(path);
    check(&text, format).unwrap_or_else(|e| panic!("\n{}", e.render(&path.display().to_string(), &text)))
}

fn example(name: &str) -> Definition {
    read(&folder().join(name))
}

/// What a template of an example gives, with some steps ended.
fn render(definition: &Definition, template: &Template, input: Value, outputs: &[(&str, Value)]) -> Value {
    let outputs: BTreeMap<StepId, Arc<Value>> =
        outputs.iter().map(|(id, output)| (StepId::new(*id), Arc::new(output.clone()))).collect();
    let scope = Scope {
        input: &Arc::new(input),
        outputs: &outputs,
        execution: &ExecutionId::new("e-1"),
        workflow: &definition.name,
        version: &definition.version,
        run: Run(1),
        local: Default::default(),
    };
    template.render(&scope).unwrap_or_else(|e| panic!("{e}"))
}

fn kind<'d>(definition: &'d Definition, step: &str) -> &'d StepKind {
    &definition.step(step).expect("the step is there").kind
}

#[test]
fn every_example_passes_the_check() {
    let files = std::fs::read_dir(folder()).expect("the folder is there");
    let mut checked = 0;
    for file in files {
        let path = file.expect("the folder can be read").path();
        read(&path);
        checked += 1;
    }
    assert!(checked >= 3, "{checked} examples");
}

#[test]
fn order_processing_is_six_tasks_in_a_row() {
    let definition = example("order-processing.yaml");
    assert_eq!((definition.name.as_str(), definition.version.as_str()), ("OrderProcessing", "1.0.0"));
    let tasks: Vec<(&str, &str)> = definition
        .steps
        .iter()
        .map(|step| match &step.kind {
            StepKind::Task(task) => (step.id.as_str(), task.task.as_str()),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        ("validate", "orders.validate"),
        ("fraud_check", "fraud.check"),
        ("reserve", "inventory.reserve"),
        ("charge", "payments.charge"),
        ("ship", "shipping.ship"),
        ("notify", "customers.notify"),
    ];
    assert_eq!(tasks, expected);
    for pair in definition.steps.windows(2) {
        assert_eq!(pair[1].after, [pair[0].id.clone()]);
    }
    let StepKind::Task(charge) = kind(&definition, "charge") else { panic!("a task") };
    assert_eq!(charge.retry.max_attempts, 5);
    assert!(charge.timeout.is_some());
    let input = json!({"order_id": "o-1", "customer": "ada", "amount": 12.5, "items": []});
    let given = render(&definition, &charge.input, input, &[("fraud_check", json!({"score": 12}))]);
    assert_eq!(given, json!({"order_id": "o-1", "customer": "ada", "amount": 12.5, "risk": 12}));
}

#[test]
fn the_trial_reminder_waits_for_days_and_reads_a_skipped_step() {
    let definition = example("trial-reminder.yaml");
    let input = json!({"email": "a@example.com", "trial_days": 14});
    let StepKind::Compute(terms) = kind(&definition, "terms") else { panic!("computed") };
    // `plan` is not in the input: its default stands in.
    let terms = render(&definition, terms, input.clone(), &[]);
    assert_eq!(terms, json!({"plan": "basic", "wait_days": 11}));
    let StepKind::Sleep(wait) = kind(&definition, "wait") else { panic!("a sleep") };
    let terms = ("terms", terms);
    assert_eq!(render(&definition, wait, input.clone(), std::slice::from_ref(&terms)), json!("11d"));
    let discount = definition.step("discount").and_then(|s| s.when.clone()).expect("a condition");
    let usage = ("usage", json!({"logins": 50}));
    assert_eq!(render(&definition, &discount, input.clone(), &[terms.clone(), usage]), json!(false));
    let StepKind::Task(remind) = kind(&definition, "remind") else { panic!("a task") };
    let skipped = ("discount", Value::Null);
    let mail = render(&definition, &remind.input, input.clone(), &[terms.clone(), skipped.clone()]);
    assert_eq!(mail["subject"], "Your basic trial ends in 3 days");
    assert_eq!(mail["offer"], Value::Null);
    let result = definition.result.as_ref().expect("a result");
    assert_eq!(render(&definition, result, input, &[terms, skipped]), json!({"reminded": true, "discounted": false}));
}

#[test]
fn the_trip_starts_flight_and_hotel_at_once() {
    let definition = example("trip-booking.yaml");
    let after = |id: &str| definition.step(id).map(|s| s.after.iter().map(StepId::as_str).collect::<Vec<_>>());
    assert_eq!(after("flight"), Some(vec![]));
    assert_eq!(after("hotel"), Some(vec![]));
    assert_eq!(after("price"), Some(vec!["flight", "hotel"]));
    assert_eq!(after("welcome"), Some(vec!["hotel"]));
    let StepKind::Compute(price) = kind(&definition, "price") else { panic!("computed") };
    let outputs = [("flight", json!({"price": 120})), ("hotel", json!({"price": 80.5}))];
    assert_eq!(render(&definition, price, json!({}), &outputs), json!(200.5));
}
