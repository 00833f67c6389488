//! `/v1/tasks`: results, one by one or in batches.

use super::{Payloads, Routed};
use crate::http::fields::{Fields, Place, boolean, list, name, session, text, token};
use orbit_core::api::request::{ReportForm, TaskOutcome, TaskResult};
use orbit_core::api::response::{Accepted, ResultOutcome};
use orbit_core::api::{ApiError, Request};
use orbit_core::execution::event::TaskError;
use serde_json::Value;
use std::sync::Arc;

pub const MAX_RESULTS: usize = 1000;
pub const MAX_CODE: usize = 128;

/// The results of a batch, and those refused by their place in it.
#[derive(Default)]
pub struct Batch {
    pub results: Vec<TaskResult>,
    pub refused: Vec<(usize, ResultOutcome)>,
}

/// POST `/v1/tasks/complete`
pub fn complete(body: Value, payloads: &Payloads) -> Result<Routed, ApiError> {
    report(body, "output", payloads, |fields| Ok(TaskOutcome::Succeeded(Arc::new(fields.any("output")))))
}

/// POST `/v1/tasks/fail`
pub fn fail(body: Value, payloads: &Payloads) -> Result<Routed, ApiError> {
    report(body, "error", payloads, |fields| Ok(TaskOutcome::Failed(fields.required("error", task_error)?)))
}

/// Either form: `{session_id, token, <own>}` or `{session_id, results}`.
fn report(
    body: Value,
    own: &str,
    payloads: &Payloads,
    outcome: impl FnOnce(&mut Fields<'_>) -> Result<TaskOutcome, ApiError>,
) -> Result<Routed, ApiError> {
    let mut fields = Fields::of(body, Place::Body, &["session_id", "token", own, "results"])?;
    let session = fields.required("session_id", session)?;
    if fields.has("results") {
        if fields.has("token") || fields.has(own) {
            return Err(
                fields.invalid(format_args!("holds `results` beside `token` or `{own}`; send one or the other"))
            );
        }
        let batch = fields.required("results", |value, place| batch(value, place, payloads))?;
        if batch.results.is_empty() && batch.refused.is_empty() {
            return Err(Place::Field(&Place::Body, "results").invalid("is empty; send one result at least"));
        }
        let request = Request::Report { session, results: batch.results, form: ReportForm::Batch };
        return Ok(Routed { refused: batch.refused, ..request.into() });
    }
    let token = fields.required("token", token)?;
    let outcome = outcome(&mut fields)?;
    check(&outcome, Place::Body, payloads)?;
    let results = vec![TaskResult { token, outcome }];
    Ok(Request::Report { session, results, form: ReportForm::Single }.into())
}

/// A list of `{token, output}` and `{token, error}`.
pub fn batch(value: Value, place: Place<'_>, payloads: &Payloads) -> Result<Batch, ApiError> {
    let results = list(value, place, MAX_RESULTS, |value, place| {
        let result = result(value, place)?;
        let verdict = check(&result.outcome, place, payloads);
        Ok((result, verdict))
    })?;
    let mut batch = Batch::default();
    for (index, (result, verdict)) in results.into_iter().enumerate() {
        match verdict {
            Ok(()) => batch.results.push(result),
            Err(error) => {
                let outcome = ResultOutcome { token: result.token, outcome: Accepted::Refused, error: Some(error) };
                batch.refused.push((index, outcome));
            }
        }
    }
    Ok(batch)
}

fn result(value: Value, place: Place<'_>) -> Result<TaskResult, ApiError> {
    // A null output is an output: a task that returns nothing says so.
    let says_output = value.get("output").is_some();
    let mut fields = Fields::of(value, place, &["token", "output", "error"])?;
    let token = fields.required("token", token)?;
    let outcome = match fields.optional("error", task_error)? {
        Some(_) if fields.has("output") => {
            return Err(fields.invalid("holds both `output` and `error`; a task has succeeded or failed"));
        }
        Some(error) => TaskOutcome::Failed(error),
        None if says_output => TaskOutcome::Succeeded(Arc::new(fields.any("output"))),
        None => return Err(fields.invalid("holds neither `output` nor `error`")),
    };
    Ok(TaskResult { token, outcome })
}

fn task_error(value: Value, place: Place<'_>) -> Result<TaskError, ApiError> {
    let mut fields = Fields::of(value, place, &["code", "message", "retryable", "details"])?;
    Ok(TaskError {
        code: fields.required("code", |value, place| name(value, place, MAX_CODE))?,
        message: fields.optional("message", |value, place| text(value, place, usize::MAX))?.unwrap_or_default(),
        retryable: fields.optional("retryable", boolean)?.unwrap_or(true),
        details: fields.optional("details", |value, _| Ok(Arc::new(value)))?,
        step: None,
    })
}

/// Whether the payload of a result is within its bounds.
fn check(outcome: &TaskOutcome, place: Place<'_>, payloads: &Payloads) -> Result<(), ApiError> {
    match outcome {
        TaskOutcome::Succeeded(output) => payloads.check(output, 0, Place::Field(&place, "output")),
        TaskOutcome::Failed(error) => {
            let details = error.details.as_deref().unwrap_or(&Value::Null);
            payloads.check(details, error.message.len(), Place::Field(&place, "error"))
        }
    }
}
