//! What the database does with the same rows in the same batches, without a server: what the figures are a share of.

use super::{ONE, ORDER, PATIENCE, orders, spawn_workers};
use crate::cli::BenchArgs;
use crate::config::{Options, Settings};
use crate::database::Database;
use crate::failure::Failure;
use crate::serve::{Server, open};
use orbit_core::id::Incarnation;
use orbit_core::node::{CallId, Connection};
use orbit_core::store::append::{Fence, GroupOutcome};
use orbit_core::store::outcome::Reply;
use orbit_core::store::statement::Holder;
use orbit_core::store::transaction::{Campaign, CampaignVerdict, Transaction, Verdict};
use orbit_core::time::WallMs;
use orbit_io::driver::record::Recorder;
use orbit_io::driver::{Attached, Backend};
use orbit_sdk::{Client, Format};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use uuid::Uuid;

/// What was written, and how long it took.
pub struct Alone {
    pub elapsed: Duration,
    /// Transactions, and groups of appends in them.
    pub transactions: u64,
    pub groups: u64,
}

/// Runs the workload once more on `db`, in a server whose writes are recorded, and then writes the same to `to`, one
/// transaction after the other, as fast as the database answers.
pub async fn measure(arguments: &BenchArgs, db: &Database, to: &Database) -> Result<Alone, Failure> {
    let (before, recorded) = record(arguments, db).await?;
    let store = open(&options(to)?)?;
    let on_thread = move || match store {
        crate::serve::Store::Sqlite(store) => write(store.attach(), before, recorded),
        crate::serve::Store::Postgres(store) => write(store.attach(), before, recorded),
    };
    let written = tokio::task::spawn_blocking(on_thread).await;
    written.map_err(|error| Failure::new(format!("writing without a server ended badly: {error}")))?
}

fn options(db: &Database) -> Result<Options, Failure> {
    let addr = "127.0.0.1:0".parse().expect("an address");
    Options::from_settings(Settings { db: Some(db.text()), addr: Some(addr), ..Settings::default() })
}

/// What a server writes before the orders, and for them.
async fn record(arguments: &BenchArgs, db: &Database) -> Result<(Vec<Transaction>, Vec<Transaction>), Failure> {
    let recorder = Recorder::default();
    let server = Server::start_recorded(&options(db)?, Some(&recorder))?;
    let url = format!("http://{}", server.addr());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(server.finish(async { drop(stopped.await) }));
    let client = Client::new(&url, None)?.with_patience(PATIENCE);
    let begun = Instant::now();
    while !client.ready().await.is_ok_and(|ready| ready.ready) {
        if server.is_finished() || begun.elapsed() > PATIENCE {
            return Err(Failure::new("the server whose writes are recorded does not serve"));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let workers = spawn_workers(arguments, &url)?;
    client.deploy(ORDER, Format::Yaml).await?;
    client.deploy(ONE, Format::Yaml).await?;
    orders(&url, arguments.clients.min(arguments.orders), arguments.clients).await?;
    let before = recorder.take();
    orders(&url, arguments.orders, arguments.clients).await?;
    let recorded = recorder.take();
    drop(workers);
    drop(stop);
    // The database is to be free for whoever looks at it next.
    let _ = server.await;
    Ok((before, recorded))
}

fn write<B: Backend>(
    store: Attached<B>,
    before: Vec<Transaction>,
    recorded: Vec<Transaction>,
) -> Result<Alone, Failure> {
    let mut writer = Writer { store, calls: 0 };
    let fence = writer.campaign()?;
    for transaction in before {
        writer.write(fence, transaction)?;
    }
    let begun = Instant::now();
    let mut alone = Alone { elapsed: Duration::ZERO, transactions: 0, groups: 0 };
    for transaction in recorded {
        alone.groups += writer.write(fence, transaction)?;
        alone.transactions += 1;
    }
    alone.elapsed = begun.elapsed();
    Ok(alone)
}

/// One committer.
struct Writer<B> {
    store: Attached<B>,
    calls: u64,
}

impl<B: Backend> Writer<B> {
    fn run(&mut self, connection: Connection, transaction: Transaction) -> Result<Verdict, Failure> {
        let name = transaction.name();
        self.calls += 1;
        self.store.backend.run(connection, CallId(self.calls), transaction);
        match self.store.replies.blocking_recv().map(|answer| answer.reply) {
            Some(Reply::Done(verdict)) => Ok(verdict),
            other => Err(Failure::new(format!("without a server, `{name}` failed: {other:?}"))),
        }
    }

    fn campaign(&mut self) -> Result<Fence, Failure> {
        let incarnation = Incarnation(Uuid::from_u128(1));
        let holder = Holder {
            node_id: "bench".into(),
            host: crate::config::host(),
            pid: std::process::id(),
            addr: None,
            since_ms: WallMs(0),
        };
        match self.run(Connection::Election, Transaction::Campaign(Campaign { incarnation, holder }))? {
            Verdict::Campaign(CampaignVerdict::Won { term, .. }) => Ok(Fence { term, incarnation }),
            other => Err(Failure::new(format!("the database to write without a server is not free: {other:?}"))),
        }
    }

    /// Writes it as the holder of this fence; how many groups that were.
    fn write(&mut self, fence: Fence, mut transaction: Transaction) -> Result<u64, Failure> {
        let mut connection = Connection::Store;
        match &mut transaction {
            Transaction::Append(append) => append.fence = fence,
            Transaction::Claim(claim) => claim.fence = fence,
            Transaction::Sweep(sweep) => sweep.fence = fence,
            Transaction::Deploy(put) => put.fence = fence,
            Transaction::SaveWorker(_) => connection = Connection::Requests,
            // Its own has taken their place.
            _ => return Ok(0),
        }
        match self.run(connection, transaction)? {
            Verdict::Append(outcomes) => match outcomes.iter().find(|outcome| **outcome != GroupOutcome::Written) {
                None => Ok(outcomes.len() as u64),
                Some(other) => Err(Failure::new(format!("without a server, a group is not written: {other:?}"))
                    .hint("give --alone a database of its own that nothing else writes")),
            },
            _ => Ok(0),
        }
    }
}
