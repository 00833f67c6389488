//! What tests of `io` and `server` need around them. [`postgres`]: a PostgreSQL server that is thrown away.
//! [`pgbouncer`]: a pooler before it. [`wire`]: a proxy before it that stops, cuts and delays single messages.

pub mod pgbouncer;
pub mod postgres;
pub mod wire;

pub use pgbouncer::PgBouncer;
pub use postgres::{Database, Postgres};
