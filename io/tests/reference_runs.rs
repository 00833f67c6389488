//! Every definition that `docs/src/reference/definitions.md` shows is run to its end and does what the page says of it:
//! on a node over the model of the database, in simulated time.

mod book;

use orbit_core::api::ErrorCode;
use orbit_core::api::request::{Contract, Message, Poll, Register, Request, Start, TaskOutcome, TaskResult};
use orbit_core::api::response::{Assignment, Reply};
use orbit_core::execution::event::Event;
use orbit_core::id::{ClusterId, ExecutionId, Seq, SessionId, Token};
use orbit_core::node::{Effect, Input, Node, NodeConfig, RequestId};
use orbit_core::time::{ClusterMs, Mono, Now, WallMs};
use orbit_io::definition::{Format, Schemas, check};
use orbit_sim::store::ModelStore;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// A server, its database and a worker, in simulated time.
struct Bench {
    node: Node,
    store: ModelStore,
    mono: u64,
    requests: u64,
    answers: BTreeMap<RequestId, Reply>,
    session: SessionId,
    /// What the worker is busy with.
    held: Vec<Token>,
}

impl Bench {
    /// With this definition deployed, and a worker that takes its tasks.
    fn of(document: &Value) -> Bench {
        let mut config = NodeConfig::new("n".into());
        config.session_timeout = Duration::from_secs(3_600 * 24 * 30);
        config.check_interval = Duration::from_secs(600);
        let node = Node::new(config, [7; 32], now(0)).with_schemas(Arc::new(Schemas::new()));
        let store = ModelStore::new(ClusterId(Uuid::from_u128(1)));
        let session = SessionId(Uuid::nil());
        let mut bench =
            Bench { node, store, mono: 0, requests: 0, answers: BTreeMap::new(), session, held: Vec::new() };
        bench.give(Input::Start);
        let deployed = bench.ask(Request::deploy(document.clone()));
        assert!(matches!(deployed, Reply::Deployed(_)), "{deployed:?}");
        let mut contracts = Vec::new();
        add_contracts(document, &mut contracts);
        let register = Register { worker_id: "w".into(), runtime: "test".into(), sdk: None, contracts };
        match bench.ask(Request::Register(register)) {
            Reply::Registered(registered) => bench.session = registered.session_id,
            other => panic!("registered, not {other:?}"),
        }
        bench
    }

    fn give(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.node.handle(now(self.mono), input);
            while let Some(effect) = self.node.poll_effect() {
                match effect {
                    Effect::Store { call, transaction, .. } => {
                        self.store.set_clock(ClusterMs((self.mono / 1000) as i64));
                        let reply = self.store.run(transaction);
                        inputs.insert(0, Input::Store { call, reply, origin: None });
                    }
                    Effect::Respond { request, response } => {
                        self.answers.insert(request, response.reply);
                    }
                    Effect::Log(_) | Effect::WriteOff { .. } => {}
                    Effect::Exit { status } => panic!("the node ended with {status}"),
                }
            }
        }
    }

    fn send(&mut self, request: Request) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.give(Input::Request { id, request });
        id
    }

    fn ask(&mut self, request: Request) -> Reply {
        let id = self.send(request);
        self.answers.remove(&id).expect("it is answered at once")
    }

    fn start(&mut self, document: &Value, input: Value) {
        let reply = self.ask(Request::Start(Start {
            workflow: document["name"].as_str().expect("a name").into(),
            version: None,
            execution_id: Some("e".into()),
            input: Arc::new(input),
            labels: BTreeMap::new(),
        }));
        assert!(matches!(reply, Reply::Started(_)), "{reply:?}");
    }

    /// What the worker gets when it brings these results: all the tasks that are there.
    fn poll(&mut self, results: Vec<TaskResult>) -> Vec<Assignment> {
        self.held.retain(|token| results.iter().all(|result| result.token != *token));
        let holding = Some(self.held.clone());
        let poll = Poll { session: self.session, max_tasks: 10, wait: Duration::from_millis(1), holding, results };
        let id = self.send(Request::Poll(poll));
        self.pass(Duration::from_secs(1));
        match self.answers.remove(&id) {
            Some(Reply::Polled(polled)) => {
                self.held.extend(polled.tasks.iter().map(|task| task.token.clone()));
                polled.tasks
            }
            other => panic!("polled, not {other:?}"),
        }
    }

    fn message(name: &str, payload: Value) -> Message {
        Message { name: name.into(), payload: Arc::new(payload), key: None }
    }

    fn signal(&mut self, name: &str, payload: Value) {
        let signal = Bench::message(name, payload);
        let reply = self.ask(Request::Signal { execution: "e".into(), signal });
        assert!(matches!(reply, Reply::Signalled(_)), "{reply:?}");
    }

    fn update(&mut self, name: &str, payload: Value) -> Reply {
        let update = Bench::message(name, payload);
        self.ask(Request::Update { execution: "e".into(), update })
    }

    fn pass(&mut self, time: Duration) {
        let until = self.mono + time.as_micros() as u64;
        while let Some(deadline) = self.node.poll_timeout().filter(|deadline| deadline.at.0 <= until) {
            self.mono = self.mono.max(deadline.at.0);
            self.give(Input::Wake);
        }
        self.mono = until;
    }

    fn events(&mut self) -> Vec<(ClusterMs, Event)> {
        let execution = ExecutionId::new("e");
        match self.ask(Request::GetHistory { execution, run: None, after: Seq(0), limit: 1000, max_bytes: u32::MAX }) {
            Reply::History(history) => history.events.into_iter().map(|e| (e.at_ms, e.event)).collect(),
            other => panic!("a history, not {other:?}"),
        }
    }

    /// Lets the worker do everything that comes, each task with the output that stands in `outputs`; the inputs that
    /// the tasks were given, and the workflow's result.
    fn finish(&mut self, outputs: &Value) -> (BTreeMap<String, Value>, Value) {
        let mut given = BTreeMap::new();
        let mut results = Vec::new();
        loop {
            for task in self.poll(std::mem::take(&mut results)) {
                let name = task.task_name.to_string();
                results.push(TaskResult {
                    token: task.token.clone(),
                    outcome: TaskOutcome::Succeeded(Arc::new(outputs[&name].clone())),
                });
                given.insert(name, (*task.input).clone());
            }
            if let Some((_, Event::WorkflowCompleted { output, .. })) = self.events().last() {
                return (given, (**output).clone());
            }
            let failed = self.events().into_iter().find(|(_, e)| matches!(e, Event::WorkflowFailed { .. }));
            assert!(failed.is_none(), "{failed:?}");
            self.pass(Duration::from_secs(60));
            assert!(self.mono < 1_000_000 * 3_600 * 24 * 10, "it does not end: {:?}", self.events().last());
        }
    }
}

/// The contracts of all tasks of a definition, wherever they stand.
fn add_contracts(part: &Value, contracts: &mut Vec<Contract>) {
    if let Some(task) = part.get("task").and_then(Value::as_str) {
        let version = part["contract_version"].as_str().unwrap_or("1");
        contracts.push(Contract { task_name: task.into(), contract_version: version.into() });
    }
    match part {
        Value::Array(items) => items.iter().for_each(|item| add_contracts(item, contracts)),
        Value::Object(fields) => fields.values().for_each(|field| add_contracts(field, contracts)),
        _ => {}
    }
}

fn now(mono: u64) -> Now {
    Now { mono: Mono(mono), wall: WallMs(0) }
}

/// The block that has this text in it, as a document.
fn block(part: &str) -> Value {
    let page = book::page("reference/definitions.md");
    let shown = book::blocks(&page);
    let mut found = shown.iter().filter(|(kind, text)| kind.starts_with("yaml") && text.contains(part));
    let (kind, text) = found.next().unwrap_or_else(|| panic!("no block has {part:?}"));
    assert!(found.next().is_none(), "{part:?} is in two blocks");
    let text = book::definition(kind, text).expect("it shows a definition");
    check(&text, Format::Yaml).unwrap_or_else(|e| panic!("{}", e.render("example", &text)));
    orbit_io::definition::parse(&text, Format::Yaml).expect("it was checked").value
}

/// What is in each block that shows a definition; a test below runs it.
const RUN: [&str; 9] = [
    "id: greet",
    "id: charge\n  task",
    "id: totals",
    "id: cool_off",
    "id: flight",
    "id: review",
    "name: Purchase",
    "name: Parcels",
    "name: Counter",
];

#[test]
fn every_definition_of_the_page_is_run_by_a_test_here() {
    let page = book::page("reference/definitions.md");
    let shown = book::blocks(&page).into_iter().filter(|(kind, text)| book::definition(kind, text).is_some());
    for (_, text) in shown {
        assert_eq!(RUN.iter().filter(|part| text.contains(*part)).count(), 1, "run this one, too:\n{text}");
    }
}

#[test]
fn the_first_one_greets_and_remembers() {
    let document = block(RUN[0]);
    let mut bench = Bench::of(&document);
    bench.start(&document, json!({"name": "Ada"}));
    let (given, result) = bench.finish(&json!({"greetings.send": {"message_id": "m-1"}}));
    assert_eq!(given["greetings.send"], json!({"to": "Ada", "text": "Hello, Ada!"}));
    assert_eq!(given["greetings.store"], json!({"message": "m-1"}));
    assert_eq!(result, json!({"message": "m-1"}));
}

#[test]
fn a_task_is_repeated_until_it_succeeds_and_not_after_an_error_that_is_final() {
    let document = block(RUN[1]);
    let fail = |code: &str| {
        let error = json!({"code": code, "message": "no"});
        TaskOutcome::Failed(serde_json::from_value(error).expect("an error"))
    };
    for (code, attempts) in [("BUSY", 5), ("CARD_DECLINED", 1)] {
        let mut bench = Bench::of(&document);
        bench.start(&document, json!({"order_id": "o-1", "amount": 5}));
        let (mut results, mut tried) = (Vec::new(), 0);
        for _ in 0..20 {
            for task in bench.poll(std::mem::take(&mut results)) {
                assert_eq!(*task.input, json!({"order": "o-1", "amount": 5}));
                tried += 1;
                results.push(TaskResult { token: task.token.clone(), outcome: fail(code) });
            }
            bench.pass(Duration::from_secs(10));
        }
        assert_eq!(tried, attempts, "{code}");
        assert!(matches!(bench.events().last(), Some((_, Event::WorkflowFailed { .. }))));
    }
}

#[test]
fn values_are_computed() {
    let document = block(RUN[2]);
    let mut bench = Bench::of(&document);
    bench.start(&document, json!({"lines": [{"price": 10}, {"price": 5}]}));
    bench.finish(&json!({}));
    let outputs: Vec<Value> = bench
        .events()
        .into_iter()
        .filter_map(|(_, event)| match event {
            Event::StepSucceeded { output, .. } => Some((*output).clone()),
            _ => None,
        })
        .collect();
    assert_eq!(outputs, [json!({"net": 15, "currency": "EUR"}), json!(18.0)]);
}

#[test]
fn sleeps_last_as_long_as_they_say() {
    let document = block(RUN[3]);
    let mut bench = Bench::of(&document);
    bench.start(&document, json!({"days": 2}));
    bench.finish(&json!({}));
    let events = bench.events();
    let took = events.last().expect("an end").0.0 - events[0].0.0;
    let least = Duration::from_secs(3_600 * 49 + 1_800).as_millis() as i64;
    assert!((least..least + 120_000).contains(&took), "{took} ms");
}

#[test]
fn flight_and_hotel_run_side_by_side_and_the_others_after_them() {
    let document = block(RUN[4]);
    let mut bench = Bench::of(&document);
    bench.start(&document, Value::Null);
    let tasks = bench.poll(Vec::new());
    let names: Vec<String> = tasks.iter().map(|task| task.task_name.to_string()).collect();
    assert_eq!(names, ["flights.reserve", "hotels.reserve"]);
    let result = |task: &Assignment, output: Value| TaskResult {
        token: task.token.clone(),
        outcome: TaskOutcome::Succeeded(Arc::new(output)),
    };
    let waiting = bench.poll(vec![result(&tasks[1], json!({"price": 80}))]);
    assert!(waiting.is_empty(), "the invoice waits for the flight, too");
    let tasks = bench.poll(vec![result(&tasks[0], json!({"price": 120}))]);
    let [invoice] = tasks.as_slice() else { panic!("the invoice alone, not {tasks:?}") };
    assert_eq!((invoice.task_name.as_str(), &*invoice.input), ("invoices.create", &json!({"total": 200})));
    let tasks = bench.poll(vec![result(invoice, Value::Null)]);
    assert_eq!(tasks[0].task_name.as_str(), "mail.send");
}

#[test]
fn a_step_is_skipped_where_its_condition_is_false_and_its_output_is_null() {
    let document = block(RUN[5]);
    for (amount, reviewer) in [(2_000, json!("Grace")), (5, Value::Null)] {
        let mut bench = Bench::of(&document);
        bench.start(&document, json!({"amount": amount}));
        let (given, _) = bench.finish(&json!({"orders.review": {"reviewer": "Grace"}}));
        assert_eq!(given.contains_key("orders.review"), !reviewer.is_null());
        assert_eq!(given["orders.ship"], json!({"reviewer": reviewer}));
    }
}

#[test]
fn a_purchase_waits_for_its_approval_and_takes_updates_remarks_and_queries_meanwhile() {
    let document = block(RUN[6]);
    let mut bench = Bench::of(&document);
    bench.start(&document, json!({"amount": 100}));
    bench.signal("approved", json!({"by": "ann"}));
    bench.signal("remark", json!("in a hurry"));
    let refused = bench.update("raise", json!({"amount": 50}));
    assert!(matches!(&refused, Reply::Error(error) if error.code == ErrorCode::UpdateRejected), "{refused:?}");
    match bench.update("raise", json!({"amount": 120})) {
        Reply::Updated(updated) => assert_eq!(*updated.result, json!({"before": 100, "now": 120})),
        other => panic!("updated, not {other:?}"),
    }
    let (given, _) = bench.finish(&json!({"budget.reserve": "b-1", "payments.pay": "p-1"}));
    assert_eq!(given["budget.reserve"], json!(100));
    assert_eq!(given["notes.keep"], json!("in a hurry"));
    match bench.ask(Request::Query { execution: "e".into(), name: "state".into() }) {
        Reply::Queried(queried) => assert_eq!(*queried.result, json!({"approved": {"by": "ann"}, "paid": "p-1"})),
        other => panic!("a result, not {other:?}"),
    }
    let Some((_, Event::WorkflowCompleted { unconsumed, .. })) = bench.events().pop() else { panic!("completed") };
    assert_eq!(unconsumed.iter().map(|one| one.signal.as_str()).collect::<Vec<_>>(), ["raise"]);
}

#[test]
fn a_purchase_that_nobody_approves_is_not_paid() {
    let document = block(RUN[6]);
    let mut bench = Bench::of(&document);
    bench.start(&document, json!({"amount": 100}));
    let (given, _) = bench.finish(&json!({"budget.reserve": "b-1"}));
    assert!(!given.contains_key("payments.pay"), "{given:?}");
}

#[test]
fn each_parcel_is_shipped_and_then_billed_by_a_child() {
    let document = block(RUN[7]);
    let mut bench = Bench::of(&document);
    let billing = json!({"name": "Billing", "version": "1.0.0", "steps": [{"id": "a", "compute": "${ input.id }"}],
        "result": "${ steps.a.output }"});
    let deployed = bench.ask(Request::deploy(billing));
    assert!(matches!(deployed, Reply::Deployed(_)), "{deployed:?}");
    bench.start(&document, json!({"lines": ["mug", "pot", "pan"]}));
    let (given, _) = bench.finish(&json!({"shipping.ship": {"id": "p"}}));
    assert_eq!(given["shipping.ship"], json!({"line": "pan", "number": 2}));
    let events = bench.events();
    let children = events.iter().filter(|(_, event)| matches!(event, Event::ChildCompleted { .. })).count();
    let joined = events.iter().filter(|(_, event)| matches!(event, Event::StepFanIn { .. })).count();
    assert_eq!((children, joined), (3, 2));
}

#[test]
fn a_counter_goes_on_from_run_to_run() {
    let document = block(RUN[8]);
    let mut bench = Bench::of(&document);
    bench.start(&document, json!({"count": 0}));
    (0..1_000).for_each(|n| bench.signal("tick", json!(n)));
    let (_, result) = bench.finish(&json!({}));
    assert_eq!(result, json!(1_000));
    let Some((_, Event::WorkflowCreated { run, .. })) = bench.events().into_iter().next() else { panic!("a run") };
    assert_eq!(run.0, 10);
}
