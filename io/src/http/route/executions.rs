//! `/v1/executions`: starts, reads, waits, signals and updates, cancels.

use super::{MAX_NAME, Payloads};
use crate::http::fields::{Fields, Place, name, name_problem, text};
use crate::http::json;
use crate::http::url::{self, Query};
use orbit_core::api::request::{ListExecutions, Message, Start};
use orbit_core::api::{ApiError, Request};
use orbit_core::definition::nearest;
use orbit_core::execution::event::Labels;
use orbit_core::id::{ExecutionId, Run, Seq, SignalName, Version, WorkflowName};
use orbit_core::store::append::Status;
use orbit_core::time::ClusterMs;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Labels of one execution, and parameters of one query.
pub const MAX_LABELS: usize = 32;
pub const MAX_LABEL_KEY: usize = 64;
pub const MAX_LABEL_VALUE: usize = 255;
pub const MAX_REASON: usize = 4096;
pub const MAX_CURSOR: usize = 2048;
/// Bytes of a `signal_id` or `update_id`.
pub const MAX_MESSAGE_ID: usize = 255;

/// Executions of a page, without `limit` and at most.
pub const LIST_LIMIT: u32 = 100;
pub const MAX_LIST_LIMIT: u32 = 1000;

/// Events of a page, and their bytes, without the parameters and at most.
pub const HISTORY_LIMIT: u32 = 1000;
pub const HISTORY_BYTES: u32 = 4 << 20;
pub const MIN_HISTORY_BYTES: u32 = 1024;
pub const MAX_HISTORY_BYTES: u32 = 16 << 20;

/// The longest wait, which is also what a wait without `timeout_ms` asks for.
pub const MAX_WAIT_MS: u64 = 300_000;

/// POST `/v1/executions`
pub fn start(body: Value, payloads: &Payloads) -> Result<Request, ApiError> {
    let mut fields = Fields::of(body, Place::Body, &["workflow", "version", "execution_id", "input", "labels"])?;
    Ok(Request::Start(Start {
        workflow: WorkflowName::new(fields.required("workflow", |value, place| name(value, place, MAX_NAME))?),
        version: fields.optional("version", |value, place| name(value, place, MAX_NAME))?.map(Version::new),
        execution_id: fields.optional("execution_id", client_id)?,
        input: Arc::new(payloads.take(&mut fields, Place::Body, "input")?),
        labels: fields.optional("labels", labels)?.unwrap_or_default(),
    }))
}

fn client_id(value: Value, place: Place<'_>) -> Result<ExecutionId, ApiError> {
    let id = text(value, place, usize::MAX)?;
    ExecutionId::from_client(&id).map_err(|problem| place.invalid(format_args!("is no execution id: {problem}")))
}

fn labels(value: Value, place: Place<'_>) -> Result<Labels, ApiError> {
    let Value::Object(given) = value else {
        return Err(place.invalid("must be an object of strings, such as {\"team\":\"payments\"}"));
    };
    if given.len() > MAX_LABELS {
        return Err(place.invalid(format_args!("has {} labels; the most is {MAX_LABELS}", given.len())));
    }
    let mut labels = Labels::new();
    for (key, value) in given {
        if let Some(problem) = label_key_problem(&key) {
            let shown: String = key.chars().take(80).collect();
            return Err(Place::Field(&place, &shown).invalid(problem));
        }
        let value = text(value, Place::Field(&place, &key), MAX_LABEL_VALUE)?;
        if !value.is_empty()
            && let Some(problem) = name_problem(&value, MAX_LABEL_VALUE)
        {
            return Err(Place::Field(&place, &key).invalid(problem));
        }
        labels.insert(key, value);
    }
    Ok(labels)
}

fn label_key_problem(key: &str) -> Option<String> {
    let fits = (1..=MAX_LABEL_KEY).contains(&key.len());
    let allowed = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte));
    (!fits || !allowed)
        .then(|| format!("is no label key: a key has 1 to {MAX_LABEL_KEY} of the characters A-Z a-z 0-9 . _ / -"))
}

/// GET `/v1/executions`
pub fn list(query: Option<&str>) -> Result<Request, ApiError> {
    let known = ["status", "workflow", "label", "since", "limit", "cursor"];
    let mut query = Query::parse(query, &known, &["label"])?;
    let status = match query.take("status") {
        None => None,
        Some(text) => Some(Status::parse(&text).ok_or_else(|| {
            let all: Vec<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
            let meant = nearest(&text, all.iter().copied()).map(|meant| format!("; did you mean `{meant}`?"));
            let meant = meant.unwrap_or_default();
            url::invalid("query", "status", format_args!("is no status; the statuses are {}{meant}", all.join(", ")))
        })?),
    };
    let workflow = match query.take("workflow") {
        None => None,
        Some(text) => match name_problem(&text, MAX_NAME) {
            Some(problem) => return Err(url::invalid("query", "workflow", problem)),
            None => Some(WorkflowName::new(text.as_ref())),
        },
    };
    let (mut labels, mut given) = (Labels::new(), 0);
    while let Some(text) = query.take("label") {
        let Some((key, value)) = text.split_once('=') else {
            return Err(url::invalid("query", "label", "must have the form label=<key>=<value>"));
        };
        if let Some(problem) = label_key_problem(key) {
            return Err(url::invalid("query", "label", problem));
        }
        given += 1;
        if given > MAX_LABELS {
            return Err(url::invalid("query", "label", format_args!("stands more than {MAX_LABELS} times")));
        }
        if labels.insert(key.to_owned(), value.to_owned()).is_some_and(|before| before != value) {
            return Err(url::invalid(
                "query",
                "label",
                format_args!("names two values of {key}, and no execution has both"),
            ));
        }
    }
    let since = query.number("since", 0, i64::MAX.unsigned_abs())?;
    let cursor = match query.take("cursor") {
        None => None,
        Some(text) => match name_problem(&text, MAX_CURSOR) {
            Some(_) => return Err(url::invalid("query", "cursor", "must be the `next_cursor` of the page before")),
            None => Some(text.into_owned()),
        },
    };
    Ok(Request::ListExecutions(ListExecutions {
        status,
        workflow,
        labels,
        since: since.map(|ms| ClusterMs(i64::try_from(ms).expect("bounded by i64::MAX just above"))),
        limit: small(&mut query, "limit", 1, MAX_LIST_LIMIT)?.unwrap_or(LIST_LIMIT),
        cursor,
    }))
}

/// GET `/v1/executions/{id}/history`
pub fn history(execution: ExecutionId, query: Option<&str>) -> Result<Request, ApiError> {
    let mut query = Query::parse(query, &["run", "after_seq", "limit", "max_bytes"], &[])?;
    Ok(Request::GetHistory {
        execution,
        run: small(&mut query, "run", 1, u32::MAX)?.map(Run),
        // Bounded by what the databases store.
        after: Seq(query.number("after_seq", 0, i64::MAX.unsigned_abs())?.unwrap_or(0)),
        limit: small(&mut query, "limit", 1, HISTORY_LIMIT)?.unwrap_or(HISTORY_LIMIT),
        max_bytes: small(&mut query, "max_bytes", MIN_HISTORY_BYTES, MAX_HISTORY_BYTES)?.unwrap_or(HISTORY_BYTES),
    })
}

/// GET `/v1/executions/{id}/wait`
pub fn wait(execution: ExecutionId, query: Option<&str>) -> Result<Request, ApiError> {
    let mut query = Query::parse(query, &["timeout_ms"], &[])?;
    let timeout = query.number("timeout_ms", 0, MAX_WAIT_MS)?.unwrap_or(MAX_WAIT_MS);
    Ok(Request::Wait { execution, timeout: Duration::from_millis(timeout) })
}

/// What a cancel or a terminate brings: perhaps why. The body may be empty.
pub fn reason(body: &[u8]) -> Result<Option<String>, ApiError> {
    if body.is_empty() {
        return Ok(None);
    }
    let mut fields = Fields::of(json::parse(body)?, Place::Body, &["reason"])?;
    fields.optional("reason", |value, place| without_nul(text(value, place, MAX_REASON)?, place))
}

/// A body that brings nothing. It may be empty.
pub fn nothing(body: &[u8]) -> Result<(), ApiError> {
    if !body.is_empty() {
        Fields::of(json::parse(body)?, Place::Body, &[])?;
    }
    Ok(())
}

/// What a signal or an update brings: `payload`, and its id in the field `key`. The body may be empty.
pub fn message(name: SignalName, key: &str, body: &[u8], payloads: &Payloads) -> Result<Message, ApiError> {
    if body.is_empty() {
        return Ok(Message { name, payload: Arc::new(Value::Null), key: None });
    }
    let mut fields = Fields::of(json::parse(body)?, Place::Body, &["payload", key])?;
    Ok(Message {
        name,
        payload: Arc::new(payloads.take(&mut fields, Place::Body, "payload")?),
        key: fields.optional(key, message_id)?,
    })
}

fn message_id(value: Value, place: Place<'_>) -> Result<String, ApiError> {
    let id = text(value, place, usize::MAX)?;
    if id.is_empty() || id.len() > MAX_MESSAGE_ID {
        return Err(place.invalid(format_args!("must have 1 to {MAX_MESSAGE_ID} bytes; it has {}", id.len())));
    }
    without_nul(id, place)
}

fn without_nul(text: String, place: Place<'_>) -> Result<String, ApiError> {
    if text.contains('\0') { Err(place.invalid("must not contain U+0000")) } else { Ok(text) }
}

fn small(query: &mut Query<'_>, name: &str, min: u32, max: u32) -> Result<Option<u32>, ApiError> {
    let number = query.number(name, min.into(), max.into())?;
    Ok(number.map(|number| u32::try_from(number).expect("bounded by a u32 just above")))
}
