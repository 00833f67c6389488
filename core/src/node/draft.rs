//! What one execution wants written next: a group of an append, and what is to follow once it is written.
//!
//! A draft is made from committed state and changes none of it: memory changes only after `Done` (design, section 3).

use super::quarantine::quarantined;
use super::rows::{change_tasks, contract_of, wake_of};
use super::rules::Rules;
use super::slot::{Body, Resident, Slot, Work, task_id};
use super::{Node, RequestId};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::request::{Contract, Start, TaskOutcome};
use crate::api::response::{Accepted, Reply, Response, ResultOutcome, Started};
use crate::definition::Definition;
use crate::execution::event::{Event, Recorded};
use crate::execution::{Command, Phase, Refusal, State, UnitStatus, admit};
use crate::id::{Epoch, ExecutionId, Run, Seq, SessionId, TaskId, Token, UnitKey};
use crate::mutant::{Mutant, Mutants};
use crate::store::append::{Expect, Member, OwnerChange, Status, StoredEvent, TaskChange, TaskState, Wake};
use crate::store::statement::ClaimedTask;
use crate::time::ClusterMs;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// An execution that has nothing to do for longer than this leaves memory soon; for less it stays.
pub(super) const PARK_AFTER: Duration = Duration::from_secs(2);
/// At most so many works of one execution go into one group, so that one busy execution does not delay the others.
const MAX_WORKS: usize = 256;

/// What one execution wants written, and what follows.
#[derive(Debug)]
pub(crate) struct Draft {
    /// The state after the events; none where there is no such execution.
    pub resident: Option<Resident>,
    pub events: Vec<Recorded>,
    pub tasks: Vec<TaskChange>,
    /// Claimed rows that go back to the queue.
    pub requeue: BTreeSet<TaskId>,
    /// Whether it starts the execution.
    pub created: bool,
    /// Answers to send once it is written.
    pub answers: Vec<(RequestId, Response)>,
    /// Outcomes of results to tell once it is written.
    pub outcomes: Vec<(RequestId, usize, ResultOutcome)>,
    /// Deliveries to hand over once it is written.
    pub dispatches: Vec<Handover>,
    /// Reservations that nothing came of.
    pub released: Vec<RequestId>,
    /// What it was made of, to be done again if it is not written.
    pub works: Vec<Work>,
    /// Whether the execution leaves memory once it is written.
    pub leaves: Leaves,
    /// Whether it may record the end of a child: together with what its parent records.
    may_end: bool,
    /// Its end is decided, and was not recorded.
    pub end_waits: bool,
    /// There is more to be decided once it is written.
    pub unfinished: bool,
    /// Where in the events the next run begins.
    pub next_run_at: Option<usize>,
    /// Its children that begin or end with it.
    pub children: Vec<Part>,
}

/// Whether an execution leaves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// Its row does not say when it wants to come back.
    No,
    /// After a while in which nothing happens to it.
    Rested,
    /// Memory is wanted for others.
    AtOnce,
}

/// What is committed of an execution, as far as its next group has to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    run: Run,
    last: Seq,
    epoch: Epoch,
    status: Status,
    ended: bool,
}

impl Before {
    fn of(resident: &Resident) -> Before {
        let state = &resident.state;
        Before {
            run: state.identity.run,
            last: state.last,
            epoch: resident.epoch,
            status: state.status(),
            ended: state.has_ended(),
        }
    }
}

/// What one execution has in a group, before it is finished.
#[derive(Debug)]
pub(crate) struct Part {
    pub execution: ExecutionId,
    /// What is committed of it, where there is such an execution.
    pub before: Option<Before>,
    pub draft: Draft,
    pub parks: bool,
}

/// A delivery that a group records.
#[derive(Clone, Debug)]
pub(crate) struct Handover {
    pub token: Token,
    pub session: SessionId,
    /// The poll that it is reserved for.
    pub poll: RequestId,
    /// Handed over in the append that scheduled it.
    pub direct: bool,
}

impl Draft {
    pub fn new(resident: Option<Resident>) -> Draft {
        Draft {
            resident,
            events: Vec::new(),
            tasks: Vec::new(),
            requeue: BTreeSet::new(),
            created: false,
            answers: Vec::new(),
            outcomes: Vec::new(),
            dispatches: Vec::new(),
            released: Vec::new(),
            works: Vec::new(),
            leaves: Leaves::No,
            may_end: true,
            end_waits: false,
            unfinished: false,
            next_run_at: None,
            children: Vec::new(),
        }
    }

    /// The draft of a child that is to be started: its first event is recorded.
    pub fn of_child(resident: Resident, first: Recorded) -> Draft {
        Draft { events: vec![first], created: true, may_end: false, ..Draft::new(Some(resident)) }
    }

    /// The run of an event.
    fn run_of(&self, at: usize) -> Run {
        let resident = self.resident.as_ref().expect("events belong to an execution");
        let run = resident.state.identity.run;
        match self.next_run_at {
            Some(next) if at < next => Run(run.0 - 1),
            _ => run,
        }
    }

    /// The contracts of which a row is put into the queue: a new one, or a claimed one that goes back.
    pub fn queued_contracts(&self) -> Vec<Contract> {
        let Some(resident) = &self.resident else { return Vec::new() };
        let queues = |task: &TaskId| {
            self.tasks.iter().any(|change| match change {
                TaskChange::Insert(row) => row.task == *task,
                TaskChange::Requeue { task: back, .. } => back == task,
                TaskChange::Delete { .. } => false,
            })
        };
        let queued = resident.state.scheduled().filter(|(_, _, seq)| queues(&task_id(&resident.state, *seq)));
        queued.filter_map(|(unit, ..)| contract_of(&resident.definition, unit)).collect()
    }

    /// Records an event: numbers it, dates it, and takes it into the state.
    pub fn record(&mut self, event: Event, now: ClusterMs) {
        let resident = self.resident.as_mut().expect("events belong to an execution");
        let at_ms = now.max(resident.state.last_at);
        let recorded = Recorded { seq: resident.state.last.next(), at_ms, event };
        resident.state.apply(&recorded);
        self.events.push(recorded);
    }

    /// Decides until there is nothing more. What an expression gave and may not be (too large, or no match of its
    /// schema) is refused instead, and that verdict is recorded.
    pub(super) fn decide(&mut self, now: ClusterMs, rules: &Rules) {
        loop {
            let resident = self.resident.as_ref().expect("decisions are about an execution");
            let decided = rules.decide(resident, now);
            if decided.is_empty() {
                return;
            }
            for event in decided {
                let resident = self.resident.as_ref().expect("as above");
                match rules.refusal(resident, &event, now) {
                    None if event.is_terminal() && !self.may_end => {
                        self.end_waits = true;
                        return;
                    }
                    None => self.record(event, now),
                    Some(refusal) => {
                        self.record(refusal, now);
                        break;
                    }
                }
            }
            if self.rolls_over(now, rules) {
                return;
            }
        }
    }

    /// After an event that continues as new: the next run begins, in the same group, and goes on in another.
    fn rolls_over(&mut self, now: ClusterMs, rules: &Rules) -> bool {
        let Some(Event::WorkflowContinuedAsNew { input, next_run: run }) = self.events.last().map(|e| &e.event) else {
            return false;
        };
        let resident = self.resident.as_mut().expect("events belong to an execution");
        let mut events = rules.next_run(&resident.state, input.clone(), *run).into_iter();
        let at_ms = now.max(resident.state.last_at);
        let first = Recorded { seq: Seq(1), at_ms, event: events.next().expect("a run begins with an event") };
        let execution = resident.state.identity.execution_id.clone();
        resident.state = State::begin(&execution, &first).expect("a first event");
        self.next_run_at = Some(self.events.len());
        self.unfinished = true;
        self.events.push(first);
        events.for_each(|event| self.record(event, now));
        true
    }
}

impl<M: Mutants> Node<M> {
    /// Takes what waits for an execution and makes a draft of it. `ends`: it is a child whose parent records its end with it.
    pub(super) fn part(&mut self, execution: &ExecutionId, slot: &mut Slot, ends: bool) -> Part {
        let now = self.cluster_now();
        let rules = self.rules();
        let before = slot.resident().map(Before::of);
        let mut draft = Draft::new(slot.resident().cloned());
        draft.may_end = ends || slot.orphan || slot.resident().is_none_or(|before| before.state.parent.is_none());
        // A run that has just followed another takes in what waits before it goes on: it may go on by continuing as new at
        // once, again and again, and nothing would ever be taken in.
        let follows = slot.resident().is_some_and(|resident| {
            resident.state.phase == Phase::Created && resident.state.identity.run > Run(1) && !slot.queue.is_empty()
        });
        self.hold(slot, &mut draft, now);
        self.give_claims_back(slot, &mut draft);
        if draft.resident.is_some() && !follows {
            self.bound_history(&mut draft, now);
            draft.decide(now, &rules);
        }
        let mut parks = false;
        while draft.works.len() < MAX_WORKS
            && !draft.unfinished
            && let Some(work) = slot.queue.pop_front()
        {
            parks = matches!(work, Work::Park);
            self.take_in(execution, &mut draft, &slot.body, work.clone(), now);
            draft.works.push(work);
            if draft.resident.is_some() {
                draft.decide(now, &rules);
            }
        }
        slot.end_waits = draft.end_waits;
        Part { execution: execution.clone(), before, draft, parks: parks && slot.queue.is_empty() }
    }

    /// An execution whose history has grown to its bound fails, whatever else waits for it; at half of it, it is told.
    fn bound_history(&mut self, draft: &mut Draft, now: ClusterMs) {
        let max = self.config.limits.max_history_events;
        let resident = draft.resident.as_ref().expect("there is a history");
        if resident.state.held.is_some() {
            return;
        }
        let command = match resident.state.last.0 {
            length if length >= max => Command::HistoryFull { max },
            length if length >= max / 2 => Command::SuggestContinue { max },
            _ => return,
        };
        if let Ok(event) = admit(&resident.definition, &resident.state, &command, now) {
            draft.record(event, now);
        }
    }

    fn take_in(&mut self, execution: &ExecutionId, draft: &mut Draft, body: &Body, work: Work, now: ClusterMs) {
        if let Body::Broken(reason) = body {
            return refuse_broken(execution, draft, work, reason);
        }
        match work {
            Work::Start { request, start, definition, misfit } => {
                self.take_start(execution, draft, request, &start, definition, misfit, now);
            }
            Work::Ask { request, ask } => {
                let response = self.take_ask(execution, draft, ask, now);
                draft.answers.push((request, response));
            }
            Work::Result { request, index, token, outcome } => {
                let outcome = self.take_result(draft, token, outcome, now);
                draft.outcomes.push((request, index, outcome));
            }
            Work::Dispatch { claimed, session, poll } => self.take_claimed(draft, claimed, session, poll, now),
            Work::Uncertain { token, reason } => {
                // Refused where a result came first: then nothing is uncertain.
                let _ = self.take_command(draft, Command::Uncertain { token: token.id, reason }, now);
            }
            Work::ChildEnds { child } => self.take_child_end(draft, child, now),
            Work::End { terminate } => {
                let reason = Some("its parent is ending".into());
                let command = if terminate { Command::Terminate { reason } } else { Command::Cancel { reason } };
                // Refused where it ends already.
                let _ = self.take_command(draft, command, now);
            }
            Work::Wake | Work::Park => {}
        }
    }

    /// Admits a command; `None` where there is no such execution.
    pub(super) fn take_command(
        &self,
        draft: &mut Draft,
        command: Command,
        now: ClusterMs,
    ) -> Option<Result<(), Refusal>> {
        let resident = draft.resident.as_ref()?;
        let event = match admit(&resident.definition, &resident.state, &command, now) {
            Ok(event) => event,
            Err(refusal) => return Some(Err(refusal)),
        };
        draft.record(event, now);
        Some(Ok(()))
    }

    #[allow(clippy::too_many_arguments)] // what its work carries
    fn take_start(
        &mut self,
        execution: &ExecutionId,
        draft: &mut Draft,
        request: RequestId,
        start: &Start,
        definition: Arc<Definition>,
        misfit: Option<Box<ApiError>>,
        now: ClusterMs,
    ) {
        let started = |state: &State, created| {
            Reply::Started(Started {
                execution_id: execution.clone(),
                status: state.status(),
                created,
                workflow: state.workflow.clone(),
                version: state.version.clone(),
            })
        };
        if let Some(resident) = &draft.resident {
            let state = &resident.state;
            let other_version = start.version.as_ref().is_some_and(|v| *v != state.version);
            let response = if state.workflow != start.workflow || other_version || !state.is_started_with(&start.input)
            {
                let message = format!("execution {execution} exists with another workflow, version or input");
                ApiError::new(ErrorCode::ExecutionIdConflict, message).into()
            } else {
                Response::ok(started(state, false))
            };
            return draft.answers.push((request, response));
        }
        if let Some(misfit) = misfit {
            return draft.answers.push((request, (*misfit).into()));
        }
        let max = self.config.limits.max_active_executions;
        if self.is_full() {
            let message = format!("{max} executions are running already (max_active_executions)");
            let error = ApiError::new(ErrorCode::ResourceExhausted, message)
                .with("limit", "max_active_executions")
                .with("max", max);
            return draft.answers.push((request, error.into()));
        }
        let run = Run(1);
        let created = Event::WorkflowCreated {
            workflow: definition.name.clone(),
            version: definition.version.clone(),
            definition_hash: definition.hash.clone(),
            input: start.input.clone(),
            labels: start.labels.clone(),
            cluster_id: self.cluster_id().expect("serving"),
            run,
            parent: None,
            continued: None,
        };
        let first = Recorded { seq: Seq(1), at_ms: now, event: created };
        let state = State::begin(execution, &first).expect("a first event");
        draft.answers.push((request, Response::created(started(&state, true))));
        draft.resident = Some(Resident::new(definition, state));
        draft.events.push(first);
        draft.created = true;
        self.starting += 1;
    }

    fn take_result(&self, draft: &mut Draft, token: Token, outcome: TaskOutcome, now: ClusterMs) -> ResultOutcome {
        let command = match outcome {
            TaskOutcome::Succeeded(output) => Command::Succeed { token: token.id, output },
            TaskOutcome::Failed(error) => Command::Fail { token: token.id, error },
        };
        let told = |outcome| ResultOutcome { token: token.clone(), outcome, error: None };
        if self.mutants.planted(Mutant::OldFailureCounts) && count_old_failure(draft, &token, &command, now) {
            return told(Accepted::Accepted);
        }
        match self.take_command(draft, command.clone(), now) {
            Some(Ok(())) => match draft.events.last().map(|e| &e.event) {
                Some(Event::StaleResultIgnored { .. }) => told(Accepted::Stale),
                _ => told(Accepted::Accepted),
            },
            Some(Err(Refusal::Duplicate)) => {
                if let Command::Succeed { output, .. } = command
                    && self.mutants.planted(Mutant::DuplicateSuccess)
                {
                    self.record_again(draft, &token, output, now);
                }
                told(Accepted::Duplicate)
            }
            Some(Err(Refusal::Stale | Refusal::Finished)) => told(Accepted::Stale),
            Some(Err(_)) | None => {
                let message = format!("no delivery has the token {token}");
                let error = Some(ApiError::new(ErrorCode::UnknownToken, message));
                ResultOutcome { token, outcome: Accepted::Refused, error }
            }
        }
    }

    /// The planted mistake: a repeated success is recorded once more.
    fn record_again(&self, draft: &mut Draft, token: &Token, output: crate::execution::Json, now: ClusterMs) {
        let Some(resident) = draft.resident.as_ref().filter(|r| !r.state.has_ended()) else { return };
        let Some(delivery) = resident.state.deliveries.get(&token.id).cloned() else { return };
        let (step, attempt) = (delivery.unit, delivery.attempt);
        draft.record(Event::StepSucceeded { step, attempt, output, token: Some(token.clone()) }, now);
    }

    /// A task that a claim took from the queue goes to its session, or back where the session is gone.
    fn take_claimed(
        &mut self,
        draft: &mut Draft,
        claimed: ClaimedTask,
        session: SessionId,
        poll: RequestId,
        now: ClusterMs,
    ) {
        let Some(resident) = draft.resident.as_mut() else { return draft.released.push(poll) };
        // A row that is known to be gone was dealt with since the claim.
        let Some(row) = resident.tasks.get_mut(&claimed.task) else { return draft.released.push(poll) };
        *row = TaskState::Claimed { token: claimed.token };
        let worker = self.sessions.get(session).map(|s| s.worker_id.clone());
        let scheduled = resident.state.scheduled().find(|(key, ..)| **key == claimed.unit).map(|(_, _, seq)| seq);
        let wanted = scheduled.filter(|seq| task_id(&resident.state, *seq) == claimed.task);
        if worker.is_none() && wanted.is_some() {
            draft.requeue.insert(claimed.task.clone());
        }
        let (Some(worker), Some(scheduled)) = (worker, wanted) else { return draft.released.push(poll) };
        let command = Command::Dispatch {
            unit: claimed.unit.clone(),
            scheduled,
            token: claimed.token,
            worker,
            session,
            repeat: claimed.repeat,
        };
        match self.take_command(draft, command, now) {
            Some(Ok(())) => {
                let execution = claimed.execution.clone();
                let token = Token { execution, id: claimed.token };
                draft.dispatches.push(Handover { token, session, poll, direct: false });
            }
            Some(Err(_)) | None => draft.released.push(poll),
        }
    }

    /// Hands scheduled attempts to waiting polls, queues the rest, and says what becomes of the owner row.
    pub(super) fn finish(&mut self, part: &mut Part, now: ClusterMs) -> Option<Member> {
        let Part { execution, before, draft, parks } = part;
        let (before, parks) = (*before, *parks);
        draft.resident.as_ref()?;
        self.hand_over(execution, draft, now);
        let (end_waits, unfinished, first_run) = (draft.end_waits, draft.unfinished, draft.run_of(0));
        let resident = draft.resident.as_mut().expect("looked up above");
        draft.tasks = change_tasks(resident, &draft.requeue);
        let owner = match (before, resident.state.has_ended()) {
            (Some(Before { ended: true, .. }), true) => OwnerChange::Keep,
            (_, true) => OwnerChange::End,
            (_, false) => {
                let (wake, leaves) = match end_waits || unfinished {
                    true => (Wake::Hot, Leaves::No),
                    false => wake_of(resident, parks, now),
                };
                draft.leaves = leaves;
                let wake = if leaves != Leaves::No && self.mutants.planted(Mutant::WakeForgotten) {
                    Wake::Never
                } else {
                    wake
                };
                let was = resident.wake;
                resident.wake = wake;
                if was == wake { OwnerChange::Keep } else { OwnerChange::Wake(wake) }
            }
        };
        let nothing = draft.events.is_empty() && draft.tasks.is_empty() && owner == OwnerChange::Keep;
        if nothing {
            return None;
        }
        let state = &resident.state;
        let summary = match before {
            Some(before) if before.status == state.status() && before.run == state.identity.run => None,
            _ => Some(state.summary()),
        };
        let expect = match before {
            None => Expect::New { run: first_run, root: state.root().clone() },
            Some(Before { run, last, epoch, .. }) => Expect::After { run, last, epoch },
        };
        let store = |(at, e): (usize, &Recorded)| StoredEvent {
            run: draft.run_of(at),
            seq: e.seq,
            at_ms: e.at_ms,
            bytes: e.encode(),
        };
        let events = draft.events.iter().enumerate().map(store).collect();
        Some(Member { execution: execution.clone(), expect, events, summary, owner })
    }

    /// The next task goes to a poll that waits for it, inside the append that schedules it (design, section 6), unless
    /// older tasks of its contract may be queued (protocols, 23).
    fn hand_over(&mut self, execution: &ExecutionId, draft: &mut Draft, now: ClusterMs) {
        let resident = draft.resident.as_ref().expect("there is an execution");
        let waiting: Vec<(UnitKey, Seq)> = resident
            .state
            .scheduled()
            .filter(|(_, _, seq)| !resident.tasks.contains_key(&task_id(&resident.state, *seq)))
            .map(|(key, _, seq)| (key.clone(), seq))
            .collect();
        for (unit, scheduled) in waiting {
            let resident = draft.resident.as_ref().expect("there is an execution");
            let Some(contract) = contract_of(&resident.definition, &unit) else { continue };
            if self.claims.may_be_queued(&contract) {
                continue;
            }
            let Some((poll, session)) = self.polls.reserve(&contract) else { continue };
            let worker = self.sessions.get(session).map(|s| s.worker_id.clone()).expect("its poll waits");
            let token = Token { execution: execution.clone(), id: self.draw() };
            let command = Command::Dispatch { unit, scheduled, token: token.id, worker, session, repeat: false };
            match self.take_command(draft, command, now) {
                Some(Ok(())) => draft.dispatches.push(Handover { token, session, poll, direct: true }),
                Some(Err(_)) | None => self.polls.release(poll),
            }
        }
    }
}

/// An execution whose history cannot be loaded takes nothing in.
fn refuse_broken(execution: &ExecutionId, draft: &mut Draft, work: Work, reason: &str) {
    let error = || quarantined(execution, reason);
    match work {
        Work::Start { request, .. } | Work::Ask { request, .. } => draft.answers.push((request, error().into())),
        Work::Result { request, index, token, .. } => {
            let outcome = ResultOutcome { token, outcome: Accepted::Refused, error: Some(error()) };
            draft.outcomes.push((request, index, outcome));
        }
        Work::Dispatch { poll, .. } => draft.released.push(poll),
        Work::Uncertain { .. } | Work::ChildEnds { .. } | Work::End { .. } | Work::Wake | Work::Park => {}
    }
}

/// The planted mistake: a failure of an earlier delivery fails the attempt that is out.
fn count_old_failure(draft: &mut Draft, token: &Token, command: &Command, now: ClusterMs) -> bool {
    let (Some(resident), Command::Fail { error, .. }) = (&draft.resident, command) else { return false };
    let state = &resident.state;
    let Some(delivery) = state.deliveries.get(&token.id).filter(|delivery| delivery.settled.is_none()) else {
        return false;
    };
    let out = state.units.get(&delivery.unit).is_some_and(|unit| {
        unit.attempt == delivery.attempt
            && matches!(unit.status, UnitStatus::Dispatched { token: out, .. } if out != token.id)
    });
    let (step, attempt) = (delivery.unit.clone(), delivery.attempt);
    if out && !state.has_ended() {
        let (error, token) = (error.clone(), Some(token.clone()));
        draft.record(Event::StepAttemptFailed { step, attempt, error, token }, now);
    }
    out
}
