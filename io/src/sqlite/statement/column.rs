//! Columns to the core's types and back. A column that does not read is damage: an error, never a default.

use orbit_core::store::append::Status;
use rusqlite::types::Type;
use rusqlite::{Error, Result, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

/// A name or an id.
pub fn text<T: for<'a> From<&'a str>>(row: &Row<'_>, index: usize) -> Result<T> {
    Ok(T::from(row.get_ref(index)?.as_str()?))
}

/// A name or an id, or NULL.
pub fn text_or_null<T: for<'a> From<&'a str>>(row: &Row<'_>, index: usize) -> Result<Option<T>> {
    Ok(row.get_ref(index)?.as_str_or_null()?.map(|text| T::from(text)))
}

/// A number that is never negative.
pub fn number<T: TryFrom<i64>>(row: &Row<'_>, index: usize) -> Result<T> {
    let value = row.get(index)?;
    T::try_from(value).map_err(|_| Error::IntegralValueOutOfRange(index, value))
}

/// Sixteen bytes.
pub fn uuid(row: &Row<'_>, index: usize) -> Result<Uuid> {
    Ok(Uuid::from_bytes(row.get(index)?))
}

/// A status, by its text.
pub fn status(row: &Row<'_>, index: usize) -> Result<Status> {
    let text = row.get_ref(index)?.as_str()?;
    Status::parse(text).ok_or_else(|| damaged(index, Type::Text, format!("{text:?} is no status")))
}

/// What was stored with [`to_json`].
pub fn json<T: DeserializeOwned>(row: &Row<'_>, index: usize) -> Result<T> {
    serde_json::from_str(row.get_ref(index)?.as_str()?).map_err(|error| damaged(index, Type::Text, error))
}

/// JSON text, for what is read whole and never searched.
pub fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("maps with text keys write to memory")
}

/// A number for a column. Sequence numbers, terms and epochs count events, and do not reach 2^63.
pub fn int(number: u64) -> i64 {
    i64::try_from(number).expect("a count of events stays below 2^63")
}

fn damaged(index: usize, kind: Type, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::FromSqlConversionFailure(index, kind, error.into())
}
