//! What tests of `io` and `server` need around them. [`postgres`]: a PostgreSQL server that is thrown away.
//! [`pgbouncer`]: a pooler before it.

pub mod pgbouncer;
pub mod postgres;

pub use pgbouncer::PgBouncer;
pub use postgres::{Database, Postgres};
