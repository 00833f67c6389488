//! An attempt is taken from its worker only once that has been silent for a session's time, has left, or never got it:
//! never from one that was heard of in time (protocols, 24 to 26).
//!
//! Heartbeats count that were answered. What a server has heard of a worker is its own: a successor begins anew, and so does
//! a server that was elected again, or that has seen a promotion.

use super::{Answer, Checked, Committed, ensure};
use crate::store::Change;
use crate::world::clock::Time;
use crate::world::server::Pid;
use orbit_core::api::{Reply, Request};
use orbit_core::execution::event::{Event, Recorded};
use orbit_core::id::{SessionId, Token};
use orbit_core::node::RequestId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const CHECK: &str = "custody";

/// So much faster a server's clock may run, in thousandths.
const FAST: u64 = 5;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct CustodyCheck {
    servers: BTreeMap<Pid, Server>,
    /// What each poll was answered with.
    answers: BTreeMap<RequestId, Vec<Token>>,
    /// Tokens in answers that were said to be lost.
    lost: BTreeSet<Token>,
}

/// What one server can know.
#[derive(Clone, Debug, Default)]
struct Server {
    since: Time,
    sessions: BTreeMap<SessionId, Heard>,
    holders: BTreeMap<Token, SessionId>,
    /// Tokens that nobody had for a session's time: they are in doubt, whoever names them since.
    doubtful: BTreeSet<Token>,
}

impl Server {
    /// Whether nobody who has this token was heard of for a session's time.
    fn may_doubt(&self, token: &Token, now: Time, timeout: Duration) -> bool {
        self.doubtful.contains(token)
            || match self.holders.get(token).map(|session| self.sessions.get(session)) {
                Some(Some(heard)) => heard.lapsed || is_long(heard.last, now, timeout),
                Some(None) => true,
                None => is_long(self.since, now, timeout),
            }
    }
}

/// How a session was heard of.
#[derive(Clone, Copy, Debug)]
struct Heard {
    last: Time,
    /// It was silent for a session's time once, or it has ended.
    lapsed: bool,
}

impl CustodyCheck {
    /// A server knows nothing of workers from now on.
    pub fn begins(&mut self, pid: Pid, now: Time) {
        self.servers.insert(pid, Server { since: now, ..Server::default() });
    }

    /// A server answers a request of a worker.
    pub fn on_answer(&mut self, id: RequestId, answer: &Answer<'_>) {
        let Some(pid) = answer.exchange.process else { return };
        let Some(server) = self.servers.get_mut(&pid) else { return };
        let (now, timeout) = (answer.now, answer.session_timeout);
        match (&*answer.exchange.request, &answer.response.reply) {
            (Request::Register(_), Reply::Registered(told)) => {
                server.sessions.insert(told.session_id, Heard { last: now, lapsed: false });
            }
            (Request::Heartbeat { session, holding }, Reply::Heartbeat(_)) => {
                if let Some(heard) = server.sessions.get_mut(session) {
                    heard.lapsed |= is_long(heard.last, now, timeout);
                    heard.last = now;
                }
                for token in holding.iter().flatten() {
                    if server.may_doubt(token, now, timeout) {
                        server.doubtful.insert(token.clone());
                    }
                    server.holders.insert(token.clone(), *session);
                }
            }
            (Request::Unregister { session }, Reply::Unregistered) => {
                if let Some(heard) = server.sessions.get_mut(session) {
                    heard.lapsed = true;
                }
            }
            (Request::Poll(_), Reply::Polled(polled)) if !polled.tasks.is_empty() => {
                self.answers.insert(id, polled.tasks.iter().map(|task| task.token.clone()).collect());
            }
            _ => {}
        }
    }

    /// A server is told that an answer could not be written.
    pub fn on_lost(&mut self, id: RequestId) {
        self.lost.extend(self.answers.get(&id).into_iter().flatten().cloned());
    }

    pub fn on_commit(&mut self, committed: &Committed<'_>) -> Checked {
        let Some(server) = committed.pid.and_then(|pid| self.servers.get_mut(&pid)) else { return Ok(()) };
        let groups = committed.commit.changes.iter().filter_map(|change| match change {
            Change::Group { group, repeated: false, .. } => Some(group),
            _ => None,
        });
        for member in groups.flat_map(|group| &group.members) {
            let events = member.events.iter().filter_map(|stored| Recorded::decode(&stored.bytes).ok());
            let events: Vec<Event> = events.map(|recorded| recorded.event).collect();
            // What was held past the time-out of its attempt is handed out anew when it goes on.
            let recovers = events.iter().any(|event| matches!(event, Event::WorkflowRecovered { .. }));
            for event in events {
                match event {
                    Event::StepDispatched { token, worker_session, .. } => {
                        server.holders.insert(token, worker_session);
                    }
                    Event::StepAttemptUncertain { token, reason, .. } if !recovers && !self.lost.contains(&token) => {
                        let (now, timeout) = (committed.now, committed.session_timeout);
                        let session = server.holders.get(&token);
                        // Whom a token is known of from histories and polls, this does not see; that one has left, it says.
                        let has_left = session.is_none() && reason.ends_with("unregistered");
                        let may = has_left || server.may_doubt(&token, now, timeout);
                        ensure!(may, CHECK, "{token} is taken from {session:?}, heard of in time: {reason}");
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Whether that is as long as a session may be silent, by some server's clock.
fn is_long(from: Time, to: Time, timeout: Duration) -> bool {
    let timeout = u64::try_from(timeout.as_micros()).expect("seconds");
    to.0 - from.0 >= timeout - timeout * FAST / 1_000
}
