//! `orbit check`

use super::document::Document;
use crate::cli::CheckArgs;
use crate::failure::{Exit, Failure};
use crate::output;
use orbit_io::definition::Checked;
use std::io::Write;

/// Checks each file, and reports every problem of all of them.
pub fn run(arguments: &CheckArgs) -> Result<(), Failure> {
    let mut bad = 0;
    for file in &arguments.files {
        let document = Document::read(file)?;
        let Checked { definition, warnings } = document.check();
        let doubtful = arguments.strict && !warnings.is_empty();
        document.warn(&warnings, if doubtful { "refused with --strict" } else { "allowed without --strict" });
        match definition {
            Ok(_) if doubtful => bad += 1,
            Ok(definition) => output::print(&format!(
                "{}: {} {} is valid ({}, {})\n",
                document.name,
                definition.name,
                definition.version,
                match definition.steps.len() {
                    1 => "1 step".to_owned(),
                    steps => format!("{steps} steps"),
                },
                definition.hash
            ))?,
            Err(found) => {
                bad += 1;
                // Nobody reads stderr: the exit code tells all the same.
                let _ = std::io::stderr().write_all(found.render(&document.name, &document.text).as_bytes());
            }
        }
    }
    match bad {
        0 => Ok(()),
        bad => {
            let noun = if bad == 1 { "definition is" } else { "definitions are" };
            Err(Failure::new(format!("{bad} of {} {noun} not valid", arguments.files.len())).exit(Exit::Failure))
        }
    }
}
