//! What can go wrong between a program and its servers.

use crate::servers::InvalidServers;
use serde_json::{Map, Value};
use std::fmt;

/// Why a call failed. Its `Debug` is for people too, with the [`Error::hint`]: it is what a `main` that returns it prints.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A server answered with an error.
    #[error(transparent)]
    Api(Box<ApiError>),
    /// No server could be reached, or none answered in time.
    #[error("cannot reach an Orbit server: {}", .tried.join("; "))]
    Unreachable {
        /// Each server that was tried, and what happened there.
        tried: Vec<String>,
    },
    /// Something answered that does not speak Orbit's API.
    #[error("{server} does not answer like an Orbit server: {message}")]
    Unexpected {
        /// Who answered.
        server: String,
        /// What was unexpected.
        message: String,
    },
    /// The list of servers is not one.
    #[error(transparent)]
    Servers(#[from] InvalidServers),
    /// A worker or a call was set up in a way that cannot work.
    #[error("{0}")]
    Setup(String),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hint() {
            Some(hint) => write!(f, "{self} (hint: {hint})"),
            None => write!(f, "{self}"),
        }
    }
}

impl Error {
    /// The server's error, if one answered.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Error::Api(error) => Some(error),
            _ => None,
        }
    }

    /// The server's error code, if one answered: `UNKNOWN_WORKFLOW`, `EXECUTION_FINISHED` …
    pub fn code(&self) -> Option<&str> {
        self.api().map(|error| error.code.as_str())
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Api(error) => error.retryable,
            Error::Unreachable { .. } => true,
            Error::Unexpected { .. } | Error::Servers(_) | Error::Setup(_) => false,
        }
    }

    /// Whether no server could be reached.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Error::Unreachable { .. })
    }

    /// What would help, in words for people.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Api(error) => (!error.hint.is_empty()).then_some(error.hint.as_str()),
            Error::Unreachable { .. } => Some("is `orbit server` running there? --server or ORBIT_SERVER names others"),
            Error::Unexpected { .. } => Some("check the address: something else may be listening there"),
            Error::Servers(_) | Error::Setup(_) => None,
        }
    }
}

/// An error as a server told it.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: u16,
    /// What programs decide from.
    pub code: String,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What would be right; empty where the server says nothing.
    pub hint: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// More, for programs.
    pub details: Map<String, Value>,
    /// The number under which the server logged the request.
    pub request_id: String,
    /// Where the leader is, in an answer of a server that is not it.
    pub leader: Option<String>,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for ApiError {}

impl From<ApiError> for Error {
    fn from(error: ApiError) -> Error {
        Error::Api(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_main_that_returns_an_error_prints_a_sentence_with_what_would_help() {
        let error = Error::Unreachable { tried: vec!["http://a:1: connection refused".into()] };
        let hint = "is `orbit server` running there? --server or ORBIT_SERVER names others";
        let shown = format!("cannot reach an Orbit server: http://a:1: connection refused (hint: {hint})");
        assert_eq!(format!("{error:?}"), shown);
        assert_eq!(format!("{:?}", Error::Setup("no task".into())), "no task");
    }
}
