//! `/v1/workflows`: definitions.

use super::Media;
use crate::http::json;
use orbit_core::api::{ApiError, ErrorCode, Request};
use serde_json::Value;

/// POST `/v1/workflows`
pub fn deploy(media: Media, body: &[u8]) -> Result<Request, ApiError> {
    let document = match media {
        Media::Yaml => yaml(body)?,
        Media::Json | Media::Missing => json::parse(body)?,
    };
    Ok(Request::Deploy(Box::new(document)))
}

fn yaml(body: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(body)
        .map_err(|problem| ApiError::new(ErrorCode::InvalidRequest, format!("the body is not UTF-8: {problem}")))?;
    serde_saphyr::from_str(text)
        .map_err(|problem| ApiError::new(ErrorCode::InvalidRequest, format!("the body is not valid YAML: {problem}")))
}
