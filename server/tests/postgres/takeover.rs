//! A server whose message to the database is held up while another takes over.

use super::{PING, aside, fresh};
use crate::common::{PATIENCE, Server, folder, free_addr};
use orbit_sdk::{Client, Error, Format, StartOptions};
use orbit_support::Database;
use orbit_support::wire::{Action, Message, Proxy};
use std::sync::Arc;

const NAP: &str = "name: Nap\nversion: 1.0.0\nsteps: [{id: nap, sleep: 1h}]\n";
const RAISE: &str = "UPDATE orbit_cluster
    SET term = term + 1, incarnation = '00000000-0000-0000-0000-000000000002', leader_node = 'other'";

fn is_write(message: &Message) -> bool {
    let writes = ["INSERT INTO execution_events", "INSERT INTO workflow_definitions"];
    message.is_from_client(b'E') && writes.iter().any(|words| message.statement.contains(words))
}

/// Every row that a request may change.
fn everything(database: &Database) -> Vec<String> {
    let mut client = database.connect();
    let sql = "SELECT t::text FROM (SELECT to_jsonb(e) FROM execution_events e UNION ALL SELECT to_jsonb(x)
        FROM workflow_executions x UNION ALL SELECT to_jsonb(o) FROM orbit_owners o UNION ALL
        SELECT to_jsonb(d) FROM workflow_definitions d UNION ALL SELECT to_jsonb(c) FROM orbit_cluster c) t ORDER BY 1";
    client.query(sql, &[]).expect("it reads").iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_write_is_held_up_over_a_takeover_is_not_done_and_its_server_ends() {
    for kind in ["start", "cancel", "deploy"] {
        let (folder, database) = (folder(), fresh().await);
        let proxy = Arc::new(Proxy::before(database.port));
        let mut server = Server::spawn_on(&proxy.database(&database).url(), folder.path(), free_addr(), &[]);
        server.ready().await;
        let client = server.client();
        client.deploy(NAP, Format::Yaml).await.expect("it deploys");
        let options = |id: &str| StartOptions { execution_id: Some(id.into()), ..StartOptions::default() };
        client.start("Nap", options("before")).await.expect("it starts");
        proxy.rule(|message| if is_write(message) { Action::Hold } else { Action::Pass });
        let asking = tokio::spawn(ask(client, kind, options("held-up")));
        let (held_by, of) = (Arc::clone(&proxy), database.clone());
        let (held, before) = aside(move || {
            let held = held_by.next_held(PATIENCE, is_write).expect("the write is held up");
            of.connect().execute(RAISE, &[]).expect("a superuser may");
            (held, everything(&of))
        })
        .await;
        proxy.pass_all();
        proxy.release(&held);
        let answer = asking.await.expect("no panic").expect_err("it is refused");
        let told = matches!(answer.code(), Some("FENCED" | "OUTCOME_UNKNOWN")) || answer.is_unreachable();
        assert!(told, "{kind}: {answer:?}");
        assert_eq!(server.process.ended(PATIENCE).code(), Some(1), "{kind}");
        let log = server.process.log();
        assert!(log.contains("error: another server has taken the database over"), "{kind}: {log}");
        let of = database.clone();
        assert_eq!(aside(move || everything(&of)).await, before, "{kind}");
    }
}

async fn ask(client: Client, kind: &str, options: StartOptions) -> Result<(), Error> {
    match kind {
        "start" => client.start("Nap", options).await.map(drop),
        "cancel" => client.cancel("before", None).await.map(drop),
        _ => client.deploy(PING, Format::Yaml).await.map(drop),
    }
}
