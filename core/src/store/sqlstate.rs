//! What PostgreSQL's five-character codes mean for a call (PostgreSQL, appendix A, "PostgreSQL Error Codes").
//!
//! Whether the call may have committed is not said here: that follows from the phase and the severity
//! ([`crate::store::outcome::judge`]). This says what to do next.

use crate::store::outcome::FailureKind;

/// What the append's statement raises where a group of several new executions met another's row half-way: a division by
/// zero, which nothing else in it can give.
pub const HALF_MET: &str = "22012";

/// What to do about an error of this code. A code that is not known here is for the operator.
pub fn kind(code: &str) -> FailureKind {
    use FailureKind::*;
    match code {
        // Serialisation, deadlock, a lock that was not free, a statement that took too long, an aborted transaction,
        // memory that ran out.
        "40001" | "40P01" | "55P03" | "57014" | "25P02" | "53200" => Retry,
        // A plan or a prepared statement of before a migration, or of another session behind a pooler; a session that
        // idled too long; too many connections.
        "0A000" | "26000" | "25P03" | "57P05" | "25P04" | "53300" => Reconnect,
        // Read-only, a full disk, other resources, input or output.
        "25006" | "53100" | "53000" | "53400" | "58030" => Unwritable,
        _ => match code.get(..2) {
            // Connection exceptions; the operator's shutdown, a crash, a server that starts.
            Some("08" | "57") => Reconnect,
            // The serialisation class.
            Some("40") => Retry,
            // Data exceptions, constraints, cardinality, program limits.
            Some("21" | "22" | "23" | "54") => Data,
            // Credentials, rights, missing tables, damage, bugs.
            _ => Broken,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::outcome::{Cause, Fact, Failure, Phase, Reply, Severity, judge};

    /// Every class that a server meets, with what is done about it.
    const TABLE: &[(&str, FailureKind, &str)] = &[
        ("08006", FailureKind::Reconnect, "connection failure"),
        ("0A000", FailureKind::Reconnect, "cached plan must not change result type"),
        ("21000", FailureKind::Data, "cardinality violation"),
        ("22003", FailureKind::Data, "numeric value out of range"),
        ("22021", FailureKind::Data, "character not in repertoire"),
        ("22P02", FailureKind::Data, "invalid text representation"),
        ("22P05", FailureKind::Data, "untranslatable character"),
        ("23505", FailureKind::Data, "unique violation"),
        ("23514", FailureKind::Data, "check violation"),
        ("25006", FailureKind::Unwritable, "read-only transaction"),
        ("25P02", FailureKind::Retry, "in failed transaction"),
        ("25P03", FailureKind::Reconnect, "idle in transaction"),
        ("25P04", FailureKind::Reconnect, "transaction time-out"),
        ("26000", FailureKind::Reconnect, "no such prepared statement"),
        ("28P01", FailureKind::Broken, "wrong password"),
        ("3D000", FailureKind::Broken, "no such database"),
        ("40001", FailureKind::Retry, "serialisation failure"),
        ("40003", FailureKind::Retry, "statement completion unknown"),
        ("40P01", FailureKind::Retry, "deadlock"),
        ("42501", FailureKind::Broken, "insufficient privilege"),
        ("42P01", FailureKind::Broken, "no such table"),
        ("53100", FailureKind::Unwritable, "disk full"),
        ("53200", FailureKind::Retry, "out of memory"),
        ("53300", FailureKind::Reconnect, "too many connections"),
        ("54000", FailureKind::Data, "program limit exceeded"),
        ("55P03", FailureKind::Retry, "lock not available"),
        ("57014", FailureKind::Retry, "query cancelled"),
        ("57P01", FailureKind::Reconnect, "terminated by the administrator"),
        ("57P02", FailureKind::Reconnect, "crash shutdown"),
        ("57P03", FailureKind::Reconnect, "the database is starting up"),
        ("57P05", FailureKind::Reconnect, "idle session"),
        ("58030", FailureKind::Unwritable, "input or output error"),
        ("XX001", FailureKind::Broken, "data corrupted"),
        ("", FailureKind::Broken, "no code at all"),
    ];

    #[test]
    fn each_phase_severity_and_code_has_its_outcome() {
        for (code, expected, what) in TABLE {
            for phase in [Phase::NotSent, Phase::Open, Phase::CommitSent] {
                for severity in [Some(Severity::Error), Some(Severity::Fatal), Some(Severity::Warning), None] {
                    let cause = Cause::SqlState((*code).into());
                    let reply: Reply<()> = judge(Fact { phase, severity, cause, message: (*what).into() });
                    // Once COMMIT is out, only the database's own ERROR says that nothing was committed.
                    let certain = phase != Phase::CommitSent || severity == Some(Severity::Error);
                    let failed = Reply::Failed(Failure { kind: *expected, message: (*what).into() });
                    let outcome = if certain { failed } else { Reply::Unknown };
                    assert_eq!(reply, outcome, "{code} ({what}) in {phase:?} with {severity:?}");
                }
            }
        }
    }
}
