//! The worker protocol's bodies (interfaces, "HTTP").

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The answer to a registration.
#[derive(Debug, Deserialize)]
pub(crate) struct Registered {
    pub session_id: String,
    pub heartbeat_interval_ms: u64,
}

/// The answer to a poll.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Polled {
    #[serde(default)]
    pub tasks: Vec<Assignment>,
    #[serde(default)]
    pub cancel: Vec<String>,
    #[serde(default)]
    pub outcomes: Vec<ResultOutcome>,
}

/// A task, handed to this worker.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Assignment {
    pub token: String,
    pub execution_id: String,
    pub workflow: String,
    pub workflow_version: String,
    pub step_id: String,
    pub task_name: String,
    pub contract_version: String,
    #[serde(default)]
    pub input: Value,
    pub idempotency_key: String,
    pub attempt: u32,
    #[serde(default)]
    pub redelivery: bool,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// The answer to a heartbeat.
#[derive(Debug, Deserialize)]
pub(crate) struct Cancels {
    #[serde(default)]
    pub cancel: Vec<String>,
}

/// One result, as it is reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TaskResult {
    pub token: String,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Output(Value),
    Error(super::TaskFailure),
}

/// What became of one reported result.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ResultOutcome {
    pub token: String,
    /// `accepted`, `duplicate`, `stale` or `refused`.
    pub outcome: String,
    #[serde(default)]
    pub error: Option<Refusal>,
}

/// Why one result was refused.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Refusal {
    pub code: String,
    #[serde(default)]
    pub message: String,
}

/// The answer to a report of several results.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Reported {
    Object { outcomes: Vec<ResultOutcome> },
    List(Vec<ResultOutcome>),
}

impl Reported {
    pub(crate) fn outcomes(self) -> Vec<ResultOutcome> {
        match self {
            Reported::Object { outcomes } | Reported::List(outcomes) => outcomes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskFailure;
    use serde_json::json;

    #[test]
    fn a_result_is_an_output_or_an_error_beside_its_token() {
        let result = TaskResult { token: "x/1".into(), outcome: Outcome::Output(json!(null)) };
        assert_eq!(serde_json::to_value(result).unwrap(), json!({"token": "x/1", "output": null}));
        let failure = TaskFailure::new("DECLINED", "no");
        let result = TaskResult { token: "x/1".into(), outcome: Outcome::Error(failure) };
        let expected = json!({"token": "x/1", "error": {"code": "DECLINED", "message": "no", "retryable": true}});
        assert_eq!(serde_json::to_value(result).unwrap(), expected);
    }
}
