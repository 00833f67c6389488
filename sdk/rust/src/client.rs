//! The client: what programs and people ask of a server.

use crate::api::{
    Deployed, Execution, ExecutionsPage, Health, HistoryPage, NodeInfo, NodeList, Queried, Ready, Signalled, Started,
    Status, SteppedDown, Updated, WorkerInfo, WorkerList, Workflow, WorkflowList, WorkflowSummary,
};
use crate::backoff::Backoff;
use crate::error::Error;
use crate::outside::Outside;
use crate::servers::Servers;
use crate::transport::{Answer, Call, Transport, query_value, segment};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a server has for an answer that it need not wait for.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// How much longer than the wait itself the answer to a wait may take.
const WAIT_MARGIN: Duration = Duration::from_secs(15);
/// The longest wait of one request; longer ones are made of several (the API allows 300 s).
const WAIT_SLICE: Duration = Duration::from_secs(60);

/// A client of one server or of several that share their work. Cheap to clone.
///
/// Each call asks the servers in turn until one answers. Without [`Client::with_patience`] it gives up after one
/// round; with it, calls that found no server, or one that could not serve just now, are repeated for so long.
#[derive(Clone)]
pub struct Client {
    transport: Arc<Transport>,
    patience: Duration,
}

/// The form of a definition's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// What an execution starts with, beside its workflow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StartOptions {
    /// The newest deployed version without it.
    pub version: Option<String>,
    /// The execution's id. Starting twice with the same id starts once. Drawn without it.
    pub execution_id: Option<String>,
    pub input: Value,
    /// What people search by.
    pub labels: BTreeMap<String, String>,
}

/// Which executions a list shows; what is absent filters nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExecutionsQuery {
    pub status: Option<Status>,
    pub workflow: Option<String>,
    /// All of these labels.
    pub labels: BTreeMap<String, String>,
    /// Created at this time (milliseconds since 1970) or later.
    pub since_ms: Option<i64>,
    /// 1 to 1000; the server's choice without it.
    pub limit: Option<u32>,
    /// `next_cursor` of the page before.
    pub cursor: Option<String>,
}

impl Client {
    /// A client of these servers (`http://host:port`, several by comma), with their bearer token if they want one.
    pub fn new(servers: &str, token: Option<&str>) -> Result<Client, Error> {
        let servers: Servers = servers.parse()?;
        Ok(Client { transport: Arc::new(Transport::new(servers, token)?), patience: Duration::ZERO })
    }

    /// The same client, which repeats calls for so long while no server serves.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Client {
        self.patience = patience;
        self
    }

    /// The same client, which reaches its servers through something else than this host's TCP sockets: see
    /// [`Outside`].
    #[must_use]
    pub fn with_outside(mut self, outside: Arc<dyn Outside>) -> Client {
        self.transport = Arc::new(self.transport.through(outside));
        self
    }

    /// The servers that it asks.
    pub fn servers(&self) -> &Servers {
        self.transport.servers()
    }

    /// Deploys a definition. The same content again is `unchanged`; other content under the same version is refused
    /// with `DEFINITION_CONFLICT`.
    pub async fn deploy(&self, definition: &str, format: Format) -> Result<Deployed, Error> {
        self.deployed("/v1/workflows", definition, format).await
    }

    /// The same, but a definition with warnings is refused with `DEFINITION_WARNINGS`.
    pub async fn deploy_strictly(&self, definition: &str, format: Format) -> Result<Deployed, Error> {
        self.deployed("/v1/workflows?strict=true", definition, format).await
    }

    async fn deployed(&self, path: &str, definition: &str, format: Format) -> Result<Deployed, Error> {
        let content_type = match format {
            Format::Json => "application/json",
            Format::Yaml => "application/yaml",
        };
        let call = Call {
            method: Method::POST,
            path: path.into(),
            content_type,
            body: Bytes::from(definition.to_owned()),
            deadline: ANSWER_DEADLINE,
        };
        self.ask(&call).await?.json()
    }

    /// Every deployed version.
    pub async fn workflows(&self) -> Result<Vec<WorkflowSummary>, Error> {
        let list: WorkflowList = self.get("/v1/workflows").await?;
        Ok(list.workflows)
    }

    /// One version of a workflow with its definition; the newest without a version.
    pub async fn workflow(&self, name: &str, version: Option<&str>) -> Result<Workflow, Error> {
        let name = segment(name);
        match version {
            None => self.get(format!("/v1/workflows/{name}")).await,
            Some(version) => self.get(format!("/v1/workflows/{name}/versions/{}", segment(version))).await,
        }
    }

    /// Starts an execution. It is durable once this returns.
    ///
    /// The call always carries an id, so that it may be repeated: the given one, or one that is drawn here.
    pub async fn start(&self, workflow: &str, options: StartOptions) -> Result<Started, Error> {
        let drawn = options.execution_id.is_none();
        let id = options.execution_id.unwrap_or_else(|| self.transport.uuid());
        let mut body = Map::new();
        body.insert("workflow".into(), workflow.into());
        body.insert("execution_id".into(), id.into());
        body.insert("input".into(), options.input);
        if let Some(version) = options.version {
            body.insert("version".into(), version.into());
        }
        if !options.labels.is_empty() {
            body.insert("labels".into(), json!(options.labels));
        }
        let mut started: Started = self.post("/v1/executions", &Value::Object(body)).await?;
        // Nobody else can have drawn the same id: an answer "not created" speaks of this call's own first sending.
        started.created |= drawn;
        Ok(started)
    }

    /// An execution, with its input and what came of it.
    pub async fn execution(&self, id: &str) -> Result<Execution, Error> {
        self.get(format!("/v1/executions/{}", segment(id))).await
    }

    /// A page of executions, newest first.
    pub async fn executions(&self, query: &ExecutionsQuery) -> Result<ExecutionsPage, Error> {
        let mut parts = Vec::new();
        let mut add = |name: &str, value: &str| parts.push(format!("{name}={}", query_value(value)));
        if let Some(status) = &query.status {
            add("status", status.as_str());
        }
        if let Some(workflow) = &query.workflow {
            add("workflow", workflow);
        }
        for (name, value) in &query.labels {
            add("label", &format!("{name}={value}"));
        }
        if let Some(since) = query.since_ms {
            add("since", &since.to_string());
        }
        if let Some(limit) = query.limit {
            add("limit", &limit.to_string());
        }
        if let Some(cursor) = &query.cursor {
            add("cursor", cursor);
        }
        self.get(if parts.is_empty() { "/v1/executions".into() } else { format!("/v1/executions?{}", parts.join("&")) })
            .await
    }

    /// A page of an execution's history: the events after number `after` (0: from the beginning), at most `limit`.
    ///
    /// It is that of the current run: where an execution may continue as new meanwhile, [`HistoryPage::run`] tells the
    /// run of a page, and [`Client::history_of_run`] asks for more of it.
    pub async fn history(&self, id: &str, after: u64, limit: Option<u32>) -> Result<HistoryPage, Error> {
        let mut path = format!("/v1/executions/{}/history?after_seq={after}", segment(id));
        if let Some(limit) = limit {
            path.push_str(&format!("&limit={limit}"));
        }
        self.get(path).await
    }

    /// A page of the history of one run.
    pub async fn history_of_run(
        &self,
        id: &str,
        run: u32,
        after: u64,
        limit: Option<u32>,
    ) -> Result<HistoryPage, Error> {
        let mut path = format!("/v1/executions/{}/history?run={run}&after_seq={after}", segment(id));
        if let Some(limit) = limit {
            path.push_str(&format!("&limit={limit}"));
        }
        self.get(path).await
    }

    /// Waits until the execution has ended, or for so long: [`Execution::status`] tells which.
    ///
    /// A wait that loses its server goes on with the next one.
    pub async fn wait(&self, id: &str, timeout: Duration) -> Result<Execution, Error> {
        let end = Instant::now() + timeout;
        loop {
            let slice = end.saturating_duration_since(Instant::now()).min(WAIT_SLICE);
            let path = format!("/v1/executions/{}/wait?timeout_ms={}", segment(id), slice.as_millis());
            let execution: Execution = self.ask(&Call::get(path, slice + WAIT_MARGIN)).await?.json()?;
            if execution.status().is_finished() || Instant::now() >= end {
                return Ok(execution);
            }
        }
    }

    /// Asks for the end of an execution; what the server answers is how it stands then.
    pub async fn cancel(&self, id: &str, reason: Option<&str>) -> Result<Execution, Error> {
        let body = reason.map_or_else(|| json!({}), |reason| json!({"reason": reason}));
        self.post(&format!("/v1/executions/{}/cancel", segment(id)), &body).await
    }

    /// Ends an execution at once: nothing is undone, no handler runs. What is answered is how it stands then.
    pub async fn terminate(&self, id: &str, reason: Option<&str>) -> Result<Execution, Error> {
        let body = reason.map_or_else(|| json!({}), |reason| json!({"reason": reason}));
        self.post(&format!("/v1/executions/{}/terminate", segment(id)), &body).await
    }

    /// Lets an execution go on that was held when a server took over (`--recovery hold`). What is answered is how it stands
    /// then; of one that is not held that it is not (`NOT_HELD`).
    pub async fn recover(&self, id: &str, reason: Option<&str>) -> Result<Execution, Error> {
        let body = reason.map_or_else(|| json!({}), |reason| json!({"reason": reason}));
        self.post(&format!("/v1/executions/{}/recover", segment(id)), &body).await
    }

    /// Tries an execution again that is quarantined. What is answered is how it goes on; where that fails again, why
    /// (`QUARANTINED`).
    pub async fn release(&self, id: &str) -> Result<Execution, Error> {
        self.post(&format!("/v1/executions/{}/release", segment(id)), &json!({})).await
    }

    /// Sends a signal that the workflow declares. It is durable once this returns, and waits until it is taken.
    ///
    /// The call always carries a `signal_id`, so that it may be repeated: the given one, or one that is drawn here.
    pub async fn signal(
        &self,
        id: &str,
        name: &str,
        payload: Value,
        signal_id: Option<&str>,
    ) -> Result<Signalled, Error> {
        let key = signal_id.map_or_else(|| self.transport.uuid(), str::to_owned);
        let body = json!({"payload": payload, "signal_id": key});
        self.post(&format!("/v1/executions/{}/signals/{}", segment(id), segment(name)), &body).await
    }

    /// Sends an update that the workflow declares, and tells what it answers. One that it does not take is an error
    /// with the code `UPDATE_REJECTED`.
    ///
    /// The call always carries an `update_id`, so that it may be repeated: the given one, or one that is drawn here.
    pub async fn update(
        &self,
        id: &str,
        name: &str,
        payload: Value,
        update_id: Option<&str>,
    ) -> Result<Updated, Error> {
        let key = update_id.map_or_else(|| self.transport.uuid(), str::to_owned);
        let body = json!({"payload": payload, "update_id": key});
        self.post(&format!("/v1/executions/{}/updates/{}", segment(id), segment(name)), &body).await
    }

    /// The value of a query that the workflow declares, as the execution stands, or stood at its end.
    pub async fn query(&self, id: &str, name: &str) -> Result<Value, Error> {
        let asked: Queried = self.get(format!("/v1/executions/{}/queries/{}", segment(id), segment(name))).await?;
        Ok(asked.result)
    }

    /// The workers that registered.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>, Error> {
        let list: WorkerList = self.get("/v1/workers").await?;
        Ok(list.workers)
    }

    /// The servers of the cluster.
    pub async fn nodes(&self) -> Result<Vec<NodeInfo>, Error> {
        let list: NodeList = self.get("/v1/nodes").await?;
        Ok(list.nodes)
    }

    /// Asks the leader of a cluster to hand the lead of this term over, and waits until it has. Whoever leads a later one
    /// says that it is done, so that asking again ends no other lead.
    pub async fn step_down(&self, term: u64) -> Result<SteppedDown, Error> {
        let call = Call::post("/v1/cluster/step-down", &json!({"term": term}), ANSWER_DEADLINE);
        self.ask(&call).await?.json()
    }

    /// What a running server says of itself.
    pub async fn health(&self) -> Result<Health, Error> {
        self.get("/v1/health").await
    }

    /// Whether the server serves, and why not. A server that does not is no error here.
    pub async fn ready(&self) -> Result<Ready, Error> {
        let answer = self.transport.call(&Call::get("/v1/ready", ANSWER_DEADLINE)).await?;
        match answer.body_as() {
            Ok(ready) => Ok(ready),
            Err(_) => Err(answer.error()),
        }
    }

    /// The server's metrics, in the text format of Prometheus.
    pub async fn metrics(&self) -> Result<String, Error> {
        let answer = self.ask(&Call::get("/v1/metrics", ANSWER_DEADLINE)).await?;
        if answer.status != 200 {
            return Err(answer.error());
        }
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, path: impl Into<String>) -> Result<T, Error> {
        self.ask(&Call::get(path, ANSWER_DEADLINE)).await?.json()
    }

    async fn post<T: serde::de::DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Error> {
        self.ask(&Call::post(path, body, ANSWER_DEADLINE)).await?.json()
    }

    /// Makes a call, and repeats it while that may help and the patience lasts.
    async fn ask(&self, call: &Call) -> Result<Answer, Error> {
        let begun = Instant::now();
        let mut backoff = Backoff::default();
        loop {
            let asked = self.transport.call(call).await;
            let may_help = match &asked {
                Ok(answer) => matches!(answer.status, 429 | 502..=504),
                Err(error) => error.is_retryable(),
            };
            let wait = backoff.next(self.transport.random());
            if !may_help || begun.elapsed() + wait >= self.patience {
                return asked;
            }
            tokio::time::sleep(wait).await;
        }
    }
}
