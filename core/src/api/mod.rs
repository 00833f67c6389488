//! Requests, responses and errors: what the API says, apart from HTTP (design, section 10; interfaces, "HTTP").
//!
//! `io::http::route` makes a [`Request`] from bytes, and bytes from a [`Response`]. Field names are the API's.

pub mod error;
pub mod request;
pub mod response;

pub use error::{ApiError, ErrorCode};
pub use request::Request;
pub use response::{Reply, Response};
