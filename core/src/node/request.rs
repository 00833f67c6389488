//! Requests about workflows, executions and the server itself.

use super::away::{unanswered, unsent};
use super::{Connection, LogEvent, Node, Purpose, RequestId, storage_error};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::request::{ReportForm, Request, Start};
use crate::api::response::{Deployed, Reply, Response, ResultOutcome, WorkflowView};
use crate::definition::{Boundary, Checked, Definition, Problem, nearest};
use crate::execution::event::{Json, memory_of};
use crate::id::{CallKey, ExecutionId, QueryName, Version, WorkflowName};
use crate::mutant::Mutants;
use crate::node::ask::Ask;
use crate::node::slot::{Body, Slot, Work};
use crate::store::append::Status;
use crate::store::outcome::Failure;
use crate::store::statement::{DefinitionRow, PutDefinition, PutResult, ReadHistory, ReadSummary, SummaryRow};
use crate::store::transaction::{Transaction, Verdict};
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
    /// The start of an execution, or what is asked of it.
    Write(ExecutionId),
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
    Nodes,
    /// All definitions, or this one.
    Workflows(Option<(WorkflowName, Option<Version>)>),
    /// The value of a query, by the history.
    Query {
        execution: ExecutionId,
        name: QueryName,
    },
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

impl<M: Mutants> Node<M> {
    pub(super) fn on_request(&mut self, id: RequestId, request: Request) {
        // What is answered in every phase.
        match &request {
            Request::Health => return self.health(id),
            Request::Ready => return self.ready(id),
            Request::Livez => return self.probe(id, true),
            Request::Readyz => return self.probe(id, self.may_be_read()),
            Request::Leaderz => return self.probe(id, self.is_ready()),
            Request::Metrics => return self.metrics(id),
            Request::Gate if !self.follows() => return self.probe(id, true),
            _ => {}
        }
        if self.follows() {
            return self.on_standby_request(id, request);
        }
        if let Some(why) = self.why_not_ready() {
            return self.answer(id, ApiError::new(ErrorCode::NotReady, why));
        }
        let Some(request) = self.read_for(id, request) else { return };
        match request {
            Request::Deploy { document, strict } => self.deploy(id, *document, strict),
            Request::ListWorkflows => {
                let response = self.shown_workflows(None);
                self.answer(id, response);
            }
            Request::GetWorkflow { name, version } => {
                let response = self.workflow(&name, version.as_ref());
                self.answer(id, response);
            }
            Request::Start(start) => self.start(id, start),
            Request::Cancel { execution, reason } => self.ask(id, &execution, Ask::Cancel { reason }),
            Request::Terminate { execution, reason } => self.ask(id, &execution, Ask::Terminate { reason }),
            Request::Recover { execution, reason } => self.ask(id, &execution, Ask::Recover { reason }),
            Request::Release { execution } => self.release_execution(id, &execution),
            Request::Signal { execution, signal } => self.ask(id, &execution, Ask::Signal(signal)),
            Request::Update { execution, update } => self.ask(id, &execution, Ask::Update(update)),
            Request::Query { execution, name } => self.ask(id, &execution, Ask::Query(name)),
            Request::Register(register) => self.register(id, register),
            Request::Poll(poll) => self.poll(id, poll),
            Request::Heartbeat { session, holding } => self.heartbeat(id, session, holding),
            Request::Unregister { session } => self.unregister(id, session),
            Request::Report { session, results, form } => self.report(id, session, results, form),
            Request::StepDown { term } => self.hand_lead_over(id, term),
            Request::Health
            | Request::Gate
            | Request::Ready
            | Request::Livez
            | Request::Readyz
            | Request::Leaderz
            | Request::Metrics
            | Request::ListExecutions(_)
            | Request::GetExecution(_)
            | Request::GetHistory { .. }
            | Request::Wait { .. }
            | Request::ListWorkers
            | Request::ListNodes => unreachable!("answered above"),
        }
    }

    /// Answers what one who leads and one who follows read in the same way; gives back what is none of that.
    pub(super) fn read_for(&mut self, id: RequestId, request: Request) -> Option<Request> {
        match request {
            Request::ListExecutions(list) => self.list(id, list),
            Request::GetExecution(execution) => self.get_execution(id, execution),
            Request::GetHistory { execution, run, after, limit, max_bytes } => {
                let read = ReadHistory { execution: execution.clone(), run, after, limit, max_bytes };
                self.read(id, Read::History(execution), Transaction::History(read));
            }
            Request::Wait { execution, timeout } => self.wait(id, execution, timeout),
            Request::ListWorkers => self.read(id, Read::Workers, Transaction::Workers),
            Request::ListNodes => self.list_nodes(id),
            other => return Some(other),
        }
        None
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
    pub(super) fn read(&mut self, id: RequestId, what: Read, transaction: Transaction) {
        if let Some(error) = self.too_many_requests().or_else(|| self.is_away().then(unanswered)) {
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
        self.idle.remove(execution, slot);
        if was_idle && !slot.in_flight && !matches!(slot.body, Body::Loading) {
            self.ready.push_back(execution.clone());
        }
    }

    fn deploy(&mut self, id: RequestId, document: Value, strict: bool) {
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
        if strict && let Some(first) = warnings.first() {
            let message = match warnings.len() {
                1 => format!("the definition has a warning: {}", first.message),
                several => format!("the definition has {several} warnings; the first: {}", first.message),
            };
            let warnings = serde_json::to_value(warnings).expect("warnings are text");
            let error = ApiError::new(ErrorCode::DefinitionWarnings, message).with("problems", warnings);
            return self.answer(id, error);
        }
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
        if let Some(error) = self.away() {
            return self.answer(id, error);
        }
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

    /// One definition, as it is known here.
    pub(super) fn workflow(&self, name: &WorkflowName, version: Option<&Version>) -> Response {
        match self.catalog.get(name, version) {
            Some(deployed) => {
                let definition = deployed.definition.document.clone();
                Response::ok(Reply::Workflow(WorkflowView { item: self.catalog.item(deployed), definition }))
            }
            None => self.unknown_workflow(name, version).into(),
        }
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
        if let Some(error) = self.away() {
            return self.answer(id, error);
        }
        if self.open_write(id, Open::Write(execution.clone())) {
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

    /// Waits for the end. The waiter is in line before the row is read, so that no end falls in between.
    pub(super) fn wait(&mut self, id: RequestId, execution: ExecutionId, timeout: Duration) {
        if let Some(view) = self.view_in_memory(&execution)
            && (view.item.status.is_terminal() || timeout.is_zero())
        {
            return self.answer(id, Response::ok(Reply::Execution(view)));
        }
        let reads = self.slots.get(&execution).and_then(Slot::resident).is_none();
        let refused = self.too_many_requests().or_else(|| self.is_away().then(unanswered));
        if let Some(error) = refused.filter(|_| reads) {
            return self.answer(id, error);
        }
        self.open(id, Open::Wait(execution.clone()), timeout);
        self.waits.entry(execution.clone()).or_default().insert(id);
        if reads {
            self.send(Connection::Requests, Transaction::Summary(ReadSummary { execution }), Purpose::Read(id));
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

    pub(super) fn forget_wait(&mut self, id: RequestId) {
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
    pub(super) fn expire_wait(&mut self, id: RequestId) {
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
                Some(Open::Write(execution)) => {
                    let execution = execution.clone();
                    let error = if self.withdraw(&execution, id) { unsent() } else { in_doubt() };
                    self.respond(id, error);
                }
                Some(Open::Deploy | Open::Report { .. }) => self.respond(id, in_doubt()),
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

fn in_doubt() -> ApiError {
    let message = "the database has not answered in time: the request may still take effect";
    ApiError::new(ErrorCode::OutcomeUnknown, message)
}

pub(super) fn unknown_execution(execution: &ExecutionId) -> ApiError {
    ApiError::new(ErrorCode::UnknownExecution, format!("there is no execution {execution}"))
}
