//! Requests of workers: sessions, polls, heartbeats and reports (protocols, 24 to 26).

use super::request::Open;
use super::{Connection, LogEvent, Node, Purpose, RequestId};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::request::{Contract, Poll, Register, ReportForm, TaskResult};
use crate::api::response::{
    Accepted, Assignment, Cancels, Polled, Registered, Reply, Response, ResultOutcome, SessionView, WorkerView, Workers,
};
use crate::execution::event::Json;
use crate::execution::state::UnitStatus;
use crate::id::{SessionId, StepId, Token};
use crate::mutant::{Mutant, Mutants};
use crate::node::slot::{Slot, Work};
use crate::store::statement::{PutWorker, SeeWorkers, WorkerRow};
use crate::store::transaction::Transaction;
use crate::worker::attempt::{Holder, Orphaned};
use crate::worker::session::Held;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl<M: Mutants> Node<M> {
    /// Whether one more of something bounded is too much.
    fn beyond(&self, what: &str, limit: &'static str, more: u64, max: u64) -> Option<ApiError> {
        (more > max).then(|| {
            ApiError::new(ErrorCode::ResourceExhausted, format!("at most {max} {what} ({limit})"))
                .with("limit", limit)
                .with("max", max)
        })
    }

    pub(super) fn register(&mut self, id: RequestId, register: Register) {
        let limits = self.config.limits;
        let sessions = self.sessions.len() as u64 + 1;
        let contracts = self.sessions.contracts() + register.contracts.len() as u64;
        let what = "worker sessions can be open on this server";
        let refused = self.beyond(what, "max_worker_sessions", sessions, limits.max_worker_sessions).or_else(|| {
            let what = "contracts can be registered by the open sessions of this server together";
            self.beyond(what, "max_worker_contracts", contracts, limits.max_worker_contracts)
        });
        if let Some(error) = refused.or_else(|| self.too_many_requests()) {
            return self.answer(id, error);
        }
        let session = SessionId(self.draw());
        let Register { worker_id, runtime, sdk, contracts } = register;
        self.log(LogEvent::WorkerRegistered {
            worker_id: worker_id.clone(),
            runtime: runtime.clone(),
            tasks: contracts.len() as u64,
        });
        let pairs = contracts.iter().map(|c| (c.task_name.clone(), c.contract_version.clone())).collect();
        self.sessions.open(self.now.mono, session, worker_id.clone(), contracts.into_iter().collect());
        // The registry is for people: nobody waits for it.
        self.count_registration();
        let worker = WorkerRow { worker_id, runtime, sdk, contracts: pairs, last_seen_ms: self.cluster_now() };
        self.send(Connection::Requests, Transaction::SaveWorker(PutWorker { worker }), Purpose::SaveWorker);
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let registered = Registered {
            session_id: session,
            heartbeat_interval_ms: millis(self.config.heartbeat_interval),
            session_timeout_ms: millis(self.config.session_timeout),
        };
        self.answer(id, Response::ok(Reply::Registered(registered)));
    }

    pub(super) fn heartbeat(&mut self, id: RequestId, session: SessionId, holding: Option<Vec<Token>>) {
        let heard_of = match self.mutants.planted(Mutant::HeartbeatsUncounted) {
            true => self.sessions.get(session).is_some(),
            false => self.sessions.touch(self.now.mono, session).is_some(),
        };
        if !heard_of {
            return self.answer(id, unknown_session(session));
        }
        let cancel = self.hear_of(session, holding.as_deref(), &[]);
        self.answer(id, Response::ok(Reply::Heartbeat(Cancels { cancel })));
    }

    pub(super) fn unregister(&mut self, id: RequestId, session: SessionId) {
        let Some(worker_id) = self.sessions.get(session).map(|s| s.worker_id.clone()) else {
            return self.answer(id, unknown_session(session));
        };
        self.log(LogEvent::WorkerUnregistered { worker_id: worker_id.clone() });
        self.save_seen(SeeWorkers { seen: BTreeMap::from([(worker_id.clone(), self.cluster_now())]) });
        self.close_session(session, format!("worker `{worker_id}` unregistered"));
        self.answer(id, Response::ok(Reply::Unregistered));
    }

    /// Takes in what a worker says it holds, and gives what it is to stop working on.
    ///
    /// A token that it names and that is open is its own from now on: it held it before a restart of this server, or
    /// under an earlier session. `reported` are tokens whose results came with the same request.
    fn hear_of(&mut self, session: SessionId, holding: Option<&[Token]>, reported: &[Token]) -> Vec<Token> {
        let known = self.sessions.get_mut(session).expect("touched just now");
        let mut cancel = std::mem::take(&mut known.cancels);
        known.lists = holding.is_some();
        let Some(holding) = holding else { return cancel.into_iter().collect() };
        let holding: BTreeSet<&Token> = holding.iter().collect();
        for (token, held) in &mut known.held {
            held.named = holding.contains(token);
            held.offered |= held.named;
        }
        for token in &holding {
            match self.attempts.holder(token) {
                Some(Holder::Session(holder)) if holder == session => {}
                Some(holder) => self.adopt(session, (*token).clone(), holder),
                None if reported.contains(token) => {}
                None => drop(cancel.insert((*token).clone())),
            }
        }
        // What the worker does not hold it need not be told to stop. (It may have it in an answer on the way: then it
        // will name it, and is told.)
        cancel.retain(|token| holding.contains(token));
        cancel.into_iter().collect()
    }

    fn adopt(&mut self, session: SessionId, token: Token, from: Holder) {
        self.attempts.hold(token.clone(), Holder::Session(session));
        if let Holder::Session(other) = from
            && let Some(other) = self.sessions.get_mut(other)
        {
            other.held.remove(&token);
        }
        let held = Held { offered: true, named: true, reporting: false };
        self.sessions.get_mut(session).expect("alive").held.insert(token, held);
    }

    pub(super) fn poll(&mut self, id: RequestId, poll: Poll) {
        let Poll { session, max_tasks, wait, holding, results } = poll;
        if self.sessions.get(session).is_none() {
            return self.answer(id, unknown_session(session));
        }
        if let Some(error) =
            self.too_many_requests().filter(|_| !results.is_empty()).or_else(|| self.too_many_polls(session))
        {
            return self.answer(id, error);
        }
        // A session lives longer than a poll of it waits: a worker that only polls is not lost.
        let wait = wait.min(self.config.session_timeout / 2);
        self.sessions.touch(self.now.mono, session);
        let reported: Vec<Token> = results.iter().map(|r| r.token.clone()).collect();
        let cancel = self.hear_of(session, holding.as_deref(), &reported);
        let again = self.undelivered(session, holding.is_some(), &reported, max_tasks);
        let known = self.sessions.get_mut(session).expect("looked up above");
        // What is told only when the poll is answered waits with the session.
        let urgent = !cancel.is_empty() || !again.is_empty();
        known.cancels.extend(cancel);
        let contracts = known.contracts.clone();
        let room = max_tasks - u32::try_from(again.len()).expect("at most max_tasks");
        self.polls.open(id, session, contracts, room, self.now.mono + wait, results.len());
        let waiting = self.polls.get_mut(id).expect("opened just now");
        waiting.eager |= urgent || wait.is_zero();
        waiting.assigned = again;
        if !results.is_empty() {
            self.request_deadlines.insert((self.now.mono + self.config.request_deadline, id));
        }
        self.take_results(id, session, results);
        self.answer_poll_when_due(id);
    }

    fn too_many_polls(&self, session: SessionId) -> Option<ApiError> {
        let limits = self.config.limits;
        let (own, all) = (self.polls.count_of(session) as u64 + 1, self.polls.len() as u64 + 1);
        self.beyond("polls of one session can wait", "max_session_polls", own, limits.max_session_polls).or_else(|| {
            self.beyond("polls can wait on this server", "max_waiting_polls", all, limits.max_waiting_polls)
        })
    }

    /// Open deliveries to this session that never reached an answer, or that a later request of a worker that says what
    /// it holds does not name: they are answered again (protocols, 24).
    fn undelivered(&mut self, session: SessionId, lists: bool, reported: &[Token], max: u32) -> Vec<Assignment> {
        let known = self.sessions.get(session).expect("alive");
        // One that an open poll of the session is about to be answered with is not lost: it would go out twice.
        let on_its_way = self.polls.assigned_to(session);
        let missing = known.held.iter().filter(|(token, held)| {
            let lost = !held.offered || (lists && !held.named);
            lost && !held.reporting && !reported.contains(token) && !on_its_way.contains(token)
        });
        let missing: Vec<_> = missing.map(|(token, held)| (token.clone(), held.offered)).take(max as usize).collect();
        let mut again = Vec::new();
        for (token, offered) in missing {
            if let Some(mut assignment) = self.assignment(&token) {
                assignment.redelivery |= offered && !self.mutants.planted(Mutant::RedeliveryUnflagged);
                again.push(assignment);
            }
        }
        again
    }

    /// What a worker is told of an open delivery.
    pub(super) fn assignment(&self, token: &Token) -> Option<Assignment> {
        let resident = self.slots.get(&token.execution).and_then(Slot::resident)?;
        let delivery = resident.state.deliveries.get(&token.id)?;
        let unit = resident.state.units.get(&delivery.unit)?;
        let UnitStatus::Dispatched { token: current, deadline, redelivery, .. } = &unit.status else { return None };
        if *current != token.id {
            return None;
        }
        let task = resident.definition.task_of(&delivery.unit)?;
        Some(Assignment {
            token: token.clone(),
            execution_id: token.execution.clone(),
            workflow: resident.state.workflow.clone(),
            workflow_version: resident.state.version.clone(),
            step_id: StepId::new(delivery.unit.as_str()),
            task_name: task.task.clone(),
            contract_version: task.contract_version.clone(),
            input: unit.input.clone().unwrap_or_else(Json::default),
            idempotency_key: resident.state.identity.idempotency_key(&delivery.unit),
            attempt: delivery.attempt,
            redelivery: *redelivery && !self.mutants.planted(Mutant::RedeliveryUnflagged),
            deadline_ms: *deadline,
            timeout_ms: task.timeout.map(|t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX)),
        })
    }

    pub(super) fn report(&mut self, id: RequestId, session: SessionId, results: Vec<TaskResult>, form: ReportForm) {
        if self.sessions.touch(self.now.mono, session).is_none() {
            return self.answer(id, unknown_session(session));
        }
        if results.is_empty() {
            return self.answer(id, Response::ok(Reply::Reported(Vec::new())));
        }
        let outcomes = vec![None; results.len()];
        if self.open_write(id, Open::Report { form, outcomes }) {
            self.take_results(id, session, results);
        }
    }

    fn take_results(&mut self, request: RequestId, session: SessionId, results: Vec<TaskResult>) {
        for (index, TaskResult { token, outcome }) in results.into_iter().enumerate() {
            if let Some(held) = self.sessions.get_mut(session).and_then(|s| s.held.get_mut(&token)) {
                held.reporting = true;
            }
            let execution = token.execution.clone();
            self.enqueue(&execution, Work::Result { request, index, token, outcome });
        }
    }

    /// The outcome of one result is known.
    pub(super) fn result_outcome(&mut self, request: RequestId, index: usize, outcome: ResultOutcome) {
        if outcome.outcome == Accepted::Refused
            && let Some(Holder::Session(session)) = self.attempts.holder(&outcome.token)
            && let Some(held) = self.sessions.get_mut(session).and_then(|s| s.held.get_mut(&outcome.token))
        {
            held.reporting = false;
        }
        if let Some(poll) = self.polls.get_mut(request) {
            poll.outcomes[index] = Some(outcome);
            return self.answer_poll_when_due(request);
        }
        let Some(open) = self.requests.get_mut(&request) else { return };
        let Open::Report { form, outcomes } = &mut open.kind else {
            unreachable!("outcomes belong to polls and reports")
        };
        outcomes[index] = Some(outcome);
        if outcomes.iter().all(Option::is_some) {
            let form = *form;
            let mut outcomes: Vec<_> = std::mem::take(outcomes).into_iter().flatten().collect();
            let response = match form {
                ReportForm::Batch => Response::ok(Reply::Reported(outcomes)),
                ReportForm::Single => match outcomes.pop().expect("a single report has one result") {
                    ResultOutcome { error: Some(error), .. } => error.into(),
                    outcome => Response::ok(Reply::ReportedOne(outcome)),
                },
            };
            self.respond(request, response);
        }
    }

    /// A poll whose results have had no outcome for too long is told so; what is on its way to it stays with its session.
    pub(super) fn expire_results(&mut self, id: RequestId) {
        let Some(poll) = self.polls.get_mut(id) else { return };
        if poll.outcomes.iter().all(Option::is_some) {
            return;
        }
        let message = "the database has not answered in time: the results may still be recorded";
        self.polls.close(id);
        self.answer(id, ApiError::new(ErrorCode::OutcomeUnknown, message));
    }

    /// Answers a poll if nothing of it is open and there is something to say, or its time is over.
    pub(super) fn answer_poll_when_due(&mut self, id: RequestId) {
        // What its worker is to stop, it is told at once; another poll of the session may have told it meanwhile.
        let session = self.polls.get(id).and_then(|poll| self.sessions.get(poll.session));
        let news = session.is_some_and(|session| !session.cancels.is_empty());
        if !self.polls.is_due(id, self.now.mono, news) {
            return;
        }
        let poll = self.polls.close(id).expect("it is due");
        let tokens: Vec<Token> = poll.assigned.iter().map(|a| a.token.clone()).collect();
        let mut cancel = Vec::new();
        if let Some(session) = self.sessions.get_mut(poll.session) {
            cancel.extend(std::mem::take(&mut session.cancels));
            for token in &tokens {
                if let Some(held) = session.held.get_mut(token) {
                    held.offered = true;
                    held.named = false;
                }
            }
            self.sessions.answered(poll.session, id, tokens);
        }
        let outcomes = poll.outcomes.into_iter().flatten().collect();
        self.answer(id, Response::ok(Reply::Polled(Polled { tasks: poll.assigned, cancel, outcomes })));
    }

    pub(super) fn expire_polls(&mut self) {
        while let Some(id) = self.polls.expired(self.now.mono) {
            self.answer_poll_when_due(id);
        }
    }

    /// Sessions that have been silent for their time: what they held is delivered again.
    pub(super) fn expire_sessions(&mut self) {
        let mut seen = BTreeMap::new();
        while let Some(session) = self.sessions.silent(self.now.mono) {
            let known = self.sessions.get(session).expect("listed as silent");
            // The earliest goes first, so that of one worker's sessions the latest word counts.
            seen.insert(known.worker_id.clone(), self.alive().at(known.last_contact()));
            let (worker_id, holding) = (known.worker_id.clone(), known.held.len() as u64);
            self.log(LogEvent::WorkerLost { worker_id: worker_id.clone(), session, holding });
            self.close_session(session, format!("worker `{worker_id}` stopped responding"));
        }
        self.save_seen(SeeWorkers { seen });
    }

    fn close_session(&mut self, session: SessionId, reason: String) {
        for poll in self.polls.of_session(session) {
            // What is on its way to it stays with its session.
            self.polls.close(poll);
            self.answer(poll, unknown_session(session));
        }
        let Some(closed) = self.sessions.close(session) else { return };
        if self.mutants.planted(Mutant::SilentSessionKeepsAttempts) {
            return;
        }
        for token in closed.held.into_keys() {
            self.uncertain(token, reason.clone());
        }
    }

    /// What became of a delivery is not known: it is recorded so, and delivered again.
    pub(super) fn uncertain(&mut self, token: Token, reason: String) {
        let execution = token.execution.clone();
        self.enqueue(&execution, Work::Uncertain { token, reason });
    }

    /// Deliveries that no worker has, or none has named or reported in a session's time after a restart.
    pub(super) fn give_up_orphans(&mut self) {
        while let Some(token) = self.attempts.given_up(self.now.mono) {
            let reason = match self.attempts.holder(&token) {
                Some(Holder::Nobody { why: Orphaned::SessionEnded, .. }) => {
                    "its worker's session ended before it could be handed over"
                }
                _ => "no worker reported it within a session's time after the restart",
            };
            self.uncertain(token, reason.into());
        }
    }

    /// The front could not write an answer: a worker that does not say what it holds would never tell of these.
    pub(super) fn on_answer_lost(&mut self, id: RequestId) {
        for token in self.sessions.lost_answer(id) {
            if self.attempts.holder(&token).is_some() {
                self.uncertain(token, "the answer that carried it could not be written".into());
            }
        }
    }

    /// The registry, with what is alive here.
    pub(super) fn workers(&self, rows: Vec<WorkerRow>) -> Response {
        let alive = self.alive();
        let workers = rows.into_iter().map(|row| {
            let sessions = self.sessions.of_worker(&row.worker_id).map(|(session_id, session)| SessionView {
                session_id,
                registered_ms: alive.at(session.opened()),
                last_seen_ms: alive.at(session.last_contact()),
                holding: u32::try_from(session.held.len()).unwrap_or(u32::MAX),
            });
            let open_sessions: Vec<SessionView> = sessions.collect();
            let seen = open_sessions.iter().map(|session| session.last_seen_ms).max();
            let contract = |(task_name, contract_version)| Contract { task_name, contract_version };
            let contracts: BTreeSet<Contract> = row.contracts.into_iter().map(contract).collect();
            WorkerView {
                worker_id: row.worker_id,
                runtime: row.runtime,
                sdk: row.sdk,
                contracts: contracts.into_iter().collect(),
                // The row is written now and then; its sessions know when they heard from it last.
                last_seen_ms: row.last_seen_ms.max(seen.unwrap_or_default()),
                sessions: u32::try_from(open_sessions.len()).unwrap_or(u32::MAX),
                holding: open_sessions.iter().map(|session| session.holding).sum(),
                open_sessions,
            }
        });
        Response::ok(Reply::Workers(Workers { workers: workers.collect() }))
    }
}

fn unknown_session(session: SessionId) -> ApiError {
    ApiError::new(ErrorCode::UnknownSession, format!("there is no worker session {session} on this server"))
}
