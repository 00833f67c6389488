//! Requests about workflows, executions and the server itself.

use super::{Connection, LogEvent, Node, Purpose, RequestId, storage_error};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::request::{ListExecutions, ReportForm, Request, Start};
use crate::api::response::{
    Deployed, ExecutionView, Executions, Health, History, Metrics, Ready, Reply, Response, ResultOutcome, WorkflowView,
    Workflows,
};
use crate::definition::{Boundary, Checked, Definition, Problem, nearest};
use crate::execution::event::{DecodeError, Json, Recorded};
use crate::execution::{State, waiting};
use crate::id::{CallKey, ExecutionId, Seq, Version, WorkflowName};
use crate::mutant::Mutants;
use crate::node::slot::{Body, Slot, Work, memory_of};
use crate::node::view;
use crate::store::append::Status;
use crate::store::outcome::Failure;
use crate::store::statement::{
    DefinitionRow, ListSummaries, LoadedExecution, PutDefinition, PutResult, ReadHistories, ReadHistory, ReadSummary,
    SummaryFilter, SummaryRow,
};
use crate::store::transaction::{SINGLE, Transaction, Verdict};
use crate::time::{ClusterMs, Mono};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// A request that is not answered yet (polls apart).
#[derive(Debug)]
pub(crate) struct OpenRequest {
    pub kind: Open,
    pub deadline: Mono,
}

/// What an open request waits for.
#[derive(Debug)]
pub(crate) enum Open {
    /// The start or cancel of this execution.
    Write,
    /// A definition.
    Deploy,
    /// The end of this execution.
    Wait(ExecutionId),
    /// Outcomes of results.
    Report { form: ReportForm, outcomes: Vec<Option<ResultOutcome>> },
    /// Rows.
    Read(Read),
}

/// What is read, and so how it is shown.
#[derive(Debug)]
pub(crate) enum Read {
    Execution(ExecutionId),
    /// The execution of this row, by its history.
    Whole(Box<SummaryRow>),
    /// `only`: of a status that the rows do not have, since it is known here alone; or that these are not to have.
    List {
        limit: u32,
        only: Option<Status>,
    },
    History(ExecutionId),
    Workers,
}

/// A definition that is being stored.
#[derive(Debug)]
pub(crate) struct Deploying {
    request: RequestId,
    definition: Arc<Definition>,
    warnings: Vec<Problem>,
    created_at: ClusterMs,
    /// Memory that it takes meanwhile.
    bytes: u64,
}

/// Version strings of the API (interfaces, "HTTP").
const API_VERSION: &str = "orbit-api/1";
const IR_VERSION: &str = "orbit-def/1";

impl<M: Mutants> Node<M> {
    pub(super) fn on_request(&mut self, id: RequestId, request: Request) {
        // What is answered in every phase.
        match &request {
            Request::Health => return self.health(id),
            Request::Ready => return self.ready(id),
            Request::Livez => return self.probe(id, true),
            Request::Readyz => return self.probe(id, self.takes_requests()),
            Request::Leaderz => return self.probe(id, self.is_ready()),
            Request::Metrics => return self.metrics(id),
            _ => {}
        }
        if let Some(why) = self.why_not_ready() {
            return self.answer(id, ApiError::new(ErrorCode::NotReady, why));
        }
        match request {
            Request::Deploy(document) => self.deploy(id, *document),
            Request::ListWorkflows => {
                let workflows = self.catalog.items();
                self.answer(id, Response::ok(Reply::Workflows(Workflows { workflows })));
            }
            Request::GetWorkflow { name, version } => self.get_workflow(id, &name, version.as_ref()),
            Request::Start(start) => self.start(id, start),
            Request::ListExecutions(list) => self.list(id, list),
            Request::GetExecution(execution) => self.get_execution(id, execution),
            Request::GetHistory { execution, after, limit, max_bytes } => {
                self.get_history(id, execution, after, limit, max_bytes);
            }
            Request::Wait { execution, timeout } => self.wait(id, execution, timeout),
            Request::Cancel { execution, reason } => {
                if self.open_write(id, Open::Write) {
                    self.enqueue(&execution, Work::Cancel { request: id, reason });
                }
            }
            Request::Register(register) => self.register(id, register),
            Request::Poll(poll) => self.poll(id, poll),
            Request::Heartbeat { session, holding } => self.heartbeat(id, session, holding),
            Request::Unregister { session } => self.unregister(id, session),
            Request::Report { session, results, form } => self.report(id, session, results, form),
            Request::ListWorkers => self.read(id, Read::Workers, Transaction::Workers),
            Request::Health
            | Request::Ready
            | Request::Livez
            | Request::Readyz
            | Request::Leaderz
            | Request::Metrics => unreachable!("answered above"),
        }
    }

    /// Opens a request that must be answered within `time`.
    pub(super) fn open(&mut self, id: RequestId, kind: Open, time: Duration) {
        let deadline = self.now.mono + time;
        self.request_deadlines.insert((deadline, id));
        let before = self.requests.insert(id, OpenRequest { kind, deadline });
        assert!(before.is_none(), "the front numbers its requests");
    }

    /// Opens a request that waits for an append; refuses it, and says so, where too many wait already.
    pub(super) fn open_write(&mut self, id: RequestId, kind: Open) -> bool {
        if let Some(error) = self.too_many_requests() {
            self.answer(id, error);
            return false;
        }
        self.open(id, kind, self.config.request_deadline);
        true
    }

    /// Reads rows for a request.
    fn read(&mut self, id: RequestId, what: Read, transaction: Transaction) {
        if let Some(error) = self.too_many_requests() {
            return self.answer(id, error);
        }
        self.open(id, Open::Read(what), self.config.request_deadline);
        self.send(Connection::Requests, transaction, Purpose::Read(id));
    }

    /// What was asked counts until it is done: one who leaves, or is told that the outcome is not known, makes no room.
    pub(super) fn too_many_requests(&self) -> Option<ApiError> {
        let max = self.config.limits.max_queued_bytes;
        if self.asked_bytes >= max {
            let message = format!("the requests that wait take {max} bytes of memory already (max_queued_bytes)");
            let error = ApiError::new(ErrorCode::ResourceExhausted, message);
            return Some(error.with("limit", "max_queued_bytes").with("max", max));
        }
        let max = self.config.limits.max_queued_requests;
        (self.asked + self.called >= max).then(|| {
            ApiError::new(ErrorCode::ResourceExhausted, format!("{max} requests wait already (max_queued_requests)"))
                .with("limit", "max_queued_requests")
                .with("max", max)
        })
    }

    /// Works that requests brought are done.
    pub(super) fn no_longer_asked<'w>(&mut self, works: impl Iterator<Item = &'w Work>) {
        for work in works {
            self.asked -= 1;
            self.asked_bytes -= work.bytes();
        }
    }

    /// Puts work in line for an execution; its history is read first where it is not in memory.
    pub(super) fn enqueue(&mut self, execution: &ExecutionId, work: Work) {
        let starts = matches!(work, Work::Start { .. });
        let slot = self.slots.entry(execution.clone()).or_insert_with(|| {
            if starts {
                // Most ids that clients choose are new: the append itself finds out where one is not.
                return Slot::new(Body::Unread);
            }
            self.to_load.insert(execution.clone());
            Slot::new(Body::Loading)
        });
        let was_idle = slot.queue.is_empty();
        if work.request().is_some() {
            self.asked += 1;
            self.asked_bytes += work.bytes();
        }
        slot.queue.push_back(work);
        if let Some(at) = slot.idle.take() {
            self.idle.remove(&(at, execution.clone()));
            self.idle_bytes -= slot.bytes;
        }
        if was_idle && !slot.in_flight && !matches!(slot.body, Body::Loading) {
            self.ready.push_back(execution.clone());
        }
    }

    // -------------------------------------------------------------------------------------------- the server itself

    fn health(&mut self, id: RequestId) {
        let health = Health {
            status: "ok".into(),
            api_version: API_VERSION.into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            ir_versions: vec![IR_VERSION.into()],
            active_executions: self.active,
            worker_sessions: self.sessions.len() as u64,
            role: SINGLE.into(),
            node_id: Some(self.config.node_id.clone()),
            term: self.fence().map(|f| f.term),
            leader: None,
        };
        self.answer(id, Response::ok(Reply::Health(health)));
    }

    fn ready(&mut self, id: RequestId) {
        let ready = Ready {
            role: SINGLE.into(),
            node_id: Some(self.config.node_id.clone()),
            term: self.fence().map(|f| f.term),
            leader: None,
            ready: self.is_ready(),
            reason: self.why_not_ready().or(self.why_not_writing()).map(Into::into),
        };
        let status = if ready.ready { 200 } else { 503 };
        self.answer(id, Response { status, retry_after: None, reply: Reply::Ready(ready) });
    }

    fn probe(&mut self, id: RequestId, ok: bool) {
        let status = if ok { 200 } else { 503 };
        self.answer(id, Response { status, retry_after: None, reply: Reply::Probe { ok } });
    }

    fn metrics(&mut self, id: RequestId) {
        let metrics = Metrics {
            counters: self.counters,
            active_executions: self.active,
            resident_executions: self.slots.len() as u64,
            worker_sessions: self.sessions.len() as u64,
            open_attempts: self.attempts.len() as u64,
            waiting_polls: self.polls.len() as u64,
            queue: self.queue.view(self.cluster_now()),
            ready: self.is_ready(),
            term: self.fence().map(|f| f.term).unwrap_or_default(),
        };
        self.answer(id, Response::ok(Reply::Metrics(Box::new(metrics))));
    }

    // ---------------------------------------------------------------------------------------------------- workflows

    fn deploy(&mut self, id: RequestId, document: Value) {
        let Checked { definition, warnings } = Definition::check(&document, &*self.schemas);
        let definition = match definition {
            Ok(definition) => Arc::new(definition),
            Err(problems) => {
                let message = match problems.first() {
                    Some(p) if problems.len() == 1 => format!("the definition has a problem: {}", p.message),
                    Some(p) => format!("the definition has {} problems; the first: {}", problems.len(), p.message),
                    None => "the definition is invalid".into(),
                };
                let problems = serde_json::to_value(problems).expect("problems are text");
                let error = ApiError::new(ErrorCode::DefinitionInvalid, message).with("problems", problems);
                return self.answer(id, error);
            }
        };
        let fence = self.fence().expect("serving");
        let created_at = self.cluster_now();
        let row = DefinitionRow {
            name: definition.name.clone(),
            version: definition.version.clone(),
            hash: definition.hash.clone(),
            document,
            created_at_ms: created_at,
        };
        let put = PutDefinition { key: CallKey(self.draw()), fence, definition: row };
        if !self.open_write(id, Open::Deploy) {
            return;
        }
        // The document twice, and what was made of it.
        let bytes = 3 * memory_of(&definition.document);
        self.asked_bytes += bytes;
        let deploying = Deploying { request: id, definition, warnings, created_at, bytes };
        self.send(Connection::Requests, Transaction::Deploy(Box::new(put)), Purpose::Deploy(deploying));
    }

    pub(super) fn on_deploy(&mut self, deploying: Deploying, outcome: Result<Verdict, Failure>) {
        let Deploying { request, definition, warnings, created_at, bytes } = deploying;
        self.asked_bytes -= bytes;
        let put = match outcome {
            Ok(Verdict::Deploy(put)) => put,
            Ok(other) => unreachable!("a deployment gives a put result, not {other:?}"),
            Err(failure) => return self.respond(request, storage_error(&failure.message)),
        };
        let (name, version) = (definition.name.clone(), definition.version.clone());
        let deployed = |result: &str| {
            Reply::Deployed(Deployed {
                name: name.clone(),
                version: version.clone(),
                definition_hash: definition.hash.clone(),
                result: result.into(),
                warnings: warnings.iter().cloned().map(Into::into).collect(),
            })
        };
        match put {
            PutResult::Created => {
                let response = Response::created(deployed("created"));
                self.catalog.insert(definition.clone(), created_at);
                self.log(LogEvent::Deployed { workflow: name.clone(), version: version.clone() });
                self.respond(request, response);
            }
            PutResult::Unchanged => {
                let response = Response::ok(deployed("unchanged"));
                self.catalog.insert(definition.clone(), created_at);
                self.respond(request, response);
            }
            PutResult::Conflict(hash) => {
                let message = format!("other content is deployed as {name} {version}");
                let error = ApiError::new(ErrorCode::DefinitionConflict, message)
                    .with("deployed_hash", hash.as_str())
                    .with("definition_hash", definition.hash.as_str());
                self.respond(request, error);
            }
            PutResult::Fenced(current) => self.lose_fence(current),
        }
    }

    fn get_workflow(&mut self, id: RequestId, name: &WorkflowName, version: Option<&Version>) {
        let response = match self.catalog.get(name, version) {
            Some(deployed) => {
                let definition = deployed.definition.document.clone();
                Response::ok(Reply::Workflow(WorkflowView { item: self.catalog.item(deployed), definition }))
            }
            None => self.unknown_workflow(name, version).into(),
        };
        self.answer(id, response);
    }

    fn unknown_workflow(&self, name: &WorkflowName, version: Option<&Version>) -> ApiError {
        let message = match (version, self.catalog.latest(name)) {
            (Some(version), Some(latest)) => {
                format!("workflow {name} has no version {version}; the newest is {latest}")
            }
            _ => match nearest(name.as_str(), self.catalog.names()) {
                Some(meant) => format!("there is no workflow {name}; did you mean `{meant}`?"),
                None => format!("there is no workflow {name}"),
            },
        };
        ApiError::new(ErrorCode::UnknownWorkflow, message)
    }

    // --------------------------------------------------------------------------------------------------- executions

    fn start(&mut self, id: RequestId, start: Start) {
        let Some(deployed) = self.catalog.get(&start.workflow, start.version.as_ref()) else {
            let error = self.unknown_workflow(&start.workflow, start.version.as_ref());
            return self.answer(id, error);
        };
        let definition = deployed.definition.clone();
        let misfit = self.misfit(&definition, &start.input);
        let execution = match (&start.execution_id, &misfit) {
            (Some(execution), _) => execution.clone(),
            (None, Some(misfit)) => return self.answer(id, ApiError::clone(misfit)),
            (None, None) => ExecutionId::new(self.draw().to_string()),
        };
        // A repeated start is answered as the first was, whatever was deployed since: one whose input does not fit the
        // definition of today is refused only where there is no execution of that id.
        if self.open_write(id, Open::Write) {
            self.enqueue(&execution, Work::Start { request: id, start: Box::new(start), definition, misfit });
        }
    }

    /// What is wrong with an input, by the schema of a definition.
    fn misfit(&self, definition: &Definition, input: &Json) -> Option<Box<ApiError>> {
        let schema = definition.input_schema.as_ref()?;
        let violation = self.schemas.check(&definition.hash, Boundary::Input, schema, input).err()?;
        let (place, name, reason) = (violation.place("input"), &definition.name, &violation.message);
        let message = format!("`{place}` does not match the input schema of {name}: {reason}");
        let error = ApiError::new(ErrorCode::InputInvalid, message).with("in", "body").with("path", place);
        Some(Box::new(error))
    }

    fn list(&mut self, id: RequestId, list: ListExecutions) {
        let before = match list.cursor.as_deref().map(parse_cursor) {
            None => None,
            Some(Some(before)) => Some(before),
            Some(None) => {
                let message = "`cursor` is none that this server gave: pass `next_cursor` of the page before";
                let error = ApiError::new(ErrorCode::InvalidRequest, message).with("path", "cursor");
                return self.answer(id, error);
            }
        };
        let ListExecutions { status, workflow, labels, since, limit, .. } = list;
        // What is set aside runs by its row: those rows are read, and shown where they are set aside here.
        let in_rows = match status {
            Some(Status::Quarantined) if self.none_is_broken() => {
                let none = Executions { executions: Vec::new(), next_cursor: None };
                return self.answer(id, Response::ok(Reply::Executions(none)));
            }
            Some(Status::Quarantined) => Some(Status::Running),
            status => status,
        };
        let filter = SummaryFilter { status: in_rows, workflow, labels, since };
        // One more than asked, to know whether a page follows.
        let read = ListSummaries { filter, before, limit: limit.saturating_add(1) };
        self.read(id, Read::List { limit, only: status }, Transaction::Summaries(read));
    }

    fn get_execution(&mut self, id: RequestId, execution: ExecutionId) {
        if let Some(view) = self.view_in_memory(&execution) {
            return self.answer(id, Response::ok(Reply::Execution(view)));
        }
        self.read(id, Read::Execution(execution.clone()), Transaction::Summary(ReadSummary { execution }));
    }

    /// An execution as memory has it. While a group of it is under way, its row may say more already, and a read of the
    /// store may have shown that: then memory is not asked.
    fn view_in_memory(&self, execution: &ExecutionId) -> Option<ExecutionView> {
        let slot = self.slots.get(execution).filter(|slot| !slot.in_flight)?;
        slot.resident().map(|resident| self.view(&resident.definition, &resident.state))
    }

    /// An execution, with what it waits for.
    pub(super) fn view(&self, definition: &Definition, state: &State) -> ExecutionView {
        view::of_state(state, waiting(definition, state, &self.sessions))
    }

    fn get_history(&mut self, id: RequestId, execution: ExecutionId, after: Seq, limit: u32, max_bytes: u32) {
        let read = ReadHistory { execution: execution.clone(), after, limit, max_bytes };
        self.read(id, Read::History(execution), Transaction::History(read));
    }

    /// Waits for the end. The waiter is in line before the row is read, so that no end falls in between.
    fn wait(&mut self, id: RequestId, execution: ExecutionId, timeout: Duration) {
        if let Some(view) = self.view_in_memory(&execution)
            && (view.item.status.is_terminal() || timeout.is_zero())
        {
            return self.answer(id, Response::ok(Reply::Execution(view)));
        }
        let reads = self.slots.get(&execution).and_then(Slot::resident).is_none();
        if let Some(error) = self.too_many_requests().filter(|_| reads) {
            return self.answer(id, error);
        }
        self.open(id, Open::Wait(execution.clone()), timeout);
        self.waits.entry(execution.clone()).or_default().insert(id);
        if reads {
            self.send(Connection::Requests, Transaction::Summary(ReadSummary { execution }), Purpose::Read(id));
        }
    }

    pub(super) fn on_read(&mut self, id: RequestId, outcome: Result<Verdict, Failure>) {
        let Some(open) = self.requests.get(&id) else { return };
        let verdict = match outcome {
            Ok(verdict) => verdict,
            Err(failure) => {
                self.forget_wait(id);
                let message = format!("the database cannot be read: {}", failure.message);
                return self.respond(id, ApiError::new(ErrorCode::StorageError, message));
            }
        };
        let response: Response = match (&open.kind, verdict) {
            (Open::Wait(execution), Verdict::Summary(row)) => match row {
                None => {
                    let error = unknown_execution(execution);
                    self.forget_wait(id);
                    error.into()
                }
                Some(row) if row.summary.status.is_terminal() => {
                    self.forget_wait(id);
                    if self.needs_history(&row) {
                        return self.read_history_of(id, row);
                    }
                    self.shown_row(row)
                }
                Some(_) if open.deadline <= self.now.mono => return self.expire_wait(id),
                Some(_) => return,
            },
            (Open::Read(Read::Execution(execution)), Verdict::Summary(row)) => match row {
                None => unknown_execution(execution).into(),
                Some(row) if self.needs_history(&row) => return self.read_history_of(id, row),
                Some(row) => self.shown_row(row),
            },
            (Open::Read(Read::Whole(row)), Verdict::Load(loaded)) => self.shown_whole((**row).clone(), &loaded),
            (Open::Read(Read::List { limit, only }), Verdict::Summaries(mut rows)) => {
                let more = rows.len() > *limit as usize;
                rows.truncate(*limit as usize);
                let next = rows.last().filter(|_| more);
                let next_cursor = next.map(|row| format!("{}.{}", row.summary.created_at_ms.0, row.execution));
                let shown = rows.into_iter().map(|row| {
                    let set_aside = !row.summary.status.is_terminal() && self.broken(&row.execution).is_some();
                    let mut item = view::item(row.execution, row.summary);
                    if set_aside {
                        item.status = Status::Quarantined;
                    }
                    item
                });
                let executions = shown.filter(|item| only.is_none_or(|only| item.status == only)).collect();
                Response::ok(Reply::Executions(Executions { executions, next_cursor }))
            }
            (Open::Read(Read::History(execution)), Verdict::History(page)) => {
                if page.known {
                    let events: Result<Vec<_>, _> = page.events.iter().map(|e| Recorded::decode(e)).collect();
                    let (execution_id, more) = (execution.clone(), page.more);
                    shown(events.map(|events| Reply::History(History { execution_id, events, more })))
                } else {
                    unknown_execution(execution).into()
                }
            }
            (Open::Read(Read::Workers), Verdict::Workers(rows)) => self.workers(rows),
            (kind, verdict) => unreachable!("{verdict:?} is no answer to {kind:?}"),
        };
        self.respond(id, response);
    }

    fn none_is_broken(&self) -> bool {
        !self.slots.values().any(|slot| matches!(slot.body, Body::Broken(_)))
    }

    /// Why an execution is set aside, if it is.
    fn broken(&self, execution: &ExecutionId) -> Option<&str> {
        match &self.slots.get(execution)?.body {
            Body::Broken(reason) => Some(reason),
            _ => None,
        }
    }

    /// Whether what is to be shown of an execution stands in its history alone.
    fn needs_history(&self, row: &SummaryRow) -> bool {
        view::falls_short(row) && self.broken(&row.execution).is_none()
    }

    /// The row of an execution says too little of it: its history is read for the same request.
    fn read_history_of(&mut self, id: RequestId, row: SummaryRow) {
        let read = ReadHistories { executions: vec![row.execution.clone()] };
        self.read_instead(id, Read::Whole(Box::new(row)), Transaction::Load(read));
    }

    /// An open request goes on with another read.
    fn read_instead(&mut self, id: RequestId, what: Read, transaction: Transaction) {
        let open = self.requests.get_mut(&id).expect("the caller looked it up");
        open.kind = Open::Read(what);
        self.request_deadlines.remove(&(open.deadline, id));
        open.deadline = self.now.mono + self.config.request_deadline;
        self.request_deadlines.insert((open.deadline, id));
        self.send(Connection::Requests, transaction, Purpose::Read(id));
    }

    /// An execution by its history; by its row where that cannot be folded, which is found out when it goes on.
    fn shown_whole(&self, row: SummaryRow, loaded: &[LoadedExecution]) -> Response {
        let state = loaded.first().and_then(|loaded| State::load(&loaded.execution, &loaded.events).ok());
        let Some(state) = state else { return self.shown_row(row) };
        let deployed = self.catalog.get(&state.workflow, Some(&state.version));
        let definition = deployed.map(|deployed| &deployed.definition).filter(|d| d.hash == state.definition_hash);
        let view = match definition {
            Some(definition) => self.view(definition, &state),
            None => view::of_state(&state, Vec::new()),
        };
        Response::ok(Reply::Execution(view))
    }

    fn shown_row(&self, row: SummaryRow) -> Response {
        match self.broken(&row.execution) {
            Some(reason) => Response::ok(Reply::Execution(view::quarantined(row, reason))),
            None => shown(view::of_row(row).map(Reply::Execution)),
        }
    }

    /// Tells those who wait for this execution that it has ended.
    pub(super) fn end_reached(&mut self, execution: &ExecutionId) {
        let Some(waiters) = self.waits.remove(execution) else { return };
        let Some(resident) = self.slots.get(execution).and_then(Slot::resident) else { return };
        let view = self.view(&resident.definition, &resident.state);
        for id in waiters {
            self.respond(id, Response::ok(Reply::Execution(view.clone())));
        }
    }

    fn forget_wait(&mut self, id: RequestId) {
        let Some(OpenRequest { kind: Open::Wait(execution), .. }) = self.requests.get(&id) else { return };
        if let Some(waiters) = self.waits.get_mut(execution) {
            waiters.remove(&id);
            if waiters.is_empty() {
                let execution = execution.clone();
                self.waits.remove(&execution);
            }
        }
    }

    /// A wait whose time is over is answered with the execution as it is.
    fn expire_wait(&mut self, id: RequestId) {
        let Some(OpenRequest { kind: Open::Wait(execution), .. }) = self.requests.get(&id) else { return };
        let execution = execution.clone();
        if let Some(view) = self.view_in_memory(&execution) {
            self.forget_wait(id);
            return self.respond(id, Response::ok(Reply::Execution(view)));
        }
        // Out of memory, or about to change: its row says how it is.
        self.forget_wait(id);
        let read = Transaction::Summary(ReadSummary { execution: execution.clone() });
        self.read_instead(id, Read::Execution(execution), read);
    }

    /// A stop does not wait for executions to end.
    pub(super) fn end_waits(&mut self) {
        let waiting: Vec<_> = self.waits.values().flatten().copied().collect();
        for id in waiting {
            self.expire_wait(id);
        }
        for poll in self.polls.all() {
            if let Some(poll) = self.polls.get_mut(poll) {
                poll.eager = true;
            }
            self.answer_poll_when_due(poll);
        }
    }

    /// Requests whose time is over.
    pub(super) fn expire_requests(&mut self) {
        while let Some((at, id)) = self.request_deadlines.first().copied() {
            if at > self.now.mono {
                break;
            }
            self.request_deadlines.pop_first();
            match self.requests.get(&id).map(|open| &open.kind) {
                None => self.expire_results(id),
                Some(Open::Wait(_)) => self.expire_wait(id),
                Some(Open::Write | Open::Deploy | Open::Report { .. }) => {
                    let message = "the database has not answered in time: the request may still take effect";
                    self.respond(id, ApiError::new(ErrorCode::OutcomeUnknown, message));
                }
                Some(Open::Read(_)) => {
                    let message = "the database has not answered in time";
                    self.respond(id, ApiError::new(ErrorCode::StorageError, message));
                }
            }
        }
    }

    /// The one who asked is gone; what was asked goes on.
    pub(super) fn on_gone(&mut self, id: RequestId) {
        self.forget_wait(id);
        if let Some(open) = self.requests.remove(&id) {
            self.request_deadlines.remove(&(open.deadline, id));
        }
        self.polls.close(id);
    }
}

fn unknown_execution(execution: &ExecutionId) -> ApiError {
    ApiError::new(ErrorCode::UnknownExecution, format!("there is no execution {execution}"))
}

fn shown(reply: Result<Reply, DecodeError>) -> Response {
    match reply {
        Ok(reply) => Response::ok(reply),
        Err(error) => ApiError::new(ErrorCode::Internal, error.to_string()).into(),
    }
}

/// `<created_at_ms>.<execution id>`
fn parse_cursor(text: &str) -> Option<(ClusterMs, ExecutionId)> {
    let (created, execution) = text.split_once('.')?;
    (!execution.is_empty()).then_some((ClusterMs(created.parse().ok()?), ExecutionId::new(execution)))
}
