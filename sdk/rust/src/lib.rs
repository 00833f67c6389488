//! Workers and clients for Orbit.
//!
//! * [`Client`] deploys definitions, starts executions, waits for them and reads what there is to see.
//! * [`Worker`] runs tasks: it polls a server over HTTP, gives each task to the handler of its name, and reports what
//!   the handler returned until the server has answered.
//!
//! ```no_run
//! use orbit_sdk::{TaskFailure, Worker};
//! use serde_json::json;
//!
//! # async fn run() -> Result<(), orbit_sdk::Error> {
//! Worker::builder()
//!     .servers("http://127.0.0.1:7233")
//!     .worker_id("payments-1")
//!     .task("payments.charge", "1", |task, input| async move {
//!         if input["amount"].as_f64().is_none() {
//!             return Err(TaskFailure::fatal("AMOUNT_MISSING", "the input has no amount"));
//!         }
//!         // The key is the same at every delivery of this step: a payment provider that is given it charges once.
//!         Ok(json!({"charge": task.idempotency_key()}))
//!     })
//!     .concurrency(8)
//!     .build()?
//!     .run(orbit_sdk::shutdown_signal())
//!     .await
//! # }
//! ```

mod api;
mod backoff;
mod client;
mod error;
mod outside;
mod random;
mod servers;
mod signal;
mod transport;
mod worker;

pub use api::{
    Contract, Deployed, ErrorBody, Event, Execution, ExecutionSummary, ExecutionsPage, Health, HistoryPage, Leader,
    NodeInfo, Parent, Problem, Ready, SessionInfo, Signalled, Started, Status, SteppedDown, Updated, Waiting,
    WorkerInfo, Workflow, WorkflowSummary,
};
pub use client::{Client, ExecutionsQuery, Format, StartOptions};
pub use error::{ApiError, Error};
pub use outside::{Connecting, Outside, Stream};
pub use servers::{InvalidServers, Servers};
pub use signal::shutdown_signal;
pub use worker::{Context, TaskFailure, Worker, WorkerBuilder};

pub use serde_json::{Value, json};
