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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::HttpConfig;
    use std::sync::Mutex;

    /// The requests whose answers are reported as lost.
    fn lost(scenario: impl FnOnce(Arc<Activity>)) -> Vec<u64> {
        let lost = Arc::new(Mutex::new(Vec::new()));
        let list = lost.clone();
        let report = move |id: RequestId| list.lock().unwrap().push(id.0);
        scenario(Arc::new(Activity::new(&HttpConfig::default(), report)));
        std::mem::take(&mut lost.lock().unwrap())
    }

    fn take(answer: &mut Answer) -> Option<Bytes> {
        match Pin::new(answer).poll_frame(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(frame) => frame.map(|frame| frame.unwrap().into_data().unwrap()),
            Poll::Pending => panic!("the body is there"),
        }
    }

    #[test]
    fn a_body_that_is_dropped_unread_is_lost() {
        let tracked = |activity| drop(Answer::new("x".into(), Some(RequestId(7)), activity));
        assert_eq!(lost(tracked), [7]);
        let untracked = |activity| drop(Answer::new("x".into(), None, activity));
        assert!(lost(untracked).is_empty());
    }

    #[test]
    fn a_body_that_is_buffered_when_the_connection_ends_is_lost_once() {
        let scenario = |activity: Arc<Activity>| {
            let mut answer = Answer::new("text".into(), Some(RequestId(7)), activity);
            assert_eq!(answer.size_hint().exact(), Some(4));
            assert_eq!(take(&mut answer).as_deref(), Some(&b"text"[..]));
            assert!(answer.is_end_stream());
            assert_eq!(take(&mut answer), None);
        };
        assert_eq!(lost(scenario), [7]);
    }
}
