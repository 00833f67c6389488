//! The HTTP front on real sockets, in front of a node that is only a script.

#[path = "../api/mod.rs"]
mod api;
mod described;
mod hostile;
mod lifetime;
mod listener;
mod routes;
mod support;
