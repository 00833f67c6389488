//! Reading what reaches a running execution: signals, updates, queries, and the handlers in `on`.

use super::fields::{self, Fields, QUERY, SIGNAL, Sees, UPDATE};
use super::steps::Block;
use super::{Problems, join, schema};
use crate::definition::expression::LocalName;
use crate::definition::nearest::did_you_mean;
use crate::definition::{Handlers, SchemaCheck, Signal, Template, Update};
use crate::id::{QueryName, SignalName, StepId};
use std::collections::BTreeMap;

/// Signals, updates or queries of one definition.
pub const MAX_NAMES: usize = 1_000;

/// The fields of `field` of a definition, if there are not too many.
fn named<'d>(
    definition: &Fields<'d>,
    field: &str,
    what: &'static str,
    problems: &mut Problems,
) -> Option<Vec<(String, &'d String, &'d serde_json::Value)>> {
    let Some((path, value)) = definition.get(field) else { return Some(Vec::new()) };
    let fields = Fields::new(value, &path, what, problems)?;
    let all: Vec<_> = fields.all().collect();
    if all.len() > MAX_NAMES {
        let message = format!("`{field}` has at most {MAX_NAMES} names; this one has {}", all.len());
        problems.add(path, message, || "split the workflow".into());
        return None;
    }
    Some(all)
}

/// `signals: {approved: {payload: …}}`
pub(super) fn read_signals(
    definition: &Fields<'_>,
    schemas: &dyn SchemaCheck,
    problems: &mut Problems,
) -> Option<BTreeMap<SignalName, Signal>> {
    let mut signals = BTreeMap::new();
    let mut complete = true;
    for (path, name, value) in named(definition, "signals", "`signals`", problems)? {
        let name = SIGNAL.key(&path, name, problems);
        let Some(fields) = Fields::new(value, &path, "a signal", problems) else {
            complete = false;
            continue;
        };
        fields.known(&["description", "payload"], &[], problems);
        if let Some((path, value)) = fields.get("description") {
            fields::text(path, value, problems);
        }
        let payload = fields.get("payload").and_then(|(path, value)| schema(path, value, schemas, problems));
        match name {
            Some(name) => drop(signals.insert(SignalName::new(name), Signal { payload })),
            None => complete = false,
        }
    }
    complete.then_some(signals)
}

/// `updates: {change: {payload: …, when: …, result: …}}`
pub(super) fn read_updates(
    definition: &Fields<'_>,
    signals: Option<&BTreeMap<SignalName, Signal>>,
    schemas: &dyn SchemaCheck,
    problems: &mut Problems,
) -> Option<BTreeMap<SignalName, Update>> {
    let mut updates = BTreeMap::new();
    let mut complete = true;
    let sees = Sees::default().and(&[LocalName::Event]);
    for (path, name, value) in named(definition, "updates", "`updates`", problems)? {
        let name = UPDATE.key(&path, name, problems).map(SignalName::new);
        if let Some(name) = name.as_ref().filter(|name| signals.is_some_and(|signals| signals.contains_key(*name))) {
            problems.add(&path, format!("`{name}` is a signal already"), || "give each a name of its own".into());
        }
        let Some(fields) = Fields::new(value, &path, "an update", problems) else {
            complete = false;
            continue;
        };
        fields.known(&["description", "payload", "when", "result"], &[], problems);
        if let Some((path, value)) = fields.get("description") {
            fields::text(path, value, problems);
        }
        let payload = fields.get("payload").and_then(|(path, value)| schema(path, value, schemas, problems));
        let when = fields.get("when").and_then(|(path, value)| fields::condition(path, value, sees, problems));
        let result = fields.get("result").and_then(|(path, value)| fields::template(path, value, sees, problems));
        match name {
            Some(name) => drop(updates.insert(name, Update { payload, when, result })),
            None => complete = false,
        }
    }
    complete.then_some(updates)
}

/// What updates read are steps of the workflow.
pub(super) fn check_updates(updates: &BTreeMap<SignalName, Update>, steps: &[StepId], problems: &mut Problems) {
    for (name, update) in updates {
        let path = join("/updates", name.as_str());
        for (field, template) in [("when", &update.when), ("result", &update.result)] {
            template.iter().for_each(|template| check_reads(&join(&path, field), template, steps, problems));
        }
    }
}

/// `queries: {progress: …}`
pub(super) fn read_queries(
    definition: &Fields<'_>,
    steps: &[StepId],
    problems: &mut Problems,
) -> Option<BTreeMap<QueryName, Template>> {
    let mut queries = BTreeMap::new();
    let mut complete = true;
    for (path, name, value) in named(definition, "queries", "`queries`", problems)? {
        let name = QUERY.key(&path, name, problems).map(QueryName::new);
        let template = fields::template(path.clone(), value, Sees::default(), problems);
        match (name, template) {
            (Some(name), Some(template)) => {
                check_reads(&path, &template, steps, problems);
                queries.insert(name, template);
            }
            _ => complete = false,
        }
    }
    complete.then_some(queries)
}

/// That what a template reads are steps of the workflow.
fn check_reads(path: &str, template: &Template, steps: &[StepId], problems: &mut Problems) {
    for (id, place) in template.places().iter().filter(|(id, _)| !steps.contains(*id)) {
        let names = || steps.iter().map(StepId::as_str);
        problems.add(place.under(path), format!("there is no step `{id}` to read from"), || {
            let all = || format!("the steps are {}", names().take(20).collect::<Vec<_>>().join(", "));
            did_you_mean(id.as_str(), names(), all)
        });
    }
}

/// The names that handlers take, whether or not they are right.
pub(super) fn handled(definition: &Fields<'_>) -> Vec<SignalName> {
    let event = definition.get("on").and_then(|(_, on)| on.get("event")).and_then(|event| event.as_object());
    event.into_iter().flatten().map(|(name, _)| SignalName::new(name.as_str())).collect()
}

/// `on: {failure: […], cancel: […], timeout: […], event: {approved: […]}}`
pub(super) fn read_handlers(
    definition: &Fields<'_>,
    declared: Option<&[SignalName]>,
    outer: &[StepId],
    problems: &mut Problems,
) -> Option<Handlers> {
    let Some((path, value)) = definition.get("on") else { return Some(Handlers::default()) };
    let on = Fields::new(value, &path, "`on`", problems)?;
    on.known(&["failure", "cancel", "timeout", "event"], &[], problems);
    let read = |path: String, name: LocalName, value, problems: &mut Problems| {
        let block = Block {
            path,
            what: "a handler",
            handler: true,
            sees: Sees::default().and(&[name]),
            outer,
            signals: None,
            handled: &[],
            result: None,
        };
        block.read(value, problems).steps
    };
    let last = |field: &str, problems: &mut Problems| match on.get(field) {
        Some((path, value)) => read(path, LocalName::Failure, value, problems),
        None => Some(Vec::new()),
    };
    let (failure, cancel) = (last("failure", problems), last("cancel", problems));
    let timeout = last("timeout", problems);
    let mut event = BTreeMap::new();
    let mut complete = true;
    if let Some((path, value)) = on.get("event") {
        let signals = Fields::new(value, &path, "`event`", problems)?;
        for (path, name, value) in signals.all() {
            let Some(name) = SIGNAL.key(&path, name, problems).map(SignalName::new) else {
                complete = false;
                continue;
            };
            if let Some(declared) = declared.filter(|declared| !declared.contains(&name)) {
                problems.add(&path, format!("there is no signal or update `{name}`"), || {
                    let names = declared.iter().map(SignalName::as_str);
                    did_you_mean(name.as_str(), names, || format!("declare it: `signals: {{{name}: {{}}}}`"))
                });
            }
            match read(path, LocalName::Event, value, problems) {
                Some(steps) => drop(event.insert(name, steps)),
                None => complete = false,
            }
        }
    }
    let handlers = Handlers { failure: failure?, cancel: cancel?, timeout: timeout?, event };
    complete.then_some(handlers)
}
