//! A definition on its way from a file to a server.

use crate::failure::Failure;
use orbit_core::definition::Definition;
use orbit_io::definition::{self, CheckError};
use orbit_sdk::Format;
use std::io::Read;
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

    /// The definition, if it has no problem.
    pub fn check(&self) -> Result<Definition, CheckError> {
        definition::check(&self.text, self.io_format())
    }

    /// A server's refusal of this document, with the places of the problems where they can be found here.
    pub fn refused(&self, error: orbit_sdk::Error) -> Failure {
        let failure = Failure::from(error);
        let failure = Failure { message: format!("{}: {}", self.name, failure.message), ..failure };
        if failure.lines.is_empty() {
            return failure;
        }
        // This Orbit finds the same problems as the server, unless they are of different versions.
        match self.check() {
            Ok(_) => failure,
            Err(found) => Failure { lines: self.report(&found), hint: None, ..failure },
        }
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
