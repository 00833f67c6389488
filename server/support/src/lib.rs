//! What tests of `io` and `server` need around them. [`postgres`]: a PostgreSQL server that is thrown away.
//! [`replica`]: a streaming replica of it, to be promoted. [`pgbouncer`]: a pooler before it. [`balancer`]: HAProxy and nginx
//! before servers of Orbit. [`wire`]: a proxy before it that stops, cuts and delays single messages. [`hosts`]: hosts whose link
//! loses what it is told to lose.

pub mod balancer;
pub mod hosts;
pub mod pgbouncer;
pub mod postgres;
pub mod replica;
pub mod wire;

pub use hosts::{Host, Hosts, Loss};
pub use pgbouncer::PgBouncer;
pub use postgres::{Database, Postgres};
pub use replica::Replica;
