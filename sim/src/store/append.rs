//! The append on the model: gather the facts, ask the one judgement, write the group.

use super::commit::{Change, Commit};
use super::ownership;
use super::tables::{EventRow, ExecutionRow, Tables, TaskEntry};
use orbit_core::id::{ExecutionId, Seq};
use orbit_core::store::append::{
    Append, Appended, Expect, Group, GroupFacts, GroupOutcome, Member, MemberFacts, OwnerChange, OwnerRow, TaskChange,
    TaskState, Wake, Writer, already_written, first_epoch, judge,
};
use orbit_core::store::statement::{LookForGroups, MemberKey};

pub fn append(tables: &mut Tables, append: Append, commit: &mut Commit) -> Appended {
    assert_batch(&append);
    let writer = append.writer();
    let outcomes = append
        .groups
        .into_iter()
        .map(|group| {
            let facts = facts(tables, &group, writer);
            let outcome = judge(writer, &group, &facts);
            if outcome == GroupOutcome::Written {
                let repeated = already_written(&group, &facts);
                if !repeated {
                    write(tables, &group, writer);
                }
                commit.changes.push(Change::Group { fence: append.fence, owner: append.owner, group, repeated });
            }
            outcome
        })
        .collect();
    Appended::Judged(outcomes)
}

/// The invariant of [`Append`], which the SQL relies on.
pub fn assert_batch(append: &Append) {
    let mut executions: Vec<_> = append.groups.iter().flat_map(|g| &g.members).map(|m| &m.execution).collect();
    let mut tasks: Vec<_> = append.groups.iter().flat_map(|g| &g.tasks).map(task_of).collect();
    let (members, changes) = (executions.len(), tasks.len());
    executions.sort();
    executions.dedup();
    tasks.sort();
    tasks.dedup();
    assert_eq!(executions.len(), members, "no execution occurs twice in a batch");
    assert_eq!(tasks.len(), changes, "no task row occurs twice in a batch");
    assert!(append.groups.iter().all(|g| !g.members.is_empty()), "a group has at least one member");
}

fn task_of(change: &TaskChange) -> &orbit_core::id::TaskId {
    match change {
        TaskChange::Insert(row) => &row.task,
        TaskChange::Delete { task, .. } | TaskChange::Requeue { task, .. } => task,
    }
}

/// The facts of each member that is looked for.
pub fn look_for(tables: &Tables, look: &LookForGroups) -> Vec<MemberFacts> {
    let facts = |member: &MemberKey| {
        let history = tables.run_history(&member.execution, member.run);
        MemberFacts {
            owner: tables.owners.get(&member.execution).cloned(),
            known: tables.executions.contains_key(&member.execution),
            first_event_by: history.iter().find(|e| Some(e.seq) == member.first).map(|e| e.group),
            root: None,
        }
    };
    look.members.iter().map(facts).collect()
}

/// The root of the tree that the member belongs to; none where its row is not there.
pub(crate) fn root_of(member: &Member, row: Option<&OwnerRow>) -> Option<ExecutionId> {
    match &member.expect {
        Expect::New { root, .. } => Some(root.clone()),
        Expect::After { .. } => row.map(|row| row.root.clone()),
    }
}

fn facts(tables: &Tables, group: &Group, writer: Writer) -> GroupFacts {
    let members = group
        .members
        .iter()
        .map(|member| MemberFacts {
            owner: tables.owners.get(&member.execution).cloned(),
            known: tables.executions.contains_key(&member.execution),
            first_event_by: member.events.first().and_then(|event| {
                let run = match &member.expect {
                    Expect::New { run, .. } | Expect::After { run, .. } => *run,
                };
                let history = tables.run_history(&member.execution, run);
                history.iter().find(|e| e.seq == event.seq).map(|e| e.group)
            }),
            root: writer.owner.and_then(|_| {
                let root = root_of(member, tables.owners.get(&member.execution))?;
                (root != member.execution).then(|| ownership::tree(tables, &root)).flatten()
            }),
        })
        .collect();
    let tasks = group
        .tasks
        .iter()
        .map(|change| match change {
            TaskChange::Insert(_) => None,
            TaskChange::Delete { task, .. } | TaskChange::Requeue { task, .. } => {
                tables.tasks.get(task).map(|t| t.state)
            }
        })
        .collect();
    GroupFacts { fence: tables.cluster.fence, members, tasks }
}

fn write(tables: &mut Tables, group: &Group, writer: Writer) {
    for member in &group.members {
        write_member(tables, group, member, writer);
    }
    for change in &group.tasks {
        match change {
            TaskChange::Insert(row) => {
                let entry = TaskEntry { row: row.clone(), state: TaskState::Queued, claim: None, repeat: false };
                let before = tables.tasks.insert(row.task.clone(), entry);
                assert!(before.is_none(), "the task row {} is inserted once", row.task);
            }
            TaskChange::Delete { task, .. } => {
                tables.tasks.remove(task);
            }
            TaskChange::Requeue { task, .. } => {
                let entry = tables.tasks.get_mut(task).expect("judged to be there");
                entry.state = TaskState::Queued;
                entry.claim = None;
            }
        }
    }
}

/// The events of a member follow the expected one, and those of each run after it begin with 1.
pub(crate) fn assert_in_order(member: &Member) {
    let (mut run, mut last) = match &member.expect {
        Expect::New { run, .. } => (*run, Seq(0)),
        Expect::After { run, last, .. } => (*run, *last),
    };
    for event in &member.events {
        if event.run == run.next() {
            (run, last) = (event.run, Seq(0));
        }
        assert_eq!((event.run, event.seq), (run, last.next()), "the events of {} follow each other", member.execution);
        last = event.seq;
    }
}

fn write_member(tables: &mut Tables, group: &Group, member: &Member, writer: Writer) {
    let id = &member.execution;
    let (run, last) = member.end();
    assert_in_order(member);
    if let Expect::New { root, .. } = &member.expect {
        let summary = member.summary.clone().expect("a new execution has a summary");
        tables.executions.insert(id.clone(), ExecutionRow { root: root.clone(), run, summary });
        let epoch = first_epoch(writer.owner.and_then(|_| ownership::tree(tables, root)));
        let incarnation = writer.incarnation();
        let owner = OwnerRow { root: root.clone(), run, epoch, incarnation, last, group: group.id, wake: Wake::Hot };
        tables.owners.insert(id.clone(), owner);
    } else if let Some(summary) = &member.summary {
        let row = tables.executions.get_mut(id).expect("a running execution has a summary");
        (row.summary, row.run) = (summary.clone(), run);
    }
    match member.owner {
        OwnerChange::End => {
            tables.owners.remove(id);
        }
        OwnerChange::Keep | OwnerChange::Wake(_) => {
            let owner = tables.owners.get_mut(id).expect("judged to be there, or just made");
            (owner.run, owner.last, owner.group) = (run, last, group.id);
            if let OwnerChange::Wake(wake) = member.owner {
                owner.wake = wake;
            }
        }
    }
    for event in &member.events {
        let history = tables.events.entry((id.clone(), event.run)).or_default();
        history.push(EventRow {
            seq: event.seq,
            at_ms: event.at_ms,
            group: group.id,
            bytes: event.bytes.as_slice().into(),
        });
    }
}
