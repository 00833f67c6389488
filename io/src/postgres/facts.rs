//! What an error of PostgreSQL says: facts for `orbit_core::store::outcome`, which judges them.

use ::postgres::Error;
use ::postgres::error::Severity as Said;
use orbit_core::store::outcome::{Cause, Fact, FailureKind, Phase, Severity};
use std::error::Error as _;

/// The facts of an error that came in `phase`.
pub fn fact(error: &Error, phase: Phase) -> Fact {
    let message = message(error);
    match error.as_db_error() {
        Some(said) => {
            let severity = match said.parsed_severity() {
                Some(Said::Fatal | Said::Panic) => Severity::Fatal,
                Some(_) => Severity::Error,
                // A pooler that answers in the server's place names the severity in words alone.
                None if matches!(said.severity(), "FATAL" | "PANIC") => Severity::Fatal,
                None => Severity::Error,
            };
            Fact { phase, severity: Some(severity), cause: Cause::SqlState(said.code().code().into()), message }
        }
        None if is_ours(error) => Fact { phase, severity: None, cause: Cause::Kind(FailureKind::Broken), message },
        None => Fact { phase, severity: None, cause: Cause::Closed, message },
    }
}

/// Whether the crate refused a value of ours, or could not read one of the database's. The crate tells it in words
/// alone.
fn is_ours(error: &Error) -> bool {
    let text = error.to_string();
    text.starts_with("error serializing") || text.starts_with("error deserializing")
}

/// Whether the session that a fact came from is better replaced: it is gone, or what it has prepared is of no use any
/// more, or the server is none that can be written.
pub(super) fn ends_session(fact: &Fact) -> bool {
    fact.severity != Some(Severity::Error)
        || fact.cause.kind() == FailureKind::Reconnect
        || matches!(&fact.cause, Cause::SqlState(code) if code == "25006")
}

/// What an error says, with its cause; without values, which may be somebody's data.
pub fn message(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        let hint = said.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        return format!("{}{hint} [{}]", said.message(), said.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text.push_str(&format!(": {more}"));
        }
        cause = error.source();
    }
    text
}
