//! From a parsed document to a [`Definition`].

use super::Definition;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Something wrong in a definition, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A JSON pointer to the place, such as `/steps/2/after/0`; `io` finds the line.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: String,
}

impl Definition {
    /// Checks a parsed document. Every problem is reported, not just the first.
    pub fn from_document(document: &Value) -> Result<Definition, Vec<Problem>> {
        let _ = document;
        Err(Vec::new())
    }
}
