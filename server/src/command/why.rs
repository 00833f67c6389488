//! `orbit why`

use super::client;
use crate::cli::ExecutionArgs;
use crate::failure::Failure;
use crate::output::{self, time};
use crate::waiting::{advice, sentence};
use orbit_sdk::{Execution, Status};
use serde::Serialize;

/// One reason.
#[derive(Debug, PartialEq, Serialize)]
struct Why {
    /// The step, or the whole.
    #[serde(skip)]
    about: String,
    /// The step that it is about; none where it is about the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<String>,
    /// What of the step it is, where it is not the step as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<String>,
    /// As the API has it; for the whole its status.
    reason: String,
    message: String,
    /// What would be right.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// Says why an execution is where it is, and what would be right to do.
pub async fn run(arguments: ExecutionArgs) -> Result<(), Failure> {
    let execution = client(&arguments.remote)?.execution(&arguments.id).await?;
    let reasons = reasons(&execution);
    let text = || {
        let summary = &execution.summary;
        let mut text = format!(
            "{} ({} {}) {}\n",
            summary.execution_id,
            summary.workflow,
            summary.version,
            standing(&summary.status)
        );
        for why in &reasons {
            let step = why.unit.as_ref().or(why.step_id.as_ref());
            let step = step.map(|step| format!("{step}: ")).unwrap_or_default();
            text.push_str(&format!("{step}{}\n", why.message));
            if let Some(advice) = &why.advice {
                text.push_str(&format!("  → {advice}\n"));
            }
        }
        text
    };
    output::many(arguments.output.form, &reasons, |why| &why.about, text)
}

/// Where it stands, as the end of a sentence.
fn standing(status: &Status) -> String {
    match status {
        Status::Completed | Status::Failed => format!("has {status}"),
        Status::Cancelled => format!("was {status}"),
        other => format!("is {other}"),
    }
}

fn reasons(execution: &Execution) -> Vec<Why> {
    let id = &execution.summary.execution_id;
    let at = time(execution.summary.updated_at_ms);
    let whole = |message: String, advice: Option<String>| {
        vec![Why {
            about: id.clone(),
            step_id: None,
            unit: None,
            reason: execution.status().to_string(),
            message,
            advice,
        }]
    };
    let of_step = |one: &orbit_sdk::Waiting| Why {
        about: one.unit().to_owned(),
        step_id: Some(one.step_id.clone()),
        unit: one.unit.clone(),
        reason: one.reason.clone(),
        message: sentence(one),
        advice: Some(advice(id, one)),
    };
    let because = |reason: &Option<String>| reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let history = Some(format!("`orbit executions history {id}` shows what came before"));
    match execution.status() {
        Status::Completed => whole(format!("it completed at {at}"), None),
        Status::Cancelled => whole(format!("it was cancelled at {at}{}", because(&execution.cancel_reason)), None),
        Status::Terminated => whole(format!("it was terminated at {at}{}", because(&execution.cancel_reason)), None),
        Status::TimedOut => {
            whole(format!("it was not done within its workflow's `timeout`, and ended at {at}"), history)
        }
        Status::Failed => {
            let why = execution.error.as_ref().map(|error| {
                let step = error.step.as_ref().map(|step| format!(" in step {step}")).unwrap_or_default();
                let message = if error.message.is_empty() { String::new() } else { format!(": {}", error.message) };
                format!("{step}: {}{message}", error.code)
            });
            whole(format!("it failed at {at}{}", why.unwrap_or_default()), history)
        }
        Status::Quarantined => {
            let advice = format!("mend that, then `orbit executions release {id}`; the server's log has more");
            whole(format!("it is set aside{}", because(&execution.reason)), Some(advice))
        }
        Status::Held => {
            let advice = format!("`orbit executions recover {id}` lets it go on; cancel or terminate it otherwise");
            let mut held = whole(format!("it is held{}", because(&execution.reason)), Some(advice));
            // What a worker may still be at.
            let out = execution.waiting.iter().filter(|one| one.reason != "held");
            held.extend(out.map(of_step));
            held
        }
        _ if execution.waiting.is_empty() => {
            whole("no step is open: the server goes on with it by itself".into(), history)
        }
        _ => execution.waiting.iter().map(of_step).collect(),
    }
}
