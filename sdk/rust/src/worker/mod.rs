//! The worker: polls for tasks, runs their handlers, and reports until the server has answered.
//!
//! * [`desk`]: which tasks and results there are, and what becomes of them.
//! * [`engine`]: when to register, poll, report and heartbeat. It runs on a thread of its own, so that handlers which
//!   block the program's runtime do not make the server believe that the worker is gone.
//! * [`context`]: what handlers see. [`protocol`]: what goes over HTTP.

mod context;
mod desk;
mod engine;
mod protocol;

pub use context::{Context, TaskFailure};

use crate::api::Contract;
use crate::error::Error;
use crate::outside::Outside;
use crate::transport::Transport;
use engine::{Engine, Setup};
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

type HandlerFuture = Pin<Box<dyn Future<Output = Result<Value, TaskFailure>> + Send>>;
type Handler = Arc<dyn Fn(Context, Value) -> HandlerFuture + Send + Sync>;

/// Runs tasks for one server, or for several that share their work. Made by [`Worker::builder`].
pub struct Worker {
    setup: Setup,
}

/// Sets a [`Worker`] up.
pub struct WorkerBuilder {
    servers: String,
    token: Option<String>,
    worker_id: Option<String>,
    handlers: BTreeMap<Contract, Handler>,
    concurrency: usize,
    poll_wait: Duration,
    linger: Duration,
    grace: Duration,
    outside: Option<Arc<dyn Outside>>,
}

impl Worker {
    /// A worker of the server on this host, without tasks.
    pub fn builder() -> WorkerBuilder {
        WorkerBuilder {
            servers: "http://127.0.0.1:7233".into(),
            token: None,
            worker_id: None,
            handlers: BTreeMap::new(),
            concurrency: 8,
            poll_wait: Duration::from_secs(20),
            linger: Duration::from_millis(2),
            grace: Duration::from_secs(30),
            outside: None,
        }
    }

    /// Works until `shutdown` is ready; then takes nothing new, lets running handlers end for the grace time, reports
    /// and unregisters.
    ///
    /// Servers that are away are waited for, for as long as it takes. An error means that no wait would help: the
    /// credentials are wrong, or the registration is refused.
    ///
    /// Must be called within a Tokio runtime, on which the handlers then run. Dropping the future ends the work at
    /// once.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let (stop, stopped) = oneshot::channel();
        let (done, mut ended) = oneshot::channel();
        let handlers = tokio::runtime::Handle::current();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Error::Setup(format!("no runtime for the worker: {error}")))?;
        let thread = std::thread::Builder::new().name("orbit-worker".into()).spawn(move || {
            let _ = done.send(runtime.block_on(Engine::new(self.setup, handlers).run(stopped)));
        });
        thread.map_err(|error| Error::Setup(format!("no thread for the worker: {error}")))?;
        tokio::select! {
            result = &mut ended => return result.expect("the worker's thread says how it ended"),
            () = shutdown => {}
        }
        // The worker may have ended by itself in this moment: then it needs no telling.
        let _ = stop.send(());
        ended.await.expect("the worker's thread says how it ended")
    }

    /// The same within the runtime that this is called in, without a thread of its own: for programs of one thread, and
    /// for runtimes whose clock is simulated. Handlers must not block: while one does, the server hears nothing of this
    /// worker and believes that it is gone.
    pub async fn run_here(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let (stop, stopped) = oneshot::channel();
        let engine = Engine::new(self.setup, tokio::runtime::Handle::current()).run(stopped);
        let mut engine = pin!(engine);
        tokio::select! {
            biased;
            result = &mut engine => return result,
            () = shutdown => {}
        }
        let _ = stop.send(());
        engine.await
    }
}

impl WorkerBuilder {
    /// The servers: `http://host:port`, several by comma.
    #[must_use]
    pub fn servers(mut self, servers: impl Into<String>) -> WorkerBuilder {
        self.servers = servers.into();
        self
    }

    /// The bearer token that the servers want.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> WorkerBuilder {
        self.token = Some(token.into());
        self
    }

    /// The worker's name, for people: it stands in histories and lists. Host name and process id without it.
    #[must_use]
    pub fn worker_id(mut self, id: impl Into<String>) -> WorkerBuilder {
        self.worker_id = Some(id.into());
        self
    }

    /// A task that this worker runs: its name, the version of its contract, and the handler.
    #[must_use]
    pub fn task<F, R>(
        mut self,
        name: impl Into<String>,
        contract_version: impl Into<String>,
        handler: F,
    ) -> WorkerBuilder
    where
        F: Fn(Context, Value) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, TaskFailure>> + Send + 'static,
    {
        let contract = Contract { task_name: name.into(), contract_version: contract_version.into() };
        let handler: Handler = Arc::new(move |context, input| Box::pin(handler(context, input)));
        self.handlers.insert(contract, handler);
        self
    }

    /// How many handlers run at the same time (8).
    #[must_use]
    pub fn concurrency(mut self, handlers: usize) -> WorkerBuilder {
        self.concurrency = handlers;
        self
    }

    /// How long a poll waits for tasks before it is renewed (20 s; a server allows 60 s).
    #[must_use]
    pub fn poll_wait(mut self, wait: Duration) -> WorkerBuilder {
        self.poll_wait = wait;
        self
    }

    /// How long the next poll stays back after one that brought tasks (2 ms). Handlers that end within it get their
    /// results into that poll, which saves a request for each task.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> WorkerBuilder {
        self.linger = linger;
        self
    }

    /// How long running handlers have to end at a shutdown, and their results to arrive (30 s).
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> WorkerBuilder {
        self.grace = grace;
        self
    }

    /// Reaches the servers through something else than this host's TCP sockets: see [`Outside`].
    #[must_use]
    pub fn outside(mut self, outside: Arc<dyn Outside>) -> WorkerBuilder {
        self.outside = Some(outside);
        self
    }

    /// The worker, if everything that it needs is there.
    pub fn build(self) -> Result<Worker, Error> {
        if self.handlers.is_empty() {
            return Err(Error::Setup("the worker has no task; add one with `task(name, version, handler)`".into()));
        }
        if !(1..=1000).contains(&self.concurrency) {
            return Err(Error::Setup(format!("concurrency is {}; give 1 to 1000", self.concurrency)));
        }
        if self.poll_wait > Duration::from_secs(60) {
            return Err(Error::Setup(format!("poll_wait is {:?}; a server allows at most 60 s", self.poll_wait)));
        }
        let worker_id = self.worker_id.unwrap_or_else(default_worker_id);
        if worker_id.is_empty() {
            return Err(Error::Setup("the worker id is empty; give it a name".into()));
        }
        let transport = Transport::new(self.servers.parse()?, self.token.as_deref())?;
        let transport = match self.outside {
            None => transport,
            Some(outside) => transport.through(outside),
        };
        Ok(Worker {
            setup: Setup {
                transport: Arc::new(transport),
                worker_id,
                handlers: self.handlers,
                concurrency: self.concurrency,
                poll_wait: self.poll_wait,
                linger: self.linger,
                grace: self.grace,
            },
        })
    }
}

fn default_worker_id() -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty()).or_else(|| {
        std::fs::read_to_string("/etc/hostname").ok().map(|host| host.trim().to_owned()).filter(|host| !host.is_empty())
    });
    format!("{}-{}", host.as_deref().unwrap_or("worker"), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(builder: WorkerBuilder) -> String {
        builder.build().err().expect("it cannot work").to_string()
    }

    fn with_task() -> WorkerBuilder {
        Worker::builder().task("t", "1", |_, input| async { Ok(input) })
    }

    #[test]
    fn a_worker_that_cannot_work_is_refused_with_what_it_lacks() {
        assert!(refusal(Worker::builder()).contains("has no task"));
        assert!(refusal(with_task().concurrency(0)).contains("1 to 1000"));
        assert!(refusal(with_task().servers("https://a:1")).contains("https is not supported yet"));
        assert!(refusal(with_task().servers("localhost:7233")).contains("write http://localhost:7233"));
        assert!(refusal(with_task().servers("http://localhost:port")).contains("write http://HOST:PORT"));
        assert!(refusal(with_task().worker_id("")).contains("worker id is empty"));
        assert!(refusal(with_task().poll_wait(Duration::from_secs(61))).contains("at most 60 s"));
        assert!(with_task().build().is_ok());
    }
}
