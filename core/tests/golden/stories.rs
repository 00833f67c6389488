//! What the golden histories are about: each story is told to `admit` and `decide` as a server would.

use crate::teller::{Story, Teller};
use orbit_core::definition::Definition;
use orbit_core::execution::event::{Event, Parent, Recorded, TaskError};
use orbit_core::execution::{ChildEnd, Command, State, next_run};
use orbit_core::id::{Run, Seq};
use serde_json::{Value, json};
use std::sync::Arc;

/// All of them.
pub fn all() -> Vec<Story> {
    vec![
        order_of_six_tasks(),
        retry_with_jitter(),
        late_success_of_a_lost_worker(),
        held_and_recovered(),
        stale_failure(),
        time_outs(),
        sleep_skip_and_compute(),
        parallel_steps_and_a_final_failure(),
        cancelled_in_the_middle(),
        history_limit(),
        payload_limit(),
        output_contract(),
        exact_values(),
        result_that_cannot_be_computed(),
        trip_that_is_undone(),
        cancelled_and_told(),
        timed_out_with_an_item_that_cannot_be_undone(),
        terminated_while_undoing(),
        result_that_fails_after_work(),
        signals_awaited_and_handled(),
        parent_of_children(),
        child_of_a_parent(),
        run_that_continues_as_new(),
        run_that_knows_its_start(),
    ]
}

fn order_of_six_tasks() -> Story {
    let document = json!({
        "name": "OrderProcessing",
        "version": "1.0.0",
        "input": {"type": "object", "required": ["order_id", "customer", "amount", "items"]},
        "steps": [
            {"id": "validate", "task": "orders.validate", "timeout": "30s",
                "input": {"order_id": "${ input.order_id }", "items": "${ input.items }"}},
            {"id": "fraud_check", "task": "fraud.check", "retry": {"max_attempts": 3, "initial": "1s"},
                "input": {"customer": "${ input.customer }", "amount": "${ input.amount }"}},
            {"id": "reserve", "task": "inventory.reserve", "contract_version": "2",
                "input": {"items": "${ input.items }", "first": "${ input.items[0].sku | upper }"}},
            {"id": "charge", "task": "payments.charge", "timeout": "30s", "queue_timeout": "10m",
                "retry": {"max_attempts": 5, "non_retryable": ["CARD_DECLINED"]},
                "input": {"amount": "${ input.amount }", "risk": "${ steps.fraud_check.output.score }"}},
            {"id": "ship", "task": "shipping.ship",
                "input": {"reservation": "${ steps.reserve.output.reservation_id }"}},
            {"id": "notify", "task": "customers.notify",
                "input": {"message": "Order ${ input.order_id } is on its way: ${ steps.ship.output.tracking }"}},
        ],
        "result": {"charge": "${ steps.charge.output.charge_id }", "tracking": "${ steps.ship.output.tracking }"},
    });
    let input = json!({"order_id": "o-17", "customer": "c-4", "amount": 59.9,
        "items": [{"sku": "mug", "quantity": 2}, {"sku": "pot", "quantity": 1}]});
    let mut order = Teller::start("order-of-six-tasks", document, input, &[("region", "eu"), ("tier", "gold")]);
    order.run("validate", json!({"valid": true}));
    order.run("fraud_check", json!({"score": 0.07}));
    order.run("reserve", json!({"reservation_id": "r-1"}));
    order.run("charge", json!({"charge_id": "ch-9"}));
    order.run("ship", json!({"tracking": "TRK-0017"}));
    order.run("notify", json!(null));
    order.end()
}

/// Delays with full jitter come from a fixed hash: they are the same in every release.
fn retry_with_jitter() -> Story {
    let retry = json!({"max_attempts": 5, "initial": "1s", "factor": 2.5, "max": "10s", "jitter": "full"});
    let document = json!({"name": "Retry", "version": "1", "steps": [
        {"id": "flaky", "task": "test.flaky", "retry": retry},
        {"id": "steady", "task": "test.steady", "retry": {"max_attempts": 2, "initial": "250ms", "jitter": "none"}},
    ]});
    let mut told = Teller::start("retry-with-jitter", document, json!(null), &[]);
    for n in 1..=4 {
        let token = told.dispatch("flaky", "worker-1");
        let details = (n == 2).then(|| Arc::new(json!({"status": 503, "after": [1, 2.5]})));
        told.fail(token, TaskError { details, ..TaskError::retryable("UNAVAILABLE", format!("failure {n}")) });
        told.wait();
    }
    told.run("flaky", json!({"attempts": 5}));
    let token = told.dispatch("steady", "worker-1");
    told.fail(token, TaskError::retryable("UNAVAILABLE", ""));
    told.wait();
    told.run("steady", json!([]));
    told.end()
}

/// A worker falls silent, its attempt is delivered again, and then it reports after all: its success is taken, and
/// that of the repeat is stale.
fn late_success_of_a_lost_worker() -> Story {
    let document = json!({"name": "Uncertain", "version": "1", "steps": [
        {"id": "charge", "task": "payments.charge"},
        {"id": "ship", "task": "shipping.ship", "input": "${ steps.charge.output }"},
    ]});
    let mut told = Teller::start("late-success-of-a-lost-worker", document, json!(null), &[]);
    let first = told.dispatch("charge", "worker-1");
    told.lose(first);
    let second = told.dispatch("charge", "worker-22");
    told.succeed(first, json!({"charged_by": "the first"}));
    told.succeed(second, json!({"charged_by": "the second"}));
    told.run("ship", json!(true));
    told.end()
}

/// An attempt times out; its worker's failure comes when the next attempt waits for its time.
/// One attempt is out when a server takes over, another one is said to be a repeat, and the time-out of the first passes
/// while it is held.
fn held_and_recovered() -> Story {
    let document = json!({
        "name": "Held", "version": "1",
        "steps": [
            {"id": "charge", "task": "payments.charge", "timeout": "1m", "retry": {"max_attempts": 1}},
            {"id": "pack", "task": "stock.pack", "after": [], "queue_timeout": "1m"},
            {"id": "ship", "task": "stock.ship", "after": ["pack", "charge"]},
        ],
    });
    let mut told = Teller::start("held-and-recovered", document, json!(null), &[]);
    let first = told.dispatch("charge", "worker-1");
    told.command(Command::Hold { reason: "attempts were out".into(), queued: vec!["pack".into()] });
    told.lose(first);
    told.now = orbit_core::time::ClusterMs(told.now.0 + 600_000);
    told.decide();
    assert!(told.state.scheduled().next().is_none(), "nothing is handed out");
    told.command(Command::Recover { reason: Some("looked at".into()) });
    told.succeed(first, json!("at last"));
    told.run("pack", json!(null));
    told.run("ship", json!(null));
    told.end()
}

fn stale_failure() -> Story {
    let document = json!({"name": "Stale", "version": "1", "steps": [
        {"id": "slow", "task": "test.slow", "timeout": "2s", "retry": {"max_attempts": 2, "initial": "1s"}},
    ]});
    let mut told = Teller::start("stale-failure", document, json!(null), &[]);
    let first = told.dispatch("slow", "worker-1");
    told.wait();
    told.fail(first, TaskError::retryable("INTERRUPTED", "too late"));
    told.wait();
    told.run("slow", json!("in time"));
    told.end()
}

/// No worker takes an attempt; the next runs too long; no attempt is left.
fn time_outs() -> Story {
    let document = json!({"name": "TimeOuts", "version": "1", "steps": [
        {"id": "work", "task": "test.work", "timeout": "30s", "queue_timeout": "10m",
            "retry": {"max_attempts": 2, "initial": "1s", "jitter": "none"}},
    ]});
    let mut told = Teller::start("time-outs", document, json!(null), &[]);
    told.wait();
    told.wait();
    told.dispatch("work", "worker-1");
    told.wait();
    told.end()
}

fn sleep_skip_and_compute() -> Story {
    let document = json!({"name": "Pauses", "version": "1", "steps": [
        {"id": "pause", "sleep": "1h30m"},
        {"id": "computed_pause", "sleep": "${ input.ms }"},
        {"id": "never", "task": "test.never", "when": "${ input.ms > 1000 }"},
        {"id": "total", "compute": {"sum": "${ input.ms + 1 }", "skipped": "${ steps.never.output }"}},
    ], "result": "${ steps.total.output.sum }"});
    let mut told = Teller::start("sleep-skip-and-compute", document, json!({"ms": 250}), &[]);
    told.wait();
    told.wait();
    told.end()
}

/// Three steps at once: one ends, one sleeps, one fails for good. What is open is cancelled.
fn parallel_steps_and_a_final_failure() -> Story {
    let document = json!({"name": "Parallel", "version": "1", "steps": [
        {"id": "quick", "task": "test.quick", "after": []},
        {"id": "declined", "task": "payments.charge", "after": [],
            "retry": {"max_attempts": 5, "non_retryable": ["CARD_DECLINED"]}},
        {"id": "pause", "sleep": "1d", "after": []},
        {"id": "open", "task": "test.open", "after": []},
        {"id": "joined", "compute": 1, "after": ["quick", "declined", "pause"]},
    ]});
    let mut told = Teller::start("parallel-steps-and-a-final-failure", document, json!(null), &[]);
    told.dispatch("open", "worker-1");
    let declined = told.dispatch("declined", "worker-22");
    told.run("quick", json!({}));
    let details = Some(Arc::new(json!({"decline": "insufficient funds"})));
    told.fail(declined, TaskError { details, ..TaskError::retryable("CARD_DECLINED", "the bank says no") });
    told.end()
}

fn cancelled_in_the_middle() -> Story {
    let document = json!({"name": "Cancelled", "version": "1", "steps": [
        {"id": "done", "compute": "${ execution.id }"},
        {"id": "running", "task": "test.running", "after": ["done"]},
        {"id": "waiting", "task": "test.waiting", "after": ["done"]},
        {"id": "pause", "sleep": "1m", "after": ["done"]},
        {"id": "later", "compute": 2, "after": ["running", "waiting", "pause"]},
    ]});
    let mut told = Teller::start("cancelled-in-the-middle", document, json!(null), &[]);
    told.dispatch("running", "worker-1");
    told.command(Command::Cancel { reason: Some("the customer called".into()) });
    told.end()
}

fn history_limit() -> Story {
    let document = json!({"name": "Limit", "version": "1", "steps": [{"id": "work", "task": "test.work"}]});
    let mut told = Teller::start("history-limit", document, json!(null), &[]);
    told.dispatch("work", "worker-1");
    told.command(Command::HistoryFull { max: 4 });
    told.end()
}

fn payload_limit() -> Story {
    let document = json!({"name": "Large", "version": "1", "steps": [
        {"id": "large", "task": "test.large", "input": ["${ input }", "${ input }"]},
    ]});
    let mut told = Teller::create("payload-limit", document, json!("xxxxxxxx"), &[]);
    told.refuse_input = Some(("large", 16));
    told.decide();
    told.end()
}

fn output_contract() -> Story {
    let document = json!({"name": "Contract", "version": "1", "output": {"type": "string"},
        "steps": [{"id": "work", "task": "test.work"}], "result": "${ steps.work.output }"});
    let mut told = Teller::start("output-contract", document, json!(null), &[]);
    told.refuse_output = Some("the output does not match its schema at ``: 5 is not of type \"string\"");
    told.run("work", json!(5));
    told.end()
}

/// What is easily lost on the way to a database and back.
fn exact_values() -> Story {
    let document = json!({"name": "Exact", "version": "1.0.0-beta+1", "steps": [
        {"id": "same", "task": "test.same", "input": {"all": "${ input }", "n": "${ input.past_2_53 + 1 }",
            "text": "„${ input.texts[0] }“ ${ input.past_2_53 }"}},
        {"id": "sums", "compute": {"float": "${ input.floats[0] + input.floats[1] }",
            "product": "${ input.past_2_53 * 3 }"}},
    ], "result": {"same": "${ steps.same.output }", "sums": "${ steps.sums.output }"}});
    let input = json!({
        "past_2_53": 9_007_199_254_740_993_u64,
        "largest": u64::MAX,
        "smallest": i64::MIN,
        "floats": [0.1, 0.2, -0.0, 1e-7, 1.7976931348623157e308, 5e-324, 0.0031107911718710126, 1e21],
        "texts": ["Größe: 3 µm — 漢字 🦀", "a\u{0301} and á", "\u{0}\u{1f}\u{7f}\u{2028}\"\\/", ""],
        "": {"": [[], {}, null, false]},
        "Zürich": "${ not an expression }",
    });
    let labels = [("kunde", "Jürgen Müller"), ("空", "値"), ("empty", "")];
    let mut told = Teller::start("exact-values", document, input.clone(), &labels);
    let token = told.dispatch("same", "worker-333");
    told.succeed(token, input);
    told.end()
}

fn result_that_cannot_be_computed() -> Story {
    let document = json!({"name": "Result", "version": "1", "steps": [{"id": "one", "compute": 1}],
        "result": "${ input.missing.field }"});
    Teller::start("result-that-cannot-be-computed", document, json!({}), &[]).end()
}

/// The flight fails: hotel and car are given back, the last one first, one of them in vain; a handler tells of it.
fn trip_that_is_undone() -> Story {
    let undo = |task: &str| json!({"task": task, "input": {"booking": "${ output.id }", "for": "${ input.who }"}});
    let document = json!({"name": "Trip", "version": "1", "steps": [
        {"id": "car", "task": "car.book", "compensate": undo("car.free")},
        {"id": "hotel", "task": "hotel.book", "compensate": undo("hotel.free")},
        {"id": "flight", "task": "flight.book", "compensate": undo("flight.free")},
    ], "on": {"failure": [
        {"id": "note", "compute": "${ failure.code } at ${ failure.step }"},
        {"id": "tell", "task": "mail.send", "input": {"text": "${ steps.note.output }", "car": "${ steps.car.output.id }"}},
    ]}});
    let mut told = Teller::start("trip-that-is-undone", document, json!({"who": "ann"}), &[]);
    told.run("car", json!({"id": "c-1"}));
    told.run("hotel", json!({"id": "h-1"}));
    let flight = told.dispatch("flight", "worker-1");
    told.fail(flight, TaskError::last("SOLD_OUT", "no seat is left"));
    let hotel = told.dispatch("compensate:hotel", "worker-1");
    told.fail(hotel, TaskError::last("TOO_LATE", "the hotel keeps the money"));
    told.run("compensate:car", json!(null));
    told.run("on_failure/tell", json!(null));
    told.end()
}

fn cancelled_and_told() -> Story {
    let document = json!({"name": "Cancelled", "version": "1", "steps": [
        {"id": "reserve", "task": "stock.reserve", "compensate": {"task": "stock.release"}},
        {"id": "pick", "task": "stock.pick"},
    ], "on": {"cancel": [{"id": "tell", "task": "mail.send", "input": "${ failure.message }"}]}});
    let mut told = Teller::start("cancelled-and-told", document, json!(null), &[]);
    told.run("reserve", json!(7));
    told.dispatch("pick", "worker-1");
    told.command(Command::Cancel { reason: Some("the customer called".into()) });
    told.run("compensate:reserve", json!(null));
    let tell = told.dispatch("on_cancel/tell", "worker-1");
    told.fail(tell, TaskError::last("BOUNCED", "no such mailbox"));
    told.end()
}

/// Two items at a time; the workflow's time is over before the last one.
fn timed_out_with_an_item_that_cannot_be_undone() -> Story {
    let document = json!({"name": "Parcels", "version": "1", "timeout": "1h", "steps": [
        {"id": "squares", "for": "${ input.lines }", "do": {"compute": "${ index * index }"}},
        {"id": "ship", "for": "${ input.lines }", "parallel": 2,
            "do": {"task": "ship", "input": {"line": "${ item }", "at": "${ index }"}},
            "compensate": {"task": "recall", "input": {"line": "${ item }", "parcel": "${ output }"}}},
    ], "on": {"timeout": [{"id": "note", "compute": "${ failure.reason }"}]}});
    let mut told = Teller::start(
        "timed-out-with-an-item-that-cannot-be-undone",
        document,
        json!({"lines": ["mug", "pot", "pan"]}),
        &[],
    );
    told.run("ship[1]", json!("p-1"));
    told.run("ship[0]", json!("p-0"));
    told.dispatch("ship[2]", "worker-1");
    told.refuse_input = Some(("compensate:ship[0]", 16));
    told.wait();
    told.run("compensate:ship[1]", json!(null));
    told.end()
}

fn terminated_while_undoing() -> Story {
    let document = json!({"name": "Stuck", "version": "1", "signals": {"go": {}}, "steps": [
        {"id": "work", "task": "test.work", "compensate": {"task": "test.undo"}},
        {"id": "hang", "task": "test.hang"},
    ]});
    let mut told = Teller::start("terminated-while-undoing", document, json!(null), &[]);
    told.send("go", json!("nobody awaits it"), None);
    told.run("work", json!(null));
    told.command(Command::Cancel { reason: None });
    told.dispatch("compensate:work", "worker-1");
    told.command(Command::Terminate { reason: Some("it never ends".into()) });
    told.end()
}

fn result_that_fails_after_work() -> Story {
    let document = json!({"name": "Result", "version": "2", "steps": [
        {"id": "work", "task": "test.work", "compensate": {"task": "test.undo"}}], "result": "${ input.missing.field }"});
    let mut told = Teller::start("result-that-fails-after-work", document, json!({}), &[]);
    told.run("work", json!(1));
    told.run("compensate:work", json!(null));
    told.end()
}

/// A signal before its step, one that comes in time, one that does not come; an update; a handler for each note.
fn signals_awaited_and_handled() -> Story {
    let document = json!({"name": "Talk", "version": "1",
        "signals": {"approved": {"payload": {"type": "object"}}, "note": {}},
        "updates": {"raise": {"when": "${ event.by > 0 }", "result": {"by": "${ event.by }", "over": "${ input.from }"}}},
        "queries": {"state": "${ steps.first.output }"},
        "steps": [
            {"id": "first", "await": "approved"},
            {"id": "second", "await": "approved", "timeout": "1h"},
            {"id": "raised", "await": "raise"},
            {"id": "third", "await": "approved", "timeout": "5m", "otherwise": "${ input.from }"},
        ],
        "on": {"event": {"note": [{"id": "keep", "task": "notes.keep", "input": "${ event }"}]}},
        "result": ["${ steps.first.output.by }", "${ steps.second.output.by }", "${ steps.raised.output.by }",
            "${ steps.third.output }"]});
    let mut told = Teller::start("signals-awaited-and-handled", document, json!({"from": 10}), &[]);
    told.send("approved", json!({"by": "ann"}), Some("k-1"));
    told.send("note", json!("first"), None);
    told.send("note", json!("second"), None);
    let handled = told.scheduled_first();
    told.run(&handled, json!(null));
    told.send("approved", json!({"by": "bob"}), None);
    let (name, payload) = ("raise".into(), Arc::new(json!({"by": 3})));
    told.command(Command::Update { name, payload, key: Some("u-1".into()), max: 9 });
    told.wait();
    let handled = told.scheduled_first();
    told.send("approved", json!({"by": "too late"}), None);
    told.run(&handled, json!(null));
    told.end()
}

/// One child ends well, one fails and is started again as another, one is cancelled when the parent is.
fn parent_of_children() -> Story {
    let document = json!({"name": "Parent", "version": "1", "steps": [
        {"id": "bill", "workflow": "Billing", "input": {"n": "${ input.n }"},
            "retry": {"max_attempts": 2, "initial": "1s", "jitter": "none"}, "compensate": {"task": "void", "input": "${ output }"}},
        {"id": "all", "for": [1, 2, 3], "parallel": 2, "do": {"workflow": "Shipping", "version": "2", "input": "${ item }", "timeout": "1h"}},
    ]});
    let mut told = Teller::start("parent-of-children", document, json!({"n": 3}), &[("tier", "gold")]);
    let started = |unit: &str, version: &str| Command::ChildStarted { unit: unit.into(), version: version.into() };
    let ended = |unit: &str, child: &str, end| Command::ChildEnded { unit: unit.into(), child: child.into(), end };
    told.command(started("bill", "7"));
    let error = TaskError { step: Some("charge".into()), ..TaskError::retryable("DECLINED", "the bank says no") };
    told.command(ended("bill", "parent-of-children~bill", ChildEnd::Failed(error)));
    told.wait();
    told.command(started("bill", "8"));
    told.command(ended("bill", "parent-of-children~bill.2", ChildEnd::Completed(Arc::new(json!("b-1")))));
    let unknown = TaskError::last("INPUT_CONTRACT_VIOLATION", "`input` does not match");
    told.command(started("all[0]", "2"));
    told.command(started("all[1]", "2"));
    told.wait();
    told.command(ended("all[0]", "parent-of-children~all[0]", ChildEnd::Completed(Arc::new(json!(null)))));
    told.command(Command::ChildRefused { unit: "all[2]".into(), error: unknown });
    told.command(ended("all[1]", "parent-of-children~all[1]", ChildEnd::Cancelled));
    told.run("compensate:bill", json!(null));
    told.end()
}

fn child_of_a_parent() -> Story {
    let document = json!({"name": "Billing", "version": "7", "steps": [{"id": "charge", "task": "charge"}]});
    let definition = Definition::from_document(&document).expect("it is right");
    let (parent, root) = ("parent".into(), "grandparent".into());
    let parent = Parent { execution_id: parent, step: "bill".into(), root, depth: 2 };
    let (input, labels) = (json!({"n": 3}), [("tier", "gold")]);
    let mut told =
        Teller::create_as("child-of-a-parent", document, definition, input, &labels, Run(1), Some(parent), None);
    told.decide();
    told.command(Command::Terminate { reason: Some("its parent is ending".into()) });
    told.end()
}

fn counter() -> Value {
    json!({"name": "Counter", "version": "1", "signals": {"tick": {}}, "steps": [
        {"id": "a", "await": "tick"}, {"id": "nap", "sleep": "1s"},
        {"id": "next", "when": "${ execution.continue_suggested }", "continue_as_new": {"count": "${ input.count + 1 }"}},
    ], "result": "${ input.count }"})
}

fn run_that_continues_as_new() -> Story {
    let mut told = Teller::start("run-that-continues-as-new", counter(), json!({"count": 0}), &[]);
    told.command(Command::SuggestContinue { max: 50 });
    told.send("tick", json!(1), Some("k-1"));
    told.send("tick", json!(2), Some("k-2"));
    told.wait();
    told.end()
}

/// The run that follows: one signal comes again, the senders' keys are known, and what the first run was given is.
fn run_that_knows_its_start() -> Story {
    let mut before = Teller::start("run-that-knows-its-start", counter(), json!({"count": 0}), &[]);
    before.command(Command::SuggestContinue { max: 50 });
    before.send("tick", json!(1), Some("k-1"));
    before.send("tick", json!(2), Some("k-2"));
    before.wait();
    let Some(Event::WorkflowContinuedAsNew { input, next_run: run }) = before.events.last().map(|e| e.event.clone())
    else {
        panic!("it continues as new")
    };
    let mut events = next_run(&before.state, input, run).into_iter();
    let first = Recorded { seq: Seq(1), at_ms: before.now, event: events.next().expect("a first event") };
    let state = State::begin(&"run-that-knows-its-start".into(), &first).expect("a first event");
    let mut told = before;
    (told.state, told.events) = (state, vec![first]);
    events.for_each(|event| told.record(event));
    told.decide();
    told.wait();
    told.end()
}
