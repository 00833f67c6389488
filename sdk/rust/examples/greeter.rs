//! A worker with one task. It runs until Ctrl-C or SIGTERM.
//!
//! `ORBIT_SERVER` and `ORBIT_TOKEN` name another server and its token.

use orbit_sdk::{TaskFailure, Worker, json, shutdown_signal};

#[tokio::main]
async fn main() -> Result<(), orbit_sdk::Error> {
    // What the worker has to say: that it registered, or that it cannot reach the server.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut worker = Worker::builder()
        .servers(std::env::var("ORBIT_SERVER").unwrap_or_else(|_| "http://127.0.0.1:7233".into()))
        .worker_id("greeter-1")
        .task("greetings.greet", "1", |task, input| async move {
            let Some(guest) = input["guest"].as_str() else {
                return Err(TaskFailure::fatal("GUEST_MISSING", "the input has no `guest`"));
            };
            println!("{} (attempt {}, key {})", task.execution_id(), task.attempt(), task.idempotency_key());
            Ok(json!(format!("Hello, {guest}!")))
        });
    if let Ok(token) = std::env::var("ORBIT_TOKEN") {
        worker = worker.token(token);
    }
    worker.build()?.run(shutdown_signal()).await
}
