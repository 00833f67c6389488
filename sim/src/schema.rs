//! As much of JSON Schema as the drawn definitions use: `type`, `required` and `properties`.

use orbit_core::definition::{Boundary, Problem, SchemaCheck, Violation};
use orbit_core::id::DefinitionHash;
use serde_json::Value;

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct SmallSchema;

/// Whether `value` matches `schema`.
pub fn matches(schema: &Value, value: &Value) -> Result<(), Violation> {
    check_at(schema, value, "")
}

fn check_at(schema: &Value, value: &Value, path: &str) -> Result<(), Violation> {
    let violation = |message: String| Err(Violation { path: path.to_owned(), message });
    if let Some(expected) = schema.get("type").and_then(Value::as_str)
        && expected != type_of(value)
    {
        return violation(format!("{} is of type {}, not {expected}", value, type_of(value)));
    }
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            return violation(format!("{name:?} is missing"));
        }
    }
    for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if let Some(value) = value.get(name) {
            check_at(schema, value, &format!("{path}/{name}"))?;
        }
    }
    Ok(())
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

impl SchemaCheck for SmallSchema {
    fn problems(&self, _: &Value) -> Vec<Problem> {
        Vec::new()
    }

    fn check(&self, _: &DefinitionHash, _: Boundary, schema: &Value, value: &Value) -> Result<(), Violation> {
        matches(schema, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_required_fields_and_properties_are_checked_and_the_place_is_named() {
        let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "number"}}});
        assert_eq!(matches(&schema, &json!({"n": 1, "other": "x"})), Ok(()));
        let place = |value| matches(&schema, &value).unwrap_err().path;
        assert_eq!(place(json!(null)), "");
        assert_eq!(place(json!({})), "");
        assert_eq!(place(json!({"n": "1"})), "/n");
    }
}
