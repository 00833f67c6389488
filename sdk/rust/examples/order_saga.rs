//! The worker of the `OrderSaga` example (`docs/examples/order-saga.yaml`). It ships nothing to Antarctica.
//!
//! ```text
//! cargo run -p orbit-sdk --example order_saga
//! ```
//!
//! `ORBIT_SERVER` and `ORBIT_TOKEN` name another server and its token. Ctrl-C or SIGTERM lets running tasks end first.

use orbit_sdk::{Context, Error, TaskFailure, Value, Worker, json, shutdown_signal};

async fn reserve(task: Context, input: Value) -> Result<Value, TaskFailure> {
    Ok(json!({"reservation": format!("R-{}", task.execution_id()), "sku": input["sku"]}))
}

async fn release(_: Context, input: Value) -> Result<Value, TaskFailure> {
    Ok(json!({"released": input["reservation"]}))
}

async fn charge(task: Context, input: Value) -> Result<Value, TaskFailure> {
    // A payment provider that is handed `task.idempotency_key()` charges once, however often the task is delivered.
    Ok(json!({"charge": format!("C-{}", task.execution_id()), "amount": input["amount"]}))
}

async fn refund(_: Context, input: Value) -> Result<Value, TaskFailure> {
    // What undoes a step is delivered at least once like any other task, and has a key of its own.
    Ok(json!({"refunded": input["charge"]}))
}

async fn ship(task: Context, input: Value) -> Result<Value, TaskFailure> {
    if input["country"] == "AQ" {
        // Another attempt would find the same address: this failure is final, and the order is undone.
        return Err(TaskFailure::fatal("NO_CARRIER", "nobody carries parcels to AQ"));
    }
    Ok(json!({"tracking": format!("T-{}", task.execution_id())}))
}

async fn notify(_: Context, input: Value) -> Result<Value, TaskFailure> {
    tracing::info!(order = %input["order_id"], text = %input["text"], "to the customer");
    Ok(Value::Null)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut worker = Worker::builder()
        .servers(std::env::var("ORBIT_SERVER").unwrap_or_else(|_| "http://127.0.0.1:7233".into()))
        .worker_id("saga-rust")
        .task("inventory.reserve", "1", reserve)
        .task("inventory.release", "1", release)
        .task("payments.charge", "1", charge)
        .task("payments.refund", "1", refund)
        .task("shipping.ship", "1", ship)
        .task("customers.notify", "1", notify);
    if let Ok(token) = std::env::var("ORBIT_TOKEN") {
        worker = worker.token(token);
    }
    worker.build()?.run(shutdown_signal()).await
}
