//! Tasks from the queue for waiting polls: one claimer, many rows a claim (protocols, 5 and 23).

use super::slot::Work;
use super::{Connection, Node, Purpose, RequestId};
use crate::api::request::Contract;
use crate::id::{CallKey, ContractVersion, SessionId, TaskName};
use crate::mutant::Mutants;
use crate::store::outcome::Failure;
use crate::store::statement::{ClaimTasks, ClaimWant};
use crate::store::transaction::{Transaction, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// At most so many tasks for one poll in one claim.
const MAX_PER_POLL: u32 = 64;

/// What is known of the queue without reading it.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Contracts that may have queued rows, with the number of the last sending that may have queued one.
    hints: BTreeMap<Contract, u64>,
    /// Counts sendings on the store connection, which runs them in order.
    sendings: u64,
    in_flight: bool,
}

/// A claim under way.
#[derive(Debug)]
pub(crate) struct ClaimFlight {
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
            self.queued(task_name, contract_version);
        }
    }

    /// A row of this contract is being queued.
    pub fn queued(&mut self, task_name: TaskName, contract_version: ContractVersion) {
        self.sendings += 1;
        self.hints.insert(Contract { task_name, contract_version }, self.sendings);
    }

    /// Whether rows of this contract may be queued.
    pub fn may_be_queued(&self, contract: &Contract) -> bool {
        self.hints.contains_key(contract)
    }

    pub fn in_flight(&self) -> bool {
        self.in_flight
    }
}

impl<M: Mutants> Node<M> {
    /// Claims for every waiting poll that may find something, if no claim is under way.
    pub(super) fn claim(&mut self) {
        let Some(fence) = self.fence().filter(|_| !self.claims.in_flight && self.takes_requests()) else { return };
        if self.claims.hints.is_empty() || self.polls.is_empty() {
            return;
        }
        let able = self.polls.able(&mut self.claims.hints.keys());
        let mut wants = Vec::new();
        for (poll, room, contracts) in able {
            let session = self.polls.get_mut(poll).expect("listed as able").session;
            let tasks = room.min(MAX_PER_POLL);
            let tokens = (0..tasks).map(|_| self.draw()).collect();
            self.polls.reserve_for(poll, tasks);
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
        let claim = ClaimTasks { key: CallKey(self.draw()), fence, wants: wants.iter().map(want).collect() };
        let flight = ClaimFlight { sending: self.claims.sendings, wants };
        self.send(Connection::Store, Transaction::Claim(claim), Purpose::Claim(flight));
    }

    pub(super) fn on_claim(&mut self, flight: ClaimFlight, outcome: Result<Verdict, Failure>) {
        self.claims.in_flight = false;
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
            if missing > 0 {
                // It found all there was, unless a row was queued behind it.
                for contract in want.contracts.iter() {
                    if self.claims.hints.get(contract).is_some_and(|at| *at < flight.sending) {
                        self.claims.hints.remove(contract);
                    }
                }
            }
            for claimed in tasks {
                let execution = claimed.execution.clone();
                let work = Work::Dispatch { claimed, session: want.session, poll: want.poll };
                self.enqueue(&execution, work);
            }
            for _ in 0..missing {
                self.polls.release(want.poll);
            }
            self.answer_poll_when_due(want.poll);
        }
    }
}
