//! A worker with one task. It runs until it is interrupted.

use orbit_sdk::{TaskFailure, Worker, json};

#[tokio::main]
async fn main() -> Result<(), orbit_sdk::Error> {
    Worker::builder()
        .servers(std::env::var("ORBIT_SERVER").unwrap_or_else(|_| "http://127.0.0.1:7233".into()))
        .worker_id("greeter-1")
        .task("greetings.greet", "1", |task, input| async move {
            let Some(guest) = input["guest"].as_str() else {
                return Err(TaskFailure::fatal("GUEST_MISSING", "the input has no `guest`"));
            };
            println!("{} (attempt {}, key {})", task.execution_id(), task.attempt(), task.idempotency_key());
            Ok(json!(format!("Hello, {guest}!")))
        })
        .build()?
        .run(async { tokio::signal::ctrl_c().await.unwrap_or(()) })
        .await
}
