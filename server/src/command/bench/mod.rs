//! `orbit bench`: the reference workload, on a server and workers in processes of their own.
//!
//! An order is six sequential tasks; clients start an order each and wait for it. Absolute figures say as much about the
//! machine as about Orbit: compare figures of one run, or of runs beside each other.

mod alone;

use super::dev::temporary_folder;
use super::order_tasks as tasks;
use crate::cli::BenchArgs;
use crate::database::Database;
use crate::failure::Failure;
use crate::output::{Form, Table, print};
use orbit_io::postgres::peek;
use orbit_io::sqlite::SqliteStore;
use orbit_sdk::{Client, Format, StartOptions, Status, Value, Worker, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The definition that is run.
const ORDER: &str = include_str!("../../../../docs/examples/order-processing.yaml");
/// One task: what its latency is.
const ONE: &str =
    "name: OneTask\nversion: 1.0.0\nsteps:\n  - {id: notify, task: customers.notify, input: {customer: x}}\n";
/// How many single tasks are timed.
const SINGLE_TASKS: u64 = 200;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs the workload and prints the figures; `--worker` runs one of its workers.
pub async fn run(arguments: BenchArgs) -> Result<(), Failure> {
    match (&arguments.worker, &arguments.serve) {
        (Some(url), _) => work(url, arguments.concurrency).await,
        (None, Some(file)) => alone::serve(file).await,
        (None, None) => measure(&arguments).await,
    }
}

/// A worker process: until it is ended.
async fn work(url: &str, concurrency: usize) -> Result<(), Failure> {
    let id = format!("bench-{}", std::process::id());
    let builder = Worker::builder().servers(url).worker_id(id).concurrency(concurrency);
    let ended = async { drop(tokio::signal::ctrl_c().await) };
    Ok(tasks::add_to(builder).build()?.run(ended).await?)
}

async fn measure(arguments: &BenchArgs) -> Result<(), Failure> {
    if arguments.orders == 0 || arguments.clients == 0 || arguments.workers == 0 {
        return Err(Failure::usage("--orders, --clients and --workers are at least 1"));
    }
    let folder = temporary_folder("orbit-bench-")?;
    let throw_away = |name: &str| folder.path().join(name).display().to_string();
    let db = Database::parse(&arguments.db.clone().unwrap_or_else(|| throw_away("bench.db")))?;
    let alone_db = alone_db(arguments, &db, || throw_away("alone.db"))?;
    let log = folder.path().join("server.log");
    let record = folder.path().join("written.jsonl");
    let (mut server, url) = start_server(&db, &log, alone_db.as_ref().map(|_| record.as_path())).await?;
    let client = Client::new(&url, None)?.with_patience(PATIENCE);
    let workers = spawn_workers(arguments, &url)?;
    client.deploy(ORDER, Format::Yaml).await?;
    client.deploy(ONE, Format::Yaml).await?;
    // A warm-up: every worker has registered and every connection is open.
    orders(&url, arguments.clients.min(arguments.orders), arguments.clients).await?;

    let processes = || Usage::of(&server).and_then(|s| Ok((s, Usage::of_all(&workers)?)));
    let (before, usage_before) = (counters(&client).await?, processes()?);
    let begun = Instant::now();
    let mut latencies = orders(&url, arguments.orders, arguments.clients).await?;
    let elapsed = begun.elapsed();
    let (after, usage_after) = (counters(&client).await?, processes()?);
    let mut single = orders_of(&url, "OneTask", &json!(null), SINGLE_TASKS, 1).await?;

    let counted = |name: &str| after.get(name).unwrap_or(&0.0) - before.get(name).unwrap_or(&0.0);
    let each = |value: f64| value / arguments.orders as f64;
    let appends = counted("orbit_appends_total");
    drop(workers);
    let alone = match &alone_db {
        Some(to) => {
            server.finish()?;
            let number =
                |counters: &BTreeMap<String, f64>| counters.get("orbit_appends_total").map_or(0, |n| *n as u64);
            Some(alone::measure(&record, number(&before)..number(&after), to).await?)
        }
        None => None,
    };
    drop(server);
    let durability = durability(&db)?;
    let orders_per_second = arguments.orders as f64 / elapsed.as_secs_f64();
    let figures = Figures {
        orders_per_second,
        alone: alone.map(|alone| AloneFigures {
            orders_per_second: arguments.orders as f64 / alone.elapsed.as_secs_f64(),
            transactions_per_order: each(alone.transactions as f64),
            groups_per_transaction: alone.groups as f64 / (alone.transactions as f64).max(1.0),
        }),
        order_ms: percentiles(&mut latencies),
        one_task_ms: percentiles(&mut single),
        appends_per_order: each(appends),
        groups_per_append: counted("orbit_append_groups_total") / appends.max(1.0),
        events_per_order: each(counted("orbit_events_committed_total")),
        direct_dispatch: counted("orbit_tasks_dispatched_directly_total")
            / counted("orbit_tasks_dispatched_total").max(1.0),
        server_cpu_ms_per_order: each((usage_after.0.cpu - usage_before.0.cpu).as_secs_f64() * 1e3),
        workers_cpu_ms_per_order: each((usage_after.1.cpu - usage_before.1.cpu).as_secs_f64() * 1e3),
        server_resident_mb: usage_after.0.resident as f64 / f64::from(1 << 20),
        durability,
    };
    figures.print(arguments)
}

/// The database to write without a server, if that is wanted.
fn alone_db(
    arguments: &BenchArgs,
    db: &Database,
    throw_away: impl FnOnce() -> String,
) -> Result<Option<Database>, Failure> {
    let Some(text) = &arguments.alone else { return Ok(None) };
    let to = match (text.as_str(), db) {
        ("", Database::Sqlite(_)) => Database::parse(&throw_away())?,
        ("", Database::Postgres(..)) => {
            return Err(Failure::usage("--alone on PostgreSQL needs a second database, which is empty")
                .hint("createdb alone, and give --alone=postgres://…/alone"));
        }
        (text, _) => Database::parse(text)?,
    };
    if to == *db {
        return Err(Failure::usage("--alone needs another database than --db: the same executions are there already"));
    }
    Ok(Some(to))
}

/// What the database did without a server.
struct AloneFigures {
    orders_per_second: f64,
    transactions_per_order: f64,
    groups_per_transaction: f64,
}

/// What was measured.
struct Figures {
    orders_per_second: f64,
    alone: Option<AloneFigures>,
    order_ms: [f64; 2],
    one_task_ms: [f64; 2],
    appends_per_order: f64,
    groups_per_append: f64,
    events_per_order: f64,
    direct_dispatch: f64,
    server_cpu_ms_per_order: f64,
    workers_cpu_ms_per_order: f64,
    server_resident_mb: f64,
    /// How durable the database is, by its own names.
    durability: Vec<(&'static str, Value)>,
}

impl Figures {
    fn print(&self, arguments: &BenchArgs) -> Result<(), Failure> {
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        if matches!(arguments.output.form, Form::Json | Form::Jsonl) {
            let mut value = json!({
                "orders": arguments.orders, "clients": arguments.clients, "workers": arguments.workers,
                "concurrency": arguments.concurrency, "build": build,
                "orders_per_second": self.orders_per_second,
                "order_p50_ms": self.order_ms[0], "order_p99_ms": self.order_ms[1],
                "one_task_p50_ms": self.one_task_ms[0], "one_task_p99_ms": self.one_task_ms[1],
                "appends_per_order": self.appends_per_order, "groups_per_append": self.groups_per_append,
                "events_per_order": self.events_per_order, "direct_dispatch": self.direct_dispatch,
                "server_cpu_ms_per_order": self.server_cpu_ms_per_order,
                "workers_cpu_ms_per_order": self.workers_cpu_ms_per_order,
                "server_resident_mb": self.server_resident_mb,
            });
            if let Some(alone) = &self.alone {
                value["alone_orders_per_second"] = json!(alone.orders_per_second);
                value["alone_transactions_per_order"] = json!(alone.transactions_per_order);
                value["alone_groups_per_transaction"] = json!(alone.groups_per_transaction);
                value["share_of_alone"] = json!(self.orders_per_second / alone.orders_per_second);
            }
            for (name, setting) in &self.durability {
                value[*name] = setting.clone();
            }
            return print(&format!("{value}\n"));
        }
        let mut table = Table::new(&["WHAT", "FIGURE"]);
        let BenchArgs { orders, clients, workers, concurrency, .. } = arguments;
        let number = |value: f64| format!("{value:.2}");
        let durability: Vec<String> = self
            .durability
            .iter()
            .map(|(name, value)| format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
            .collect();
        let pair = |[p50, p99]: [f64; 2]| format!("{p50:.1} ms / {p99:.1} ms");
        let mut rows = vec![
            (
                "workload",
                format!("{orders} orders of six tasks, {clients} clients, {workers} worker processes of {concurrency}"),
            ),
            ("build", build.into()),
            ("durability", format!("{} (read back)", durability.join(", "))),
            ("orders a second", number(self.orders_per_second)),
            ("an order, p50 / p99", pair(self.order_ms)),
            ("one task alone, p50 / p99", pair(self.one_task_ms)),
            ("appends an order", number(self.appends_per_order)),
            ("executions an append", number(self.groups_per_append)),
            ("events an order", number(self.events_per_order)),
            ("handed over in the append", format!("{:.0} %", self.direct_dispatch * 100.0)),
            ("server's processor time an order", format!("{} ms", number(self.server_cpu_ms_per_order))),
            ("workers' processor time an order", format!("{} ms", number(self.workers_cpu_ms_per_order))),
            ("server's resident memory", format!("{:.0} MiB", self.server_resident_mb)),
        ];
        if let Some(alone) = &self.alone {
            let transactions = number(alone.transactions_per_order);
            let batches = format!(
                "{transactions} transactions an order, {} executions each",
                number(alone.groups_per_transaction)
            );
            let share = 100.0 * self.orders_per_second / alone.orders_per_second;
            rows.extend([
                (
                    "the same rows without a server",
                    format!("{} orders a second ({batches})", number(alone.orders_per_second)),
                ),
                ("of that, with the server", format!("{share:.0} %")),
            ]);
        }
        for (what, figure) in rows {
            table.row(vec![what.into(), figure]);
        }
        print(&table.render())
    }
}

fn spawn_workers(arguments: &BenchArgs, url: &str) -> Result<Vec<Process>, Failure> {
    let concurrency = arguments.concurrency.to_string();
    let worker = |_| spawn(&["bench", "--worker", url, "--concurrency", &concurrency], Stdio::null());
    (0..arguments.workers).map(worker).collect()
}

/// Runs orders and gives their latencies.
async fn orders(url: &str, count: u64, clients: u64) -> Result<Vec<Duration>, Failure> {
    let input = json!({
        "order_id": "bench", "customer": "ada@example.com", "amount": 42.5,
        "items": [{"sku": "book", "quantity": 1}],
    });
    orders_of(url, "OrderProcessing", &input, count, clients).await
}

async fn orders_of(
    url: &str,
    workflow: &str,
    input: &Value,
    count: u64,
    clients: u64,
) -> Result<Vec<Duration>, Failure> {
    let left = Arc::new(AtomicU64::new(count));
    let mut tasks = Vec::new();
    for _ in 0..clients.min(count) {
        let client = Client::new(url, None)?.with_patience(PATIENCE);
        let (left, workflow, input) = (left.clone(), workflow.to_string(), input.clone());
        tasks.push(tokio::spawn(async move {
            let mut latencies = Vec::new();
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                let begun = Instant::now();
                let options = StartOptions { input: input.clone(), ..StartOptions::default() };
                let started = client.start(&workflow, options).await?;
                let ended = client.wait(&started.execution_id, PATIENCE).await?;
                if ended.summary.status != Status::Completed {
                    let message = format!("{} is {}", started.execution_id, ended.summary.status);
                    return Err(Failure::new(message));
                }
                latencies.push(begun.elapsed());
            }
            Ok(latencies)
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        let latencies = task.await.map_err(|error| Failure::new(format!("a client ended badly: {error}")))?;
        all.extend(latencies?);
    }
    Ok(all)
}

/// The 50th and the 99th percentile, in milliseconds.
fn percentiles(latencies: &mut [Duration]) -> [f64; 2] {
    latencies.sort_unstable();
    let at = |percent: usize| {
        let index = (latencies.len() * percent).div_ceil(100).saturating_sub(1);
        latencies.get(index).map_or(0.0, |d| d.as_secs_f64() * 1e3)
    };
    [at(50), at(99)]
}

/// The server's counters and gauges.
async fn counters(client: &Client) -> Result<BTreeMap<String, f64>, Failure> {
    let text = client.metrics().await?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    Ok(lines
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, value)| Some((name.into(), value.parse().ok()?)))
        .collect())
}

/// What the database says of the durability of a connection that is opened as the server's is; the server is down.
fn durability(db: &Database) -> Result<Vec<(&'static str, Value)>, Failure> {
    match db {
        Database::Sqlite(path) => {
            let store = SqliteStore::open(path).map_err(|error| Failure::new(error.to_string()))?;
            let durability = store
                .durability()
                .map_err(|error| Failure::new(format!("the database's settings cannot be read: {error}")))?;
            Ok(vec![
                ("journal_mode", json!(durability.journal_mode)),
                ("synchronous", json!(durability.synchronous.to_string())),
            ])
        }
        Database::Postgres(_, address) => {
            let settings = peek((**address).clone()).map_err(|error| Failure::new(error.to_string()))?.settings;
            Ok(vec![
                ("postgres", json!(settings.version)),
                ("synchronous_commit", json!(settings.synchronous_commit)),
                ("fsync", json!(settings.fsync)),
            ])
        }
    }
}

/// A child process of this program that ends with its owner.
struct Process(Child);

impl Process {
    /// Closes its standard input, which is what it waits for, and lets it come to its end.
    fn finish(&mut self) -> Result<(), Failure> {
        drop(self.0.stdin.take());
        match self.0.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::new(format!("the server ended with {status}"))),
            Err(error) => Err(Failure::new(format!("the server's end cannot be waited for: {error}"))),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(arguments: &[&str], stderr: Stdio) -> Result<Process, Failure> {
    spawn_with(&[], arguments, stderr)
}

fn spawn_with(environment: &[(&str, &str)], arguments: &[&str], stderr: Stdio) -> Result<Process, Failure> {
    let program =
        std::env::current_exe().map_err(|error| Failure::new(format!("this program cannot be found: {error}")))?;
    let mut command = Command::new(program);
    command
        .envs(environment.iter().copied())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(stderr);
    command.spawn().map(Process).map_err(|error| Failure::new(format!("a process cannot be started: {error}")))
}

/// A server on this database; its process and address.
async fn start_server(db: &Database, log: &Path, record: Option<&Path>) -> Result<(Process, String), Failure> {
    let file = std::fs::File::create(log).map_err(|error| Failure::new(format!("{}: {error}", log.display())))?;
    let record = record.map(|path| path.display().to_string());
    let arguments = match &record {
        Some(record) => vec!["bench", "--serve", record],
        None => vec!["server", "--addr", "127.0.0.1:0", "--log-level", "warn,orbit_runtime::server=info"],
    };
    // Not on the command line, which everybody on the host can read.
    let server = spawn_with(&[("ORBIT_DB", &db.text())], &arguments, file.into())?;
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let line = text.lines().find(|line| line.contains("ORBIT runtime listening"));
        let addr = line.and_then(|line| line.split("addr=").nth(1)?.split_whitespace().next());
        if let Some(addr) = addr {
            let url = format!("http://{addr}");
            if Client::new(&url, None)?.ready().await.is_ok_and(|ready| ready.ready) {
                return Ok((server, url));
            }
        }
        if begun.elapsed() > Duration::from_secs(30) {
            return Err(Failure::new(format!("the server is not ready: {text}")));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What processes have used so far.
struct Usage {
    cpu: Duration,
    resident: u64,
}

impl Usage {
    /// From `/proc`: `stat` has the times in clock ticks (a hundredth of a second on Linux), `statm` the pages.
    fn of(process: &Process) -> Result<Usage, Failure> {
        let read = |file: &str| {
            let path = format!("/proc/{}/{file}", process.0.id());
            std::fs::read_to_string(&path).map_err(|error| Failure::new(format!("{path}: {error}")))
        };
        let stat = read("stat")?;
        // The name, in brackets, may hold spaces; user and system time are fields 14 and 15.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        let pages: u64 = read("statm")?.split_whitespace().nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
        Ok(Usage { cpu: Duration::from_millis(ticks * 10), resident: pages * 4096 })
    }

    fn of_all(processes: &[Process]) -> Result<Usage, Failure> {
        let mut sum = Usage { cpu: Duration::ZERO, resident: 0 };
        for process in processes {
            let one = Usage::of(process)?;
            sum.cpu += one.cpu;
            sum.resident += one.resident;
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let mut latencies: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(percentiles(&mut latencies), [50.0, 99.0]);
        assert_eq!(percentiles(&mut [Duration::from_millis(7)]), [7.0, 7.0]);
        assert_eq!(percentiles(&mut []), [0.0, 0.0]);
    }
}
