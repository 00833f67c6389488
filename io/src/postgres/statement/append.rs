//! The append: one statement for a whole batch (design, section 5; protocols, 3 to 6).
//!
//! [`WRITE`] locks, looks, decides and writes, and gives everything that it decided from as rows. From those rows
//! [`judge`] makes the outcomes: what the statement wrote must be what `judge` says, and this asserts it, group by
//! group.

use crate::postgres::statement::column::{self, get};
use crate::postgres::statement::owned::owned;
use crate::postgres::statement::{Link, Trouble, fence};
use ::postgres::Row;
use ::postgres::types::ToSql;
use orbit_core::id::{Epoch, GroupId, Incarnation, Run, Seq};
use orbit_core::store::append::{
    Append, Appended, Expect, Fence, Group, GroupFacts, GroupOutcome, Member, MemberFacts, OwnerChange, OwnerRow,
    Summary, TaskChange, TaskRow, TaskState, TreeOwner, Wake, Writer, already_written, judge,
};
use orbit_core::store::statement::LookForGroups;
use uuid::Uuid;

/// The statement. What it must not become, and why it is shaped as it is:
///
/// * The fence comes first, FOR SHARE; nothing is locked or written where it is another's.
/// * Owner rows and task rows are locked with SKIP LOCKED, in the order of their keys; the same keys are read unlocked,
///   so that *held by somebody* is told from *not there*. Only what is locked is fresh, so all that is decided about a
///   running execution is decided from its locked row (postgres-rules, R3).
/// * New executions insert their summary with ON CONFLICT DO NOTHING: this is where two writers of one id meet. It is
///   the one place that waits, no longer than `lock_timeout`. A group of which one such insert met another's row and
///   another did not raises, which undoes the batch; sent by itself, it is busy.
/// * No join on a list of values, and no update that looks for its rows: sets are hashed (`x IN (SELECT …)`), rows are
///   found by LATERAL look-ups of their key, locked rows are updated as conflicts of an insert, and deleted by
///   `= ANY (ARRAY (…))`. Other shapes ran four times slower with plans that were made while the tables were small.
///
/// Rows come back as `kind, i, text, a, b, c, uuid, d`: see [`Facts::take`].
///
/// [`owned`] makes of it what a server of shared mode sends.
pub(super) const WRITE: &str = "
WITH w AS MATERIALIZED (SELECT (m - 1)::int AS m, g, gid, id COLLATE \"C\" AS id, fresh, run, last, epoch, root, first,
        newlast, change, wake, newrun
    FROM unnest($3::int[], $4::uuid[], $5::text[], $6::bool[], $7::bigint[], $8::bigint[], $9::bigint[], $10::text[],
        $11::bigint[], $12::bigint[], $13::int[], $14::bigint[], $51::bigint[])
        WITH ORDINALITY AS x (g, gid, id, fresh, run, last, epoch, root, first, newlast, change, wake, newrun, m)),
t AS MATERIALIZED (SELECT (n - 1)::int AS n, g, id COLLATE \"C\" AS id, gone, token
    FROM unnest($15::int[], $16::text[], $17::bool[], $18::uuid[]) WITH ORDINALITY AS x (g, id, gone, token, n)),
s AS MATERIALIZED (SELECT * FROM unnest($19::int[], $20::text[], $21::bool[], $22::text[], $23::bigint[], $24::text[],
        $25::text[], $26::text[], $27::bigint[], $28::bigint[], $29::text[])
        AS x (g, id, fresh, root, run, workflow, version, status, created, updated, labels)),
l AS MATERIALIZED (SELECT * FROM unnest($30::int[], $31::text[], $32::bool[], $33::bytea[], $34::bytea[], $35::bigint[])
        AS x (g, id, fresh, key, value, created)),

f AS MATERIALIZED (SELECT term, incarnation, coalesce(leader_node, '') AS node FROM orbit_cluster WHERE id = 1 FOR SHARE),
ok AS MATERIALIZED (SELECT node FROM f WHERE term = $1 AND incarnation = $2),

own AS MATERIALIZED (SELECT w.m, w.g, w.gid, w.id, w.fresh, w.run AS wrun, w.last AS wlast, w.epoch AS wepoch,
        w.newlast, w.change, w.wake, w.newrun, o.*
    FROM (SELECT * FROM w WHERE EXISTS (SELECT 1 FROM ok) ORDER BY w.id) w CROSS JOIN LATERAL
        (SELECT * FROM orbit_owners x WHERE x.execution_id = w.id FOR UPDATE SKIP LOCKED) o),
there AS MATERIALIZED (SELECT execution_id FROM orbit_owners
    WHERE execution_id = ANY (ARRAY (SELECT id FROM w WHERE EXISTS (SELECT 1 FROM ok)))),
known AS MATERIALIZED (SELECT execution_id FROM workflow_executions
    WHERE execution_id = ANY (ARRAY (SELECT id FROM w WHERE fresh AND EXISTS (SELECT 1 FROM ok)))),
hit AS MATERIALIZED (SELECT * FROM own
    WHERE NOT fresh AND epoch = wepoch AND run = wrun AND last_seq = wlast AND group_id <> gid),
tasks AS MATERIALIZED (SELECT t.n, t.g, t.id, t.gone, t.token AS wanted, x.token
    FROM (SELECT * FROM t WHERE EXISTS (SELECT 1 FROM ok) ORDER BY t.id) t CROSS JOIN LATERAL
        (SELECT * FROM orbit_tasks y WHERE y.task_id = t.id FOR UPDATE SKIP LOCKED) x),
task_there AS MATERIALIZED (SELECT task_id FROM orbit_tasks
    WHERE task_id = ANY (ARRAY (SELECT id FROM t WHERE EXISTS (SELECT 1 FROM ok)))),

bad AS MATERIALIZED (
    SELECT g FROM w WHERE CASE
        WHEN fresh THEN (id IN (SELECT execution_id FROM there)) IS TRUE
            OR (id IN (SELECT execution_id FROM known)) IS TRUE
        ELSE (m IN (SELECT m FROM hit)) IS NOT TRUE END
    UNION ALL
    SELECT g FROM t WHERE (n IN (SELECT n FROM tasks WHERE token IS NOT DISTINCT FROM wanted)) IS NOT TRUE),
made AS (INSERT INTO workflow_executions
        (execution_id, root_id, run, workflow, version, status, created_at_ms, updated_at_ms, labels)
    SELECT id, root, run, workflow, version, status, created, updated, labels FROM s
    WHERE fresh AND EXISTS (SELECT 1 FROM ok) AND (g IN (SELECT g FROM bad)) IS NOT TRUE ORDER BY id COLLATE \"C\"
    ON CONFLICT DO NOTHING RETURNING execution_id),
lost AS MATERIALIZED (SELECT m, g FROM w
    WHERE fresh AND EXISTS (SELECT 1 FROM ok) AND (g IN (SELECT g FROM bad)) IS NOT TRUE
        AND (id IN (SELECT execution_id FROM made)) IS NOT TRUE),
gg AS MATERIALIZED (SELECT DISTINCT g FROM w
    WHERE EXISTS (SELECT 1 FROM ok) AND (g IN (SELECT g FROM bad)) IS NOT TRUE
        AND (g IN (SELECT g FROM lost)) IS NOT TRUE),

events AS (INSERT INTO execution_events (execution_id, run, seq, group_id, at_ms, payload)
    SELECT id, run, seq, gid, at, payload
    FROM unnest($36::int[], $37::text[], $38::bigint[], $39::bigint[], $40::uuid[], $41::bigint[], $42::bytea[])
        AS x (g, id, run, seq, gid, at, payload)
    WHERE (g IN (SELECT g FROM gg)) IS TRUE),
owner_made AS (INSERT INTO orbit_owners
        (execution_id, root_id, node_id, incarnation, epoch, run, last_seq, group_id, next_wake_ms, since_ms)
    SELECT id, root, (SELECT node FROM ok), $2, 1, newrun, newlast, gid, CASE change WHEN 0 THEN 0 ELSE wake END,
        floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
    FROM w WHERE fresh AND change <> 2 AND (g IN (SELECT g FROM gg)) IS TRUE),
owner_moved AS (INSERT INTO orbit_owners
        (execution_id, root_id, node_id, incarnation, epoch, run, last_seq, group_id, next_wake_ms, since_ms)
    SELECT id, root_id, node_id, incarnation, epoch, newrun, newlast, gid,
        CASE change WHEN 0 THEN next_wake_ms ELSE wake END, since_ms
    FROM hit WHERE change <> 2 AND (g IN (SELECT g FROM gg)) IS TRUE
    ON CONFLICT (execution_id) DO UPDATE SET run = excluded.run, last_seq = excluded.last_seq,
        group_id = excluded.group_id, next_wake_ms = excluded.next_wake_ms),
owner_gone AS (DELETE FROM orbit_owners WHERE execution_id = ANY (ARRAY (
    SELECT id FROM hit WHERE change = 2 AND (g IN (SELECT g FROM gg)) IS TRUE))),
task_gone AS (DELETE FROM orbit_tasks WHERE task_id = ANY (ARRAY (
    SELECT id FROM tasks WHERE gone AND (g IN (SELECT g FROM gg)) IS TRUE))),
task_back AS (UPDATE orbit_tasks SET state = 'queued', token = NULL, claimed_by = NULL, claim_key = NULL
    WHERE task_id = ANY (ARRAY (SELECT id FROM tasks WHERE NOT gone AND (g IN (SELECT g FROM gg)) IS TRUE))),
task_made AS (INSERT INTO orbit_tasks
        (task_id, execution_id, unit, attempt, state, task_name, contract_version, enqueued_ms)
    SELECT id, execution, unit, attempt, 'queued', name, version, at
    FROM unnest($43::int[], $44::text[], $45::text[], $46::text[], $47::bigint[], $48::text[], $49::text[], $50::bigint[])
        AS x (g, id, execution, unit, attempt, name, version, at)
    WHERE (g IN (SELECT g FROM gg)) IS TRUE),
relabelled AS MATERIALIZED (SELECT s.id
    FROM (SELECT * FROM s WHERE NOT fresh AND (g IN (SELECT g FROM gg)) IS TRUE) s CROSS JOIN LATERAL
        (SELECT 1 FROM workflow_executions x WHERE x.execution_id = s.id
            AND (x.labels <> s.labels OR x.created_at_ms <> s.created)) x),
summary_moved AS (INSERT INTO workflow_executions
        (execution_id, root_id, run, workflow, version, status, created_at_ms, updated_at_ms, labels)
    SELECT id, id, run, workflow, version, status, created, updated, labels FROM s
    WHERE NOT fresh AND (g IN (SELECT g FROM gg)) IS TRUE
    ON CONFLICT (execution_id) DO UPDATE SET run = excluded.run, workflow = excluded.workflow,
        version = excluded.version, status = excluded.status, created_at_ms = excluded.created_at_ms,
        updated_at_ms = excluded.updated_at_ms, labels = excluded.labels),
label_gone AS (DELETE FROM execution_labels x WHERE x.execution_id = ANY (ARRAY (SELECT id FROM relabelled))
    AND ((x.execution_id, x.key) IN (SELECT id, key FROM l)) IS NOT TRUE),
label_made AS (INSERT INTO execution_labels (execution_id, key, value, created_at_ms)
    SELECT id, key, value, created FROM l
    WHERE (fresh AND (g IN (SELECT g FROM gg)) IS TRUE) OR (id IN (SELECT id FROM relabelled)) IS TRUE
    ON CONFLICT (execution_id, key) DO UPDATE SET value = excluded.value, created_at_ms = excluded.created_at_ms)

SELECT 0 AS kind, 0 AS i, NULL AS text, term AS a, NULL::bigint AS b, NULL::bigint AS c, incarnation AS uuid,
    NULL::bigint AS d FROM f
UNION ALL SELECT 1, m, root_id, run, epoch, last_seq, group_id, next_wake_ms FROM own
UNION ALL SELECT 2, m, NULL, NULL, NULL, NULL, NULL, NULL FROM w
    WHERE (id IN (SELECT execution_id FROM there)) IS TRUE AND (m IN (SELECT m FROM own)) IS NOT TRUE
UNION ALL SELECT 3, m, NULL, NULL, NULL, NULL, NULL, NULL FROM w WHERE (id IN (SELECT execution_id FROM known)) IS TRUE
UNION ALL SELECT 4, w.m, NULL, NULL, NULL, NULL, e.group_id, NULL
    FROM (SELECT * FROM w WHERE first IS NOT NULL AND EXISTS (SELECT 1 FROM ok) AND CASE
            WHEN fresh THEN (id IN (SELECT execution_id FROM known)) IS TRUE
            ELSE (m IN (SELECT m FROM hit)) IS NOT TRUE END) w CROSS JOIN LATERAL
        (SELECT group_id FROM execution_events x WHERE x.execution_id = w.id AND x.run = w.run AND x.seq = w.first) e
UNION ALL SELECT 5, n, NULL, NULL, NULL, NULL, token, NULL FROM tasks
UNION ALL SELECT 6, n, NULL, NULL, NULL, NULL, NULL, NULL FROM t
    WHERE (id IN (SELECT task_id FROM task_there)) IS TRUE AND (n IN (SELECT n FROM tasks)) IS NOT TRUE
UNION ALL SELECT 7, g, NULL, NULL, NULL, NULL, NULL, NULL FROM gg
UNION ALL SELECT 8, m, NULL,
    CASE WHEN (g IN (SELECT w.g FROM w WHERE fresh AND (w.id IN (SELECT execution_id FROM made)) IS TRUE)) IS TRUE
        THEN 1 / (0 * m) ELSE 0 END, NULL, NULL, NULL, NULL FROM lost";

/// The facts alone, unlocked, by a statement that sees what was committed before it began.
const LOOK: &str = "
WITH w AS MATERIALIZED (SELECT (m - 1)::int AS m, id, run, first
    FROM unnest($1::text[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS x (id, run, first, m))
SELECT 1 AS kind, w.m AS i, o.root_id AS text, o.run AS a, o.epoch AS b, o.last_seq AS c, o.group_id AS uuid,
        o.next_wake_ms AS d
    FROM w CROSS JOIN LATERAL (SELECT * FROM orbit_owners x WHERE x.execution_id = w.id) o
UNION ALL SELECT 11, w.m, NULL, NULL, NULL, NULL, o.incarnation, NULL
    FROM w CROSS JOIN LATERAL (SELECT incarnation FROM orbit_owners x WHERE x.execution_id = w.id) o
UNION ALL SELECT 3, w.m, NULL, NULL, NULL, NULL, NULL, NULL
    FROM w CROSS JOIN LATERAL (SELECT 1 FROM workflow_executions x WHERE x.execution_id = w.id) e
UNION ALL SELECT 4, w.m, NULL, NULL, NULL, NULL, e.group_id, NULL
    FROM w CROSS JOIN LATERAL
        (SELECT group_id FROM execution_events x WHERE x.execution_id = w.id AND x.run = w.run AND x.seq = w.first) e";

/// Records the groups that may be written; one outcome each.
pub fn append(link: &mut Link, append: &Append) -> Result<Appended, Trouble> {
    let (writer, groups) = (append.writer(), &append.groups);
    let batch = Batch::of(groups);
    let rows = batch.write(link, writer)?;
    let facts = Facts::of(&rows, &batch)?;
    let Some(current) = facts.fence else {
        return Err(Trouble::Damaged("the row of orbit_cluster is missing".into()));
    };
    if current != writer.fence {
        return Ok(Appended::FenceMoved);
    }
    let mut found = facts.members.into_iter().zip(facts.held);
    let mut tasks = facts.tasks.into_iter().zip(facts.task_held);
    let mut outcomes = Vec::with_capacity(groups.len());
    for (group, written) in groups.iter().zip(facts.written) {
        let (members, held): (Vec<_>, Vec<_>) = found.by_ref().take(group.members.len()).unzip();
        let (states, task_held): (Vec<_>, Vec<_>) = group
            .tasks
            .iter()
            .map(|change| match change {
                TaskChange::Insert(_) => (None, false),
                _ => tasks.next().expect("facts of every change of a row that exists"),
            })
            .unzip();
        let facts = GroupFacts { fence: current, members, tasks: states };
        let (there, busy) = (already_written(group, &facts), held.into_iter().chain(task_held).any(|held| held));
        let outcome = if there || !busy { judge(writer, group, &facts) } else { GroupOutcome::Busy };
        let wanted = outcome == GroupOutcome::Written && !there;
        assert_eq!(written, wanted, "the statement and the judgement agree on {:?}: {facts:?}, {busy}", group.id);
        outcomes.push(outcome);
    }
    Ok(Appended::Judged(outcomes))
}

/// Whether groups are there.
pub fn look_for(link: &mut Link, LookForGroups { members }: &LookForGroups) -> Result<Vec<MemberFacts>, Trouble> {
    let id: Vec<&str> = members.iter().map(|member| member.execution.as_str()).collect();
    let run: Vec<i64> = members.iter().map(|member| i64::from(member.run.0)).collect();
    let first: Vec<Option<i64>> = members.iter().map(|member| member.first.map(|seq| column::int(seq.0))).collect();
    let absent = MemberFacts { owner: None, known: false, first_event_by: None, root: None };
    let mut facts = Facts {
        fence: None,
        members: vec![absent; members.len()],
        held: vec![false; members.len()],
        tasks: Vec::new(),
        task_held: Vec::new(),
        written: Vec::new(),
    };
    let rows = link.query(LOOK, &[&id, &run, &first])?;
    rows.iter().try_for_each(|row| facts.take(row))?;
    Ok(facts.members)
}

/// What the rows say.
struct Facts {
    fence: Option<Fence>,
    members: Vec<MemberFacts>,
    /// Members whose row another transaction holds, or whose tree's.
    held: Vec<bool>,
    tasks: Vec<Option<TaskState>>,
    task_held: Vec<bool>,
    /// Groups that the statement wrote.
    written: Vec<bool>,
}

impl Facts {
    fn of(rows: &[Row], batch: &Batch<'_>) -> Result<Facts, Trouble> {
        // Only a new execution asks whether it is known; one with an owner row is.
        let member = |fresh: &bool| MemberFacts { owner: None, known: !fresh, first_event_by: None, root: None };
        let mut facts = Facts {
            fence: None,
            members: batch.fresh.iter().map(member).collect(),
            held: vec![false; batch.id.len()],
            tasks: vec![None; batch.task.len()],
            task_held: vec![false; batch.task.len()],
            written: vec![false; batch.groups],
        };
        rows.iter().try_for_each(|row| facts.take(row))?;
        Ok(facts)
    }

    /// One row: its kind, the place of what it is about, and what it says.
    fn take(&mut self, row: &Row) -> Result<(), Trouble> {
        let index = usize::try_from(get::<i32>(row, 1)?).expect("counted from 0");
        match get::<i32>(row, 0)? {
            0 => self.fence = Some(fence::fence(row, 3, 6)?),
            1 => {
                self.members[index].owner = Some(OwnerRow {
                    root: column::text(row, 2)?,
                    run: Run(column::number(row, 3)?),
                    epoch: Epoch(column::number(row, 4)?),
                    // Where it matters, a row of kind 11 follows.
                    incarnation: Incarnation(Uuid::nil()),
                    last: Seq(column::number(row, 5)?),
                    group: GroupId(column::uuid(row, 6)?),
                    wake: Wake::from_column(get(row, 7)?),
                });
            }
            2 | 8 | 10 => self.held[index] = true,
            3 => self.members[index].known = true,
            4 => self.members[index].first_event_by = Some(GroupId(column::uuid(row, 6)?)),
            5 => self.tasks[index] = Some(column::task_state(row, 6)?),
            6 => self.task_held[index] = true,
            7 => self.written[index] = true,
            9 => {
                let (epoch, incarnation) = (Epoch(column::number(row, 4)?), Incarnation(column::uuid(row, 6)?));
                self.members[index].root = Some(TreeOwner { epoch, incarnation });
            }
            11 => {
                let row_of = self.members[index].owner.as_mut();
                let owner = row_of.ok_or_else(|| Trouble::Damaged("an owner of no row".into()))?;
                owner.incarnation = Incarnation(column::uuid(row, 6)?);
            }
            kind => return Err(Trouble::Damaged(format!("an append gives no rows of kind {kind}"))),
        }
        Ok(())
    }
}

/// The groups as columns.
#[derive(Default)]
struct Batch<'a> {
    groups: usize,
    // Members.
    g: Vec<i32>,
    gid: Vec<Uuid>,
    id: Vec<&'a str>,
    fresh: Vec<bool>,
    run: Vec<i64>,
    last: Vec<i64>,
    epoch: Vec<i64>,
    root: Vec<&'a str>,
    first: Vec<Option<i64>>,
    new_run: Vec<i64>,
    new_last: Vec<i64>,
    change: Vec<i32>,
    wake: Vec<Option<i64>>,
    // Changes of task rows that exist.
    task_g: Vec<i32>,
    task: Vec<&'a str>,
    task_gone: Vec<bool>,
    task_token: Vec<Option<Uuid>>,
    summaries: Summaries<'a>,
    labels: Labels<'a>,
    events: Events<'a>,
    new_tasks: NewTasks<'a>,
}

#[derive(Default)]
struct Summaries<'a> {
    g: Vec<i32>,
    id: Vec<&'a str>,
    fresh: Vec<bool>,
    root: Vec<&'a str>,
    run: Vec<i64>,
    workflow: Vec<&'a str>,
    version: Vec<&'a str>,
    status: Vec<&'a str>,
    created: Vec<i64>,
    updated: Vec<i64>,
    labels: Vec<String>,
}

#[derive(Default)]
struct Labels<'a> {
    g: Vec<i32>,
    id: Vec<&'a str>,
    fresh: Vec<bool>,
    key: Vec<&'a [u8]>,
    value: Vec<&'a [u8]>,
    created: Vec<i64>,
}

#[derive(Default)]
struct Events<'a> {
    g: Vec<i32>,
    id: Vec<&'a str>,
    run: Vec<i64>,
    seq: Vec<i64>,
    gid: Vec<Uuid>,
    at: Vec<i64>,
    payload: Vec<&'a [u8]>,
}

#[derive(Default)]
struct NewTasks<'a> {
    g: Vec<i32>,
    id: Vec<&'a str>,
    execution: Vec<&'a str>,
    unit: Vec<&'a str>,
    attempt: Vec<i64>,
    name: Vec<&'a str>,
    version: Vec<&'a str>,
    at: Vec<i64>,
}

impl<'a> Batch<'a> {
    fn of(groups: &'a [Group]) -> Batch<'a> {
        let mut batch = Batch { groups: groups.len(), ..Batch::default() };
        for (group, g) in groups.iter().zip(0..) {
            for member in &group.members {
                batch.member(g, group.id.0, member);
            }
            for change in &group.tasks {
                match change {
                    TaskChange::Insert(row) => batch.new_tasks.push(g, row),
                    TaskChange::Delete { task, expect } => batch.task(g, task.as_str(), true, expect),
                    TaskChange::Requeue { task, expect } => batch.task(g, task.as_str(), false, expect),
                }
            }
        }
        batch
    }

    fn member(&mut self, g: i32, gid: Uuid, member: &'a Member) {
        let id = member.execution.as_str();
        let (fresh, run, last, epoch, root) = match &member.expect {
            Expect::New { run, root } => (true, *run, Seq(0), Epoch(0), root.as_str()),
            Expect::After { run, last, epoch } => (false, *run, *last, *epoch, ""),
        };
        let run = i64::from(run.0);
        let (change, wake) = match member.owner {
            OwnerChange::Keep => (0, None),
            OwnerChange::Wake(wake) => (1, wake.to_column()),
            OwnerChange::End => (2, None),
        };
        self.g.push(g);
        self.gid.push(gid);
        self.id.push(id);
        self.fresh.push(fresh);
        self.run.push(run);
        self.last.push(column::int(last.0));
        self.epoch.push(column::int(epoch.0));
        self.root.push(root);
        self.first.push(member.events.first().map(|event| column::int(event.seq.0)));
        let (new_run, new_last) = member.end();
        self.new_run.push(i64::from(new_run.0));
        self.new_last.push(column::int(new_last.0));
        self.change.push(change);
        self.wake.push(wake);
        for event in &member.events {
            self.events.g.push(g);
            self.events.id.push(id);
            self.events.run.push(i64::from(event.run.0));
            self.events.seq.push(column::int(event.seq.0));
            self.events.gid.push(gid);
            self.events.at.push(event.at_ms.0);
            self.events.payload.push(&event.bytes);
        }
        match &member.summary {
            Some(summary) => {
                self.summaries.push(g, id, fresh, root, i64::from(new_run.0), summary);
                self.labels.push(g, id, fresh, summary);
            }
            None => assert!(!fresh, "a new execution has a summary: {id}"),
        }
    }

    fn task(&mut self, g: i32, task: &'a str, gone: bool, expect: &TaskState) {
        self.task_g.push(g);
        self.task.push(task);
        self.task_gone.push(gone);
        self.task_token.push(column::token_of(expect));
    }

    fn write(&self, link: &mut Link, Writer { fence, owner }: Writer) -> Result<Vec<Row>, Trouble> {
        let owner = owner.map(|owner| owner.0);
        let (term, incarnation) = (column::int(fence.term.0), fence.incarnation.0);
        let mut values = self.values(&term, &incarnation);
        let Some(owner) = &owner else { return link.query(WRITE, &values) };
        values.push(owner);
        link.query(owned(), &values)
    }

    /// In the order of their numbers in [`WRITE`].
    fn values<'v>(&'v self, term: &'v i64, incarnation: &'v Uuid) -> Vec<&'v (dyn ToSql + Sync)> {
        let Batch { summaries: s, labels: l, events: e, new_tasks: n, .. } = self;
        vec![
            term,
            incarnation,
            &self.g,
            &self.gid,
            &self.id,
            &self.fresh,
            &self.run,
            &self.last,
            &self.epoch,
            &self.root,
            &self.first,
            &self.new_last,
            &self.change,
            &self.wake,
            &self.task_g,
            &self.task,
            &self.task_gone,
            &self.task_token,
            &s.g,
            &s.id,
            &s.fresh,
            &s.root,
            &s.run,
            &s.workflow,
            &s.version,
            &s.status,
            &s.created,
            &s.updated,
            &s.labels,
            &l.g,
            &l.id,
            &l.fresh,
            &l.key,
            &l.value,
            &l.created,
            &e.g,
            &e.id,
            &e.run,
            &e.seq,
            &e.gid,
            &e.at,
            &e.payload,
            &n.g,
            &n.id,
            &n.execution,
            &n.unit,
            &n.attempt,
            &n.name,
            &n.version,
            &n.at,
            &self.new_run,
        ]
    }
}

impl<'a> Summaries<'a> {
    fn push(&mut self, g: i32, id: &'a str, fresh: bool, root: &'a str, run: i64, summary: &'a Summary) {
        self.g.push(g);
        self.id.push(id);
        self.fresh.push(fresh);
        self.root.push(root);
        self.run.push(run);
        self.workflow.push(summary.workflow.as_str());
        self.version.push(summary.version.as_str());
        self.status.push(summary.status.as_str());
        self.created.push(summary.created_at_ms.0);
        self.updated.push(summary.updated_at_ms.0);
        self.labels.push(column::to_json(&summary.labels));
    }
}

impl<'a> Labels<'a> {
    fn push(&mut self, g: i32, id: &'a str, fresh: bool, summary: &'a Summary) {
        for (key, value) in &summary.labels {
            self.g.push(g);
            self.id.push(id);
            self.fresh.push(fresh);
            self.key.push(key.as_bytes());
            self.value.push(value.as_bytes());
            self.created.push(summary.created_at_ms.0);
        }
    }
}

impl<'a> NewTasks<'a> {
    fn push(&mut self, g: i32, row: &'a TaskRow) {
        self.g.push(g);
        self.id.push(row.task.as_str());
        self.execution.push(row.execution.as_str());
        self.unit.push(row.unit.as_str());
        self.attempt.push(i64::from(row.attempt));
        self.name.push(row.task_name.as_str());
        self.version.push(row.contract_version.as_str());
        self.at.push(row.enqueued_ms.0);
    }
}
