//! Signals and updates: what is acknowledged is recorded exactly once, under the number that was told; what is refused is
//! absent; what is received is taken at most once, in order of arrival, and named as left over where nothing took it: what
//! a run that continues as new leaves, the next one begins with. The answer to an update is its recorded result.
//!
//! The payload of each message is like no other, so that the book knows whose it is.

use super::history::{HistoryCheck, Tracked};
use super::runs::{Position, Runs};
use super::{Answer, Checked, Committed, Violation, ensure};
use crate::coverage::{Coverage, Mark};
use crate::schema;
use crate::store::Change;
use crate::world::book::Book;
use orbit_core::api::request::Message;
use orbit_core::api::{ErrorCode, Reply, Request};
use orbit_core::definition::{Place, UnitPath};
use orbit_core::execution::event::{Carried, Event, Json, Recorded, Unconsumed};
use orbit_core::id::{ExecutionId, Run, Seq, SignalName, UnitKey};
use orbit_core::store::append::Status;
use orbit_core::time::ClusterMs;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const CHECK: &str = "signal";

/// A signal that comes so shortly before or after its step's deadline has raced it.
const RACE_MS: i64 = 250;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct SignalCheck {
    executions: BTreeMap<ExecutionId, Inbox>,
}

/// What an execution was sent.
#[derive(Clone, Debug, Default)]
struct Inbox {
    /// The run that is looked at, and how many events of it were.
    run: Run,
    seen: usize,
    /// Not taken yet, in order of arrival.
    waiting: BTreeMap<Seq, Waiting>,
    /// What the run before left and this one has not begun with yet.
    left: VecDeque<Waiting>,
    /// Payloads, as text.
    payloads: BTreeSet<String>,
    /// Ids of the senders.
    keys: BTreeMap<String, Position>,
    /// Deadlines of steps that wait, or waited.
    deadlines: BTreeMap<UnitKey, (SignalName, ClusterMs)>,
    awaiting: BTreeSet<UnitKey>,
}

/// What nothing has taken.
#[derive(Clone, Debug)]
struct Waiting {
    name: SignalName,
    payload: Json,
    /// Where it was taken in.
    origin: Position,
    /// How many runs left it to the next one.
    carried: u32,
}

impl SignalCheck {
    pub fn on_commit(&mut self, committed: &Committed<'_>, histories: &HistoryCheck, marks: &mut Coverage) -> Checked {
        for change in &committed.commit.changes {
            let Change::Group { group, repeated: false, .. } = change else { continue };
            for member in &group.members {
                let Some(runs) = histories.runs(&member.execution) else { continue };
                let inbox = self.executions.entry(member.execution.clone()).or_default();
                let mut received = 0;
                let from = inbox.run;
                for tracked in runs.iter().filter(|tracked| tracked.run >= from) {
                    if tracked.run > inbox.run {
                        inbox.begins(tracked.run);
                    }
                    let fresh = &tracked.events[inbox.seen..];
                    inbox.seen = tracked.events.len();
                    for recorded in fresh {
                        inbox.on_event(&member.execution, recorded, committed.book, marks)?;
                    }
                    received += fresh.iter().filter(|e| is_message(&e.event)).count();
                    if received > 0 && tracked.ended == Some(Status::Completed) {
                        marks.hit(Mark::SignalRacedCompletion);
                    }
                    if received > 0 && tracked.continues.is_some() {
                        marks.hit(Mark::SignalRacedContinue);
                    }
                }
                inbox.all_came(&member.execution)?;
            }
        }
        Ok(())
    }

    pub fn on_answer(
        &mut self,
        answer: &Answer<'_>,
        histories: &HistoryCheck,
        book: &mut Book,
        marks: &mut Coverage,
    ) -> Checked {
        let (execution, message, update) = match &*answer.exchange.request {
            Request::Signal { execution, signal } => (execution, signal, false),
            Request::Update { execution, update } => (execution, update, true),
            Request::Query { .. } => {
                match &answer.response.reply {
                    Reply::Queried(_) => marks.hit(Mark::QueryAnswered),
                    Reply::Error(error) if error.code == ErrorCode::QueryFailed => marks.hit(Mark::QueryFailed),
                    _ => {}
                }
                return Ok(());
            }
            _ => return Ok(()),
        };
        let runs = histories.runs(execution);
        match (&answer.response.reply, update) {
            (Reply::Signalled(told), false) => {
                marks.hit(Mark::SignalAcknowledged);
                let position = Position { run: told.run, seq: told.seq };
                acknowledged(answer, execution, runs, message, position, None, book, marks)
            }
            (Reply::Updated(told), true) => {
                marks.hit(Mark::UpdateAnswered);
                let position = Position { run: told.run, seq: told.seq };
                acknowledged(answer, execution, runs, message, position, Some(&told.result), book, marks)
            }
            (Reply::Error(error), _) => {
                let full = error.details.get("limit").is_some_and(|limit| limit == "max_pending_signals");
                if full {
                    marks.hit(Mark::SignalsTooMany);
                }
                refused(execution, runs, message, update, error.code, book, marks)
            }
            (other, _) => Err(Violation::safety(CHECK, format!("{message:?} is answered with {other:?}"))),
        }
    }

    pub fn at_end(&self, histories: &HistoryCheck, book: &Book) -> Checked {
        for record in book.messages() {
            let id = &record.execution;
            let text = record.message.payload.to_string();
            let taken = self.executions.get(id).is_some_and(|inbox| inbox.payloads.contains(&text));
            if record.refused == record.sent {
                ensure!(!taken, CHECK, "every sending of {text} to {id} was refused, and it is recorded");
            }
            if let Some(position) = record.told {
                let there = histories.runs(id).and_then(|runs| runs.at(position)).is_some_and(is_message);
                ensure!(there, CHECK, "{text} to {id} was acknowledged as {position} and is not there");
            }
        }
        Ok(())
    }
}

fn is_message(event: &Event) -> bool {
    message(event).is_some()
}

/// Name, payload, id of the sender, and the result of an update; nothing of what comes again in a later run.
fn message(event: &Event) -> Option<(&SignalName, &Json, Option<&String>, Option<&Json>)> {
    match event {
        Event::SignalReceived { signal, payload, signal_id, carried: None } => {
            Some((signal, payload, signal_id.as_ref(), None))
        }
        Event::UpdateAccepted { update, payload, update_id, result } => {
            Some((update, payload, update_id.as_ref(), Some(result)))
        }
        _ => None,
    }
}

/// Whether that stands at `told` which was acknowledged with it: of a repetition, the first.
pub(super) fn stands(runs: &Runs, sent: &Message, told: Position) -> bool {
    let recorded = runs.at(told).and_then(message);
    recorded.is_some_and(|(name, payload, key, _)| {
        // A repetition under an id is answered as the first was, whatever it brings.
        *name == sent.name && key == sent.key.as_ref() && (key.is_some() || *payload == sent.payload)
    })
}

#[allow(clippy::too_many_arguments)]
fn acknowledged(
    answer: &Answer<'_>,
    execution: &ExecutionId,
    runs: Option<&Runs>,
    sent: &Message,
    position: Position,
    result: Option<&Json>,
    book: &mut Book,
    marks: &mut Coverage,
) -> Checked {
    let Some(runs) = runs.filter(|runs| stands(runs, sent, position)) else {
        let text = format!("{sent:?} is acknowledged as {execution}{position}, and not recorded there");
        return Err(Violation::safety(CHECK, text));
    };
    let (_, payload, _, recorded) = runs.at(position).and_then(message).expect("looked up just now");
    ensure!(
        recorded == result,
        CHECK,
        "{execution}{position} is answered with {result:?}, and {recorded:?} is recorded"
    );
    let record = book.message_mut(&sent.payload).expect("it was sent");
    ensure!(
        record.told.is_none_or(|before| before == position),
        CHECK,
        "{sent:?} is acknowledged as {execution}{position}, and was as {:?} before",
        record.told
    );
    let now = answer.exchange.newest.run;
    if record.told.replace(position).is_some() || *payload != sent.payload {
        marks.hit(Mark::SignalRepeated);
        if position.run < now {
            marks.hit(if result.is_some() { Mark::UpdateRepeatedOverRuns } else { Mark::SignalRepeatedOverRuns });
        }
    }
    Ok(())
}

fn refused(
    execution: &ExecutionId,
    runs: Option<&Runs>,
    sent: &Message,
    update: bool,
    code: ErrorCode,
    book: &mut Book,
    marks: &mut Coverage,
) -> Checked {
    let tracked = runs.and_then(Runs::newest);
    let definition = tracked.map(|tracked| &tracked.definition);
    let schema = definition.and_then(|definition| match update {
        false => definition.signals.get(&sent.name)?.payload.as_ref(),
        true => definition.updates.get(&sent.name)?.payload.as_ref(),
    });
    match code {
        ErrorCode::OutcomeUnknown | ErrorCode::Internal => return Ok(()),
        ErrorCode::UnknownSignal | ErrorCode::UnknownUpdate => {
            let declared = definition.is_some_and(|definition| match update {
                false => definition.signals.contains_key(&sent.name),
                true => definition.updates.contains_key(&sent.name),
            });
            ensure!(!declared, CHECK, "`{}` is said to be unknown to {execution}, and is declared", sent.name);
            marks.hit(Mark::SignalUnknown);
        }
        ErrorCode::SignalPayloadInvalid | ErrorCode::UpdatePayloadInvalid => {
            let wrong = schema.is_some_and(|schema| schema::matches(schema, &sent.payload).is_err());
            ensure!(wrong, CHECK, "the payload of {sent:?} is refused, and matches its schema");
            marks.hit(Mark::SignalMisfit);
        }
        ErrorCode::ExecutionFinished => {
            let ends = tracked.is_some_and(Tracked::winds_down);
            ensure!(ends, CHECK, "{execution} is said to end, and runs");
            marks.hit(Mark::SignalTooLate);
        }
        ErrorCode::SignalIdConflict => {
            let other = |recorded: &Recorded| {
                message(&recorded.event).is_some_and(|(name, _, key, result)| {
                    key == sent.key.as_ref() && (*name != sent.name || result.is_some() != update)
                })
            };
            let used = runs.is_some_and(|runs| runs.iter().flat_map(|tracked| &tracked.events).any(other));
            ensure!(used, CHECK, "the id of {sent:?} is said to be used by another message of {execution}");
            marks.hit(Mark::SignalIdTaken);
        }
        ErrorCode::UpdateRejected => {
            ensure!(update, CHECK, "{sent:?} is a signal, and rejected as an update");
            marks.hit(Mark::UpdateRejected);
        }
        _ => {}
    }
    book.message_mut(&sent.payload).expect("it was sent").refused += 1;
    Ok(())
}

impl Inbox {
    /// What one run leaves is the next one's.
    fn begins(&mut self, run: Run) {
        let left = std::mem::take(&mut self.waiting).into_values();
        self.left.extend(left.map(|waiting| Waiting { carried: waiting.carried + 1, ..waiting }));
        (self.run, self.seen) = (run, 0);
        self.deadlines.clear();
        self.awaiting.clear();
    }

    /// What a run left came again in the next, before anything else.
    fn all_came(&self, id: &ExecutionId) -> Checked {
        ensure!(
            self.left.is_empty(),
            CHECK,
            "{id}: run {} begins without {:?}, which the one before left",
            self.run,
            self.left
        );
        Ok(())
    }

    fn comes_again(
        &mut self,
        id: &ExecutionId,
        seq: Seq,
        (name, payload, key): (&SignalName, &Json, Option<&String>),
        carried: Carried,
        marks: &mut Coverage,
    ) -> Checked {
        let at = Position { run: self.run, seq };
        let origin = Position { run: carried.run, seq: carried.seq };
        let next = self.left.pop_front();
        let Some(waiting) = next
            .filter(|next| next.name == *name && next.payload == *payload && next.origin == origin && key.is_none())
        else {
            let left = &self.left;
            let text =
                format!("{id}{at}: `{name}` with {payload} comes again from {origin}; the run before left {left:?}");
            return Err(Violation::safety(CHECK, text));
        };
        marks.hit(if waiting.carried > 1 { Mark::SignalCarriedTwice } else { Mark::SignalCarried });
        self.waiting.insert(seq, waiting);
        Ok(())
    }

    fn on_event(&mut self, id: &ExecutionId, recorded: &Recorded, book: &Book, marks: &mut Coverage) -> Checked {
        let (seq, at_ms) = (recorded.seq, recorded.at_ms);
        match &recorded.event {
            Event::WorkflowCreated { .. } => {}
            Event::SignalReceived { signal, payload, signal_id, carried: Some(carried) } => {
                return self.comes_again(id, seq, (signal, payload, signal_id.as_ref()), *carried, marks);
            }
            _ => self.all_came(id)?,
        }
        if let Some((name, payload, key, result)) = message(&recorded.event) {
            self.receive(id, seq, (name, payload, key, result.is_some()), book)?;
            let close = |(awaited, deadline): &(SignalName, ClusterMs)| {
                awaited == name && (at_ms.0 - deadline.0).abs() <= RACE_MS
            };
            if self.deadlines.values().any(close) {
                marks.hit(Mark::SignalRacedTimeout);
            }
        }
        match &recorded.event {
            Event::SignalAwaited { step, signal, deadline_ms } => {
                self.awaiting.insert(step.clone());
                if let Some(deadline) = deadline_ms {
                    self.deadlines.insert(step.clone(), (signal.clone(), *deadline));
                }
            }
            Event::SignalConsumed { step, signal, received } => {
                self.take(id, seq, signal, *received)?;
                self.is_first_item(id, seq, step)?;
                if !self.awaiting.remove(step) {
                    marks.hit(Mark::SignalWaited);
                }
                if UnitPath::parse(step).index.is_some() {
                    marks.hit(Mark::SignalTakenByItem);
                }
            }
            Event::StepSucceeded { step, .. } | Event::StepFailed { step, .. } | Event::StepCancelled { step } => {
                self.awaiting.remove(step);
            }
            Event::HandlerStarted { handler } => {
                if let Some(Place::Event { signal, received }) = Place::of_handler(handler.as_str()) {
                    self.take(id, seq, &SignalName::new(signal), received)?;
                }
            }
            event if event.is_terminal() => self.left_over(id, event, marks)?,
            _ => {}
        }
        Ok(())
    }

    fn receive(
        &mut self,
        id: &ExecutionId,
        seq: Seq,
        (name, payload, key, update): (&SignalName, &Json, Option<&String>, bool),
        book: &Book,
    ) -> Checked {
        let at = Position { run: self.run, seq };
        let Some(record) = book.message(payload) else {
            return Err(Violation::safety(CHECK, format!("{id}{at}: nobody sent {payload}")));
        };
        let same = record.execution == *id
            && record.update == update
            && record.message.name == *name
            && record.message.key.as_ref() == key;
        ensure!(same, CHECK, "{id}{at}: `{name}` of {key:?} with {payload}, and what was sent is {record:?}");
        let first = self.payloads.insert(payload.to_string());
        ensure!(first, CHECK, "{id}{at}: `{name}` with {payload} is recorded a second time");
        if let Some(key) = key {
            let before = self.keys.insert(key.clone(), at);
            ensure!(before.is_none(), CHECK, "{id}{at}: {key:?} was taken in as {before:?} before");
        }
        let waiting = Waiting { name: name.clone(), payload: payload.clone(), origin: at, carried: 0 };
        self.waiting.insert(seq, waiting);
        Ok(())
    }

    /// The oldest of its name is taken.
    fn take(&mut self, id: &ExecutionId, seq: Seq, name: &SignalName, received: Seq) -> Checked {
        let oldest = self.waiting.iter().find(|(_, waiting)| waiting.name == *name).map(|(seq, _)| *seq);
        ensure!(
            oldest == Some(received),
            CHECK,
            "{id}#{seq}: `{name}` #{received} is taken, and the oldest that waits is {oldest:?}"
        );
        self.waiting.remove(&received);
        Ok(())
    }

    /// Of the items of a list that wait, the earliest takes what comes.
    fn is_first_item(&self, id: &ExecutionId, seq: Seq, unit: &UnitKey) -> Checked {
        let path = UnitPath::parse(unit);
        let Some(index) = path.index else { return Ok(()) };
        let earlier = self.awaiting.iter().find(|other| {
            let other = UnitPath::parse(other);
            other.whole() == path.whole() && other.index.is_some_and(|other| other < index)
        });
        ensure!(earlier.is_none(), CHECK, "{id}#{seq}: {unit} takes a signal while {earlier:?} waits");
        Ok(())
    }

    fn left_over(&self, id: &ExecutionId, event: &Event, marks: &mut Coverage) -> Checked {
        let unconsumed: &[Unconsumed] = match event {
            Event::WorkflowCompleted { unconsumed, .. }
            | Event::WorkflowFailed { unconsumed, .. }
            | Event::WorkflowCancelled { unconsumed, .. }
            | Event::WorkflowTimedOut { unconsumed, .. }
            | Event::WorkflowTerminated { unconsumed } => unconsumed,
            _ => &[],
        };
        let named = unconsumed.iter().map(|one| (&one.received, &one.signal));
        ensure!(
            named.eq(self.waiting.iter().map(|(seq, waiting)| (seq, &waiting.name))),
            CHECK,
            "{id} ends and names {unconsumed:?}, and nothing took {:?}",
            self.waiting
        );
        if !unconsumed.is_empty() {
            marks.hit(Mark::SignalLeftOver);
        }
        Ok(())
    }
}
