//! What a handler is told beside its input, and how it says that it failed.

use super::protocol::Assignment;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What a handler knows of the task that it runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Context {
    task: Arc<Assignment>,
    deadline: Option<Instant>,
    cancelled: watch::Receiver<bool>,
}

/// The other end of [`Context::cancelled`].
#[derive(Debug)]
pub(crate) struct Canceller(watch::Sender<bool>);

impl Canceller {
    pub(crate) fn cancel(&self) {
        self.0.send_replace(true);
    }
}

impl Context {
    pub(crate) fn new(task: Assignment) -> (Context, Canceller) {
        let (canceller, cancelled) = watch::channel(false);
        let deadline = task.timeout_ms.map(|timeout| Instant::now() + Duration::from_millis(timeout));
        (Context { task: Arc::new(task), deadline, cancelled }, Canceller(canceller))
    }

    /// The execution that waits for the result.
    pub fn execution_id(&self) -> &str {
        &self.task.execution_id
    }

    /// Its workflow.
    pub fn workflow(&self) -> &str {
        &self.task.workflow
    }

    /// The version of its workflow.
    pub fn workflow_version(&self) -> &str {
        &self.task.workflow_version
    }

    /// The step that this task is.
    pub fn step_id(&self) -> &str {
        &self.task.step_id
    }

    /// The task's name.
    pub fn task_name(&self) -> &str {
        &self.task.task_name
    }

    /// Names this delivery.
    pub fn token(&self) -> &str {
        &self.task.token
    }

    /// The first attempt is 1.
    pub fn attempt(&self) -> u32 {
        self.task.attempt
    }

    /// Whether an earlier delivery of this attempt may have run: look first whether its work is done already.
    ///
    /// False is no proof: a worker that stood still for longer than its session lives reads a first delivery, which has
    /// no flag, after its repetition has gone to another. What must happen only once needs
    /// [`Context::idempotency_key`].
    pub fn redelivery(&self) -> bool {
        self.task.redelivery
    }

    /// The same for every delivery of every attempt of this step. Hand it to whatever must happen only once.
    pub fn idempotency_key(&self) -> &str {
        &self.task.idempotency_key
    }

    /// When the attempt times out, if it does: counted from when the task came in, so slightly late.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether the result is not wanted any more.
    pub fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Ready once the result is not wanted any more. What the handler returns after that is dropped.
    pub async fn cancelled(&self) {
        let mut cancelled = self.cancelled.clone();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            // The worker is gone without having cancelled: nothing will come.
            std::future::pending::<()>().await;
        }
    }
}

/// A handler's failure. Whether the step is tried again, its `retry` and `retryable` say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFailure {
    /// What the definition's `non_retryable` names: `CARD_DECLINED` …
    pub code: String,
    /// For people.
    pub message: String,
    /// Whether another attempt may help.
    pub retryable: bool,
    /// Whatever else there is to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl TaskFailure {
    /// A failure that another attempt may mend.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> TaskFailure {
        TaskFailure { code: code.into(), message: message.into(), retryable: true, details: None }
    }

    /// A failure that no other attempt would mend.
    pub fn fatal(code: impl Into<String>, message: impl Into<String>) -> TaskFailure {
        TaskFailure { retryable: false, ..TaskFailure::new(code, message) }
    }

    /// With details for programs.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<Value>) -> TaskFailure {
        self.details = Some(details.into());
        self
    }
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for TaskFailure {}
