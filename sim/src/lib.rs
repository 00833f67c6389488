//! Orbit's proof: the very code that decides in production, driven through seeded worlds full of faults.
//!
//! * [`store`]: the model of the database.

pub mod store;
