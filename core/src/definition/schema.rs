//! JSON Schemas, as far as decisions need them.
//!
//! `core` compiles and applies none: it is handed a [`SchemaCheck`] (`io` has the real one, `sim` a small one), and
//! records its verdicts in events, so that no replay depends on it (interfaces, "Where code lives").

use super::Problem;
use crate::id::{DefinitionHash, SignalName};
use serde_json::Value;

/// Which schema of a definition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Boundary {
    /// What starts an execution.
    Input,
    /// What it gives.
    Output,
    /// What a signal or update brings.
    Payload(SignalName),
}

impl Boundary {
    /// The field of the document where it stands.
    pub fn as_str(&self) -> &'static str {
        match self {
            Boundary::Input => "input",
            Boundary::Output => "output",
            Boundary::Payload(_) => "payload",
        }
    }
}

/// Where a value does not match its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// A JSON pointer into the value.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

impl Violation {
    /// The place as errors name it, with what the whole value is: `input`, `input.lines[0].sku`.
    pub fn place(&self, whole: &str) -> String {
        let mut place = whole.to_owned();
        for part in self.path.split('/').skip(1) {
            if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
                place.push_str(&format!("[{part}]"));
            } else {
                place.push('.');
                place.push_str(&part.replace("~1", "/").replace("~0", "~"));
            }
        }
        place
    }
}

/// Judges values by JSON Schemas. The same question has the same answer.
pub trait SchemaCheck: Send + Sync {
    /// What is wrong with `schema`, with JSON pointers into it; nothing where it is one.
    fn problems(&self, schema: &Value) -> Vec<Problem>;

    /// Whether `value` matches `schema`, which is the one at this boundary of this definition.
    fn check(
        &self,
        definition: &DefinitionHash,
        boundary: Boundary,
        schema: &Value,
        value: &Value,
    ) -> Result<(), Violation>;
}

/// Every schema is one, and every value matches: for tests that are about other things.
#[derive(Clone, Copy, Debug)]
pub struct AnySchema;

impl SchemaCheck for AnySchema {
    fn problems(&self, _: &Value) -> Vec<Problem> {
        Vec::new()
    }

    fn check(&self, _: &DefinitionHash, _: Boundary, _: &Value, _: &Value) -> Result<(), Violation> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_names_its_place() {
        let place = |path: &str| Violation { path: path.into(), message: String::new() }.place("input");
        assert_eq!(place(""), "input");
        assert_eq!(place("/lines/0/sku"), "input.lines[0].sku");
        assert_eq!(place("/a~1b/c~0d/"), "input.a/b.c~d.");
    }
}
