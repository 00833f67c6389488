//! Executions: events, the state that they fold to, and the decisions about it (design, section 6).

pub mod event;
