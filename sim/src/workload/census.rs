//! Which constructs a definition has: a search that never draws one says nothing about it.

use orbit_core::definition::{AwaitStep, ChildStep, Definition, Step, StepKind, TaskStep};
use std::collections::BTreeMap;

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

/// How many of these definitions have each construct.
pub fn count(definitions: &[Definition]) -> BTreeMap<&'static str, usize> {
    CONSTRUCTS.iter().map(|(name, has)| (*name, definitions.iter().filter(|d| has(d)).count())).collect()
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
