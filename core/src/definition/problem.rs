//! What is wrong in a definition, and where.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Something wrong in a definition, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A JSON pointer to the place, such as `/steps/2/after/0`; `io` finds the line.
    pub path: String,
    /// In a text with expressions: how many of its characters stand before the place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<usize>,
    /// The field itself is meant, by its key, rather than the value in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_key: bool,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    #[serde(default)]
    pub hint: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.path.is_empty() { "the document" } else { &self.path };
        write!(f, "{place}: {}", self.message)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
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

/// A problem and where it is in the text of the document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocatedProblem {
    #[serde(flatten)]
    pub problem: Problem,
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub location: Option<Location>,
}

impl From<Problem> for LocatedProblem {
    fn from(problem: Problem) -> LocatedProblem {
        LocatedProblem { problem, location: None }
    }
}

/// Where a problem is: a JSON pointer, and in a text with expressions how many characters stand before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub path: String,
    pub offset: Option<usize>,
    /// The key is meant, rather than the value.
    pub of_key: bool,
}

impl Spot {
    /// The same place, seen from outside the value at `path`.
    pub(super) fn under(&self, path: &str) -> Spot {
        Spot { path: format!("{path}{}", self.path), ..self.clone() }
    }

    /// The key of the field at `path`.
    pub(super) fn key(path: impl Into<String>) -> Spot {
        Spot { path: path.into(), offset: None, of_key: true }
    }
}

impl From<String> for Spot {
    fn from(path: String) -> Spot {
        Spot { path, offset: None, of_key: false }
    }
}

impl From<&String> for Spot {
    fn from(path: &String) -> Spot {
        path.clone().into()
    }
}

impl From<&str> for Spot {
    fn from(path: &str) -> Spot {
        path.to_owned().into()
    }
}
