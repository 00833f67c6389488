//! The groups of appends.

use super::*;

impl Planned {
    /// Groups that keep the invariant of an append: no execution and no task row occurs twice.
    pub(super) fn groups(&mut self, planned: Vec<PlannedGroup>, model: &ModelStore) -> Vec<Group> {
        let (mut executions, mut tasks) = (BTreeSet::new(), BTreeSet::new());
        let mut groups = Vec::new();
        for plan in planned {
            let group = match plan {
                PlannedGroup::New { members, tasks } => self.group(members, tasks, model),
                PlannedGroup::Again(_) if self.groups.is_empty() => continue,
                PlannedGroup::Again(which) => self.groups[usize::from(which) % self.groups.len()].clone(),
            };
            let members: Vec<_> = group.members.iter().map(|member| member.execution.clone()).collect();
            let changes: Vec<_> = group.tasks.iter().map(|change| task_of(change).clone()).collect();
            let free =
                members.iter().all(|id| !executions.contains(id)) && changes.iter().all(|id| !tasks.contains(id));
            if free {
                executions.extend(members);
                tasks.extend(changes);
                groups.push(group);
            }
        }
        // A group without events that makes a task row is known again only until its row moves on, which a node waits
        // for; it is not repeated here.
        let repeatable = |group: &&Group| {
            let makes = group.tasks.iter().any(|change| matches!(change, TaskChange::Insert(_)));
            !makes || group.members.iter().any(|member| !member.events.is_empty())
        };
        self.groups.extend(groups.iter().filter(repeatable).cloned());
        groups
    }

    fn group(&mut self, members: Vec<PlannedMember>, tasks: Vec<(u8, u8)>, model: &ModelStore) -> Group {
        let mut group = Group { id: GroupId(self.name()), members: Vec::new(), tasks: Vec::new() };
        for planned in members {
            let id = execution(planned.execution);
            if group.members.iter().all(|member| member.execution != id) {
                group.members.push(member_of(&planned, id, model));
            }
        }
        let owner = group.members[0].execution.clone();
        for (which, what) in tasks {
            let change = self.task(which, what, &owner, model);
            if group.tasks.iter().all(|other| task_of(other) != task_of(&change)) {
                group.tasks.push(change);
            }
        }
        group
    }

    fn task(&mut self, which: u8, what: u8, execution: &ExecutionId, model: &ModelStore) -> TaskChange {
        if what < 2 || self.tasks.is_empty() {
            let id = TaskId::from(format!("{}/{}", execution, self.tasks.len()).as_str());
            self.tasks.push(id.clone());
            let (task_name, contract_version) = contract(which);
            return TaskChange::Insert(TaskRow {
                task: id,
                execution: execution.clone(),
                unit: "unit[0]".into(),
                attempt: u32::from(which),
                task_name,
                contract_version,
                enqueued_ms: ClusterMs(i64::from(which % 3)),
            });
        }
        // Among the newest, of which some are still there.
        let back = usize::from(which) % self.tasks.len().min(8);
        let task = self.tasks[self.tasks.len() - 1 - back].clone();
        let there = model.tasks().find(|entry| entry.row.task == task).map(|entry| entry.state);
        let expect = there.filter(|_| which != 7).unwrap_or(TaskState::Queued);
        if what == 2 { TaskChange::Requeue { task, expect } } else { TaskChange::Delete { task, expect } }
    }
}

fn task_of(change: &TaskChange) -> &TaskId {
    match change {
        TaskChange::Insert(row) => &row.task,
        TaskChange::Delete { task, .. } | TaskChange::Requeue { task, .. } => task,
    }
}

fn member_of(planned: &PlannedMember, id: ExecutionId, model: &ModelStore) -> Member {
    let owner = model.owners().get(&id);
    let new = match planned.mistake {
        11 => owner.is_some(),
        _ => owner.is_none() && !model.executions().contains_key(&id),
    };
    let wrong = |mistake| u64::from(planned.mistake == mistake);
    let (expect, last) = if new {
        // A run after the first has its own numbers, so both are written alike.
        let run = Run(1 + u32::from(planned.mistake == 9));
        (Expect::New { run, root: id.as_str().split('~').next().expect("a first part").into() }, 0)
    } else {
        let (run, last, epoch) = owner.map_or((Run(1), 1, Epoch(1)), |o| (o.run, o.last.0, o.epoch));
        let last = last + wrong(8);
        let run = Run(run.0 + u32::from(planned.mistake == 9));
        (Expect::After { run, last: Seq(last), epoch: Epoch(epoch.0 + wrong(10)) }, last)
    };
    let (Expect::New { run, .. } | Expect::After { run, .. }) = &expect;
    let (run, at_ms) = (*run, ClusterMs(40 + i64::from(planned.label)));
    let events = (last + 1..=last + u64::from(planned.events))
        .map(|seq| StoredEvent {
            run,
            seq: Seq(seq),
            at_ms,
            bytes: format!("\u{1}{{\"seq\":{seq},\"é\":0}}").into_bytes(),
        })
        .collect();
    let summary = planned.status.or(new.then_some(0)).map(|status| Summary {
        workflow: format!("W{}", planned.execution % 3).as_str().into(),
        version: "1".into(),
        status: STATUSES[usize::from(status)],
        created_at_ms: ClusterMs(i64::from(planned.execution % 4) * 10 + i64::from(planned.label / 5)),
        updated_at_ms: at_ms,
        labels: labels(planned.label),
    });
    let owner = match planned.wake {
        PlannedWake::Keep => OwnerChange::Keep,
        PlannedWake::Hot => OwnerChange::Wake(Wake::Hot),
        PlannedWake::Never => OwnerChange::Wake(Wake::Never),
        PlannedWake::At(at) => OwnerChange::Wake(Wake::At(ClusterMs(at))),
        PlannedWake::End => OwnerChange::End,
    };
    Member { execution: id, expect, events, summary, owner }
}
