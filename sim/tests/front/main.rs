//! The second layer of the simulator: the real HTTP front, driver, router and SDK over simulated sockets (`turmoil`), with
//! the model of PostgreSQL behind. It is for what only sockets show; what the servers decide is the first layer's matter.
//!
//! * [`world`]: two servers of a standby cluster, and everybody else, on one network with one seed.
//! * [`server`]: a server process. [`database`]: what is behind it. [`socket`]: what is before it.
//! * [`raw`]: a client that sends bytes. [`stranger`]: what it does that no SDK would.
//! * [`situations`]: each situation by itself, by name. [`swarm`]: all of them at once, for many seeds, under faults.
//! * [`check`]: what must hold in the end. [`trace`]: what happened, and how often the rare things did.
//!
//! `FRONT_SEEDS=0..500 cargo test -p sim --test front` runs more seeds, `FRONT_SEED=7` one; `FRONT_TRACE=1` prints what
//! happened.

mod check;
mod database;
mod raw;
mod server;
mod situations;
mod socket;
mod stranger;
mod swarm;
mod trace;
mod world;
