//! The store on SQLite, seen through its backend as the node sees it.

mod append;
mod claim;
mod fence;
mod files;
mod reads;
mod support;
