//! Definitions as text: YAML or JSON to a value, and back from a problem to the line that it is about.
//!
//! What a document means is `orbit_core`'s ([`Definition::check`]). Here is what a text can get wrong before
//! it has a meaning (syntax, duplicate keys, keys that are no texts, numbers that JSON does not have or that would be
//! rounded, too deep nesting), and the places of everything in it.

mod json;
mod mistakes;
mod report;
mod schema;
mod written;
mod yaml;

#[cfg(test)]
mod tests;

pub use orbit_core::definition::{LocatedProblem, Location};
pub use report::{CheckError, render_warnings};
pub use schema::Schemas;

use orbit_core::definition::{self, Definition, MAX_DEPTH, Problem};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use written::Written;

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
    /// The value itself, where it is a text, a number, true or false.
    value: Option<Location>,
    parts: Parts,
    /// A text with expressions in it, as it is written.
    text: Option<Box<Written>>,
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
        self.find(pointer)?.0
    }

    /// Where a problem shows: of a text with expressions the place in it; of a text, number, true or false the value,
    /// unless its key is meant; of anything else the key.
    pub fn locate_problem(&self, problem: &Problem) -> Option<Location> {
        let (found, spot) = self.find(&problem.path)?;
        let in_text = || Some(spot?.text.as_ref()?.locate(problem.offset?));
        let value = || if problem.of_key { None } else { spot?.value };
        in_text().or_else(value).or(found)
    }

    /// The place for a pointer, and the spot itself if it is there.
    fn find(&self, pointer: &str) -> Option<(Option<Location>, Option<&Spot>)> {
        let mut spot = &self.places;
        let mut found = spot.at;
        if pointer.is_empty() {
            return Some((found, Some(spot)));
        }
        for part in pointer.strip_prefix('/')?.split('/') {
            let part = part.replace("~1", "/").replace("~0", "~");
            let next = match &spot.parts {
                Parts::None => None,
                Parts::Items(items) => part.parse::<usize>().ok().and_then(|index| items.get(index)),
                Parts::Fields(fields) => fields.get(&part),
            };
            let Some(next) = next else { return Some((found, None)) };
            spot = next;
            found = spot.at.or(found);
        }
        Some((found, Some(spot)))
    }

    /// Problems with their places, as they come in the text.
    fn locate_all(&self, problems: Vec<Problem>) -> Vec<LocatedProblem> {
        let locate = |problem: Problem| LocatedProblem { location: self.locate_problem(&problem), problem };
        let mut located: Vec<_> = problems.into_iter().map(locate).collect();
        located.sort_by_key(|problem| problem.location);
        located
    }
}

/// Reads a text.
pub fn parse(text: &str, format: Format) -> Result<Document, SyntaxError> {
    match format {
        Format::Yaml => yaml::parse(text),
        Format::Json => json::parse(text),
    }
}

/// What a check of a text found.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The definition, or why it is none.
    pub definition: Result<Definition, CheckError>,
    /// What is allowed, and hardly meant.
    pub warnings: Vec<LocatedProblem>,
}

/// The definition of a text, if it has no problem.
pub fn check(text: &str, format: Format) -> Result<Definition, CheckError> {
    examine(text, format).definition
}

/// Reads and checks a definition, and tells what is hardly meant: what `orbit check` and deploying do first.
pub fn examine(text: &str, format: Format) -> Checked {
    let document = match parse(text, format) {
        Ok(document) => document,
        Err(error) => return Checked { definition: Err(CheckError::Syntax(error)), warnings: Vec::new() },
    };
    let definition::Checked { definition, warnings } = Definition::check(&document.value, &Schemas::new());
    let definition = definition.map_err(|problems| CheckError::Problems(document.locate_all(problems)));
    Checked { definition, warnings: document.locate_all(warnings) }
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
