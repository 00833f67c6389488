//! The answers that are errors.

use super::build::{named, one_of_texts};
use orbit_core::api::{ApiError, ErrorCode};
use serde_json::{Map, Value, json};

/// The response of these codes, which share a status: its name among the document's, and itself.
pub fn response(codes: &[ErrorCode]) -> (String, Value) {
    let mut codes = codes.to_vec();
    codes.sort();
    codes.dedup();
    let status = codes[0].status();
    assert!(codes.iter().all(|code| code.status() == status), "{codes:?} have several statuses");
    let texts: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    let examples: Map<String, Value> = codes.iter().map(|code| (code.as_str().into(), example(*code))).collect();
    let code = one_of_texts(&texts);
    let mut response = json!({
        "description": codes.iter().map(|code| described(*code)).collect::<Vec<_>>().join(" "),
        "headers": {"x-request-id": {"$ref": "#/components/headers/RequestId"}},
        "content": {"application/json": {
            "schema": {"allOf": [
                named("Error"),
                {"type": "object", "properties": {"error": {"type": "object", "properties": {"code": code}}}},
            ]},
            "examples": examples,
        }},
    });
    if matches!(status, 429 | 503) {
        response["headers"]["retry-after"] = json!({"$ref": "#/components/headers/RetryAfter"});
    }
    if status == 401 {
        let schema = json!({"type": "string"});
        response["headers"]["www-authenticate"] = json!({"description": "`Bearer`", "schema": schema});
    }
    let name = match codes.as_slice() {
        // More of them may come; the name stays.
        [_, _, ..] if status == 503 => "Unavailable".to_owned(),
        several => several.iter().map(|code| camel(code.as_str())).collect::<Vec<_>>().join("Or"),
    };
    (name, response)
}

/// `UNKNOWN_WORKFLOW` as `UnknownWorkflow`.
fn camel(code: &str) -> String {
    let words = code.split('_');
    words.map(|word| format!("{}{}", &word[..1], word[1..].to_lowercase())).collect()
}

fn described(code: ErrorCode) -> String {
    format!("`{}`: {}.", code.as_str(), message(code))
}

fn example(code: ErrorCode) -> Value {
    json!({"value": ApiError::new(code, message(code)).body("049bf0ab-19")})
}

/// What such an error may say.
fn message(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::InvalidRequest => "the request is not what this route reads",
        ErrorCode::Unauthorized => "this server wants a token",
        ErrorCode::NotFound => "there is no such route",
        ErrorCode::MethodNotAllowed => "this route takes other methods",
        ErrorCode::RequestTimeout => "the body was not complete within 30 s",
        ErrorCode::HeadTooLarge => "the head of the request has more than 65536 bytes, or more than 100 headers",
        ErrorCode::UnsupportedMediaType => "the content type of the body is missing, or not read here",
        ErrorCode::UnknownWorkflow => "no workflow of that name is deployed, or not in that version",
        ErrorCode::UnknownExecution => "there is no execution of that id",
        ErrorCode::UnknownSession => "there is no such worker session on this server",
        ErrorCode::UnknownToken => "no delivery has that task token",
        ErrorCode::DefinitionInvalid => "the definition has problems; `details.problems` lists all of them",
        ErrorCode::DefinitionWarnings => {
            "a strict deployment of a definition with warnings; `details.problems` lists all of them"
        }
        ErrorCode::DefinitionConflict => "other content is deployed under that name and version",
        ErrorCode::ExecutionIdConflict => "the id belongs to an execution with another workflow, version or input",
        ErrorCode::ExecutionFinished => "the execution has ended",
        ErrorCode::UnknownSignal => "the workflow declares no signal of that name",
        ErrorCode::SignalPayloadInvalid => "the payload does not match the signal's schema",
        ErrorCode::SignalIdConflict => "the id was used for another signal or update of this execution",
        ErrorCode::UnknownUpdate => "the workflow declares no update of that name",
        ErrorCode::UpdatePayloadInvalid => "the payload does not match the update's schema",
        ErrorCode::UpdateRejected => "the workflow did not take the update",
        ErrorCode::UnknownQuery => "the workflow declares no query of that name",
        ErrorCode::QueryFailed => "the query's expression gives no value now",
        ErrorCode::InputInvalid => "the input does not match the workflow's schema",
        ErrorCode::PayloadTooLarge => "the body is larger than --body-limit, or a payload than --max-payload-bytes",
        ErrorCode::ResourceExhausted => "a limit is reached; the message names it",
        ErrorCode::Quarantined => "the execution is quarantined: loading or applying it failed",
        ErrorCode::NotQuarantined => "the execution is not quarantined",
        ErrorCode::NotHeld => "the execution is not held",
        ErrorCode::NotLeader => "this server does not serve writes; another one leads",
        ErrorCode::NotInCluster => "this server is alone on its database",
        ErrorCode::NotReady => "the server is starting, recovering or stopping",
        ErrorCode::Fenced => "fenced: another server has taken over, and nothing was written",
        ErrorCode::StorageError => "the database failed, and nothing was written",
        ErrorCode::OutcomeUnknown => "the database has not answered in time: the request may still take effect",
        ErrorCode::Internal => "the server made a mistake",
    }
}
