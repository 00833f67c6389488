//! The threads that transactions run on, one connection each: the writer, control, and several for requests.

use crate::driver::backend::{Backend, StoreReply};
use crate::driver::witness::Witness;
use crate::sqlite::lock::Lock;
use crate::sqlite::session::{Session, Shared};
use orbit_core::node::{CallId, Connection as Kind};
use orbit_core::store::origin::Origin;
use orbit_core::store::transaction::Transaction;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use tokio::sync::mpsc::UnboundedSender;

/// Threads that requests are read on.
const REQUEST_THREADS: usize = 4;

struct Job {
    call: CallId,
    transaction: Transaction,
}

/// Runs transactions on a database that this process has locked. Dropping it runs what was sent, empties the log,
/// closes the database and frees the lock.
#[derive(Debug)]
pub struct SqliteBackend {
    /// None once it closes: then the threads end.
    queues: Option<Queues>,
    writer: Option<JoinHandle<Session>>,
    others: Vec<JoinHandle<Session>>,
    /// Freed last.
    _lock: Lock,
}

#[derive(Debug)]
struct Queues {
    store: Sender<Job>,
    control: Sender<Job>,
    requests: Sender<Job>,
}

impl SqliteBackend {
    /// Starts the threads; `connection` is the writer's.
    pub(super) fn start(
        (path, witness): (PathBuf, Witness),
        connection: rusqlite::Connection,
        lock: Lock,
        replies: UnboundedSender<StoreReply>,
    ) -> SqliteBackend {
        let shared = Shared::new(path, witness);
        let (store, store_end) = channel();
        let (control, control_end) = channel();
        let (requests, requests_end) = channel();
        let writer = begin("orbit-store", Session::new(shared.clone(), Some(connection)), alone(store_end), &replies);
        let mut others = vec![begin("orbit-control", Session::new(shared.clone(), None), alone(control_end), &replies)];
        let requests_end = alone(requests_end);
        for number in 1..=REQUEST_THREADS {
            let name = format!("orbit-requests-{number}");
            others.push(begin(&name, Session::new(shared.clone(), None), requests_end.clone(), &replies));
        }
        let queues = Some(Queues { store, control, requests });
        SqliteBackend { queues, writer: Some(writer), others, _lock: lock }
    }
}

type Jobs = Arc<Mutex<Receiver<Job>>>;

fn alone(jobs: Receiver<Job>) -> Jobs {
    Arc::new(Mutex::new(jobs))
}

fn begin(name: &str, mut session: Session, jobs: Jobs, replies: &UnboundedSender<StoreReply>) -> JoinHandle<Session> {
    let replies = replies.clone();
    let work = move || {
        loop {
            // The guard goes at the end of this statement: one thread waits for a job, the others for their turn to.
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Job { call, transaction }) = job else { return session };
            let reply = session.run(transaction);
            // Whoever asked may have ended; the transaction has not less happened.
            let _ = replies.send(StoreReply { call, reply, origin: None });
        }
    };
    thread::Builder::new().name(name.into()).spawn(work).expect("the operating system starts a thread")
}

impl Backend for SqliteBackend {
    fn run(&self, connection: Kind, call: CallId, transaction: Transaction, _: Option<Origin>) {
        let queues = self.queues.as_ref().expect("the queues are there until this is dropped");
        let queue = match connection {
            Kind::Store => &queues.store,
            Kind::Election | Kind::Control => &queues.control,
            Kind::Requests => &queues.requests,
        };
        // The threads outlive their queues, so this reaches one.
        let _ = queue.send(Job { call, transaction });
    }

    /// A call here ends as soon as its disk answers, and nothing else can be done about it.
    fn write_off(&self, _: Kind, _: CallId) {}
}

impl Drop for SqliteBackend {
    fn drop(&mut self) {
        self.queues = None;
        for thread in self.others.drain(..) {
            drop(thread.join());
        }
        if let Some(Ok(session)) = self.writer.take().map(JoinHandle::join) {
            session.close_last();
        }
    }
}
