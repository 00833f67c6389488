//! From facts to outcomes (design, section 5; protocols, 2).
//!
//! A backend reports what it saw and judges nothing; [`judge`] makes it `Done`, `Failed` or `Unknown`. `Unknown` is a
//! state of the core, never a guess.

use crate::store::sqlstate;
use serde::{Deserialize, Serialize};

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply<V> {
    /// It committed, or was rolled back because its own condition did not hold: the verdict says which.
    Done(V),
    /// It certainly did not commit.
    Failed(Failure),
    /// It may have committed, or may commit still.
    Unknown,
}

/// A transaction that certainly did not commit, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    /// The database's own words.
    pub message: String,
}

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// The same again may succeed (busy, deadlock victim, serialisation).
    Retry,
    /// The connection is gone; open another.
    Reconnect,
    /// The database cannot be written now (disk full, read-only); it may become writable again.
    Unwritable,
    /// The database refuses the data; the same again will fail again.
    Data,
    /// Anything else (damaged file, missing table): for the operator.
    Broken,
}

/// How far a call had got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It was never handed to the database.
    NotSent,
    /// Statements ran; COMMIT was not sent.
    Open,
    /// COMMIT was sent (or a single statement that carries its own), and its end was not seen.
    CommitSent,
}

/// How bad the database says that it is. SQLite reports [`Severity::Error`] where the transaction is known to be
/// rolled back, and [`Severity::Fatal`] where the state of its file is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Severity {
    /// COMMIT was answered, with a warning that it did not wait for a synchronous replica (postgres-rules, R26).
    Warning,
    /// The statement failed, and its transaction with it.
    Error,
    /// FATAL or PANIC: the session ends. A backend that is terminated while it waits for a synchronous replica says so
    /// of a transaction that *is* committed.
    Fatal,
}

/// What the database says is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// In the backend's own mapping (SQLite, and what fails before a database is asked).
    Kind(FailureKind),
    /// PostgreSQL's code; see [`sqlstate::kind`].
    SqlState(String),
    /// The connection ended, or none could be opened, without a code.
    Closed,
}

impl Cause {
    /// What to do about it.
    pub fn kind(&self) -> FailureKind {
        match self {
            Cause::Kind(kind) => *kind,
            Cause::SqlState(code) => sqlstate::kind(code),
            Cause::Closed => FailureKind::Reconnect,
        }
    }
}

/// What a backend saw when a call did not end well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    pub phase: Phase,
    /// None where the connection just ended.
    pub severity: Option<Severity>,
    /// What the database's own code says.
    pub cause: Cause,
    pub message: String,
}

/// The judgement: `Failed` only where the transaction certainly did not commit.
pub fn judge<V>(fact: Fact) -> Reply<V> {
    let certain = match (fact.phase, fact.severity) {
        (Phase::NotSent | Phase::Open, _) => true,
        (Phase::CommitSent, Some(Severity::Error)) => true,
        (Phase::CommitSent, Some(Severity::Warning | Severity::Fatal) | None) => false,
    };
    if certain { Reply::Failed(Failure { kind: fact.cause.kind(), message: fact.message }) } else { Reply::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(phase: Phase, severity: Option<Severity>) -> Reply<()> {
        judge(Fact { phase, severity, cause: Cause::Closed, message: String::new() })
    }

    #[test]
    fn only_an_error_reported_by_the_database_makes_a_sent_commit_certain() {
        for phase in [Phase::NotSent, Phase::Open] {
            for severity in [None, Some(Severity::Error), Some(Severity::Fatal)] {
                assert!(matches!(fact(phase, severity), Reply::Failed(_)), "{phase:?} {severity:?}");
            }
        }
        assert!(matches!(fact(Phase::CommitSent, Some(Severity::Error)), Reply::Failed(_)));
        assert_eq!(fact(Phase::CommitSent, Some(Severity::Fatal)), Reply::Unknown);
        assert_eq!(fact(Phase::CommitSent, None), Reply::Unknown);
    }
}
