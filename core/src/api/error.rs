//! Every error code of the API, with its status, its hint and whether the same request may succeed later.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $retryable:literal, $hint:literal;)+) => {
        /// The code of an error. Clients decide from it, never from the message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum ErrorCode { $($(#[$doc])* #[serde(rename = $text)] $name),+ }

        impl ErrorCode {
            /// Every code, in the order of this file.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$name),+];
            /// The text that the API uses.
            pub fn as_str(self) -> &'static str { match self { $(ErrorCode::$name => $text),+ } }
            /// The HTTP status.
            pub fn status(self) -> u16 { match self { $(ErrorCode::$name => $status),+ } }
            /// Whether the same request may succeed later.
            pub fn retryable(self) -> bool { match self { $(ErrorCode::$name => $retryable),+ } }
            /// What would be right.
            pub fn hint(self) -> &'static str { match self { $(ErrorCode::$name => $hint),+ } }
        }
    };
}

codes! {
    /// The bytes are not what the content type says, or a field is missing, unknown or of another type.
    InvalidRequest = "INVALID_REQUEST", 400, false, "correct the request; the message says where";
    /// No credentials, or wrong ones.
    Unauthorized = "UNAUTHORIZED", 401, false, "send the server's token as `Authorization: Bearer …`";
    /// No such route.
    NotFound = "NOT_FOUND", 404, false, "see /v1/openapi.json and the API reference for the routes";
    /// The route exists, for other methods.
    MethodNotAllowed = "METHOD_NOT_ALLOWED", 405, false, "use one of the methods in the `allow` header";
    /// The body was not complete in time.
    RequestTimeout = "REQUEST_TIMEOUT", 408, true, "send the whole request without pauses";
    /// The head of the request is too large.
    HeadTooLarge = "HEAD_TOO_LARGE", 431, false, "send fewer or shorter headers, and a shorter path";
    /// The content type is none that this route reads.
    UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE", 415, false, "send application/json (definitions also application/yaml)";
    /// No such workflow, or no such version of it.
    UnknownWorkflow = "UNKNOWN_WORKFLOW", 404, false, "deploy the workflow first, or correct its name or version";
    /// No such execution.
    UnknownExecution = "UNKNOWN_EXECUTION", 404, false, "check the execution id; `orbit executions list` shows what is there";
    /// The worker session is not known here (any more).
    UnknownSession = "UNKNOWN_SESSION", 404, false, "register again and go on with the new session id";
    /// No execution waits for, or ever gave out, this task token.
    UnknownToken = "UNKNOWN_TOKEN", 404, false, "report only tokens that a poll returned";
    /// The definition has errors; `details.problems` lists them.
    DefinitionInvalid = "DEFINITION_INVALID", 422, false, "correct the problems in `details.problems` and deploy again";
    /// A strict deployment of a definition with warnings; `details.problems` lists them.
    DefinitionWarnings = "DEFINITION_WARNINGS", 422, false, "correct what `details.problems` warns of, or deploy without `strict`";
    /// Other content stands under that name and version.
    DefinitionConflict = "DEFINITION_CONFLICT", 409, false, "a deployed version never changes: raise the version and deploy again";
    /// The id is taken by an execution with another workflow or input.
    ExecutionIdConflict = "EXECUTION_ID_CONFLICT", 409, false, "choose another execution_id, or repeat the first request unchanged";
    /// The execution has ended.
    ExecutionFinished = "EXECUTION_FINISHED", 409, false, "nothing can be changed after the end";
    /// The execution is set aside: loading or applying it failed.
    Quarantined = "QUARANTINED", 409, false, "mend what the message names, then `orbit executions release`";
    /// The execution is not quarantined.
    NotQuarantined = "NOT_QUARANTINED", 409, false, "only what is `quarantined` is released; the message says what it is";
    /// The execution is not held.
    NotHeld = "NOT_HELD", 409, false, "only what is `held` is recovered; `orbit executions list --status held` shows what is";
    /// The workflow declares no such signal.
    UnknownSignal = "UNKNOWN_SIGNAL", 404, false, "send a signal that the workflow's definition declares in `signals`";
    /// The payload does not match the schema of the signal.
    SignalPayloadInvalid = "SIGNAL_PAYLOAD_INVALID", 422, false, "send a payload that matches the signal's schema";
    /// The id was used for another signal or update of this execution.
    SignalIdConflict = "SIGNAL_ID_CONFLICT", 409, false, "choose another signal_id or update_id, or repeat the first request unchanged";
    /// The workflow declares no such update.
    UnknownUpdate = "UNKNOWN_UPDATE", 404, false, "send an update that the workflow's definition declares in `updates`";
    /// The payload does not match the schema of the update.
    UpdatePayloadInvalid = "UPDATE_PAYLOAD_INVALID", 422, false, "send a payload that matches the update's schema";
    /// The workflow does not take this update now.
    UpdateRejected = "UPDATE_REJECTED", 409, false, "look at the update's `when` in the definition; nothing was changed";
    /// The workflow declares no such query.
    UnknownQuery = "UNKNOWN_QUERY", 404, false, "ask a query that the workflow's definition declares in `queries`";
    /// The query's expression gives no value now.
    QueryFailed = "QUERY_FAILED", 422, false, "correct the query's expression in the definition; the message says what it met";
    /// The input does not match the workflow's schema.
    InputInvalid = "INPUT_INVALID", 422, false, "send an input that matches the workflow's input schema";
    /// A payload is larger than `max_payload_bytes`.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", 413, false, "send less, or raise the limit that the message names";
    /// A bound on what may be active or queued is reached.
    ResourceExhausted = "RESOURCE_EXHAUSTED", 429, true, "wait for running executions to end, or raise the limit that the message names";
    /// This server is not the one that serves writes.
    NotLeader = "NOT_LEADER", 503, true, "send the request to the leader";
    /// This server is alone, and there is nobody to hand anything to.
    NotInCluster = "NOT_IN_CLUSTER", 409, false, "start several servers with --cluster; one that is alone is stopped with SIGTERM";
    /// The server is starting, recovering or stopping.
    NotReady = "NOT_READY", 503, true, "try again in a moment";
    /// Another server has taken over; nothing was written.
    Fenced = "FENCED", 503, true, "send the request to the server that leads now";
    /// The database failed; nothing was written.
    StorageError = "STORAGE_ERROR", 503, true, "try again; if it persists, look at the server's log and its database";
    /// Whether the request took effect is not known.
    OutcomeUnknown = "OUTCOME_UNKNOWN", 504, true, "repeat the request with the same id: it takes effect once";
    /// A mistake of ours.
    Internal = "INTERNAL", 500, false, "please report this with the request id and the server's log";
}

/// An error as the API tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiError {
    pub code: ErrorCode,
    /// What is wrong, in one sentence.
    pub message: String,
    /// More, for programs.
    pub details: Map<String, Value>,
}

impl ApiError {
    /// An error without details.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> ApiError {
        ApiError { code, message: message.into(), details: Map::new() }
    }

    /// With one more detail.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> ApiError {
        self.details.insert(key.into(), value.into());
        self
    }

    /// The body that `io` sends: `{"error":{"code","message","hint","retryable","details","request_id"}}`.
    pub fn body(&self, request_id: &str) -> Value {
        serde_json::json!({"error": {
            "code": self.code.as_str(), "message": self.message, "hint": self.code.hint(),
            "retryable": self.code.retryable(), "details": self.details, "request_id": request_id,
        }})
    }
}
