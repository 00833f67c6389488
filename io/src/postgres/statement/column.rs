//! Columns to the core's types and back. A column that does not read is damage: an error, never a default.

use crate::postgres::statement::Trouble;
use ::postgres::Row;
use ::postgres::types::FromSql;
use orbit_core::store::append::{Status, TaskState};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

type Result<T> = std::result::Result<T, Trouble>;

/// A column of a type that the crate reads.
pub fn get<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T> {
    row.try_get(index).map_err(|error| damaged(index, error))
}

/// A name or an id.
pub fn text<T: for<'a> From<&'a str>>(row: &Row, index: usize) -> Result<T> {
    Ok(T::from(get::<&str>(row, index)?))
}

/// A name or an id, or NULL.
pub fn text_or_null<T: for<'a> From<&'a str>>(row: &Row, index: usize) -> Result<Option<T>> {
    Ok(get::<Option<&str>>(row, index)?.map(|text| T::from(text)))
}

/// A number that is never negative.
pub fn number<T: TryFrom<i64>>(row: &Row, index: usize) -> Result<T> {
    let value: i64 = get(row, index)?;
    T::try_from(value).map_err(|_| damaged(index, format!("{value} is out of range")))
}

/// Sixteen bytes.
pub fn uuid(row: &Row, index: usize) -> Result<Uuid> {
    get(row, index)
}

/// A status, by its text.
pub fn status(row: &Row, index: usize) -> Result<Status> {
    let text: &str = get(row, index)?;
    Status::parse(text).ok_or_else(|| damaged(index, format!("{text:?} is no status")))
}

/// The state of a task, by its token: that of a claimed row is there, that of a queued one is not.
pub fn task_state(row: &Row, index: usize) -> Result<TaskState> {
    Ok(match get(row, index)? {
        Some(token) => TaskState::Claimed { token },
        None => TaskState::Queued,
    })
}

/// The token of a task in this state.
pub fn token_of(state: &TaskState) -> Option<Uuid> {
    match state {
        TaskState::Queued => None,
        TaskState::Claimed { token } => Some(*token),
    }
}

/// What was stored with [`to_json`].
pub fn json<T: DeserializeOwned>(row: &Row, index: usize) -> Result<T> {
    serde_json::from_str(get(row, index)?).map_err(|error| damaged(index, error))
}

/// JSON text, for what is read whole and never searched. It escapes the one character that text cannot hold.
pub fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("maps with text keys write to memory")
}

/// A number for a column. Sequence numbers, terms and epochs count events, and do not reach 2^63.
pub fn int(number: u64) -> i64 {
    i64::try_from(number).expect("a count of events stays below 2^63")
}

fn damaged(index: usize, error: impl std::fmt::Display) -> Trouble {
    Trouble::Damaged(format!("column {} of a row does not read: {error}", index + 1))
}
