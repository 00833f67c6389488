//! What is asked of a cluster.

use crate::http::fields::{Fields, Place, number};
use crate::http::json;
use orbit_core::api::{ApiError, Request};
use orbit_core::id::Term;

/// A step-down: perhaps of one term alone. The body may be empty.
pub fn step_down(body: &[u8]) -> Result<Request, ApiError> {
    if body.is_empty() {
        return Ok(Request::StepDown { term: None });
    }
    let mut fields = Fields::of(json::parse(body)?, Place::Body, &["term"])?;
    let term = fields.optional("term", |value, place| number(value, place, 0, MAX_TERM))?;
    Ok(Request::StepDown { term: term.map(Term) })
}

/// Columns of the database hold no larger ones.
pub const MAX_TERM: u64 = i64::MAX as u64;
