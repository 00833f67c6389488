//! `orbit workflows …`

use super::client;
use crate::cli::{ListWorkflowsArgs, ShowWorkflowArgs, WorkflowsCommand};
use crate::failure::Failure;
use crate::output::{self, Form, Table};
use std::collections::BTreeSet;

/// Runs one of them.
pub async fn run(command: WorkflowsCommand) -> Result<(), Failure> {
    match command {
        WorkflowsCommand::List(arguments) => list(arguments).await,
        WorkflowsCommand::Show(arguments) => show(arguments).await,
    }
}

async fn list(arguments: ListWorkflowsArgs) -> Result<(), Failure> {
    let workflows = client(&arguments.remote)?.workflows().await?;
    if arguments.output.form == Form::Ids {
        // Names are what commands take, and a workflow has one for all of its versions.
        let names: BTreeSet<&str> = workflows.iter().map(|one| one.name.as_str()).collect();
        return output::print(&names.into_iter().map(|name| format!("{name}\n")).collect::<String>());
    }
    output::list(
        arguments.output.form,
        &workflows,
        &workflows,
        |one| one.name.as_str(),
        || {
            let mut table = Table::new(&["WORKFLOW", "VERSION", "LATEST", "CREATED", "DESCRIPTION"]);
            for one in &workflows {
                table.row(vec![
                    one.name.clone(),
                    one.version.clone(),
                    if one.latest { "yes".into() } else { String::new() },
                    output::time(one.created_at_ms),
                    one.description.clone().unwrap_or_default().lines().next().unwrap_or_default().into(),
                ]);
            }
            table
        },
    )
}

async fn show(arguments: ShowWorkflowArgs) -> Result<(), Failure> {
    let client = client(&arguments.remote)?;
    let workflow = client.workflow(&arguments.name, arguments.version.as_deref()).await?;
    output::one(arguments.output.form, &workflow, &workflow.summary.name, || {
        let summary = &workflow.summary;
        let mut fields = vec![
            ("workflow", summary.name.clone()),
            ("version", format!("{}{}", summary.version, if summary.latest { " (latest)" } else { "" })),
            ("hash", summary.definition_hash.clone()),
            ("created", output::time(summary.created_at_ms)),
        ];
        if let Some(description) = &summary.description {
            fields.push(("description", description.trim_end().into()));
        }
        fields.push(("definition", output::pretty(&workflow.definition).trim_end().into()));
        output::fields(&fields)
    })
}
