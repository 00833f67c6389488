//! Clients and workers that go on through everything: each repeats what it asked for, under the same key, until it is
//! answered, and writes the answer down.

use crate::check;
use crate::common::{PATIENCE, Server};
use orbit_sdk::{Client, Error, ExecutionsQuery, Format, StartOptions, TaskFailure, Worker, json};
use orbit_support::Database;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The workflows that are used, by name.
pub const WORKFLOWS: [(&str, &str); 4] = [
    ("Ping", "name: Ping\nversion: 1.0.0\nsteps: [{id: echo, compute: '${ input.n }'}]\n"),
    (
        "Pair",
        "name: Pair\nversion: 1.0.0\nsteps:\n  - {id: first, task: pair.first, input: {n: '${ input.n }'}}\n  \
         - {id: second, task: pair.second, retry: {max_attempts: 5, initial: 20ms}}\n",
    ),
    // It leaves memory, and is loaded again when its time has come.
    ("Doze", "name: Doze\nversion: 1.0.0\nsteps: [{id: doze, sleep: 2500ms}]\n"),
    // It only ends by being cancelled.
    ("Nap", "name: Nap\nversion: 1.0.0\nsteps: [{id: nap, sleep: 1h}]\n"),
];

/// How long a client asks for one thing.
const STUBBORN: Duration = Duration::from_secs(180);

/// What was answered.
#[derive(Default)]
pub struct Book {
    /// Starts that were acknowledged: the workflow, and the `n` of the input.
    pub started: BTreeMap<String, (&'static str, u64)>,
    pub cancelled: BTreeSet<String>,
    /// Ids of starts that were refused.
    pub refused: BTreeSet<String>,
    /// Versions of `Extra` whose deployment was acknowledged.
    pub deployed: BTreeSet<String>,
    /// Workers whose registration was acknowledged.
    pub registered: BTreeSet<String>,
    /// Answers that must not be.
    pub faults: Vec<String>,
}

/// The clients that run.
pub struct Load {
    pub book: Arc<Mutex<Book>>,
    stop: Arc<AtomicBool>,
    clients: JoinSet<()>,
    workers: JoinSet<()>,
}

/// What each client has.
#[derive(Clone)]
struct Desk {
    client: Client,
    url: String,
    book: Arc<Mutex<Book>>,
    stop: Arc<AtomicBool>,
}

impl Load {
    pub async fn begin(client: &Client, url: &str) -> Load {
        let client = client.clone().with_patience(STUBBORN);
        for (_, text) in WORKFLOWS {
            client.deploy(text, Format::Yaml).await.expect("it deploys");
        }
        let desk = Desk { client, url: url.into(), book: Arc::default(), stop: Arc::default() };
        let mut load = Load {
            book: Arc::clone(&desk.book),
            stop: Arc::clone(&desk.stop),
            clients: JoinSet::new(),
            workers: JoinSet::new(),
        };
        load.workers.spawn(work(url.into()));
        for caller in 0..6 {
            load.clients.spawn(desk.clone().start_pairs(caller));
        }
        for caller in 0..2 {
            load.clients.spawn(desk.clone().start_dozes(caller));
            load.clients.spawn(desk.clone().start_and_cancel(caller));
        }
        load.clients.spawn(desk.clone().start_pings());
        load.clients.spawn(desk.clone().deploy());
        load.clients.spawn(desk.clone().register());
        load.clients.spawn(desk.clone().refuse());
        load.clients.spawn(desk.read());
        load
    }

    /// Lets every client have its last answer.
    pub async fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.clients.join_next().await {
            ended.expect("no client panics");
        }
    }

    /// Waits until everything that was started has ended, and compares it with what was answered.
    pub async fn check(&self, server: &Server, database: &Database) {
        let client = server.client().with_patience(STUBBORN);
        let book = std::mem::take(&mut *self.book.lock().expect("no panic"));
        for id in book.started.keys() {
            client.wait(id, STUBBORN).await.expect("it is there");
        }
        let faults = check::all(&client, database, &book).await;
        assert!(faults.is_empty(), "{faults:#?}");
        println!(
            "{} executions, {} of them cancelled; {} refusals, {} deployments, {} registrations",
            book.started.len(),
            book.cancelled.len(),
            book.refused.len(),
            book.deployed.len(),
            book.registered.len()
        );
    }

    /// Starts that were acknowledged so far.
    pub fn count(&self) -> usize {
        self.book.lock().expect("no panic").started.len()
    }

    /// Waits until so many more were acknowledged.
    pub async fn more(&self, count: usize, server: &mut Server) {
        let (before, begun) = (self.count(), Instant::now());
        while self.count() < before + count {
            assert!(server.process.is_running(), "the server ended: {}", server.process.log());
            assert!(begun.elapsed() < STUBBORN, "nothing is acknowledged any more: {}", server.process.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Works on `Pair`s until it is dropped. One worker with few hands, so that tasks wait in the queue, too.
async fn work(url: String) {
    let worker = Worker::builder()
        .servers(url)
        .worker_id("hands")
        .concurrency(3)
        .task("pair.first", "1", |_, input| async move {
            tokio::time::sleep(Duration::from_millis(4)).await;
            Ok::<_, TaskFailure>(json!({"n": input["n"]}))
        })
        .task("pair.second", "1", |context, _| async move {
            match context.attempt() {
                1 => Err(TaskFailure::new("BUSY", "the second attempt will do")),
                _ => Ok(json!({"by": context.idempotency_key()})),
            }
        });
    let worker = worker.build().expect("a complete worker");
    worker.run(std::future::pending()).await.expect("it works until it is dropped");
}

impl Desk {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    fn note<T>(&self, write: impl FnOnce(&mut Book) -> T) {
        write(&mut self.book.lock().expect("no panic"));
    }

    /// What must be answered in the end.
    async fn answered<T>(&self, what: &str, call: impl Future<Output = Result<T, Error>>) -> Option<T> {
        match call.await {
            Ok(answer) => Some(answer),
            Err(error) => {
                self.note(|book| book.faults.push(format!("{what}: {error}")));
                None
            }
        }
    }

    /// What must be refused in the end, with this code.
    async fn refused<T>(&self, what: &str, code: &str, call: impl Future<Output = Result<T, Error>>) -> bool {
        let fault = match call.await {
            Err(error) if error.code() == Some(code) => return true,
            Err(error) => format!("{what} was to be refused with {code}, and: {error}"),
            Ok(_) => format!("{what} was to be refused with {code}, and was not"),
        };
        self.note(|book| book.faults.push(fault));
        false
    }

    fn options(id: &str, n: u64) -> StartOptions {
        let labels = BTreeMap::from([("of".to_owned(), "cuts".to_owned())]);
        StartOptions { execution_id: Some(id.into()), input: json!({"n": n}), labels, ..StartOptions::default() }
    }

    async fn start(&self, workflow: &'static str, id: &str, n: u64) {
        if self.answered(id, self.client.start(workflow, Desk::options(id, n))).await.is_some() {
            self.note(|book| book.started.insert(id.into(), (workflow, n)));
        }
    }

    async fn ended(&self, id: &str) {
        let mut waited = self.answered(id, self.client.wait(id, STUBBORN)).await;
        if waited.take_if(|execution| !execution.status().is_finished()).is_some() {
            self.note(|book| book.faults.push(format!("{id} does not end")));
        }
    }

    async fn start_pairs(self, caller: u64) {
        for n in 0.. {
            if !self.goes_on() {
                return;
            }
            let id = format!("pair-{caller}-{n}");
            self.start("Pair", &id, n).await;
            if n % 4 == 0 {
                // The same id for something else is refused, whatever became of the first sendings.
                let other = Desk::options(&id, n + 1_000_000);
                self.refused(&id, "EXECUTION_ID_CONFLICT", self.client.start("Pair", other)).await;
            }
            self.ended(&id).await;
        }
    }

    async fn start_pings(self) {
        for n in 0.. {
            if !self.goes_on() {
                return;
            }
            self.start("Ping", &format!("ping-{n}"), n).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn start_dozes(self, caller: u64) {
        for n in 0.. {
            if !self.goes_on() {
                return;
            }
            let id = format!("doze-{caller}-{n}");
            self.start("Doze", &id, n).await;
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
    }

    async fn start_and_cancel(self, caller: u64) {
        for n in 0.. {
            if !self.goes_on() {
                return;
            }
            let id = format!("nap-{caller}-{n}");
            self.start("Nap", &id, n).await;
            if self.answered(&id, self.client.cancel(&id, Some("enough"))).await.is_some() {
                self.note(|book| book.cancelled.insert(id.clone()));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn deploy(self) {
        for n in 0.. {
            if !self.goes_on() {
                return;
            }
            let version = format!("1.0.{n}");
            let text = |what: u64| format!("name: Extra\nversion: {version}\nsteps: [{{id: a, compute: '{what}'}}]\n");
            if self.answered(&version, self.client.deploy(&text(n), Format::Yaml)).await.is_some() {
                self.note(|book| book.deployed.insert(version.clone()));
            }
            self.refused(&version, "DEFINITION_CONFLICT", self.client.deploy(&text(n + 1), Format::Yaml)).await;
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    }

    /// Registers one worker after the other.
    async fn register(self) {
        for n in 0.. {
            if !self.goes_on() {
                return;
            }
            // Fewer than the registry keeps.
            let id = format!("visitor-{}", n % 500);
            let worker = Worker::builder().servers(self.url.clone()).worker_id(&*id);
            let worker = worker.task("nothing.at.all", "1", |_, _| async { Ok::<_, TaskFailure>(json!(null)) });
            let worker = worker.build().expect("a complete worker");
            let (leave, left) = tokio::sync::oneshot::channel::<()>();
            let run = tokio::spawn(worker.run(async move { drop(left.await) }));
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE {
                let listed = self.client.workers().await;
                if listed.is_ok_and(|workers| workers.iter().any(|worker| worker.worker_id == id)) {
                    self.note(|book| book.registered.insert(id.clone()));
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let _ = leave.send(());
            let ended = run.await.expect("no panic");
            if let Err(error) = ended {
                self.note(|book| book.faults.push(format!("{id}: {error}")));
            }
        }
    }

    /// Starts of what does not exist.
    async fn refuse(self) {
        for n in 0.. {
            if !self.goes_on() {
                return;
            }
            let id = format!("refused-{n}");
            let start = self.client.start("Missing", Desk::options(&id, n));
            if self.refused(&id, "UNKNOWN_WORKFLOW", start).await {
                self.note(|book| book.refused.insert(id));
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    async fn read(self) {
        let newest = ExecutionsQuery { limit: Some(5), ..ExecutionsQuery::default() };
        while self.goes_on() {
            let page = self.answered("a list", self.client.executions(&newest)).await;
            for execution in page.into_iter().flat_map(|page| page.executions) {
                let id = &execution.execution_id;
                self.answered(id, self.client.execution(id)).await;
                self.answered(id, self.client.history(id, 0, None)).await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
