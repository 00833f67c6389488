//! Reading the fields of a parsed body, with errors that name the place and say what would be right.

use orbit_core::api::{ApiError, ErrorCode};
use orbit_core::definition::{nearest, whole_number};
use orbit_core::id::{ExecutionId, SessionId, Token};
use serde_json::{Map, Value};
use std::fmt;
use uuid::Uuid;

/// A place in a body, such as `results[3].token`.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    Body,
    Field(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Body => Ok(()),
            Place::Field(Place::Body, name) => f.write_str(name),
            Place::Field(parent, name) => write!(f, "{parent}.{name}"),
            Place::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl Place<'_> {
    /// An INVALID_REQUEST about this place: `message` goes on from the place's name.
    pub fn invalid(&self, message: impl fmt::Display) -> ApiError {
        let path = self.to_string();
        let subject = if path.is_empty() { "the body".to_owned() } else { format!("`{path}`") };
        ApiError::new(ErrorCode::InvalidRequest, format!("{subject} {message}")).with("in", "body").with("path", path)
    }
}

/// What a value is, for errors: with its text where that is short.
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(text) if text.len() <= 40 => format!("{text:?}"),
        Value::String(_) => "a string".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}

/// The fields of an object, taken one by one. A field that is null counts as absent.
pub struct Fields<'a> {
    fields: Map<String, Value>,
    place: Place<'a>,
}

impl<'a> Fields<'a> {
    /// The fields of `value`, which must be an object that holds none but the `known` ones.
    pub fn of(value: Value, place: Place<'a>, known: &[&str]) -> Result<Fields<'a>, ApiError> {
        let Value::Object(fields) = value else {
            return Err(place.invalid(format_args!("must be a JSON object; it is {}", describe(&value))));
        };
        if let Some(unknown) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            let shown: String = unknown.chars().take(80).collect();
            let rest = match nearest(unknown, known.iter().copied()) {
                Some(near) => format!("; did you mean `{near}`?"),
                None if known.is_empty() => ", and none is expected".into(),
                None => format!("; the fields are {}", list_of(known)),
            };
            let place = Place::Field(&place, &shown);
            return Err(place.invalid(format_args!("is no known field{rest}")));
        }
        Ok(Fields { fields, place })
    }

    /// Whether a field is there and not null.
    pub fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|value| !value.is_null())
    }

    /// An INVALID_REQUEST about the whole object.
    pub fn invalid(&self, message: impl fmt::Display) -> ApiError {
        self.place.invalid(message)
    }

    /// A field that may be absent.
    pub fn optional<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(Value, Place<'_>) -> Result<T, ApiError>,
    ) -> Result<Option<T>, ApiError> {
        match self.fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value, Place::Field(&self.place, name)).map(Some),
        }
    }

    /// A field that must be there.
    pub fn required<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(Value, Place<'_>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        match self.optional(name, read)? {
            Some(value) => Ok(value),
            None => Err(Place::Field(&self.place, name).invalid("is missing")),
        }
    }

    /// A field that holds any value, null where it is absent.
    pub fn any(&mut self, name: &str) -> Value {
        self.fields.remove(name).unwrap_or(Value::Null)
    }
}

/// `a`, `b` and `c`, as errors list names.
pub fn list_of(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// What is wrong with a text that names something, if anything is: 1 to `max` bytes, no control characters.
pub fn name_problem(text: &str, max: usize) -> Option<String> {
    if text.is_empty() || text.len() > max {
        return Some(format!("must have 1 to {max} bytes; it has {}", text.len()));
    }
    text.chars()
        .find(|c| c.is_control())
        .map(|c| format!("must not contain control characters; it contains U+{:04X}", u32::from(c)))
}

/// A text of any content, of at most `max` bytes.
pub fn text(value: Value, place: Place<'_>, max: usize) -> Result<String, ApiError> {
    match value {
        Value::String(text) if text.len() <= max => Ok(text),
        Value::String(text) => Err(place.invalid(format_args!("must have at most {max} bytes; it has {}", text.len()))),
        other => Err(place.invalid(format_args!("must be a string; it is {}", describe(&other)))),
    }
}

/// A text that names something.
pub fn name(value: Value, place: Place<'_>, max: usize) -> Result<String, ApiError> {
    let text = text(value, place, usize::MAX)?;
    match name_problem(&text, max) {
        None => Ok(text),
        Some(problem) => Err(place.invalid(problem)),
    }
}

/// A whole number from `min` to `max`, however it is written (`5.0` too).
pub fn number(value: Value, place: Place<'_>, min: u64, max: u64) -> Result<u64, ApiError> {
    match whole_number(&value) {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(place.invalid(format_args!("must be a whole number from {min} to {max}; it is {}", describe(&value)))),
    }
}

/// True or false.
pub fn boolean(value: Value, place: Place<'_>) -> Result<bool, ApiError> {
    value.as_bool().ok_or_else(|| place.invalid(format_args!("must be true or false; it is {}", describe(&value))))
}

/// A list of at most `max` items, each read by `read`.
pub fn list<T>(
    value: Value,
    place: Place<'_>,
    max: usize,
    read: impl Fn(Value, Place<'_>) -> Result<T, ApiError>,
) -> Result<Vec<T>, ApiError> {
    match value {
        Value::Array(items) if items.len() <= max => {
            items.into_iter().enumerate().map(|(index, item)| read(item, Place::Item(&place, index))).collect()
        }
        Value::Array(items) => {
            Err(place.invalid(format_args!("must have at most {max} items; it has {}", items.len())))
        }
        other => Err(place.invalid(format_args!("must be a list; it is {}", describe(&other)))),
    }
}

/// The id of a worker session: a UUID in its hyphenated form.
pub fn session(value: Value, place: Place<'_>) -> Result<SessionId, ApiError> {
    let wrong = "must be the `session_id` that /v1/workers/register returned, a UUID with hyphens";
    match &value {
        Value::String(text) if text.len() == 36 => {
            Uuid::try_parse(text).map(SessionId).map_err(|_| place.invalid(wrong))
        }
        other => Err(place.invalid(format_args!("{wrong}; it is {}", describe(other)))),
    }
}

/// A task token, as a poll returned it.
pub fn token(value: Value, place: Place<'_>) -> Result<Token, ApiError> {
    let wrong = "must be a task token of the form <execution id>/<uuid>, as a poll returned it";
    match &value {
        Value::String(text) => match text.parse::<Token>() {
            Ok(token) if execution_id_problem(token.execution.as_str()).is_none() => Ok(token),
            _ => Err(place.invalid(format_args!("{wrong}; it is {}", describe(&value)))),
        },
        other => Err(place.invalid(format_args!("{wrong}; it is {}", describe(other)))),
    }
}

/// The longest id of an execution that may exist, in bytes.
pub const MAX_EXECUTION_ID: usize = 1024;

/// What [`execution_id_problem`] accepts, as a regular expression; [`MAX_EXECUTION_ID`] holds besides.
pub const EXECUTION_ID: &str = r"([A-Za-z0-9._:@+-]{1,255}|[A-Za-z0-9._:@+\[\]-]*~[A-Za-z0-9._:@+~\[\]-]*)";

/// What is wrong with the id of an execution that may exist, if anything is.
///
/// Besides the ids that clients choose there are those of children, made of the parent's, `~` and the step's unit
/// (interfaces, "HTTP"), which may be longer.
pub fn execution_id_problem(id: &str) -> Option<String> {
    if !id.contains('~') {
        return ExecutionId::from_client(id).err().map(|problem| format!("is no execution id: {problem}"));
    }
    if id.len() > MAX_EXECUTION_ID {
        let problem = format!("is no execution id: it has {} bytes and the longest has {MAX_EXECUTION_ID}", id.len());
        return Some(problem);
    }
    id.chars()
        .find(|c| !(c.is_ascii_alphanumeric() || "._:@+-~[]".contains(*c)))
        .map(|c| format!("is no execution id: it holds {c:?}, and ids hold only A-Z a-z 0-9 . _ : @ + - ~ [ ]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Result<Fields<'static>, ApiError> {
        Fields::of(value, Place::Body, &["session_id", "max_tasks"])
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_nearest_known_name() {
        let error = read(json!({"max_task": 1})).err().unwrap();
        assert_eq!(error.message, "`max_task` is no known field; did you mean `max_tasks`?");
        assert_eq!(error.details["path"], "max_task");
        let error = read(json!({"zebra": 1})).err().unwrap();
        assert_eq!(error.message, "`zebra` is no known field; the fields are `session_id`, `max_tasks`");
    }

    #[test]
    fn the_body_must_be_an_object() {
        assert_eq!(read(json!([1])).err().unwrap().message, "the body must be a JSON object; it is a list");
    }

    #[test]
    fn a_missing_field_and_a_null_one_are_the_same() {
        for body in [json!({}), json!({"session_id": null})] {
            let mut fields = read(body).ok().unwrap();
            assert_eq!(fields.optional("session_id", session).unwrap(), None);
            assert_eq!(fields.required("session_id", session).unwrap_err().message, "`session_id` is missing");
        }
    }

    #[test]
    fn numbers_are_whole_and_bounded() {
        let place = Place::Field(&Place::Body, "limit");
        assert_eq!(number(json!(7), place, 1, 10).unwrap(), 7);
        assert_eq!(number(json!(7.0), place, 1, 10).unwrap(), 7);
        for bad in [json!(0), json!(11), json!(-1), json!(1.5), json!("5"), json!(true)] {
            let error = number(bad, place, 1, 10).unwrap_err();
            assert!(error.message.starts_with("`limit` must be a whole number from 1 to 10; it is "), "{error:?}");
        }
    }

    #[test]
    fn names_have_no_control_characters_and_a_bounded_length() {
        let place = Place::Field(&Place::Body, "worker_id");
        assert_eq!(name(json!("wörker 1"), place, 20).unwrap(), "wörker 1");
        for bad in [json!(""), json!("a\0b"), json!("a\nb"), json!("x".repeat(21)), json!(5)] {
            assert_eq!(name(bad, place, 20).unwrap_err().details["path"], "worker_id");
        }
    }

    #[test]
    fn a_place_names_fields_and_items() {
        let results = Place::Field(&Place::Body, "results");
        let item = Place::Item(&results, 3);
        assert_eq!(Place::Field(&item, "token").to_string(), "results[3].token");
    }

    #[test]
    fn a_token_names_an_execution_that_may_exist() {
        let place = Place::Field(&Place::Body, "token");
        let uuid = "00000000-0000-0000-0000-000000000007";
        for good in ["a", "parent~step", "parent~each[3]~pay"] {
            assert_eq!(token(json!(format!("{good}/{uuid}")), place).unwrap().execution.as_str(), good);
        }
        for bad in ["", "a b", "a\0", "a/b", "é", "a[0]"] {
            assert!(token(json!(format!("{bad}/{uuid}")), place).is_err(), "{bad:?}");
        }
        assert!(token(json!(format!("{}~x/{uuid}", "a".repeat(2000))), place).is_err());
        assert!(token(json!("a"), place).is_err());
        assert!(token(json!(1), place).is_err());
    }

    #[test]
    fn a_session_id_has_one_spelling() {
        let place = Place::Field(&Place::Body, "session_id");
        assert!(session(json!("00000000-0000-0000-0000-000000000007"), place).is_ok());
        for bad in [json!("00000000000000000000000000000007"), json!("x".repeat(36)), json!(7)] {
            assert!(session(bad, place).unwrap_err().message.contains("/v1/workers/register"));
        }
    }
}
