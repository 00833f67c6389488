//! Parents and children: what is recorded of both is recorded in one group (protocols, 3).
//!
//! A child begins in the group in which its parent records that it has started. It ends in the group in which its parent
//! records its result: until then its end is decided and *waits*, and the parent is told; the group is made from the
//! parent's side, so that both are drafted together and nobody waits for a lock.

use super::Node;
use super::draft::{Draft, Part};
use super::slot::{Body, Resident, Slot, Work};
use crate::definition::{Boundary, Definition};
use crate::execution::event::{Event, Json, Parent, Recorded, TaskError, codes};
use crate::execution::{ChildEnd, Command, End, State, UnitStatus};
use crate::id::{ExecutionId, GroupId, Run, Seq, UnitKey, Version, WorkflowName};
use crate::mutant::{Mutant, Mutants};
use crate::store::append::Group;
use crate::time::ClusterMs;
use std::sync::Arc;

/// Children that one group starts.
const STARTED_AT_ONCE: usize = 100;

/// A child that a unit wants to be started.
struct Wanted {
    unit: UnitKey,
    child: ExecutionId,
    workflow: WorkflowName,
    version: Option<Version>,
    input: Json,
}

impl<M: Mutants> Node<M> {
    /// What an execution wants written, with the children that begin and end with it; no group where nothing is to be
    /// written. The first part is its own.
    pub(super) fn draft(&mut self, execution: &ExecutionId, mut slot: Slot) -> (Vec<Part>, Option<Group>) {
        let now = self.cluster_now();
        let mut own = self.part(execution, &mut slot, false);
        self.slots.insert(execution.clone(), slot);
        let goes_on = own.draft.resident.as_ref().is_some_and(|resident| resident.state.held.is_none());
        if goes_on && !own.draft.end_waits {
            self.start_children(&mut own.draft, now);
        }
        let mut parts = vec![own];
        let children = std::mem::take(&mut parts[0].draft.children);
        parts.extend(children);
        let members: Vec<_> = parts.iter_mut().filter_map(|part| self.finish(part, now)).collect();
        if members.is_empty() {
            return (parts, None);
        }
        assert_eq!(members.len(), parts.len(), "who has children that begin or end records it");
        let tasks = parts.iter().flat_map(|part| part.draft.tasks.iter().cloned()).collect();
        (parts, Some(Group { id: GroupId(self.draw()), members, tasks }))
    }

    /// A child has come to its end: it is recorded together with its parent's result of it.
    pub(super) fn take_child_end(&mut self, draft: &mut Draft, child: ExecutionId, now: ClusterMs) {
        // It is told again, and this very draft records it.
        if draft.children.iter().any(|part| part.execution == child) {
            return;
        }
        let waiting = draft.resident.as_ref().and_then(|parent| {
            parent.state.open_children().find(|(_, open, _)| **open == child).map(|(unit, ..)| unit.clone())
        });
        let Some(unit) = waiting else { return self.orphan(&child) };
        let Some(mut slot) = self.slots.remove(&child) else { return };
        let ready = !slot.in_flight && slot.resident().is_some_and(|resident| !resident.state.has_ended());
        if !ready {
            if slot.in_flight {
                // What is under way may change its end: it comes again.
                slot.queue.push_back(Work::Wake);
            }
            self.slots.insert(child, slot);
            return;
        }
        let part = self.part(&child, &mut slot, true);
        self.slots.insert(child.clone(), slot);
        let end = part.draft.resident.as_ref().and_then(|resident| end_of(&resident.state));
        // It went on meanwhile where there is none: then its works are done again, by themselves.
        let Some(end) = end else { return self.put_back(part) };
        match self.take_command(draft, Command::ChildEnded { unit, child: child.clone(), end }, now) {
            Some(Ok(())) if self.mutants.planted(Mutant::ChildEndsApart) => {
                self.put_back(part);
                self.orphan(&child);
            }
            Some(Ok(())) => {
                if self.mutants.planted(Mutant::ChildResultTwice) {
                    let told = draft.events.last().expect("it was recorded").event.clone();
                    draft.record(told, now);
                }
                draft.children.push(part);
            }
            _ => {
                self.put_back(part);
                self.orphan(&child);
            }
        }
    }

    /// Nobody waits for the end of this child.
    fn orphan(&mut self, child: &ExecutionId) {
        if let Some(slot) = self.slots.get_mut(child) {
            slot.orphan = true;
            self.enqueue(child, Work::Wake);
        }
    }

    /// A part that does not go into the group: what it was made of waits again.
    fn put_back(&mut self, part: Part) {
        let Part { execution, mut draft, .. } = part;
        let slot = self.slots.get_mut(&execution).expect("it was put there just now");
        self.idle.remove(&execution, slot);
        slot.queue.push_front(Work::Wake);
        for work in std::mem::take(&mut draft.works).into_iter().rev() {
            slot.queue.push_front(work);
        }
        self.ready.push_back(execution);
    }

    /// Starts the children that units want, or tells why they cannot be started.
    fn start_children(&mut self, draft: &mut Draft, now: ClusterMs) {
        let rules = self.rules();
        for count in 0.. {
            let parent = draft.resident.as_ref().expect("the caller looked it up");
            if draft.unfinished {
                return;
            }
            let Some(wanted) = wanted(&parent.state) else { return };
            // A start that is tried without a look may be a repeated one: then a child that is there has a group of its own.
            let doubtful = draft.created && self.slots.contains_key(&wanted.child);
            if count >= STARTED_AT_ONCE || doubtful {
                draft.unfinished = true;
                return;
            }
            let unit = wanted.unit.clone();
            let command = match self.may_start(&parent.state, &wanted) {
                Ok(definition) => {
                    let version = definition.version.clone();
                    let part = self.start_child(&parent.state, wanted, definition, now);
                    draft.children.push(part);
                    Command::ChildStarted { unit, version }
                }
                Err(error) => Command::ChildRefused { unit, error },
            };
            let told = self.take_command(draft, command, now);
            assert!(matches!(told, Some(Ok(()))), "a unit that wants a child takes it");
            draft.decide(now, &rules);
        }
    }

    fn may_start(&self, parent: &State, wanted: &Wanted) -> Result<Arc<Definition>, TaskError> {
        let limits = &self.config.limits;
        let depth = u64::from(depth_below(parent));
        let beyond = |what: String| Err(TaskError::last(codes::LIMIT_EXCEEDED, what));
        if depth > limits.max_child_depth {
            return beyond(format!("children lie at most {} deep (max_child_depth)", limits.max_child_depth));
        }
        if parent.children >= limits.max_children {
            return beyond(format!("a run starts at most {} children (max_children)", limits.max_children));
        }
        let (name, version) = (&wanted.workflow, wanted.version.as_ref());
        let Some(deployed) = self.catalog.get(name, version) else {
            let version = version.map(|version| format!(" in version {version}")).unwrap_or_default();
            let message = format!("no workflow {name} is deployed{version}");
            return Err(TaskError::retryable(codes::UNKNOWN_WORKFLOW, message));
        };
        let definition = deployed.definition.clone();
        if let Some(schema) = &definition.input_schema
            && let Err(violation) = self.schemas.check(&definition.hash, Boundary::Input, schema, &wanted.input)
        {
            let (place, why) = (violation.place("input"), violation.message);
            let message = format!("`{place}` does not match the input schema of {name}: {why}");
            return Err(TaskError::last(codes::INPUT_CONTRACT_VIOLATION, message));
        }
        Ok(definition)
    }

    fn start_child(&mut self, parent: &State, wanted: Wanted, definition: Arc<Definition>, now: ClusterMs) -> Part {
        let Wanted { unit, child, input, .. } = wanted;
        let created = Event::WorkflowCreated {
            workflow: definition.name.clone(),
            version: definition.version.clone(),
            definition_hash: definition.hash.clone(),
            input,
            labels: parent.labels.clone(),
            cluster_id: parent.identity.cluster_id,
            run: Run(1),
            parent: Some(Parent {
                execution_id: parent.identity.execution_id.clone(),
                step: unit,
                root: parent.root().clone(),
                depth: depth_below(parent),
            }),
            continued: None,
        };
        let first = Recorded { seq: Seq(1), at_ms: now.max(parent.last_at), event: created };
        let state = State::begin(&child, &first).expect("a first event");
        let mut draft = Draft::of_child(Resident::new(definition, state), first);
        draft.decide(now, &self.rules());
        let state = &draft.resident.as_ref().expect("just made").state;
        draft.unfinished |= self::wanted(state).is_some();
        self.starting += 1;
        self.slots.entry(child.clone()).or_insert_with(|| Slot::new(Body::Unread));
        Part { execution: child, before: None, draft, parks: false }
    }

    /// What follows for a family once a draft is written, or needed nothing to be: a parent is told that its child has come
    /// to its end, children are told to end, and what could not all go into one group goes on.
    pub(super) fn tell_family(&mut self, execution: &ExecutionId, draft: &Draft) {
        let Some(resident) = self.slots.get(execution).and_then(Slot::resident) else { return };
        let parent = resident.state.parent.as_ref().map(|parent| parent.execution_id.clone());
        let ends: Vec<(ExecutionId, bool)> = draft
            .events
            .iter()
            .filter_map(|recorded| match &recorded.event {
                Event::ChildEndRequested { child, terminate, .. } => Some((child.clone(), *terminate)),
                _ => None,
            })
            .collect();
        if draft.unfinished {
            self.enqueue(execution, Work::Wake);
        }
        if let (true, Some(parent)) = (draft.end_waits, parent) {
            self.enqueue(&parent, Work::ChildEnds { child: execution.clone() });
        }
        for (child, terminate) in ends {
            self.enqueue(&child, Work::End { terminate });
        }
    }

    /// A parent was read: the children that it asked to end may not have heard of it.
    pub(super) fn remind_children(&mut self, resident: &Resident) {
        if self.mutants.planted(Mutant::ChildrenNotReminded) {
            return;
        }
        let asked: Vec<(ExecutionId, bool)> = resident
            .state
            .open_children()
            .filter_map(|(_, child, asked)| Some((child.clone(), asked? == crate::execution::Asked::Terminated)))
            .collect();
        for (child, terminate) in asked {
            self.enqueue(&child, Work::End { terminate });
        }
    }
}

fn depth_below(parent: &State) -> u32 {
    parent.parent.as_ref().map_or(1, |above| above.depth + 1)
}

/// The next child that a unit wants.
fn wanted(state: &State) -> Option<Wanted> {
    state.units.iter().find_map(|(key, unit)| match &unit.status {
        UnitStatus::ChildScheduled { child, workflow, version } => Some(Wanted {
            unit: key.clone(),
            child: child.clone(),
            workflow: workflow.clone(),
            version: version.clone(),
            input: unit.input.clone().unwrap_or_default(),
        }),
        _ => None,
    })
}

/// How a child ended, for its parent.
fn end_of(state: &State) -> Option<ChildEnd> {
    Some(match state.end()? {
        End::Completed { output } => ChildEnd::Completed(output.clone()),
        End::Failed { error } => ChildEnd::Failed(error.clone()),
        End::Cancelled { .. } => ChildEnd::Cancelled,
        End::TimedOut => ChildEnd::TimedOut,
        End::Terminated { .. } => ChildEnd::Terminated,
        End::Continued => return None,
    })
}
