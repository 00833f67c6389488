//! `orbit start`

use super::{client, executions, input};
use crate::cli::StartArgs;
use crate::failure::Failure;
use crate::output;
use orbit_sdk::StartOptions;

/// Starts an execution, and waits for its end where that is wanted.
pub async fn run(arguments: StartArgs) -> Result<(), Failure> {
    let client = client(&arguments.remote)?;
    let options = StartOptions {
        version: arguments.version,
        execution_id: arguments.id,
        input: input::read("--input", arguments.input.as_deref())?,
        labels: arguments.labels.into_iter().collect(),
    };
    let started = client.start(&arguments.workflow, options).await?;
    if arguments.wait {
        return executions::wait(&client, &started.execution_id, arguments.timeout.0, arguments.output.form).await;
    }
    output::one(arguments.output.form, &started, &started.execution_id, || {
        let what = if started.created { "started" } else { "already started" };
        format!("{what} {} ({} {})\n", started.execution_id, started.workflow, started.version)
    })
}
