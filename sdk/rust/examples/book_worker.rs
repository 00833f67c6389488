use orbit_sdk::{Context, Error, TaskFailure, Value, Worker, json, shutdown_signal};
use std::time::Duration;

/// A payment, which must happen only once.
async fn charge(task: Context, input: Value) -> Result<Value, TaskFailure> {
    let Some(amount) = input["amount"].as_u64() else {
        // Another attempt would find the same input: this failure is final.
        return Err(TaskFailure::fatal("AMOUNT_MISSING", "the input has no whole `amount`"));
    };
    if amount > 10_000 {
        return Err(TaskFailure::fatal("CARD_DECLINED", "the bank says no").with_details(json!({"limit": 10_000})));
    }
    if task.redelivery() {
        tracing::info!(step = task.step_id(), "an earlier delivery may have charged: the key finds out");
    }
    // A provider that is handed this key charges once, however often the task is delivered.
    let key = task.idempotency_key();
    if amount == 503 {
        // The step's `retry` says how often and how soon this is tried again.
        return Err(TaskFailure::new("BANK_AWAY", format!("no answer at attempt {}", task.attempt())));
    }
    Ok(json!({"charge": key, "amount": amount}))
}

/// A long task, which stops when nobody wants its result any more.
async fn report(task: Context, input: Value) -> Result<Value, TaskFailure> {
    let pages = input["pages"].as_u64().unwrap_or(1);
    for _ in 0..pages {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            () = task.cancelled() => return Err(TaskFailure::fatal("CANCELLED", "nobody reads this")),
        }
    }
    Ok(json!({"pages": pages}))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut worker = Worker::builder()
        .servers(std::env::var("ORBIT_SERVER").unwrap_or_else(|_| "http://127.0.0.1:7233".into()))
        .worker_id("payments-1")
        .concurrency(8)
        .grace(Duration::from_secs(30))
        .task("payments.charge", "1", charge)
        .task("reports.build", "1", report);
    if let Ok(token) = std::env::var("ORBIT_TOKEN") {
        worker = worker.token(token);
    }
    worker.build()?.run(shutdown_signal()).await
}
