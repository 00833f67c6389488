//! When a worker registers, polls, reports and heartbeats.
//!
//! At most one request of each kind is under way. A finished handler sends its result at once: inside the next poll
//! where none is waiting, else as a report beside the poll that waits, which nothing ever cuts short. Only the handlers
//! that one poll started wait a moment for each other ([`Setup::linger`]): their results go in one poll, whose answer
//! brings their successors, while results that come in parts find no poll that waits for what follows. So a step's
//! result reaches the server in one round trip, and the next task comes back in the same poll or in the one that
//! waits already. Results that come while a report is under way go together in the next one.
//!
//! Polls and heartbeats name every token that is held (protocols, 24). A server that does not know the session any
//! more (it was restarted) gets a new registration; tasks and results are kept through that.

use super::context::{Context, TaskFailure};
use super::desk::Desk;
use super::protocol::{Assignment, Cancels, Outcome, Polled, Registered, Reported, TaskResult};
use super::{Handler, HandlerFuture};
use crate::api::Contract;
use crate::backoff::Backoff;
use crate::error::Error;
use crate::transport::{Answer, Call, Transport};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

/// How long a server has for an answer that it need not wait for.
const ANSWER_DEADLINE: Duration = Duration::from_secs(15);
/// The same for heartbeats, where another server may serve instead: between these two, as long as the heartbeat's interval.
/// A server that stands still is left after that, and its poll with it, once the other one does not know the session.
const HEARTBEAT_DEADLINE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// How long the goodbye may take; a server that does not hear it notices by the session's time-out.
const UNREGISTER_DEADLINE: Duration = Duration::from_secs(2);

/// What a worker is made of.
pub(crate) struct Setup {
    pub transport: Arc<Transport>,
    pub worker_id: String,
    pub handlers: BTreeMap<Contract, Handler>,
    pub concurrency: usize,
    pub poll_wait: Duration,
    /// How long the next poll stays back, at most, after one that brought tasks, until the last of their handlers has
    /// ended: quick ones get their results into it together, and so one request less for each task.
    pub linger: Duration,
    pub grace: Duration,
}

/// A request under way: the session that it names, the tokens whose results it carries, and its answer.
type Request = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

/// One kind of request: at most one is under way, and a failure makes the next one wait.
struct Lane {
    name: &'static str,
    request: Option<Request>,
    session: String,
    results: Vec<String>,
    backoff: Backoff,
    /// Nothing is sent before.
    not_before: Instant,
}

impl Lane {
    fn new(name: &'static str) -> Lane {
        Lane {
            name,
            request: None,
            session: String::new(),
            results: Vec::new(),
            backoff: Backoff::default(),
            not_before: Instant::now(),
        }
    }

    fn is_free(&self) -> bool {
        self.request.is_none() && Instant::now() >= self.not_before
    }

    /// When [`Lane::is_free`] becomes true by the passing of time.
    fn wake(&self) -> Option<Instant> {
        (self.request.is_none() && self.not_before > Instant::now()).then_some(self.not_before)
    }

    /// The answer, once there is one; never without a request.
    async fn answer(&mut self) -> Result<Answer, Error> {
        let Some(request) = &mut self.request else { return std::future::pending().await };
        let answer = request.await;
        self.request = None;
        answer
    }

    /// Nothing is sent for a while, as a random number says.
    fn pause(&mut self, random: u64) -> Duration {
        let wait = self.backoff.next(random);
        self.not_before = Instant::now() + wait;
        wait
    }

    /// The request failed in a way that may pass.
    fn failed(&mut self, error: &Error, random: u64) {
        let wait = self.pause(random);
        warn!(target: "orbit", "{} failed: {error}; retrying in {:.1}s", self.name, wait.as_secs_f64());
    }
}

struct Session {
    id: String,
    heartbeat_interval: Duration,
}

/// What a handler that runs is about, for the log.
struct Running {
    token: String,
    execution_id: String,
    step: String,
    task: String,
    attempt: u32,
}

/// See the module.
pub(crate) struct Engine {
    setup: Setup,
    /// Where handlers run.
    runtime: Handle,
    session: Option<Session>,
    desk: Desk,
    handlers: JoinSet<Result<Value, TaskFailure>>,
    running: HashMap<Id, Running>,
    register: Lane,
    poll: Lane,
    report: Lane,
    heartbeat: Lane,
    /// No poll before, while one of `batch` runs: see [`Setup::linger`].
    linger_until: Option<Instant>,
    /// The tasks that the last poll brought and whose handlers run.
    batch: HashSet<String>,
    /// Set at a shutdown: when to stop waiting for handlers and answers.
    stop_by: Option<Instant>,
}

impl Engine {
    pub(crate) fn new(setup: Setup, runtime: Handle) -> Engine {
        Engine {
            setup,
            runtime,
            session: None,
            desk: Desk::default(),
            handlers: JoinSet::new(),
            running: HashMap::new(),
            register: Lane::new("register"),
            poll: Lane::new("poll"),
            report: Lane::new("report"),
            heartbeat: Lane::new("heartbeat"),
            linger_until: None,
            batch: HashSet::new(),
            stop_by: None,
        }
    }

    /// Works until `stop` says so, or is dropped: then there is no grace.
    pub(crate) async fn run(mut self, mut stop: oneshot::Receiver<()>) -> Result<(), Error> {
        loop {
            self.begin_requests();
            if self.is_done() {
                self.leave().await;
                return Ok(());
            }
            let wake = self.next_wake();
            // In this order, so that what is there already is taken before a stop would have it sent again. Each of them is
            // there once for a request or a handler, so that none keeps the others waiting.
            tokio::select! {
                biased;
                answer = self.register.answer() => self.registered(answer)?,
                answer = self.poll.answer() => self.polled(answer),
                answer = self.report.answer() => self.reported(answer),
                answer = self.heartbeat.answer() => self.heartbeat_answered(answer),
                Some(ended) = self.handlers.join_next_with_id() => self.handler_ended(ended),
                told = &mut stop, if self.stop_by.is_none() => {
                    self.stop(if told.is_ok() { self.setup.grace } else { Duration::ZERO });
                }
                () = at(wake) => {}
            }
        }
    }

    /// Sends what is due.
    fn begin_requests(&mut self) {
        let Some(session) = &self.session else {
            // A worker that stops registers again only to bring results.
            if self.register.is_free() && (self.stop_by.is_none() || self.desk.unanswered() > 0) {
                self.begin_register();
            }
            return;
        };
        let session = session.id.clone();
        if self.heartbeat.is_free() {
            let body = json!({"session_id": session, "holding": self.desk.holding()});
            let deadline = self.heartbeat_deadline();
            self.begin(Kind::Heartbeat, &session, body, Vec::new(), deadline);
        }
        if self.linger_until.is_some_and(|until| Instant::now() >= until) || self.batch.is_empty() {
            self.linger_until = None;
        }
        let next_poll_takes_results = self.linger_until.is_some() && self.poll.is_free() && self.free_slots() > 0;
        let free = self.free_slots();
        if self.stop_by.is_none() && free > 0 && self.poll.is_free() && self.linger_until.is_none() {
            let wait = self.setup.poll_wait;
            let results = self.desk.take_results();
            let mut body = json!({
                "session_id": session, "max_tasks": free, "wait_ms": millis(wait), "holding": self.desk.holding(),
            });
            if !results.is_empty() {
                body["results"] = json!(results);
            }
            self.begin(Kind::Poll, &session, body, results, wait + ANSWER_DEADLINE);
        }
        if self.report.is_free() && self.desk.has_results_to_send() && !next_poll_takes_results {
            let results = self.desk.take_results();
            let body = json!({"session_id": session, "results": results});
            self.begin(Kind::Report, &session, body, results, ANSWER_DEADLINE);
        }
    }

    fn heartbeat_deadline(&self) -> Duration {
        let [least, most] = HEARTBEAT_DEADLINE;
        match &self.session {
            Some(session) if self.setup.transport.knows_several() => session.heartbeat_interval.clamp(least, most),
            _ => ANSWER_DEADLINE,
        }
    }

    fn begin_register(&mut self) {
        let contracts: Vec<&Contract> = self.setup.handlers.keys().collect();
        let body = json!({
            "worker_id": self.setup.worker_id, "runtime": "rust",
            "sdk": concat!("orbit-sdk-rust/", env!("CARGO_PKG_VERSION")), "contracts": contracts,
        });
        self.begin(Kind::Register, "", body, Vec::new(), ANSWER_DEADLINE);
    }

    fn begin(&mut self, kind: Kind, session: &str, body: Value, results: Vec<TaskResult>, deadline: Duration) {
        let call = Call::post(kind.path(), &body, deadline);
        let transport = Arc::clone(&self.setup.transport);
        let lane = match kind {
            Kind::Register => &mut self.register,
            Kind::Poll => &mut self.poll,
            Kind::Report => &mut self.report,
            Kind::Heartbeat => &mut self.heartbeat,
        };
        lane.session = session.into();
        lane.results = results.into_iter().map(|result| result.token).collect();
        lane.request = Some(Box::pin(async move { transport.call(&call).await }));
    }

    /// How many tasks may come. Results that no server takes for a while count too, so that they do not pile up.
    fn free_slots(&self) -> usize {
        if self.desk.unanswered() >= 4 * self.setup.concurrency {
            return 0;
        }
        self.setup.concurrency.saturating_sub(self.desk.running())
    }

    fn registered(&mut self, answer: Result<Answer, Error>) -> Result<(), Error> {
        match answer.and_then(|answer| answer.json::<Registered>()) {
            Ok(registered) => {
                let interval = Duration::from_millis(registered.heartbeat_interval_ms.max(10));
                info!(target: "orbit", worker_id = %self.setup.worker_id, tasks = self.setup.handlers.len(), "registered");
                self.register.backoff.reset();
                self.heartbeat.not_before = Instant::now() + interval;
                self.poll.not_before = Instant::now();
                self.report.not_before = Instant::now();
                self.session = Some(Session { id: registered.session_id, heartbeat_interval: interval });
            }
            Err(error) => {
                let is_refusal = error.api().is_some_and(|refusal| !refusal.retryable && refusal.status < 500);
                if is_refusal {
                    return Err(error);
                }
                self.register.failed(&error, self.setup.transport.random());
            }
        }
        Ok(())
    }

    fn polled(&mut self, answer: Result<Answer, Error>) {
        let sent = std::mem::take(&mut self.poll.results);
        match answer.and_then(|answer| answer.json::<Polled>()) {
            Ok(polled) => {
                if self.desk.settle(&sent, &polled.outcomes) {
                    self.poll.backoff.reset();
                } else {
                    self.poll.pause(self.setup.transport.random());
                    self.report.pause(self.setup.transport.random());
                }
                self.desk.cancel(&polled.cancel);
                if !polled.tasks.is_empty() {
                    self.linger_until = Some(Instant::now() + self.setup.linger);
                    self.batch = polled.tasks.iter().map(|task| task.token.clone()).collect();
                }
                for task in polled.tasks {
                    self.execute(task);
                }
            }
            Err(error) => {
                self.desk.unsent(&sent);
                if self.is_of_a_lost_session(&error, &self.poll.session.clone()) {
                    return;
                }
                // Results that were refused with it go in a report next, which shows whether it was for them.
                self.poll.failed(&error, self.setup.transport.random());
            }
        }
    }

    fn reported(&mut self, answer: Result<Answer, Error>) {
        let sent = std::mem::take(&mut self.report.results);
        match answer.and_then(|answer| answer.json::<Reported>()) {
            Ok(reported) => {
                if self.desk.settle(&sent, &reported.outcomes()) {
                    self.report.backoff.reset();
                } else {
                    self.poll.pause(self.setup.transport.random());
                    self.report.pause(self.setup.transport.random());
                }
            }
            Err(error) => {
                if self.is_of_a_lost_session(&error, &self.report.session.clone()) {
                    self.desk.unsent(&sent);
                    return;
                }
                match error.api().filter(|_| is_refusal(&error)) {
                    Some(refusal) => self.desk.refused_together(&sent, &refusal.code, &refusal.message),
                    None => drop(self.desk.unsent(&sent)),
                }
                self.report.failed(&error, self.setup.transport.random());
            }
        }
    }

    fn heartbeat_answered(&mut self, answer: Result<Answer, Error>) {
        let interval = self.session.as_ref().map_or(Duration::ZERO, |session| session.heartbeat_interval);
        match answer.and_then(|answer| answer.json::<Cancels>()) {
            Ok(Cancels { cancel }) => {
                self.heartbeat.backoff.reset();
                self.heartbeat.not_before = Instant::now() + interval;
                self.desk.cancel(&cancel);
            }
            Err(error) => {
                if !self.is_of_a_lost_session(&error, &self.heartbeat.session.clone()) {
                    self.heartbeat.failed(&error, self.setup.transport.random());
                }
            }
        }
    }

    /// Whether a request failed because its session is known no more: then a new one is asked for, if that has not
    /// happened already.
    fn is_of_a_lost_session(&mut self, error: &Error, session: &str) -> bool {
        if error.code() != Some("UNKNOWN_SESSION") {
            return false;
        }
        if self.session.as_ref().is_some_and(|current| current.id == session) {
            info!(target: "orbit", "the server does not know this session any more; registering again");
            self.session = None;
            // What still waits for the old session cannot bring anything.
            for lane in [&mut self.poll, &mut self.report, &mut self.heartbeat] {
                lane.request = None;
                self.desk.unsent(&std::mem::take(&mut lane.results));
            }
        }
        true
    }

    /// Runs a task, unless it is here already.
    fn execute(&mut self, task: Assignment) {
        let token = task.token.clone();
        let input = task.input.clone();
        let contract = Contract { task_name: task.task_name.clone(), contract_version: task.contract_version.clone() };
        let (context, canceller) = Context::new(task);
        if !self.desk.accept(&token, canceller) {
            debug!(target: "orbit", %token, "the server handed out a task that is here already");
            return;
        }
        debug!(
            target: "orbit", execution_id = context.execution_id(), step = context.step_id(),
            attempt = context.attempt(), task = context.task_name(), redelivery = context.redelivery(), "executing"
        );
        let running = Running {
            token,
            execution_id: context.execution_id().into(),
            step: context.step_id().into(),
            task: context.task_name().into(),
            attempt: context.attempt(),
        };
        let handler = self.setup.handlers.get(&contract).cloned();
        let run: HandlerFuture = Box::pin(async move {
            match handler {
                Some(handler) => handler(context, input).await,
                None => Err(TaskFailure::new("UNKNOWN_TASK", "this worker never announced that task")),
            }
        });
        let id = self.handlers.spawn_on(run, &self.runtime).id();
        self.running.insert(id, running);
    }

    fn handler_ended(&mut self, ended: Result<(Id, Result<Value, TaskFailure>), JoinError>) {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let running = self.running.remove(&id).expect("every handler that was started is known");
        let Running { token, execution_id, step, task, attempt } = running;
        self.batch.remove(&token);
        match ended {
            Ok((_, Ok(output))) => self.desk.finish(&token, Outcome::Output(output)),
            Ok((_, Err(failure))) => {
                let again = failure.retryable;
                warn!(target: "orbit", execution_id, step, attempt, task, retryable = again, "failed: {failure}");
                self.desk.finish(&token, Outcome::Error(failure));
            }
            Err(error) if error.is_panic() => {
                let message = panic_message(error);
                warn!(target: "orbit", execution_id, step, attempt, task, "the handler panicked: {message}");
                self.desk.finish(&token, Outcome::Error(TaskFailure::new("PANIC", message)));
            }
            // Its runtime is shutting down.
            Err(_) => self.desk.abandon(&token),
        }
    }

    fn stop(&mut self, grace: Duration) {
        info!(target: "orbit", running = self.desk.running(), "stopping");
        self.stop_by = Some(Instant::now() + grace);
        // Nobody waits for tasks any more. Results that the poll carries go again, in a report.
        self.poll.request = None;
        self.desk.unsent(&std::mem::take(&mut self.poll.results));
        self.report.not_before = Instant::now();
    }

    fn is_done(&self) -> bool {
        self.stop_by.is_some_and(|stop_by| {
            (self.desk.running() == 0 && self.desk.unanswered() == 0) || Instant::now() >= stop_by
        })
    }

    /// Says goodbye, so that the server need not wait for the session's time-out.
    async fn leave(&mut self) {
        let (running, unanswered) = (self.desk.running(), self.desk.unanswered());
        if running + unanswered > 0 {
            warn!(target: "orbit", running, unanswered, "stopped before everything was done; it will be delivered again");
        }
        self.handlers.abort_all();
        if let Some(session) = self.session.take() {
            let body = json!({"session_id": session.id});
            let call = Call::post("/v1/workers/unregister", &body, UNREGISTER_DEADLINE);
            if !matches!(timeout(UNREGISTER_DEADLINE, self.setup.transport.call(&call)).await, Ok(Ok(_))) {
                debug!(target: "orbit", "could not unregister");
            }
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let lanes = match &self.session {
            // Nothing lingers without a session: a moment that is past would be waited for again and again.
            None => [self.register.wake(), None, None, None],
            Some(_) => [self.poll.wake(), self.report.wake(), self.heartbeat.wake(), self.linger_until],
        };
        lanes.into_iter().chain([self.stop_by]).flatten().min()
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Register,
    Poll,
    Report,
    Heartbeat,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Kind::Register => "/v1/workers/register",
            Kind::Poll => "/v1/workers/poll",
            Kind::Report => "/v1/tasks/complete",
            Kind::Heartbeat => "/v1/workers/heartbeat",
        }
    }
}

/// Whether a server refused what a request holds, so that the same again would be refused again.
fn is_refusal(error: &Error) -> bool {
    error.api().is_some_and(|error| !error.retryable && matches!(error.status, 400 | 413 | 422))
}

fn panic_message(error: JoinError) -> String {
    let panic = error.into_panic();
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "the handler panicked".into())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Ready at that moment; never without one.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
