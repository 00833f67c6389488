//! Documents about the API that the front gives out by itself.

use orbit_core::api::{ApiError, ErrorCode};

/// A document that is the same for every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// The JSON Schema of definitions.
    DefinitionSchema,
    /// The description of the API.
    OpenApi,
}

impl Published {
    /// Every document.
    pub const ALL: &[Published] = &[Published::DefinitionSchema, Published::OpenApi];

    /// The document of a path.
    pub fn find(path: &str) -> Option<Published> {
        Published::ALL.iter().copied().find(|document| document.path() == path)
    }

    /// Where it is.
    pub fn path(self) -> &'static str {
        match self {
            Published::DefinitionSchema => "/v1/schemas/orbit-def-1.json",
            Published::OpenApi => "/v1/openapi.json",
        }
    }

    /// Whether it is given out without credentials. An editor that checks a definition while it is typed has none, and
    /// the schema is the same for everybody.
    pub fn is_open(self) -> bool {
        match self {
            Published::DefinitionSchema => true,
            Published::OpenApi => false,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Published::DefinitionSchema => "application/schema+json",
            Published::OpenApi => "application/json",
        }
    }

    /// The document itself.
    pub fn text(self) -> &'static str {
        match self {
            Published::DefinitionSchema => crate::definition::DOCUMENT_SCHEMA,
            Published::OpenApi => super::openapi::text(),
        }
    }

    /// The methods that it takes, as the `allow` header lists them.
    pub const ALLOW: &str = "GET, HEAD";

    /// METHOD_NOT_ALLOWED for every method but GET and HEAD.
    pub fn takes(method: &hyper::Method) -> Result<(), ApiError> {
        if matches!(*method, hyper::Method::GET | hyper::Method::HEAD) {
            return Ok(());
        }
        let message = format!("this route takes GET and HEAD, not {method}");
        let allow: Vec<&str> = Published::ALLOW.split(", ").collect();
        Err(ApiError::new(ErrorCode::MethodNotAllowed, message).with("allow", allow))
    }
}
