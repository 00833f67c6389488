//! Definitions as text: YAML or JSON to a value, and back from a problem to the line that it is about.
//!
//! What a document means is `orbit_core`'s ([`Definition::from_document`]). Here is what a text can get wrong before
//! it has a meaning (syntax, duplicate keys, keys that are no texts, numbers that JSON does not have or that would be
//! rounded, too deep nesting), and the places of everything in it.

mod json;
mod report;
mod schema;
mod yaml;

#[cfg(test)]
mod tests;

pub use report::{CheckError, LocatedProblem};
pub use schema::Schemas;

use orbit_core::definition::{Definition, MAX_DEPTH};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The JSON Schema of definitions (`orbit-def/1`), for editors and other programs. Whatever [`check`] accepts matches
/// it; what no schema can see (names of steps that do not exist, circles, expressions) is for [`check`] alone.
pub const DOCUMENT_SCHEMA: &str = include_str!("../../../docs/schema/orbit-def-1.json");

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    Json,
}

impl Format {
    /// JSON for `*.json`, else YAML.
    pub fn of_file(path: &Path) -> Format {
        match path.extension() {
            Some(extension) if extension.eq_ignore_ascii_case("json") => Format::Json,
            _ => Format::Yaml,
        }
    }
}

/// A place in a text. Both numbers count from 1; columns are characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Location {
    pub line: usize,
    pub column: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A text that is no document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", location.map(|l| format!("{l}: ")).unwrap_or_default())]
pub struct SyntaxError {
    /// Where; none where the whole text is meant.
    pub location: Option<Location>,
    /// What is wrong and what would be right.
    pub message: String,
}

/// A text as a value, with the places of its parts.
#[derive(Clone, Debug)]
pub struct Document {
    pub value: Value,
    places: Spot,
}

/// Where a value and its parts are.
#[derive(Clone, Debug, Default)]
struct Spot {
    /// The value's key, or the value itself where it has none.
    at: Option<Location>,
    parts: Parts,
}

#[derive(Clone, Debug, Default)]
enum Parts {
    #[default]
    None,
    Items(Vec<Spot>),
    Fields(BTreeMap<String, Spot>),
}

impl Document {
    /// Where the value at a JSON pointer is: its key in an object, its beginning in a list. Of a pointer that leads
    /// nowhere, the place of the last part that is there. None where the pointer is none.
    pub fn locate(&self, pointer: &str) -> Option<Location> {
        let mut spot = &self.places;
        let mut found = spot.at;
        if pointer.is_empty() {
            return found;
        }
        for part in pointer.strip_prefix('/')?.split('/') {
            let part = part.replace("~1", "/").replace("~0", "~");
            let next = match &spot.parts {
                Parts::None => None,
                Parts::Items(items) => part.parse::<usize>().ok().and_then(|index| items.get(index)),
                Parts::Fields(fields) => fields.get(&part),
            };
            let Some(next) = next else { break };
            spot = next;
            found = spot.at.or(found);
        }
        found
    }
}

/// Reads a text.
pub fn parse(text: &str, format: Format) -> Result<Document, SyntaxError> {
    match format {
        Format::Yaml => yaml::parse(text),
        Format::Json => json::parse(text),
    }
}

/// Reads and checks a definition: what `orbit check` and deploying do first.
pub fn check(text: &str, format: Format) -> Result<Definition, CheckError> {
    let document = parse(text, format).map_err(CheckError::Syntax)?;
    let checked = Definition::from_document(&document.value).and_then(|definition| {
        let problems = definition.schema_problems(&Schemas::new());
        if problems.is_empty() { Ok(definition) } else { Err(problems) }
    });
    checked.map_err(|problems| {
        let locate = |problem: orbit_core::definition::Problem| LocatedProblem {
            location: document.locate(&problem.path),
            problem,
        };
        let mut located: Vec<_> = problems.into_iter().map(locate).collect();
        // As they come in the text.
        located.sort_by_key(|problem| problem.location);
        CheckError::Problems(located)
    })
}

/// What is said of a document that nests too deep.
fn too_deep(location: Option<Location>) -> SyntaxError {
    let message = format!("more than {MAX_DEPTH} lists and objects within each other");
    SyntaxError { location, message }
}

/// What is said of a whole number that no 64 bits hold.
fn too_large(location: Option<Location>, number: &str) -> SyntaxError {
    let message = format!("the number {number} does not fit 64 bits; write it in quotes to pass it as text");
    SyntaxError { location, message }
}
