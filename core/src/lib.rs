//! The decisions of Orbit, as one pure state machine.
//!
//! Everything that can happen to a server is an [`node::Input`]; everything that it does is a [`node::Effect`]. The
//! driving contract, the same for `io` (real sockets and databases) and `sim` (models of both):
//!
//! 1. give one input to [`node::Node::handle`],
//! 2. take effects from [`node::Node::poll_effect`] until it answers `None`,
//! 3. wait for the next input or for [`node::Node::poll_timeout`], and go to 1.
//!
//! Nothing in this crate reads a clock, opens a socket, starts a thread or draws a random number that was not handed
//! in; `core/clippy.toml` enforces it and `scripts/check-purity` shows that it does.
#![deny(clippy::disallowed_types, clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr)]

pub mod api;
pub mod calendar;
pub mod cluster;
pub mod definition;
pub mod execution;
pub mod id;
pub mod mutant;
pub mod node;
pub mod store;
pub mod time;
pub mod worker;
