//! The worker of the `OrderProcessing` example (`docs/examples/order-processing.yaml`).
//!
//! ```text
//! orbit dev docs/examples/order-processing.yaml
//! cargo run -p orbit-sdk --example order_worker
//! orbit start OrderProcessing --wait --input '{"order_id": "o-1", "customer": "ada", "amount": 25,
//!                                              "items": [{"sku": "book", "quantity": 1}]}'
//! ```
//!
//! `ORBIT_SERVER` and `ORBIT_TOKEN` name another server and its token. Ctrl-C lets running tasks end first.

mod tasks;

use orbit_sdk::{Error, Worker};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let servers = std::env::var("ORBIT_SERVER").unwrap_or_else(|_| "http://127.0.0.1:7233".into());
    let mut builder = Worker::builder().servers(&servers).worker_id("orders-rust").concurrency(8);
    if let Ok(token) = std::env::var("ORBIT_TOKEN") {
        builder = builder.token(token);
    }
    let worker = tasks::add_to(builder).build()?;
    println!("working for {servers}; Ctrl-C ends");
    worker.run(async { tokio::signal::ctrl_c().await.unwrap_or(()) }).await
}
