//! Nothing is served as leader past the validity of the last good check, counted from its sending (design, section 8).

use super::{Checked, ensure};
use crate::world::clock::Time;
use orbit_core::api::{Reply, Request, Response};
use orbit_core::node::CallId;
use orbit_core::store::append::Fence;
use orbit_core::store::outcome;
use orbit_core::store::statement::LockState;
use orbit_core::store::transaction::{CampaignVerdict, Transaction, Verdict};
use std::collections::BTreeMap;

const CHECK: &str = "validity";

/// How much slower than true time a server's clock may run, and how late its timer may fire, in microseconds.
const SLACK_US: u64 = 20_000;

/// What an outsider knows of a server's checks: when each left, and what it was told.
#[derive(Clone, Debug, Default)]
pub struct Fresh {
    sent: BTreeMap<CallId, Time>,
    held: Option<Time>,
    unmoved: Option<Time>,
}

impl Fresh {
    /// A call leaves.
    pub fn on_call(&mut self, call: CallId, transaction: &Transaction, now: Time) {
        let checks = matches!(
            transaction,
            Transaction::Campaign(_) | Transaction::Hold | Transaction::Check | Transaction::RenewLease(_)
        );
        if checks {
            self.sent.insert(call, now);
        }
    }

    /// Its answer comes, to a server that writes under this fence.
    pub fn on_reply(&mut self, call: CallId, reply: &outcome::Reply<Verdict>, fence: Option<Fence>) {
        let Some(sent) = self.sent.remove(&call) else { return };
        match reply {
            outcome::Reply::Done(Verdict::Campaign(CampaignVerdict::Won { .. })) => {
                (self.held, self.unmoved) = (Some(sent), Some(sent));
            }
            // Nobody moves the fence while a lease lasts: a renewal says as much as both checks of one who has the lock.
            outcome::Reply::Done(Verdict::Renew(true)) => {
                (self.held, self.unmoved) = (self.held.max(Some(sent)), self.unmoved.max(Some(sent)));
            }
            outcome::Reply::Done(Verdict::Hold(LockState::Mine)) => self.held = self.held.max(Some(sent)),
            outcome::Reply::Done(Verdict::Check(row)) if Some(row.fence) == fence => {
                self.unmoved = self.unmoved.max(Some(sent));
            }
            _ => {}
        }
    }

    /// It answers, as one that leads.
    pub fn on_answer(&self, request: &Request, response: &Response, validity_ms: u64, now: Time) -> Checked {
        if matches!(response.reply, Reply::Error(_)) || !is_served(request) {
            return Ok(());
        }
        let good = self.held.min(self.unmoved).unwrap_or(Time(0));
        let age = now.0 - good.0;
        ensure!(
            age <= validity_ms * 1_000 + SLACK_US,
            CHECK,
            "{request:?} was served by a leader whose last good check was {age} µs old, and counts for {validity_ms} ms"
        );
        Ok(())
    }
}

/// Whether only a server that leads, or reads the database for it, answers this.
fn is_served(request: &Request) -> bool {
    !matches!(
        request,
        Request::Health
            | Request::Ready
            | Request::Livez
            | Request::Readyz
            | Request::Leaderz
            | Request::Metrics
            | Request::ListWorkers
            | Request::ListNodes
            | Request::StepDown { .. }
    )
}
