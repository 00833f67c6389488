//! Orbit's proof: the very code that decides in production, driven through seeded worlds full of faults.
//!
//! A run draws its [`plan`] from a seed, builds a [`world`] of servers, clients and workers around the model
//! [`store`], lets faults happen, heals them, and holds everything that was committed, answered or logged to the
//! checks in [`check`]. The same seed gives the same trace, on every machine and in every build.
//!
//! * [`store`]: the model of SQLite. [`postgres`]: the model of PostgreSQL.
//! * [`world`]: the event queue, clocks, network, processes, clients and workers.
//! * [`workload`]: what they run. [`plan`]: what goes wrong, and how often. [`fault`]: what did, and when; [`scenario`]: the
//!   same from a file, and made small.
//! * [`owners`]: writers of shared mode on the model of PostgreSQL, without the servers around them.
//! * [`check`]: what must hold. [`coverage`]: what must have happened, for that to mean something.
//! * [`mutant`]: mistakes planted to show that the checks find them.
//! * [`report`]: traces, their hash, failures. [`show`]: a page of a trace; [`diff`]: the first
//!   difference of two. [`run`]: runs of one seed and of many.
//!   [`corpus`]: those that found something.

pub mod check;
pub mod corpus;
pub mod coverage;
pub mod diff;
pub mod fault;
pub mod mutant;
pub mod owners;
pub mod plan;
pub mod postgres;
pub mod report;
pub mod rng;
pub mod run;
pub mod scenario;
pub mod schema;
pub mod show;
pub mod store;
pub mod workload;
pub mod world;
