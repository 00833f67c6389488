//! Histories: gapless, one end and nothing behind it, time that never goes back, one success for a step; results that a
//! worker really gave, for a token that was really handed out; steps in the order of the definition.
//!
//! This check knows nothing of `decide`: it is a second opinion on it.

mod event;
mod time;

use super::course::Course;
use super::runs::{Position, Runs};
use super::{Checked, Committed, Violation, ensure};
use crate::coverage::{Coverage, Mark};
use crate::store::{Change, ModelStore};
use orbit_core::definition::{Definition, StepKind};
use orbit_core::execution::event::{Event, Json, Recorded, TaskError};
use orbit_core::id::{ExecutionId, Run, Seq, SessionId, SignalName, Token, UnitKey};
use orbit_core::store::append::{Group, Member, OwnerChange, Status, TaskChange, Wake};
use orbit_core::time::ClusterMs;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const CHECK: &str = "history";

/// How much earlier than its time a timer may fire by the database's clock, in milliseconds: the rounding of three
/// clocks to milliseconds.
const EARLY_MS: i64 = 3;

/// What is known of every execution.
#[derive(Clone, Debug, Default)]
pub struct HistoryCheck {
    executions: BTreeMap<ExecutionId, Runs>,
    /// Whose each idempotency key is.
    keys: BTreeMap<String, (ExecutionId, Run, UnitKey)>,
}

/// What is known of one run of an execution.
#[derive(Clone, Debug)]
pub struct Tracked {
    pub definition: Arc<Definition>,
    pub run: Run,
    pub events: Vec<Recorded>,
    /// How it ended, and the execution with it.
    pub ended: Option<Status>,
    /// It ended by continuing as new: the input of the next run.
    pub continues: Option<Json>,
    /// Every delivery that was recorded.
    pub dispatched: BTreeMap<Token, Dispatched>,
    /// The results that were recorded as such, by their delivery.
    pub results: BTreeMap<Token, Seq>,
    /// What each unit was given, and its key.
    pub scheduled: BTreeMap<UnitKey, Scheduled>,
    /// Attempts that wait for a worker: the task rows of this execution. With the time since when.
    pub(super) queued: BTreeMap<UnitKey, (u32, ClusterMs)>,
    settled: BTreeSet<UnitKey>,
    succeeded: BTreeSet<UnitKey>,
    /// Units that wait for a time.
    pub(super) waiting: BTreeMap<UnitKey, ClusterMs>,
    uncertain: BTreeSet<Token>,
    /// Attempts that failed, of which nothing is decided yet: the number, and why.
    failed: BTreeMap<UnitKey, (u32, TaskError)>,
    cancelled: bool,
    /// What is under way, and why it ends.
    pub(super) course: Course,
    /// Steps that wait for a signal for as long as it takes.
    awaits: BTreeMap<UnitKey, SignalName>,
    pub(super) parked: bool,
    /// Attempts that are out: their newest delivery has no result, and is not in doubt.
    pub(super) out: BTreeMap<UnitKey, Token>,
    /// It is held, and since which event.
    pub(super) held: Option<Seq>,
    /// When it was held and went on again, so far.
    holds: Vec<(Seq, Option<Seq>)>,
}

/// A recorded delivery.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatched {
    pub unit: UnitKey,
    pub attempt: u32,
    pub session: SessionId,
    pub seq: Seq,
    pub deadline: Option<ClusterMs>,
}

/// What a unit was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduled {
    pub input: Json,
    pub idempotency_key: String,
    pub attempt: u32,
}

impl Tracked {
    /// The number of its last event.
    pub fn last(&self) -> Seq {
        Seq(self.events.len() as u64)
    }

    /// Whether it was held after that event.
    pub fn is_held_at(&self, seq: Seq) -> bool {
        self.holds.iter().any(|(from, until)| *from <= seq && until.is_none_or(|until| seq < until))
    }

    /// Where it ends so far.
    pub fn position(&self) -> Position {
        Position { run: self.run, seq: self.last() }
    }

    /// Whether some step of it begins a new run, and signals can be sent to it.
    pub fn may_be_carried(&self) -> bool {
        !self.definition.signals.is_empty()
            && self.definition.steps.iter().any(|step| matches!(step.kind, StepKind::ContinueAsNew(_)))
    }

    /// What it was given.
    pub fn input(&self) -> Option<&Json> {
        match &self.events.first()?.event {
            Event::WorkflowCreated { input, .. } => Some(input),
            _ => None,
        }
    }

    /// Whether somebody asked for its end.
    pub fn cancel_requested(&self) -> bool {
        self.cancelled
    }

    /// Whether it takes nothing in any more.
    pub fn winds_down(&self) -> bool {
        self.course.winds_down() || self.ended.is_some()
    }

    /// Whether its end at once is asked for, and waits for its children's, or for its parent to record it.
    pub fn is_terminated_with_others(&self) -> bool {
        let is_child =
            matches!(self.events.first().map(|e| &e.event), Some(Event::WorkflowCreated { parent: Some(_), .. }));
        let has = |is: fn(&Event) -> bool| self.events.iter().any(|recorded| is(&recorded.event));
        let family = is_child || has(|event| matches!(event, Event::ChildStarted { .. }));
        family && has(|event| matches!(event, Event::TerminateRequested { .. }))
    }

    /// A signal that some step waits for and that will not come unless somebody sends it; whether it is an update.
    pub fn waits_for(&self) -> Option<(SignalName, bool)> {
        let name = self.awaits.values().next().filter(|_| !self.winds_down())?;
        Some((name.clone(), self.definition.updates.contains_key(name)))
    }

    /// How often that attempt was handed out.
    pub fn deliveries(&self, unit: &str, attempt: u32) -> usize {
        self.dispatched.values().filter(|d| d.unit.as_str() == unit && d.attempt == attempt).count()
    }

    /// The output of a completed one, the error of a failed one.
    pub fn terminal(&self) -> Option<&Event> {
        self.ended.and(self.events.last()).map(|e| &e.event)
    }
}

impl HistoryCheck {
    /// What is known of that execution's newest run.
    pub fn get(&self, id: &ExecutionId) -> Option<&Tracked> {
        self.executions.get(id)?.newest()
    }

    /// The executions that are held.
    pub fn held(&self) -> impl Iterator<Item = &ExecutionId> {
        self.all().filter(|(_, tracked)| tracked.held.is_some()).map(|(id, _)| id)
    }

    /// All runs of that execution.
    pub fn runs(&self, id: &ExecutionId) -> Option<&Runs> {
        self.executions.get(id)
    }

    /// The newest runs of all executions.
    pub fn all(&self) -> impl Iterator<Item = (&ExecutionId, &Tracked)> {
        self.executions.iter().filter_map(|(id, runs)| Some((id, runs.newest()?)))
    }

    /// All executions, with all their runs.
    pub fn all_runs(&self) -> impl Iterator<Item = (&ExecutionId, &Runs)> {
        self.executions.iter()
    }

    pub fn on_commit(&mut self, committed: &Committed<'_>, marks: &mut Coverage) -> Checked {
        let groups = committed.commit.changes.iter().filter_map(|change| match change {
            Change::Group { group, repeated: false, .. } => Some(group),
            _ => None,
        });
        for group in groups {
            for member in &group.members {
                self.on_member(member, committed, marks)?;
            }
            mark_group(group, marks);
        }
        Ok(())
    }

    fn on_member(&mut self, member: &Member, committed: &Committed<'_>, marks: &mut Coverage) -> Checked {
        let id = &member.execution;
        let mut events = Vec::with_capacity(member.events.len());
        for stored in &member.events {
            let event = Recorded::decode(&stored.bytes)
                .map_err(|e| Violation::safety(CHECK, format!("an event of {id} cannot be read: {e}")))?;
            ensure!(
                event.seq == stored.seq && event.at_ms == stored.at_ms,
                CHECK,
                "an event of {id} says {} at {:?}, and its row {} at {:?}",
                event.seq,
                event.at_ms,
                stored.seq,
                stored.at_ms
            );
            events.push((stored.run, event));
        }
        let runs = self.executions.entry(id.clone()).or_default();
        let was_parked = runs.newest_mut().is_some_and(|newest| std::mem::take(&mut newest.parked));
        let scheduled: BTreeSet<&UnitKey> = events.iter().filter_map(|(_, e)| scheduled_unit(&e.event)).collect();
        let direct = |e: &Event| matches!(e, Event::StepDispatched { step, .. } if scheduled.contains(step));
        if events.iter().any(|(_, e)| direct(&e.event)) {
            marks.hit(Mark::DirectDispatch);
        }
        for (run, event) in &events {
            if let Event::StepScheduled { step, idempotency_key, .. } = &event.event {
                let own = (id.clone(), *run, step.clone());
                let whose = self.keys.entry(idempotency_key.clone()).or_insert_with(|| own.clone());
                ensure!(*whose == own, CHECK, "{own:?} has the idempotency key of {whose:?}");
            }
            if was_parked && matches!(event.event, Event::TimerFired { .. }) {
                marks.hit(Mark::Woken);
            }
            runs.take(id, *run, event, committed.book)?.on_event(id, event.clone(), committed, marks)?;
        }
        let Some(tracked) = runs.newest_mut() else {
            return Err(Violation::safety(CHECK, format!("{id} is written, and has no events")));
        };
        ensure!(tracked.continues.is_none(), CHECK, "{id} continued as new, and the next run did not begin with it");
        tracked.rows_follow(id, committed.store)?;
        let status = member.summary.as_ref().map(|s| s.status);
        match (tracked.ended, member.owner) {
            (Some(ended), OwnerChange::End) => {
                ensure!(status == Some(ended), CHECK, "{id} ended {ended:?}, and its summary says {status:?}");
            }
            (None, OwnerChange::Keep | OwnerChange::Wake(_)) => {
                let open = status.is_none_or(|s| !s.is_terminal());
                ensure!(open, CHECK, "{id} runs, and its summary says {status:?}");
                let row = committed.store.executions().get(id).map(|row| row.summary.status);
                let right = if tracked.held.is_some() { Status::Held } else { Status::Running };
                ensure!(row == Some(right), CHECK, "{id} is {right:?}, and its row says {row:?}");
                if let OwnerChange::Wake(Wake::At(_) | Wake::Never) = member.owner {
                    tracked.parked = true;
                    marks.hit(Mark::Parked);
                }
            }
            (ended, owner) => {
                return Err(Violation::safety(CHECK, format!("{id} ended: {ended:?}, and its owner row: {owner:?}")));
            }
        }
        Ok(())
    }

    pub fn at_end(&self, store: &ModelStore) -> Checked {
        ensure!(
            self.executions.keys().eq(store.executions().keys()),
            CHECK,
            "the executions of the store are not those that were written"
        );
        for (id, runs) in &self.executions {
            for tracked in runs.iter() {
                let rows = store.run_history(id, tracked.run);
                let same = rows.len() == tracked.events.len()
                    && rows.iter().zip(&tracked.events).all(|(row, event)| row.seq == event.seq);
                ensure!(same, CHECK, "the stored history of {id}, run {}, is not what was written", tracked.run);
                super::replay::check(id, tracked)?;
            }
        }
        Ok(())
    }
}

fn scheduled_unit(event: &Event) -> Option<&UnitKey> {
    match event {
        Event::StepScheduled { step, .. } => Some(step),
        _ => None,
    }
}

fn mark_group(group: &Group, marks: &mut Coverage) {
    for change in &group.tasks {
        if let TaskChange::Insert(_) = change {
            marks.hit(Mark::Queued);
        }
    }
}
