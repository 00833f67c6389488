//! From bytes to a [`Request`]: pure functions, one module for each family of routes.
//!
//! Three steps, so that the front can refuse before it reads a body: [`Resource::find`] knows the path,
//! [`Resource::verb`] the method, [`Resource::request`] the query and the body. [`route`] takes all three.
//!
//! Everything is checked for form here, once, and strictly: unknown fields and parameters, fields of another type,
//! keys that stand twice, numbers out of their bounds and texts too long are refused with the place and what would be
//! right. Whether what a request names exists is the node's to say.

pub(super) mod cluster;
pub(super) mod executions;
pub(super) mod tasks;
pub(super) mod workers;
mod workflows;

use super::fields::{Fields, Place, execution_id_problem, name_problem};
use super::published::Published;
use super::{json, url};
use crate::definition::Document;
use hyper::Method;
use orbit_core::api::response::ResultOutcome;
use orbit_core::api::{ApiError, ErrorCode, Request};
use orbit_core::definition::nearest;
use orbit_core::id::{ExecutionId, QueryName, SignalName, Version, WorkflowName};
use serde_json::Value;

/// What a client can name: a path of the API.
#[derive(Clone, Debug, PartialEq)]
pub enum Resource {
    Workflows,
    /// One workflow: the newest version, or the one named.
    Workflow {
        name: WorkflowName,
        version: Option<Version>,
    },
    Executions,
    Execution(ExecutionId),
    History(ExecutionId),
    Wait(ExecutionId),
    Cancel(ExecutionId),
    Terminate(ExecutionId),
    Recover(ExecutionId),
    Release(ExecutionId),
    Signal {
        execution: ExecutionId,
        name: SignalName,
    },
    Update {
        execution: ExecutionId,
        name: SignalName,
    },
    Query {
        execution: ExecutionId,
        name: QueryName,
    },
    Workers,
    Register,
    Poll,
    Heartbeat,
    Unregister,
    Complete,
    Fail,
    Nodes,
    StepDown,
    Health,
    Ready,
    Metrics,
    Livez,
    Readyz,
    Leaderz,
}

/// What a client can do with a [`Resource`]. HEAD is a GET whose body is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
}

/// What a body is said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// Not said.
    Missing,
    Json,
    Yaml,
}

/// What definitions in YAML are said to be.
pub(super) const YAML: [&str; 4] = ["application/yaml", "text/yaml", "application/x-yaml", "text/x-yaml"];

/// Bounds that the router checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteLimits {
    /// Bytes of one payload as JSON text.
    pub max_payload_bytes: usize,
}

/// A request, and those results of a batch that were refused here: the outcome of each, and its place in the batch.
///
/// A result that is too large is no reason to lose the others, which a client would otherwise send again for ever.
#[derive(Clone, Debug)]
pub struct Routed {
    pub request: Request,
    pub refused: Vec<(usize, ResultOutcome)>,
    /// Of a definition: where everything in its text is.
    pub document: Option<Box<Document>>,
}

impl From<Request> for Routed {
    fn from(request: Request) -> Routed {
        Routed { request, refused: Vec::new(), document: None }
    }
}

/// Routes a whole request. `path` and `query` are as sent: percent-encoded.
pub fn route(
    method: &Method,
    path: &str,
    query: Option<&str>,
    content_type: Option<&str>,
    body: &[u8],
    limits: &RouteLimits,
) -> Result<Routed, ApiError> {
    let resource = Resource::find(path)?;
    let verb = resource.verb(method)?;
    let media = resource.media(verb, content_type)?;
    resource.request(verb, query, media, body, limits)
}

/// Tells the path of each resource, with names in braces. A resource that is not listed here does not compile, so
/// whatever goes through [`Resource::TEMPLATES`] misses none.
macro_rules! templates {
    ($($resource:pat => $template:literal,)+) => {
        impl Resource {
            /// The paths of the API, as [`Resource::template`] has them.
            pub const TEMPLATES: &[&str] = &[$($template),+];

            /// Its path, with what a client fills in as `{id}`, `{name}` or `{version}`.
            pub fn template(&self) -> &'static str {
                match self { $($resource => $template),+ }
            }
        }
    };
}

templates! {
    Resource::Workflows => "/v1/workflows",
    Resource::Workflow { version: None, .. } => "/v1/workflows/{name}",
    Resource::Workflow { version: Some(_), .. } => "/v1/workflows/{name}/versions/{version}",
    Resource::Executions => "/v1/executions",
    Resource::Execution(_) => "/v1/executions/{id}",
    Resource::History(_) => "/v1/executions/{id}/history",
    Resource::Wait(_) => "/v1/executions/{id}/wait",
    Resource::Cancel(_) => "/v1/executions/{id}/cancel",
    Resource::Terminate(_) => "/v1/executions/{id}/terminate",
    Resource::Recover(_) => "/v1/executions/{id}/recover",
    Resource::Release(_) => "/v1/executions/{id}/release",
    Resource::Signal { .. } => "/v1/executions/{id}/signals/{name}",
    Resource::Update { .. } => "/v1/executions/{id}/updates/{name}",
    Resource::Query { .. } => "/v1/executions/{id}/queries/{name}",
    Resource::Workers => "/v1/workers",
    Resource::Register => "/v1/workers/register",
    Resource::Poll => "/v1/workers/poll",
    Resource::Heartbeat => "/v1/workers/heartbeat",
    Resource::Unregister => "/v1/workers/unregister",
    Resource::Complete => "/v1/tasks/complete",
    Resource::Fail => "/v1/tasks/fail",
    Resource::Nodes => "/v1/nodes",
    Resource::StepDown => "/v1/cluster/step-down",
    Resource::Health => "/v1/health",
    Resource::Ready => "/v1/ready",
    Resource::Metrics => "/v1/metrics",
    Resource::Livez => "/livez",
    Resource::Readyz => "/readyz",
    Resource::Leaderz => "/leaderz",
}

/// The routes below `/v1`, for the error about those that are not.
const COLLECTIONS: [&str; 9] =
    ["workflows", "executions", "workers", "tasks", "nodes", "cluster", "health", "metrics", "schemas"];

impl Resource {
    /// The resource of a path, or NOT_FOUND, or INVALID_REQUEST where a name in it cannot be one.
    pub fn find(path: &str) -> Result<Resource, ApiError> {
        let mut room = [""; url::MAX_SEGMENTS];
        let resource = match url::segments(path, &mut room) {
            Some(["v1", "executions"]) => Resource::Executions,
            Some(["v1", "executions", id]) => Resource::Execution(execution_id(id)?),
            Some(["v1", "executions", id, "history"]) => Resource::History(execution_id(id)?),
            Some(["v1", "executions", id, "wait"]) => Resource::Wait(execution_id(id)?),
            Some(["v1", "executions", id, "cancel"]) => Resource::Cancel(execution_id(id)?),
            Some(["v1", "executions", id, "terminate"]) => Resource::Terminate(execution_id(id)?),
            Some(["v1", "executions", id, "recover"]) => Resource::Recover(execution_id(id)?),
            Some(["v1", "executions", id, "release"]) => Resource::Release(execution_id(id)?),
            Some(["v1", "executions", id, "signals", name]) => {
                Resource::Signal { execution: execution_id(id)?, name: SignalName::new(named("name", name)?) }
            }
            Some(["v1", "executions", id, "updates", name]) => {
                Resource::Update { execution: execution_id(id)?, name: SignalName::new(named("name", name)?) }
            }
            Some(["v1", "executions", id, "queries", name]) => {
                Resource::Query { execution: execution_id(id)?, name: QueryName::new(named("name", name)?) }
            }
            Some(["v1", "workers"]) => Resource::Workers,
            Some(["v1", "workers", "poll"]) => Resource::Poll,
            Some(["v1", "workers", "heartbeat"]) => Resource::Heartbeat,
            Some(["v1", "workers", "register"]) => Resource::Register,
            Some(["v1", "workers", "unregister"]) => Resource::Unregister,
            Some(["v1", "tasks", "complete"]) => Resource::Complete,
            Some(["v1", "tasks", "fail"]) => Resource::Fail,
            Some(["v1", "workflows"]) => Resource::Workflows,
            Some(["v1", "workflows", name]) => {
                Resource::Workflow { name: WorkflowName::new(named("name", name)?), version: None }
            }
            Some(["v1", "workflows", name, "versions", version]) => Resource::Workflow {
                name: WorkflowName::new(named("name", name)?),
                version: Some(Version::new(named("version", version)?)),
            },
            Some(["v1", "nodes"]) => Resource::Nodes,
            Some(["v1", "cluster", "step-down"]) => Resource::StepDown,
            Some(["v1", "health"]) => Resource::Health,
            Some(["v1", "ready"]) => Resource::Ready,
            Some(["v1", "metrics"]) => Resource::Metrics,
            Some(["livez"]) => Resource::Livez,
            Some(["readyz"]) => Resource::Readyz,
            Some(["leaderz"]) => Resource::Leaderz,
            _ => return Err(no_route(path)),
        };
        Ok(resource)
    }

    /// Whether it is served without credentials (interfaces, "HTTP").
    pub fn is_open(&self) -> bool {
        use Resource::{Health, Leaderz, Livez, Ready, Readyz};
        matches!(self, Health | Ready | Livez | Readyz | Leaderz)
    }

    /// The methods that it takes, as the `allow` header lists them.
    pub fn allow(&self) -> &'static str {
        match (self.takes(Verb::Get), self.takes(Verb::Post)) {
            (true, true) => "GET, HEAD, POST",
            (true, false) => "GET, HEAD",
            _ => "POST",
        }
    }

    /// Whether a method does anything to it.
    pub fn takes(&self, verb: Verb) -> bool {
        use Resource::{
            Cancel, Complete, Executions, Fail, Heartbeat, Poll, Recover, Register, Release, Signal, StepDown,
            Terminate, Unregister, Update, Workflows,
        };
        match self {
            Workflows | Executions => true,
            Cancel(_) | Terminate(_) | Recover(_) | Release(_) | Signal { .. } | Update { .. } => verb == Verb::Post,
            Register | Poll | Heartbeat | Unregister | Complete | Fail | StepDown => verb == Verb::Post,
            _ => verb == Verb::Get,
        }
    }

    /// What a method does to it, or METHOD_NOT_ALLOWED.
    pub fn verb(&self, method: &Method) -> Result<Verb, ApiError> {
        let verb = match *method {
            Method::GET | Method::HEAD => Some(Verb::Get),
            Method::POST => Some(Verb::Post),
            _ => None,
        };
        verb.filter(|verb| self.takes(*verb)).ok_or_else(|| {
            let allow: Vec<&str> = self.allow().split(", ").collect();
            let message = format!("this route takes {}, not {method}", allow.join(" and "));
            ApiError::new(ErrorCode::MethodNotAllowed, message).with("allow", allow)
        })
    }

    /// What the body is, by its content type, or UNSUPPORTED_MEDIA_TYPE.
    pub fn media(&self, verb: Verb, content_type: Option<&str>) -> Result<Media, ApiError> {
        let (Verb::Post, Some(given)) = (verb, content_type) else { return Ok(Media::Missing) };
        let (essence, parameters) = given.split_once(';').unwrap_or((given, ""));
        let essence = essence.trim();
        let is = |name: &str| essence.eq_ignore_ascii_case(name);
        let media = if is("application/json") {
            Media::Json
        } else if *self == Resource::Workflows && YAML.iter().any(|name| is(name)) {
            Media::Yaml
        } else {
            return Err(self.unsupported(format_args!("the content type {given:?} is not read here")));
        };
        for parameter in parameters.split(';') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = value.trim().trim_matches('"');
            if name.trim().eq_ignore_ascii_case("charset") && !value.eq_ignore_ascii_case("utf-8") {
                return Err(self.unsupported(format_args!("the charset {value:?} is not read here; send UTF-8")));
            }
        }
        Ok(media)
    }

    fn unsupported(&self, problem: std::fmt::Arguments<'_>) -> ApiError {
        let read: &[&str] = match self {
            Resource::Workflows => &["application/json", "application/yaml"],
            _ => &["application/json"],
        };
        let message = format!("{problem}; send `content-type: {}`", read.join("` or `content-type: "));
        ApiError::new(ErrorCode::UnsupportedMediaType, message).with("supported", read)
    }

    /// The request that query and body make of it.
    pub fn request(
        &self,
        verb: Verb,
        query: Option<&str>,
        media: Media,
        body: &[u8],
        limits: &RouteLimits,
    ) -> Result<Routed, ApiError> {
        // A probe's query means nothing, and balancers add some to keep caches away.
        match self {
            Resource::Health => return Ok(Request::Health.into()),
            Resource::Ready => return Ok(Request::Ready.into()),
            Resource::Metrics => return Ok(Request::Metrics.into()),
            Resource::Livez => return Ok(Request::Livez.into()),
            Resource::Readyz => return Ok(Request::Readyz.into()),
            Resource::Leaderz => return Ok(Request::Leaderz.into()),
            _ => {}
        }
        if verb == Verb::Get {
            return match self {
                Resource::Executions => executions::list(query),
                Resource::History(id) => executions::history(id.clone(), query),
                Resource::Wait(id) => executions::wait(id.clone(), query),
                _ => {
                    url::Query::parse(query, &[], &[])?;
                    Ok(match self {
                        Resource::Workflows => Request::ListWorkflows,
                        Resource::Workflow { name, version } => {
                            Request::GetWorkflow { name: name.clone(), version: version.clone() }
                        }
                        Resource::Execution(id) => Request::GetExecution(id.clone()),
                        Resource::Query { execution, name } => {
                            Request::Query { execution: execution.clone(), name: name.clone() }
                        }
                        Resource::Nodes => Request::ListNodes,
                        _ => Request::ListWorkers,
                    })
                }
            }
            .map(Routed::from);
        }
        let known = if *self == Resource::Workflows { workflows::DEPLOY_PARAMETERS } else { &[] };
        let query = url::Query::parse(query, known, &[])?;
        // Without a content type, a page of another site could make a browser send a body here unasked.
        if media == Media::Missing && !body.is_empty() {
            return Err(self.unsupported(format_args!("the content type of the body is missing")));
        }
        let payloads = Payloads { max_bytes: limits.max_payload_bytes, body_bytes: body.len() };
        match self {
            Resource::Workflows => workflows::deploy(query, media, body),
            Resource::StepDown => cluster::step_down(body).map(Routed::from),
            Resource::Cancel(id) => {
                let reason = executions::reason(body)?;
                Ok(Request::Cancel { execution: id.clone(), reason }.into())
            }
            Resource::Terminate(id) => {
                let reason = executions::reason(body)?;
                Ok(Request::Terminate { execution: id.clone(), reason }.into())
            }
            Resource::Recover(id) => {
                let reason = executions::reason(body)?;
                Ok(Request::Recover { execution: id.clone(), reason }.into())
            }
            Resource::Release(id) => {
                executions::nothing(body)?;
                Ok(Request::Release { execution: id.clone() }.into())
            }
            Resource::Signal { execution, name } => {
                let signal = executions::message(name.clone(), "signal_id", body, &payloads)?;
                Ok(Request::Signal { execution: execution.clone(), signal }.into())
            }
            Resource::Update { execution, name } => {
                let update = executions::message(name.clone(), "update_id", body, &payloads)?;
                Ok(Request::Update { execution: execution.clone(), update }.into())
            }
            _ => {
                let value = json::parse(body)?;
                match self {
                    Resource::Executions => executions::start(value, &payloads).map(Routed::from),
                    Resource::Register => workers::register(value).map(Routed::from),
                    Resource::Poll => workers::poll(value, &payloads),
                    Resource::Heartbeat => workers::heartbeat(value).map(Routed::from),
                    Resource::Unregister => workers::unregister(value).map(Routed::from),
                    Resource::Complete => tasks::complete(value, &payloads),
                    _ => tasks::fail(value, &payloads),
                }
            }
        }
    }
}

fn no_route(path: &str) -> ApiError {
    let shown: String = path.chars().take(200).collect();
    let mut message = format!("there is no route {shown}");
    let trimmed = path.trim_end_matches('/');
    if trimmed.len() < path.len() && !trimmed.is_empty() && Resource::find(trimmed).is_ok() {
        message.push_str("; leave out the `/` at its end");
    } else if let Some(rest) = path.strip_prefix("/v1/") {
        let first = rest.split('/').next().unwrap_or_default();
        if let Some(near) = nearest(first, COLLECTIONS).filter(|near| *near != first) {
            message.push_str(&format!("; did you mean /v1/{near}?"));
        }
    } else if let Some(meant) =
        under_v1(path).filter(|meant| Resource::find(meant).is_ok() || Published::find(meant).is_some())
    {
        message.push_str(&format!("; did you mean {}?", meant.chars().take(200).collect::<String>()));
    }
    ApiError::new(ErrorCode::NotFound, message)
}

/// Where a path outside of `/v1/` would be within it.
fn under_v1(path: &str) -> Option<String> {
    match path.strip_prefix("/V1/") {
        Some(rest) => Some(format!("/v1/{rest}")),
        None => (path.starts_with('/') && !path.starts_with("/v1")).then(|| format!("/v1{path}")),
    }
}

/// A name in a path: of a workflow, a version, a signal …
fn named(part: &str, text: &str) -> Result<String, ApiError> {
    let name = url::segment(part, text)?;
    match name_problem(&name, MAX_NAME) {
        // An empty name is a path that no route has.
        Some(_) if name.is_empty() => {
            Err(ApiError::new(ErrorCode::NotFound, format!("the {part} in the path is empty")))
        }
        Some(problem) => Err(url::invalid("path", part, problem)),
        None => Ok(name.into_owned()),
    }
}

/// The id of an execution in a path.
fn execution_id(text: &str) -> Result<ExecutionId, ApiError> {
    let id = url::segment("execution_id", text)?;
    match execution_id_problem(&id) {
        Some(_) if id.is_empty() => Err(ApiError::new(ErrorCode::NotFound, "the execution id in the path is empty")),
        Some(problem) => Err(url::invalid("path", "execution_id", problem)),
        None => Ok(ExecutionId::new(id.as_ref())),
    }
}

/// The longest name of a workflow, version, worker, task or contract version, in bytes.
pub(super) const MAX_NAME: usize = 255;

/// The check of payloads: inputs, outputs, what signals bring, details of errors.
pub(super) struct Payloads {
    max_bytes: usize,
    body_bytes: usize,
}

impl Payloads {
    /// PAYLOAD_TOO_LARGE or INVALID_REQUEST where the value is too large or nests too deep. `beside` is the length of
    /// text that counts with it.
    fn check(&self, value: &Value, beside: usize, place: Place<'_>) -> Result<(), ApiError> {
        let depth = json::depth(value);
        if depth > json::MAX_PAYLOAD_DEPTH {
            let most = json::MAX_PAYLOAD_DEPTH;
            return Err(place.invalid(format_args!("nests {depth} levels; a payload nests at most {most}")));
        }
        // Written out, a value is less than five times as long as it was sent (`1e15` is the worst), so most bodies
        // need no counting.
        if self.body_bytes.saturating_mul(5) <= self.max_bytes {
            return Ok(());
        }
        let bytes = json::length(value).saturating_add(beside);
        if bytes <= self.max_bytes {
            return Ok(());
        }
        let (path, limit) = (place.to_string(), self.max_bytes);
        let message = format!("`{path}` has {bytes} bytes as JSON; the limit is {limit} (--max-payload-bytes)");
        Err(ApiError::new(ErrorCode::PayloadTooLarge, message)
            .with("path", path)
            .with("bytes", bytes)
            .with("limit", limit)
            .with("setting", "max_payload_bytes"))
    }

    /// A field that is a payload; null where it is absent.
    fn take(&self, fields: &mut Fields<'_>, parent: Place<'_>, name: &str) -> Result<Value, ApiError> {
        let value = fields.any(name);
        self.check(&value, 0, Place::Field(&parent, name))?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
