//! What an error of SQLite says: facts for `orbit_core::store::outcome`, which judges them.

use orbit_core::store::outcome::{Cause, Fact, FailureKind, Phase, Severity};
use rusqlite::ErrorCode;

/// The facts of an error that came in `phase`.
///
/// Before COMMIT every error is certain: what is still open is rolled back. At COMMIT only those are that SQLite
/// reports before it writes. After the others (input or output, a full disk) the end of the log may or may not hold a
/// whole transaction, and a process that dies now would find out at its next start.
pub fn fact(error: &rusqlite::Error, phase: Phase) -> Fact {
    let severity = if phase != Phase::CommitSent || is_refusal(error) { Severity::Error } else { Severity::Fatal };
    Fact { phase, severity: Some(severity), cause: Cause::Kind(kind(error)), message: error.to_string() }
}

/// What to do about an error.
pub fn kind(error: &rusqlite::Error) -> FailureKind {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::SchemaChanged
            | ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted
            | ErrorCode::OutOfMemory,
        ) => FailureKind::Retry,
        Some(
            ErrorCode::DiskFull
            | ErrorCode::ReadOnly
            | ErrorCode::CannotOpen
            | ErrorCode::SystemIoFailure
            | ErrorCode::PermissionDenied
            | ErrorCode::NoLargeFileSupport,
        ) => FailureKind::Unwritable,
        Some(ErrorCode::TooBig | ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch) => FailureKind::Data,
        // Damage, a missing table, misuse, and rows that do not read as what they should be.
        _ => FailureKind::Broken,
    }
}

/// Errors with which SQLite refuses a COMMIT before it writes anything.
fn is_refusal(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::TooBig
                | ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
        )
    )
}

/// Whether the connection that the error came on is better replaced.
pub(super) fn is_connections_end(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::CannotOpen
                | ErrorCode::ApiMisuse
                | ErrorCode::InternalMalfunction
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use orbit_core::store::outcome::{Reply, judge};
    use rusqlite::ffi;

    fn error(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn each_code_of_sqlite_has_its_kind_and_its_certainty_at_commit() {
        use FailureKind::*;
        // (code, kind, whether a COMMIT that fails with it has certainly not committed)
        let table = [
            (ffi::SQLITE_BUSY, Retry, true),
            (ffi::SQLITE_BUSY_SNAPSHOT, Retry, true),
            (ffi::SQLITE_LOCKED, Retry, true),
            (ffi::SQLITE_PROTOCOL, Retry, false),
            (ffi::SQLITE_SCHEMA, Retry, false),
            (ffi::SQLITE_INTERRUPT, Retry, false),
            (ffi::SQLITE_ABORT, Retry, false),
            (ffi::SQLITE_NOMEM, Retry, false),
            (ffi::SQLITE_FULL, Unwritable, false),
            (ffi::SQLITE_READONLY, Unwritable, false),
            (ffi::SQLITE_READONLY_DBMOVED, Unwritable, false),
            (ffi::SQLITE_CANTOPEN, Unwritable, false),
            (ffi::SQLITE_IOERR, Unwritable, false),
            (ffi::SQLITE_IOERR_FSYNC, Unwritable, false),
            (ffi::SQLITE_PERM, Unwritable, false),
            (ffi::SQLITE_NOLFS, Unwritable, false),
            (ffi::SQLITE_TOOBIG, Data, true),
            (ffi::SQLITE_CONSTRAINT, Data, true),
            (ffi::SQLITE_CONSTRAINT_PRIMARYKEY, Data, true),
            (ffi::SQLITE_MISMATCH, Data, true),
            (ffi::SQLITE_CORRUPT, Broken, false),
            (ffi::SQLITE_NOTADB, Broken, false),
            (ffi::SQLITE_ERROR, Broken, false),
            (ffi::SQLITE_INTERNAL, Broken, false),
            (ffi::SQLITE_MISUSE, Broken, false),
            (ffi::SQLITE_AUTH, Broken, false),
        ];
        for (code, expected, certain) in table {
            let error = error(code);
            assert_eq!(kind(&error), expected, "{error}");
            for phase in [Phase::NotSent, Phase::Open] {
                let reply: Reply<()> = judge(fact(&error, phase));
                assert!(matches!(reply, Reply::Failed(f) if f.kind == expected), "{error} in {phase:?}");
            }
            let reply: Reply<()> = judge(fact(&error, Phase::CommitSent));
            assert_eq!(matches!(reply, Reply::Failed(_)), certain, "{error} at COMMIT");
            assert_eq!(reply == Reply::Unknown, !certain, "{error} at COMMIT");
        }
    }

    #[test]
    fn a_row_that_does_not_read_is_damage_and_not_the_callers_data() {
        let error = rusqlite::Error::IntegralValueOutOfRange(0, -1);
        assert_eq!(kind(&error), FailureKind::Broken);
    }
}
