//! `orbit executions signal`, `update` and `query`.

use super::{client, input};
use crate::cli::{MessageArgs, QueryArgs};
use crate::failure::Failure;
use crate::output;
use orbit_sdk::json;

/// Where in an execution's histories something stands. Most executions have one run.
fn event(seq: u64, run: u32) -> String {
    if run == 1 { format!("event {seq}") } else { format!("event {seq} of run {run}") }
}

/// Sends a signal.
pub async fn signal(arguments: MessageArgs) -> Result<(), Failure> {
    let MessageArgs { execution, name, payload, id, remote, output } = arguments;
    let payload = input::read("--payload", payload.as_deref())?;
    let sent = client(&remote)?.signal(&execution, &name, payload, id.as_deref()).await?;
    output::one(output.form, &sent, &execution, || {
        format!("{execution} has the signal {name} ({})\n", event(sent.seq, sent.run))
    })
}

/// Sends an update, and shows what it is answered with.
pub async fn update(arguments: MessageArgs) -> Result<(), Failure> {
    let MessageArgs { execution, name, payload, id, remote, output } = arguments;
    let payload = input::read("--payload", payload.as_deref())?;
    let taken = client(&remote)?.update(&execution, &name, payload, id.as_deref()).await?;
    output::one(output.form, &taken, &execution, || {
        let event = event(taken.seq, taken.run);
        format!("{execution} took the update {name} ({event})\n{}\n", output::value(&taken.result))
    })
}

/// Shows the value of a query.
pub async fn query(arguments: QueryArgs) -> Result<(), Failure> {
    let QueryArgs { execution, name, remote, output } = arguments;
    let result = client(&remote)?.query(&execution, &name).await?;
    output::one(output.form, &json!({"result": result}), &execution, || format!("{}\n", output::value(&result)))
}
