//! What a statement or a session ends with when it does not end well: PostgreSQL's codes, and how bad they are.

use serde::Serialize;
use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// A SQLSTATE that the model can answer with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Code { $($(#[$doc])* #[serde(rename = $text)] $name),+ }
        impl Code {
            /// All of them.
            pub const ALL: &[Code] = &[$(Code::$name),+];
            /// Its five letters.
            pub fn as_str(self) -> &'static str { match self { $(Code::$name => $text),+ } }
        }
    };
}

codes! {
    DivisionByZero = "22012",
    UniqueViolation = "23505",
    ActiveTransaction = "25001",
    ReadOnly = "25006",
    FailedTransaction = "25P02",
    IdleInTransaction = "25P03",
    Deadlock = "40P01",
    DiskFull = "53100",
    TooManyConnections = "53300",
    LockNotAvailable = "55P03",
    QueryCanceled = "57014",
    AdminShutdown = "57P01",
    CannotConnectNow = "57P03",
    IdleSession = "57P05",
    ConnectionLost = "08006",
    /// What a statement raises by itself: the append's guard.
    Raised = "22P02",
}

/// How bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Severity {
    /// The transaction is rolled back; the session goes on.
    Error,
    /// The session ends.
    Fatal,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SqlError {
    pub severity: Severity,
    /// None where the connection just ended: nobody was left to say why.
    pub code: Option<Code>,
}

impl SqlError {
    /// An error that ends the transaction.
    pub const fn error(code: Code) -> SqlError {
        SqlError { severity: Severity::Error, code: Some(code) }
    }

    /// An error that ends the session.
    pub const fn fatal(code: Code) -> SqlError {
        SqlError { severity: Severity::Fatal, code: Some(code) }
    }

    /// The connection ended without a word.
    pub const CLOSED: SqlError = SqlError { severity: Severity::Fatal, code: None };
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.map_or("closed", Code::as_str))
    }
}

/// Why a statement does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It waits; it is resumed, and asks again for the same.
    Waits,
    Fails(SqlError),
}

impl Stop {
    /// An error that ends the transaction.
    pub const fn error(code: Code) -> Stop {
        Stop::Fails(SqlError::error(code))
    }
}
