//! The description of the API in OpenAPI 3.1, made of what the router knows.
//!
//! [`document`] goes through [`Resource::TEMPLATES`] and asks `operations` what each method does there, so a route
//! that nobody described does not compile, and one that is described otherwise than it is served fails a test
//! (`io/tests/openapi.rs`, which also keeps `docs/openapi.json` current).

mod build;
mod errors;
mod events;
mod examples;
mod operations;
mod schemas;

use super::published::Published;
use super::route::{Resource, Verb};
use build::named;
use operations::{Body, Operation};
use orbit_core::api::ErrorCode;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The document as text.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut text = serde_json::to_string_pretty(&document()).expect("a JSON value can be written");
        text.push('\n');
        text
    });
    &TEXT
}

/// The whole document.
pub fn document() -> Value {
    let mut paths = Map::new();
    let mut responses = Map::new();
    for template in Resource::TEMPLATES {
        let resource = Resource::find(&template.replace(['{', '}'], "")).expect("each template is a path");
        let mut item = Map::new();
        for (method, verb) in [("get", Verb::Get), ("post", Verb::Post)] {
            if let Some(operation) = operations::describe(&resource, verb) {
                let errors = errors_of(&resource, verb, &operation);
                item.insert(method.into(), operation_object(&operation, resource.is_open(), errors, &mut responses));
            }
        }
        let parameters = path_parameters(template);
        if !parameters.is_empty() {
            item.insert("parameters".into(), parameters.into());
        }
        paths.insert((*template).into(), item.into());
    }
    for document in Published::ALL {
        paths.insert(document.path().into(), published(*document, &mut responses));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Orbit",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Durable workflows over HTTP.",
            "description": INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This server."}],
        "tags": [
            {"name": "Workflows", "description": "Definitions."},
            {"name": "Executions", "description": "Workflows that run, or ran."},
            {"name": "Workers", "description": "What runs tasks."},
            {"name": "Tasks", "description": "Results."},
            {"name": "Server", "description": "How the server is."},
        ],
        // A server without a token serves everybody.
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "responses": responses,
            "headers": {
                "RequestId": {"description": "The name of this request.", "schema": {"type": "string"}},
                "RetryAfter": {
                    "description": "Seconds until the same request may succeed.",
                    "schema": {"type": "integer", "minimum": 0},
                },
            },
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "The server's `--token`."},
            },
        },
    })
}

const INTRODUCTION: &str = "\
Bodies are JSON in snake case. Times are milliseconds since 1970 (`…_ms`), durations milliseconds.

What the server does not know, it refuses: unknown fields and query parameters, fields of another type, keys that stand \
twice, whole numbers that no 64 bits hold. In requests, a field that is `null` counts as absent, and `465.0` is the \
whole number 465. Lengths of names and other texts are bounded in bytes of UTF-8 (`maxLength` counts characters).

Every request may be sent again when its answer was lost: reads change nothing; deployments, starts with an \
`execution_id`, signals with a `signal_id`, updates with an `update_id`, cancels and results take effect once.

Beside the statuses that are listed, any path may answer 404 (`NOT_FOUND`: there is no such route), any method that a \
route does not take is answered with 405 (`METHOD_NOT_ALLOWED`, with `allow`), what is no HTTP with 400 (`INVALID_REQUEST`), and a \
head above 64 KiB or with more than 100 headers with 431 (`HEAD_TOO_LARGE`). `HEAD` is answered as `GET`, without the body.";

/// The parameters in the braces of a path.
fn path_parameters(template: &str) -> Vec<Value> {
    let names = template.split('{').skip(1).map(|part| part.split('}').next().expect("a split gives something"));
    let parameter = |name: &str| {
        let (schema, description) = match name {
            "id" => ("ExecutionId", "The execution's id."),
            "name" if template.contains("/signals/") => ("Name", "The signal's name."),
            "name" if template.contains("/updates/") => ("Name", "The update's name."),
            "name" if template.contains("/queries/") => ("Name", "The query's name."),
            "name" => ("Name", "The workflow's name."),
            _ => ("Name", "The version."),
        };
        json!({"name": name, "in": "path", "required": true, "description": description, "schema": named(schema)})
    };
    names.map(parameter).collect()
}

/// The errors that an operation may be answered with: its own, and those that every route of its kind has.
fn errors_of(resource: &Resource, verb: Verb, operation: &Operation) -> Vec<ErrorCode> {
    use ErrorCode::{
        Fenced, Internal, InvalidRequest, NotLeader, NotReady, OutcomeUnknown, PayloadTooLarge, RequestTimeout,
        ResourceExhausted, StorageError, Unauthorized, UnsupportedMediaType,
    };
    // Of any server that is stopping, or has too much to do.
    let mut errors = vec![ResourceExhausted, NotReady, Internal];
    errors.extend(operation.errors);
    if !resource.is_open() {
        errors.push(Unauthorized);
    }
    // Those are answered from memory, whatever their query says.
    let figures = matches!(resource, Resource::Metrics) || resource.is_open();
    if !figures {
        errors.extend([InvalidRequest, NotLeader, Fenced, StorageError]);
    }
    if verb == Verb::Post {
        errors.extend([RequestTimeout, UnsupportedMediaType, PayloadTooLarge, OutcomeUnknown]);
    }
    errors
}

fn operation_object(
    operation: &Operation,
    open: bool,
    errors: Vec<ErrorCode>,
    shared: &mut Map<String, Value>,
) -> Value {
    let mut object = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "responses": responses_of(operation, errors, shared),
    });
    if !operation.description.is_empty() {
        object["description"] = operation.description.into();
    }
    if open {
        object["security"] = json!([]);
    }
    if !operation.parameters.is_empty() {
        object["parameters"] = operation.parameters.clone().into();
    }
    if let Some(body) = &operation.body {
        object["requestBody"] = body_object(body);
    }
    object
}

fn body_object(body: &Body) -> Value {
    let examples = examples_object(&body.examples);
    let media = json!({"schema": named(body.schema), "examples": examples});
    let content: Map<String, Value> = body.media.iter().map(|name| ((*name).into(), media.clone())).collect();
    json!({"required": body.required, "content": content})
}

fn examples_object(examples: &[(&str, Value)]) -> Value {
    Value::Object(examples.iter().map(|(name, value)| ((*name).into(), json!({"value": value}))).collect())
}

/// Answers and errors by status. Errors that have a status for themselves are shared by all operations.
fn responses_of(operation: &Operation, errors: Vec<ErrorCode>, shared: &mut Map<String, Value>) -> Value {
    let mut responses: Map<String, Value> = Map::new();
    for answer in &operation.answers {
        let mut content = json!({"schema": answer.schema});
        if !answer.examples.is_empty() {
            content["examples"] = examples_object(&answer.examples);
        }
        let mut response = json!({
            "description": answer.description,
            "headers": {"x-request-id": {"$ref": "#/components/headers/RequestId"}},
            "content": {answer.media: content},
        });
        if answer.status < 300 && !operation.links.is_empty() {
            response["links"] = links(operation);
        }
        responses.insert(answer.status.to_string(), response);
    }
    let mut by_status: BTreeMap<u16, Vec<ErrorCode>> = BTreeMap::new();
    for code in errors {
        by_status.entry(code.status()).or_default().push(code);
    }
    for (status, codes) in by_status {
        let (name, error) = errors::response(&codes);
        match responses.get_mut(&status.to_string()) {
            Some(response) => merge(response, error),
            None => {
                let known = shared.entry(name.clone()).or_insert_with(|| error.clone());
                assert_eq!(*known, error, "two errors are called {name}");
                let reference = json!({"$ref": format!("#/components/responses/{name}")});
                responses.insert(status.to_string(), reference);
            }
        }
    }
    responses.into()
}

/// Adds an error to a response that has its status.
fn merge(response: &mut Value, mut error: Value) {
    let description = format!(
        "{} Or {}",
        response["description"].as_str().unwrap_or_default(),
        error["description"].as_str().unwrap_or_default()
    );
    response["description"] = description.into();
    response["headers"] = error["headers"].take();
    let error = error["content"]["application/json"].take();
    match response["content"].get_mut("application/json") {
        None => response["content"]["application/json"] = error,
        Some(content) => {
            content["schema"] = json!({"anyOf": [content["schema"], error["schema"]]});
            let examples = error["examples"].as_object().cloned().unwrap_or_default();
            content["examples"].as_object_mut().expect("answers have examples").extend(examples);
        }
    }
}

fn links(operation: &Operation) -> Value {
    let link = |link: &operations::Link| {
        let mut object = json!({"operationId": link.to});
        for (to, from) in link.passes {
            let value = format!("$response.body#/{from}");
            match to.strip_prefix("body:") {
                Some(field) => object["requestBody"][field] = value.into(),
                None => object["parameters"][to] = value.into(),
            }
        }
        (link.to.to_owned(), object)
    };
    Value::Object(operation.links.iter().map(link).collect())
}

fn published(document: Published, shared: &mut Map<String, Value>) -> Value {
    let mut errors = vec![ErrorCode::ResourceExhausted, ErrorCode::Internal];
    if !document.is_open() {
        errors.push(ErrorCode::Unauthorized);
    }
    let (id, summary, description) = match document {
        Published::DefinitionSchema => ("getDefinitionSchema", "Read the JSON Schema of definitions", "The schema."),
        Published::OpenApi => ("getOpenApi", "Read this document", "The document."),
    };
    let answer = operations::Answer {
        status: 200,
        description,
        media: document.content_type(),
        schema: json!({"type": "object"}),
        examples: vec![],
    };
    let operation = Operation { id, tag: "Server", summary, answers: vec![answer], ..Operation::default() };
    json!({"get": operation_object(&operation, document.is_open(), errors, shared)})
}
