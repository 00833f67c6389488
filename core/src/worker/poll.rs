//! The long polls that wait: oldest first, each with what it can take and what is reserved for it.
//!
//! A task is *reserved* for a poll while the append or the claim that hands it over is under way; a poll is answered
//! only when nothing is reserved for it any more.

use crate::api::request::Contract;
use crate::api::response::{Assignment, ResultOutcome};
use crate::id::{SessionId, Token};
use crate::node::RequestId;
use crate::time::Mono;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The polls of this server.
#[derive(Debug, Default)]
pub struct Polls {
    waiting: BTreeMap<RequestId, WaitingPoll>,
    /// Polls with room, by contract; request ids rise, so the first is the oldest.
    by_contract: BTreeMap<Contract, BTreeSet<RequestId>>,
    by_session: BTreeMap<SessionId, BTreeSet<RequestId>>,
    deadlines: BTreeSet<(Mono, RequestId)>,
}

/// A poll that is not answered yet.
#[derive(Debug)]
pub struct WaitingPoll {
    pub session: SessionId,
    contracts: Arc<BTreeSet<Contract>>,
    /// How many more tasks it can take.
    room: u32,
    /// How many tasks are on their way to it.
    reserved: u32,
    /// Tasks that it is answered with.
    pub assigned: Vec<Assignment>,
    /// Outcomes of the results that it brought; none while open.
    pub outcomes: Vec<Option<ResultOutcome>>,
    /// Answer as soon as nothing is open, tasks or not.
    pub eager: bool,
    deadline: Mono,
}

impl Polls {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none wait.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A poll begins to wait, for at most `room` tasks and until `deadline`.
    pub fn open(
        &mut self,
        request: RequestId,
        session: SessionId,
        contracts: Arc<BTreeSet<Contract>>,
        room: u32,
        deadline: Mono,
        results: usize,
    ) {
        let poll = WaitingPoll {
            session,
            contracts,
            room,
            reserved: 0,
            assigned: Vec::new(),
            outcomes: vec![None; results],
            eager: results > 0,
            deadline,
        };
        self.index(request, &poll);
        self.by_session.entry(session).or_default().insert(request);
        self.deadlines.insert((deadline, request));
        self.waiting.insert(request, poll);
    }

    fn index(&mut self, request: RequestId, poll: &WaitingPoll) {
        if poll.room > 0 {
            for contract in poll.contracts.iter() {
                match self.by_contract.get_mut(contract) {
                    Some(polls) => drop(polls.insert(request)),
                    None => drop(self.by_contract.insert(contract.clone(), BTreeSet::from([request]))),
                }
            }
        }
    }

    fn unindex(by_contract: &mut BTreeMap<Contract, BTreeSet<RequestId>>, request: RequestId, poll: &WaitingPoll) {
        for contract in poll.contracts.iter() {
            if let Some(polls) = by_contract.get_mut(contract) {
                polls.remove(&request);
                if polls.is_empty() {
                    by_contract.remove(contract);
                }
            }
        }
    }

    /// A poll that waits.
    pub fn get(&self, request: RequestId) -> Option<&WaitingPoll> {
        self.waiting.get(&request)
    }

    pub fn get_mut(&mut self, request: RequestId) -> Option<&mut WaitingPoll> {
        self.waiting.get_mut(&request)
    }

    /// Reserves a task of this contract for the oldest poll that can take it.
    pub fn reserve(&mut self, contract: &Contract) -> Option<(RequestId, SessionId)> {
        let request = *self.by_contract.get(contract)?.first()?;
        let session = self.waiting.get(&request)?.session;
        self.reserve_for(request, 1);
        Some((request, session))
    }

    /// Reserves `tasks` of a poll's room.
    pub fn reserve_for(&mut self, request: RequestId, tasks: u32) {
        let Some(poll) = self.waiting.get_mut(&request) else { return };
        assert!(poll.room >= tasks, "no more is reserved than there is room for");
        poll.room -= tasks;
        poll.reserved += tasks;
        if poll.room == 0 {
            Self::unindex(&mut self.by_contract, request, poll);
        }
    }

    /// Takes one reservation back: the task did not come.
    pub fn release(&mut self, request: RequestId) {
        let Some(mut poll) = self.waiting.remove(&request) else { return };
        assert!(poll.reserved > 0, "a reservation is released once");
        poll.reserved -= 1;
        poll.room += 1;
        self.index(request, &poll);
        self.waiting.insert(request, poll);
    }

    /// A reserved task came. Gives it back where the poll is gone.
    pub fn assign(&mut self, request: RequestId, assignment: Assignment) -> Result<(), Box<Assignment>> {
        let Some(poll) = self.waiting.get_mut(&request) else { return Err(Box::new(assignment)) };
        assert!(poll.reserved > 0, "a task was reserved before it is assigned");
        poll.reserved -= 1;
        poll.assigned.push(assignment);
        Ok(())
    }

    /// A waiting poll of this session that has room, and its room.
    pub fn with_room(&self, session: SessionId) -> Option<(RequestId, u32)> {
        let polls = self.by_session.get(&session)?;
        polls.iter().find_map(|id| self.waiting.get(id).filter(|p| p.room > 0).map(|p| (*id, p.room)))
    }

    /// The tokens that waiting polls of a session will be answered with.
    pub fn assigned_to(&self, session: SessionId) -> BTreeSet<Token> {
        let polls = self.by_session.get(&session).into_iter().flatten().filter_map(|id| self.waiting.get(id));
        polls.flat_map(|poll| &poll.assigned).map(|assignment| assignment.token.clone()).collect()
    }

    /// How many polls of a session wait.
    pub fn count_of(&self, session: SessionId) -> usize {
        self.by_session.get(&session).map_or(0, BTreeSet::len)
    }

    /// The polls of a session.
    pub fn of_session(&self, session: SessionId) -> Vec<RequestId> {
        self.by_session.get(&session).into_iter().flatten().copied().collect()
    }

    /// Every waiting poll with room for one of these contracts, oldest first, with its room and contracts.
    pub fn able(
        &self,
        contracts: &mut dyn Iterator<Item = &Contract>,
    ) -> Vec<(RequestId, u32, Arc<BTreeSet<Contract>>)> {
        let polls: BTreeSet<RequestId> = contracts.filter_map(|c| self.by_contract.get(c)).flatten().copied().collect();
        let able = polls.into_iter().filter_map(|id| self.waiting.get(&id).map(|poll| (id, poll)));
        able.map(|(id, poll)| (id, poll.room, poll.contracts.clone())).collect()
    }

    /// Whether a poll can be answered: nothing is open, and there is something to say (`news`: something beside what is in the
    /// poll) or no more time.
    pub fn is_due(&self, request: RequestId, now: Mono, news: bool) -> bool {
        self.waiting.get(&request).is_some_and(|poll| {
            let closed = poll.reserved == 0 && poll.outcomes.iter().all(Option::is_some);
            closed && (poll.eager || news || !poll.assigned.is_empty() || poll.deadline <= now)
        })
    }

    /// Ends a poll.
    pub fn close(&mut self, request: RequestId) -> Option<WaitingPoll> {
        let poll = self.waiting.remove(&request)?;
        Self::unindex(&mut self.by_contract, request, &poll);
        self.deadlines.remove(&(poll.deadline, request));
        if let Some(polls) = self.by_session.get_mut(&poll.session) {
            polls.remove(&request);
            if polls.is_empty() {
                self.by_session.remove(&poll.session);
            }
        }
        Some(poll)
    }

    /// A poll whose time is over, if there is one; it is not returned again.
    pub fn expired(&mut self, now: Mono) -> Option<RequestId> {
        let (at, _) = self.deadlines.first()?;
        if *at > now {
            return None;
        }
        self.deadlines.pop_first().map(|(_, request)| request)
    }

    /// When the next poll's time is over.
    pub fn next_deadline(&self) -> Option<Mono> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Every waiting poll.
    pub fn all(&self) -> Vec<RequestId> {
        self.waiting.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn contract(name: &str) -> Contract {
        Contract { task_name: name.into(), contract_version: "1".into() }
    }

    fn open(polls: &mut Polls, request: u64, names: &[&str], room: u32) {
        let contracts = Arc::new(names.iter().map(|n| contract(n)).collect());
        let session = SessionId(Uuid::from_u128(request.into()));
        polls.open(RequestId(request), session, contracts, room, Mono(100), 0);
    }

    #[test]
    fn the_oldest_poll_with_room_gets_the_task() {
        let mut polls = Polls::default();
        open(&mut polls, 1, &["a"], 1);
        open(&mut polls, 2, &["a", "b"], 2);
        let taken = |polls: &mut Polls, name: &str| polls.reserve(&contract(name)).map(|(r, _)| r.0);
        assert_eq!(taken(&mut polls, "a"), Some(1));
        assert_eq!(taken(&mut polls, "a"), Some(2));
        assert_eq!(taken(&mut polls, "b"), Some(2));
        assert_eq!(taken(&mut polls, "b"), None);
        polls.release(RequestId(1));
        assert_eq!(taken(&mut polls, "a"), Some(1));
    }

    #[test]
    fn a_poll_with_a_reservation_is_not_answered_even_when_its_time_is_over() {
        let mut polls = Polls::default();
        open(&mut polls, 1, &["a"], 1);
        polls.reserve(&contract("a"));
        assert!(!polls.is_due(RequestId(1), Mono(100), false));
        polls.release(RequestId(1));
        assert!(!polls.is_due(RequestId(1), Mono(99), false));
        assert!(polls.is_due(RequestId(1), Mono(100), false));
    }

    #[test]
    fn a_poll_that_is_gone_takes_nothing() {
        let mut polls = Polls::default();
        open(&mut polls, 1, &["a"], 1);
        assert!(polls.close(RequestId(1)).is_some());
        assert!(polls.is_empty());
        assert_eq!(polls.reserve(&contract("a")), None);
        polls.release(RequestId(1));
        assert_eq!(polls.next_deadline(), None);
    }
}
