//! The store on PostgreSQL, seen through its backend as the node sees it: what holds for every store, and what only
//! PostgreSQL has.

#[path = "../store/append.rs"]
mod append;
#[path = "../store/claim.rs"]
mod claim;
mod commits;
#[path = "../store/fence.rs"]
mod fence;
mod kind;
mod others;
mod pooler;
#[path = "../store/reads.rs"]
mod reads;
mod schema;
mod sessions;
#[path = "../store/support.rs"]
mod support;
mod tls;
