//! The append: reads what the database holds of each group, has [`judge`] judge it, and writes what that says.

use crate::sqlite::statement::{clock, column, executions, fence};
use orbit_core::execution::event::Labels;
use orbit_core::id::{ExecutionId, GroupId, Run, Seq};
use orbit_core::store::append::{
    Append, Appended, Expect, Fence, Group, GroupFacts, GroupOutcome, Member, MemberFacts, OwnerChange, OwnerRow,
    Summary, TaskChange, TaskState, Wake, Writer, already_written, first_epoch, judge,
};
use orbit_core::store::statement::{LookForGroups, MemberKey};
use rusqlite::{Connection, OptionalExtension, Result, named_params, params};

/// Records the groups that may be written; one outcome each. It has the write lock, so what it reads is what there is,
/// whoever's the fence.
pub fn append(connection: &Connection, append: &Append) -> Result<Appended> {
    let writer = append.writer();
    assert_eq!(writer.owner, None, "one process has the file, and owns all that is in it");
    let current = fence::current(connection)?;
    let outcomes = append.groups.iter().map(|group| one(connection, writer, current, group));
    Ok(Appended::Judged(outcomes.collect::<Result<_>>()?))
}

/// Whether groups are there.
pub fn look_for(connection: &Connection, look: &LookForGroups) -> Result<Vec<MemberFacts>> {
    let facts = |member: &MemberKey| {
        let owner = executions::owner(connection, &member.execution)?;
        let known = executions::current_run(connection, &member.execution)?.is_some();
        let first_event_by = match member.first {
            Some(first) => executions::written_by(connection, &member.execution, member.run, first)?,
            None => None,
        };
        Ok(MemberFacts { owner, known, first_event_by, root: None })
    };
    look.members.iter().map(facts).collect()
}

fn one(connection: &Connection, writer: Writer, current: Fence, group: &Group) -> Result<GroupOutcome> {
    let facts = GroupFacts {
        fence: current,
        members: group.members.iter().map(|member| member_facts(connection, member)).collect::<Result<_>>()?,
        tasks: group.tasks.iter().map(|change| task_facts(connection, change)).collect::<Result<_>>()?,
    };
    let outcome = judge(writer, group, &facts);
    if outcome == GroupOutcome::Written && !already_written(group, &facts) {
        for (member, found) in group.members.iter().zip(&facts.members) {
            write_member(connection, writer, group.id, member, found)?;
        }
        for change in &group.tasks {
            write_task(connection, change)?;
        }
    }
    Ok(outcome)
}

fn member_facts(connection: &Connection, member: &Member) -> Result<MemberFacts> {
    let owner = executions::owner(connection, &member.execution)?;
    let (run, known) = match &member.expect {
        Expect::New { run, .. } => {
            (*run, owner.is_some() || executions::current_run(connection, &member.execution)?.is_some())
        }
        // Only a new execution asks whether it is known; one with an owner row is.
        Expect::After { run, .. } => (*run, true),
    };
    // Beyond the last event that a row names there is none, so nothing needs to be read for it: this is the usual case.
    let nothing_there = match (&member.expect, &owner) {
        (Expect::New { .. }, None) => !known,
        (Expect::After { last, .. }, Some(owner)) => owner.run == run && owner.last == *last,
        _ => false,
    };
    let first_event_by = match member.events.first() {
        Some(first) if !nothing_there => executions::written_by(connection, &member.execution, run, first.seq)?,
        _ => None,
    };
    Ok(MemberFacts { owner, known, first_event_by, root: None })
}

fn task_facts(connection: &Connection, change: &TaskChange) -> Result<Option<TaskState>> {
    let task = match change {
        TaskChange::Insert(_) => return Ok(None),
        TaskChange::Delete { task, .. } | TaskChange::Requeue { task, .. } => task,
    };
    let mut statement = connection.prepare_cached("SELECT state, token FROM orbit_tasks WHERE task_id = ?")?;
    statement.query_row([task.as_str()], |row| executions::task_state(row, 0, 1)).optional()
}

fn write_member(
    connection: &Connection,
    writer: Writer,
    group: GroupId,
    member: &Member,
    found: &MemberFacts,
) -> Result<()> {
    let Member { execution, expect, events, summary, owner } = member;
    let (run, last) = member.end();
    let root = match (expect, &found.owner) {
        (Expect::New { root, .. }, _) => root,
        (Expect::After { .. }, Some(owner)) => &owner.root,
        (Expect::After { .. }, None) => unreachable!("a group whose execution has no owner row was judged writable"),
    };
    if !events.is_empty() {
        let mut insert = connection.prepare_cached(
            "INSERT INTO execution_events (execution_id, run, seq, group_id, at_ms, payload)
             VALUES (?, ?, ?, ?, ?, ?)",
        )?;
        for event in events {
            insert.execute(params![
                execution.as_str(),
                event.run.0,
                column::int(event.seq.0),
                group.0.as_bytes(),
                event.at_ms.0,
                event.bytes,
            ])?;
        }
    }
    if let Some(summary) = summary {
        write_summary(connection, execution, root, run, summary, matches!(expect, Expect::New { .. }))?;
    }
    match expect {
        Expect::New { .. } => {
            let wake = match owner {
                OwnerChange::Wake(wake) => *wake,
                OwnerChange::Keep => Wake::Hot,
                OwnerChange::End => return Ok(()),
            };
            let (epoch, incarnation) = (first_epoch(found.root), writer.incarnation());
            let row = OwnerRow { root: root.clone(), run, epoch, incarnation, last, group, wake };
            insert_owner(connection, execution, &row)
        }
        Expect::After { .. } => move_owner(connection, execution, run, last, group, *owner),
    }
}

fn insert_owner(connection: &Connection, execution: &ExecutionId, row: &OwnerRow) -> Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO orbit_owners
             (execution_id, root_id, node_id, incarnation, epoch, run, last_seq, group_id, next_wake_ms, since_ms)
         VALUES (:execution, :root, (SELECT coalesce(leader_node, '') FROM orbit_cluster WHERE id = 1), :incarnation,
             :epoch, :run, :last, :group, :wake, :since)",
    )?;
    insert.execute(named_params! {
        ":execution": execution.as_str(),
        ":root": row.root.as_str(),
        ":incarnation": row.incarnation.0.as_bytes(),
        ":epoch": column::int(row.epoch.0),
        ":run": row.run.0,
        ":last": column::int(row.last.0),
        ":group": row.group.0.as_bytes(),
        ":wake": row.wake.to_column(),
        ":since": clock().0,
    })?;
    Ok(())
}

/// Moves the owner row of a running execution. The next wake is written only where it changes (protocols, 7).
fn move_owner(
    connection: &Connection,
    execution: &ExecutionId,
    run: Run,
    last: Seq,
    group: GroupId,
    change: OwnerChange,
) -> Result<()> {
    let (run, last, group) = (run.0, column::int(last.0), group.0.as_bytes());
    match change {
        OwnerChange::Keep => connection
            .prepare_cached("UPDATE orbit_owners SET run = ?, last_seq = ?, group_id = ? WHERE execution_id = ?")?
            .execute(params![run, last, group, execution.as_str()]),
        OwnerChange::Wake(wake) => connection
            .prepare_cached(
                "UPDATE orbit_owners SET run = ?, last_seq = ?, group_id = ?, next_wake_ms = ? WHERE execution_id = ?",
            )?
            .execute(params![run, last, group, wake.to_column(), execution.as_str()]),
        OwnerChange::End => {
            connection.prepare_cached("DELETE FROM orbit_owners WHERE execution_id = ?")?.execute([execution.as_str()])
        }
    }
    .map(drop)
}

fn write_summary(
    connection: &Connection,
    execution: &ExecutionId,
    root: &ExecutionId,
    run: Run,
    summary: &Summary,
    new: bool,
) -> Result<()> {
    // A new row must not be there: the insert fails where it is, and everything with it.
    let relabel = if new { true } else { unlabel_if_moved(connection, execution, summary)? };
    let parameters = named_params! {
        ":execution": execution.as_str(),
        ":root": root.as_str(),
        ":run": run.0,
        ":workflow": summary.workflow.as_str(),
        ":version": summary.version.as_str(),
        ":status": summary.status.as_str(),
        ":created": summary.created_at_ms.0,
        ":updated": summary.updated_at_ms.0,
        ":labels": column::to_json(&summary.labels),
    };
    let sql = if new {
        "INSERT INTO workflow_executions
             (execution_id, root_id, run, workflow, version, status, created_at_ms, updated_at_ms, labels)
         VALUES (:execution, :root, :run, :workflow, :version, :status, :created, :updated, :labels)"
    } else {
        "UPDATE workflow_executions
         SET root_id = :root, run = :run, workflow = :workflow, version = :version, status = :status,
             created_at_ms = :created, updated_at_ms = :updated, labels = :labels
         WHERE execution_id = :execution"
    };
    connection.prepare_cached(sql)?.execute(parameters)?;
    if relabel {
        let mut insert = connection.prepare_cached(
            "INSERT INTO execution_labels (key, value, created_at_ms, execution_id) VALUES (?, ?, ?, ?)",
        )?;
        for (key, value) in &summary.labels {
            insert.execute(params![key, value, summary.created_at_ms.0, execution.as_str()])?;
        }
    }
    Ok(())
}

/// Removes the searchable labels of a row that is about to have others, or another place in lists; whether it did.
fn unlabel_if_moved(connection: &Connection, execution: &ExecutionId, to: &Summary) -> Result<bool> {
    let mut read =
        connection.prepare_cached("SELECT labels, created_at_ms FROM workflow_executions WHERE execution_id = ?")?;
    let (labels, created): (Labels, i64) =
        read.query_row([execution.as_str()], |row| Ok((column::json(row, 0)?, row.get(1)?)))?;
    if labels == to.labels && created == to.created_at_ms.0 {
        return Ok(false);
    }
    let mut delete = connection.prepare_cached(
        "DELETE FROM execution_labels WHERE key = ? AND value = ? AND created_at_ms = ? AND execution_id = ?",
    )?;
    for (key, value) in &labels {
        delete.execute(params![key, value, created, execution.as_str()])?;
    }
    Ok(true)
}

fn write_task(connection: &Connection, change: &TaskChange) -> Result<()> {
    match change {
        TaskChange::Insert(row) => {
            let mut insert = connection.prepare_cached(
                "INSERT INTO orbit_tasks
                     (task_id, execution_id, unit, attempt, state, task_name, contract_version, enqueued_ms)
                 VALUES (?, ?, ?, ?, 'queued', ?, ?, ?)",
            )?;
            insert.execute(params![
                row.task.as_str(),
                row.execution.as_str(),
                row.unit.as_str(),
                row.attempt,
                row.task_name.as_str(),
                row.contract_version.as_str(),
                row.enqueued_ms.0,
            ])?;
        }
        TaskChange::Delete { task, .. } => {
            let mut delete = connection.prepare_cached("DELETE FROM orbit_tasks WHERE task_id = ?")?;
            delete.execute([task.as_str()])?;
        }
        TaskChange::Requeue { task, .. } => {
            let mut update = connection.prepare_cached(
                "UPDATE orbit_tasks SET state = 'queued', token = NULL, claimed_by = NULL, claim_key = NULL
                 WHERE task_id = ?",
            )?;
            update.execute([task.as_str()])?;
        }
    }
    Ok(())
}
