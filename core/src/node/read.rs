//! Requests about executions that are answered from memory, or read from the store.

use super::away::unanswered;
use super::membership::shown_nodes;
use super::request::{Open, Read, unknown_execution};
use super::{Connection, Node, Purpose, RequestId, view};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::request::ListExecutions;
use crate::api::response::{ExecutionView, Executions, History, Reply, Response};
use crate::definition::Definition;
use crate::execution::event::{DecodeError, Recorded};
use crate::execution::{State, waiting};
use crate::id::{ExecutionId, QueryName};
use crate::mutant::Mutants;
use crate::node::ask::query;
use crate::node::slot::Body;
use crate::store::append::Status;
use crate::store::outcome::Failure;
use crate::store::statement::{ListSummaries, LoadedExecution, ReadHistories, ReadSummary, SummaryFilter, SummaryRow};
use crate::store::transaction::{Transaction, Verdict};
use crate::time::ClusterMs;

impl<M: Mutants> Node<M> {
    pub(super) fn list(&mut self, id: RequestId, list: ListExecutions) {
        let before = match list.cursor.as_deref().map(parse_cursor) {
            None => None,
            Some(Some(before)) => Some(before),
            Some(None) => {
                let message = "`cursor` is none that this server gave: pass `next_cursor` of the page before";
                let error =
                    ApiError::new(ErrorCode::InvalidRequest, message).with("in", "query").with("path", "cursor");
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

    pub(super) fn get_execution(&mut self, id: RequestId, execution: ExecutionId) {
        if let Some(view) = self.view_in_memory(&execution) {
            return self.answer(id, Response::ok(Reply::Execution(view)));
        }
        self.read(id, Read::Execution(execution.clone()), Transaction::Summary(ReadSummary { execution }));
    }

    /// An execution as memory has it. While a group of it is under way, its row may say more already, and a read of the
    /// store may have shown that: then memory is not asked.
    pub(super) fn view_in_memory(&self, execution: &ExecutionId) -> Option<ExecutionView> {
        let slot = self.slots.get(execution).filter(|slot| !slot.in_flight)?;
        slot.resident().map(|resident| self.view(&resident.definition, &resident.state))
    }

    /// An execution, with what it waits for.
    pub(super) fn view(&self, definition: &Definition, state: &State) -> ExecutionView {
        view::of_state(state, waiting(definition, state, &self.alive()))
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
            // A wait whose time was over read the row once more; the first answer has led on to the history already.
            (Open::Read(Read::Whole(_)), Verdict::Summary(_)) => return,
            (Open::Read(Read::Whole(row)), Verdict::Load(loaded)) => self.shown_whole((**row).clone(), &loaded),
            (Open::Read(Read::List { limit, only }), Verdict::Summaries(mut rows)) => {
                let more = rows.len() > *limit as usize;
                rows.truncate(*limit as usize);
                let next = rows.last().filter(|_| more);
                let next_cursor = next.map(|row| format!("{}.{}", row.summary.created_at_ms.0, row.execution));
                let shown = rows.into_iter().map(|row| {
                    let set_aside = !row.summary.status.is_terminal() && self.broken(&row.execution).is_some();
                    let mut item = view::item(row.execution, row.run, row.summary);
                    if set_aside {
                        item.status = Status::Quarantined;
                    }
                    item
                });
                let executions = shown.filter(|item| only.is_none_or(|only| item.status == only)).collect();
                Response::ok(Reply::Executions(Executions { executions, next_cursor }))
            }
            (Open::Read(Read::History(execution)), Verdict::History(page)) => {
                if page.known && page.run > page.newest {
                    let (run, newest) = (page.run, page.newest);
                    let message = format!("execution {execution} has no run {run}; its newest is run {newest}");
                    ApiError::new(ErrorCode::UnknownExecution, message).into()
                } else if page.known {
                    let events: Result<Vec<_>, _> = page.events.iter().map(|e| Recorded::decode(e)).collect();
                    let (execution_id, run, more) = (execution.clone(), page.run, page.more);
                    shown(events.map(|events| Reply::History(History { execution_id, run, events, more })))
                } else {
                    unknown_execution(execution).into()
                }
            }
            (Open::Read(Read::Workers), Verdict::Workers(rows)) => self.workers(rows),
            (Open::Read(Read::Nodes), Verdict::Nodes(rows)) => shown_nodes(rows),
            (Open::Read(Read::Workflows(which)), Verdict::Definitions(rows)) => {
                let which = which.clone();
                self.know_definitions(rows);
                self.shown_workflows(which.as_ref())
            }
            (Open::Read(Read::Query { execution, name }), Verdict::Definitions(rows)) => {
                let (execution, name) = (execution.clone(), name.clone());
                self.know_definitions(rows);
                let read = Transaction::Load(ReadHistories { executions: vec![execution.clone()] });
                return self.read_instead(id, Read::Query { execution, name }, read);
            }
            (Open::Read(Read::Query { execution, name }), Verdict::Load(loaded)) => {
                self.queried(execution, name, &loaded)
            }
            (kind, verdict) => unreachable!("{verdict:?} is no answer to {kind:?}"),
        };
        self.respond(id, response);
    }

    fn none_is_broken(&self) -> bool {
        !self.slots.values().any(|slot| matches!(slot.body, Body::Broken(_)))
    }

    /// Why an execution is set aside, if it is.
    pub(super) fn broken(&self, execution: &ExecutionId) -> Option<&str> {
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
    pub(super) fn read_instead(&mut self, id: RequestId, what: Read, transaction: Transaction) {
        if self.is_away() {
            return self.respond(id, unanswered());
        }
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

    /// The value of a query of an execution that is not in memory, by its history.
    fn queried(&self, execution: &ExecutionId, name: &QueryName, loaded: &[LoadedExecution]) -> Response {
        let Some(loaded) = loaded.first().filter(|loaded| !loaded.events.is_empty()) else {
            return unknown_execution(execution).into();
        };
        let state = match State::load(execution, &loaded.events) {
            Ok(state) => state,
            Err(error) => return ApiError::new(ErrorCode::Internal, error.to_string()).into(),
        };
        let deployed = self.catalog.get(&state.workflow, Some(&state.version));
        match deployed.map(|deployed| &*deployed.definition).filter(|d| d.hash == state.definition_hash) {
            Some(definition) => query(definition, &state, name).map_or_else(Into::into, Response::ok),
            None => {
                let message = format!("the definition {} {} cannot be read", state.workflow, state.version);
                ApiError::new(ErrorCode::Internal, message).into()
            }
        }
    }

    fn shown_row(&self, row: SummaryRow) -> Response {
        match self.broken(&row.execution) {
            Some(reason) => Response::ok(Reply::Execution(view::quarantined(row, reason))),
            None => shown(view::of_row(row).map(Reply::Execution)),
        }
    }
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
