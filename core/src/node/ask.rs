//! What clients ask of an execution: to cancel, terminate or recover it, signals, updates, queries.

use super::draft::Draft;
use super::request::{Open, unknown_execution};
use super::slot::{Resident, Slot, Work};
use super::{Node, RequestId};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::request::Message;
use crate::api::response::{Queried, Reply, Response, Signalled, Updated};
use crate::definition::{Boundary, Definition, Local, nearest};
use crate::execution::event::{Event, Recorded};
use crate::execution::{Command, Refusal, State, admit, evaluate};
use crate::id::{ExecutionId, QueryName, SignalName};
use crate::mutant::{Mutant, Mutants};
use crate::store::append::Status;
use crate::time::ClusterMs;
use serde_json::Value;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Cancel {
        reason: Option<String>,
    },
    Terminate {
        reason: Option<String>,
    },
    Recover {
        reason: Option<String>,
    },
    /// It is tried again; `aside`: it was set aside when somebody asked for that.
    Release {
        aside: bool,
    },
    Signal(Message),
    Update(Message),
    Query(QueryName),
}

impl Ask {
    /// About how many bytes of memory it takes.
    pub fn bytes(&self) -> u64 {
        match self {
            Ask::Cancel { reason } | Ask::Terminate { reason } | Ask::Recover { reason } => {
                reason.as_ref().map_or(0, String::len) as u64
            }
            Ask::Signal(message) | Ask::Update(message) => message.memory(),
            Ask::Query(_) | Ask::Release { .. } => 0,
        }
    }
}

/// Which of the two kinds of messages it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Signal,
    Update,
}

impl Kind {
    /// The schema of the payloads of this name, where it has one, or that there is no such name.
    fn schema<'d>(self, definition: &'d Definition, name: &SignalName) -> Result<Option<&'d Value>, ApiError> {
        let workflow = definition.name.as_str();
        match self {
            Kind::Signal => definition.signals.get(name).map(|signal| signal.payload.as_ref()).ok_or_else(|| {
                let declared = definition.signals.keys().map(SignalName::as_str);
                ApiError::new(ErrorCode::UnknownSignal, undeclared("signal", name.as_str(), workflow, declared))
            }),
            Kind::Update => definition.updates.get(name).map(|update| update.payload.as_ref()).ok_or_else(|| {
                let declared = definition.updates.keys().map(SignalName::as_str);
                ApiError::new(ErrorCode::UnknownUpdate, undeclared("update", name.as_str(), workflow, declared))
            }),
        }
    }

    /// What is said of a payload that does not match it.
    fn invalid(self) -> ErrorCode {
        match self {
            Kind::Signal => ErrorCode::SignalPayloadInvalid,
            Kind::Update => ErrorCode::UpdatePayloadInvalid,
        }
    }

    /// The field that has the sender's id.
    fn id_field(self) -> &'static str {
        match self {
            Kind::Signal => "signal_id",
            Kind::Update => "update_id",
        }
    }
}

impl<M: Mutants> Node<M> {
    pub(super) fn ask(&mut self, id: RequestId, execution: &ExecutionId, ask: Ask) {
        if let Some(error) = self.away() {
            return self.answer(id, error);
        }
        if self.open_write(id, Open::Write(execution.clone())) {
            let in_memory = self.slots.get(execution).and_then(Slot::resident).is_some();
            let forgotten = matches!(ask, Ask::Signal(_)) && !in_memory;
            let work = match forgotten && self.mutants.planted(Mutant::SignalForgottenWhileLoading) {
                true => Work::Wake,
                false => Work::Ask { request: id, ask },
            };
            self.enqueue(execution, work);
        }
    }

    /// What is answered once the draft is written.
    pub(super) fn take_ask(
        &mut self,
        execution: &ExecutionId,
        draft: &mut Draft,
        ask: Ask,
        now: ClusterMs,
    ) -> Response {
        if draft.resident.is_none() {
            return unknown_execution(execution).into();
        }
        let answer = match ask {
            Ask::Cancel { reason } => {
                return self.take_end(draft, Command::Cancel { reason }, Status::Cancelled, Reply::Cancelled, now);
            }
            Ask::Terminate { reason } => {
                return self.take_end(draft, Command::Terminate { reason }, Status::Terminated, Reply::Terminated, now);
            }
            Ask::Release { aside } => return self.take_release(draft, aside),
            Ask::Recover { reason } => return self.take_recover(draft, reason, now),
            Ask::Signal(message) => self.take_message(Kind::Signal, draft, message, now),
            Ask::Update(message) => self.take_message(Kind::Update, draft, message, now),
            Ask::Query(name) => {
                let resident = draft.resident.as_ref().expect("looked up above");
                query(&resident.definition, &resident.state, &name)
            }
        };
        answer.map_or_else(Into::into, Response::ok)
    }

    /// Asks for the end. One that has come to it already, or is on its way, is as was asked.
    fn take_end(
        &mut self,
        draft: &mut Draft,
        command: Command,
        wanted: Status,
        reply: fn(crate::api::response::ExecutionView) -> Reply,
        now: ClusterMs,
    ) -> Response {
        let refused = self.take_command(draft, command, now).and_then(Result::err);
        if let None | Some(Refusal::Ending) = refused {
            draft.decide(now, &self.rules());
        }
        let resident = draft.resident.as_ref().expect("the caller looked it up");
        let status = resident.state.status();
        match refused {
            Some(Refusal::Finished) if status != wanted => finished(resident).into(),
            _ => Response::ok(reply(self.view(&resident.definition, &resident.state))),
        }
    }

    /// A signal or an update. One that is known by its sender's id is answered as it was the first time.
    fn take_message(
        &mut self,
        kind: Kind,
        draft: &mut Draft,
        message: Message,
        now: ClusterMs,
    ) -> Result<Reply, ApiError> {
        let Message { name, payload, key } = message;
        let resident = draft.resident.as_ref().expect("the caller looked it up");
        let forgets = kind == Kind::Signal && self.mutants.planted(Mutant::SignalTakenTwice);
        if let Some(sent) = key.as_ref().filter(|_| !forgets).and_then(|key| resident.state.sent(key)) {
            return match (kind, &sent.result) {
                (Kind::Signal, None) if sent.name == name => {
                    Ok(Reply::Signalled(Signalled { seq: sent.seq, run: sent.run }))
                }
                (Kind::Update, Some(result)) if sent.name == name => {
                    Ok(Reply::Updated(Updated { seq: sent.seq, run: sent.run, result: result.clone() }))
                }
                _ => Err(id_conflict(kind, &sent.name)),
            };
        }
        let schema = kind.schema(&resident.definition, &name)?;
        if !resident.state.is_running() {
            return Err(finished(resident));
        }
        self.check_payload(resident, &name, schema, &payload, kind.invalid())?;
        let max = self.config.limits.max_pending_signals;
        let command = match kind {
            Kind::Signal => Command::Signal { name, payload, key, max },
            Kind::Update => Command::Update { name, payload, key, max },
        };
        self.admit_message(draft, command, now)?;
        let run = draft.resident.as_ref().expect("the caller looked it up").state.identity.run;
        let Recorded { seq, event, .. } = draft.events.last().expect("it was recorded");
        match event {
            Event::SignalReceived { .. } => Ok(Reply::Signalled(Signalled { seq: *seq, run })),
            Event::UpdateAccepted { result, .. } => {
                Ok(Reply::Updated(Updated { seq: *seq, run, result: result.clone() }))
            }
            other => unreachable!("a message is recorded as such, not as {other:?}"),
        }
    }

    fn check_payload(
        &self,
        resident: &Resident,
        name: &SignalName,
        schema: Option<&Value>,
        payload: &Value,
        code: ErrorCode,
    ) -> Result<(), ApiError> {
        let Some(schema) = schema else { return Ok(()) };
        let boundary = Boundary::Payload(name.clone());
        self.schemas.check(&resident.definition.hash, boundary, schema, payload).map_err(|violation| {
            let place = violation.place("payload");
            let message = format!("`{place}` does not match the schema of `{name}`: {}", violation.message);
            ApiError::new(code, message).with("in", "body").with("path", place)
        })
    }

    fn admit_message(&mut self, draft: &mut Draft, command: Command, now: ClusterMs) -> Result<(), ApiError> {
        let resident = draft.resident.as_ref().expect("the caller looked it up");
        let refusal = match admit(&resident.definition, &resident.state, &command, now) {
            Ok(event) => match self.rules().too_large_an_answer(&event) {
                None => {
                    draft.record(event, now);
                    return Ok(());
                }
                Some(why) => Refusal::Rejected(why),
            },
            Err(refusal) => refusal,
        };
        Err(match refusal {
            Refusal::TooMany(max) => {
                let message = format!("{max} signals and updates of this execution wait already (max_pending_signals)");
                ApiError::new(ErrorCode::ResourceExhausted, message)
                    .with("limit", "max_pending_signals")
                    .with("max", max)
            }
            Refusal::Rejected(why) => {
                ApiError::new(ErrorCode::UpdateRejected, format!("the workflow did not take the update: {why}"))
            }
            _ => finished(resident),
        })
    }
}

/// The value of a query, from what is committed.
pub(super) fn query(definition: &Definition, state: &State, name: &QueryName) -> Result<Reply, ApiError> {
    let Some(template) = definition.queries.get(name) else {
        let declared = definition.queries.keys().map(QueryName::as_str);
        let message = undeclared("query", name.as_str(), definition.name.as_str(), declared);
        return Err(ApiError::new(ErrorCode::UnknownQuery, message));
    };
    let local = Local { absent_is_null: true, ..Local::default() };
    let result = evaluate(state, template, local);
    let result = result.map_err(|error| ApiError::new(ErrorCode::QueryFailed, error.message))?;
    Ok(Reply::Queried(Queried { result }))
}

fn undeclared<'d>(what: &str, name: &str, workflow: &str, declared: impl Iterator<Item = &'d str> + Clone) -> String {
    let told = format!("workflow {workflow} declares no {what} `{name}`");
    match nearest(name, declared.clone()) {
        Some(meant) => format!("{told}; did you mean `{meant}`?"),
        None => {
            let all: Vec<&str> = declared.take(20).collect();
            if all.is_empty() { told } else { format!("{told}; it has {}", all.join(", ")) }
        }
    }
}

fn id_conflict(kind: Kind, name: &SignalName) -> ApiError {
    let field = kind.id_field();
    ApiError::new(ErrorCode::SignalIdConflict, format!("the {field} was used for `{name}` of this execution before"))
}

pub(super) fn finished(resident: &Resident) -> ApiError {
    let state = &resident.state;
    let id = &state.identity.execution_id;
    let message = match state.has_ended() {
        true => format!("execution {id} has ended: it is {}", state.status().as_str()),
        false => format!("execution {id} is ending: it takes nothing in any more"),
    };
    ApiError::new(ErrorCode::ExecutionFinished, message)
}
