//! Reading a list of steps: those of the workflow, or of a handler.

use super::fields::{self, Fields, NAME, SIGNAL, STEP_ID, Sees, TASK, VERSION};
use super::graph;
use super::places::{places, read_after};
use super::{MAX_STEPS, Problems, join, retry};
use crate::definition::expression::{LocalName, kind};
use crate::definition::nearest::did_you_mean;
use crate::definition::problem::Spot;
use crate::definition::{AwaitStep, ChildStep, ForStep, RetryPolicy, Step, StepKind, TaskStep, Template};
use crate::id::{ContractVersion, SignalName, StepId, TaskName, Version, WorkflowName};
use serde_json::Value;
use std::time::Duration;

/// Items of a `for` step that are under way at the same time, where it does not say.
const PARALLEL: u32 = 10;
/// How many it may allow.
pub const MAX_PARALLEL: u32 = 1_000;

/// Kinds of step: exactly one of these fields says what a step does.
const KINDS: &[&str] = &["task", "compute", "sleep", "await", "for", "workflow", "continue_as_new"];
/// Those of the steps of handlers.
const HANDLER_KINDS: &[&str] = &["task", "compute", "sleep", "for"];
/// Those of what a `for` step does with each item.
const EACH_KINDS: &[&str] = &["task", "compute", "workflow", "await"];
/// Fields of every step.
const COMMON_FIELDS: &[&str] = &["id", "description", "when", "after"];
/// Fields that only some kinds of step have.
const KIND_FIELDS: &[(&str, &[&str])] = &[
    ("contract_version", &["task"]),
    ("version", &["workflow"]),
    ("input", &["task", "workflow"]),
    ("retry", &["task", "workflow"]),
    ("timeout", &["task", "workflow", "await"]),
    ("queue_timeout", &["task"]),
    ("otherwise", &["await"]),
    ("do", &["for"]),
    ("parallel", &["for"]),
    ("compensate", &["task", "workflow", "for"]),
];
/// Fields of a task.
const TASK_FIELDS: &[&str] = &["task", "contract_version", "input", "retry", "timeout", "queue_timeout"];
/// Fields of a child.
const CHILD_FIELDS: &[&str] = &["workflow", "version", "input", "retry", "timeout"];
/// Kinds of step in later versions of Orbit.
const LATER_KINDS: &[&str] = &["http", "approval"];

/// Where a list of steps stands, and so what it may hold.
pub(super) struct Block<'b> {
    pub path: String,
    /// What is read here, for people: `a workflow`, `a handler`.
    pub what: &'static str,
    pub handler: bool,
    /// The names that expressions see besides those that they see everywhere.
    pub sees: Sees,
    /// The steps of the workflow, which those of handlers may read.
    pub outer: &'b [StepId],
    /// Signals and updates that can be awaited; none where they could not be read.
    pub signals: Option<&'b [SignalName]>,
    /// Those that a handler takes.
    pub handled: &'b [SignalName],
    pub result: Option<&'b Template>,
}

/// What was read of a list of steps.
pub(super) struct Steps {
    /// All of them, if no problem was found.
    pub steps: Option<Vec<Step>>,
    /// The ids that could be read.
    pub ids: Vec<StepId>,
}

impl Steps {
    fn none() -> Steps {
        Steps { steps: None, ids: Vec::new() }
    }
}

impl Block<'_> {
    /// The steps, complete if no problem was found.
    pub(super) fn read(&self, value: &Value, problems: &mut Problems) -> Steps {
        let (path, what) = (&self.path, self.what);
        let Value::Array(items) = value else {
            problems.add(path, format!("must be a list of steps, not {}", kind(value)), || {
                "write `- id: …` lines, with a space behind each `-`".into()
            });
            return Steps::none();
        };
        if items.is_empty() {
            problems.add(path, format!("{what} needs at least one step"), || {
                "add one, such as `{id: greet, task: mail.send}`".into()
            });
            return Steps::none();
        }
        if items.len() > MAX_STEPS {
            let message = format!("{what} has at most {MAX_STEPS} steps; this one has {}", items.len());
            problems.add(path, message, || "split the workflow".into());
            return Steps::none();
        }
        let drafts: Vec<Draft> = items
            .iter()
            .enumerate()
            .map(|(index, item)| self.draft(join(path, &index.to_string()), item, problems))
            .collect();
        let places = places(&drafts, self.outer, problems);
        graph::check(&places, self.result, problems);
        let ids = drafts.iter().filter_map(|draft| draft.id.clone()).collect();
        let after = places.into_iter().map(|p| p.after.into_iter().map(|(id, _)| id).collect());
        Steps { steps: drafts.into_iter().zip(after).map(|(draft, after)| draft.into_step(after)).collect(), ids }
    }

    fn draft(&self, path: String, value: &Value, problems: &mut Problems) -> Draft {
        let mut draft = Draft {
            path: path.clone(),
            id: None,
            after: None,
            unsure: false,
            when: None,
            kind: None,
            compensate: None,
            reads: Vec::new(),
        };
        let Some(fields) = Fields::new(value, &path, "a step", problems) else { return draft };
        let known: Vec<&str> =
            COMMON_FIELDS.iter().chain(KINDS).copied().chain(KIND_FIELDS.iter().map(|(field, _)| *field)).collect();
        fields.known(&known, LATER_KINDS, problems);
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
            .and_then(|(path, value)| draft.keep(&path, fields::condition(path.clone(), value, self.sees, problems)));
        draft.kind = self.read_kind(&mut draft, &fields, problems);
        draft.compensate = self.read_compensation(&mut draft, &fields, problems);
        draft
    }

    fn read_kind(&self, draft: &mut Draft, fields: &Fields<'_>, problems: &mut Problems) -> Option<StepKind> {
        if LATER_KINDS.iter().any(|field| fields.has(field)) {
            // Told already, as a field that is not supported.
            return None;
        }
        let kinds = if self.handler { HANDLER_KINDS } else { KINDS };
        let Some(field) = the_kind(&draft.path, "a step", KINDS, kinds, fields, problems) else {
            // Whichever is meant, what is wrong with it is told at once.
            KINDS.iter().filter(|kind| fields.has(kind)).for_each(|field| {
                drop(self.read_one(draft, field, fields, problems));
            });
            return None;
        };
        if !kinds.contains(&field) {
            problems.add(join(&draft.path, field), format!("`{field}` cannot stand in a handler"), || {
                format!("steps of handlers are {}", listed(kinds, "and"))
            });
            return None;
        }
        for (misplaced, of) in KIND_FIELDS {
            if fields.has(misplaced) && !of.contains(&field) {
                tell_misplaced(&draft.path, misplaced, of, field, problems);
            }
        }
        self.read_one(draft, field, fields, problems)
    }

    /// What the step does by one of its fields.
    fn read_one(
        &self,
        draft: &mut Draft,
        field: &str,
        fields: &Fields<'_>,
        problems: &mut Problems,
    ) -> Option<StepKind> {
        let (path, value) = fields.get(field)?;
        match field {
            "task" => self.read_task(draft, fields, self.sees, problems).map(StepKind::Task),
            "compute" => {
                let template = fields::template(path.clone(), value, self.sees, problems);
                draft.keep(&path, template).map(StepKind::Compute)
            }
            "sleep" => {
                let template = fields::pause(path.clone(), value, self.sees, problems);
                draft.keep(&path, template).map(StepKind::Sleep)
            }
            "await" => self.read_await(draft, fields, self.sees, problems).map(StepKind::Await),
            "workflow" => self.read_child(draft, fields, self.sees, problems).map(StepKind::Workflow),
            "continue_as_new" => {
                let template = fields::template(path.clone(), value, self.sees, problems);
                draft.keep(&path, template).map(StepKind::ContinueAsNew)
            }
            _ => self.read_for(draft, fields, problems).map(StepKind::For),
        }
    }

    fn read_task(
        &self,
        draft: &mut Draft,
        fields: &Fields<'_>,
        sees: Sees,
        problems: &mut Problems,
    ) -> Option<TaskStep> {
        let (path, value) = fields.get("task")?;
        let task = TASK.read(path, value, problems).map(TaskName::new);
        let contract_version = match fields.get("contract_version") {
            Some((path, value)) => VERSION.read(path, value, problems),
            None => Some("1".to_owned()),
        };
        let (input, retry, timeout) = read_attempts(draft, fields, sees, problems);
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

    fn read_child(
        &self,
        draft: &mut Draft,
        fields: &Fields<'_>,
        sees: Sees,
        problems: &mut Problems,
    ) -> Option<ChildStep> {
        let (path, value) = fields.get("workflow")?;
        let workflow = NAME.read(path, value, problems).map(WorkflowName::new);
        let version = fields.get("version").map(|(path, value)| VERSION.read(path, value, problems));
        let (input, retry, timeout) = read_attempts(draft, fields, sees, problems);
        let version = match version {
            None => None,
            Some(version) => Some(Version::new(version?)),
        };
        Some(ChildStep { workflow: workflow?, version, input: input?, retry: retry?, timeout })
    }

    fn read_await(
        &self,
        draft: &mut Draft,
        fields: &Fields<'_>,
        sees: Sees,
        problems: &mut Problems,
    ) -> Option<AwaitStep> {
        let (path, value) = fields.get("await")?;
        let signal = SIGNAL.read(path.clone(), value, problems).map(SignalName::new);
        if let (Some(signal), Some(declared)) = (&signal, self.signals) {
            if !declared.contains(signal) {
                problems.add(&path, format!("there is no signal or update `{signal}`"), || {
                    let names = declared.iter().map(SignalName::as_str);
                    did_you_mean(signal.as_str(), names, || format!("declare it: `signals: {{{signal}: {{}}}}`"))
                });
            }
            if self.handled.contains(signal) {
                let message = format!("`{signal}` is taken by its handler in `on.event`, and never comes here");
                problems.add(&path, message, || "await another signal, or remove the handler".into());
            }
        }
        let timeout = fields.get("timeout").and_then(|(path, value)| fields::limit(path, value, problems));
        let otherwise = fields.get("otherwise").map(|(path, value)| {
            let template = fields::template(path.clone(), value, sees, problems);
            draft.keep(&path, template)
        });
        if let (Some((path, _)), false) = (fields.get("otherwise"), fields.has("timeout")) {
            problems.add(path, "`otherwise` without `timeout` never comes to be", || {
                "say how long to wait, such as `timeout: 1h`".into()
            });
        }
        let otherwise = match otherwise {
            None => None,
            Some(template) => Some(template?),
        };
        Some(AwaitStep { signal: signal?, timeout, otherwise })
    }

    fn read_for(&self, draft: &mut Draft, fields: &Fields<'_>, problems: &mut Problems) -> Option<ForStep> {
        let (path, value) = fields.get("for")?;
        let list = fields::list(path.clone(), value, self.sees, problems);
        let list = draft.keep(&path, list);
        let parallel = match fields.get("parallel") {
            Some((path, value)) => fields::whole(path, value, 1, MAX_PARALLEL, problems),
            None => Some(PARALLEL),
        };
        let each = fields.required("do", "what is done with each item, such as `{task: mail.send}`", problems);
        let each = each.and_then(|(path, value)| self.read_each(draft, &path, value, problems));
        Some(ForStep { list: list?, parallel: parallel?, each: Box::new(each?) })
    }

    /// What a `for` step does with each item.
    fn read_each(&self, draft: &mut Draft, path: &str, value: &Value, problems: &mut Problems) -> Option<StepKind> {
        let fields = Fields::new(value, path, "`do`", problems)?;
        let known: Vec<&str> =
            EACH_KINDS.iter().chain(&TASK_FIELDS[1..]).chain(&["version", "otherwise"]).copied().collect();
        fields.known(&known, &["http"], problems);
        let field = the_kind(path, "`do`", EACH_KINDS, EACH_KINDS, &fields, problems)?;
        if self.handler && !HANDLER_KINDS.contains(&field) {
            problems.add(Spot::key(join(path, field)), format!("`{field}` cannot stand in a handler"), || {
                "items of handlers are given to a `task`, or computed".into()
            });
            return None;
        }
        let sees = self.sees.and(&[LocalName::Item, LocalName::Index]);
        for (misplaced, of) in KIND_FIELDS {
            if fields.has(misplaced) && known.contains(misplaced) && !of.contains(&field) {
                tell_misplaced(path, misplaced, &of[..of.len().min(2)], field, problems);
            }
        }
        match field {
            "task" => return self.read_task(draft, &fields, sees, problems).map(StepKind::Task),
            "workflow" => return self.read_child(draft, &fields, sees, problems).map(StepKind::Workflow),
            "await" => return self.read_await(draft, &fields, sees, problems).map(StepKind::Await),
            _ => {}
        }
        let (path, value) = fields.get(field)?;
        let template = fields::template(path.clone(), value, sees, problems);
        draft.keep(&path, template).map(StepKind::Compute)
    }

    fn read_compensation(&self, draft: &mut Draft, step: &Fields<'_>, problems: &mut Problems) -> Option<TaskStep> {
        let (path, value) = step.get("compensate")?;
        if self.handler {
            problems.add(path, "steps of handlers are not compensated", || "remove it".into());
            return None;
        }
        let fields = Fields::new(value, &path, "`compensate`", problems)?;
        fields.known(TASK_FIELDS, &[], problems);
        fields.required("task", "the task that undoes the step, such as `payments.refund`", problems);
        let mut sees = self.sees.and(&[LocalName::Output]);
        if step.has("for") {
            sees = sees.and(&[LocalName::Item, LocalName::Index]);
        }
        if let (true, Some(each)) = (step.has("for"), step.get("do"))
            && (each.1.get("compute").is_some() || each.1.get("await").is_some())
        {
            problems.add(&path, "items that are computed or awaited need not be undone", || "remove it".into());
        }
        // It may read what the step itself gave.
        let before = draft.reads.len();
        let task = self.read_task(draft, &fields, sees, problems);
        draft.reads[before..].iter_mut().for_each(|read| read.once_done = true);
        if task.is_none() {
            // Told; the step is not complete without it.
            draft.kind = None;
        }
        task
    }
}

/// What a task and a child have alike: what each attempt is given, how failed ones are repeated, how long one may run.
fn read_attempts(
    draft: &mut Draft,
    fields: &Fields<'_>,
    sees: Sees,
    problems: &mut Problems,
) -> (Option<Template>, Option<RetryPolicy>, Option<Duration>) {
    let input = match fields.get("input") {
        Some((path, value)) => {
            let template = fields::template(path.clone(), value, sees, problems);
            draft.keep(&path, template)
        }
        None => Template::new(&Value::Null).ok(),
    };
    let retry = match fields.get("retry") {
        Some((path, value)) => retry::read(&path, value, problems),
        None => Some(RetryPolicy::once()),
    };
    let timeout = fields.get("timeout").and_then(|(path, value)| fields::limit(path, value, problems));
    (input, retry, timeout)
}

/// Which one of `kinds` the fields say; a problem where it is none or several.
fn the_kind<'k>(
    path: &str,
    what: &str,
    kinds: &[&'k str],
    shown: &[&str],
    fields: &Fields<'_>,
    problems: &mut Problems,
) -> Option<&'k str> {
    let found: Vec<&'k str> = kinds.iter().copied().filter(|field| fields.has(field)).collect();
    if let &[field] = found.as_slice() {
        return Some(field);
    }
    let message = match found.as_slice() {
        [] => format!("{what} needs something to do"),
        several => format!("{what} does one thing; this one has `{}`", several.join("` and `")),
    };
    problems.add(path, message, || format!("give it one of {}", listed(shown, "and")));
    None
}

/// `a`, `b` and `c`
fn listed(names: &[&str], and: &str) -> String {
    match names {
        [] => String::new(),
        [one] => format!("`{one}`"),
        [first @ .., last] => format!("`{}` {and} `{last}`", first.join("`, `")),
    }
}

fn tell_misplaced(path: &str, field: &str, of: &[&str], kind: &str, problems: &mut Problems) {
    let message = format!("`{field}` is only for steps with a {}", listed(of, "or"));
    problems.add(Spot::key(join(path, field)), message, || match kind {
        "for" if TASK_FIELDS.contains(&field) || CHILD_FIELDS.contains(&field) => {
            "write it in `do`, beside what is done".into()
        }
        kind => format!("remove it: a `{kind}` step is done by the server itself"),
    });
}

/// A step as far as it could be read.
pub(super) struct Draft {
    pub path: String,
    pub id: Option<StepId>,
    /// As written.
    pub after: Option<Vec<(String, StepId)>>,
    /// `after` was written, and could not be read.
    pub unsure: bool,
    when: Option<Template>,
    kind: Option<StepKind>,
    compensate: Option<TaskStep>,
    /// The templates.
    pub reads: Vec<Read>,
}

/// A template of a step, for the check of what it reads.
pub(super) struct Read {
    pub path: String,
    pub template: Template,
    /// It is evaluated once the step itself is done.
    pub once_done: bool,
}

impl Draft {
    /// Remembers a template for the check of what it reads.
    fn keep(&mut self, path: &str, template: Option<Template>) -> Option<Template> {
        self.reads.extend(template.clone().map(|template| Read { path: path.to_owned(), template, once_done: false }));
        template
    }

    fn into_step(self, after: Vec<StepId>) -> Option<Step> {
        Some(Step { id: self.id?, kind: self.kind?, after, when: self.when, compensate: self.compensate })
    }
}
