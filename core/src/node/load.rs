//! How executions come into memory and leave it. One that waits for a timer costs a row (design, section 6).

use super::draft::PARK_AFTER;
use super::slot::{Body, Resident, Work};
use super::{Connection, Node, Purpose, storage_error};
use crate::api::response::{Accepted, ResultOutcome};
use crate::execution::{State, next_wake};
use crate::id::{Epoch, ExecutionId, Token};
use crate::mutant::Mutants;
use crate::node::lifecycle::Phase;
use crate::store::append::Wake;
use crate::store::outcome::{Failure, FailureKind};
use crate::store::statement::{LoadedExecution, ReadDue, ReadHistories};
use crate::store::transaction::{Transaction, Verdict};
use crate::time::{ClusterMs, Mono};
use crate::worker::attempt::{Holder, Orphaned};
use std::time::Duration;

/// At most so many histories in one read.
const LOAD_BATCH: usize = 200;
/// At most so many due executions in one scan.
const DUE_PAGE: u32 = 500;
/// No scan while so many executions wait to be written.
const DUE_BACKLOG: usize = 2_000;
/// An execution that waits for longer than [`super::draft::PARK_AFTER`] stays in memory for so long after something
/// happened to it. It is shorter than that: who is to come back by its row has left before its time.
const REST: Duration = Duration::from_secs(1);
const _: () = assert!(REST.as_millis() < PARK_AFTER.as_millis());
/// The id of no execution: children's ids have something before their `~`.
const NOBODY: &str = "~";
/// How often a history is read in vain, while the database can be read, before it is set aside.
const READ_TIMES: u32 = 5;

/// A history that could not be read, and why.
#[derive(Debug)]
pub(crate) struct Unread {
    execution: ExecutionId,
    times: u32,
    failure: Failure,
}

/// When executions out of memory want to come back.
#[derive(Debug, Default)]
pub(crate) struct DueScan {
    next: Option<ClusterMs>,
    /// Where the page before ended.
    after: Option<(Wake, ExecutionId)>,
    in_flight: bool,
}

impl DueScan {
    /// Some execution out of memory wants to come back at this time.
    pub fn expect(&mut self, at: Option<ClusterMs>) {
        self.next = self.next.into_iter().chain(at).min();
    }
}

impl<M: Mutants> Node<M> {
    /// When the next scan is to be made, if nothing is in its way.
    pub(super) fn due_at(&self) -> Option<ClusterMs> {
        let free = !self.due.in_flight && self.resume.is_none() && self.ready.len() < DUE_BACKLOG;
        self.due.next.filter(|_| free && self.is_serving())
    }

    /// Looks for executions whose time has come.
    pub(super) fn scan_due(&mut self) {
        let now = self.cluster_now();
        if self.due_at().is_none_or(|at| at > now) {
            return;
        }
        self.due.next = None;
        self.due.in_flight = true;
        // Hot ones are in memory; (1, "") is past them and before every other.
        let past_hot = (Wake::At(ClusterMs(1)), ExecutionId::new(""));
        let after = self.due.after.take().unwrap_or(past_hot);
        let read = ReadDue { until: Wake::At(now), after: Some(after), owner: None, limit: DUE_PAGE };
        self.send(Connection::Store, Transaction::Due(read), Purpose::Due);
    }

    pub(super) fn on_due(&mut self, outcome: Result<Verdict, Failure>) {
        self.due.in_flight = false;
        let rows = match outcome {
            Ok(Verdict::Due(rows)) => rows,
            Ok(other) => unreachable!("a scan gives rows, not {other:?}"),
            Err(_) => {
                self.due.expect(Some(self.cluster_now()));
                return self.pause_after_failure();
            }
        };
        if rows.due.len() >= DUE_PAGE as usize {
            self.due.after = rows.due.last().cloned();
            self.due.expect(Some(self.cluster_now()));
        }
        self.due.expect(rows.next);
        for (_, execution) in rows.due {
            // One that is in memory has a timer of its own.
            if !self.slots.contains_key(&execution) {
                self.enqueue(&execution, Work::Wake);
            }
        }
    }

    /// Reads histories that are asked for.
    pub(super) fn send_loads(&mut self) {
        while !self.to_load.is_empty() {
            let mut executions = Vec::new();
            while executions.len() < LOAD_BATCH
                && let Some(execution) = self.to_load.pop_first()
            {
                executions.push(execution);
            }
            self.send_load(executions, 0);
        }
    }

    fn send_load(&mut self, executions: Vec<ExecutionId>, before: u32) {
        let read = ReadHistories { executions: executions.clone() };
        self.send(Connection::Store, Transaction::Load(read), Purpose::Load(executions, before));
    }

    pub(super) fn on_load(&mut self, executions: Vec<ExecutionId>, before: u32, outcome: Result<Verdict, Failure>) {
        match outcome {
            Ok(Verdict::Load(loaded)) => {
                assert_eq!(executions.len(), loaded.len(), "a load gives one answer for each execution");
                let (undefined, known): (Vec<_>, Vec<_>) = loaded.into_iter().partition(|one| self.is_undefined(one));
                known.into_iter().for_each(|loaded| self.loaded(loaded));
                if !undefined.is_empty() {
                    self.look_for_definitions(undefined);
                }
                self.serve_when_recovered();
            }
            Ok(other) => unreachable!("a load gives executions, not {other:?}"),
            Err(failure) if matches!(failure.kind, FailureKind::Data | FailureKind::Broken) => {
                self.load_apart(executions, before, failure);
            }
            Err(failure) => self.not_loaded(executions, &failure),
        }
    }

    /// Something that these histories hold cannot be read: their halves tell whose it is, so that its neighbours load
    /// (protocols, 6). Of one alone, a look at the same tables tells whether it is the history or the database.
    fn load_apart(&mut self, mut executions: Vec<ExecutionId>, before: u32, failure: Failure) {
        if executions.len() > 1 {
            let half = executions.split_off(executions.len() / 2);
            self.send_load(executions, 0);
            return self.send_load(half, 0);
        }
        let Some(execution) = executions.pop() else { return };
        let read = ReadHistories { executions: vec![ExecutionId::new(NOBODY)] };
        self.send(
            Connection::Store,
            Transaction::Load(read),
            Purpose::LoadNobody(Unread { execution, times: before + 1, failure }),
        );
    }

    /// The history that could not be read stands alone with that, or the database cannot be read at all.
    pub(super) fn on_load_nobody(&mut self, unread: Unread, outcome: Result<Verdict, Failure>) {
        let Unread { execution, times, failure: unread } = unread;
        match outcome {
            Ok(_) if times < READ_TIMES => self.send_load(vec![execution], times),
            Ok(_) => {
                if self.slots.get(&execution).is_some_and(|slot| matches!(slot.body, Body::Loading)) {
                    self.loads_as(execution, Err(format!("its history cannot be read: {}", unread.message)));
                    self.serve_when_recovered();
                }
            }
            Err(failure) if failure.kind == FailureKind::Broken && matches!(self.phase, Phase::Recovering { .. }) => {
                self.unservable(format!("the database cannot be read: {}", failure.message));
            }
            Err(failure) => self.not_loaded(vec![execution], &failure),
        }
    }

    /// Those who asked are told; what nobody asked for is tried again.
    pub(super) fn not_loaded(&mut self, executions: Vec<ExecutionId>, failure: &Failure) {
        self.pause_after_failure();
        let recovering = matches!(self.phase, Phase::Recovering { .. });
        for execution in executions {
            let Some(slot) = self.slots.get_mut(&execution) else { continue };
            let (asked, again) =
                std::mem::take(&mut slot.queue).into_iter().partition::<Vec<_>, _>(|work| work.request().is_some());
            slot.queue = again.into();
            if slot.queue.is_empty() && !recovering {
                self.slots.remove(&execution);
            } else {
                self.to_load.insert(execution);
            }
            self.no_longer_asked(asked.iter());
            for work in asked {
                match work {
                    Work::Result { request, index, token, .. } => {
                        let error = Some(storage_error(&failure.message));
                        let outcome = ResultOutcome { token, outcome: Accepted::Refused, error };
                        self.result_outcome(request, index, outcome);
                    }
                    work => {
                        let request = work.request().expect("partitioned by it");
                        self.respond(request, storage_error(&failure.message));
                    }
                }
            }
        }
    }

    pub(super) fn loaded(&mut self, loaded: LoadedExecution) {
        let execution = loaded.execution.clone();
        if !self.slots.get(&execution).is_some_and(|slot| matches!(slot.body, Body::Loading)) {
            return;
        }
        self.counters.executions_loaded += 1;
        let bytes = loaded.events.iter().map(|event| event.len() as u64).sum::<u64>();
        let body = self.body_of(loaded);
        let values = match &body {
            Ok(Body::Resident(resident)) => resident.state.memory(),
            _ => 0,
        };
        self.slots.get_mut(&execution).expect("looked up above").bytes = bytes.max(values);
        self.loads_as(execution, body);
    }

    /// A history was read, or cannot be.
    fn loads_as(&mut self, execution: ExecutionId, body: Result<Body, String>) {
        let body = match body {
            Ok(body) => body,
            Err(reason) => self.set_aside(&execution, reason),
        };
        match &body {
            Body::Resident(resident) => self.queue.loaded(&execution, Some(resident)),
            // Its rows are in the queue still, and nobody gets them.
            Body::Broken(_) => {}
            _ => self.queue.loaded(&execution, None),
        }
        if let Body::Resident(resident) = &body {
            self.remind_children(resident);
            // Handed out before a restart: its worker has a session's time to tell of it (reference, "Failover").
            let until = self.now.mono + self.config.session_timeout;
            for (id, ..) in resident.state.open_tokens() {
                let token = Token { execution: execution.clone(), id };
                if self.attempts.holder(&token).is_none() {
                    self.attempts.hold(token, Holder::Nobody { until, why: Orphaned::Restart });
                }
            }
        }
        self.slots.get_mut(&execution).expect("looked up above").body = body;
        // Whether there is something to do, its draft tells.
        self.ready.push_back(execution);
    }

    fn body_of(&self, loaded: LoadedExecution) -> Result<Body, String> {
        if loaded.events.is_empty() {
            return Ok(Body::Absent);
        }
        let state = State::load(&loaded.execution, &loaded.events).map_err(|e| e.to_string())?;
        let (workflow, version) = (&state.workflow, &state.version);
        let deployed = self.catalog.get(workflow, Some(version));
        let definition = deployed.map(|d| d.definition.clone());
        let definition = definition.ok_or_else(|| format!("its definition {workflow} {version} cannot be read"))?;
        if definition.hash != state.definition_hash {
            return Err(format!("its history names another content of {workflow} {version} than is deployed"));
        }
        let (epoch, wake) = match &loaded.owner {
            Some(owner) => (owner.epoch, owner.wake),
            None if state.has_ended() => (Epoch::default(), Wake::Never),
            None => return Err("it is running and has no row in orbit_owners".into()),
        };
        let doubtful = loaded.tasks.iter().filter(|t| t.repeat).map(|t| t.task.clone()).collect();
        let tasks = loaded.tasks.into_iter().map(|t| (t.task, t.state)).collect();
        Ok(Body::Resident(Box::new(Resident { definition, state, epoch, wake, tasks, doubtful })))
    }

    /// Executions in memory whose time has come.
    pub(super) fn wake_executions(&mut self) {
        let now = self.cluster_now();
        while let Some((at, execution)) = self.timers.first().cloned() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            let slot = self.slots.get_mut(&execution).expect("timers belong to executions in memory");
            slot.timer = None;
            if !slot.in_flight {
                self.enqueue(&execution, Work::Wake);
            }
        }
    }

    /// Sets the timer of an execution in memory, and its place among the idle ones.
    pub(super) fn set_timer(&mut self, execution: &ExecutionId) {
        let Some(slot) = self.slots.get_mut(execution) else { return };
        let (timer, may_leave) = match &slot.body {
            Body::Resident(resident) => {
                let stays = resident.stays() || slot.end_waits;
                (next_wake(&resident.definition, &resident.state), !stays)
            }
            _ => (None, false),
        };
        if slot.timer != timer {
            if let Some(at) = slot.timer {
                self.timers.remove(&(at, execution.clone()));
            }
            if let Some(at) = timer {
                self.timers.insert((at, execution.clone()));
            }
            slot.timer = timer;
        }
        match may_leave && slot.queue.is_empty() && !slot.in_flight {
            true => self.idle.add(execution, slot),
            false => self.idle.remove(execution, slot),
        }
    }

    /// When the next execution has rested long enough.
    pub(super) fn next_rested(&self) -> Option<Mono> {
        let (since, _) = self.idle.resting().filter(|_| self.is_serving() && self.resume.is_none())?;
        Some(since + REST)
    }

    /// Those that have rested long enough leave; past the bound of what stays in memory, those that were idle longest do.
    pub(super) fn evict(&mut self) {
        while self.next_rested().is_some_and(|at| at <= self.now.mono)
            && let Some((_, execution)) = self.idle.resting()
        {
            let execution = execution.clone();
            self.leave_memory(&execution);
        }
        let limits = self.config.limits;
        while let Some(execution) = self.idle.beyond(limits.max_resident_executions, limits.max_resident_bytes) {
            let execution = execution.clone();
            let slot = self.slots.get(&execution).expect("idle executions are in memory");
            match slot.resident() {
                // Its row does not say when it wants to come back: that is written first.
                Some(resident) if resident.wake == Wake::Hot => self.enqueue(&execution, Work::Park),
                _ => self.leave_memory(&execution),
            }
        }
    }

    /// Forgets an execution whose row says all that is needed to bring it back.
    pub(super) fn leave_memory(&mut self, execution: &ExecutionId) {
        let Some(mut slot) = self.slots.remove(execution) else { return };
        assert!(!slot.in_flight && slot.queue.is_empty(), "an execution that has something to do stays");
        if let Some(at) = slot.timer {
            self.timers.remove(&(at, execution.clone()));
        }
        self.idle.remove(execution, &mut slot);
        if let Body::Resident(resident) = &slot.body
            && !resident.state.has_ended()
        {
            assert!(resident.wake != Wake::Hot, "a hot execution stays in memory");
            self.counters.executions_parked += 1;
            if let Wake::At(at) = resident.wake {
                self.due.expect(Some(at));
            }
        }
    }
}
