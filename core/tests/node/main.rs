//! What a node does, told as short stories: the node on a bench, over the model database.

mod away;
mod bench;
mod commits;
mod election;
mod family;
mod found;
mod hold;
mod lease;
mod life;
mod memory;
mod messages;
mod progress;
mod promotion;
mod quarantine;
mod registry;
mod standby;
mod trouble;
mod waiting;
mod workers;
