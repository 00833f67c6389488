//! What people look at: lanes, and between them messages, marks and bars.

use super::read::Line;
use super::teller::Teller;
use super::words::{Kind, Said};
use serde::Serialize;
use std::collections::BTreeSet;

/// Where something happens. The order is that of the page, from left to right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    World,
    Client(u64),
    Worker(u64),
    /// A server's name, and which of several processes that had it at the same time.
    Server(String, u32),
    Database,
    /// The primary of before a promotion.
    OldPrimary,
}

impl Lane {
    /// What it is called.
    pub fn name(&self) -> String {
        match self {
            Lane::World => "faults".into(),
            Lane::Client(index) => format!("client {index}"),
            Lane::Worker(index) => format!("worker {index}"),
            Lane::Server(name, 0) => name.clone(),
            Lane::Server(name, twin) => format!("{name} ({})", twin + 1),
            Lane::Database => "database".into(),
            Lane::OldPrimary => "old primary".into(),
        }
    }
}

/// How it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// From one lane to another.
    Message,
    /// The same, and it never arrives.
    Lost,
    /// The same, and the trace ends before.
    Open,
    /// At one moment.
    Mark,
    /// For a while.
    Bar,
}

/// Something to be seen.
#[derive(Clone, Debug)]
pub struct Item {
    pub shape: Shape,
    pub lane: Lane,
    /// Where a message goes.
    pub to: Option<Lane>,
    pub at: u64,
    pub until: u64,
    pub said: Said,
    /// The lines of the trace that tell of it.
    pub lines: Vec<usize>,
}

/// What a check said at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub check: String,
    pub message: String,
    pub at: u64,
    /// The line before: what the check was looking at.
    pub line: Option<usize>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Story {
    /// By the time at which they begin.
    pub items: Vec<Item>,
    pub verdict: Option<Verdict>,
    pub ends_at: u64,
}

impl Story {
    /// What the lines of a trace tell.
    pub fn of(lines: &[Line]) -> Story {
        let mut teller = Teller::default();
        for (index, line) in lines.iter().enumerate() {
            teller.tell(index, line);
        }
        teller.finish(lines.last().map_or(0, |line| line.at_us))
    }

    /// Every lane in which something happens, from left to right.
    pub fn lanes(&self) -> Vec<Lane> {
        let lanes: BTreeSet<&Lane> = self.items.iter().flat_map(|i| std::iter::once(&i.lane).chain(&i.to)).collect();
        lanes.into_iter().cloned().collect()
    }

    /// The items that have to do with what the check complains about: whatever concerns the executions that it names, or
    /// that the last thing before it concerned.
    pub fn concerns(&self) -> BTreeSet<String> {
        let Some(verdict) = &self.verdict else { return BTreeSet::new() };
        let known: BTreeSet<&String> = self.items.iter().flat_map(|item| &item.said.about).collect();
        let is_part = |c: char| c.is_ascii_alphanumeric() || "._:@+-~".contains(c);
        let words: BTreeSet<&str> = verdict.message.split(|c| !is_part(c)).collect();
        let mut concerns: BTreeSet<String> =
            known.into_iter().filter(|id| words.contains(id.as_str())).cloned().collect();
        if concerns.is_empty() {
            concerns.extend(self.culprits().flat_map(|item| item.said.about.clone()));
        }
        concerns
    }

    /// What the check was looking at.
    pub fn culprits(&self) -> impl Iterator<Item = &Item> {
        let line = self.verdict.as_ref().and_then(|verdict| verdict.line);
        self.items.iter().filter(move |item| line.is_some_and(|line| item.lines.contains(&line)))
    }
}

/// What happened, in a sentence: where, and what.
pub fn sentence(item: &Item) -> String {
    let lane = item.lane.name();
    let text = &item.said.text;
    match (item.shape, &item.to) {
        (Shape::Message, Some(to)) => format!("{lane} → {}: {text}", to.name()),
        (Shape::Lost, Some(to)) => format!("{lane} → {} (does not arrive): {text}", to.name()),
        (Shape::Open, Some(to)) => format!("{lane} → {} (on its way): {text}", to.name()),
        (Shape::Bar, _) if item.lane == Lane::World => format!("fault: {text}"),
        (_, _) if item.lane == Lane::World && item.said.kind == Kind::Fault => format!("fault: {text}"),
        (Shape::Bar, _) if item.until > item.at && item.said.key && !text.contains(" ms") => {
            format!("{lane} {text}, for {} ms", (item.until - item.at) / 1_000)
        }
        _ => format!("{lane} {text}"),
    }
}
