//! The worker processes: this test's own binary, started with a variable that says so.
//!
//! A worker writes down each task when it comes, before it does anything else, and then takes its time.

use crate::common::Process;
use crate::random::Random;
use orbit_sdk::{Context, TaskFailure, Value, Worker, json};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Holds the worker's [`Part`] as JSON.
const VARIABLE: &str = "KILLS_WORKER";

pub const TASKS: [&str; 6] =
    ["orders.validate", "fraud.check", "inventory.reserve", "payments.charge", "shipping.ship", "customers.notify"];

/// What a worker process is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    pub server: String,
    pub worker_id: String,
    pub deliveries: PathBuf,
    pub seed: u64,
}

/// One task as it came to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delivery {
    /// For people who look at the file.
    pub at_us: u64,
    pub worker_id: String,
    pub token: String,
    pub execution: String,
    pub step: String,
    pub attempt: u32,
    pub redelivery: bool,
    pub key: String,
}

/// Starts a worker process.
pub fn spawn(part: &Part, log: &Path) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command.env(VARIABLE, serde_json::to_string(part).expect("plain data"));
    Process::spawn(command, log)
}

/// Every delivery that was written down in a file. The last line may be cut short by a kill.
pub fn read(file: &Path) -> Vec<Delivery> {
    let text = std::fs::read_to_string(file).expect("the worker made its file");
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    complete.lines().map(|line| serde_json::from_str(line).expect("a whole line is a delivery")).collect()
}

/// Runs as a worker, if this process is one.
pub fn run_if_asked() -> Option<ExitCode> {
    let part: Part = serde_json::from_str(&std::env::var(VARIABLE).ok()?).expect("the test wrote it");
    let file = OpenOptions::new().create(true).append(true).open(&part.deliveries).expect("a writable folder");
    let worker = Arc::new(State {
        worker_id: part.worker_id.clone(),
        file: Mutex::new(file),
        random: Mutex::new(Random::new(part.seed)),
    });
    let mut builder = Worker::builder().servers(part.server).worker_id(part.worker_id).concurrency(8);
    for task in TASKS {
        let worker = Arc::clone(&worker);
        builder = builder.task(task, "1", move |context, _| {
            let worker = Arc::clone(&worker);
            async move { worker.work(&context).await }
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let worker = builder.build().expect("a complete worker");
    // It works until it is killed.
    let ended = runtime.block_on(worker.run(std::future::pending()));
    eprintln!("the worker has ended: {ended:?}");
    Some(ExitCode::FAILURE)
}

struct State {
    worker_id: String,
    file: Mutex<File>,
    random: Mutex<Random>,
}

impl State {
    async fn work(&self, context: &Context) -> Result<Value, TaskFailure> {
        let delivery = Delivery {
            at_us: now_us(),
            worker_id: self.worker_id.clone(),
            token: context.token().into(),
            execution: context.execution_id().into(),
            step: context.step_id().into(),
            attempt: context.attempt(),
            redelivery: context.redelivery(),
            key: context.idempotency_key().into(),
        };
        let mut line = serde_json::to_vec(&delivery).expect("plain data");
        line.push(b'\n');
        // One write, so that a kill leaves a whole line or a torn last one.
        self.file.lock().expect("no panic").write_all(&line).expect("a writable file");
        let takes = {
            let mut random = self.random.lock().expect("no panic");
            if random.percent(25) { random.between(200, 1500) } else { random.between(3, 40) }
        };
        tokio::time::sleep(Duration::from_millis(takes)).await;
        Ok(json!({"score": 1, "reservation_id": "r", "charge_id": "c", "tracking": "t", "by": self.worker_id}))
    }
}

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is past 1970");
    u64::try_from(now.as_micros()).expect("it is before the year 500,000")
}
