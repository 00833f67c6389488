//! Trees, and whose they are (protocols, 16 and 17).

use crate::postgres::statement::column::{self, get};
use crate::postgres::statement::{Link, Trouble, fence};
use orbit_core::id::{Epoch, Incarnation};
use orbit_core::store::append::{Fence, Wake};
use orbit_core::store::ownership::{OwnedTree, ReadOrphans, TakeMembers, TakeReason, TakeRule, TakeTrees, TakenTree};

/// The owners are few, and found one after the other in the index of theirs; so are the trees of each that is gone.
const ORPHANS: &str = "
WITH RECURSIVE owners AS (
    (SELECT incarnation FROM orbit_owners WHERE execution_id = root_id ORDER BY incarnation LIMIT 1)
    UNION ALL
    SELECT (SELECT x.incarnation FROM orbit_owners x WHERE x.execution_id = x.root_id AND x.incarnation > o.incarnation
            ORDER BY x.incarnation LIMIT 1)
        FROM owners o WHERE o.incarnation IS NOT NULL),
gone AS MATERIALIZED (SELECT incarnation FROM owners o WHERE incarnation IS NOT NULL AND NOT EXISTS
    (SELECT 1 FROM orbit_nodes n WHERE n.incarnation = o.incarnation AND NOT n.dead AND n.heartbeat_ms <> 0))
SELECT t.execution_id, t.incarnation, t.next_wake_ms FROM gone g CROSS JOIN LATERAL
    (SELECT * FROM orbit_owners x
        WHERE x.incarnation = g.incarnation AND x.execution_id = x.root_id AND x.execution_id > $1
        ORDER BY x.execution_id LIMIT $2) t
ORDER BY t.execution_id LIMIT $2";

/// Trees whose owner does not live, by root.
pub fn orphans(link: &mut Link, ReadOrphans { after, limit }: &ReadOrphans) -> Result<Vec<OwnedTree>, Trouble> {
    let after = after.as_ref().map_or("", |after| after.as_str());
    let rows = link.query(ORPHANS, &[&after, &i64::from(*limit)])?;
    let tree = |row: &::postgres::Row| {
        Ok(OwnedTree {
            root: column::text(row, 0)?,
            owner: Incarnation(column::uuid(row, 1)?),
            wake: Wake::from_column(get(row, 2)?),
        })
    };
    rows.iter().map(tree).collect()
}

/// Roots become another's. It waits for the fence and, in the order of their keys, for whoever holds the roots: all that is
/// decided about a root is decided from its locked row. Whether an owner lives is read once they are locked, as it was when
/// the statement began: nobody comes back.
const TAKE: &str = "
WITH f AS MATERIALIZED (SELECT term, incarnation FROM orbit_cluster WHERE id = 1 FOR SHARE),
ok AS MATERIALIZED (SELECT 1 FROM f WHERE term = $1 AND incarnation = $2),
asked AS MATERIALIZED (SELECT id COLLATE \"C\" AS id, was FROM unnest($3::text[], $4::uuid[]) AS x (id, was)),
locked AS MATERIALIZED (SELECT a.was, o.*
    FROM (SELECT * FROM asked WHERE EXISTS (SELECT 1 FROM ok) ORDER BY id) a CROSS JOIN LATERAL
        (SELECT * FROM orbit_owners x WHERE x.execution_id = a.id AND x.root_id = a.id FOR UPDATE) o),
taken AS (UPDATE orbit_owners
    SET incarnation = $5, node_id = $6, epoch = epoch + 1,
        since_ms = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
    WHERE execution_id = ANY (ARRAY (SELECT execution_id FROM locked
        WHERE incarnation = was AND incarnation <> $5 AND ($7::bool OR (was IN
            (SELECT n.incarnation FROM orbit_nodes n WHERE NOT n.dead AND n.heartbeat_ms <> 0)) IS NOT TRUE)))
    RETURNING execution_id, epoch)
SELECT 0 AS kind, NULL AS root, term AS number, incarnation FROM f
UNION ALL SELECT 1, execution_id, epoch, NULL FROM taken
UNION ALL SELECT 1, execution_id, epoch, NULL FROM locked WHERE incarnation = $5";

/// Those that are the taker's afterwards, by root.
pub fn take(link: &mut Link, take: &TakeTrees) -> Result<Vec<TakenTree>, Trouble> {
    let TakeTrees { fence: writer, by, trees, reason, rule } = take;
    if *rule != TakeRule::Sound {
        // Only simulated servers do.
        return Err(Trouble::Damaged(format!("trees are not taken like this: {rule:?}")));
    }
    let (roots, were): (Vec<&str>, Vec<uuid::Uuid>) = trees.iter().map(|(root, was)| (root.as_str(), was.0)).unzip();
    let handed_over = *reason == TakeReason::HandedOver;
    let rows = link.query(
        TAKE,
        &[
            &column::int(writer.term.0),
            &writer.incarnation.0,
            &roots,
            &were,
            &by.incarnation.0,
            &by.node_id.as_str(),
            &handed_over,
        ],
    )?;
    let (mut current, mut taken) = (None::<Fence>, Vec::new());
    for row in &rows {
        match get::<i32>(row, 0)? {
            0 => current = Some(fence::fence(row, 2, 3)?),
            _ => taken.push(TakenTree { root: column::text(row, 1)?, epoch: Epoch(column::number(row, 2)?) }),
        }
    }
    if current.is_none() {
        return Err(Trouble::Damaged("the row of orbit_cluster is missing".into()));
    }
    taken.sort();
    Ok(taken)
}

/// The rest of the trees. It sees every member that began before its root was locked, and waits for whoever holds one, in the
/// order of their keys.
const TAKE_MEMBERS: &str = "
WITH t AS MATERIALIZED (SELECT id COLLATE \"C\" AS id, epoch FROM unnest($1::text[], $2::bigint[]) AS x (id, epoch)),
locked AS MATERIALIZED (SELECT execution_id FROM orbit_owners
    WHERE root_id = ANY (ARRAY (SELECT id FROM t)) AND execution_id <> root_id ORDER BY execution_id FOR UPDATE),
moved AS (UPDATE orbit_owners o
    SET incarnation = $3, node_id = $4, epoch = t.epoch,
        since_ms = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
    FROM t WHERE t.id = o.root_id AND o.execution_id = ANY (ARRAY (SELECT execution_id FROM locked))
        AND (o.epoch <> t.epoch OR o.incarnation <> $3)
    RETURNING o.execution_id)
SELECT count(*) FROM moved";

/// How many were moved.
pub fn take_members(link: &mut Link, TakeMembers { by, trees }: &TakeMembers) -> Result<u64, Trouble> {
    let (roots, epochs): (Vec<&str>, Vec<i64>) =
        trees.iter().map(|tree| (tree.root.as_str(), column::int(tree.epoch.0))).unzip();
    let row = link.query_opt(TAKE_MEMBERS, &[&roots, &epochs, &by.incarnation.0, &by.node_id.as_str()])?;
    row.map_or(Err(Trouble::Again), |row| column::number(&row, 0))
}
