//! Clients: they deploy, start, send, ask, cancel, wait and read, one request at a time; they repeat what failed.
//!
//! The last one, the helper, does nothing before the world is healed: then it sends what executions wait for and nobody
//! else sends.

use super::World;
use super::event::Event;
use super::network::{Actor, Heard};
use crate::check::read::named;
use crate::rng::Ratio;
use crate::workload;
use orbit_core::api::request::{ListExecutions, Message, Start};
use orbit_core::api::{ErrorCode, Reply, Request};
use orbit_core::execution::event::Labels;
use orbit_core::id::{ExecutionId, QueryName, Run, Seq, SignalName};
use orbit_core::node::RequestId;
use orbit_core::store::transaction::Transaction;
use std::time::Duration;

/// How often a client repeats a request before it gives up, while the world is broken.
const TRIES: u32 = 8;

/// How often the helper looks whether there is something to send.
const HELPER_MS: u64 = 100;

/// Signals and updates that some definitions declare, and one that none does.
const NAMES: [&str; 6] = ["go", "paid", "note", "change", "raise", "nothing"];

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Client {
    doing: Option<Doing>,
    /// Whom it talks to, for a while.
    talks_to: Option<ExecutionId>,
}

#[derive(Debug)]
struct Doing {
    request: Request,
    /// It is repeated until it is answered, once the world is healed.
    must: bool,
    tries: u32,
    exchange: Option<RequestId>,
}

impl Client {
    /// Whether it waits for something that it must still get.
    pub fn is_busy(&self) -> bool {
        self.doing.as_ref().is_some_and(|d| d.must)
    }

    /// Whether it waits for an answer.
    pub fn is_waiting(&self) -> bool {
        self.doing.as_ref().is_some_and(|d| d.exchange.is_some())
    }

    /// What it is busy with, for people.
    pub fn business(&self) -> String {
        format!("{:?}", self.doing)
    }
}

impl World {
    /// A client asks, or asks again.
    pub(super) fn client_goes(&mut self, index: usize) {
        let doing = match self.clients[index].doing.take() {
            Some(doing) => doing,
            // A start that was given up may begin its execution after everything seemed over: it is helped, too.
            None if self.is_helper(index) => match self.owed() {
                Some(request) => Doing { request, must: true, tries: 0, exchange: None },
                None if self.helps() => return self.at(self.now.plus_ms(HELPER_MS), Event::Client(index)),
                None => return,
            },
            None => match self.next_request(index) {
                Some(request) => {
                    let must = matches!(request, Request::Start(_) | Request::Deploy { .. }) || self.audit.is_some();
                    Doing { request, must, tries: 0, exchange: None }
                }
                None => return,
            },
        };
        let patience = match &doing.request {
            Request::Wait { timeout, .. } => u64::try_from(timeout.as_millis()).expect("short") + 5_000,
            _ => 12_000,
        };
        let impatient = self.dice.clients.chance(self.plan.habits.impatient) && !self.healed;
        let timeout = if impatient { self.dice.clients.between([1, 200]) } else { patience };
        let exchange = self.send(Actor::Client(index), doing.request.clone(), timeout);
        self.clients[index].doing = Some(Doing { tries: doing.tries + 1, exchange: Some(exchange), ..doing });
    }

    /// Whether executions are to get on: the world is healed, or more is to be done before it is.
    fn helps(&self) -> bool {
        self.healed || self.overtime
    }

    fn is_helper(&self, index: usize) -> bool {
        index + 1 == self.clients.len()
    }

    fn next_request(&mut self, index: usize) -> Option<Request> {
        if let Some(audit) = &mut self.audit {
            return audit.pop();
        }
        let missing = (0..self.book.documents().len()).find(|n| !self.deployed.contains(n));
        if let (0, Some(number)) = (index, missing) {
            return Some(Request::deploy(self.book.documents()[number].clone()));
        }
        if let Some(id) = self.goes_on_talking(index) {
            return Some(self.next_message(id));
        }
        let habits = self.plan.habits.clone();
        let ids = self.ids();
        let running: Vec<ExecutionId> = self.store().owners().keys().cloned().collect();
        let dice = &mut self.dice.clients;
        let more = self.started < self.plan.starts || self.overtime;
        if more && !self.healed && dice.chance(Ratio::new(1, 2)) {
            return Some(self.next_start());
        }
        if ids.is_empty() {
            // Nothing to read yet; a healed world that never started anything has nothing to do.
            return (!self.healed).then_some(Request::Health);
        }
        if self.healed && running.is_empty() {
            return None;
        }
        let id = dice.pick(&ids).clone();
        if self.plan.cluster.is_some() && !self.healed && dice.chance(Ratio::new(1, 60)) {
            // A repetition may be heard by whoever leads next, which steps down in its turn.
            return Some(dice.pick(&[Request::StepDown { term: None }, Request::ListNodes]).clone());
        }
        if self.plan.server.holds && !self.healed && dice.chance(Ratio::new(1, 10)) {
            let held: Vec<ExecutionId> = self.checks.history.held().cloned().collect();
            let other = held.is_empty() || dice.chance(Ratio::new(1, 8));
            let execution = if other { id } else { dice.pick(&held).clone() };
            return Some(Request::Recover { execution, reason: None });
        }
        if dice.chance(habits.cancel) && !self.healed {
            return Some(Request::Cancel { execution: id, reason: Some("no longer wanted".into()) });
        }
        if dice.chance(habits.terminate) && !self.healed {
            return Some(Request::Terminate { execution: id, reason: None });
        }
        if dice.chance(habits.message) && !self.healed {
            let to_one_that_runs = dice.chance(Ratio::new(3, 4)) && !running.is_empty();
            let mut id = if to_one_that_runs { dice.pick(&running).clone() } else { id };
            if dice.chance(habits.talk) {
                let loops = |id: &&ExecutionId| self.checks.history.get(id).is_some_and(|t| t.may_be_carried());
                // All clients gather around the same one.
                let looping = running.iter().find(loops).cloned();
                self.clients[index].talks_to.clone_from(&looping);
                id = looping.unwrap_or(id);
            }
            return Some(self.next_message(id));
        }
        // What is being written just now is of interest: it is not there yet.
        let curious = dice.chance(Ratio::new(1, 2));
        let id = if curious { self.being_written().unwrap_or(id) } else { id };
        let dice = &mut self.dice.clients;
        Some(match dice.below(14) {
            0..=3 => Request::GetExecution(id),
            4..=7 => Request::Wait { execution: id, timeout: Duration::from_millis(dice.between([10, 5_000])) },
            8 | 9 => {
                let (after, limit) = (Seq(dice.below(6)), u32::try_from(dice.between([1, 40])).expect("small"));
                let run = dice.chance(Ratio::new(1, 3)).then(|| *dice.pick(&[Run(1), Run(2), Run(3)]));
                Request::GetHistory { execution: id, run, after, limit, max_bytes: 1 << 20 }
            }
            10 => Request::ListExecutions(ListExecutions {
                status: None,
                workflow: None,
                labels: Labels::new(),
                since: None,
                limit: 20,
                cursor: None,
            }),
            11 => Request::Metrics,
            12 => Request::ListWorkers,
            _ => dice.pick(&[Request::Ready, Request::Health, Request::Leaderz, Request::ListWorkflows]).clone(),
        })
    }

    /// Some execution of an append that is under way.
    fn being_written(&mut self) -> Option<ExecutionId> {
        let calls = self.processes.values().flat_map(|process| process.calls.under_way.values());
        let appends = calls.filter_map(|call| match &call.transaction {
            Transaction::Append(append) => Some(append),
            _ => None,
        });
        let members = appends.flat_map(|append| &append.groups).flat_map(|group| &group.members);
        let all: Vec<ExecutionId> = members.map(|member| member.execution.clone()).collect();
        (!all.is_empty()).then(|| self.dice.clients.pick(&all).clone())
    }

    /// Executions that somebody may ask about: what clients started, and the children of those.
    fn ids(&self) -> Vec<ExecutionId> {
        let children = self.checks.history.all().map(|(id, _)| id).filter(|id| self.checks.family.parent(id).is_some());
        self.book.ids().into_iter().chain(children.cloned()).collect()
    }

    /// Several messages in a row race whatever happens to an execution meanwhile, and each other.
    fn goes_on_talking(&mut self, index: usize) -> Option<ExecutionId> {
        let talks_to = &mut self.clients[index].talks_to;
        let goes_on = !self.healed && talks_to.is_some() && self.dice.clients.chance(Ratio::new(7, 8));
        talks_to.take_if(|_| !goes_on);
        talks_to.clone()
    }

    /// What an execution waits for and nobody else sends: liveness can be demanded of it then.
    fn owed(&mut self) -> Option<Request> {
        if !self.helps() {
            return None;
        }
        if let Some(execution) = self.stuck.pop_first() {
            return Some(Request::Cancel { execution, reason: Some("too much waits".into()) });
        }
        if let Some(execution) = self.checks.history.held().next().cloned() {
            return Some(Request::Recover { execution, reason: Some("all is well".into()) });
        }
        // What was asked to end has to end, whatever it waits for.
        let goes_on = self.checks.history.all().filter(|(id, _)| !self.checks.family.is_to_end(id));
        let waits = goes_on.map(|(id, tracked)| (id.clone(), tracked.waits_for()));
        let waits = waits.filter_map(|(id, waits)| Some((id, waits?))).next();
        let (execution, (name, update)) = waits?;
        let mark = self.book.next_mark();
        let payload = std::sync::Arc::new(workload::good_payload(mark));
        let message = Message { name, payload, key: Some(format!("owed {mark}")) };
        Some(match update {
            true => Request::Update { execution, update: message },
            false => Request::Signal { execution, signal: message },
        })
    }

    /// A signal or an update, new or sent before, right or not; or a query.
    fn next_message(&mut self, execution: ExecutionId) -> Request {
        let dice = &mut self.dice.clients;
        if dice.chance(Ratio::new(1, 8)) {
            let name = QueryName::new(*dice.pick(&["progress", "double", "nothing"]));
            return Request::Query { execution, name };
        }
        let earlier: Vec<_> =
            self.book.messages().filter(|m| m.execution == execution && m.message.key.is_some()).collect();
        if dice.chance(self.plan.habits.repeat_message) && !earlier.is_empty() {
            return dice.pick(&earlier).request();
        }
        let known = self.checks.history.get(&execution).map(|tracked| &tracked.definition);
        let declared: Vec<&SignalName> =
            known.into_iter().flat_map(|d| d.signals.keys().chain(d.updates.keys())).collect();
        let name = match declared.is_empty() || dice.chance(Ratio::new(1, 12)) {
            true => SignalName::new(*dice.pick(&NAMES)),
            false => (*dice.pick(&declared)).clone(),
        };
        let update = matches!(name.as_str(), "change" | "raise") != dice.chance(Ratio::new(1, 30));
        let mark = self.book.next_mark();
        let payload = std::sync::Arc::new(workload::any_payload(dice, mark));
        // A few ids, so that different messages come to have the same.
        let few = format!("id-{}", dice.below(4));
        let key = match dice.below(6) {
            0 | 1 => None,
            2 | 3 => Some(few),
            _ => Some(format!("id of {mark}")),
        };
        let message = Message { name, payload, key };
        match update {
            true => Request::Update { execution, update: message },
            false => Request::Signal { execution, signal: message },
        }
    }

    fn next_start(&mut self) -> Request {
        let habits = &self.plan.habits;
        let dice = &mut self.dice.clients;
        let earlier: Vec<&Start> = self.book.starts().values().map(|r| &r.start).collect();
        if dice.chance(habits.repeat_start) && !earlier.is_empty() {
            let mut start = (*dice.pick(&earlier)).clone();
            if dice.chance(Ratio::new(1, 3)) {
                // The same id for something else: to be refused.
                let input = serde_json::json!({"n": -1, "flag": false, "pause": 1, "list": []});
                start.input = std::sync::Arc::new(input);
            }
            return Request::Start(start);
        }
        self.started += 1;
        let definitions: Vec<_> = self.book.definitions().collect();
        let definition = *dice.pick(&definitions);
        let own_id = dice.chance(habits.own_id);
        let number = self.started;
        Request::Start(Start {
            workflow: definition.name.clone(),
            version: dice.chance(Ratio::new(1, 3)).then(|| definition.version.clone()),
            execution_id: own_id.then(|| ExecutionId::new(format!("order-{number}"))),
            input: if dice.chance(habits.bad_input) { workload::bad_input(dice) } else { workload::input(dice) },
            labels: workload::labels(dice),
        })
    }

    /// A client hears of its request.
    pub(super) fn client_hears(&mut self, index: usize, id: RequestId, heard: Heard) {
        let helps = self.is_helper(index);
        let Some(doing) = self.clients[index].doing.as_mut().filter(|d| d.exchange == Some(id)) else { return };
        doing.exchange = None;
        let again = match &heard {
            Heard::Response(response) => match &response.reply {
                Reply::Error(error) => error.code.retryable() || error.code == ErrorCode::UnknownWorkflow,
                _ => false,
            },
            // Whether a start without an id took effect cannot be known: it would be another one.
            Heard::Broken | Heard::Nothing => {
                !matches!(&doing.request, Request::Start(start) if start.execution_id.is_none())
            }
        };
        // Nor of a message; the checks want to see each of them once.
        let once = match &doing.request {
            Request::Signal { signal: message, .. } | Request::Update { update: message, .. } => message.key.is_none(),
            _ => false,
        };
        let full = matches!(&heard, Heard::Response(response) if matches!(&response.reply, Reply::Error(error)
            if error.details.get("limit").is_some_and(|limit| limit == "max_pending_signals")));
        // The answer to an update may be larger than a payload may be.
        let rejected = matches!(&heard, Heard::Response(response) if matches!(&response.reply, Reply::Error(error)
            if error.code == ErrorCode::UpdateRejected));
        let hopeless = full || (rejected && self.is_helper(index));
        let doing = self.clients[index].doing.as_ref().expect("looked up above");
        if let (true, true, Some(execution)) = (hopeless, self.helps(), named(&doing.request)) {
            // Nothing that waits will be taken any more, and nothing else is let in.
            self.stuck.insert(execution.clone());
        }
        let rejected = matches!(&heard, Heard::Response(response) if matches!(&response.reply, Reply::Error(error)
            if error.code == ErrorCode::UpdateRejected));
        if let (true, true, Some(execution)) = (rejected, helps, named(&doing.request)) {
            // Every update takes what the helper sends, unless its answer is too large; that of the next one is, too.
            self.stuck.insert(execution.clone());
        }
        let again = again && !full && !once;
        let enough = doing.tries >= TRIES && !(doing.must && self.healed);
        if let (Request::Deploy { document, .. }, Heard::Response(response)) = (&doing.request, &heard)
            && matches!(response.reply, Reply::Deployed(_))
        {
            let number = self.book.documents().iter().position(|d| *d == **document).expect("one of ours");
            self.deployed.insert(number);
            self.forget_lost_documents();
        }
        if !again || enough {
            self.clients[index].doing = None;
        }
        let hastes = helps || self.clients[index].talks_to.is_some() || (self.overtime && !self.healed);
        let think = if hastes { [1, 20] } else { self.plan.think_ms };
        let wait = self.dice.clients.between(if again { [20, 400] } else { think });
        self.at(self.now.plus_ms(wait), Event::Client(index));
    }
}
