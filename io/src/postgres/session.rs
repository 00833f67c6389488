//! One connection that runs transactions, one at a time.

use crate::postgres::connect::{Connector, Role};
use crate::postgres::facts;
use crate::postgres::figures::{self, DatabaseFigures};
use crate::postgres::statement::{self, Link, Trouble};
use orbit_core::mutant::NoMutants;
use orbit_core::store::executor::{Ask, Executor, Frame};
use orbit_core::store::origin::Origin;
use orbit_core::store::outcome::{self, Cause, Fact, FailureKind, Phase, Reply, Severity};
use orbit_core::store::transaction::{Transaction, Verdict};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A connection, opened when it is needed and replaced when it is of no use any more.
pub struct Session {
    connector: Connector,
    role: Role,
    link: Option<Link>,
    /// Where the next transaction is to run; anywhere without it.
    wanted: Option<Origin>,
    /// Where the last connection led.
    led_to: Option<Origin>,
    /// How far the transaction has got that runs or ran last.
    phase: Phase,
}

impl Session {
    /// Not connected yet.
    pub fn new(connector: Connector, role: Role) -> Session {
        Session { connector, role, link: None, wanted: None, led_to: None, phase: Phase::NotSent }
    }

    /// With a connection that is there already.
    pub fn with(connector: Connector, role: Role, link: Link) -> Session {
        let led_to = Some(link.origin);
        Session { connector, role, link: Some(link), wanted: None, led_to, phase: Phase::NotSent }
    }

    /// Where the transactions after this are to run: on no other timeline (protocols, 9). A connection that leads
    /// elsewhere is closed.
    pub fn aim(&mut self, wanted: Option<Origin>) {
        self.wanted = wanted;
    }

    /// Where the connection of the last transaction led, or the one that was refused for that.
    pub fn led_to(&self) -> Option<Origin> {
        self.led_to
    }

    /// Connects, if it is not connected. May hang for as long as the server does.
    pub fn connect(&mut self) -> Result<(), Fact> {
        let wanted = self.wanted;
        let is_elsewhere = |link: &Link| !link.origin.serves(wanted, &NoMutants);
        if self.link.as_ref().is_some_and(|link| link.is_closed() || is_elsewhere(link)) {
            self.link = None;
        }
        if self.link.is_none() {
            self.led_to = None;
            let link = Link::new(self.connector.open(self.role).map_err(|error| error.fact())?);
            self.led_to = Some(link.origin);
            if is_elsewhere(&link) {
                let (severity, cause) = (Some(Severity::Error), Cause::Kind(FailureKind::Reconnect));
                return Err(Fact { phase: Phase::NotSent, severity, cause, message: link.origin.refusal(wanted) });
            }
            self.link = Some(link);
        }
        Ok(())
    }

    /// Whether there is a connection that the next transaction may use.
    pub fn is_usable(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.is_closed())
    }

    /// What cancels the statement that runs, from another thread.
    pub fn cancel_token(&self) -> Option<::postgres::CancelToken> {
        self.link.as_ref().map(Link::cancel_token)
    }

    /// Reads what the metrics show of the database; none where that fails, which nothing depends on.
    pub fn figures(&mut self) -> Option<DatabaseFigures> {
        let link = self.link.as_mut()?;
        match figures::read_alone(link) {
            Ok(read) => Some(read),
            Err(trouble) => {
                self.phase = Phase::Open;
                let fact = self.fact(trouble);
                tracing::debug!(target: "orbit_runtime::store", error = %fact.message, "the figures of the database cannot be read");
                if facts::ends_session(&fact) || self.link.as_ref().is_some_and(Link::is_pooled) {
                    self.link = None;
                }
                None
            }
        }
    }

    /// Runs a transaction to its end.
    pub fn run(&mut self, transaction: Transaction) -> Reply<Verdict> {
        let name = transaction.name();
        self.phase = Phase::NotSent;
        catch_unwind(AssertUnwindSafe(|| self.execute(transaction))).unwrap_or_else(|_| {
            // A mistake of ours. Closing the connection rolls back what is open, and how far it had got is known.
            self.link = None;
            let message = format!("the transaction `{name}` failed inside Orbit; please report this");
            outcome::judge(Fact { phase: self.phase, severity: None, cause: Cause::Kind(FailureKind::Broken), message })
        })
    }

    fn execute(&mut self, transaction: Transaction) -> Reply<Verdict> {
        let name = transaction.name();
        let mut executor = Executor::new(transaction);
        let writes = executor.writes();
        loop {
            let reply = match executor.ask() {
                Ask::Rollback(verdict) => {
                    self.roll_back();
                    Some(Reply::Done(verdict))
                }
                Ask::Send(statements, frame) => {
                    let got = self.attempt(frame, writes, |link| {
                        statements.iter().map(|one| statement::run(link, one)).collect::<Result<_, _>>()
                    });
                    if let Err(fact) = &got {
                        let Fact { phase, severity, cause, message } = fact;
                        tracing::debug!(target: "orbit_runtime::store", call = name, ?phase, ?severity, ?cause, error = %message, "the database did not do it");
                    }
                    self.connector.witness.sees(&got);
                    executor.tell(got)
                }
            };
            if let Some(reply) = reply {
                return reply;
            }
        }
    }

    /// BEGIN and COMMIT where the frame wants them, and `run` between.
    fn attempt<T>(
        &mut self,
        frame: Frame,
        writes: bool,
        run: impl FnOnce(&mut Link) -> Result<T, Trouble>,
    ) -> Result<T, Fact> {
        if matches!(frame, Frame::Auto | Frame::Begin | Frame::Whole) {
            self.phase = Phase::NotSent;
            self.connect()?;
        }
        let pooled = self.link.as_ref().is_some_and(Link::is_pooled);
        let frame = if pooled && frame == Frame::Auto { Frame::Whole } else { frame };
        let Some(link) = self.link.as_mut() else {
            let message = "the connection ended between two statements of a transaction".into();
            return Err(Fact { phase: Phase::Open, severity: None, cause: Cause::Closed, message });
        };
        match framed(link, frame, writes, run, &mut self.phase) {
            Ok(rows) if writes && link.has_warned() && self.phase == Phase::CommitSent => {
                let message = "the commit was answered with a warning".into();
                drop(rows);
                Err(Fact {
                    phase: self.phase,
                    severity: Some(Severity::Warning),
                    cause: Cause::Kind(FailureKind::Retry),
                    message,
                })
            }
            Ok(rows) => Ok(rows),
            Err(trouble) => {
                let fact = self.fact(trouble);
                if facts::ends_session(&fact) {
                    self.link = None;
                } else if frame != Frame::Auto {
                    self.roll_back();
                }
                Err(fact)
            }
        }
    }

    fn fact(&self, trouble: Trouble) -> Fact {
        let phase = self.phase;
        let (severity, kind, message) = match trouble {
            Trouble::Postgres(error) => return facts::fact(&error, phase),
            Trouble::Damaged(message) => (None, FailureKind::Broken, message),
            Trouble::Standby => (None, FailureKind::Unwritable, "the server is in recovery".into()),
            Trouble::Again => (
                Some(Severity::Error),
                FailureKind::Retry,
                "another transaction came in between; the same again will see what it did".into(),
            ),
        };
        Fact { phase, severity, cause: Cause::Kind(kind), message }
    }

    /// Ends an open transaction; a connection that cannot is closed, which does.
    fn roll_back(&mut self) {
        if self.link.as_mut().is_some_and(|link| link.run("ROLLBACK").is_err()) {
            self.link = None;
        }
    }
}

fn framed<T>(
    link: &mut Link,
    frame: Frame,
    writes: bool,
    run: impl FnOnce(&mut Link) -> Result<T, Trouble>,
    phase: &mut Phase,
) -> Result<T, Trouble> {
    *phase = Phase::Open;
    if matches!(frame, Frame::Begin | Frame::Whole) {
        // What only reads sees one moment.
        link.begin(if writes { "BEGIN" } else { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" })?;
    }
    if frame == Frame::Auto && writes {
        // One statement carries its own commit.
        *phase = Phase::CommitSent;
    }
    let rows = run(link)?;
    // COMMIT is only sent when every statement before it went well: of a transaction that failed it would answer, without
    // an error, that it was rolled back (postgres-rules, R16).
    if matches!(frame, Frame::Commit | Frame::Whole) {
        if writes {
            *phase = Phase::CommitSent;
        }
        link.run("COMMIT")?;
    }
    Ok(rows)
}
