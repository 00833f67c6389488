//! One connection that runs transactions, one at a time.

use crate::driver::witness::Witness;
use crate::sqlite::connect::{self, ConnectError};
use crate::sqlite::facts;
use crate::sqlite::statement;
use orbit_core::store::executor::{Ask, Executor, Frame};
use orbit_core::store::outcome::{self, Cause, Fact, FailureKind, Phase, Reply, Severity};
use orbit_core::store::statement::{Rows, Statement};
use orbit_core::store::transaction::{Transaction, Verdict};
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// What all connections of a database share.
#[derive(Debug)]
pub struct Shared {
    path: PathBuf,
    /// Held through every transaction that writes: this process's writers wait for each other here, in turn and
    /// without a delay, and not in SQLite's busy handler, which sleeps.
    writing: Mutex<()>,
    /// Who sees what each statement gave.
    witness: Witness,
}

impl Shared {
    pub fn new(path: PathBuf, witness: Witness) -> Arc<Shared> {
        Arc::new(Shared { path, writing: Mutex::new(()), witness })
    }
}

/// A connection, opened when it is needed and replaced when it is broken.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    connection: Option<Connection>,
    /// How far the transaction has got that runs or ran last.
    phase: Phase,
}

impl Session {
    pub fn new(shared: Arc<Shared>, connection: Option<Connection>) -> Session {
        Session { shared, connection, phase: Phase::NotSent }
    }

    /// Runs a transaction to its end.
    pub fn run(&mut self, transaction: Transaction) -> Reply<Verdict> {
        let name = transaction.name();
        catch_unwind(AssertUnwindSafe(|| self.execute(transaction))).unwrap_or_else(|_| {
            // A mistake of ours. Closing the connection rolls back what is open, and how far it had got is known.
            self.connection = None;
            let message = format!("the transaction `{name}` failed inside Orbit; please report this");
            outcome::judge(Fact { phase: self.phase, severity: None, cause: Cause::Kind(FailureKind::Broken), message })
        })
    }

    fn execute(&mut self, transaction: Transaction) -> Reply<Verdict> {
        let name = transaction.name();
        let mut executor = Executor::new(transaction);
        let writes = executor.writes();
        self.phase = Phase::NotSent;
        let shared = self.shared.clone();
        // Where another's transaction panicked, SQLite has rolled it back.
        let _turn = writes.then(|| shared.writing.lock().unwrap_or_else(PoisonError::into_inner));
        loop {
            let reply = match executor.ask() {
                Ask::Rollback(verdict) => {
                    self.roll_back();
                    Some(Reply::Done(verdict))
                }
                Ask::Send(statements, frame) => {
                    let got = self.attempt(&statements, frame, writes);
                    if let Err(Fact { severity: Some(Severity::Fatal), message, .. }) = &got {
                        tracing::warn!(target: "orbit_runtime::engine", call = name, error = %message, "commit failed; its outcome is open");
                    }
                    self.shared.witness.sees(&got);
                    executor.tell(got)
                }
            };
            if let Some(reply) = reply {
                return reply;
            }
        }
    }

    /// Closes the connection and leaves the log empty, if no other connection is open.
    pub fn close_last(mut self) {
        let Some(connection) = self.connection.take() else { return };
        let emptied = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
        match emptied {
            Ok(false) => {}
            // Nothing is lost: the next start reads the log.
            Ok(true) => {
                tracing::debug!(target: "orbit_runtime::engine", "another program reads the database; its log stays")
            }
            Err(error) => tracing::warn!(target: "orbit_runtime::engine", %error, "the log could not be emptied"),
        }
    }

    fn attempt(&mut self, statements: &[Statement], frame: Frame, writes: bool) -> Result<Vec<Rows>, Fact> {
        let opened = open(&mut self.connection, &self.shared);
        let connection = opened.map_err(|error| connect_fact(&error))?;
        frame_statements(connection, statements, frame, writes, &mut self.phase).map_err(|error| {
            let fact = facts::fact(&error, self.phase);
            self.roll_back();
            if facts::is_connections_end(&error) {
                self.connection = None;
            }
            fact
        })
    }

    /// Ends an open transaction; a connection that cannot is closed, which does.
    fn roll_back(&mut self) {
        let Some(connection) = &self.connection else { return };
        if !connection.is_autocommit() && connection.execute_batch("ROLLBACK").is_err() {
            self.connection = None;
        }
    }
}

fn open<'a>(connection: &'a mut Option<Connection>, shared: &Shared) -> Result<&'a Connection, ConnectError> {
    if connection.is_none() {
        *connection = Some(connect::durable(&shared.path)?);
    }
    Ok(connection.as_ref().expect("there is one now"))
}

fn connect_fact(error: &ConnectError) -> Fact {
    match error {
        ConnectError::Sqlite(error) => facts::fact(error, Phase::NotSent),
        ConnectError::Weak { .. } => Fact {
            phase: Phase::NotSent,
            severity: Some(Severity::Error),
            cause: Cause::Kind(FailureKind::Broken),
            message: error.to_string(),
        },
    }
}

/// BEGIN and COMMIT where the frame wants them, the statements between.
///
/// Whoever writes takes the write lock at once, so that no statement meets a newer state than the first one saw. COMMIT
/// of a transaction that only read leaves nothing open.
fn frame_statements(
    connection: &Connection,
    statements: &[Statement],
    frame: Frame,
    writes: bool,
    phase: &mut Phase,
) -> rusqlite::Result<Vec<Rows>> {
    *phase = Phase::Open;
    if matches!(frame, Frame::Auto | Frame::Begin | Frame::Whole) {
        connection.prepare_cached(if writes { "BEGIN IMMEDIATE" } else { "BEGIN DEFERRED" })?.execute([])?;
    }
    let rows =
        statements.iter().map(|statement| statement::run(connection, statement)).collect::<rusqlite::Result<_>>()?;
    if matches!(frame, Frame::Auto | Frame::Commit | Frame::Whole) {
        let mut commit = connection.prepare_cached("COMMIT")?;
        if writes {
            *phase = Phase::CommitSent;
        }
        commit.execute([])?;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use orbit_core::id::{GroupId, Incarnation, Run, Seq, Term};
    use orbit_core::store::append::*;
    use orbit_core::store::outcome::Failure;
    use orbit_core::store::statement::{PutWorker, WorkerRow};
    use orbit_core::time::ClusterMs;
    use tempfile::TempDir;
    use uuid::Uuid;

    fn session() -> (Session, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("orbit.db");
        let mut connection = connect::plain(&path).unwrap();
        crate::sqlite::schema::create(&mut connection).unwrap();
        (Session::new(Shared::new(path, Witness::default()), None), folder)
    }

    fn save(bytes: usize) -> Transaction {
        let worker = WorkerRow {
            worker_id: "w".into(),
            runtime: "x".repeat(bytes),
            sdk: None,
            contracts: Vec::new(),
            last_seen_ms: ClusterMs(1),
        };
        Transaction::SaveWorker(PutWorker { worker })
    }

    fn failed(reply: Reply<Verdict>) -> Failure {
        match reply {
            Reply::Failed(failure) => failure,
            other => panic!("{other:?}"),
        }
    }

    const SAVED: Reply<Verdict> = Reply::Done(Verdict::SaveWorker);

    #[test]
    fn a_full_disk_is_a_failure_that_changes_nothing_and_passes() {
        let (mut session, _folder) = session();
        assert_eq!(session.run(save(1)), SAVED);
        let limit = |session: &Session, pages: i64| {
            let connection = session.connection.as_ref().unwrap();
            connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
        };
        // As small as the file is.
        limit(&session, 1);
        let failure = failed(session.run(save(1 << 20)));
        assert_eq!(failure.kind, FailureKind::Unwritable, "{failure:?}");
        let Reply::Done(Verdict::Workers(rows)) = session.run(Transaction::Workers) else { panic!("no answer") };
        assert_eq!(rows[0].runtime, "x");
        limit(&session, 1 << 20);
        assert_eq!(session.run(save(1 << 20)), SAVED);
    }

    #[test]
    fn a_commit_that_sqlite_refuses_is_rolled_back_and_certain() {
        let (mut session, _folder) = session();
        assert_eq!(session.run(Transaction::Workers), Reply::Done(Verdict::Workers(Vec::new())));
        let connection = session.connection.as_ref().unwrap();
        // A reference that is checked at COMMIT and leads nowhere.
        let refuse = "CREATE TEMP TABLE parent (id PRIMARY KEY);
            CREATE TEMP TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
            CREATE TEMP TRIGGER refuse AFTER INSERT ON main.orbit_workers BEGIN INSERT INTO child VALUES (1); END;";
        connection.execute_batch(refuse).unwrap();
        let failure = failed(session.run(save(1)));
        assert_eq!((failure.kind, session.phase), (FailureKind::Data, Phase::CommitSent), "{failure:?}");
        let connection = session.connection.as_ref().expect("the connection is as good as before");
        assert!(connection.is_autocommit(), "the transaction is open still");
        connection.execute_batch("DROP TRIGGER temp.refuse").unwrap();
        assert_eq!(session.run(Transaction::Workers), Reply::Done(Verdict::Workers(Vec::new())));
        assert_eq!(session.run(save(1)), SAVED);
    }

    #[test]
    fn a_database_that_cannot_be_opened_fails_calls_until_it_can() {
        let (mut session, folder) = session();
        let (path, away) = (folder.path().join("orbit.db"), folder.path().join("away.db"));
        std::fs::rename(&path, &away).unwrap();
        std::fs::create_dir(&path).unwrap();
        let failure = failed(session.run(save(1)));
        assert_eq!((failure.kind, session.phase), (FailureKind::Unwritable, Phase::NotSent), "{failure:?}");
        std::fs::remove_dir(&path).unwrap();
        std::fs::rename(&away, &path).unwrap();
        assert_eq!(session.run(save(1)), SAVED);
    }

    #[test]
    fn a_mistake_of_ours_fails_its_own_transaction_and_no_other() {
        let (mut session, _folder) = session();
        assert_eq!(session.run(save(1)), SAVED);
        let fence = Fence { term: Term(0), incarnation: Incarnation(Uuid::nil()) };
        let event = |seq| StoredEvent { run: Run(1), seq: Seq(seq), at_ms: ClusterMs(0), bytes: Vec::new() };
        let member = |seq| Member {
            execution: "e".into(),
            expect: Expect::New { run: Run(1), root: "e".into() },
            events: vec![event(1), event(seq)],
            summary: None,
            owner: OwnerChange::End,
        };
        let append = |seq| {
            let group = Group { id: GroupId(Uuid::nil()), members: vec![member(seq)], tasks: Vec::new() };
            Transaction::Append(Append::under(fence, vec![group]))
        };
        // No column holds such a number, and no node counts so far.
        let failure = failed(session.run(append(u64::MAX)));
        assert_eq!((failure.kind, session.phase), (FailureKind::Broken, Phase::Open));
        assert!(failure.message.contains("`append` failed inside Orbit"), "{failure:?}");
        // The first event was undone with it, and others who write do not wait for ever.
        let written = Verdict::Append(vec![GroupOutcome::Written]);
        assert_eq!(session.run(append(2)), Reply::Done(written));
    }
}
