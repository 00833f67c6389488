//! `orbit executions signal`, `update` and `query`.

use super::{client, input};
use crate::cli::{MessageArgs, QueryArgs};
use crate::failure::Failure;
use crate::output;
use orbit_sdk::json;

/// Sends a signal.
pub async fn signal(arguments: MessageArgs) -> Result<(), Failure> {
    let MessageArgs { execution, name, payload, id, remote, output } = arguments;
    let payload = input::read("--payload", payload.as_deref())?;
    let sent = client(&remote)?.signal(&execution, &name, payload, id.as_deref()).await?;
    output::one(output.form, &sent, &execution, || format!("{execution} has the signal {name} (event {})\n", sent.seq))
}

/// Sends an update, and shows what it is answered with.
pub async fn update(arguments: MessageArgs) -> Result<(), Failure> {
    let MessageArgs { execution, name, payload, id, remote, output } = arguments;
    let payload = input::read("--payload", payload.as_deref())?;
    let taken = client(&remote)?.update(&execution, &name, payload, id.as_deref()).await?;
    output::one(output.form, &taken, &execution, || {
        format!("{execution} took the update {name} (event {})\n{}\n", taken.seq, output::value(&taken.result))
    })
}

/// Shows the value of a query.
pub async fn query(arguments: QueryArgs) -> Result<(), Failure> {
    let QueryArgs { execution, name, remote, output } = arguments;
    let result = client(&remote)?.query(&execution, &name).await?;
    output::one(output.form, &json!({"result": result}), &execution, || format!("{}\n", output::value(&result)))
}
