//! The worker of the `OrderProcessing` example (`docs/examples/order-processing.yaml`).
//!
//! ```text
//! orbit dev docs/examples/order-processing.yaml
//! cargo run -p orbit-sdk --example order_worker
//! orbit start OrderProcessing --wait --input '{"order_id": "o-1", "customer": "ada", "amount": 25,
//!                                              "items": [{"sku": "book", "quantity": 1}]}'
//! ```
//!
//! `ORBIT_SERVER` and `ORBIT_TOKEN` name another server and its token. Ctrl-C or SIGTERM lets running tasks end first.

mod tasks;

use orbit_sdk::{Error, Worker, shutdown_signal};

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let servers = std::env::var("ORBIT_SERVER").unwrap_or_else(|_| "http://127.0.0.1:7233".into());
    let mut builder = Worker::builder().servers(&servers).worker_id("orders-rust").concurrency(8);
    if let Ok(token) = std::env::var("ORBIT_TOKEN") {
        builder = builder.token(token);
    }
    let worker = tasks::add_to(builder).build()?;
    println!("working for {servers}; Ctrl-C ends");
    worker.run(shutdown_signal()).await
}
