//! Parents and children: they begin and end in the same transaction, and a child outlives nothing.

use crate::bench::Bench;
use orbit_core::api::request::{ReportForm, Request, TaskOutcome};
use orbit_core::api::response::{Assignment, Reply};
use orbit_core::execution::event::TaskError;
use orbit_core::node::Input;
use orbit_core::store::outcome::FailureKind;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A parent whose step runs a child, which has one task.
fn family(parent_step: Value) -> Bench {
    let mut bench = Bench::new();
    deploy(&mut bench, parent_step);
    bench
}

fn deploy(bench: &mut Bench, parent_step: Value) {
    bench.deploy(json!({"name": "Child", "version": "1",
        "steps": [{"id": "work", "task": "task.1", "input": "${ input }", "compensate": {"task": "task.2"}},
            {"id": "more", "task": "task.3"}],
        "result": {"of": "${ execution.id }", "gave": "${ steps.work.output }"}}));
    let mut step = json!({"id": "run"});
    step.as_object_mut().expect("an object").extend(parent_step.as_object().expect("an object").clone());
    bench.deploy(json!({"name": "Parent", "version": "1",
        "steps": [step, {"id": "after", "task": "task.4", "input": "${ steps.run.output }"}],
        "result": "${ steps.run.output }"}));
}

fn child() -> Value {
    json!({"workflow": "Child", "input": {"n": "${ input.n }"}})
}

fn gives(task: &Assignment) -> TaskOutcome {
    TaskOutcome::Succeeded(Arc::new(json!({"did": task.task_name, "n": task.input["n"]})))
}

#[test]
fn a_child_runs_and_its_output_is_the_step_s() {
    let mut bench = family(child());
    bench.start("Parent", "p", json!({"n": 7}));
    assert_eq!(bench.history("p"), ["WorkflowCreated", "WorkflowStarted", "ChildScheduled", "ChildStarted"]);
    let view = bench.view("p~run");
    let parent = view.parent.expect("it is a child");
    assert_eq!((parent.execution_id.as_str(), parent.step.as_str()), ("p", "run"));
    assert_eq!(serde_json::to_value(&bench.view("p").waiting[0]).expect("JSON")["execution_id"], "p~run");
    assert_eq!(bench.store.owners()["p~run"].root.as_str(), "p");
    let session = bench.register("w");
    bench.work(session, gives);
    assert_eq!((bench.status("p~run"), bench.status("p")), ("completed".into(), "completed".into()));
    let output = bench.view("p").output.expect("completed");
    assert_eq!(*output, json!({"of": "p~run", "gave": {"did": "task.1", "n": 7}}));
    assert_eq!(bench.counters().executions_completed, 2);
}

#[test]
fn a_child_s_end_and_its_parent_s_result_are_written_together_or_not_at_all() {
    let mut bench = family(child());
    bench.start("Parent", "p", json!({"n": 1}));
    let session = bench.register("w");
    let poll = |bench: &mut Bench| bench.take(session);
    let task = poll(&mut bench);
    bench.ask(Bench::poll_request(session, Some(vec![]), vec![Bench::result(&task.token, json!(1))]));
    let task = poll(&mut bench);
    // The last result of the child is written; the two ends are kept back, and the server dies.
    bench.hold = true;
    bench.send(Bench::poll_request(session, Some(vec![]), vec![Bench::result(&task.token, json!(2))]));
    let (call, transaction) = bench.held.pop_front().expect("the result");
    let reply = bench.run(transaction);
    bench.give(orbit_core::node::Input::Store { call, reply, origin: None });
    assert_eq!(bench.held.len(), 1, "the ends, in one append");
    assert_eq!((bench.store.owners().len(), bench.held.len()), (2, 1));
    bench.restart();
    assert_eq!(bench.status("p~run"), "completed", "the ends are decided again");
    let history = bench.history("p");
    assert_eq!(history.iter().filter(|name| *name == "ChildCompleted").count(), 1, "{history:?}");
    let session = bench.register("w");
    bench.work(session, gives);
    assert_eq!(bench.status("p"), "completed");
}

#[test]
fn a_child_that_fails_is_started_again_as_another_one_and_at_last_its_error_is_the_step_s() {
    let mut bench =
        family(json!({"workflow": "Child", "retry": {"max_attempts": 2, "initial": "1s", "jitter": "none"}}));
    bench.start("Parent", "p", json!({"n": 1}));
    let session = bench.register("w");
    let fails = |task: &Assignment| match task.task_name.as_str() {
        "task.3" => TaskOutcome::Failed(TaskError::retryable("SOLD_OUT", "nothing left")),
        _ => gives(task),
    };
    bench.work(session, fails);
    assert_eq!(bench.status("p~run"), "failed");
    assert!(bench.history("p~run").contains(&"CompensationCompleted".to_owned()));
    bench.pass(Duration::from_secs(2));
    bench.work(session, fails);
    assert_eq!((bench.status("p~run.2"), bench.status("p")), ("failed".into(), "failed".into()));
    let error = bench.view("p").error.expect("failed");
    assert_eq!((error.code.as_str(), error.step.as_ref().map(|s| s.as_str())), ("SOLD_OUT", Some("run")));
    assert_eq!(error.details.as_deref(), Some(&json!({"execution_id": "p~run.2"})));
}

#[test]
fn a_start_that_is_repeated_while_the_parent_is_out_of_memory_leaves_its_child_alone() {
    let mut bench = family(json!({"workflow": "Nap"}));
    bench.deploy(json!({"name": "Nap", "version": "1", "steps": [{"id": "nap", "sleep": "1s"}]}));
    bench.start("Parent", "p", json!({"n": 1}));
    // The parent waits for its child alone, and has left; the child stays for its second.
    let again = bench.send_start("Parent", "p", json!({"n": 1}));
    assert_eq!(bench.answer(again).status, 200);
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.status("p~run"), "completed");
    let session = bench.register("w");
    bench.work(session, gives);
    assert_eq!(bench.status("p"), "completed");
}

#[test]
fn a_child_whose_time_comes_while_a_start_of_its_parent_is_repeated_is_not_passed_by() {
    let mut bench = family(json!({"workflow": "Nap"}));
    bench.deploy(json!({"name": "Nap", "version": "1", "steps": [{"id": "nap", "sleep": "1h"}]}));
    bench.start("Parent", "p", json!({"n": 1}));
    bench.pass(Duration::from_millis(3_599_500));
    bench.hold = true;
    let again = bench.send_start("Parent", "p", json!({"n": 1}));
    assert_eq!(bench.held.len(), 1, "the start is tried, since nothing of it is in memory");
    bench.pass(Duration::from_secs(1));
    bench.release();
    assert_eq!(bench.answer(again).status, 200);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.status("p~run"), "completed");
}

#[test]
fn a_child_of_a_parent_that_is_set_aside_goes_on_and_its_end_waits_for_the_parent() {
    let mut bench = family(child());
    bench.start("Parent", "p", json!({"n": 1}));
    bench.unreadable = Some("p".into());
    bench.restart();
    let session = bench.register("w");
    bench.work(session, gives);
    assert_eq!((bench.status("p"), bench.status("p~run")), ("quarantined".into(), "running".into()));
    assert_eq!(bench.history("p~run").last().map(String::as_str), Some("StepSucceeded"), "its end waits");
    // However long that takes, nothing is tried in between.
    bench.ran.clear();
    bench.pass(Duration::from_secs(3_600));
    assert!(!bench.ran.iter().any(|name| matches!(*name, "append" | "load")), "{:?}", bench.ran);
    bench.unreadable = None;
    bench.restart();
    let session = bench.register("w");
    bench.work(session, gives);
    assert_eq!((bench.status("p~run"), bench.status("p")), ("completed".into(), "completed".into()));
}

#[test]
fn a_parent_that_is_cancelled_waits_for_its_child_which_undoes_what_it_did() {
    let mut bench = family(child());
    bench.start("Parent", "p", json!({"n": 1}));
    let session = bench.register("w");
    let task = bench.take(session);
    bench.ask(Bench::poll_request(session, Some(vec![]), vec![Bench::result(&task.token, json!(1))]));
    bench.ask(Request::Cancel { execution: "p".into(), reason: None });
    assert_eq!((bench.status("p"), bench.status("p~run")), ("running".into(), "running".into()));
    // Whatever happens in between.
    bench.restart();
    assert_eq!(bench.status("p"), "running");
    let session = bench.register("w");
    bench.work(session, gives);
    assert_eq!((bench.status("p~run"), bench.status("p")), ("cancelled".into(), "cancelled".into()));
    assert!(bench.history("p~run").contains(&"CompensationCompleted".to_owned()));
    assert_eq!(bench.history("p").iter().filter(|name| *name == "ChildEndRequested").count(), 1);
}

#[test]
fn what_a_parent_asked_of_its_child_is_asked_again_after_a_restart() {
    let mut bench = family(child());
    bench.start("Parent", "p", json!({"n": 1}));
    bench.hold = true;
    let cancel = bench.send(Request::Cancel { execution: "p".into(), reason: None });
    // The request to the child is recorded, and the server dies before the child hears of it.
    let (call, transaction) = bench.held.pop_front().expect("the cancel");
    let reply = bench.run(transaction);
    bench.give(orbit_core::node::Input::Store { call, reply, origin: None });
    bench.answer(cancel);
    assert_eq!(bench.held.len(), 1, "the child's part");
    bench.restart();
    bench.pass(Duration::from_secs(1));
    assert_eq!((bench.status("p~run"), bench.status("p")), ("cancelled".into(), "cancelled".into()));
}

#[test]
fn a_tree_that_is_terminated_ends_at_once_from_the_leaves_to_the_root() {
    let mut bench = Bench::new();
    deploy(&mut bench, child());
    bench.deploy(json!({"name": "Grand", "version": "1", "steps": [
        {"id": "all", "for": [1, 2, 3], "parallel": 2, "do": {"workflow": "Parent", "input": {"n": "${ item }"}}}]}));
    bench.start("Grand", "g", json!(null));
    assert_eq!(bench.store.owners().len(), 5, "a root, two parents, two children");
    bench.ask(Request::Terminate { execution: "g".into(), reason: Some("enough".into()) });
    for execution in ["g", "g~all[0]", "g~all[1]", "g~all[0]~run", "g~all[1]~run"] {
        assert_eq!(bench.status(execution), "terminated", "{execution}");
    }
    assert!(bench.store.owners().is_empty());
    assert_eq!(bench.store.tasks().count(), 0);
}

#[test]
fn children_of_a_list_run_as_many_at_a_time_as_it_allows_and_their_outputs_are_in_order() {
    let mut bench = family(json!({"for": "${ input.list }", "parallel": 2,
        "do": {"workflow": "Child", "input": {"n": "${ item }"}}}));
    bench.start("Parent", "p", json!({"list": [10, 20, 30, 40, 50]}));
    assert_eq!(bench.store.owners().len(), 3);
    let session = bench.register("w");
    bench.work(session, gives);
    let output = bench.view("p").output.expect("completed");
    let numbers: Vec<&Value> = output.as_array().expect("a list").iter().map(|one| &one["gave"]["n"]).collect();
    assert_eq!(numbers, [10, 20, 30, 40, 50]);
    assert_eq!(output[4]["of"], "p~run[4]");
}

#[test]
fn a_child_that_takes_too_long_is_cancelled_and_the_step_fails_with_its_time_out() {
    let mut bench = family(json!({"workflow": "Child", "timeout": "5s"}));
    bench.start("Parent", "p", json!({"n": 1}));
    bench.pass(Duration::from_secs(6));
    assert_eq!((bench.status("p~run"), bench.status("p")), ("cancelled".into(), "failed".into()));
    assert_eq!(bench.view("p").error.expect("failed").code, "TIMEOUT");
}

#[test]
fn a_child_that_cannot_be_started_fails_the_step_and_says_why() {
    let cases = [
        (json!({"workflow": "Nobody"}), "UNKNOWN_WORKFLOW"),
        (json!({"workflow": "Child", "version": "9"}), "UNKNOWN_WORKFLOW"),
        (json!({"workflow": "Strict", "input": {}}), "INPUT_CONTRACT_VIOLATION"),
        (json!({"workflow": "Parent"}), "LIMIT_EXCEEDED"),
    ];
    for (step, code) in cases {
        let mut bench = Bench::new();
        bench.deploy(json!({"name": "Strict", "version": "1", "input": {"type": "object", "required": ["a"]},
            "steps": [{"id": "a", "compute": 1}]}));
        deploy(&mut bench, step.clone());
        bench.start("Parent", "p", json!({"n": 1}));
        let error = bench.view("p").error.unwrap_or_else(|| panic!("{step} fails"));
        assert_eq!(error.code, code, "{step}: {error:?}");
    }
}

#[test]
fn a_child_that_needs_nobody_ends_in_the_group_after_the_one_that_started_it() {
    let mut bench = Bench::new();
    bench.deploy(json!({"name": "Sum", "version": "1", "steps": [{"id": "a", "compute": "${ input + 1 }"}],
        "result": "${ steps.a.output }"}));
    bench.deploy(json!({"name": "Sums", "version": "1", "steps": [
        {"id": "all", "for": "${ range(300) | list }", "parallel": 1000, "do": {"workflow": "Sum", "input": "${ item }"}}],
        "result": "${ steps.all.output | sum }"}));
    bench.start("Sums", "s", json!(null));
    let output = bench.view("s").output.expect("completed");
    assert_eq!(*output, json!((1..=300).sum::<i64>()));
    assert!(bench.store.owners().is_empty());
}

#[test]
fn appends_that_fail_leave_neither_a_child_nor_a_parent_that_waits_for_one() {
    let mut bench = family(child());
    bench.failing_as = FailureKind::Unwritable;
    bench.failing.insert("append", 1);
    let id = bench.send_start("Parent", "p", json!({"n": 1}));
    assert_eq!(bench.answer(id).status, 503);
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.store.owners().len(), 0);
    bench.start("Parent", "p", json!({"n": 1}));
    let session = bench.register("w");
    // The append with the two ends fails a few times, and is tried again.
    bench.failing.insert("append", 3);
    bench.work(session, gives);
    bench.pass(Duration::from_secs(3));
    bench.work(session, gives);
    bench.pass(Duration::from_secs(35));
    let session = bench.register("w");
    bench.work(session, gives);
    assert_eq!((bench.status("p~run"), bench.status("p")), ("completed".into(), "completed".into()));
}

#[test]
fn an_execution_that_waits_for_its_children_costs_a_row() {
    let mut bench = family(json!({"workflow": "Sleepy"}));
    bench.deploy(json!({"name": "Sleepy", "version": "1", "steps": [{"id": "nap", "sleep": "1h"}]}));
    bench.start("Parent", "p", json!({"n": 1}));
    bench.pass(Duration::from_secs(1));
    let resident = |bench: &mut Bench| match bench.ask(Request::Metrics).reply {
        Reply::Metrics(metrics) => metrics.resident_executions,
        other => panic!("{other:?}"),
    };
    assert_eq!(resident(&mut bench), 0);
    bench.pass(Duration::from_secs(3_601));
    let session = bench.register("w");
    bench.work(session, gives);
    assert_eq!(bench.status("p"), "completed");
}

#[test]
fn a_child_whose_end_is_told_twice_and_could_not_be_recorded_ends_with_its_parent_all_the_same() {
    // Which append fails differs: the child is told to have come to its end after one of them, and again.
    for nth in 0..8 {
        let mut bench = Bench::with(|config| {
            config.limits.max_child_depth = 1;
            config.limits.max_append_groups = 1;
        });
        bench.deploy(json!({"name": "Leaf", "version": "1", "steps": [{"id": "one", "compute": 1}]}));
        bench.deploy(json!({"name": "Child", "version": "1", "steps": [{"id": "deep", "workflow": "Leaf"}]}));
        bench.deploy(json!({"name": "Parent", "version": "1", "steps": [{"id": "run", "workflow": "Child"}]}));
        bench.hold = true;
        bench.send_start("Parent", "p", json!(null));
        for turn in 0.. {
            let Some((call, transaction)) = bench.held.pop_front() else { break };
            if turn == nth {
                bench.failing.insert("append", 1);
            }
            let reply = bench.run(transaction);
            bench.give(Input::Store { call, reply, origin: None });
        }
        bench.release();
        bench.pass(Duration::from_secs(2));
        if nth > 0 {
            assert_eq!((bench.status("p"), bench.status("p~run")), ("failed".into(), "failed".into()), "append {nth}");
        }
    }
}

#[test]
fn a_start_that_is_repeated_while_a_child_of_it_goes_on_starts_no_second_child() {
    let mut bench = family(child());
    let session = bench.register("w");
    bench.start("Parent", "p", json!({"n": 7}));
    let task = bench.take(session);
    // While an append is under way, the child's result and the start come in line for the next one.
    bench.hold = true;
    bench.send_start("Parent", "other", json!({"n": 1}));
    let results = vec![Bench::result(&task.token, json!("done"))];
    let report = bench.send(Request::Report { session, results, form: ReportForm::Batch });
    let again = bench.send_start("Parent", "p", json!({"n": 7}));
    bench.release();
    assert_eq!((bench.answer(report).status, bench.answer(again).status), (200, 200));
    bench.work(session, gives);
    assert_eq!((bench.status("p"), bench.status("p~run")), ("completed".into(), "completed".into()));
}
