//! Tests of `await`, `for`, `compensate`, signals, updates, queries and handlers: what is right, and what is told of
//! what is not.

use crate::definition::{Definition, StepKind};
use serde_json::{Value, json};
use std::time::Duration;

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut document = json!({
        "name": "W", "version": "1", "timeout": "2h",
        "signals": {"approved": {"payload": {"type": "object"}, "description": "by a person"}, "note": {}},
        "updates": {"raise": {"payload": {"type": "object"}, "when": "${ event.by > 0 }",
            "result": "${ steps.ask.output }"}},
        "queries": {"progress": {"asked": "${ steps.ask.output }", "who": "${ input.who }"}},
        "steps": [
            {"id": "ask", "await": "approved", "timeout": "1h", "otherwise": {"by": "nobody"}},
            {"id": "change", "await": "raise", "after": []},
            {"id": "ship", "after": ["ask", "change"], "for": "${ input.lines }", "parallel": 4,
                "do": {"task": "ship", "input": ["${ item }", "${ index }"], "timeout": "5s", "retry": {"max_attempts": 2}},
                "compensate": {"task": "recall", "input": ["${ item }", "${ output.id }", "${ steps.ask.output }"]}},
            {"id": "bill", "workflow": "Billing", "version": "2", "input": "${ steps.ask.output }", "timeout": "1d",
                "retry": {"max_attempts": 3}, "compensate": {"task": "void", "input": "${ output }"}},
            {"id": "pay", "task": "pay", "compensate": {"task": "refund", "input": "${ steps.pay.output }"}},
        ],
        "on": {
            "failure": [{"id": "tell", "task": "tell", "input": "${ failure.code } ${ steps.pay.output }"}],
            "event": {"note": [{"id": "keep", "compute": "${ event }"}, {"id": "use", "task": "t",
                "input": "${ steps.keep.output }"}]},
        },
        "result": "${ steps.ship.output }",
    });
    let again = json!({"id": "again", "when": "${ execution.continue_suggested }",
        "continue_as_new": {"lines": "${ steps.ship.output }"}});
    document["steps"].as_array_mut().expect("a list").push(again);
    change(&mut document);
    document
}

fn told(change: impl FnOnce(&mut Value)) -> Vec<String> {
    match Definition::from_document(&with(change)) {
        Ok(_) => panic!("nothing is wrong with it"),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

/// The one problem.
fn problem(change: impl FnOnce(&mut Value)) -> String {
    match told(change).as_slice() {
        [one] => one.clone(),
        several => panic!("{several:#?}"),
    }
}

#[test]
fn everything_is_read() {
    let definition = Definition::from_document(&with(|_| {})).unwrap_or_else(|problems| panic!("{problems:?}"));
    assert_eq!(definition.timeout, Some(Duration::from_secs(7200)));
    assert_eq!(definition.signals["approved"].payload, Some(json!({"type": "object"})));
    assert!(definition.updates.contains_key("raise") && definition.queries.contains_key("progress"));
    let kind = |id: &str| &definition.step(id).expect("it is there").kind;
    let StepKind::Await(ask) = kind("ask") else { panic!("an await") };
    assert_eq!((ask.signal.as_str(), ask.timeout), ("approved", Some(Duration::from_secs(3600))));
    let StepKind::For(ship) = kind("ship") else { panic!("a for") };
    assert!(matches!((&*ship.each, ship.parallel), (StepKind::Task(_), 4)));
    let task = |unit: &str| definition.task_of(&unit.into()).map(|task| task.task.to_string());
    assert_eq!(task("ship[7]").as_deref(), Some("ship"));
    assert_eq!(task("compensate:ship[7]").as_deref(), Some("recall"));
    assert_eq!(task("compensate:pay").as_deref(), Some("refund"));
    assert_eq!(task("on_failure/tell").as_deref(), Some("tell"));
    assert_eq!(task("on_event:note@9/use").as_deref(), Some("t"));
    assert_eq!((task("ship"), task("on_cancel/tell"), task("ask")), (None, None, None));
    let StepKind::Workflow(bill) = kind("bill") else { panic!("a child") };
    assert_eq!((bill.workflow.as_str(), bill.version.as_ref().map(|v| v.as_str())), ("Billing", Some("2")));
    assert_eq!((bill.retry.max_attempts, bill.timeout), (3, Some(Duration::from_secs(86_400))));
    assert!(matches!(kind("again"), StepKind::ContinueAsNew(_)));
}

#[test]
fn each_part_changes_the_hash() {
    let hash = |change: &dyn Fn(&mut Value)| {
        Definition::from_document(&with(change)).unwrap_or_else(|problems| panic!("{problems:?}")).hash
    };
    let changes: [&dyn Fn(&mut Value); 19] = [
        &|_| {},
        &|d| d["timeout"] = json!("3h"),
        &|d| d["signals"]["more"] = json!({}),
        &|d| d["signals"]["approved"]["payload"] = json!({}),
        &|d| d["updates"]["raise"]["when"] = json!("${ event.by > 1 }"),
        &|d| d["updates"]["raise"]["result"] = json!(1),
        &|d| d["queries"]["progress"] = json!(1),
        &|d| d["steps"][0]["otherwise"] = json!(1),
        &|d| d["steps"][2]["parallel"] = json!(5),
        &|d| d["steps"][2]["do"]["task"] = json!("send"),
        &|d| d["steps"][2]["for"] = json!([1]),
        &|d| d["steps"][4]["compensate"]["task"] = json!("void"),
        &|d| d["steps"][3]["workflow"] = json!("Invoicing"),
        &|d| d["steps"][3]["version"] = json!("3"),
        &|d| d["steps"][3]["timeout"] = json!("2d"),
        &|d| d["steps"][3]["retry"]["max_attempts"] = json!(4),
        &|d| d["steps"][5]["continue_as_new"] = json!(null),
        &|d| d["on"]["failure"][0]["task"] = json!("page"),
        &|d| d["on"]["event"]["note"][0]["compute"] = json!(1),
    ];
    let hashes: Vec<_> = changes.iter().map(|change| hash(change)).collect();
    for (index, one) in hashes.iter().enumerate() {
        assert!(!hashes[..index].contains(one), "change {index} made no difference");
    }
    let same = hash(&|d| d["signals"]["approved"]["description"] = json!("another"));
    assert_eq!(same, hashes[0], "a description says nothing about what runs");
}

#[test]
fn names_that_are_not_declared_are_told_with_those_that_are() {
    let found = problem(|d| d["steps"][0]["await"] = json!("aproved"));
    assert_eq!(found, "/steps/0/await: there is no signal or update `aproved` (did you mean `approved`?)");
    let found = problem(|d| d["on"]["event"]["refused"] = json!([{"id": "x", "compute": 1}]));
    assert!(found.contains("declare it: `signals: {refused: {}}`"), "{found}");
    let found = problem(|d| d["steps"][0]["await"] = json!("note"));
    assert!(found.contains("`note` is taken by its handler in `on.event`"), "{found}");
    let found = problem(|d| d["signals"]["raise"] = json!({}));
    assert!(found.contains("`raise` is a signal already"), "{found}");
    let found = problem(|d| d["signals"]["a b"] = json!({}));
    assert!(found.contains("the name of a signal cannot hold ' '"), "{found}");
}

#[test]
fn a_name_that_is_there_in_other_places_alone_is_told_with_those() {
    let found = problem(|d| d["steps"][4]["input"] = json!("${ item }"));
    let place = "it is there in `do` and `compensate` of a `for` step alone";
    assert_eq!(found, format!("/steps/4/input: `item` is not there in this place ({place})"));
    assert!(problem(|d| d["result"] = json!("${ event }")).contains("in handlers of events and in updates"));
    assert!(problem(|d| d["steps"][2]["for"] = json!("${ item }")).contains("`item` is not there"));
    assert!(problem(|d| d["steps"][4]["input"] = json!("${ output }")).contains("in `compensate` alone"));
    assert!(problem(|d| d["queries"]["q"] = json!("${ failure.code }")).contains("`failure`, `cancel` and `timeout`"));
    assert!(problem(|d| d["on"]["event"]["note"][0]["compute"] = json!("${ failure }")).contains("is not there"));
}

#[test]
fn what_is_read_must_be_a_step_and_for_a_compensation_its_own_output_counts() {
    let found = problem(|d| d["queries"]["progress"] = json!("${ steps.aks.output }"));
    assert_eq!(
        found,
        "/queries/progress: `${ steps.aks.output }`: there is no step `aks` to read from (did you mean `ask`?)"
            .replace("`${ steps.aks.output }`: ", "")
    );
    assert!(problem(|d| d["updates"]["raise"]["result"] = json!("${ steps.x.output }")).contains("no step `x`"));
    assert!(problem(|d| d["on"]["failure"][0]["input"] = json!("${ steps.pya.output }")).contains("mean `pay`"));
    // A compensation reads what came before its step, and the step itself; a step reads no output of its own.
    assert!(problem(|d| d["steps"][4]["input"] = json!("${ steps.pay.output }")).contains("reads its own output"));
    let found = problem(|d| d["steps"][0]["otherwise"] = json!("${ steps.pay.output }"));
    assert!(found.contains("runs after it"), "{found}");
}

#[test]
fn fields_stand_where_they_mean_something() {
    let found = problem(|d| d["steps"][2]["retry"] = json!({"max_attempts": 2}));
    assert_eq!(
        found,
        "/steps/2/retry: `retry` is only for steps with a `task` or `workflow` (write it in `do`, beside what is done)"
    );
    assert!(problem(|d| d["steps"][4]["parallel"] = json!(2)).contains("only for steps with a `for`"));
    assert!(problem(|d| d["steps"][0]["compensate"] = json!({"task": "t"})).contains("a `task`, `workflow` or `for`"));
    let found = problem(|d| drop(d["steps"][0].as_object_mut().expect("a step").remove("timeout")));
    assert!(found.contains("say how long to wait"), "{found}");
    let found = told(|d| d["steps"][2]["do"] = json!({"sleep": "1s"}));
    assert!(found[0].contains("`do` has no field `sleep`"), "{found:?}");
    let found = problem(|d| d["steps"][2]["do"] = json!({"compute": "${ item }"}));
    assert!(found.contains("items that are computed or awaited need not be undone"), "{found}");
    assert!(problem(|d| d["steps"][2]["for"] = json!("lines")).contains("must be a list, or one expression"));
    let found = told(|d| d["steps"][3]["queue_timeout"] = json!("1s"));
    assert!(found[0].contains("`queue_timeout` is only for steps with a `task`"), "{found:?}");
    let found = problem(|d| d["on"]["failure"][0] = json!({"id": "tell", "workflow": "W"}));
    assert!(found.contains("`workflow` cannot stand in a handler"), "{found}");
    assert!(problem(|d| d["steps"][2]["parallel"] = json!(0)).contains("from 1 to 1000"));
    let found = problem(|d| d["on"]["failure"][0] = json!({"id": "tell", "await": "approved"}));
    assert!(found.contains("`await` cannot stand in a handler"), "{found}");
    let found = told(|d| d["on"]["failure"][0]["id"] = json!("pay"));
    assert!(found[0].contains("taken by a step of the workflow"), "{found:?}");
    let found = problem(|d| d["on"]["failure"][0]["compensate"] = json!({"task": "t"}));
    assert!(found.contains("steps of handlers are not compensated"), "{found}");
    assert!(problem(|d| d["on"]["cancel"] = json!([])).contains("a handler needs at least one step"));
    assert!(problem(|d| d["on"]["canceled"] = json!([])).contains("did you mean `cancel`?"));
}
