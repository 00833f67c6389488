//! A definition on its way from a file to a server.

use crate::failure::Failure;
use orbit_io::definition::{self, CheckError, Checked, LocatedProblem};
use orbit_sdk::{Deployed, Format};
use std::io::{Read, Write};
use std::path::Path;

/// The text of a definition, as it was read.
#[derive(Debug)]
pub struct Document {
    /// What to call it in messages.
    pub name: String,
    pub text: String,
    pub format: Format,
}

impl Document {
    /// Reads a file, or standard input where it is `-`. `.json` is JSON, everything else YAML.
    pub fn read(file: &Path) -> Result<Document, Failure> {
        if file == Path::new("-") {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| Failure::usage(format!("standard input cannot be read: {error}")))?;
            return Ok(Document { name: "standard input".into(), text, format: Format::Yaml });
        }
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", file.display())))?;
        let format = match definition::Format::of_file(file) {
            definition::Format::Json => Format::Json,
            definition::Format::Yaml => Format::Yaml,
        };
        Ok(Document { name: file.display().to_string(), text, format })
    }

    /// The definition, or its problems; and what is hardly meant.
    pub fn check(&self) -> Checked {
        definition::examine(&self.text, self.io_format())
    }

    /// Tells what is hardly meant on stderr, with its places, and what comes of it.
    pub fn warn(&self, warnings: &[LocatedProblem], verdict: &str) {
        if warnings.is_empty() {
            return;
        }
        let mut report = definition::render_warnings(warnings, &self.name, &self.text);
        let count = match warnings.len() {
            1 => "1 warning".to_owned(),
            several => format!("{several} warnings"),
        };
        report.push_str(&format!("{}: {count}, {verdict}\n", self.name));
        // Nobody reads stderr: there is nobody to tell that to either.
        let _ = std::io::stderr().write_all(report.as_bytes());
    }

    /// The server has taken the document, and warned. This Orbit finds the same, unless they are of different versions.
    pub fn deployed(&self, answer: &Deployed) {
        if !answer.warnings.is_empty() {
            self.warn(&self.check().warnings, "deployed all the same (--strict refuses it)");
        }
    }

    /// A server's refusal of this document, with the places of the problems where they can be found here.
    pub fn refused(&self, error: orbit_sdk::Error) -> Failure {
        let refusals = ["DEFINITION_INVALID", "DEFINITION_WARNINGS", "INVALID_REQUEST"];
        let of_the_document = error.code().is_some_and(|code| refusals.contains(&code));
        let failure = Failure::from(error);
        let failure = Failure { message: format!("{}: {}", self.name, failure.message), ..failure };
        if !of_the_document {
            return failure;
        }
        // This Orbit finds the same problems as the server, unless they are of different versions.
        let Checked { definition, warnings } = self.check();
        let warned = definition::render_warnings(&warnings, &self.name, &self.text);
        let lines = match definition {
            Ok(_) if warnings.is_empty() => return failure,
            Ok(_) => warned,
            Err(found) => warned + &found.render(&self.name, &self.text),
        };
        Failure { lines: lines.lines().map(str::to_owned).collect(), hint: None, ..failure }
    }

    /// The problems as lines for people.
    pub fn report(&self, found: &CheckError) -> Vec<String> {
        found.render(&self.name, &self.text).lines().map(str::to_owned).collect()
    }

    fn io_format(&self) -> definition::Format {
        match self.format {
            Format::Json => definition::Format::Json,
            Format::Yaml => definition::Format::Yaml,
        }
    }
}
