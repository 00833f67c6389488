//! What an execution waits for, step by step.

use crate::api::request::Contract;
use crate::definition::{Definition, StepKind, TaskStep, UnitPath};
use crate::execution::event::TaskError;
use crate::execution::state::{State, Unit, UnitStatus};
use crate::id::{ContractVersion, ExecutionId, SessionId, SignalName, StepId, TaskName, Token, UnitKey, WorkerId};
use crate::time::ClusterMs;
use serde::{Deserialize, Serialize};

/// Steps that are told of one execution, in the order of its definition.
pub const MAX_WAITING: usize = 1_000;

/// A step that has begun and not ended, and what it waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    pub step_id: StepId,
    /// What of the step it is, where it is not the step as a whole: an item, its compensation, a run of a handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitKey>,
    pub kind: WaitingKind,
    /// When it began to wait for this.
    pub since_ms: ClusterMs,
    #[serde(flatten)]
    pub reason: Reason,
}

/// What kind of step waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitingKind {
    Task,
    Sleep,
    Compute,
    Await,
    For,
    Workflow,
    ContinueAsNew,
}

/// Why a step does not go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// An attempt waits for a worker, and no worker that is alive offers its task in this version of its contract.
    NoWorker {
        #[serde(flatten)]
        attempt: Attempt,
        /// Versions of the task's contract that are offered.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        other_versions: Vec<ContractVersion>,
    },
    /// An attempt waits for a worker, and `sessions` of workers offer its task: none of them has taken it so far.
    Queued {
        #[serde(flatten)]
        attempt: Attempt,
        sessions: u32,
    },
    /// A worker has the attempt.
    Running {
        #[serde(flatten)]
        attempt: Attempt,
        worker_id: WorkerId,
        /// When it is given up, where the step has a `timeout`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_ms: Option<ClusterMs>,
        #[serde(flatten)]
        keeper: Keeper,
    },
    /// An attempt failed, and the next one (which `attempt` counts) waits for its time.
    Retry {
        #[serde(flatten)]
        attempt: Attempt,
        until_ms: ClusterMs,
    },
    /// A timer runs.
    Sleep { until_ms: ClusterMs },
    /// No signal of this name has come.
    Signal {
        signal: SignalName,
        /// When it waits no longer, where the step has a `timeout`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_ms: Option<ClusterMs>,
    },
    /// No update of this name has been taken.
    Update {
        update: SignalName,
        /// When it waits no longer, where the step has a `timeout`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_ms: Option<ClusterMs>,
    },
    /// Items are under way, or wait for their turn.
    Items { items: u64, ended: u64 },
    /// A child runs.
    Child { execution_id: ExecutionId },
    /// The execution is held: this goes on once somebody recovers it.
    Held,
    /// The server is to decide next: nothing from outside is waited for.
    Server,
}

/// An attempt of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    pub task_name: TaskName,
    pub contract_version: ContractVersion,
    /// Which one; the first is 1.
    pub attempt: u32,
    pub max_attempts: u32,
    /// Why the one before it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<TaskError>,
}

/// Who has an attempt, as far as this server knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Keeper {
    /// The session that has it; none where the server has started since, and no worker has named the attempt yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// For how long, in milliseconds, that session has not been heard from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// When the attempt is offered again, unless its worker is heard from before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_again_ms: Option<ClusterMs>,
    /// When its worker id registered again since, last: a worker that was restarted does, and does not know of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_again_ms: Option<ClusterMs>,
}

/// What the workers that are alive offer, and what they have.
pub trait Offers {
    /// How many sessions offer this contract.
    fn sessions(&self, contract: &Contract) -> u32;
    /// The versions in which this task is offered.
    fn versions(&self, task: &TaskName) -> Vec<ContractVersion>;
    /// Who has this delivery, which was handed to this worker.
    fn keeper(&self, token: &Token, worker: &WorkerId) -> Keeper;
}

/// What `state` waits for: one entry for each step that has begun and not ended, at most [`MAX_WAITING`].
pub fn waiting(definition: &Definition, state: &State, offers: &dyn Offers) -> Vec<Waiting> {
    // The steps in their order, each with its items; then handlers and what is being undone.
    let steps = definition.steps.iter().flat_map(|step| {
        let whole = UnitKey::new(step.id.as_str());
        let items = format!("{whole}[");
        let items_from = UnitKey::new(items.as_str());
        let of_items = state.units.range(items_from..).take_while(move |(key, _)| key.as_str().starts_with(&items));
        state.units.get_key_value(&whole).into_iter().chain(of_items)
    });
    let others = state.units.iter().filter(|(key, _)| {
        let path = UnitPath::parse(key);
        path.compensates || path.handler.is_some()
    });
    let open = steps.chain(others).filter(|(_, unit)| !unit.status.has_ended());
    open.filter_map(|(key, unit)| of_unit(definition, state, key, unit, offers)).take(MAX_WAITING).collect()
}

fn of_unit(definition: &Definition, state: &State, key: &UnitKey, unit: &Unit, offers: &dyn Offers) -> Option<Waiting> {
    let step = definition.step_of(key)?;
    let (kind, reason) = match definition.task_of(key) {
        Some(task) => (WaitingKind::Task, of_task(state, task, unit, offers)),
        None => {
            let kind = match &step.kind {
                StepKind::Sleep(_) => WaitingKind::Sleep,
                StepKind::Await(_) => WaitingKind::Await,
                StepKind::For(_) if UnitPath::parse(key).index.is_none() => WaitingKind::For,
                StepKind::For(each) if matches!(*each.each, StepKind::Await(_)) => WaitingKind::Await,
                StepKind::For(_) | StepKind::Workflow(_) => WaitingKind::Workflow,
                StepKind::ContinueAsNew(_) => WaitingKind::ContinueAsNew,
                StepKind::Task(_) | StepKind::Compute(_) => WaitingKind::Compute,
            };
            (kind, of_others(definition, state, key, unit))
        }
    };
    // What runs elsewhere runs on, and its end is taken in.
    let runs = matches!(unit.status, UnitStatus::Dispatched { .. } | UnitStatus::Child { .. } | UnitStatus::FannedOut);
    let reason = if state.held.is_some() && !runs { Reason::Held } else { reason };
    let part = (key.as_str() != step.id.as_str()).then(|| key.clone());
    Some(Waiting { step_id: step.id.clone(), unit: part, kind, since_ms: unit.since, reason })
}

fn of_task(state: &State, task: &TaskStep, unit: &Unit, offers: &dyn Offers) -> Reason {
    let attempt = |attempt: u32| Attempt {
        task_name: task.task.clone(),
        contract_version: task.contract_version.clone(),
        attempt,
        max_attempts: task.retry.max_attempts,
        last_error: unit.last_error.as_deref().cloned(),
    };
    match &unit.status {
        UnitStatus::Scheduled { .. } | UnitStatus::Uncertain => {
            let contract = Contract { task_name: task.task.clone(), contract_version: task.contract_version.clone() };
            let attempt = attempt(unit.attempt);
            match offers.sessions(&contract) {
                0 => Reason::NoWorker { attempt, other_versions: offers.versions(&task.task) },
                sessions => Reason::Queued { attempt, sessions },
            }
        }
        UnitStatus::Dispatched { token, worker, deadline, .. } => {
            let token = Token { execution: state.identity.execution_id.clone(), id: *token };
            let mut keeper = offers.keeper(&token, worker);
            let mut deadline_ms = *deadline;
            // While it is held it is neither given up nor offered again.
            if state.held.is_some() {
                (keeper.offered_again_ms, deadline_ms) = (None, None);
            }
            Reason::Running { attempt: attempt(unit.attempt), worker_id: worker.clone(), deadline_ms, keeper }
        }
        UnitStatus::Retrying { next_attempt, fire_at } => {
            Reason::Retry { attempt: attempt(*next_attempt), until_ms: *fire_at }
        }
        _ => Reason::Server,
    }
}

fn of_others(definition: &Definition, state: &State, key: &UnitKey, unit: &Unit) -> Reason {
    match &unit.status {
        UnitStatus::Sleeping { fire_at } => Reason::Sleep { until_ms: *fire_at },
        UnitStatus::Awaiting { signal: name, deadline } => {
            let (name, until_ms) = (name.clone(), *deadline);
            match definition.updates.contains_key(&name) {
                true => Reason::Update { update: name, until_ms },
                false => Reason::Signal { signal: name, until_ms },
            }
        }
        UnitStatus::Child { child, .. } => Reason::Child { execution_id: child.clone() },
        UnitStatus::FannedOut => match state.fans.get(key) {
            Some(fan) => Reason::Items { items: fan.items.len() as u64, ended: fan.ended() },
            None => Reason::Server,
        },
        _ => Reason::Server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::event::{Event, Recorded};
    use crate::id::{ClusterId, Run, Seq, SessionId, Token};
    use serde_json::{Value, json};
    use uuid::Uuid;

    /// Sessions that offer a contract, each with how many.
    struct Offered(&'static [(&'static str, &'static str, u32)]);

    impl Offers for Offered {
        fn sessions(&self, contract: &Contract) -> u32 {
            let is = |(name, version, _): &&(&str, &str, u32)| {
                *name == contract.task_name.as_str() && *version == contract.contract_version.as_str()
            };
            self.0.iter().find(is).map_or(0, |(.., sessions)| *sessions)
        }
        fn versions(&self, task: &TaskName) -> Vec<ContractVersion> {
            self.0.iter().filter(|(name, ..)| *name == task.as_str()).map(|(_, version, _)| (*version).into()).collect()
        }
        fn keeper(&self, kept: &Token, worker: &WorkerId) -> Keeper {
            assert_eq!((kept, worker.as_str()), (&token(), "w"));
            Keeper { silent_ms: Some(12), ..Keeper::default() }
        }
    }

    fn definition() -> Definition {
        let retry = json!({"max_attempts": 5});
        let document = json!({"name": "W", "version": "1", "steps": [
            {"id": "charge", "task": "payments.charge", "retry": retry},
            {"id": "nap", "sleep": "10s", "after": []},
            {"id": "later", "task": "mail.send"},
            {"id": "word", "await": "paid", "after": []},
            {"id": "answer", "await": "change", "after": [], "timeout": "1s", "otherwise": null},
        ], "signals": {"paid": {}}, "updates": {"change": {}}});
        Definition::from_document(&document).expect("it is right")
    }

    fn event(at: i64, event: Event) -> (i64, Event) {
        (at, event)
    }

    fn scheduled(attempt: u32) -> Event {
        let (step, input) = ("charge".into(), json!(null).into());
        Event::StepScheduled { step, attempt, input, idempotency_key: "k".into(), redelivery: false }
    }

    fn token() -> Token {
        Token { execution: "e".into(), id: Uuid::from_u128(1) }
    }

    fn dispatched(attempt: u32) -> Event {
        Event::StepDispatched {
            step: "charge".into(),
            attempt,
            token: token(),
            worker_id: "w".into(),
            worker_session: SessionId(Uuid::nil()),
            deadline_ms: Some(ClusterMs(900)),
            redelivery: false,
        }
    }

    fn failed(attempt: u32) -> Event {
        let error = TaskError::retryable("DECLINED", "card declined");
        Event::StepAttemptFailed { step: "charge".into(), attempt, error, token: Some(token()) }
    }

    fn seen(more: Vec<(i64, Event)>, offered: &'static [(&'static str, &'static str, u32)]) -> Value {
        let definition = definition();
        let created = Event::WorkflowCreated {
            workflow: "W".into(),
            version: "1".into(),
            definition_hash: definition.hash.clone(),
            input: json!(null).into(),
            labels: Default::default(),
            cluster_id: ClusterId(Uuid::nil()),
            run: Run(1),
            parent: None,
            continued: None,
        };
        let all = [event(1, created), event(1, Event::WorkflowStarted)].into_iter().chain(more);
        let recorded =
            |(n, (at, event)): (usize, (i64, Event))| Recorded { seq: Seq(n as u64 + 1), at_ms: ClusterMs(at), event };
        let events: Vec<Recorded> = all.enumerate().map(recorded).collect();
        let state = State::fold(&"e".into(), &events).expect("a history");
        serde_json::to_value(waiting(&definition, &state, &Offered(offered))).expect("JSON")
    }

    #[test]
    fn a_task_that_nobody_offers_says_so_and_in_which_versions_it_is_offered() {
        let nobody = seen(vec![event(5, scheduled(1))], &[]);
        let expected = json!([{"step_id": "charge", "kind": "task", "since_ms": 5, "reason": "no_worker",
            "task_name": "payments.charge", "contract_version": "1", "attempt": 1, "max_attempts": 5}]);
        assert_eq!(nobody, expected);
        let other = seen(vec![event(5, scheduled(1))], &[("payments.charge", "2", 3)]);
        assert_eq!((&other[0]["reason"], &other[0]["other_versions"]), (&json!("no_worker"), &json!(["2"])));
        let offered = seen(vec![event(5, scheduled(1))], &[("payments.charge", "1", 3)]);
        assert_eq!((&offered[0]["reason"], &offered[0]["sessions"]), (&json!("queued"), &json!(3)));
    }

    #[test]
    fn an_attempt_at_a_worker_names_it_and_one_that_failed_says_when_the_next_is_and_why() {
        let running = seen(vec![event(5, scheduled(1)), event(7, dispatched(1))], &[]);
        let expected = json!([{"step_id": "charge", "kind": "task", "since_ms": 7, "reason": "running",
            "task_name": "payments.charge", "contract_version": "1", "attempt": 1, "max_attempts": 5,
            "worker_id": "w", "deadline_ms": 900, "silent_ms": 12}]);
        assert_eq!(running, expected);
        let retry = Event::RetryScheduled {
            step: "charge".into(),
            next_attempt: 2,
            delay_ms: 1000,
            fire_at_ms: ClusterMs(1008),
        };
        let mut history = vec![event(5, scheduled(1)), event(7, dispatched(1)), event(8, failed(1)), event(8, retry)];
        let retrying = seen(history.clone(), &[]);
        let error = json!({"code": "DECLINED", "message": "card declined", "retryable": true});
        let expected = json!([{"step_id": "charge", "kind": "task", "since_ms": 8, "reason": "retry",
            "task_name": "payments.charge", "contract_version": "1", "attempt": 2, "max_attempts": 5,
            "last_error": error, "until_ms": 1008}]);
        assert_eq!(retrying, expected);
        // The next attempt still says why the one before failed.
        history.push(event(1008, scheduled(2)));
        let again = seen(history, &[]);
        assert_eq!((&again[0]["attempt"], &again[0]["last_error"]), (&json!(2), &error));
        assert_eq!(again[0]["since_ms"], 1008);
    }

    #[test]
    fn each_open_step_is_told_in_the_order_of_the_definition_and_no_other() {
        let nap = Event::TimerStarted { step: "nap".into(), fire_at_ms: ClusterMs(10_003) };
        let both = seen(vec![event(3, nap), event(4, scheduled(1))], &[]);
        let steps: Vec<&str> = both.as_array().unwrap().iter().map(|w| w["step_id"].as_str().unwrap()).collect();
        assert_eq!(steps, ["charge", "nap"]);
        let expected = json!({"step_id": "nap", "kind": "sleep", "since_ms": 3, "reason": "sleep", "until_ms": 10_003});
        assert_eq!(both[1], expected);
        let skipped = Event::StepSkipped { step: "nap".into(), reason: "no".into() };
        assert_eq!(seen(vec![event(3, skipped)], &[]), json!([]));
    }

    #[test]
    fn what_is_awaited_is_told_as_the_signal_or_the_update_that_it_is() {
        let awaits = |step: &str, name: &str, deadline: Option<i64>| Event::SignalAwaited {
            step: step.into(),
            signal: name.into(),
            deadline_ms: deadline.map(ClusterMs),
        };
        let both =
            seen(vec![event(3, awaits("word", "paid", None)), event(4, awaits("answer", "change", Some(1004)))], &[]);
        let expected = json!([
            {"step_id": "word", "kind": "await", "since_ms": 3, "reason": "signal", "signal": "paid"},
            {"step_id": "answer", "kind": "await", "since_ms": 4, "reason": "update", "update": "change", "until_ms": 1004},
        ]);
        assert_eq!(both, expected);
    }

    #[test]
    fn what_only_the_server_can_go_on_with_says_that() {
        let deciding = seen(vec![event(5, scheduled(1)), event(7, dispatched(1)), event(8, failed(1))], &[]);
        assert_eq!((&deciding[0]["reason"], &deciding[0]["since_ms"]), (&json!("server"), &json!(8)));
    }
}
