//! The description of the API, as something that answers can be held to.
// Each test that has this as a module uses a part of it.
#![allow(dead_code)]

use jsonschema::{Draft, Validator};
use orbit_core::api::ErrorCode;
use orbit_io::http::openapi;
use orbit_io::http::published::Published;
use orbit_io::http::route::Resource;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

/// The document, in which an answer has no fields but those that are described. (Clients must not mind others; these
/// tests do.)
pub static STRICT: LazyLock<Value> = LazyLock::new(|| {
    let mut document = openapi::document();
    close(&mut document["components"]["schemas"]);
    document
});

fn close(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(close),
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            if fields.get("properties").is_some_and(Value::is_object) && fields.get("type") == Some(&json!("object")) {
                fields.entry("additionalProperties").or_insert(false.into());
            }
        }
        _ => {}
    }
}

/// A validator of a schema that refers to the document's components.
pub fn validator(schema: &Value) -> Validator {
    let whole = json!({"allOf": [schema], "components": STRICT["components"]});
    jsonschema::options().with_draft(Draft::Draft202012).build(&whole).unwrap_or_else(|e| panic!("{schema}: {e}"))
}

/// What is wrong with a value.
pub fn problems(schema: &Value, value: &Value) -> Vec<String> {
    static KNOWN: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().expect("no holder of this lock panics");
    // Compiling takes longer than all that is done with it.
    let validator = known.entry(schema.to_string()).or_insert_with(|| Arc::new(validator(schema))).clone();
    drop(known);
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// The path of the document that a path belongs to.
pub fn template(path: &str) -> Option<&'static str> {
    if let Some(document) = Published::find(path) {
        return Some(document.path());
    }
    Resource::find(path).ok().map(|resource| resource.template())
}

/// A response of the document, references followed.
pub fn response(operation: &Value, status: u16) -> Option<&Value> {
    let response = operation["responses"].get(status.to_string())?;
    match response.get("$ref").and_then(Value::as_str) {
        Some(target) => STRICT.pointer(&target[1..]),
        None => Some(response),
    }
}

/// The codes of errors that an operation may be answered with under a status.
pub fn codes(operation: &Value, status: u16) -> Vec<ErrorCode> {
    let Some(response) = response(operation, status) else { return Vec::new() };
    let schema = &response["content"]["application/json"]["schema"];
    let error = schema.pointer("/anyOf/1").unwrap_or(schema);
    let codes = error.pointer("/allOf/1/properties/error/properties/code/enum").and_then(Value::as_array);
    let code = |code: &Value| serde_json::from_value(code.clone()).expect("a code");
    codes.into_iter().flatten().map(code).collect()
}

/// What is wrong with an answer in JSON to this request, if anything is.
pub fn problem(method: &str, path: &str, status: u16, body: &Value) -> Option<String> {
    let method = if method == "HEAD" { "get".into() } else { method.to_ascii_lowercase() };
    let operation = template(path).and_then(|template| STRICT["paths"][template].get(method));
    let error = json!({"$ref": "#/components/schemas/Error"});
    let schema = match operation {
        // What is no route of the API, and a method that a route does not take.
        None if matches!(status, 400 | 401 | 404 | 405 | 500) => &error,
        None => return Some(format!("{status} where there is no operation")),
        Some(operation) => match response(operation, status) {
            Some(response) => &response["content"]["application/json"]["schema"],
            None if status == 405 => &error,
            None => return Some(format!("the status {status} is not described")),
        },
    };
    if schema.is_null() {
        return Some(format!("no JSON is described for {status}"));
    }
    let problems = problems(schema, body);
    (!problems.is_empty()).then(|| problems.join("\n"))
}
