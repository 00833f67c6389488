//! Worker sessions. In memory alone: after a restart workers register again (reference, "Clients and workers").

use crate::api::request::Contract;
use crate::id::{ContractVersion, SessionId, TaskName, Token, WorkerId};
use crate::node::RequestId;
use crate::time::Mono;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How many answered polls of a session are remembered, in case the front reports one as lost.
const ANSWERS_KEPT: usize = 8;

/// The sessions of this server.
#[derive(Debug)]
pub struct Sessions {
    timeout: Duration,
    /// What all of them registered.
    contracts: u64,
    /// How many sessions registered each contract.
    offered: BTreeMap<Contract, u32>,
    by_id: BTreeMap<SessionId, Session>,
    /// The sessions of each worker id, in the order in which they registered.
    by_worker: BTreeMap<WorkerId, BTreeSet<(Mono, SessionId)>>,
    /// When each session falls silent, earliest first.
    silence: BTreeSet<(Mono, SessionId)>,
    /// Which session a recent answer went to.
    answers: BTreeMap<RequestId, SessionId>,
}

/// A worker that registered and has been heard of since.
#[derive(Debug)]
pub struct Session {
    pub worker_id: WorkerId,
    pub contracts: Arc<BTreeSet<Contract>>,
    /// Whether the worker says which tokens it holds.
    pub lists: bool,
    /// Deliveries to this session that are open.
    pub held: BTreeMap<Token, Held>,
    /// Tokens to stop working on, not told yet.
    pub cancels: BTreeSet<Token>,
    answers: VecDeque<(RequestId, Vec<Token>)>,
    opened: Mono,
    last_contact: Mono,
}

/// A delivery, as its session stands to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// It has been put into an answer.
    pub offered: bool,
    /// The worker has named it since.
    pub named: bool,
    /// Its result is here, and not recorded yet.
    pub reporting: bool,
}

impl Session {
    /// When it registered.
    pub fn opened(&self) -> Mono {
        self.opened
    }

    /// When its worker was heard of last.
    pub fn last_contact(&self) -> Mono {
        self.last_contact
    }
}

impl Sessions {
    /// None yet; a session is lost after `timeout` without contact.
    pub fn new(timeout: Duration) -> Sessions {
        Sessions {
            timeout,
            contracts: 0,
            offered: BTreeMap::new(),
            by_id: BTreeMap::new(),
            by_worker: BTreeMap::new(),
            silence: BTreeSet::new(),
            answers: BTreeMap::new(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// How many contracts they registered together.
    pub fn contracts(&self) -> u64 {
        self.contracts
    }

    /// How many sessions offer this contract.
    pub fn offering(&self, contract: &Contract) -> u32 {
        self.offered.get(contract).copied().unwrap_or(0)
    }

    /// The versions in which this task is offered.
    pub fn versions(&self, task: &TaskName) -> Vec<ContractVersion> {
        let first = Contract { task_name: task.clone(), contract_version: "".into() };
        let of_task = self.offered.range(first..).take_while(|(contract, _)| contract.task_name == *task);
        of_task.map(|(contract, _)| contract.contract_version.clone()).collect()
    }

    /// Opens a session.
    pub fn open(&mut self, now: Mono, id: SessionId, worker_id: WorkerId, contracts: BTreeSet<Contract>) {
        self.contracts += contracts.len() as u64;
        for contract in &contracts {
            *self.offered.entry(contract.clone()).or_default() += 1;
        }
        self.by_worker.entry(worker_id.clone()).or_default().insert((now, id));
        let session = Session {
            worker_id,
            contracts: Arc::new(contracts),
            lists: false,
            held: BTreeMap::new(),
            cancels: BTreeSet::new(),
            answers: VecDeque::new(),
            opened: now,
            last_contact: now,
        };
        self.silence.insert((now + self.timeout, id));
        assert!(self.by_id.insert(id, session).is_none(), "a session id is drawn once");
    }

    /// A session that is alive.
    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.by_id.get(&id)
    }

    /// A session that is alive.
    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.by_id.get_mut(&id)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.by_id.iter().map(|(id, session)| (*id, session))
    }

    /// The sessions of a worker id, in the order in which they registered.
    pub fn of_worker(&self, worker: &WorkerId) -> impl DoubleEndedIterator<Item = (SessionId, &Session)> {
        let ids = self.by_worker.get(worker).into_iter().flatten();
        ids.map(|(_, id)| (*id, self.by_id.get(id).expect("listed while it is open")))
    }

    /// When a session is lost, unless something is heard of it before.
    pub fn lost_at(&self, session: &Session) -> Mono {
        session.last_contact + self.timeout
    }

    /// Hears of a session; `None` if there is none of that id.
    pub fn touch(&mut self, now: Mono, id: SessionId) -> Option<&mut Session> {
        let session = self.by_id.get_mut(&id)?;
        self.silence.remove(&(session.last_contact + self.timeout, id));
        session.last_contact = now;
        self.silence.insert((now + self.timeout, id));
        Some(session)
    }

    /// Ends a session.
    pub fn close(&mut self, id: SessionId) -> Option<Session> {
        let session = self.by_id.remove(&id)?;
        self.contracts -= session.contracts.len() as u64;
        for contract in session.contracts.iter() {
            let sessions = self.offered.get_mut(contract).expect("counted when the session was opened");
            *sessions -= 1;
            if *sessions == 0 {
                self.offered.remove(contract);
            }
        }
        let of_worker = self.by_worker.get_mut(&session.worker_id).expect("listed when the session was opened");
        of_worker.remove(&(session.opened, id));
        if of_worker.is_empty() {
            self.by_worker.remove(&session.worker_id);
        }
        self.silence.remove(&(session.last_contact + self.timeout, id));
        for (request, _) in &session.answers {
            self.answers.remove(request);
        }
        Some(session)
    }

    /// A session that has been silent for its time, if there is one.
    pub fn silent(&self, now: Mono) -> Option<SessionId> {
        self.silence.first().filter(|(at, _)| *at <= now).map(|(_, id)| *id)
    }

    /// When the next session falls silent.
    pub fn next_silence(&self) -> Option<Mono> {
        self.silence.first().map(|(at, _)| *at)
    }

    /// Remembers which tokens an answer carried, in case it is lost on its way.
    pub fn answered(&mut self, id: SessionId, request: RequestId, tokens: Vec<Token>) {
        let Some(session) = self.by_id.get_mut(&id) else { return };
        session.answers.push_back((request, tokens));
        self.answers.insert(request, id);
        if session.answers.len() > ANSWERS_KEPT {
            let (forgotten, _) = session.answers.pop_front().expect("more than ANSWERS_KEPT are there");
            self.answers.remove(&forgotten);
        }
    }

    /// The tokens that a lost answer carried, and its session, where the worker will not tell of them itself.
    pub fn lost_answer(&mut self, request: RequestId) -> Vec<Token> {
        let Some(session) = self.answers.remove(&request).and_then(|id| self.by_id.get_mut(&id)) else {
            return Vec::new();
        };
        let Some(at) = session.answers.iter().position(|(r, _)| *r == request) else { return Vec::new() };
        let (_, tokens) = session.answers.remove(at).expect("found just now");
        if session.lists { Vec::new() } else { tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn at(ms: u64) -> Mono {
        Mono(ms * 1000)
    }

    #[test]
    fn a_session_is_silent_one_timeout_after_its_last_contact() {
        let mut sessions = Sessions::new(Duration::from_millis(100));
        let id = SessionId(Uuid::from_u128(1));
        sessions.open(at(0), id, "w".into(), BTreeSet::new());
        assert!(sessions.touch(at(60), id).is_some());
        assert_eq!(sessions.silent(at(159)), None);
        assert_eq!(sessions.next_silence(), Some(at(160)));
        assert_eq!(sessions.silent(at(160)), Some(id));
        assert!(sessions.close(id).is_some());
        assert_eq!(sessions.next_silence(), None);
        assert!(sessions.touch(at(170), id).is_none());
    }

    #[test]
    fn what_is_offered_is_what_open_sessions_registered() {
        let contract =
            |name: &str, version: &str| Contract { task_name: name.into(), contract_version: version.into() };
        let mut sessions = Sessions::new(Duration::from_secs(1));
        let ids = [1, 2].map(|n| SessionId(Uuid::from_u128(n)));
        sessions.open(at(0), ids[0], "w".into(), [contract("a", "1"), contract("a", "2")].into());
        sessions.open(at(0), ids[1], "v".into(), [contract("a", "2"), contract("ab", "1")].into());
        let offered = |sessions: &Sessions| {
            let versions: Vec<String> = sessions.versions(&"a".into()).iter().map(ToString::to_string).collect();
            (sessions.offering(&contract("a", "1")), sessions.offering(&contract("a", "2")), versions.join(","))
        };
        assert_eq!(offered(&sessions), (1, 2, "1,2".to_owned()));
        sessions.close(ids[0]);
        assert_eq!(offered(&sessions), (0, 1, "2".to_owned()));
        sessions.close(ids[1]);
        assert_eq!(offered(&sessions), (0, 0, String::new()));
    }

    #[test]
    fn the_sessions_of_a_worker_id_are_told_in_the_order_in_which_they_registered() {
        let mut sessions = Sessions::new(Duration::from_millis(100));
        let ids = [3, 1, 2].map(|n| SessionId(Uuid::from_u128(n)));
        for (at_ms, id) in [(5, ids[0]), (7, ids[1])] {
            sessions.open(at(at_ms), id, "w".into(), BTreeSet::new());
        }
        sessions.open(at(6), ids[2], "v".into(), BTreeSet::new());
        sessions.touch(at(50), ids[0]);
        let of = |sessions: &Sessions, worker: &str| -> Vec<_> {
            sessions
                .of_worker(&worker.into())
                .map(|(id, known)| (id, known.opened(), sessions.lost_at(known)))
                .collect()
        };
        assert_eq!(of(&sessions, "w"), [(ids[0], at(5), at(150)), (ids[1], at(7), at(107))]);
        sessions.close(ids[0]);
        assert_eq!(of(&sessions, "w"), [(ids[1], at(7), at(107))]);
        sessions.close(ids[1]);
        assert_eq!(of(&sessions, "w"), []);
        assert_eq!(of(&sessions, "v").len(), 1);
    }

    #[test]
    fn a_lost_answer_matters_only_for_workers_that_do_not_say_what_they_hold() {
        let mut sessions = Sessions::new(Duration::from_millis(100));
        let token = Token { execution: "e".into(), id: Uuid::from_u128(9) };
        for (n, lists) in [(1, false), (2, true)] {
            let id = SessionId(Uuid::from_u128(n));
            sessions.open(at(0), id, "w".into(), BTreeSet::new());
            sessions.get_mut(id).expect("opened").lists = lists;
            sessions.answered(id, RequestId(n as u64), vec![token.clone()]);
        }
        assert_eq!(sessions.lost_answer(RequestId(1)), vec![token]);
        assert_eq!(sessions.lost_answer(RequestId(1)), vec![]);
        assert_eq!(sessions.lost_answer(RequestId(2)), vec![]);
    }
}
