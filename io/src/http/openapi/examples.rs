//! Bodies as they come and go, for readers and for tools that try them.

use serde_json::{Value, json};

const SESSION: &str = "585d4684-dd41-413b-afc7-80a647e37cfe";
const HASH: &str = "sha256:2112f946da2e3b4d44bba66a6498a810db0e25cd92be584c0ac66dc911fca14e";
const TOKEN: &str = "greeting-1/01c2cec6-2354-465e-a71e-8bc0e7c30cbc";
const OTHER_TOKEN: &str = "greeting-0/5f0c3a52-8f0e-4b57-9f3b-3c1d0a7c9d11";
const KEY: &str = "6a60bd93-5c9a-4928-a702-5122ce130586/greeting-1/1/greet";

pub fn definition() -> Value {
    json!({
        "name": "Greeting",
        "version": "1.0.0",
        "description": "Greets a guest",
        "steps": [{"id": "greet", "task": "demo.greet", "input": {"name": "${ input.name }"}, "timeout": "30s"}],
        "result": "${ steps.greet.output }",
    })
}

pub fn deployed() -> Value {
    json!({"name": "Greeting", "version": "1.0.0", "definition_hash": HASH, "result": "created"})
}

pub fn unchanged() -> Value {
    json!({"name": "Greeting", "version": "1.0.0", "definition_hash": HASH, "result": "unchanged"})
}

fn workflow_item() -> Value {
    json!({
        "name": "Greeting", "version": "1.0.0", "definition_hash": HASH, "description": "Greets a guest",
        "created_at_ms": 1_795_976_235_774_u64, "latest": true,
    })
}

pub fn workflows() -> Value {
    json!({"workflows": [workflow_item()]})
}

pub fn workflow() -> Value {
    let mut workflow = workflow_item();
    workflow["definition"] = definition();
    workflow
}

pub fn start() -> Value {
    json!({
        "workflow": "Greeting", "execution_id": "greeting-1", "input": {"name": "Ada"}, "labels": {"team": "hosts"},
    })
}

pub fn started(created: bool) -> Value {
    json!({
        "execution_id": "greeting-1", "status": "running", "created": created, "workflow": "Greeting",
        "version": "1.0.0",
    })
}

fn execution_item(status: &str, updated_at_ms: u64) -> Value {
    json!({
        "execution_id": "greeting-1", "workflow": "Greeting", "version": "1.0.0", "status": status, "run": 1,
        "created_at_ms": 1_795_976_235_814_u64, "updated_at_ms": updated_at_ms, "labels": {"team": "hosts"},
    })
}

pub fn executions() -> Value {
    let item = execution_item("running", 1_795_976_235_814);
    json!({"executions": [item], "next_cursor": "1795976235814.greeting-1"})
}

pub fn execution() -> Value {
    let mut execution = execution_item("completed", 1_795_976_236_492);
    execution["input"] = json!({"name": "Ada"});
    execution["output"] = "Hello Ada".into();
    execution["last_seq"] = 7.into();
    execution
}

pub fn running() -> Value {
    let mut execution = execution_item("running", 1_795_976_235_814);
    execution["input"] = json!({"name": "Ada"});
    execution["last_seq"] = 5.into();
    execution["waiting"] = json!([{
        "step_id": "greet", "kind": "task", "since_ms": 1_795_976_235_814_u64, "reason": "no_worker",
        "task_name": "demo.greet", "contract_version": "1", "attempt": 1, "max_attempts": 1,
    }]);
    execution
}

pub fn history() -> Value {
    json!({
        "execution_id": "greeting-1",
        "run": 1,
        "events": [
            {"seq": 2, "at_ms": 1_795_976_235_814_u64, "type": "WorkflowStarted"},
            {
                "seq": 3, "at_ms": 1_795_976_235_814_u64, "type": "StepScheduled", "step": "greet", "attempt": 1,
                "input": {"name": "Ada"}, "idempotency_key": KEY, "redelivery": false,
            },
        ],
        "more": true,
    })
}

pub fn cancel() -> Value {
    json!({"reason": "the guest has left"})
}

pub fn release() -> Value {
    json!({})
}

pub fn recover() -> Value {
    json!({"reason": "the worker's host is back"})
}

pub fn terminated() -> Value {
    let mut execution = execution_item("terminated", 1_795_976_236_492);
    execution["input"] = json!({"name": "Ada"});
    execution["last_seq"] = 7.into();
    execution
}

pub fn signal() -> Value {
    json!({"payload": {"table": 4}, "signal_id": "seated-1"})
}

pub fn signalled() -> Value {
    json!({"seq": 6, "run": 1})
}

pub fn update() -> Value {
    json!({"payload": {"guests": 3}, "update_id": "guests-1"})
}

pub fn updated() -> Value {
    json!({"seq": 7, "run": 1, "result": {"guests": 3}})
}

pub fn queried() -> Value {
    json!({"result": {"table": 4, "greeting": null}})
}

pub fn register() -> Value {
    let contract = json!({"task_name": "demo.greet", "contract_version": "1"});
    json!({"worker_id": "greeter-1", "runtime": "python", "sdk": "orbit-sdk/0.1.0", "contracts": [contract]})
}

pub fn registered() -> Value {
    json!({"session_id": SESSION, "heartbeat_interval_ms": 5000, "session_timeout_ms": 30_000})
}

pub fn poll() -> Value {
    let result = json!({"token": OTHER_TOKEN, "output": "Hello Bob"});
    json!({"session_id": SESSION, "max_tasks": 4, "wait_ms": 1000, "holding": [], "results": [result]})
}

pub fn polled() -> Value {
    json!({
        "tasks": [{
            "token": TOKEN, "execution_id": "greeting-1", "workflow": "Greeting", "workflow_version": "1.0.0",
            "step_id": "greet", "task_name": "demo.greet", "contract_version": "1", "input": {"name": "Ada"},
            "idempotency_key": KEY, "attempt": 1, "redelivery": false, "deadline_ms": 1_795_976_266_202_u64,
            "timeout_ms": 30_000,
        }],
        "cancel": [],
        "outcomes": [{"token": OTHER_TOKEN, "outcome": "accepted"}],
    })
}

pub fn heartbeat() -> Value {
    json!({"session_id": SESSION, "holding": [TOKEN]})
}

pub fn cancels() -> Value {
    json!({"cancel": [TOKEN]})
}

pub fn unregister() -> Value {
    json!({"session_id": SESSION})
}

pub fn workers() -> Value {
    let contract = json!({"task_name": "demo.greet", "contract_version": "1"});
    json!({"workers": [{
        "worker_id": "greeter-1", "runtime": "python", "contracts": [contract],
        "last_seen_ms": 1_795_976_235_892_u64, "sessions": 1, "holding": 0,
        "open_sessions": [{
            "session_id": SESSION, "registered_ms": 1_795_976_205_892_u64, "last_seen_ms": 1_795_976_235_892_u64,
            "holding": 0,
        }],
    }]})
}

pub fn complete() -> Value {
    json!({"session_id": SESSION, "token": TOKEN, "output": "Hello Ada"})
}

pub fn fail() -> Value {
    let error = json!({
        "code": "GUEST_UNKNOWN", "message": "no guest of that name", "retryable": false, "details": {"name": "Ada"},
    });
    json!({"session_id": SESSION, "token": TOKEN, "error": error})
}

pub fn batch() -> Value {
    let failed = json!({"token": OTHER_TOKEN, "error": {"code": "GUEST_UNKNOWN", "retryable": false}});
    json!({"session_id": SESSION, "results": [{"token": TOKEN, "output": "Hello Ada"}, failed]})
}

pub fn outcome() -> Value {
    json!({"token": TOKEN, "outcome": "accepted"})
}

pub fn outcomes() -> Value {
    json!({"outcomes": [{"token": TOKEN, "outcome": "accepted"}, {"token": OTHER_TOKEN, "outcome": "stale"}]})
}

pub fn nodes() -> Value {
    json!({"nodes": [{
        "node_id": "orbit-0", "addr": "http://orbit-0.internal:7233", "role": "leader", "live": true,
        "heartbeat_age_ms": 412, "term": 7, "version": "0.1.0", "host": "orbit-0", "pid": 1, "clock_offset_ms": -3,
        "config_digest": "5f2ab01c", "started_ms": 1_795_976_205_892_u64,
    }]})
}

pub fn stepped_down() -> Value {
    let leader = json!({"node_id": "orbit-1", "addr": "http://orbit-1.internal:7233"});
    json!({"term": 7, "leader": leader})
}

pub fn health() -> Value {
    json!({
        "status": "ok", "api_version": "orbit-api/1", "runtime_version": "0.1.0", "ir_versions": ["orbit-def/1"],
        "active_executions": 12, "held_executions": 0, "worker_sessions": 2, "role": "single", "node_id": null, "term": 1, "leader": null,
    })
}

pub fn ready() -> Value {
    json!({"role": "single", "node_id": null, "term": 1, "leader": null, "ready": true})
}

pub fn not_ready() -> Value {
    json!({
        "role": "single", "node_id": null, "term": null, "leader": null, "ready": false,
        "reason": "the server is recovering executions from history",
    })
}
