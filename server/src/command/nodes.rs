//! `orbit nodes`: the servers of a cluster, by the database or by one of them.

use super::client;
use super::status::peek;
use crate::cli::NodesArgs;
use crate::database::Database;
use crate::failure::Failure;
use crate::output::{self, Table, note};
use orbit_core::api::response::NodeView;
use orbit_core::store::statement::NodeRows;
use orbit_sdk::NodeInfo;
use std::collections::BTreeMap;

/// A clock that is further off than this is worth a word.
const CLOCK_MS: u64 = 1_000;

/// Shows them, and what is odd about them.
pub async fn run(arguments: NodesArgs) -> Result<(), Failure> {
    let nodes = match &arguments.db {
        Some(db) => match Database::parse(db)? {
            Database::Postgres(_, address) => of_rows(peek(*address)?.nodes),
            Database::Sqlite(path) => {
                let message = format!("{} is a file, which one server has for itself", path.display());
                return Err(Failure::usage(message).hint("`orbit status --db FILE` shows which"));
            }
        },
        None => client(&arguments.remote)?.nodes().await?,
    };
    output::list(arguments.output.form, &nodes, &nodes, |node| node.node_id.as_str(), || table(&nodes))?;
    for oddity in oddities(&nodes) {
        note(&oddity);
    }
    Ok(())
}

/// Rows of the database, as the API shows them.
pub fn of_rows(NodeRows { nodes, clock }: NodeRows) -> Vec<NodeInfo> {
    let view = |row| NodeView::of_row(row, clock);
    let info = nodes.into_iter().map(|row| {
        let view = view(row);
        NodeInfo {
            node_id: view.node_id.as_str().into(),
            addr: view.addr,
            role: view.role,
            live: view.live,
            heartbeat_age_ms: view.heartbeat_age_ms,
            term: view.term.0,
            version: view.version,
            host: view.host,
            pid: view.pid,
            clock_offset_ms: view.clock_offset_ms,
            config_digest: view.config_digest,
            started_ms: view.started_ms.0,
        }
    });
    info.collect()
}

fn table(nodes: &[NodeInfo]) -> Table {
    let titles =
        ["NODE", "ROLE", "TERM", "HEARTBEAT", "CLOCK", "VERSION", "CONFIG", "ADDRESS", "HOST", "PID", "STARTED"];
    let mut table = Table::new(&titles);
    for node in nodes {
        let heartbeat = match (node.heartbeat_age_ms, node.live) {
            (None, _) => "left".into(),
            (Some(ms), true) => format!("{} ago", seconds(ms)),
            (Some(ms), false) => format!("{} ago: silent", seconds(ms)),
        };
        table.row(vec![
            node.node_id.clone(),
            // What one that is gone was, it is no more.
            if node.live { node.role.clone() } else { String::new() },
            node.term.to_string(),
            heartbeat,
            format!("{:+} ms", node.clock_offset_ms),
            node.version.clone(),
            node.config_digest.clone(),
            node.addr.clone().unwrap_or_default(),
            node.host.clone(),
            node.pid.to_string(),
            output::time(node.started_ms),
        ]);
    }
    table
}

fn seconds(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        10_000..600_000 => format!("{} s", ms / 1_000),
        _ => format!("{} min", ms / 60_000),
    }
}

/// What is wrong with the servers that are there, together.
pub fn oddities(nodes: &[NodeInfo]) -> Vec<String> {
    let live: Vec<&NodeInfo> = nodes.iter().filter(|node| node.live).collect();
    let mut oddities = Vec::new();
    let leaders: Vec<&str> = live.iter().filter(|n| n.role == "leader").map(|n| n.node_id.as_str()).collect();
    match leaders[..] {
        [] if live.iter().any(|node| node.role == "standby") => oddities.push("no server leads".into()),
        [] | [_] => {}
        _ => oddities.push(format!(
            "several servers take themselves for the leader: {}; the one of the newest term may write",
            leaders.join(", ")
        )),
    }
    type Of = fn(&NodeInfo) -> &str;
    let compared: [(&str, Of); 2] = [
        ("run different versions", |node| &node.version),
        ("are configured differently, and whichever leads applies its own settings", |node| &node.config_digest),
    ];
    for (what, of) in compared {
        let mut by: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for node in &live {
            by.entry(of(node)).or_default().push(&node.node_id);
        }
        if by.len() > 1 {
            let all: Vec<String> = by.iter().map(|(value, nodes)| format!("{} ({value})", nodes.join(", "))).collect();
            oddities.push(format!("the servers {what}: {}", all.join("; ")));
        }
    }
    for node in live.iter().filter(|node| node.clock_offset_ms.unsigned_abs() >= CLOCK_MS) {
        let (ahead, by) = (node.clock_offset_ms > 0, seconds(node.clock_offset_ms.unsigned_abs()));
        let which = if ahead { "ahead of" } else { "behind" };
        oddities.push(format!("the clock of {} is {by} {which} the database's: its log lines are off", node.node_id));
    }
    oddities
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, role: &str) -> NodeInfo {
        NodeInfo {
            node_id: id.into(),
            addr: None,
            role: role.into(),
            live: true,
            heartbeat_age_ms: Some(400),
            term: 3,
            version: "1.0.0".into(),
            host: "h".into(),
            pid: 1,
            clock_offset_ms: 5,
            config_digest: "aa".into(),
            started_ms: 0,
        }
    }

    #[test]
    fn servers_that_agree_are_nothing_to_speak_of_and_those_that_are_gone_do_not_count() {
        let gone = NodeInfo { live: false, version: "0.9.0".into(), ..node("c", "leader") };
        assert_eq!(oddities(&[node("a", "leader"), node("b", "standby"), gone]), Vec::<String>::new());
        assert_eq!(oddities(&[node("a", "single")]), Vec::<String>::new());
    }

    #[test]
    fn what_differs_is_told_with_who_has_what() {
        let odd = NodeInfo {
            version: "1.1.0".into(),
            config_digest: "bb".into(),
            clock_offset_ms: -61_000,
            ..node("b", "standby")
        };
        let found = oddities(&[node("a", "standby"), odd]);
        assert_eq!(found[0], "no server leads");
        assert_eq!(found[1], "the servers run different versions: a (1.0.0); b (1.1.0)");
        assert!(found[2].ends_with("settings: a (aa); b (bb)"), "{found:?}");
        assert_eq!(found[3], "the clock of b is 61 s behind the database's: its log lines are off");
        let two = oddities(&[node("a", "leader"), node("b", "leader")]);
        assert!(two[0].starts_with("several servers take themselves for the leader: a, b"), "{two:?}");
    }
}
