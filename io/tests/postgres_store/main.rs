//! The store on PostgreSQL, seen through its backend as the node sees it: what holds for every store, and what only
//! PostgreSQL has.

#[path = "../store/append.rs"]
mod append;
#[path = "../store/claim.rs"]
mod claim;
#[path = "../store/fence.rs"]
mod fence;
mod kind;
#[path = "../store/reads.rs"]
mod reads;
#[path = "../store/support.rs"]
mod support;
