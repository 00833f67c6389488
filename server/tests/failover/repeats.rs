//! What was asked of one leader is asked again of the next one: it has one effect, and the same answer.

use crate::common::raw::{self, Answer};
use crate::common::{Server, tables};
use crate::{cluster, deploy, pair, until_leads};
use orbit_sdk::{Value, json};

const WAITS: &str = "name: Waits\nversion: 1.0.0\nsignals: {go: {}}\nsteps: [{id: a, await: go}, {id: b, await: go}]\n";
const TASKS: &str = "name: Tasks\nversion: 1.0.0\nsteps: [{id: a, task: t.a}]\n";

fn post(server: &Server, target: &str, body: &Value) -> Answer {
    raw::post(server, target, body.to_string())
}

#[test]
fn what_was_acknowledged_by_a_leader_is_answered_alike_by_its_successor_and_done_once() {
    let cluster = cluster();
    let (a, b) = pair(&cluster);
    deploy(&a, WAITS);
    deploy(&a, TASKS);
    let ok = |answer: Answer| -> Value {
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        answer.json()
    };
    let start = |id: &str| json!({"workflow": "Waits", "execution_id": id, "input": {"n": 1}});
    let signal = json!({"payload": {"n": 1}, "signal_id": "key"});
    let cancel = json!({"reason": "enough"});
    assert_eq!(ok(post(&a, "/v1/executions", &start("w1")))["created"], true);
    ok(post(&a, "/v1/executions", &start("w2")));
    let first = ok(post(&a, "/v1/executions/w1/signals/go", &signal));
    let cancelled = ok(post(&a, "/v1/executions/w2/cancel", &cancel));
    ok(post(&a, "/v1/executions", &json!({"workflow": "Tasks", "execution_id": "t1"})));
    let contracts = json!([{"task_name": "t.a", "contract_version": "1"}]);
    let worker = json!({"worker_id": "w", "runtime": "test", "sdk": "test", "contracts": contracts});
    let session = ok(post(&a, "/v1/workers/register", &worker))["session_id"].clone();
    let polled = ok(post(&a, "/v1/workers/poll", &json!({"session_id": session, "max_tasks": 1, "wait_ms": 20_000})));
    let report = json!({"session_id": session, "token": polled["tasks"][0]["token"], "output": 7});
    ok(post(&a, "/v1/tasks/complete", &report));
    let before = events(&cluster.database);
    a.process.kill();
    until_leads(&b);

    // The same again.
    let again = ok(post(&b, "/v1/executions", &start("w1")));
    assert_eq!((&again["created"], &again["execution_id"]), (&json!(false), &json!("w1")));
    assert_eq!(ok(post(&b, "/v1/executions/w1/signals/go", &signal))["seq"], first["seq"]);
    assert_eq!(ok(post(&b, "/v1/executions/w2/cancel", &cancel))["status"], cancelled["status"]);
    let head = "POST /v1/workflows HTTP/1.1\r\ncontent-type: application/yaml\r\n";
    let deployed = raw::send(&b, head, WAITS.as_bytes());
    assert_eq!((deployed.status, &deployed.json()["result"]), (200, &json!("unchanged")));
    let reported = post(&b, "/v1/tasks/complete", &report);
    // Its session went with the leader; whatever it is told, the task has one result.
    assert!(reported.status < 500, "{reported:?}");
    assert_eq!(events(&cluster.database), before, "nothing was done a second time");

    // Other things under the same keys.
    let other = json!({"workflow": "Waits", "execution_id": "w1", "input": {"n": 2}});
    assert_eq!(post(&b, "/v1/executions", &other).error(), (409, "EXECUTION_ID_CONFLICT".into()));
    let other = json!({"payload": {"n": 2}, "signal_id": "key"});
    assert_eq!(ok(post(&b, "/v1/executions/w1/signals/go", &other))["seq"], first["seq"], "the first one counts");
    let changed = WAITS.replace("{id: b, await: go}", "{id: c, await: go}");
    let changed = raw::send(&b, head, changed.as_bytes());
    assert_eq!(changed.error(), (409, "DEFINITION_CONFLICT".into()));
    assert_eq!(events(&cluster.database), before, "what was refused is absent");

    // And what is new goes on where the first leader was.
    ok(post(&b, "/v1/executions/w1/signals/go", &json!({"payload": 1, "signal_id": "another"})));
    let ended = raw::get(&b, "/v1/executions/w1/wait?timeout_ms=60000");
    assert_eq!(ended.json()["status"], "completed", "{ended:?}");
    assert_eq!(tables::faults(&mut cluster.database.connect()), Vec::<String>::new());
}

/// How many events each execution has.
fn events(database: &orbit_support::Database) -> Vec<(String, i64)> {
    let sql = "SELECT execution_id, count(*) FROM execution_events GROUP BY 1 ORDER BY 1";
    let rows = database.connect().query(sql, &[]).expect("it answers");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}
