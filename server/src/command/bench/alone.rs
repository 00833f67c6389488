//! What the database does with the same rows in the same batches, without a server: what the figures are a share of.

use crate::command::server::ended as ended_well;
use crate::config::{LogSettings, Options, Settings};
use crate::database::Database;
use crate::failure::Failure;
use crate::serve::{Server, Store, open};
use crate::telemetry;
use orbit_core::id::Incarnation;
use orbit_core::node::{CallId, Connection};
use orbit_core::store::append::{Fence, GroupOutcome};
use orbit_core::store::outcome::Reply;
use orbit_core::store::statement::Holder;
use orbit_core::store::transaction::{Campaign, CampaignVerdict, Transaction, Verdict};
use orbit_core::time::WallMs;
use orbit_io::driver::record::Recorder;
use orbit_io::driver::{Attached, Backend};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// What was written, and how long it took.
pub struct Alone {
    pub elapsed: Duration,
    /// Transactions, and groups of appends in them.
    pub transactions: u64,
    pub groups: u64,
}

/// Which of the recorded appends are those of the workload, by their number.
pub type Counted = std::ops::Range<u64>;

/// Is the server that is measured, with what it writes recorded: until standard input ends; then the record goes to
/// `file`, one transaction a line.
pub async fn serve(file: &Path) -> Result<(), Failure> {
    let log_level = Some("warn,orbit_runtime::server=info".into());
    telemetry::begin(&LogSettings { log_level, ..LogSettings::default() })?;
    let recorder = Recorder::default();
    let server = Server::start_recorded(&options(&std::env::var("ORBIT_DB").unwrap_or_default())?, Some(&recorder))?;
    let ended = async {
        // An error is an end as well.
        let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await;
    };
    ended_well(server.finish(ended).await)?;
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", file.display()));
    let mut out = BufWriter::new(File::create(file).map_err(failed)?);
    for transaction in recorder.take() {
        serde_json::to_writer(&mut out, &transaction).map_err(|error| failed(error.into()))?;
        out.write_all(b"\n").map_err(failed)?;
    }
    out.flush().map_err(failed)
}

/// Writes what `file` holds to `to`, one transaction after the other, as fast as the database answers; what the counted
/// appends and what stands between them took.
pub async fn measure(file: &Path, counted: Counted, to: &Database) -> Result<Alone, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", file.display()));
    let lines = BufReader::new(File::open(file).map_err(failed)?).lines();
    let read = lines.map(|line| serde_json::from_str(&line?).map_err(std::io::Error::from));
    let recorded = read.collect::<Result<Vec<Transaction>, std::io::Error>>().map_err(failed)?;
    let store = open(&options(&to.text())?)?;
    let on_thread = move || match store {
        Store::Sqlite(store) => write(store.attach(), recorded, counted),
        Store::Postgres(store) => write(store.attach(), recorded, counted),
    };
    let written = tokio::task::spawn_blocking(on_thread).await;
    written.map_err(|error| Failure::new(format!("writing without a server ended badly: {error}")))?
}

fn options(db: &str) -> Result<Options, Failure> {
    let addr = "127.0.0.1:0".parse().expect("an address");
    Options::from_settings(Settings { db: Some(db.into()), addr: Some(addr), ..Settings::default() })
}

fn write<B: Backend>(store: Attached<B>, recorded: Vec<Transaction>, counted: Counted) -> Result<Alone, Failure> {
    let mut writer = Writer { store, calls: 0 };
    let fence = writer.campaign()?;
    let (mut appends, mut begun) = (0, None);
    let mut alone = Alone { elapsed: Duration::ZERO, transactions: 0, groups: 0 };
    for transaction in recorded {
        appends += u64::from(matches!(transaction, Transaction::Append(_)));
        if appends > counted.end {
            break;
        }
        let counts = appends > counted.start;
        if counts {
            begun.get_or_insert_with(Instant::now);
        }
        let groups = writer.write(fence, transaction)?;
        if counts {
            alone.transactions += 1;
            alone.groups += groups;
        }
    }
    alone.elapsed = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
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
        self.store.backend.run(connection, CallId(self.calls), transaction, None);
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
        match self.run(
            Connection::Election,
            Transaction::Campaign(Campaign::new(orbit_core::cluster::Mode::Single, incarnation, holder)),
        )? {
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
