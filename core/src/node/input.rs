//! Everything that can happen to a server.

use crate::api::Request;
use crate::node::effect::{CallId, RequestId};
use crate::store::origin::Origin;
use crate::store::outcome::Reply;
use crate::store::transaction::Verdict;
use serde::{Deserialize, Serialize};

/// An input of [`crate::node::Node`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// The process has begun; the first input. The node campaigns and recovers.
    Start,
    /// The time that [`crate::node::Node::poll_timeout`] named has come.
    Wake,
    /// A request came. `id` is the front's, new for each.
    Request { id: RequestId, request: Request },
    /// The one who asked is gone: no answer is wanted.
    RequestGone(RequestId),
    /// An answer could not be written to the one who asked (protocols, 24).
    AnswerLost(RequestId),
    /// A transaction ended; `origin` is where its connection led, if there was one and it says so.
    Store { call: CallId, reply: Reply<Verdict>, origin: Option<Origin> },
    /// Stop: take nothing new in, finish what is in flight, release, exit (SIGTERM, SIGINT).
    Stop,
}
