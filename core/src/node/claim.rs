//! Tasks from the queue for waiting polls: one claimer, many rows a claim (protocols, 5 and 23).

use super::slot::Work;
use super::{Connection, LogEvent, Node, Purpose, RequestId};
use crate::api::request::Contract;
use crate::id::{CallKey, ContractVersion, SessionId, TaskName};
use crate::mutant::Mutants;
use crate::store::outcome::Failure;
use crate::store::statement::{ClaimTasks, ClaimWant, ClaimedTask, RequeueStrays};
use crate::store::transaction::{Transaction, Verdict};
use crate::time::Mono;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

/// Claims that were in doubt of which rows are looked for. What an older one claims so late waits for the next start.
const MAX_DOUBTED: usize = 1_000;
/// At most so many tasks for one poll in one claim.
const MAX_PER_POLL: u32 = 64;

/// What is known of the queue without reading it.
///
/// Rows are counted when the append that queued them is done. The count may be too high (a row went with its execution,
/// or was claimed before its append's reply was seen); a claim that finds less than it asked for sets that right. It is
/// never too low: what is not counted is said to be so.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Contracts that may have queued rows.
    queues: BTreeMap<Contract, Queue>,
    /// Counts what changes the queue on the store connection, which runs it in order.
    sendings: u64,
    in_flight: bool,
    strays: Strays,
}

/// Claims that were given up and may have been made all the same.
#[derive(Debug, Default)]
struct Strays {
    /// When they are looked for next; never, as long as every claim was answered.
    at: Option<Mono>,
    /// The claims that were in doubt and are settled, newest last.
    keys: VecDeque<CallKey>,
    /// Contracts of which a claim found too few rows: one that is still in doubt may have locked others, and may come to
    /// nothing.
    passed_over: BTreeSet<Contract>,
    in_flight: bool,
}

impl Strays {
    /// A claim was in doubt, and is settled.
    fn may_be(&mut self, key: CallKey, at: Mono) {
        self.at.get_or_insert(at);
        if self.keys.len() == MAX_DOUBTED {
            self.keys.pop_front();
        }
        self.keys.push_back(key);
    }
}

/// The queued rows of one contract.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    rows: u32,
    /// There may be more: rows from before a restart.
    uncounted: bool,
    /// When a row was counted last.
    last: u64,
}

/// A claim under way.
#[derive(Debug)]
pub(crate) struct ClaimFlight {
    key: CallKey,
    sending: u64,
    wants: Vec<Want>,
}

#[derive(Debug)]
struct Want {
    poll: RequestId,
    session: SessionId,
    contracts: Arc<BTreeSet<Contract>>,
    tokens: Vec<Uuid>,
}

impl Claims {
    /// What the store says at recovery.
    pub fn recover(&mut self, queued: Vec<(TaskName, ContractVersion)>) {
        for (task_name, contract_version) in queued {
            let queue = Queue { uncounted: true, ..Queue::default() };
            self.queues.insert(Contract { task_name, contract_version }, queue);
        }
    }

    /// A row of this contract is queued.
    pub fn queued(&mut self, contract: Contract) {
        self.sendings += 1;
        let queue = self.queues.entry(contract).or_default();
        queue.rows = queue.rows.saturating_add(1);
        queue.last = self.sendings;
    }

    /// A row was claimed.
    fn taken(&mut self, claimed: &ClaimedTask) {
        let contract = claimed.contract();
        if let Some(queue) = self.queues.get_mut(&contract) {
            queue.rows = queue.rows.saturating_sub(1);
            if queue.rows == 0 && !queue.uncounted {
                self.queues.remove(&contract);
            }
        }
    }

    /// A claim found no more rows of this contract: there are none but those counted since it was sent, and those that
    /// others had locked.
    fn exhausted(&mut self, contract: &Contract, sending: u64) {
        if self.strays.at.is_some() {
            self.strays.passed_over.insert(contract.clone());
        }
        if self.queues.get(contract).is_some_and(|queue| queue.last < sending) {
            self.queues.remove(contract);
        }
    }

    /// Whether rows of this contract may be queued.
    pub fn may_be_queued(&self, contract: &Contract) -> bool {
        self.queues.contains_key(contract)
    }

    pub fn in_flight(&self) -> bool {
        self.in_flight
    }
}

impl Queue {
    /// How many rows a claim may find.
    fn at_most(self) -> u32 {
        if self.uncounted { u32::MAX } else { self.rows }
    }
}

impl<M: Mutants> Node<M> {
    /// Claims for every waiting poll that may find something, if no claim is under way.
    pub(super) fn claim(&mut self) {
        let Some(fence) = self.fence().filter(|_| !self.claims.in_flight && self.takes_requests()) else { return };
        if self.claims.queues.is_empty() || self.polls.is_empty() {
            return;
        }
        let able = self.polls.able(&mut self.claims.queues.keys());
        // A poll's room is reserved for no more than may be found: the rest stays free for tasks that are handed over.
        let mut left: BTreeMap<&Contract, u32> = self.claims.queues.iter().map(|(c, q)| (c, q.at_most())).collect();
        let mut shares = Vec::new();
        for (poll, room, contracts) in able {
            let mut share = 0;
            for contract in contracts.iter() {
                let Some(rows) = left.get_mut(contract) else { continue };
                let take = (*rows).min(room.min(MAX_PER_POLL) - share);
                *rows -= take;
                share += take;
            }
            if share > 0 {
                shares.push((poll, share, contracts));
            }
        }
        let mut wants = Vec::new();
        for (poll, share, contracts) in shares {
            let session = self.polls.get_mut(poll).expect("listed as able").session;
            let tokens = (0..share).map(|_| self.draw()).collect();
            self.polls.reserve_for(poll, share);
            wants.push(Want { poll, session, contracts, tokens });
        }
        if wants.is_empty() {
            return;
        }
        self.claims.in_flight = true;
        self.claims.sendings += 1;
        let want = |w: &Want| ClaimWant {
            contracts: w.contracts.iter().map(|c| (c.task_name.clone(), c.contract_version.clone())).collect(),
            tokens: w.tokens.clone(),
        };
        let key = CallKey(self.draw());
        let claim = ClaimTasks { key, fence, wants: wants.iter().map(want).collect() };
        let flight = ClaimFlight { key, sending: self.claims.sendings, wants };
        self.send(Connection::Store, Transaction::Claim(claim), Purpose::Claim(flight));
    }

    pub(super) fn on_claim(&mut self, flight: ClaimFlight, doubted: bool, outcome: Result<Verdict, Failure>) {
        self.claims.in_flight = false;
        if doubted {
            self.claims.strays.may_be(flight.key, self.now.mono + self.config.call_deadline);
        }
        let claimed = match outcome {
            Ok(Verdict::Claim(claimed)) => claimed,
            Ok(other) => unreachable!("a claim gives tasks, not {other:?}"),
            Err(_) => {
                self.pause_after_failure();
                for want in flight.wants {
                    for _ in &want.tokens {
                        self.polls.release(want.poll);
                    }
                    self.answer_poll_when_due(want.poll);
                }
                return;
            }
        };
        let mut by_token: BTreeMap<Uuid, _> = claimed.into_iter().map(|task| (task.token, task)).collect();
        for want in flight.wants {
            let tasks: Vec<_> = want.tokens.iter().filter_map(|token| by_token.remove(token)).collect();
            let missing = want.tokens.len() - tasks.len();
            for claimed in tasks {
                self.claims.taken(&claimed);
                self.queue.taken(&claimed.task);
                let execution = claimed.execution.clone();
                let work = Work::Dispatch { claimed, session: want.session, poll: want.poll };
                self.enqueue(&execution, work);
            }
            if missing > 0 {
                for contract in want.contracts.iter() {
                    self.claims.exhausted(contract, flight.sending);
                }
            }
            for _ in 0..missing {
                self.polls.release(want.poll);
            }
            self.answer_poll_when_due(want.poll);
        }
    }

    /// When strays are to be looked for.
    pub(super) fn next_sweep(&self) -> Option<Mono> {
        let Strays { at, in_flight, .. } = &self.claims.strays;
        at.filter(|_| !in_flight && self.resume.is_none() && self.is_serving())
    }

    /// Looks for rows of claims that were in doubt: what is claimed under them and not about to be delivered never will be.
    /// A claim that was given up may commit at any time after, so this goes on for as long as the server does.
    pub(super) fn sweep_when_due(&mut self) {
        let Some(fence) = self.fence().filter(|_| self.next_sweep().is_some_and(|at| at <= self.now.mono)) else {
            return;
        };
        self.claims.strays.in_flight = true;
        let waiting = self.slots.values().flat_map(|slot| &slot.queue);
        let mut tokens: Vec<Uuid> = waiting.filter_map(Work::claimed).collect();
        for purpose in self.calls.unsettled() {
            if let Purpose::Append(flights) = purpose {
                tokens.extend(flights.iter().flat_map(|flight| flight.works()).filter_map(Work::claimed));
            }
        }
        let keys = self.claims.strays.keys.iter().copied().collect();
        let sweep = RequeueStrays { fence, keys, tokens };
        self.send(Connection::Store, Transaction::Sweep(sweep), Purpose::Sweep);
    }

    pub(super) fn on_sweep(&mut self, outcome: Result<Verdict, Failure>) {
        let next = self.now.mono + self.config.call_deadline;
        self.claims.strays.in_flight = false;
        self.claims.strays.at = Some(next);
        let back = match outcome {
            Ok(Verdict::Sweep(back)) => back,
            Ok(other) => unreachable!("a sweep gives contracts, not {other:?}"),
            Err(_) => return self.pause_after_failure(),
        };
        if !back.is_empty() {
            self.log(LogEvent::StraysRequeued { tasks: back.len() as u64 });
        }
        for (task_name, contract_version) in back {
            self.claims.queued(Contract { task_name, contract_version });
        }
        for contract in std::mem::take(&mut self.claims.strays.passed_over) {
            self.claims.queues.entry(contract).or_default().uncounted = true;
        }
    }
}
