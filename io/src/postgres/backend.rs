//! The threads that transactions run on: one connection each for the store, the election and control, and several that
//! share a pool for requests.
//!
//! A connection to a frozen server hangs its thread for as long as the server is frozen, whatever the socket's options
//! say. Such a thread is given up: the line that it serves gets a new thread and a new connection, what waits in line
//! goes there, and the old statement is cancelled from elsewhere, in case the server hears it.

use crate::driver::backend::{Backend, StoreReply};
use crate::postgres::address::Address;
use crate::postgres::connect::{Connector, Role};
use crate::postgres::figures::Figures;
use crate::postgres::pool::{self, Pool};
use crate::postgres::session::Session;
use crate::postgres::statement::Link;
use orbit_core::node::{CallId, Connection as Kind};
use orbit_core::store::origin::Origin;
use orbit_core::store::outcome::{self, Reply};
use orbit_core::store::transaction::{Transaction, Verdict};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// How long dropping the backend waits for what runs.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// How often a wait in line is cancelled until it has ended.
const CANCEL_EVERY: Duration = Duration::from_millis(200);

/// Runs transactions on a PostgreSQL database. Dropping it runs what was sent, and closes its connections; what hangs is
/// left behind after some seconds.
pub struct PostgresBackend {
    store: Arc<Line>,
    election: Arc<Line>,
    control: Arc<Line>,
    requests: Arc<Line>,
}

impl PostgresBackend {
    /// Starts the threads; `link` is a connection of the store's.
    pub(super) fn start(
        connector: Connector,
        link: Link,
        figures: Arc<Figures>,
        replies: UnboundedSender<StoreReply>,
    ) -> PostgresBackend {
        let line = |role| Arc::new(Line::new(role, connector.clone(), Arc::clone(&figures), replies.clone()));
        let backend = PostgresBackend {
            store: line(Role::Store),
            election: line(Role::Election),
            control: line(Role::Control),
            requests: line(Role::Requests),
        };
        let store = Session::with(connector.clone(), Role::Store, link);
        backend.store.serve_with(store, 0);
        for line in [&backend.election, &backend.control, &backend.requests] {
            line.serve(0);
        }
        backend
    }

    fn line(&self, kind: Kind) -> &Arc<Line> {
        match kind {
            Kind::Store => &self.store,
            Kind::Election => &self.election,
            Kind::Control => &self.control,
            Kind::Requests => &self.requests,
        }
    }

    fn lines(&self) -> [&Arc<Line>; 4] {
        [&self.store, &self.election, &self.control, &self.requests]
    }
}

impl Backend for PostgresBackend {
    fn run(&self, connection: Kind, call: CallId, transaction: Transaction, origin: Option<Origin>) {
        self.line(connection).push(Job { call, transaction, origin });
    }

    fn write_off(&self, connection: Kind, call: CallId) {
        self.line(connection).give_up(call);
    }
}

impl Drop for PostgresBackend {
    fn drop(&mut self) {
        for line in self.lines() {
            line.close();
        }
        let until = Instant::now() + CLOSE_WITHIN;
        for line in self.lines() {
            if !line.wait_until_closed(until) {
                tracing::warn!(target: "orbit_runtime::store", connection = ?line.role, "the database does not answer; leaving its connection behind");
            }
        }
    }
}

struct Job {
    call: CallId,
    transaction: Transaction,
    /// Where it is to run.
    origin: Option<Origin>,
}

/// What waits for the connections of one kind, and who serves it.
struct Line {
    role: Role,
    connector: Connector,
    figures: Arc<Figures>,
    replies: UnboundedSender<StoreReply>,
    state: Mutex<State>,
    /// Something changed that a thread of this line may wait for.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Counts the times that the line's threads were given up. A thread of an earlier one takes no more jobs.
    generation: u64,
    /// Threads of this generation.
    threads: usize,
    /// Takes no more jobs in, and ends when there are none.
    closing: bool,
    /// What cancels the calls that run.
    running: BTreeMap<CallId, Option<::postgres::CancelToken>>,
    /// What cancels the reading of figures that runs, which is no call.
    reading: Option<::postgres::CancelToken>,
}

impl Line {
    fn new(role: Role, connector: Connector, figures: Arc<Figures>, replies: UnboundedSender<StoreReply>) -> Line {
        Line { role, connector, figures, replies, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: Job) {
        self.state().jobs.push_back(job);
        self.changed.notify_one();
    }

    /// Begins threads of this generation.
    fn serve(self: &Arc<Line>, generation: u64) {
        if self.role == Role::Requests {
            let pool = Pool::new(self.connector.clone());
            for number in 1..=pool::SIZE {
                let mut source = Source::Pool(pool.clone());
                self.begin(&format!("orbit-requests-{number}"), generation, move |line, job| {
                    line.work(&mut source, job)
                });
            }
        } else {
            self.serve_with(Session::new(self.connector.clone(), self.role), generation);
        }
    }

    fn serve_with(self: &Arc<Line>, session: Session, generation: u64) {
        let name = match self.role {
            Role::Store => "orbit-store",
            Role::Election => "orbit-election",
            _ => "orbit-control",
        };
        let mut source = Source::Own(Box::new(session));
        self.begin(name, generation, move |line, job| {
            line.work(&mut source, job);
            line.read_figures(&mut source, generation);
        });
    }

    fn begin(self: &Arc<Line>, name: &str, generation: u64, mut work: impl FnMut(&Line, Job) + Send + 'static) {
        self.state().threads += 1;
        let line = Arc::clone(self);
        let body = move || {
            while let Some(job) = line.next(generation) {
                work(&line, job);
            }
            // Connections are closed before the line says that nobody is there any more.
            drop(work);
            line.left(generation);
        };
        thread::Builder::new().name(name.into()).spawn(body).expect("the operating system starts a thread");
    }

    /// The next job for a thread of this generation; none once it has to end.
    fn next(&self, generation: u64) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.generation != generation {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                state.running.insert(job.call, None);
                return Some(job);
            }
            if state.closing {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self, source: &mut Source, job: Job) {
        let call = job.call;
        let (reply, origin) = match source {
            Source::Own(session) => self.run(session, job),
            Source::Pool(pool) => match pool.get() {
                Ok(mut session) => self.run(&mut session, job),
                Err(fact) => (outcome::judge(fact), None),
            },
        };
        self.state().running.remove(&call);
        // Whoever asked may have ended; the transaction has not less happened.
        let _ = self.replies.send(StoreReply { call, reply, origin });
    }

    fn run(&self, session: &mut Session, job: Job) -> (Reply<Verdict>, Option<Origin>) {
        let Job { call, transaction, origin } = job;
        session.aim(origin);
        if let Err(fact) = session.connect() {
            return (outcome::judge(fact), session.led_to());
        }
        if let Some(slot) = self.state().running.get_mut(&call) {
            *slot = session.cancel_token();
        }
        let reply = session.run(transaction);
        (reply, session.led_to())
    }

    /// Reads what the metrics show, when that is due. A failure shows in the age of what was read before.
    fn read_figures(&self, source: &mut Source, generation: u64) {
        let Source::Own(session) = source else { return };
        if self.role != Role::Control || !session.is_usable() || !self.figures.is_due() {
            return;
        }
        self.state().reading = session.cancel_token();
        if let Some(figures) = session.figures() {
            self.figures.put(figures);
        }
        let mut state = self.state();
        if state.generation == generation {
            state.reading = None;
        }
    }

    /// A thread of this generation has ended.
    fn left(&self, generation: u64) {
        let mut state = self.state();
        if state.generation == generation {
            state.threads -= 1;
            self.changed.notify_all();
        }
    }

    /// Gives up the threads of this line, one of which has been running `call` for too long. A call that still waits in
    /// line, behind one that is given up itself, is merely not wanted any more.
    fn give_up(self: &Arc<Line>, call: CallId) {
        let mut state = self.state();
        let token = match state.running.remove(&call) {
            Some(token) => token,
            None => {
                state.jobs.retain(|job| job.call != call);
                // What it waited behind may be no call, and hang all the same.
                let Some(token) = state.reading.take() else { return };
                Some(token)
            }
        };
        state.generation += 1;
        state.threads = 0;
        let generation = state.generation;
        drop(state);
        self.changed.notify_all();
        self.serve(generation);
        if let Some(token) = token {
            cancel(token, &self.connector.address);
        }
    }

    fn close(&self) {
        let mut state = self.state();
        state.closing = true;
        self.leave_the_line(&state);
        drop(state);
        self.changed.notify_all();
    }

    /// Who stands in line for the election lock waits for nothing any more.
    fn leave_the_line(&self, state: &State) {
        if self.role == Role::Election {
            for token in state.running.values().flatten() {
                cancel(token.clone(), &self.connector.address);
            }
        }
    }

    fn wait_until_closed(&self, until: Instant) -> bool {
        let mut state = self.state();
        while state.threads > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // Again and again: a cancel that comes before its statement cancels nothing.
            self.leave_the_line(&state);
            state = self.changed.wait_timeout(state, left.min(CANCEL_EVERY)).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// Where a thread has its connection from.
enum Source {
    Own(Box<Session>),
    Pool(Pool),
}

/// Cancels a statement from a thread of its own, which may hang as well.
fn cancel(token: ::postgres::CancelToken, address: &Address) {
    let connector = address.connector();
    let body = move || {
        if let Err(error) = token.cancel_query(connector) {
            tracing::debug!(target: "orbit_runtime::store", error = %crate::postgres::facts::message(&error), "a statement could not be cancelled");
        }
    };
    // Without a thread, the server ends the statement by its own time-out.
    let _ = thread::Builder::new().name("orbit-cancel".into()).spawn(body);
}
