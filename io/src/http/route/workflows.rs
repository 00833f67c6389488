//! `/v1/workflows`: definitions.

use super::{Media, Routed};
use crate::definition::{self, Format, SyntaxError};
use crate::http::url::Query;
use orbit_core::api::{ApiError, ErrorCode, Request};

/// The parameters of POST `/v1/workflows`.
pub const DEPLOY_PARAMETERS: &[&str] = &["strict"];

/// POST `/v1/workflows`. What the document means, the node says; the places of everything in it are kept for that.
pub fn deploy(mut query: Query<'_>, media: Media, body: &[u8]) -> Result<Routed, ApiError> {
    let strict = query.boolean("strict")?.unwrap_or(false);
    let (format, name) = match media {
        Media::Yaml => (Format::Yaml, "YAML"),
        Media::Json | Media::Missing => (Format::Json, "JSON"),
    };
    let invalid = |message| ApiError::new(ErrorCode::InvalidRequest, message);
    let text = std::str::from_utf8(body).map_err(|problem| invalid(format!("the body is not UTF-8: {problem}")))?;
    if text.trim().is_empty() {
        return Err(invalid("the body is empty; send a definition".into()));
    }
    let mut document = definition::parse(text, format).map_err(|problem| {
        let error = invalid(format!("the body is not valid {name}: {problem}"));
        match problem {
            SyntaxError { location: Some(at), .. } => error.with("line", at.line).with("column", at.column),
            _ => error,
        }
    })?;
    let request = Request::Deploy { document: Box::new(std::mem::take(&mut document.value)), strict };
    Ok(Routed { request, refused: Vec::new(), document: Some(Box::new(document)) })
}
