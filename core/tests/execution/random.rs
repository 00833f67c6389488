//! Definitions and commands, drawn at random.

use crate::machine::Machine;
use orbit_core::definition::Definition;
use orbit_core::execution::event::TaskError;
use orbit_core::execution::{ChildEnd, Command};
use orbit_core::id::{Seq, UnitKey};
use orbit_core::time::ClusterMs;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

// ------------------------------------------------------------------------------------------------ random definitions

#[derive(Clone, Debug)]
pub enum Kind {
    Task {
        attempts: u32,
        timeout: bool,
        queue_timeout: bool,
    },
    Compute(bool),
    Sleep(u32),
    /// With a time-out; with something for when it is over; an update instead of a signal.
    Await {
        timeout: bool,
        otherwise: bool,
        update: bool,
    },
    /// Of how many items at once; computed, given to a task, or to a child.
    For {
        parallel: u32,
        each: u8,
    },
    /// With a time-out.
    Child {
        timeout: bool,
    },
    /// Where the input is large enough.
    Continue,
}

#[derive(Clone, Debug)]
pub struct StepPlan {
    pub kind: Kind,
    /// Bits choose among the steps before it; none: as written.
    pub after: Option<u8>,
    pub when: Option<&'static str>,
    pub compensate: bool,
}

impl StepPlan {
    /// A step that runs as written.
    pub fn of(kind: Kind) -> StepPlan {
        StepPlan { kind, after: None, when: None, compensate: false }
    }
}

/// A workflow.
#[derive(Clone, Debug)]
pub struct Plan {
    pub steps: Vec<StepPlan>,
    pub timeout: bool,
    /// Bits: handlers for failure, cancel, time-out and an event.
    pub handlers: u8,
    /// The result cannot be computed.
    pub bad_result: bool,
}

pub fn plan() -> impl Strategy<Value = Plan> {
    let steps = prop::collection::vec(step_plan(), 1..6);
    (steps, prop::bool::weighted(0.2), any::<u8>(), prop::bool::weighted(0.1))
        .prop_map(|(steps, timeout, handlers, bad_result)| Plan { steps, timeout, handlers, bad_result })
}

pub fn step_plan() -> impl Strategy<Value = StepPlan> {
    let kind = prop_oneof![
        4 => (1u32..4, any::<bool>(), any::<bool>())
            .prop_map(|(attempts, timeout, queue_timeout)| Kind::Task { attempts, timeout, queue_timeout }),
        2 => any::<bool>().prop_map(Kind::Compute),
        1 => (0u32..5000).prop_map(Kind::Sleep),
        2 => any::<[bool; 3]>()
            .prop_map(|[timeout, otherwise, update]| Kind::Await { timeout, otherwise: otherwise && timeout, update }),
        2 => (1u32..4, 0u8..4).prop_map(|(parallel, each)| Kind::For { parallel, each }),
        2 => any::<bool>().prop_map(|timeout| Kind::Child { timeout }),
        1 => Just(Kind::Continue),
    ];
    let when = prop_oneof![
        6 => Just(None),
        1 => Just(Some("${ input.n > 1 }")),
        1 => Just(Some("${ input.n <= 1 }")),
        1 => Just(Some("${ 1 / (input.n - input.n) > 0 }")),
    ];
    (kind, prop::option::of(any::<u8>()), when, any::<bool>()).prop_map(|(kind, after, when, compensate)| StepPlan {
        kind,
        after,
        when,
        compensate,
    })
}

fn task(n: usize) -> Value {
    json!({"task": format!("test.task{n}"), "input": {"n": "${ input.n }"}})
}

fn step(n: usize, plan: &StepPlan) -> Value {
    let mut step = json!({"id": format!("s{n}")});
    let undo = json!({"task": "test.undo", "input": "${ output }", "retry": {"max_attempts": 2, "initial": "50ms"}});
    match plan.kind {
        Kind::Task { attempts, timeout, queue_timeout } => {
            step["task"] = json!("test.task");
            step["input"] = json!({"n": "${ input.n }"});
            step["retry"] = json!({"max_attempts": attempts, "initial": "100ms", "max": "1s"});
            if timeout {
                step["timeout"] = json!("2s");
            }
            if queue_timeout {
                step["queue_timeout"] = json!("3s");
            }
            if plan.compensate {
                step["compensate"] = undo;
            }
        }
        Kind::Compute(good) => {
            step["compute"] = if good { json!("${ input.n + 1 }") } else { json!("${ input.n.missing.x }") };
        }
        Kind::Sleep(ms) => step["sleep"] = json!(format!("{ms}ms")),
        Kind::Await { timeout, otherwise, update } => {
            step["await"] = json!(if update { "change" } else { "go" });
            if timeout {
                step["timeout"] = json!("2s");
            }
            if otherwise {
                step["otherwise"] = json!({"n": "${ input.n }"});
            }
        }
        Kind::For { parallel, each } => {
            step["for"] = json!("${ input.list }");
            step["parallel"] = json!(parallel);
            step["do"] = match each {
                0 => json!({"compute": "${ item * (index + 1) }"}),
                1 => json!({"task": "test.item", "input": "${ item }", "retry": {"max_attempts": 2}}),
                _ => {
                    json!({"workflow": "Child", "input": "${ item }", "retry": {"max_attempts": 2, "initial": "50ms"}})
                }
            };
            if plan.compensate && (each == 1 || each == 3) {
                step["compensate"] = json!({"task": "test.undo", "input": ["${ item }", "${ output }"]});
            }
        }
        Kind::Child { timeout } => {
            step["workflow"] = json!("Child");
            if timeout {
                step["timeout"] = json!("2s");
            }
            if plan.compensate {
                step["compensate"] = undo;
            }
        }
        Kind::Continue => {
            step["continue_as_new"] = json!({"n": "${ input.n - 1 }", "list": "${ input.list }"});
            step["when"] = json!("${ input.n > 2 }");
        }
    }
    if let Some(bits) = plan.after {
        let after: Vec<_> = (0..n).filter(|k| bits & (1 << k) != 0).map(|k| format!("s{k}")).collect();
        step["after"] = json!(after);
    }
    if let (Some(when), true) = (plan.when, step.get("when").is_none()) {
        step["when"] = json!(when);
    }
    step
}

fn document(plan: &Plan) -> Value {
    let steps: Vec<Value> = plan.steps.iter().enumerate().map(|(n, plan)| step(n, plan)).collect();
    let mut document = json!({
        "name": "Random", "version": "1.0.0", "steps": steps, "result": "${ input.n }",
        "signals": {"go": {}, "note": {}},
        "updates": {"change": {"when": "${ event != 3 }", "result": {"was": "${ steps.s0.output }"}}},
    });
    if plan.bad_result {
        document["result"] = json!("${ input.n.missing.x }");
    }
    if plan.timeout {
        document["timeout"] = json!("9s");
    }
    let handler = |name: &str| {
        let mut tell = task(7);
        tell["id"] = json!(format!("{name}_tell"));
        tell["input"] = json!({"failure": "${ failure.code }", "first": "${ steps.s0.output }"});
        json!([{"id": format!("{name}_note"), "compute": "${ failure.reason }"}, tell])
    };
    let mut on = json!({});
    for (bit, name) in ["failure", "cancel", "timeout"].into_iter().enumerate() {
        if plan.handlers & (1 << bit) != 0 {
            on[name] = handler(name);
        }
    }
    if plan.handlers & 8 != 0 {
        let mut kept = task(8);
        let all: Vec<String> = (0..plan.steps.len()).map(|n| format!("${{ steps.s{n}.output }}")).collect();
        (kept["id"], kept["input"]) = (json!("kept"), json!({"event": "${ event }", "all": all}));
        let counted =
            json!({"id": "counted", "compute": ["${ steps.kept.output }", all], "when": "${ event.key > 0 }"});
        on["event"] = json!({"note": [kept, counted, {"id": "nap", "sleep": "1ms"}, {"id": "seen", "compute": all}]});
    }
    document["on"] = on;
    document
}

/// A workflow of these steps and nothing else.
pub fn definition(steps: &[StepPlan]) -> Definition {
    whole(&Plan { steps: steps.to_vec(), timeout: false, handlers: 0, bad_result: false })
}

pub fn whole(plan: &Plan) -> Definition {
    let document = document(plan);
    Definition::from_document(&document).unwrap_or_else(|problems| panic!("{problems:?}\n{document:#}"))
}

// --------------------------------------------------------------------------------------------------- random commands

#[derive(Clone, Debug)]
pub enum Op {
    /// The nth scheduled attempt is dispatched; out of range: a dispatch that nothing waits for.
    Dispatch(u8),
    /// The nth delivery that ever was; out of range: a token that never was.
    Succeed(u8),
    Fail(u8, bool),
    Uncertain(u8),
    Cancel,
    Terminate,
    /// A signal: which one, and with the key of an earlier one.
    Send(u8, u8),
    Update(u8),
    /// The nth child that is wanted is started, or cannot be.
    ChildStarts(u8, bool),
    /// The nth child that runs ends.
    ChildEnds(u8, u8),
    Full,
    /// Milliseconds; backwards too.
    Time(i32),
}

pub fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => any::<u8>().prop_map(|n| Op::Dispatch(n % 6)),
        6 => any::<u8>().prop_map(|n| Op::Succeed(n % 10)),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(n, retryable)| Op::Fail(n % 10, retryable)),
        2 => any::<u8>().prop_map(|n| Op::Uncertain(n % 10)),
        1 => Just(Op::Cancel),
        1 => Just(Op::Terminate),
        3 => any::<[u8; 2]>().prop_map(|[which, key]| Op::Send(which % 3, key % 5)),
        2 => any::<u8>().prop_map(|payload| Op::Update(payload % 5)),
        4 => (any::<u8>(), prop::bool::weighted(0.8)).prop_map(|(n, well)| Op::ChildStarts(n % 3, well)),
        3 => any::<[u8; 2]>().prop_map(|[n, how]| Op::ChildEnds(n % 3, how % 7)),
        1 => Just(Op::Full),
        4 => (-2_000i32..6_000).prop_map(Op::Time),
    ]
}

impl Machine {
    /// Does what was drawn.
    pub fn run(&mut self, op: &Op) {
        let command = match op {
            Op::Dispatch(n) => {
                let scheduled: Vec<(UnitKey, Seq)> =
                    self.state.scheduled().map(|(key, _, seq)| (key.clone(), seq)).collect();
                let (unit, seq) =
                    scheduled.get(usize::from(*n)).cloned().unwrap_or(("nowhere".into(), Seq(u64::from(*n))));
                self.dispatch(unit, seq);
                return;
            }
            Op::Succeed(n) => Command::Succeed { token: self.token(*n), output: Arc::new(json!({"done": n})) },
            Op::Fail(n, retryable) => {
                let error = TaskError { retryable: *retryable, ..TaskError::retryable("BROKEN", "it broke") };
                Command::Fail { token: self.token(*n), error }
            }
            Op::Uncertain(n) => Command::Uncertain { token: self.token(*n), reason: "lost".into() },
            Op::Cancel => Command::Cancel { reason: None },
            Op::Terminate => Command::Terminate { reason: Some("enough".into()) },
            Op::Send(which, key) => Command::Signal {
                name: ["go", "note", "nothing"][usize::from(*which)].into(),
                payload: Arc::new(json!({"key": key})),
                key: (*key > 1).then(|| key.to_string()),
                max: 4,
            },
            Op::ChildStarts(n, well) => {
                let wanted = self.wanted_children();
                let unit = wanted.get(usize::from(*n)).cloned().unwrap_or("nowhere".into());
                match well {
                    true => Command::ChildStarted { unit, version: "1".into() },
                    false => Command::ChildRefused { unit, error: TaskError::retryable("UNKNOWN_WORKFLOW", "") },
                }
            }
            Op::ChildEnds(n, how) => {
                let open: Vec<_> =
                    self.state.open_children().map(|(unit, child, _)| (unit.clone(), child.clone())).collect();
                let (unit, child) = open.get(usize::from(*n)).cloned().unwrap_or(("s0".into(), "nobody".into()));
                let end = match how {
                    0..3 => ChildEnd::Completed(Arc::new(json!({"child": how}))),
                    3 => ChildEnd::Failed(TaskError::retryable("BROKEN", "it broke")),
                    4 => ChildEnd::Cancelled,
                    5 => ChildEnd::TimedOut,
                    _ => ChildEnd::Terminated,
                };
                Command::ChildEnded { unit, child, end }
            }
            Op::Update(payload) => {
                let (name, payload) = ("change".into(), Arc::new(json!(payload)));
                Command::Update { name, payload, key: None, max: 4 }
            }
            Op::Full => Command::HistoryFull { max: 10 },
            Op::Time(ms) => {
                self.now = ClusterMs(self.now.0 + i64::from(*ms));
                return self.decide();
            }
        };
        self.command(command);
    }
}
