//! The batch: one committer, no timer. While one append is under way, what other executions decide gathers for the
//! next (design, section 6).

use super::draft::{Draft, Handover, Leaves, Part};
use super::slot::{Body, Slot, Work};
use super::{Connection, LogEvent, Node, Purpose, storage_error};
use crate::api::response::{Accepted, Reply, Response, ResultOutcome};
use crate::execution::Event;
use crate::execution::State;
use crate::execution::state::Settled;
use crate::id::{ExecutionId, TaskId, Token};
use crate::mutant::{Mutant, Mutants};
use crate::store::append::{Append, GroupOutcome, Rejection, Status, TaskState, Wake};
use crate::store::outcome::Failure;
use crate::store::transaction::{Transaction, Verdict};
use crate::time::Mono;
use crate::worker::attempt::{Holder, Orphaned};
use crate::worker::session::Held;
use std::time::Duration;

/// The pause after a failed append; it doubles at each further failure, up to [`LONGEST_PAUSE`].
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A group that is under way: an execution, and its children that begin or end with it.
#[derive(Debug)]
pub(crate) struct Flight {
    parts: Vec<Passenger>,
}

/// What one execution has in it.
#[derive(Debug)]
struct Passenger {
    execution: ExecutionId,
    draft: Draft,
    /// About how many bytes of memory its events add.
    memory: u64,
    /// It is a child that this very group starts: nothing is there if the group is not written.
    born: bool,
}

impl Flight {
    /// What it does.
    pub fn works(&self) -> impl Iterator<Item = &Work> {
        self.parts.iter().flat_map(|part| &part.draft.works)
    }

    /// The execution that it is about.
    fn execution(&self) -> &ExecutionId {
        &self.parts[0].execution
    }
}

impl<M: Mutants> Node<M> {
    /// Sends what is ready, if no append is under way.
    pub(super) fn commit(&mut self) {
        let Some(fence) = self.fence().filter(|_| !self.committing) else { return };
        let limits = self.config.limits;
        let (mut groups, mut flights, mut bytes) = (Vec::new(), Vec::new(), 0);
        while groups.len() < limits.max_append_groups && bytes < limits.max_append_bytes {
            let Some(execution) = self.ready.pop_front() else { break };
            let Some(mut slot) = self.slots.remove(&execution) else { continue };
            if slot.in_flight || matches!(slot.body, Body::Loading) {
                self.slots.insert(execution, slot);
                continue;
            }
            if matches!(slot.body, Body::Unread) && !self.starts_unread(&execution, &slot) {
                slot.body = Body::Loading;
                self.slots.insert(execution.clone(), slot);
                self.to_load.insert(execution);
                continue;
            }
            let (parts, group) = self.draft(&execution, slot);
            let Some(group) = group else {
                for part in parts {
                    self.nothing_to_write(&part.execution, part.draft);
                }
                continue;
            };
            bytes += group.members.iter().flat_map(|m| &m.events).map(|e| e.bytes.len()).sum::<usize>();
            let members = group.members.iter().map(|member| member.events.iter().map(|e| e.bytes.len() as u64).sum());
            let parts = parts.into_iter().zip(members).map(|(part, own)| self.board(part, own)).collect();
            flights.push(Flight { parts });
            groups.push(group);
        }
        if groups.is_empty() {
            return;
        }
        self.committing = true;
        self.progress.tries(self.now.mono);
        let append = Append::under(fence, groups);
        self.send(Connection::Store, Transaction::Append(append), Purpose::Append(flights));
    }

    /// A part goes under way.
    fn board(&mut self, part: Part, own_bytes: u64) -> Passenger {
        let Part { execution, before, mut draft, .. } = part;
        let slot = self.slots.get_mut(&execution).expect("what is drafted is in memory");
        slot.in_flight = true;
        // It may stand in line a second time, and find something to do there.
        self.idle.remove(&execution, slot);
        if self.mutants.planted(Mutant::MemoryBeforeCommit) {
            slot.body = Body::Resident(Box::new(draft.resident.clone().expect("a group has a state")));
        }
        if self.mutants.planted(Mutant::ResponseBeforeCommit) {
            self.tell(&mut draft);
        }
        self.tell_too_early(&mut draft);
        let memory = draft.events.iter().map(|recorded| recorded.event.memory()).sum::<u64>().max(own_bytes);
        let born = before.is_none() && draft.works.is_empty();
        Passenger { execution, draft, memory, born }
    }

    /// The planted mistakes: a signal or an update is answered before it is durable.
    fn tell_too_early(&mut self, draft: &mut Draft) {
        let signals = self.mutants.planted(Mutant::SignalBeforeCommit);
        let updates = self.mutants.planted(Mutant::UpdateBeforeCommit);
        if !signals && !updates {
            return;
        }
        let is_early = |response: &Response| match response.reply {
            Reply::Signalled(_) => signals,
            Reply::Updated(_) => updates,
            _ => false,
        };
        let (early, in_time) = std::mem::take(&mut draft.answers).into_iter().partition(|(_, r)| is_early(r));
        draft.answers = in_time;
        let early: Vec<_> = early;
        early.into_iter().for_each(|(request, response)| self.respond(request, response));
    }

    /// Whether what an execution that nobody has looked for has to do begins with a start that may be tried. Whatever
    /// else is asked about it, and what is refused, depends on whether there is one.
    ///
    /// Nor is it tried where children of it are in memory: then it is there, and what it would start first are they.
    fn starts_unread(&self, execution: &ExecutionId, slot: &Slot) -> bool {
        let children = format!("{execution}~");
        let from = self.slots.range(ExecutionId::new(children.as_str())..);
        let has_children = from.take(1).any(|(id, _)| id.as_str().starts_with(&children));
        matches!(slot.queue.front(), Some(Work::Start { misfit: None, .. })) && !self.is_full() && !has_children
    }

    /// Whether no more executions may be started.
    pub(super) fn is_full(&self) -> bool {
        self.active + self.starting >= self.config.limits.max_active_executions
    }

    /// Works are done: what requests brought of them waits no longer.
    fn done(&mut self, works: &[Work]) {
        self.no_longer_asked(works.iter().filter(|work| work.request().is_some()));
    }

    /// What was asked can be answered from what is committed already.
    fn nothing_to_write(&mut self, execution: &ExecutionId, mut draft: Draft) {
        self.done(&draft.works);
        self.tell(&mut draft);
        self.tell_family(execution, &draft);
        if let Some(slot) = self.slots.get_mut(execution).filter(|slot| slot.resident().is_some()) {
            (slot.recovers, slot.released) = (false, false);
        }
        self.settle_down(execution, draft.leaves);
    }

    /// Sends the answers and outcomes of a draft, and takes back reservations that nothing came of.
    fn tell(&mut self, draft: &mut Draft) {
        for (request, response) in draft.answers.drain(..) {
            self.respond(request, response);
        }
        for (request, index, outcome) in draft.outcomes.drain(..) {
            self.result_outcome(request, index, outcome);
        }
        for poll in draft.released.drain(..) {
            self.polls.release(poll);
            self.answer_poll_when_due(poll);
        }
    }

    pub(super) fn on_append(&mut self, sent: Mono, flights: Vec<Flight>, outcome: Result<Verdict, Failure>) {
        self.committing = false;
        for part in flights.iter().flat_map(|flight| &flight.parts) {
            if part.draft.created {
                self.starting -= 1;
            }
            self.slots.get_mut(&part.execution).expect("an execution in flight stays in memory").in_flight = false;
        }
        let outcomes = match outcome {
            Ok(Verdict::Append(outcomes)) => outcomes,
            Ok(other) => unreachable!("an append gives outcomes, not {other:?}"),
            Err(failure) => {
                self.pause_after_failure();
                for flight in flights {
                    self.not_written(flight, &failure.message);
                }
                return;
            }
        };
        assert_eq!(flights.len(), outcomes.len(), "an append has one outcome for each group");
        self.pause = FIRST_PAUSE;
        self.write_failed = None;
        self.progress.rests();
        self.counters.appends += 1;
        self.appends.took(self.now.mono, self.now.mono.since(sent));
        let mut fenced = None;
        for (flight, outcome) in flights.into_iter().zip(outcomes) {
            match outcome {
                GroupOutcome::Written => self.written(flight),
                GroupOutcome::Busy => self.try_again(flight, false),
                GroupOutcome::Rejected(Rejection::Fenced { current, .. }) => {
                    // Its neighbours may have been written by an earlier sending: they are told first.
                    self.counters.appends_fenced += 1;
                    fenced = Some(current);
                }
                GroupOutcome::Rejected(Rejection::Refused { message }) => {
                    self.log(LogEvent::StoreFailed { call: "append".into(), message: message.clone(), unsaid: 0 });
                    // Told to those who asked, if any did. What it decided by itself, it would decide again.
                    let asks = |work: &Work| work.request().is_some() && !work.releases();
                    let asked = flight.works().any(asks);
                    let execution = flight.execution().clone();
                    self.not_written(flight, &message);
                    if !asked {
                        self.quarantine(&execution, message);
                    }
                }
                GroupOutcome::Rejected(Rejection::TaskMoved { task, found }) => {
                    let mut flight = flight;
                    self.drop_claims(&mut flight, &task, found);
                    self.try_again(flight, true);
                }
                GroupOutcome::Rejected(_) => self.try_again(flight, true),
            }
        }
        if let Some(current) = fenced {
            self.lose_fence(current);
        }
    }

    /// Appends, claims and loads wait after a failure, longer each time.
    pub(super) fn pause_after_failure(&mut self) {
        self.resume = Some(self.now.mono + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// A group is durable: memory follows, and what it promises leaves.
    fn written(&mut self, flight: Flight) {
        self.counters.append_groups += 1;
        for part in flight.parts {
            self.part_written(part);
        }
    }

    fn part_written(&mut self, part: Passenger) {
        let Passenger { execution, mut draft, memory, .. } = part;
        self.done(&draft.works);
        self.count_and_log(&execution, &draft);
        self.queue.written(&draft);
        for contract in draft.queued_contracts() {
            self.claims.queued(contract);
        }
        let resident = draft.resident.take().expect("a written group has a state");
        let ended = resident.state.has_ended();
        if let (true, Wake::At(at)) = (draft.leaves != Leaves::No, resident.wake) {
            self.due.expect(Some(at));
        }
        let is_held = resident.state.held.is_some();
        let slot = self.slots.get_mut(&execution).expect("an execution in flight stays in memory");
        (slot.recovers, slot.released) = (false, false);
        match (slot.resident().is_some_and(|before| before.state.held.is_some()), is_held) {
            (false, true) => self.held += 1,
            (true, false) => self.held = self.held.saturating_sub(1),
            _ => {}
        }
        if draft.next_run_at.is_some() {
            // Nothing of the run before is kept.
            slot.bytes = 0;
        }
        slot.body = Body::Resident(Box::new(resident));
        slot.bytes += memory;
        slot.end_waits = draft.end_waits;
        self.close_attempts(&execution, &draft);
        for handover in std::mem::take(&mut draft.dispatches) {
            self.hand(handover);
        }
        self.tell(&mut draft);
        self.tell_family(&execution, &draft);
        if ended {
            self.end_reached(&execution);
        }
        self.settle_down(&execution, draft.leaves);
    }

    /// A delivery is recorded: it goes into its poll's answer.
    fn hand(&mut self, handover: Handover) {
        let Handover { token, session, poll, direct } = handover;
        let Some(assignment) = self.assignment(&token) else {
            // The same append took it back (its execution is ending): nothing is handed out.
            self.polls.release(poll);
            return self.answer_poll_when_due(poll);
        };
        self.counters.tasks_dispatched += 1;
        self.counters.tasks_dispatched_directly += u64::from(direct);
        let Some(holder) = self.sessions.get_mut(session) else {
            // Its worker is gone: nobody will report it.
            self.attempts.hold(token, Holder::Nobody { until: self.now.mono, why: Orphaned::SessionEnded });
            return;
        };
        holder.held.insert(token.clone(), Held::default());
        self.attempts.hold(token, Holder::Session(session));
        let Err(assignment) = self.polls.assign(poll, assignment) else {
            return self.answer_poll_when_due(poll);
        };
        // The poll is gone: another one of the session takes it, or the session's next.
        if let Some((other, _)) = self.polls.with_room(session) {
            self.polls.reserve_for(other, 1);
            self.polls.assign(other, *assignment).expect("it waits");
            self.answer_poll_when_due(other);
        }
    }

    /// Deliveries that nothing waits for any more are closed; workers are told to stop, unless it was their own result
    /// that closed them (protocols, 25).
    fn close_attempts(&mut self, execution: &ExecutionId, draft: &Draft) {
        // Of the run that ended with it the next one knows nothing.
        let accepted = |token: &Token| {
            let mut told = draft.outcomes.iter().map(|(.., told)| told);
            told.any(|told| told.token == *token && told.outcome == Accepted::Accepted)
        };
        for token in self.attempts.of(execution) {
            let Some(resident) = self.slots.get(execution).and_then(Slot::resident) else { return };
            if resident.state.is_open(token.id) {
                continue;
            }
            let settled = resident.state.deliveries.get(&token.id).and_then(|delivery| delivery.settled);
            let reported = settled == Some(Settled::Accepted) || accepted(&token);
            let Some(Holder::Session(session)) = self.attempts.close(&token) else { continue };
            let Some(holder) = self.sessions.get_mut(session) else { continue };
            holder.held.remove(&token);
            if reported {
                continue;
            }
            holder.cancels.insert(token);
            // A waiting poll tells it at once.
            if let Some((poll, _)) = self.polls.with_room(session) {
                self.answer_poll_when_due(poll);
            }
        }
    }

    /// The row of a task is not as a claim left it: what that claim brought is not to be handed over any more, however
    /// often it is tried.
    fn drop_claims(&mut self, flight: &mut Flight, moved: &TaskId, found: Option<TaskState>) {
        let is_void = |work: &Work| match work {
            Work::Dispatch { claimed, .. } => {
                claimed.task == *moved && found != Some(TaskState::Claimed { token: claimed.token })
            }
            _ => false,
        };
        for part in &mut flight.parts {
            for work in std::mem::take(&mut part.draft.works) {
                match work {
                    Work::Dispatch { poll, ref claimed, .. } if is_void(&work) => {
                        if found == Some(TaskState::Queued) {
                            self.claims.queued(claimed.contract());
                        }
                        self.polls.release(poll);
                        self.answer_poll_when_due(poll);
                    }
                    work => part.draft.works.push(work),
                }
            }
        }
    }

    /// Nothing of a group was written, and the same again may be: its works go back in line. After a rejection the
    /// executions are read again first, since memory and database differ.
    fn try_again(&mut self, flight: Flight, reload: bool) {
        for part in flight.parts {
            let Passenger { execution, mut draft, born, .. } = part;
            self.give_back(&mut draft);
            if born {
                self.forget_unborn(execution);
                continue;
            }
            let slot = self.slots.get_mut(&execution).expect("an execution in flight stays in memory");
            for work in draft.works.into_iter().rev() {
                slot.queue.push_front(work);
            }
            if reload {
                // Even where those who asked are told that it cannot be read: it is not forgotten.
                slot.queue.push_back(Work::Wake);
                slot.body = Body::Loading;
                self.to_load.insert(execution);
            } else {
                self.ready.push_back(execution);
            }
        }
    }

    /// A child was not started. Whoever asks about it meanwhile is told what there is: its parent may have started it long
    /// ago, where a start of the parent was repeated.
    fn forget_unborn(&mut self, child: ExecutionId) {
        let now = self.cluster_now();
        let slot = self.slots.get_mut(&child).expect("an execution in flight stays in memory");
        if slot.queue.is_empty() {
            assert!(slot.timer.is_none() && slot.idle.is_none(), "nothing was known of it");
            self.slots.remove(&child);
            // A look for what is due may have passed it by, taking it for one in memory.
            self.due.expect(Some(now));
        } else {
            slot.body = Body::Loading;
            self.to_load.insert(child);
        }
    }

    /// An execution that cannot go on is set aside, so that the others can.
    fn quarantine(&mut self, execution: &ExecutionId, reason: String) {
        let broken = self.set_aside(execution, reason);
        self.slots.get_mut(execution).expect("an execution in flight stays in memory").body = broken;
    }

    /// Nothing of a group was written, and those who asked are told so; what nobody asked for is tried again.
    fn not_written(&mut self, flight: Flight, message: &str) {
        for part in flight.parts {
            let Passenger { execution, mut draft, born, .. } = part;
            self.give_back(&mut draft);
            self.done(&draft.works);
            if born {
                self.forget_unborn(execution);
                continue;
            }
            let mut again = Vec::new();
            for work in draft.works.drain(..) {
                match work {
                    Work::Start { request, .. } | Work::Ask { request, .. } => {
                        self.respond(request, storage_error(message));
                    }
                    Work::Result { request, index, token, .. } => {
                        let error = Some(storage_error(message));
                        self.result_outcome(request, index, ResultOutcome { token, outcome: Accepted::Refused, error });
                    }
                    work => again.push(work),
                }
            }
            let slot = self.slots.get_mut(&execution).expect("an execution in flight stays in memory");
            for work in again.into_iter().rev() {
                slot.queue.push_front(work);
            }
            if slot.queue.is_empty() {
                // What was decided is decided again.
                slot.queue.push_back(Work::Wake);
            }
            self.ready.push_back(execution);
        }
    }

    /// Reservations of deliveries that were not recorded go back; those of claimed tasks stay, since their works do.
    fn give_back(&mut self, draft: &mut Draft) {
        for handover in draft.dispatches.drain(..).filter(|h| h.direct) {
            self.polls.release(handover.poll);
            self.answer_poll_when_due(handover.poll);
        }
        draft.released.clear();
    }

    /// After its group (or where it needed none): an execution leaves memory, goes on, or waits.
    fn settle_down(&mut self, execution: &ExecutionId, leaves: Leaves) {
        let Some(slot) = self.slots.get(execution) else { return };
        let goes_on = !slot.queue.is_empty();
        if goes_on {
            self.ready.push_back(execution.clone());
        } else {
            let gone = match &slot.body {
                Body::Unread | Body::Absent => true,
                Body::Resident(resident) => resident.state.has_ended(),
                Body::Loading | Body::Broken(_) => false,
            };
            if gone || leaves == Leaves::AtOnce {
                return self.leave_memory(execution);
            }
        }
        self.set_timer(execution);
        if leaves == Leaves::Rested && !goes_on {
            let slot = self.slots.get_mut(execution).expect("it stays");
            self.idle.rest(execution, slot, self.now.mono);
        }
    }

    fn count_and_log(&mut self, execution: &ExecutionId, draft: &Draft) {
        let counters = &mut self.counters;
        counters.events_committed += draft.events.len() as u64;
        let mut lines = Vec::new();
        for recorded in &draft.events {
            match &recorded.event {
                // A new run is not a new execution.
                Event::WorkflowCreated { continued: Some(_), .. } => {}
                Event::WorkflowContinuedAsNew { .. } => counters.executions_continued_as_new += 1,
                Event::WorkflowCreated { workflow, version, .. } => {
                    counters.executions_started += 1;
                    self.active += 1;
                    lines.push(LogEvent::ExecutionStarted {
                        execution_id: execution.clone(),
                        workflow: workflow.clone(),
                        version: version.clone(),
                    });
                }
                Event::StepSucceeded { token: Some(_), .. } => counters.tasks_succeeded += 1,
                Event::StepAttemptFailed { .. } => counters.task_attempts_failed += 1,
                Event::StepAttemptUncertain { step, attempt, reason, .. } => {
                    counters.task_attempts_uncertain += 1;
                    lines.push(LogEvent::AttemptUncertain {
                        execution_id: execution.clone(),
                        step: step.clone(),
                        attempt: *attempt,
                        reason: reason.clone(),
                    });
                }
                Event::WorkflowHeld { repeats, .. } => {
                    counters.executions_held += 1;
                    let repeats = repeats.len() as u64;
                    lines.push(LogEvent::ExecutionHeld { execution_id: execution.clone(), repeats });
                }
                Event::WorkflowRecovered { .. } => {
                    counters.executions_recovered += 1;
                    lines.push(LogEvent::ExecutionRecovered { execution_id: execution.clone() });
                }
                Event::RetryScheduled { .. } => counters.retries_scheduled += 1,
                Event::StepSkipped { .. } => counters.steps_skipped += 1,
                Event::StaleResultIgnored { .. } => counters.stale_results += 1,
                Event::TimerFired { .. } => counters.timers_fired += 1,
                Event::WorkflowCompleted { .. } => counters.executions_completed += 1,
                Event::WorkflowFailed { .. } => counters.executions_failed += 1,
                Event::WorkflowCancelled { .. } => counters.executions_cancelled += 1,
                Event::WorkflowTimedOut { .. } => counters.executions_timed_out += 1,
                Event::WorkflowTerminated { .. } => counters.executions_terminated += 1,
                Event::SignalReceived { .. } => counters.signals_received += 1,
                Event::UpdateAccepted { .. } => counters.updates_accepted += 1,
                Event::CompensationStarted { .. } => counters.compensations_started += 1,
                Event::CompensationFailed { .. } => counters.compensations_failed += 1,
                _ => {}
            }
        }
        if let Some(state) = ended_now(draft) {
            self.active -= 1;
            let code = match state.end() {
                Some(crate::execution::End::Failed { error }) => Some(error.code.clone()),
                _ => None,
            };
            lines.push(LogEvent::ExecutionEnded { execution_id: execution.clone(), status: state.status(), code });
        }
        for line in lines {
            self.log(line);
        }
    }
}

/// The state, where the draft's events end the execution.
fn ended_now(draft: &Draft) -> Option<&State> {
    let ended = draft.events.last().is_some_and(|e| e.event.is_terminal());
    let state = draft.resident.as_ref().map(|r| &r.state)?;
    debug_assert!(!ended || state.status() != Status::Running);
    ended.then_some(state)
}
