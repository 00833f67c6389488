//! A leader of whose appends none goes through gives the lead up, once the database has taken two other writes that were sent
//! since, and not before (protocols, 14).

use crate::world::clock::Time;
use orbit_core::node::CallId;
use orbit_core::store::outcome::Reply;
use orbit_core::store::transaction::{Transaction, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// How much slower than true time a server's clock may run, in microseconds.
const SLACK_US: u64 = 20_000;

/// What an outsider knows of a leader's appends, and of its other writes.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    appends: BTreeSet<CallId>,
    beats: BTreeMap<CallId, Time>,
    /// Since when none has gone through.
    since: Option<Time>,
    /// One other write was taken since then.
    proved: bool,
}

/// What a reply says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Now it has to give the lead up.
    GivesUp,
}

impl Progress {
    /// A call leaves.
    pub fn on_call(&mut self, call: CallId, transaction: &Transaction, now: Time) {
        match transaction {
            Transaction::Append(_) => {
                self.appends.insert(call);
                self.since.get_or_insert(now);
            }
            Transaction::Beat(_) => drop(self.beats.insert(call, now)),
            _ => {}
        }
    }

    /// Its answer comes. What certainly failed may not be tried again, so it begins anew then.
    pub fn on_reply(&mut self, call: CallId, reply: &Reply<Verdict>, stuck_ms: u64) -> Due {
        if self.appends.remove(&call) && !matches!(reply, Reply::Unknown) {
            (self.since, self.proved) = (None, false);
        }
        let (Some(sent), Reply::Done(Verdict::Beat(None))) = (self.beats.remove(&call), reply) else {
            return Due::Nothing;
        };
        match self.since {
            Some(since)
                if since.0 + stuck_ms * 1_000 + SLACK_US <= sent.0 && std::mem::replace(&mut self.proved, true) =>
            {
                Due::GivesUp
            }
            _ => Due::Nothing,
        }
    }
}
