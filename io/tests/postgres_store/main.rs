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
mod late;
mod lease;
mod line;
mod nodes;
mod others;
mod outdated;
mod ownership;
mod pooler;
#[path = "../store/reads.rs"]
mod reads;
#[path = "../store/runs.rs"]
mod runs;
mod schema;
mod sessions;
mod snapshot;
#[path = "../store/support.rs"]
mod support;
mod takeover;
mod tls;
