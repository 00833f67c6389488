//! Reading the steps.

use super::fields::{self, Fields, STEP_ID, TASK, VERSION};
use super::graph::{self, Place};
use super::{MAX_STEPS, Problems, join};
use crate::definition::expression::kind;
use crate::definition::nearest::did_you_mean;
use crate::definition::problem::Spot;
use crate::definition::{Jitter, RetryPolicy, Step, StepKind, TaskStep, Template};
use crate::id::{ContractVersion, StepId, TaskName};
use serde_json::Value;
use std::time::Duration;

/// Attempts that a retry policy may allow.
pub const MAX_ATTEMPTS: u32 = 10_000;
/// How fast a delay may grow.
const MAX_FACTOR: f64 = 1000.0;

/// Kinds of step: exactly one of these fields says what a step does.
const KINDS: [&str; 3] = ["task", "compute", "sleep"];
/// Fields of a step.
const FIELDS: &[&str] = &[
    "id",
    "description",
    "task",
    "compute",
    "sleep",
    "contract_version",
    "input",
    "when",
    "after",
    "retry",
    "timeout",
    "queue_timeout",
];
/// Fields that only steps with a task have.
const TASK_FIELDS: [&str; 5] = ["contract_version", "input", "retry", "timeout", "queue_timeout"];
/// Kinds of step in later versions of Orbit.
const LATER_KINDS: [&str; 6] = ["http", "workflow", "await", "approval", "for", "continue_as_new"];
/// Kinds and fields of steps in later versions of Orbit.
const LATER_FIELDS: &[&str] = &["http", "workflow", "await", "approval", "for", "continue_as_new", "compensate"];
const RETRY_FIELDS: &[&str] = &["max_attempts", "initial", "factor", "max", "jitter", "non_retryable"];

/// The steps of a definition, complete if no problem was found.
pub(super) fn read(path: &str, value: &Value, result: Option<&Template>, problems: &mut Problems) -> Option<Vec<Step>> {
    let Value::Array(items) = value else {
        problems.add(path, format!("must be a list of steps, not {}", kind(value)), || {
            "write `- id: …` lines, with a space behind each `-`".into()
        });
        return None;
    };
    if items.is_empty() {
        problems.add(path, "a workflow needs at least one step", || {
            "add one, such as `{id: greet, task: mail.send}`".into()
        });
        return None;
    }
    if items.len() > MAX_STEPS {
        problems.add(path, format!("a definition has at most {MAX_STEPS} steps; this one has {}", items.len()), || {
            "split the workflow".into()
        });
        return None;
    }
    let drafts: Vec<Draft> = items
        .iter()
        .enumerate()
        .map(|(index, item)| Draft::read(join(path, &index.to_string()), item, problems))
        .collect();
    let places = places(&drafts, problems);
    graph::check(&places, result, problems);
    let after: Vec<Vec<StepId>> = places.into_iter().map(|p| p.after.into_iter().map(|(id, _)| id).collect()).collect();
    drafts.into_iter().zip(after).map(|(draft, after)| draft.into_step(after)).collect()
}

/// A step as far as it could be read.
struct Draft {
    path: String,
    id: Option<StepId>,
    /// As written.
    after: Option<Vec<(String, StepId)>>,
    /// `after` was written, and could not be read.
    unsure: bool,
    when: Option<Template>,
    kind: Option<StepKind>,
    /// The templates with their paths.
    templates: Vec<(String, Template)>,
}

impl Draft {
    fn read(path: String, value: &Value, problems: &mut Problems) -> Draft {
        let mut draft = Draft {
            path: path.clone(),
            id: None,
            after: None,
            unsure: false,
            when: None,
            kind: None,
            templates: Vec::new(),
        };
        let Some(fields) = Fields::new(value, &path, "a step", problems) else { return draft };
        fields.known(FIELDS, LATER_FIELDS, problems);
        draft.id = fields
            .required("id", "a name for the step, which others refer to", problems)
            .and_then(|(path, value)| STEP_ID.read(path, value, problems))
            .map(StepId::new);
        if let Some((path, value)) = fields.get("description") {
            fields::text(path, value, problems);
        }
        draft.after = fields.get("after").and_then(|(path, value)| read_after(&path, value, problems));
        draft.unsure = fields.has("after") && draft.after.is_none();
        draft.when = fields
            .get("when")
            .and_then(|(path, value)| draft.keep(&path, fields::condition(path.clone(), value, problems)));
        draft.kind = draft.read_kind(&fields, problems);
        draft
    }

    /// Remembers a template for the check of what it reads.
    fn keep(&mut self, path: &str, template: Option<Template>) -> Option<Template> {
        self.templates.extend(template.clone().map(|t| (path.to_owned(), t)));
        template
    }

    fn read_kind(&mut self, fields: &Fields<'_>, problems: &mut Problems) -> Option<StepKind> {
        if LATER_KINDS.iter().any(|field| fields.has(field)) {
            // Told already, as a field that is not supported.
            return None;
        }
        let found: Vec<&str> = KINDS.into_iter().filter(|field| fields.has(field)).collect();
        let &[field] = found.as_slice() else {
            let message = match found.as_slice() {
                [] => "a step needs something to do".to_owned(),
                several => format!("a step does one thing; this one has `{}`", several.join("` and `")),
            };
            problems.add(self.path.clone(), message, || "give it one of `task`, `compute` and `sleep`".into());
            // Whichever is meant, what is wrong with it is told at once.
            found.into_iter().for_each(|field| drop(self.read_one(field, fields, problems)));
            return None;
        };
        if field != "task" {
            for misplaced in TASK_FIELDS.into_iter().filter(|f| fields.has(f)) {
                problems.add(
                    Spot::key(join(&self.path, misplaced)),
                    format!("`{misplaced}` is only for steps with a `task`"),
                    || format!("remove it: a `{field}` step is done by the server itself"),
                );
            }
        }
        self.read_one(field, fields, problems)
    }

    /// What the step does by one of its fields.
    fn read_one(&mut self, field: &str, fields: &Fields<'_>, problems: &mut Problems) -> Option<StepKind> {
        let (path, value) = fields.get(field)?;
        match field {
            "task" => {
                let task = TASK.read(path, value, problems).map(TaskName::new);
                self.read_task(fields, task, problems).map(StepKind::Task)
            }
            "compute" => {
                let template = fields::template(path.clone(), value, problems);
                self.keep(&path, template).map(StepKind::Compute)
            }
            _ => {
                let template = fields::pause(path.clone(), value, problems);
                self.keep(&path, template).map(StepKind::Sleep)
            }
        }
    }

    fn read_task(&mut self, fields: &Fields<'_>, task: Option<TaskName>, problems: &mut Problems) -> Option<TaskStep> {
        let contract_version = match fields.get("contract_version") {
            Some((path, value)) => VERSION.read(path, value, problems),
            None => Some("1".to_owned()),
        };
        let input = match fields.get("input") {
            Some((path, value)) => fields::template(path, value, problems),
            None => Template::new(&Value::Null).ok(),
        };
        let input = self.keep(&join(&self.path, "input"), input);
        let retry = match fields.get("retry") {
            Some((path, value)) => read_retry(&path, value, problems),
            None => Some(RetryPolicy::once()),
        };
        let timeout = fields.get("timeout").and_then(|(path, value)| fields::limit(path, value, problems));
        let queue_timeout = fields.get("queue_timeout").and_then(|(path, value)| fields::limit(path, value, problems));
        Some(TaskStep {
            task: task?,
            contract_version: ContractVersion::new(contract_version?),
            input: input?,
            retry: retry?,
            timeout,
            queue_timeout,
        })
    }

    fn into_step(self, after: Vec<StepId>) -> Option<Step> {
        Some(Step { id: self.id?, kind: self.kind?, after, when: self.when })
    }
}

/// The steps that a step waits for, with their paths.
fn read_after(path: &str, value: &Value, problems: &mut Problems) -> Option<Vec<(String, StepId)>> {
    let Value::Array(items) = value else {
        problems.add(path, format!("must be a list of step ids, not {}", kind(value)), || match value {
            Value::String(id) => format!("write `[{id}]`"),
            _ => "write `[]` for a step that starts at once".into(),
        });
        return None;
    };
    let mut after = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let path = join(path, &index.to_string());
        if let Some(id) = fields::text(path.clone(), item, problems) {
            after.push((path, StepId::new(id)));
        }
    }
    Some(after)
}

/// Finds each step's place in the order: names resolved, the written order where `after` says nothing.
fn places(drafts: &[Draft], problems: &mut Problems) -> Vec<Place> {
    let mut positions = std::collections::BTreeMap::new();
    for (index, draft) in drafts.iter().enumerate() {
        let Some(id) = &draft.id else { continue };
        if let Some(first) = positions.get(id) {
            let message = format!("the id `{id}` is taken by step {} already", first + 1);
            problems.add(join(&draft.path, "id"), message, || "give each step an id of its own".into());
        } else {
            positions.insert(id.clone(), index);
        }
    }
    let names = || positions.keys().map(StepId::as_str);
    let all = || format!("the steps are {}", names().take(20).collect::<Vec<_>>().join(", "));
    let mut places = Vec::with_capacity(drafts.len());
    for (index, draft) in drafts.iter().enumerate() {
        let mut after = Vec::new();
        let mut unsure = draft.unsure;
        match &draft.after {
            None => {
                if let Some(before) = index.checked_sub(1) {
                    match &drafts[before].id {
                        Some(id) => after.push((id.clone(), positions.get(id).copied().unwrap_or(before))),
                        None => unsure = true,
                    }
                }
            }
            Some(written) => {
                for (path, id) in written {
                    if draft.id.as_ref() == Some(id) {
                        problems
                            .add(path.clone(), format!("step `{id}` cannot wait for itself"), || "remove it".into());
                    } else if after.iter().any(|(known, _)| known == id) {
                        problems.add(path.clone(), format!("`{id}` is listed twice"), || "remove one".into());
                    } else if let Some(position) = positions.get(id) {
                        after.push((id.clone(), *position));
                    } else {
                        unsure = true;
                        let hint = || did_you_mean(id.as_str(), names(), all);
                        problems.add(path.clone(), format!("there is no step `{id}`"), hint);
                    }
                }
            }
        }
        let mut reads = Vec::new();
        for (path, template) in &draft.templates {
            for (id, place) in template.places() {
                match positions.get(id) {
                    Some(position) => reads.push((place.under(path), *position)),
                    None => {
                        let hint = || did_you_mean(id.as_str(), names(), all);
                        problems.add(place.under(path), format!("there is no step `{id}` to read from"), hint);
                    }
                }
            }
        }
        places.push(Place { path: draft.path.clone(), id: draft.id.clone(), after, unsure, reads });
    }
    places
}

/// A retry policy.
fn read_retry(path: &str, value: &Value, problems: &mut Problems) -> Option<RetryPolicy> {
    let fields = Fields::new(value, path, "`retry`", problems)?;
    fields.known(RETRY_FIELDS, &[], problems);
    let mut policy = RetryPolicy::once();
    let before = problems.found.len() + problems.more;
    if let Some((path, value)) = fields.required("max_attempts", "how often the step is tried, such as 5", problems)
        && let Some(attempts) = fields::whole(path, value, 1, MAX_ATTEMPTS, problems)
    {
        policy.max_attempts = attempts;
    }
    let delay = |field: &str, problems: &mut Problems| -> Option<Duration> {
        fields.get(field).and_then(|(path, value)| fields::duration(path, value, problems))
    };
    let initial = delay("initial", problems);
    let max = delay("max", problems);
    policy.initial = initial.unwrap_or(policy.initial);
    // Without `max` the first delay is never cut.
    policy.max = max.unwrap_or(policy.max.max(policy.initial));
    if policy.initial > policy.max {
        match initial {
            Some(_) => problems.add(join(path, "max"), "`max` is shorter than `initial`", || {
                "make `max` at least as long as the first delay".into()
            }),
            // `initial` was left to its default.
            None => policy.initial = policy.max,
        }
    }
    if let Some((path, value)) = fields.get("factor") {
        match value.as_f64().filter(|f| (1.0..=MAX_FACTOR).contains(f)) {
            // At most 1,000,000 and not negative, so that nothing is lost.
            Some(factor) => policy.factor_milli = (factor * 1000.0).round() as u32,
            None => problems.add(path, "`factor` is a number from 1 to 1000", || "write 2 to double each delay".into()),
        }
    }
    if let Some((path, value)) = fields.get("jitter") {
        match value.as_str() {
            Some("none") => policy.jitter = Jitter::None,
            Some("full") => policy.jitter = Jitter::Full,
            _ => problems.add(path, "`jitter` is `none` or `full`", || {
                "`full` spreads retries over the whole delay, `none` waits exactly as long".into()
            }),
        }
    }
    if let Some((path, value)) = fields.get("non_retryable") {
        policy.non_retryable = read_codes(&path, value, problems);
    }
    (problems.found.len() + problems.more == before).then_some(policy)
}

/// Error codes.
fn read_codes(path: &str, value: &Value, problems: &mut Problems) -> Vec<String> {
    let Value::Array(items) = value else {
        problems.add(path, format!("must be a list of error codes, not {}", kind(value)), || {
            "write a list, such as `[CARD_DECLINED]`".into()
        });
        return Vec::new();
    };
    let codes = items.iter().enumerate();
    codes.filter_map(|(index, item)| fields::text(join(path, &index.to_string()), item, problems)).collect()
}
