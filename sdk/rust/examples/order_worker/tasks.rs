//! The six tasks of the `OrderProcessing` example. Each stands for a call to some other system.

use orbit_sdk::{Context, TaskFailure, Value, WorkerBuilder, json};

/// Adds the tasks to a worker.
pub fn add_to(builder: WorkerBuilder) -> WorkerBuilder {
    builder
        .task("orders.validate", "1", validate)
        .task("fraud.check", "1", check_fraud)
        .task("inventory.reserve", "1", reserve)
        .task("payments.charge", "1", charge)
        .task("shipping.ship", "1", ship)
        .task("customers.notify", "1", notify)
}

async fn validate(_: Context, input: Value) -> Result<Value, TaskFailure> {
    let items = input["items"].as_array().map_or(0, Vec::len);
    if items == 0 {
        // Another attempt would find the same order: this failure is final.
        return Err(TaskFailure::fatal("EMPTY_ORDER", "the order has no items"));
    }
    Ok(json!({"valid": true, "items": items}))
}

async fn check_fraud(_: Context, input: Value) -> Result<Value, TaskFailure> {
    let amount = input["amount"].as_f64().unwrap_or_default();
    let score = if amount > 10_000.0 { 87 } else { 12 };
    if score > 80 {
        return Err(TaskFailure::fatal("FRAUD_SUSPECTED", format!("the score is {score}"))
            .with_details(json!({"score": score})));
    }
    Ok(json!({"score": score}))
}

async fn reserve(task: Context, input: Value) -> Result<Value, TaskFailure> {
    Ok(json!({"reservation_id": format!("R-{}", short(task.execution_id())), "items": input["items"]}))
}

async fn charge(task: Context, input: Value) -> Result<Value, TaskFailure> {
    // A payment provider that is handed this key charges once, however often the task is delivered.
    let key = task.idempotency_key();
    if task.redelivery() {
        eprintln!("an earlier delivery may have charged already; asking the provider with key {key}");
    }
    Ok(json!({"charge_id": format!("C-{}", short(task.execution_id())), "amount": input["amount"]}))
}

async fn ship(task: Context, _: Value) -> Result<Value, TaskFailure> {
    Ok(json!({"tracking": format!("T-{}", short(task.execution_id()))}))
}

async fn notify(_: Context, input: Value) -> Result<Value, TaskFailure> {
    Ok(json!({"sent_to": input["customer"]}))
}

/// The last characters of an id, enough to tell a few orders apart.
fn short(id: &str) -> &str {
    id.char_indices().rev().nth(7).map_or(id, |(at, _)| &id[at..])
}
