//! The HTTP front on real sockets, in front of a node that is only a script.

mod hostile;
mod lifetime;
mod routes;
mod support;
