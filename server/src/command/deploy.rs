//! `orbit deploy`

use super::client;
use super::document::Document;
use crate::cli::DeployArgs;
use crate::failure::Failure;
use crate::output::{self, Table};

/// Deploys each file in turn. One that is refused does not keep the others back, but decides the exit code.
pub async fn run(arguments: DeployArgs) -> Result<(), Failure> {
    let client = client(&arguments.remote)?;
    let mut deployed = Vec::new();
    let mut failed: Option<Failure> = None;
    for file in &arguments.files {
        let result = match Document::read(file) {
            Ok(document) => {
                let deployed = if arguments.strict {
                    client.deploy_strictly(&document.text, document.format).await
                } else {
                    client.deploy(&document.text, document.format).await
                };
                deployed.inspect(|answer| document.deployed(answer)).map_err(|error| document.refused(error))
            }
            Err(failure) => Err(failure),
        };
        match result {
            Ok(answer) => deployed.push(answer),
            Err(failure) => {
                if let Some(earlier) = failed.replace(failure) {
                    earlier.tell();
                }
            }
        }
    }
    if !deployed.is_empty() || failed.is_none() {
        output::list(
            arguments.output.form,
            &deployed,
            &deployed,
            |one| one.name.as_str(),
            || {
                let mut table = Table::new(&["WORKFLOW", "VERSION", "RESULT", "DEFINITION"]);
                for one in &deployed {
                    table.row(vec![
                        one.name.clone(),
                        one.version.clone(),
                        one.result.clone(),
                        one.definition_hash.clone(),
                    ]);
                }
                table
            },
        )?;
    }
    failed.map_or(Ok(()), Err)
}
