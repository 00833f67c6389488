//! The HTTP front: bytes of sockets to requests of the node, and its answers back (design, section 10; interfaces,
//! "HTTP").
//!
//! * [`route`]: from method, path, query and body to a request. Pure.
//! * [`respond`]: from an answer to status, headers and bytes. Pure. [`metrics`] makes the text of the figures.
//! * [`front`]: the socket that listens, its settings and the accept loop. [`listener`]: what connections come from.
//! * `connection`: one connection, its deadlines, and what it knows of answers that were never written.
//! * `malformed`: the answer to what is no HTTP request.
//! * `service`: one request, from its head to its answer.
//! * [`published`]: documents about the API that need no node; [`openapi`] makes the largest.
//!
//! Nothing here decides anything about workflows. What this module does decide is what never reaches the node: bytes
//! that are no valid request, clients without the token, and clients that keep a socket and send or read nothing.

mod answer;
mod connection;
mod fields;
pub mod front;
mod json;
pub mod listener;
mod malformed;
pub mod metrics;
pub mod openapi;
pub mod published;
pub mod respond;
pub mod route;
mod service;
mod url;

pub use front::{BindError, Extra, Front, HttpConfig, serve_on};
pub use json::parse as parse_json;
pub use listener::Listener;
