//! Small builders of JSON Schemas, as OpenAPI 3.1 has them.

use serde_json::{Map, Value, json};

/// A reference to a schema of the document.
pub fn named(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// A text.
pub fn text() -> Value {
    json!({"type": "string"})
}

/// A text that names something: as the router's `name` has it.
pub fn name(max: usize) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": max, "pattern": NO_CONTROL})
}

/// No control characters (`char::is_control`).
pub const NO_CONTROL: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";

/// One of some texts.
pub fn one_of_texts(texts: &[&str]) -> Value {
    json!({"type": "string", "enum": texts})
}

pub fn boolean() -> Value {
    json!({"type": "boolean"})
}

/// A whole number within bounds.
pub fn whole(min: u64, max: u64) -> Value {
    json!({"type": "integer", "minimum": min, "maximum": max})
}

/// A count.
pub fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

pub fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

/// A list of some length.
pub fn list_of(items: Value, min: usize, max: usize) -> Value {
    json!({"type": "array", "items": items, "minItems": min, "maxItems": max})
}

/// Any JSON value.
pub fn any() -> Value {
    json!({})
}

/// That, or null.
pub fn or_null(mut schema: Value) -> Value {
    match schema.get("type") {
        Some(Value::String(kind)) => {
            schema["type"] = json!([kind, "null"]);
            schema
        }
        // Any value is one already.
        None if schema.get("$ref").is_none() => schema,
        _ => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

/// What it is, in words.
pub fn said(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

/// What holds where it is absent.
pub fn default(mut schema: Value, value: impl Into<Value>) -> Value {
    schema["default"] = value.into();
    schema
}

/// An object, field by field.
pub struct Object {
    description: String,
    properties: Map<String, Value>,
    required: Vec<String>,
    /// Of a request: nothing else is taken, and null stands for absent.
    closed: bool,
}

impl Object {
    /// Something that the server answers. Clients must not mind fields that they do not know.
    pub fn answer(description: &str) -> Object {
        Object { description: description.into(), properties: Map::new(), required: Vec::new(), closed: false }
    }

    /// Something that a client sends.
    pub fn request(description: &str) -> Object {
        Object { closed: true, ..Object::answer(description) }
    }

    /// A field that is always there.
    #[must_use]
    pub fn with(mut self, name: &str, schema: Value) -> Object {
        self.required.push(name.into());
        self.properties.insert(name.into(), schema);
        self
    }

    /// A field that may be absent.
    #[must_use]
    pub fn maybe(mut self, name: &str, schema: Value) -> Object {
        let schema = if self.closed { or_null(schema) } else { schema };
        self.properties.insert(name.into(), schema);
        self
    }

    /// A field that stands here only as null.
    #[must_use]
    pub fn never(mut self, name: &str) -> Object {
        self.properties.insert(name.into(), json!({"type": "null"}));
        self
    }

    pub fn build(self) -> Value {
        let mut schema = json!({"type": "object", "description": self.description, "properties": self.properties});
        if !self.required.is_empty() {
            schema["required"] = self.required.into();
        }
        if self.closed {
            schema["additionalProperties"] = false.into();
        }
        schema
    }
}
