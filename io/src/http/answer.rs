//! The body of an answer, which knows whether it was written.

use super::connection::Activity;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use orbit_core::node::RequestId;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A body in one piece.
///
/// When it goes, the connection is told that this exchange is over. One that carries what must not be lost without a
/// word (tasks) also names its request, so that a connection which ends before the bytes are handed to the system
/// reports it (protocols, 24).
pub struct Answer {
    bytes: Bytes,
    tracked: Option<RequestId>,
    activity: Arc<Activity>,
}

impl Answer {
    /// A body for the connection of `activity`; `tracked` is the request whose answer must not be lost unnoticed.
    pub fn new(bytes: Bytes, tracked: Option<RequestId>, activity: Arc<Activity>) -> Answer {
        Answer { bytes, tracked, activity }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        if let Some(id) = self.tracked.take() {
            self.activity.buffered(id);
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(id) = self.tracked.take() {
            self.activity.lost(id);
        }
        self.activity.exchange_over();
    }
}
