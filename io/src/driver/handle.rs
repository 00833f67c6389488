//! How the fronts reach the node: requests go in over a bounded channel, each answer comes back on its own.

use orbit_core::api::{Request, Response};
use orbit_core::node::RequestId;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};

/// What the driver's loop takes besides the replies of the store.
#[derive(Debug)]
pub enum Message {
    /// A request, where its answer goes, and what is let go of once the node has looked at it.
    Request { id: RequestId, request: Request, answer: oneshot::Sender<Response>, held: Held },
    /// The one who asked is gone.
    Gone(RequestId),
    /// An answer could not be written.
    AnswerLost(RequestId),
    /// SIGTERM, SIGINT, or the command line's own end.
    Stop,
}

/// Something that is kept for as long as a request waits for the node to look at it.
pub type Held = Option<Box<dyn Any + Send>>;

/// The node, as its fronts see it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NodeHandle {
    requests: mpsc::Sender<Message>,
    /// Small notices that must never be lost for want of room.
    notices: mpsc::UnboundedSender<Message>,
    next: Arc<AtomicU64>,
}

/// Why a request could not be given to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// Too many requests wait already.
    #[error("too many requests are waiting")]
    Overloaded,
    /// The node has stopped.
    #[error("the server has stopped")]
    Stopped,
}

impl NodeHandle {
    /// A handle and the two ends that the driver's loop reads; at most `room` requests wait in between.
    pub fn new(room: usize) -> (NodeHandle, mpsc::Receiver<Message>, mpsc::UnboundedReceiver<Message>) {
        let (requests, request_end) = mpsc::channel(room);
        let (notices, notice_end) = mpsc::unbounded_channel();
        (NodeHandle { requests, notices, next: Arc::new(AtomicU64::new(1)) }, request_end, notice_end)
    }

    /// Gives a request to the node. Dropping what this returns before it is ready tells the node that nobody waits.
    pub fn submit(&self, request: Request) -> Result<Pending, Unavailable> {
        self.submit_with(request, None)
    }

    /// The same; `held` is dropped once the node has looked at the request.
    pub fn submit_with(&self, request: Request, held: Held) -> Result<Pending, Unavailable> {
        let id = RequestId(self.next.fetch_add(1, Ordering::Relaxed));
        let (answer, answered) = oneshot::channel();
        match self.requests.try_send(Message::Request { id, request, answer, held }) {
            Ok(()) => Ok(Pending { id, answered: Some(answered), notices: self.notices.clone() }),
            Err(mpsc::error::TrySendError::Full(_)) => Err(Unavailable::Overloaded),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Unavailable::Stopped),
        }
    }

    /// Says that the answer to a request could not be written.
    pub fn answer_lost(&self, id: RequestId) {
        let _ = self.notices.send(Message::AnswerLost(id));
    }

    /// Puts a message in as it stands, with no [`Pending`] to say that its asker left.
    #[cfg(test)]
    pub(crate) fn send_raw(&self, message: Message) {
        self.requests.try_send(message).expect("there is room");
    }

    /// Asks the node to stop: it finishes what is in flight first.
    pub fn stop(&self) {
        let _ = self.notices.send(Message::Stop);
    }
}

/// An answer that is on its way.
#[derive(Debug)]
pub struct Pending {
    id: RequestId,
    answered: Option<oneshot::Receiver<Response>>,
    notices: mpsc::UnboundedSender<Message>,
}

impl Pending {
    /// The request's id, for [`NodeHandle::answer_lost`] and the error's `request_id`.
    pub fn id(&self) -> RequestId {
        self.id
    }
}

impl Future for Pending {
    type Output = Result<Response, Unavailable>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answered = self.answered.as_mut().expect("an answer is taken once");
        match Pin::new(answered).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(answer) => {
                self.answered = None;
                Poll::Ready(answer.map_err(|_| Unavailable::Stopped))
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.answered.is_some() {
            let _ = self.notices.send(Message::Gone(self.id));
        }
    }
}
