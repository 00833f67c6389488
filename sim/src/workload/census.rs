//! Which constructs a definition has, and how many of those that ran have each: a search that never draws one, or never
//! brings one to its end, says nothing about it.

use orbit_core::definition::{AwaitStep, ChildStep, Definition, Step, StepKind, TaskStep};
use orbit_core::store::append::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Every construct, with the question whether a definition has it.
type Question = fn(&Definition) -> bool;

/// In the order in which they are told.
const CONSTRUCTS: &[(&str, Question)] = &[
    ("task", |d| any(d, |s| matches!(s.kind, StepKind::Task(_)))),
    ("compute", |d| any(d, |s| matches!(s.kind, StepKind::Compute(_)))),
    ("sleep", |d| any(d, |s| matches!(s.kind, StepKind::Sleep(_)))),
    ("await", |d| any(d, |s| matches!(s.kind, StepKind::Await(_)))),
    ("await with a time-out", |d| any(d, |s| matches!(&s.kind, StepKind::Await(a) if a.timeout.is_some()))),
    ("await with otherwise", |d| any(d, |s| matches!(&s.kind, StepKind::Await(a) if a.otherwise.is_some()))),
    ("await without a time-out", |d| any(d, |s| matches!(&s.kind, StepKind::Await(a) if a.timeout.is_none()))),
    ("await an update", |d| {
        any(d, |s| matches!(&s.kind, StepKind::Await(a) if d.updates.contains_key(a.signal.as_str())))
    }),
    ("for of tasks", |d| any(d, |s| matches!(&s.kind, StepKind::For(f) if matches!(*f.each, StepKind::Task(_))))),
    ("for of computations", |d| {
        any(d, |s| matches!(&s.kind, StepKind::For(f) if matches!(*f.each, StepKind::Compute(_))))
    }),
    ("child", |d| children(d).next().is_some()),
    ("child of a step", |d| any(d, |s| matches!(s.kind, StepKind::Workflow(_)))),
    ("for of children", |d| {
        any(d, |s| matches!(&s.kind, StepKind::For(f) if matches!(*f.each, StepKind::Workflow(_))))
    }),
    ("child with retry", |d| children(d).any(|c| c.retry.max_attempts > 1)),
    ("child with a time-out", |d| children(d).any(|c| c.timeout.is_some())),
    ("child in a version", |d| children(d).any(|c| c.version.is_some())),
    ("compensate a child", |d| any(d, |s| s.compensate.is_some() && calls(s).is_some())),
    ("for of awaits", |d| awaited_items(d).next().is_some()),
    ("for of awaits with a time-out", |d| awaited_items(d).any(|a| a.timeout.is_some())),
    ("for of awaits with otherwise", |d| awaited_items(d).any(|a| a.otherwise.is_some())),
    ("for of awaits without a time-out", |d| awaited_items(d).any(|a| a.timeout.is_none())),
    ("for of two at once or fewer", |d| any(d, |s| matches!(&s.kind, StepKind::For(f) if f.parallel <= 2))),
    ("for in a handler", |d| handlers(d).any(|s| matches!(s.kind, StepKind::For(_)))),
    ("compensate a task", |d| any(d, |s| s.compensate.is_some() && matches!(s.kind, StepKind::Task(_)))),
    ("compensate items", |d| any(d, |s| s.compensate.is_some() && matches!(s.kind, StepKind::For(_)))),
    ("continue_as_new", |d| any(d, |s| matches!(s.kind, StepKind::ContinueAsNew(_)))),
    ("when", |d| any(d, |s| s.when.is_some())),
    ("after", |d| d.steps.iter().enumerate().any(|(index, s)| index > 0 && s.after.len() != 1)),
    ("retry", |d| tasks(d).any(|t| t.retry.max_attempts > 1)),
    ("timeout of a task", |d| tasks(d).any(|t| t.timeout.is_some())),
    ("queue_timeout", |d| tasks(d).any(|t| t.queue_timeout.is_some())),
    ("contract_version", |d| tasks(d).any(|t| t.contract_version.as_str() != "1")),
    ("timeout of the workflow", |d| d.timeout.is_some()),
    ("signals", |d| !d.signals.is_empty()),
    ("a signal with a schema", |d| d.signals.values().any(|s| s.payload.is_some())),
    ("updates", |d| !d.updates.is_empty()),
    ("an update with when", |d| d.updates.values().any(|u| u.when.is_some())),
    ("an update with a result", |d| d.updates.values().any(|u| u.result.is_some())),
    ("queries", |d| !d.queries.is_empty()),
    ("on failure", |d| !d.on.failure.is_empty()),
    ("on cancel", |d| !d.on.cancel.is_empty()),
    ("on timeout", |d| !d.on.timeout.is_empty()),
    ("on event", |d| !d.on.event.is_empty()),
    ("on an update", |d| d.on.event.keys().any(|name| d.updates.contains_key(name))),
    ("input schema", |d| d.input_schema.is_some()),
    ("output schema", |d| d.output_schema.is_some()),
    ("result", |d| d.result.is_some()),
];

/// What came to its end in one run, or in many.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// Drawn workflows of which some execution ended.
    pub workflows: u64,
    constructs: BTreeMap<&'static str, u64>,
    /// Workflows by their number of steps, those of handlers apart.
    steps: BTreeMap<usize, u64>,
    /// Executions, by how they ended.
    ends: BTreeMap<&'static str, u64>,
    /// Executions, by how many stand above them.
    depths: BTreeMap<u32, u64>,
}

impl Census {
    /// Takes in the workflows that ran to an end in one run.
    pub fn add_workflows<'d>(&mut self, ended: impl Iterator<Item = &'d Definition>) {
        let mut seen = BTreeSet::new();
        for definition in ended.filter(|definition| seen.insert(&definition.hash)) {
            self.workflows += 1;
            *self.steps.entry(definition.steps.len()).or_default() += 1;
            for (name, has) in CONSTRUCTS {
                *self.constructs.entry(name).or_default() += u64::from(has(definition));
            }
        }
    }

    /// Takes in an execution.
    pub fn add_execution(&mut self, ended: Status, depth: u32) {
        *self.ends.entry(ended.as_str()).or_default() += 1;
        *self.depths.entry(depth).or_default() += 1;
    }

    /// Adds what came to its end in other runs.
    pub fn add(&mut self, other: &Census) {
        self.workflows += other.workflows;
        other.constructs.iter().for_each(|(key, count)| *self.constructs.entry(key).or_default() += count);
        other.steps.iter().for_each(|(key, count)| *self.steps.entry(*key).or_default() += count);
        other.ends.iter().for_each(|(key, count)| *self.ends.entry(key).or_default() += count);
        other.depths.iter().for_each(|(key, count)| *self.depths.entry(*key).or_default() += count);
    }

    /// Executions that ended.
    pub fn executions(&self) -> u64 {
        self.ends.values().sum()
    }

    /// How many steps half of the workflows have, or more.
    pub fn median_of_steps(&self) -> usize {
        let mut before = 0;
        let middle = self.steps.iter().find(|(_, count)| {
            before += **count;
            before * 2 > self.workflows
        });
        middle.map_or(0, |(steps, _)| *steps)
    }

    /// How deep children lay within each other.
    pub fn depth(&self) -> u32 {
        self.depths.keys().next_back().copied().unwrap_or(0)
    }

    /// Constructs that fewer than 5 % of the workflows have.
    pub fn rare(&self) -> Vec<&'static str> {
        let rare = |name: &&str| self.constructs.get(name).copied().unwrap_or(0) * 20 < self.workflows;
        CONSTRUCTS.iter().map(|(name, _)| *name).filter(rare).collect()
    }
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, _) in CONSTRUCTS {
            let count = self.constructs.get(name).copied().unwrap_or(0);
            writeln!(f, "{:>5.1} %  {name}", count as f64 * 100.0 / self.workflows.max(1) as f64)?;
        }
        let list = |map: Vec<String>| map.join(", ");
        let ends = self.ends.iter().map(|(end, count)| format!("{count} {end}"));
        let depths = self.depths.iter().map(|(depth, count)| format!("{depth}: {count}"));
        writeln!(f, "{} workflows ran to an end, with a median of {} steps", self.workflows, self.median_of_steps())?;
        writeln!(f, "{} executions ended: {}", self.executions(), list(ends.collect()))?;
        writeln!(f, "executions above them: {}", list(depths.collect()))
    }
}

fn handlers(definition: &Definition) -> impl Iterator<Item = &Step> {
    let on = &definition.on;
    on.failure.iter().chain(&on.cancel).chain(&on.timeout).chain(on.event.values().flatten())
}

fn any(definition: &Definition, has: impl Fn(&Step) -> bool) -> bool {
    definition.steps.iter().any(has)
}

/// What a step, or each item of it, runs as a child.
fn calls(step: &Step) -> Option<&ChildStep> {
    match &step.kind {
        StepKind::Workflow(child) => Some(child),
        StepKind::For(each) => match &*each.each {
            StepKind::Workflow(child) => Some(child),
            _ => None,
        },
        _ => None,
    }
}

fn children(definition: &Definition) -> impl Iterator<Item = &ChildStep> {
    definition.steps.iter().filter_map(calls)
}

fn awaited_items(definition: &Definition) -> impl Iterator<Item = &AwaitStep> {
    definition.steps.iter().filter_map(|step| match &step.kind {
        StepKind::For(each) => match &*each.each {
            StepKind::Await(wait) => Some(wait),
            _ => None,
        },
        _ => None,
    })
}

fn tasks(definition: &Definition) -> impl Iterator<Item = &TaskStep> {
    definition.steps.iter().filter_map(|step| match &step.kind {
        StepKind::Task(task) => Some(task),
        StepKind::For(each) => match &*each.each {
            StepKind::Task(task) => Some(task),
            _ => None,
        },
        _ => None,
    })
}
