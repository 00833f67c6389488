//! What tests of `io` and `server` need around them. [`postgres`]: a PostgreSQL server that is thrown away.

pub mod postgres;

pub use postgres::{Database, Postgres};
