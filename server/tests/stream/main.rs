//! A stream of signals into one execution that continues as new again and again, on a real PostgreSQL: nothing is lost,
//! nothing counts twice, and neither a history nor the server's memory grows with it.
//!
//! As a test it is short, and the rate is offered but not demanded; `scripts/long signals` sends a thousand signals a
//! second for a minute, with a release build. `STREAM_SECONDS` and `STREAM_RATE` say otherwise.

#[path = "../common/mod.rs"]
mod common;

mod runs;
mod senders;
mod watch;

use common::{PATIENCE, Server, aside, folder, free_addr};
use orbit_sdk::{Client, Format, StartOptions, Status, json};
use orbit_support::{Database, Postgres};
use runs::Runs;
use senders::{Offer, Sent};
use std::time::Duration;
use tempfile::TempDir;
use watch::{Counters, Watch};

/// Each run takes so many ticks and adds them up.
const ADDER: &str = r#"
name: Adder
version: 1.0.0
signals:
  tick: {payload: {type: object, required: [n], properties: {n: {type: integer}}}}
steps:
  - id: ticks
    for: ${ range([input.batch, input.total - input.count] | min) | list }
    parallel: 1
    do: {await: tick}
  - id: so_far
    compute:
      sum: ${ input.sum + (steps.ticks.output | map(attribute='n') | sum) }
      count: ${ input.count + (steps.ticks.output | length) }
  - id: next
    when: ${ steps.so_far.output.count < input.total }
    continue_as_new:
      batch: ${ input.batch }
      total: ${ input.total }
      sum: ${ steps.so_far.output.sum }
      count: ${ steps.so_far.output.count }
result: ${ steps.so_far.output }
"#;

/// A handler takes each tick, while the run waits for the word that ends it. Of a run in which that has not come there is
/// a next one, in which everything begins anew.
const HANDLER: &str = r#"
name: Handler
version: 1.0.0
signals:
  tick: {payload: {type: object, required: [n], properties: {n: {type: integer}}}}
  enough: {}
steps:
  - id: wait
    await: enough
    timeout: 500ms
    otherwise: more
  - id: next
    when: ${ steps.wait.output == 'more' }
    continue_as_new: {suggested: "${ execution.continue_suggested }"}
on:
  event:
    tick:
      - {id: twice, compute: "${ event.n * 2 }"}
result: ${ execution.run }
"#;

/// The id of the execution.
const ID: &str = "stream";

/// How much is sent.
#[derive(Clone, Copy)]
struct Size {
    rate: u64,
    seconds: u64,
}

impl Size {
    fn of_this_run() -> Size {
        let given = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        Size { rate: given("STREAM_RATE").unwrap_or(400), seconds: given("STREAM_SECONDS").unwrap_or(4) }
    }

    fn total(self) -> u64 {
        self.rate * self.seconds
    }

    fn offer(self) -> Offer {
        Offer { rate: self.rate, total: self.total() }
    }
}

/// A server on a database of its own.
struct Stage {
    server: Server,
    database: Database,
    folder: TempDir,
    watch: Watch,
}

impl Stage {
    async fn new(definition: &str) -> Stage {
        let folder = folder();
        let database = aside(|| Postgres::shared().fresh()).await;
        let server = Server::spawn_on(&database.url(), folder.path(), free_addr(), &[]);
        server.ready().await;
        let watch = Watch::begin(server.process.id());
        server.client().deploy(definition, Format::Yaml).await.expect("it deploys");
        Stage { server, database, folder, watch }
    }

    fn client(&self) -> Client {
        self.server.client().with_patience(PATIENCE)
    }

    async fn start(&self, workflow: &str, input: orbit_sdk::Value) {
        let options = StartOptions { execution_id: Some(ID.into()), input, ..StartOptions::default() };
        self.client().start(workflow, options).await.expect("it starts");
    }

    /// SIGKILL, and another server at the same address.
    async fn kill_and_restart(&mut self) {
        let addr = self.server.addr;
        let next = |stage: &Stage| Server::spawn_on(&stage.database.url(), stage.folder.path(), addr, &[]);
        self.server.process.kill_now();
        self.server = next(self);
        self.server.ready().await;
        self.watch.follow(self.server.process.id());
    }

    async fn ended(&self) -> orbit_sdk::Execution {
        let ended = self.client().wait(ID, PATIENCE).await.expect("the server answers");
        assert_eq!(ended.status(), &Status::Completed, "{ended:?}");
        ended
    }
}

/// The sum of the first numbers.
fn sum_to(n: u64) -> u64 {
    n * (n + 1) / 2
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_continues_as_new_adds_up_every_signal_once() {
    add_up(Size::of_this_run(), 1_000, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_ten_signals_each_add_up_every_signal_once() {
    // Every run stores what it must know of those before it: short ones are dear.
    let Size { rate, seconds } = Size::of_this_run();
    add_up(Size { rate: rate / 4, seconds }, 10, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_in_the_middle_of_the_stream_adds_up_every_signal_once() {
    add_up(Size::of_this_run(), 1_000, true).await;
}

async fn add_up(size: Size, batch: u64, kill: bool) {
    let mut stage = Stage::new(ADDER).await;
    stage.start("Adder", json!({"batch": batch, "total": size.total(), "sum": 0, "count": 0})).await;
    let before = Counters::of(&stage).await;
    let sending = tokio::spawn(senders::send(stage.server.url(), size.offer()));
    if kill {
        tokio::time::sleep(Duration::from_secs(size.seconds) / 2).await;
        stage.kill_and_restart().await;
    }
    let sent: Sent = sending.await.expect("no sender panics");
    let ended = stage.ended().await;
    let after = Counters::of(&stage).await;
    let memory = stage.watch.end();
    let told = ended.output.clone().expect("it has completed");
    let runs = Runs::read(&stage.client(), ID, ended.run()).await;

    let kind = if kill { ", its server killed in the middle" } else { "" };
    println!("\n{} signals offered at {} a second, {batch} a run{kind}", size.total(), size.rate);
    watch::tell(&sent, &runs, &memory, &before, &after);
    assert_eq!(sent.faults, Vec::<String>::new());
    assert_eq!(sent.acknowledged, size.total());
    assert_eq!(told, json!({"sum": sum_to(size.total()), "count": size.total()}));
    assert_eq!(u64::from(ended.run()), size.total().div_ceil(batch));
    runs.check(size.total());
    memory.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_takes_every_signal_once_while_its_runs_follow_each_other() {
    let size = Size::of_this_run();
    let mut stage = Stage::new(HANDLER).await;
    stage.start("Handler", json!({"suggested": false})).await;
    let before = Counters::of(&stage).await;
    let sent = senders::send(stage.server.url(), size.offer()).await;
    stage.client().signal(ID, "enough", json!(null), None).await.expect("it is taken");
    let ended = stage.ended().await;
    let after = Counters::of(&stage).await;
    let memory = stage.watch.end();
    let runs = Runs::read(&stage.client(), ID, ended.run()).await;

    println!("\n{} signals offered at {} a second to a handler, runs of half a second", size.total(), size.rate);
    watch::tell(&sent, &runs, &memory, &before, &after);
    assert_eq!(sent.faults, Vec::<String>::new());
    assert_eq!(sent.acknowledged, size.total());
    assert_eq!(runs.handled, size.total(), "each is handled once");
    runs.check(size.total());
    memory.check();
}
