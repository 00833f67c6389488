//! Parents and children: a child begins in the transaction in which its parent records that it has started, with the input
//! that its parent scheduled it with; it ends in the transaction in which its parent records its result, once, and as it
//! ended; none outlives its parent; none lies deeper and no run has more of them than is allowed.
//!
//! From committed transactions alone. What a child is given and how it ends, by the definitions, the interpreter says.

use super::history::HistoryCheck;
use super::{Answer, Checked, Committed, Violation, ensure};
use crate::coverage::{Coverage, Mark};
use crate::schema;
use crate::store::Change;
use crate::world::book::Book;
use orbit_core::api::{Reply, Request};
use orbit_core::definition::Definition;
use orbit_core::definition::unit::Work;
use orbit_core::execution::event::{Event, Json, Labels, Parent, Recorded, codes};
use orbit_core::execution::{State, decide};
use orbit_core::id::{ExecutionId, Run, UnitKey, Version, WorkflowName};
use orbit_core::store::append::Group;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const CHECK: &str = "family";

/// What a child says why it was cancelled, where its parent asked for it.
const PARENT_ENDS: &str = "its parent is ending";

/// How many children there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Of one run.
    pub max_children: u64,
    /// Within each other.
    pub max_depth: u64,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct FamilyCheck {
    bounds: Bounds,
    kin: BTreeMap<ExecutionId, Kin>,
    /// Workflows of which somebody was told that they are deployed.
    deployed: BTreeSet<WorkflowName>,
}

/// What is known of one execution.
#[derive(Clone, Debug)]
struct Kin {
    definition: Arc<Definition>,
    parent: Option<Parent>,
    labels: Labels,
    run: Run,
    /// The newest child of each unit.
    children: BTreeMap<UnitKey, Child>,
    /// How many this run has started.
    started: u64,
    /// What was certainly deployed before anything was decided of it, but in the transaction in which it began: that may
    /// have been decided long before.
    deployed: Option<BTreeSet<WorkflowName>>,
}

/// A child, as its parent tells of it.
#[derive(Clone, Debug)]
struct Child {
    id: ExecutionId,
    attempt: u32,
    workflow: WorkflowName,
    version: Option<Version>,
    input: Json,
    phase: Phase,
    /// It was asked to end.
    asked: Option<Asked>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Scheduled,
    Running,
    Over,
}

/// Why a child was asked to end: what comes later counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    TimedOut,
    Cancelled,
    Terminated,
}

/// What a group says of families: each child that begins or ends in it, and each that a parent speaks of.
#[derive(Clone, Debug, Default)]
struct Told<'e> {
    born: BTreeMap<&'e ExecutionId, &'e Event>,
    ended: BTreeMap<&'e ExecutionId, &'e Event>,
    started: BTreeSet<&'e ExecutionId>,
    results: BTreeSet<&'e ExecutionId>,
}

fn broken<T>(message: String) -> Result<T, Violation> {
    Err(Violation::safety(CHECK, message))
}

impl Default for FamilyCheck {
    /// Without bounds.
    fn default() -> FamilyCheck {
        FamilyCheck::new(Bounds { max_children: u64::MAX, max_depth: u64::MAX })
    }
}

impl FamilyCheck {
    pub fn new(bounds: Bounds) -> FamilyCheck {
        FamilyCheck { bounds, kin: BTreeMap::new(), deployed: BTreeSet::new() }
    }

    /// Whose child it is.
    pub fn parent(&self, id: &ExecutionId) -> Option<&Parent> {
        self.kin.get(id)?.parent.as_ref()
    }

    pub fn on_answer(&mut self, answer: &Answer<'_>) {
        if let (Request::Deploy { .. }, Reply::Deployed(told)) = (&*answer.exchange.request, &answer.response.reply) {
            self.deployed.insert(told.name.clone());
        }
    }

    pub fn on_commit(&mut self, committed: &Committed<'_>, marks: &mut Coverage) -> Checked {
        for change in &committed.commit.changes {
            if let Change::Group { group, repeated: false, .. } = change {
                self.on_group(group, committed.book, marks)?;
            }
        }
        Ok(())
    }

    fn on_group(&mut self, group: &Group, book: &Book, marks: &mut Coverage) -> Checked {
        let mut members = Vec::with_capacity(group.members.len());
        for member in &group.members {
            let events: Result<Vec<Recorded>, _> = member.events.iter().map(|e| Recorded::decode(&e.bytes)).collect();
            let Ok(events) = events else { return broken(format!("events of {} cannot be read", member.execution)) };
            members.push((&member.execution, events));
        }
        let told = self.told(&members)?;
        for (id, recorded) in members.iter().flat_map(|(id, events)| events.iter().map(move |e| (*id, e))) {
            self.on_event(id, recorded, &told, book, marks)?;
        }
        for (id, _) in &members {
            let kin = self.kin.get_mut(*id).filter(|kin| kin.deployed.is_none());
            kin.into_iter().for_each(|kin| kin.deployed = Some(self.deployed.clone()));
        }
        for id in told.born.keys() {
            ensure!(told.started.contains(id), CHECK, "{id} begins as a child, and no parent says so with it");
        }
        for (id, event) in &told.ended {
            ensure!(told.results.contains(id), CHECK, "{id} ends ({event:?}), and its parent does not say so with it");
        }
        Ok(())
    }

    fn told<'e>(&self, members: &'e [(&'e ExecutionId, Vec<Recorded>)]) -> Result<Told<'e>, Violation> {
        let mut told = Told::default();
        for (id, recorded) in members.iter().flat_map(|(id, events)| events.iter().map(move |e| (*id, e))) {
            match &recorded.event {
                Event::WorkflowCreated { parent: Some(_), continued: None, .. } => {
                    let first = told.born.insert(id, &recorded.event).is_none();
                    ensure!(first, CHECK, "{id} begins twice");
                }
                Event::ChildStarted { child, .. } => {
                    let first = told.started.insert(child);
                    ensure!(first, CHECK, "{id}#{}: {child} is started twice", recorded.seq);
                }
                Event::ChildCompleted { child, .. } | Event::ChildFailed { child, .. } => {
                    let first = told.results.insert(child);
                    ensure!(first, CHECK, "{id}#{}: the end of {child} is told twice", recorded.seq);
                }
                event if event.is_terminal() => {
                    let born = told.born.contains_key(id);
                    if born || self.parent(id).is_some() {
                        told.ended.insert(id, event);
                    }
                }
                _ => {}
            }
        }
        Ok(told)
    }

    fn on_event(
        &mut self,
        id: &ExecutionId,
        recorded: &Recorded,
        told: &Told<'_>,
        book: &Book,
        marks: &mut Coverage,
    ) -> Checked {
        let at = format!("{id}#{}", recorded.seq);
        if let Event::WorkflowCreated { workflow, version, labels, parent, run, .. } = &recorded.event {
            let Some(definition) = book.definition(workflow, version) else {
                return broken(format!("{at}: nobody deployed {workflow} {version}"));
            };
            let before = self.kin.remove(id);
            let same = before.as_ref().is_none_or(|before| before.parent == *parent && before.labels == *labels);
            ensure!(same, CHECK, "{at}: run {run} has another parent, or other labels, than the one before");
            let kin = Kin {
                definition,
                parent: parent.clone(),
                labels: labels.clone(),
                run: *run,
                children: BTreeMap::new(),
                started: 0,
                deployed: before.and_then(|before| before.deployed),
            };
            self.kin.insert(id.clone(), kin);
            return Ok(());
        }
        let Some(kin) = self.kin.get_mut(id) else { return broken(format!("{at}: it has not begun")) };
        match &recorded.event {
            Event::ChildScheduled { step, attempt, child, workflow, version, input } => {
                kin.wants(&at, id, step, *attempt, (child, workflow, version.as_ref(), input))
            }
            Event::ChildStarted { step, attempt, child, version, .. } => {
                kin.starts(&at, id, (step, *attempt, child, version), told, marks)?;
                self.within_bounds(&at, id, marks)
            }
            Event::ChildCompleted { step, child, .. } => {
                let over = kin.ends(&at, step, child, &recorded.event, told, marks)?;
                ensure!(over, CHECK, "{at}: {child} ended well, and was never started");
                if self.kin.get(child).is_some_and(|own| own.run != Run(1)) {
                    marks.hit(Mark::ChildOfLaterRun);
                }
                Ok(())
            }
            Event::ChildFailed { step, child, error, .. } => {
                if !kin.ends(&at, step, child, &recorded.event, told, marks)? {
                    return self.refused(&at, id, step, &error.code, book, marks);
                }
                Ok(())
            }
            Event::ChildEndRequested { step, child, terminate, timed_out } => {
                let asked = match (terminate, timed_out) {
                    (true, _) => Asked::Terminated,
                    (false, true) => Asked::TimedOut,
                    (false, false) => Asked::Cancelled,
                };
                let own = kin.children.get_mut(step).filter(|own| own.id == *child && own.phase == Phase::Running);
                let Some(own) = own else { return broken(format!("{at}: {child} is to end, and does not run")) };
                ensure!(own.asked < Some(asked), CHECK, "{at}: {child} is asked to end once more: {:?}", own.asked);
                own.asked = Some(asked);
                Ok(())
            }
            Event::StepCancelled { step } | Event::StepFailed { step, .. } => {
                let open = kin.children.get(step).filter(|child| child.phase == Phase::Running);
                ensure!(open.is_none(), CHECK, "{at}: {step} ends, and its child runs: {open:?}");
                Ok(())
            }
            Event::CancelRequested { reason } | Event::TerminateRequested { reason }
                if reason.as_deref() == Some(PARENT_ENDS) =>
            {
                let asked = kin.parent.clone().and_then(|parent| self.asked(&parent, id));
                ensure!(asked.is_some(), CHECK, "{at}: its parent is said to want its end, and did not ask for it");
                Ok(())
            }
            event if event.is_terminal() || matches!(event, Event::WorkflowContinuedAsNew { .. }) => {
                let open = kin.children.values().find(|child| child.phase == Phase::Running);
                ensure!(open.is_none(), CHECK, "{at}: it ends, and a child of it runs: {open:?}");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether the end of some child follows from what is recorded, and is not recorded.
    pub fn holds_an_end(&self, histories: &HistoryCheck) -> bool {
        let open = histories.all().filter(|(id, tracked)| tracked.ended.is_none() && self.parent(id).is_some());
        let states = open.filter_map(|(id, tracked)| Some((tracked, State::fold(id, &tracked.events).ok()?)));
        let mut decided = states.flat_map(|(tracked, state)| decide(&tracked.definition, &state, state.last_at));
        decided.any(|event| event.is_terminal())
    }

    /// Whether the parent of this one has asked for its end.
    pub fn is_to_end(&self, id: &ExecutionId) -> bool {
        self.parent(id).is_some_and(|parent| self.asked(parent, id).is_some())
    }

    fn asked(&self, parent: &Parent, child: &ExecutionId) -> Option<Asked> {
        let own = self.kin.get(&parent.execution_id)?.children.get(&parent.step)?;
        own.asked.filter(|_| own.id == *child)
    }

    fn depth(&self, id: &ExecutionId) -> u64 {
        self.parent(id).map_or(0, |parent| parent.depth.into())
    }

    fn within_bounds(&mut self, at: &str, id: &ExecutionId, marks: &mut Coverage) -> Checked {
        let (depth, Bounds { max_children, max_depth }) = (self.depth(id) + 1, self.bounds);
        ensure!(depth <= max_depth, CHECK, "{at}: a child lies {depth} deep, where {max_depth} are allowed");
        if depth == 3 {
            marks.hit(Mark::ChildThreeDeep);
        }
        let kin = self.kin.get_mut(id).expect("it has begun");
        kin.started += 1;
        ensure!(
            kin.started <= max_children,
            CHECK,
            "{at}: {} children are started, where {max_children} are allowed",
            kin.started
        );
        Ok(())
    }

    /// There is a reason why a child was not started.
    fn refused(
        &self,
        at: &str,
        id: &ExecutionId,
        step: &UnitKey,
        code: &str,
        book: &Book,
        marks: &mut Coverage,
    ) -> Checked {
        let kin = &self.kin[id];
        let wanted = &kin.children[step];
        let mut of_name = book.definitions().filter(|d| d.name == wanted.workflow);
        let definition = of_name.find(|d| wanted.version.as_ref().is_none_or(|version| d.version == *version));
        let (true_, mark) = match code {
            codes::UNKNOWN_WORKFLOW => {
                let deployed = kin.deployed.as_ref().is_some_and(|names| names.contains(&wanted.workflow));
                let there = definition.is_some() && deployed;
                (!there, Mark::ChildUnknown)
            }
            codes::LIMIT_EXCEEDED => {
                let deep = self.depth(id) + 1 > self.bounds.max_depth;
                (deep || kin.started >= self.bounds.max_children, Mark::ChildBeyondBounds)
            }
            codes::INPUT_CONTRACT_VIOLATION => {
                let schema = definition.and_then(|d| d.input_schema.as_ref());
                (schema.is_some_and(|s| schema::matches(s, &wanted.input).is_err()), Mark::ChildInputRefused)
            }
            _ => (false, Mark::ChildUnknown),
        };
        ensure!(true_, CHECK, "{at}: {wanted:?} is not started for {code}, and nothing is in its way");
        marks.hit(mark);
        Ok(())
    }
}

impl Kin {
    /// A unit wants a child, as its definition says.
    fn wants(
        &mut self,
        at: &str,
        id: &ExecutionId,
        step: &UnitKey,
        attempt: u32,
        (child, workflow, version, input): (&ExecutionId, &WorkflowName, Option<&Version>, &Json),
    ) -> Checked {
        let said = match self.definition.work_of(step) {
            Some(Work::Child(said)) => said,
            _ => return broken(format!("{at}: {step} has no child")),
        };
        let same = said.workflow == *workflow && said.version.as_ref() == version;
        ensure!(same, CHECK, "{at}: {workflow} {version:?} is scheduled, and the definition says {said:?}");
        let before = self.children.get(step);
        let last = before.map_or(0, |before| before.attempt);
        ensure!(attempt == last + 1, CHECK, "{at}: attempt {attempt} of {step} follows {last}");
        if let Some(before) = before {
            ensure!(before.phase == Phase::Over, CHECK, "{at}: {step} gets another child, and has one: {before:?}");
            ensure!(before.input == *input, CHECK, "{at}: the child before had {}, this one {input}", before.input);
        }
        let named = named(id, step, self.run, attempt);
        ensure!(child.as_str() == named, CHECK, "{at}: the child of {step} is {child}, not {named}");
        let child = Child {
            id: child.clone(),
            attempt,
            workflow: workflow.clone(),
            version: version.cloned(),
            input: input.clone(),
            phase: Phase::Scheduled,
            asked: None,
        };
        self.children.insert(step.clone(), child);
        Ok(())
    }

    /// A child is started: it is there from this transaction on.
    fn starts(
        &mut self,
        at: &str,
        id: &ExecutionId,
        (step, attempt, child, version): (&UnitKey, u32, &ExecutionId, &Version),
        told: &Told<'_>,
        marks: &mut Coverage,
    ) -> Checked {
        let own = self.children.get_mut(step).filter(|own| own.id == *child && own.attempt == attempt);
        let Some(own) = own.filter(|own| own.phase == Phase::Scheduled) else {
            return broken(format!("{at}: {child} starts, and was not scheduled"));
        };
        let Some(Event::WorkflowCreated { workflow, version: of, input, labels, parent: Some(parent), run, .. }) =
            told.born.get(child)
        else {
            return broken(format!("{at}: {child} starts, and is not there"));
        };
        let above = self.parent.as_ref();
        let (root, depth) = above.map_or((id, 0), |above| (&above.root, above.depth));
        let right = Parent { execution_id: id.clone(), step: step.clone(), root: root.clone(), depth: depth + 1 };
        ensure!(*parent == right, CHECK, "{at}: {child} names {parent:?} as its parent, not {right:?}");
        let same = *workflow == own.workflow && own.version.as_ref().is_none_or(|said| said == of) && of == version;
        ensure!(same, CHECK, "{at}: {child} runs {workflow} {of}, and what was scheduled is {own:?}");
        ensure!(*input == own.input, CHECK, "{at}: {child} is given {input}, and what was scheduled is {}", own.input);
        ensure!(*labels == self.labels && *run == Run(1), CHECK, "{at}: {child} begins as run {run} with {labels:?}");
        own.phase = Phase::Running;
        marks.hit(if attempt == 1 { Mark::ChildBegun } else { Mark::ChildRetried });
        Ok(())
    }

    /// A child ended, and how; whether it had been started.
    fn ends(
        &mut self,
        at: &str,
        step: &UnitKey,
        child: &ExecutionId,
        event: &Event,
        told: &Told<'_>,
        marks: &mut Coverage,
    ) -> Result<bool, Violation> {
        let own = self.children.get_mut(step).filter(|own| own.id == *child);
        let Some(own) = own else { return broken(format!("{at}: {child} ends, which is no child of {step}")) };
        ensure!(own.phase != Phase::Over, CHECK, "{at}: the result of {child} is applied a second time");
        let phase = std::mem::replace(&mut own.phase, Phase::Over);
        let end = told.ended.get(child).copied();
        if phase == Phase::Scheduled {
            let none = end.is_none() && !told.born.contains_key(child);
            ensure!(none, CHECK, "{at}: {child} was not started, and ends as {end:?}");
            return Ok(false);
        }
        let code = match event {
            Event::ChildFailed { error, .. } => error.code.as_str(),
            _ => "",
        };
        let same = match (event, end) {
            (Event::ChildCompleted { output, .. }, Some(Event::WorkflowCompleted { output: own, .. })) => output == own,
            (Event::ChildFailed { .. }, Some(Event::WorkflowFailed { error: own, .. })) => code == own.code,
            (Event::ChildFailed { .. }, Some(Event::WorkflowCancelled { .. })) => {
                code == if own.asked == Some(Asked::TimedOut) { codes::TIMEOUT } else { codes::CHILD_CANCELLED }
            }
            (Event::ChildFailed { .. }, Some(Event::WorkflowTimedOut { .. })) => code == codes::CHILD_TIMED_OUT,
            (Event::ChildFailed { .. }, Some(Event::WorkflowTerminated { .. })) => code == codes::CHILD_TERMINATED,
            _ => false,
        };
        ensure!(same, CHECK, "{at}: {event:?}, and in the same transaction {child} ends as {end:?}");
        if let Some(mark) = mark_of(end, own.asked) {
            marks.hit(mark);
        }
        Ok(true)
    }
}

fn mark_of(end: Option<&Event>, asked: Option<Asked>) -> Option<Mark> {
    Some(match (end?, asked) {
        (Event::WorkflowCompleted { .. }, None) => Mark::ChildResultApplied,
        (Event::WorkflowCompleted { .. }, Some(_)) => Mark::ChildWellThoughAsked,
        (Event::WorkflowFailed { .. }, _) => Mark::ChildFailed,
        (Event::WorkflowTimedOut { .. }, _) => Mark::ChildTimedOut,
        (Event::WorkflowCancelled { .. }, Some(Asked::TimedOut)) => Mark::ChildTookTooLong,
        (Event::WorkflowCancelled { .. }, Some(_)) => Mark::ChildCancelled,
        (Event::WorkflowCancelled { .. }, None) => Mark::ChildCancelledByOthers,
        (Event::WorkflowTerminated { .. }, Some(Asked::Terminated)) => Mark::ChildTerminated,
        (Event::WorkflowTerminated { .. }, _) => Mark::ChildTerminatedByOthers,
        _ => return None,
    })
}

/// The id of the child of an attempt, as the page on definitions has it.
fn named(parent: &ExecutionId, step: &UnitKey, run: Run, attempt: u32) -> String {
    let of_run = if run == Run(1) { String::new() } else { format!(".r{run}") };
    let of_attempt = if attempt == 1 { String::new() } else { format!(".{attempt}") };
    format!("{parent}~{step}{of_run}{of_attempt}")
}
