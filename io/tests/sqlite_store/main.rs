//! The store on SQLite, seen through its backend as the node sees it.

#[path = "../store/append.rs"]
mod append;
#[path = "../store/claim.rs"]
mod claim;
#[path = "../store/fence.rs"]
mod fence;
mod files;
mod kind;
mod others;
#[path = "../store/reads.rs"]
mod reads;
#[path = "../store/runs.rs"]
mod runs;
#[path = "../store/support.rs"]
mod support;
