//! JSON Schemas, compiled and applied: what [`SchemaCheck`] promises to `orbit_core`.
//!
//! Drafts up to 2020-12 (which holds where a schema names none); references to other documents are refused, since a
//! definition is complete in itself. `format` is an annotation, as the draft has it.

use jsonschema::Validator;
use orbit_core::definition::{Boundary, SchemaCheck, Violation};
use orbit_core::id::DefinitionHash;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Compiled schemas, by definition and boundary: a definition never changes.
#[derive(Debug, Default)]
pub struct Schemas {
    compiled: Mutex<HashMap<(DefinitionHash, Boundary), Arc<Validator>>>,
}

impl Schemas {
    /// None compiled yet.
    pub fn new() -> Schemas {
        Schemas::default()
    }

    fn compiled(&self, key: (DefinitionHash, Boundary), schema: &Value) -> Result<Arc<Validator>, Violation> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(validator) = compiled.get(&key) {
            return Ok(validator.clone());
        }
        // A deployed schema compiled once already; if this version of Orbit cannot compile it, nothing matches it.
        let validator = compile(schema).map_err(|message| Violation { path: String::new(), message })?;
        let validator = Arc::new(validator);
        compiled.insert(key, validator.clone());
        Ok(validator)
    }
}

fn compile(schema: &Value) -> Result<Validator, String> {
    // The draft is the one that `$schema` names, else 2020-12.
    jsonschema::options().build(schema).map_err(|e| e.to_string())
}

impl SchemaCheck for Schemas {
    fn compile(&self, schema: &Value) -> Result<(), String> {
        compile(schema).map(drop)
    }

    fn check(
        &self,
        definition: &DefinitionHash,
        boundary: Boundary,
        schema: &Value,
        value: &Value,
    ) -> Result<(), Violation> {
        let validator = self.compiled((definition.clone(), boundary), schema)?;
        validator.validate(value).map_err(|error| Violation {
            path: error.instance_path().to_string(),
            message: shortened(error.to_string()),
        })
    }
}

/// A message that shows the value, as far as a person reads it: values may have a mebibyte.
fn shortened(message: String) -> String {
    const SHOWN: usize = 400;
    // What is wrong stands at the end, behind the value.
    match (message.char_indices().nth(SHOWN), message.char_indices().nth_back(SHOWN / 2 - 1)) {
        (Some(_), Some((end, _))) => {
            let begin = message.char_indices().nth(SHOWN / 2).map_or(0, |(at, _)| at);
            format!("{} … {}", &message[..begin], &message[end..])
        }
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: Value, value: Value) -> Result<(), Violation> {
        Schemas::new().check(&"sha256:x".into(), Boundary::Input, &schema, &value)
    }

    #[test]
    fn a_violation_names_the_place_and_what_is_wrong() {
        let schema = json!({"type": "object", "properties": {"amount": {"type": "number", "exclusiveMinimum": 0}}});
        assert_eq!(check(schema.clone(), json!({"amount": 1})), Ok(()));
        let violation = check(schema, json!({"amount": 0})).expect_err("zero is too small");
        assert_eq!(violation.path, "/amount");
        assert!(violation.message.contains('0'), "{violation:?}");
    }

    #[test]
    fn a_large_value_is_shown_in_part_and_what_is_wrong_with_it_whole() {
        let violation = check(json!({"type": "integer"}), json!("é".repeat(100_000))).expect_err("it is a string");
        assert!(violation.message.chars().count() < 500, "{violation:?}");
        assert!(violation.message.ends_with(r#" is not of type "integer""#), "{violation:?}");
        let violation = check(json!({"type": "integer"}), json!("é".repeat(100))).expect_err("it is a string");
        assert!(!violation.message.contains('…'), "{violation:?}");
    }

    #[test]
    fn integers_past_two_to_the_53rd_are_told_apart() {
        let schema = json!({"const": 9_007_199_254_740_993_u64});
        assert_eq!(check(schema.clone(), json!(9_007_199_254_740_993_u64)), Ok(()));
        assert!(check(schema, json!(9_007_199_254_740_992_u64)).is_err());
    }

    #[test]
    fn what_is_no_schema_is_refused_and_so_is_a_reference_to_another_document() {
        let schemas = Schemas::new();
        assert!(schemas.compile(&json!({"type": "strnig"})).is_err());
        assert!(schemas.compile(&json!({"$ref": "https://example.com/schema.json"})).is_err());
        assert!(schemas.compile(&json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}})).is_ok());
    }

    #[test]
    fn a_schema_is_read_by_the_draft_that_it_names() {
        let pair = |draft: &str| json!({"$schema": draft, "items": [{"type": "string"}, {"type": "number"}]});
        let older = pair("http://json-schema.org/draft-07/schema#");
        assert_eq!(check(older.clone(), json!(["a", 1])), Ok(()));
        assert!(check(older, json!([1, "a"])).is_err());
        let schemas = Schemas::new();
        assert!(schemas.compile(&pair("https://json-schema.org/draft/2020-12/schema")).is_err());
        assert!(schemas.compile(&pair("https://example.com/my-own-draft")).is_err());
        assert!(schemas.compile(&json!({"items": [{"type": "string"}]})).is_err());
    }

    #[test]
    fn a_hostile_pattern_does_not_hang() {
        let value = json!("a".repeat(5_000) + "!");
        assert!(check(json!({"pattern": "^(a+)+$"}), value).is_err());
    }
}
