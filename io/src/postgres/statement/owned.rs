//! The append of a server of shared mode, which has to own the trees that it writes to (protocols, 16 and 17).

use super::append::WRITE;
use std::sync::LazyLock;

/// What is put into [`WRITE`], behind what, and in place of what. `$52` is the incarnation of the writer.
///
/// * The root of every member that is not its own root is locked FOR SHARE, once the members are: whoever takes the tree waits
///   for this append. A root that is held makes its members busy, as their own rows do.
/// * Only the locked row of a root is fresh, so all that is decided about a tree is decided from it.
const CHANGES: [(&str, &str); 6] = [
    (
        "known AS MATERIALIZED",
        "tree AS MATERIALIZED (
    SELECT m, g, gid, id, fresh, root COLLATE \"C\" AS tree, epoch AS row_epoch, newlast, change, wake, newrun FROM w
        WHERE fresh AND root <> id AND EXISTS (SELECT 1 FROM ok)
    UNION ALL
    SELECT m, g, gid, id, fresh, root_id, epoch, newlast, change, wake, newrun FROM own WHERE NOT fresh AND root_id <> id),
roots AS MATERIALIZED (SELECT t.*, o.incarnation AS tree_incarnation, o.epoch AS tree_epoch
    FROM (SELECT * FROM tree ORDER BY tree, m) t CROSS JOIN LATERAL
        (SELECT * FROM orbit_owners x WHERE x.execution_id = t.tree FOR SHARE SKIP LOCKED) o),
root_there AS MATERIALIZED (SELECT execution_id FROM orbit_owners
    WHERE execution_id = ANY (ARRAY (SELECT tree FROM tree))),
mine AS MATERIALIZED (
    SELECT m FROM roots WHERE tree_incarnation = $52 AND (fresh OR tree_epoch = row_epoch)
    UNION ALL SELECT m FROM tree WHERE ((g, tree) IN (SELECT g, id FROM w WHERE fresh)) IS TRUE
    UNION ALL SELECT m FROM own WHERE NOT fresh AND root_id = id AND incarnation = $52
    UNION ALL SELECT m FROM w WHERE fresh AND root = id),
known AS MATERIALIZED",
    ),
    ("AND group_id <> gid),", "AND group_id <> gid AND (m IN (SELECT m FROM mine)) IS TRUE),"),
    (
        "OR (id IN (SELECT execution_id FROM known)) IS TRUE\n        ELSE",
        "OR (id IN (SELECT execution_id FROM known)) IS TRUE OR (m IN (SELECT m FROM mine)) IS NOT TRUE\n        ELSE",
    ),
    (
        "SELECT id, root, (SELECT node FROM ok), $2, 1, newrun, newlast, gid,",
        "SELECT id, root, coalesce((SELECT min(node_id) FROM orbit_nodes WHERE incarnation = $52), ''), $52, epoch, newrun,
        newlast, gid,",
    ),
    (
        "FROM w WHERE fresh AND change <> 2 AND (g IN (SELECT g FROM gg)) IS TRUE),",
        "FROM (
        SELECT m, g, gid, id, root, 1 AS epoch, newlast, change, wake, newrun FROM w
            WHERE fresh AND (m IN (SELECT m FROM roots)) IS NOT TRUE
        UNION ALL SELECT m, g, gid, id, tree, tree_epoch, newlast, change, wake, newrun FROM roots WHERE fresh) x
    WHERE change <> 2 AND (g IN (SELECT g FROM gg)) IS TRUE),",
    ),
    (
        "UNION ALL SELECT 3,",
        "UNION ALL SELECT 11, m, NULL, NULL, NULL, NULL, incarnation, NULL FROM own
UNION ALL SELECT 9, m, NULL, NULL, tree_epoch, NULL, tree_incarnation, NULL FROM roots
UNION ALL SELECT 10, m, NULL, NULL, NULL, NULL, NULL, NULL FROM tree
    WHERE (tree IN (SELECT execution_id FROM root_there)) IS TRUE AND (m IN (SELECT m FROM roots)) IS NOT TRUE
UNION ALL SELECT 3,",
    ),
];

/// The statement of a writer that is an owner.
pub fn owned() -> &'static str {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        CHANGES.into_iter().fold(WRITE.to_owned(), |sql, (from, to)| {
            assert_eq!(sql.matches(from).count(), 1, "it is there once: {from}");
            sql.replacen(from, to, 1)
        })
    });
    &SQL
}
