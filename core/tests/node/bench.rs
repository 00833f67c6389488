//! A node on a bench: its effects run against the model database, at once or when the test says so.

use orbit_core::api::request::{
    Contract, Message, Poll, Register, ReportForm, Request, Start, TaskOutcome, TaskResult,
};
use orbit_core::api::response::{Assignment, ExecutionView, Polled, Reply, Response};
use orbit_core::execution::event::Recorded;
use orbit_core::id::{ExecutionId, Run, Seq, SessionId, Token};
use orbit_core::mutant::NoMutants;
use orbit_core::node::{CallId, Effect, Input, LogEvent, Node, NodeConfig, RequestId};
use orbit_core::store::origin::Origin;
use orbit_core::store::outcome::{self, Failure, FailureKind};
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_core::time::{ClusterMs, Mono, Now, WallMs};
use orbit_sim::schema::SmallSchema;
use orbit_sim::store::ModelStore;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The database's clock when the bench's begins.
const EPOCH_MS: i64 = 1_700_000_000_000;

pub struct Bench {
    pub node: Node,
    pub config: NodeConfig,
    pub store: ModelStore,
    mono: u64,
    next: u64,
    starts: u8,
    /// Appends are kept back instead of run.
    pub hold: bool,
    /// Reads and the look at the fence too.
    pub hold_all: bool,
    pub held: VecDeque<(CallId, Transaction)>,
    /// Transactions of this name are sent and never answered.
    pub silent: Option<&'static str>,
    /// Reads of this execution's history find a row that is no event.
    pub unreadable: Option<ExecutionId>,
    /// Calls that the node gave up.
    pub written_off: Vec<CallId>,
    /// The next transaction of this name fails: nothing of it happens.
    pub fail: Option<&'static str>,
    pub responses: BTreeMap<RequestId, Response>,
    pub logs: Vec<LogEvent>,
    pub exit: Option<u8>,
    /// Transactions that ran, by name.
    pub ran: Vec<&'static str>,
    /// How many of the next transactions of a name fail for certain.
    pub failing: BTreeMap<&'static str, u32>,
    /// The kind of those failures.
    pub failing_as: FailureKind,
    /// Where the database says that it is, if it says so.
    pub origin: Option<Origin>,
    /// Where each call was to run.
    pub named: Vec<Option<Origin>>,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut NodeConfig)) -> Bench {
        let mut config = NodeConfig::new("n".into());
        change(&mut config);
        let store = ModelStore::new(orbit_core::id::ClusterId(uuid::Uuid::from_u128(0xC1)));
        let mut bench = Bench {
            node: Node::new(config.clone(), [0; 32], now(0)),
            config,
            store,
            mono: 0,
            next: 1,
            starts: 0,
            hold: false,
            hold_all: false,
            held: VecDeque::new(),
            silent: None,
            unreadable: None,
            written_off: Vec::new(),
            fail: None,
            responses: BTreeMap::new(),
            logs: Vec::new(),
            exit: None,
            ran: Vec::new(),
            failing: BTreeMap::new(),
            failing_as: FailureKind::Unwritable,
            origin: None,
            named: Vec::new(),
        };
        bench.restart();
        bench
    }

    /// The process dies where it is, and another one starts.
    pub fn restart(&mut self) {
        self.starts += 1;
        self.held.clear();
        self.hold = false;
        self.exit = None;
        self.node =
            Node::new(self.config.clone(), [self.starts; 32], now(self.mono)).with_schemas(Arc::new(SmallSchema));
        self.give(Input::Start);
    }

    pub fn give(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.node.handle(now(self.mono), input);
            while let Some(effect) = self.node.poll_effect() {
                match effect {
                    Effect::Store { call, transaction, origin, .. } => {
                        self.named.push(origin);
                        if let Some(found) = self.origin.filter(|found| !found.serves(origin, &NoMutants)) {
                            let message = found.refusal(origin);
                            let failure = Failure { kind: FailureKind::Reconnect, message };
                            let reply = outcome::Reply::Failed(failure);
                            inputs.push_back(Input::Store { call, reply, origin: self.origin });
                        } else if self.fail == Some(transaction.name()) {
                            self.fail = None;
                            let failure = Failure { kind: FailureKind::Unwritable, message: "injected".into() };
                            let reply = outcome::Reply::Failed(failure);
                            inputs.push_back(Input::Store { call, reply, origin: None });
                        } else if self.silent == Some(transaction.name()) {
                            self.ran.push("unanswered");
                        } else if matches!(transaction, Transaction::Line(_)) {
                            // It waits for as long as the test says.
                            self.held.push_back((call, transaction));
                        } else if self.hold_all || (self.hold && transaction.writes()) {
                            self.held.push_back((call, transaction));
                        } else {
                            let reply = self.run(transaction);
                            inputs.push_back(Input::Store { call, reply, origin: self.origin });
                        }
                    }
                    Effect::WriteOff { call, .. } => self.written_off.push(call),
                    Effect::Respond { request, response } => {
                        assert!(self.responses.insert(request, response).is_none(), "{request} is answered once");
                    }
                    Effect::Log(line) => self.logs.push(line),
                    Effect::Exit { status } => self.exit = Some(status),
                }
            }
        }
    }

    pub fn run(&mut self, transaction: Transaction) -> outcome::Reply<Verdict> {
        self.store.set_clock(ClusterMs(EPOCH_MS + (self.mono / 1000) as i64));
        let name = transaction.name();
        if let Some(left) = self.failing.get_mut(name).filter(|left| **left > 0) {
            *left -= 1;
            return outcome::Reply::Failed(Failure { kind: self.failing_as, message: "disk I/O error".into() });
        }
        if let (Transaction::Load(read), Some(unreadable)) = (&transaction, &self.unreadable)
            && read.executions.contains(unreadable)
        {
            let message = "a row is no event".into();
            return outcome::Reply::Failed(Failure { kind: FailureKind::Broken, message });
        }
        self.ran.push(name);
        self.store.run(transaction)
    }

    /// Runs what was kept back, and tells the node.
    pub fn release(&mut self) {
        self.hold = false;
        self.hold_all = false;
        while let Some((call, transaction)) = self.held.pop_front() {
            let reply = self.run(transaction);
            self.give(Input::Store { call, reply, origin: self.origin });
        }
    }

    /// Time passes; the node is woken whenever it wants to be.
    pub fn pass(&mut self, time: Duration) {
        let until = self.mono + time.as_micros() as u64;
        for turn in 0.. {
            assert!(turn < 100_000, "the node wakes up for nothing: {:?}", self.node.poll_timeout());
            match self.node.poll_timeout() {
                Some(deadline) if deadline.at.0 <= until => {
                    self.mono = self.mono.max(deadline.at.0);
                    self.give(Input::Wake);
                }
                _ => break,
            }
        }
        self.mono = until;
    }

    /// Time passes, and the process has no part in it.
    pub fn stand_still(&mut self, time: Duration) {
        self.mono += time.as_micros() as u64;
    }

    pub fn send(&mut self, request: Request) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        self.give(Input::Request { id, request });
        id
    }

    pub fn answer(&mut self, id: RequestId) -> Response {
        self.responses.remove(&id).unwrap_or_else(|| panic!("request {id} is not answered"))
    }

    pub fn ask(&mut self, request: Request) -> Response {
        let id = self.send(request);
        self.answer(id)
    }

    pub fn deploy(&mut self, document: Value) {
        let response = self.ask(Request::deploy(document));
        assert_eq!(response.status, 201, "{response:?}");
    }

    /// A workflow of tasks `t1` … one after the other.
    pub fn deploy_chain(&mut self, tasks: usize) {
        let step = |n| json!({"id": format!("t{n}"), "task": format!("task.{n}"), "input": {"n": "${ input.n }"}});
        let steps: Vec<_> = (1..=tasks).map(step).collect();
        self.deploy(json!({"name": "Chain", "version": "1", "steps": steps}));
    }

    pub fn start(&mut self, workflow: &str, id: &str, input: Value) -> Response {
        let id = self.send_start(workflow, id, input);
        self.answer(id)
    }

    pub fn send_start(&mut self, workflow: &str, id: &str, input: Value) -> RequestId {
        self.send(Request::Start(Start {
            workflow: workflow.into(),
            version: None,
            execution_id: Some(id.into()),
            input: Arc::new(input),
            labels: BTreeMap::new(),
        }))
    }

    /// Nine contracts: `task.1` to `task.9`.
    pub fn register_request(worker: &str) -> Request {
        let contract = |n| Contract { task_name: format!("task.{n}").as_str().into(), contract_version: "1".into() };
        let contracts = (1..=9).map(contract).collect();
        Request::Register(Register { worker_id: worker.into(), runtime: "test".into(), sdk: None, contracts })
    }

    pub fn register(&mut self, worker: &str) -> SessionId {
        match self.ask(Bench::register_request(worker)).reply {
            Reply::Registered(registered) => registered.session_id,
            other => panic!("registered, not {other:?}"),
        }
    }

    pub fn poll_request(session: SessionId, holding: Option<Vec<Token>>, results: Vec<TaskResult>) -> Request {
        Request::Poll(Poll { session, max_tasks: 1, wait: Duration::from_secs(20), holding, results })
    }

    pub fn poll(&mut self, session: SessionId, holding: &[Token]) -> Polled {
        let id = self.send(Bench::poll_request(session, Some(holding.to_vec()), vec![]));
        self.polled(id)
    }

    /// A poll that is known to find a task.
    pub fn take(&mut self, session: SessionId) -> Assignment {
        let mut polled = self.poll(session, &[]);
        assert_eq!(polled.tasks.len(), 1, "{polled:?}");
        polled.tasks.remove(0)
    }

    pub fn polled(&mut self, id: RequestId) -> Polled {
        match self.answer(id).reply {
            Reply::Polled(polled) => polled,
            other => panic!("polled, not {other:?}"),
        }
    }

    pub fn result(token: &Token, output: Value) -> TaskResult {
        TaskResult { token: token.clone(), outcome: TaskOutcome::Succeeded(Arc::new(output)) }
    }

    pub fn status(&mut self, execution: &str) -> String {
        match self.ask(Request::GetExecution(execution.into())).reply {
            Reply::Execution(view) => view.item.status.as_str().into(),
            other => panic!("an execution, not {other:?}"),
        }
    }

    /// The types of an execution's events, as committed.
    pub fn history(&mut self, execution: &str) -> Vec<String> {
        let name = |e: &Recorded| serde_json::to_value(e).expect("events are JSON")["type"].as_str().map(Into::into);
        self.events(execution, None).iter().filter_map(name).collect()
    }

    /// The events of a run; of the current one without it.
    pub fn events(&mut self, execution: &str, run: Option<u32>) -> Vec<Recorded> {
        let (execution, run) = (ExecutionId::from(execution), run.map(Run));
        let request = Request::GetHistory { execution, run, after: Seq(0), limit: 1000, max_bytes: u32::MAX };
        match self.ask(request).reply {
            Reply::History(history) => history.events,
            other => panic!("a history, not {other:?}"),
        }
    }

    pub fn view(&mut self, execution: &str) -> ExecutionView {
        match self.ask(Request::GetExecution(execution.into())).reply {
            Reply::Execution(view) => view,
            other => panic!("an execution, not {other:?}"),
        }
    }

    /// Does the tasks that are there, one after the other, with the outcomes that are said.
    pub fn work(&mut self, session: SessionId, outcome: impl Fn(&Assignment) -> TaskOutcome) {
        loop {
            let id = self.send(Bench::poll_request(session, None, vec![]));
            if !self.responses.contains_key(&id) {
                return self.give(Input::RequestGone(id));
            }
            let Some(task) = self.polled(id).tasks.pop() else { return };
            let result = TaskResult { token: task.token.clone(), outcome: outcome(&task) };
            self.ask(Request::Report { session, results: vec![result], form: ReportForm::Batch });
        }
    }

    pub fn signal(&mut self, execution: &str, name: &str, payload: Value, key: Option<&str>) -> Response {
        let signal = Message { name: name.into(), payload: Arc::new(payload), key: key.map(Into::into) };
        self.ask(Request::Signal { execution: execution.into(), signal })
    }

    pub fn counters(&mut self) -> orbit_core::node::counters::Counters {
        match self.ask(Request::Metrics).reply {
            Reply::Metrics(metrics) => metrics.counters,
            other => panic!("metrics, not {other:?}"),
        }
    }
}

fn now(mono: u64) -> Now {
    Now { mono: Mono(mono), wall: WallMs(0) }
}

pub fn code(response: &Response) -> &'static str {
    match &response.reply {
        Reply::Error(error) => error.code.as_str(),
        other => panic!("an error, not {other:?}"),
    }
}
