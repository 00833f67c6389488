//! The runs of one execution: numbered without a gap, each but the last ended by continuing as new, and the next one begun
//! in the same group, by what that one left to it.
//!
//! Like [`super::history`] it knows nothing of `decide`.

use super::history::Tracked;
use super::{Violation, ensure};
use crate::world::book::Book;
use orbit_core::execution::event::{Event, Recorded};
use orbit_core::id::{ExecutionId, Run, Seq, Token};
use std::fmt;

const CHECK: &str = "runs";

/// The first run of every execution.
const FIRST: Run = Run(1);

/// A place in the history of an execution; that of an execution of which nothing is known comes before all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub run: Run,
    pub seq: Seq,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.run > FIRST {
            write!(f, "/{}", self.run)?;
        }
        write!(f, "#{}", self.seq)
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Runs(Vec<Tracked>);

impl Runs {
    /// The run that goes on, or has ended last.
    pub fn newest(&self) -> Option<&Tracked> {
        self.0.last()
    }

    pub(super) fn newest_mut(&mut self) -> Option<&mut Tracked> {
        self.0.last_mut()
    }

    /// One run.
    pub fn get(&self, run: Run) -> Option<&Tracked> {
        self.0.iter().find(|tracked| tracked.run == run)
    }

    /// All of them, the first one first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Tracked> {
        self.0.iter()
    }

    /// Where the history ends.
    pub fn last(&self) -> Position {
        self.newest().map(Tracked::position).unwrap_or_default()
    }

    /// What is recorded there.
    pub fn at(&self, position: Position) -> Option<&Event> {
        let index = usize::try_from(position.seq.0.checked_sub(1)?).ok()?;
        self.get(position.run)?.events.get(index).map(|recorded| &recorded.event)
    }

    /// The run in which that delivery was recorded.
    pub fn of_delivery(&self, token: &Token) -> Option<&Tracked> {
        self.iter().rev().find(|tracked| tracked.dispatched.contains_key(token))
    }

    /// The number of a delivery's result.
    pub fn result_of(&self, token: &Token) -> Option<Position> {
        self.iter().find_map(|tracked| Some(Position { run: tracked.run, seq: *tracked.results.get(token)? }))
    }

    /// The run that a new event belongs to, which it may begin.
    pub(super) fn take(
        &mut self,
        id: &ExecutionId,
        run: Run,
        recorded: &Recorded,
        book: &Book,
    ) -> Result<&mut Tracked, Violation> {
        let at = format!("{id}{}", Position { run, seq: recorded.seq });
        let (next, begins) = match self.newest() {
            None => (FIRST, true),
            Some(newest) if newest.continues.is_some() => (newest.run.next(), true),
            Some(newest) => (newest.run, false),
        };
        ensure!(run == next, CHECK, "{at}: {:?} is of run {run}, and {next} goes on", recorded.event);
        if begins {
            let begun = self.begin(id, &at, run, recorded, book)?;
            self.0.push(begun);
        }
        Ok(self.0.last_mut().expect("there is one, or it was just begun"))
    }

    fn begin(
        &self,
        id: &ExecutionId,
        at: &str,
        run: Run,
        recorded: &Recorded,
        book: &Book,
    ) -> Result<Tracked, Violation> {
        let Event::WorkflowCreated { workflow, version, definition_hash, run: named, .. } = &recorded.event else {
            return Err(Violation::safety(CHECK, format!("{id} begins with {:?}", recorded.event)));
        };
        let definition = book.definition(workflow, version).filter(|d| d.hash == *definition_hash);
        let Some(definition) = definition else {
            return Err(Violation::safety(CHECK, format!("{id} runs {workflow} {version}, which nobody deployed")));
        };
        ensure!(*named == run, CHECK, "{at}: it says that it begins run {named}");
        let expected = self.next(&recorded.event);
        ensure!(
            expected.as_ref() == Some(&recorded.event),
            CHECK,
            "{at}: a run begins with {:?}, and what the one before left to it is {expected:?}",
            recorded.event
        );
        if let Some(before) = self.newest().and_then(|before| before.events.last()) {
            ensure!(before.at_ms <= recorded.at_ms, CHECK, "{at}: time went back from {:?}", before.at_ms);
        }
        Ok(Tracked::new(definition, run))
    }

    /// The first event of the next run, as the ones before lead to it. Of the first run it is as it was asked for; of the
    /// keys of senders the check of signals knows more.
    fn next(&self, begins: &Event) -> Option<Event> {
        let mut next = begins.clone();
        let Event::WorkflowCreated { continued, .. } = &mut next else { return None };
        let (Some(first), Some(before)) = (self.0.first(), self.0.last()) else {
            *continued = None;
            return Some(next);
        };
        let mut left = continued.take()?;
        left.created_at_ms = first.events.first()?.at_ms;
        let Event::WorkflowCreated { workflow, version, definition_hash, labels, cluster_id, run, parent, .. } =
            before.events.first()?.event.clone()
        else {
            return None;
        };
        let (input, run, continued) = (before.continues.clone()?, run.next(), Some(left));
        Some(Event::WorkflowCreated {
            workflow,
            version,
            definition_hash,
            input,
            labels,
            cluster_id,
            run,
            parent,
            continued,
        })
    }
}
