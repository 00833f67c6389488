//! What the loop needs of a store.

use orbit_core::node::{CallId, Connection};
use orbit_core::store::origin::Origin;
use orbit_core::store::outcome::Reply;
use orbit_core::store::transaction::{Transaction, Verdict};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreReply {
    pub call: CallId,
    pub reply: Reply<Verdict>,
    /// Where its connection led, where there is more than one place and one was reached.
    pub origin: Option<Origin>,
}

/// A store that runs transactions and sends each reply on the channel that it was made with.
///
/// Dropping it runs what was given to it to the end, closes it, and may block for as long as that takes.
pub trait Backend: Send + 'static {
    /// Begins a transaction and returns at once. Calls on [`Connection::Store`] run in the order given, and so do
    /// those on [`Connection::Election`] and on [`Connection::Control`]; those on [`Connection::Requests`] run in any order, several at once.
    /// With an `origin`, it runs there and nowhere else ([`Origin::serves`]).
    fn run(&self, connection: Connection, call: CallId, transaction: Transaction, origin: Option<Origin>);

    /// Gives the connection of a call up that has had no reply for too long, if that can hang: calls that wait behind
    /// it go to a new one, and its reply, if there ever is one, is not wanted. Returns at once.
    fn write_off(&self, connection: Connection, call: CallId);
}

/// A store with the end at which its replies arrive.
///
/// Replies need no bound of their own: there is one for each call, and the node bounds its calls.
#[derive(Debug)]
pub struct Attached<B> {
    pub backend: B,
    pub replies: UnboundedReceiver<StoreReply>,
}

impl<B: Backend> Attached<B> {
    /// Makes a store that answers on a new channel.
    pub fn new(make: impl FnOnce(UnboundedSender<StoreReply>) -> B) -> Attached<B> {
        let (sender, replies) = unbounded_channel();
        Attached { backend: make(sender), replies }
    }
}
