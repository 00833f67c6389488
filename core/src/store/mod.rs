//! The store protocol: every database transaction that exists, as data (design, section 5).
//!
//! * [`statement`]: the closed list of statements and the rows that they give.
//! * [`transaction`]: transactions as lists of statements; the next step is a pure function of the rows seen so far.
//! * [`append`]: the append, its groups, their outcomes, and [`append::judge`], the one meaning of an append.
//! * [`executor`]: runs such a list, ask and tell, without I/O. `io` and `sim` share it.
//! * [`lease`]: the lease of leadership, and the transactions that take it and give it back.
//! * [`origin`]: which database it is that answers, and what another one is to who knows this one.
//! * `sending`: how an append gets its outcomes, in halves where data is refused.
//! * [`outcome`]: from the raw facts that a backend reports to [`outcome::Reply`].
//! * [`sqlstate`]: what PostgreSQL's error codes mean.
//! * [`calls`]: resends what stayed unknown until the answer is known.

pub mod append;
pub mod calls;
pub mod executor;
pub mod lease;
pub mod mode;
pub mod origin;
pub mod outcome;
pub mod ownership;
mod sending;
pub mod sqlstate;
pub mod statement;
pub mod transaction;
