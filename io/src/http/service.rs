//! One request, from its head to its answer.

use super::answer::Answer;
use super::connection::Activity;
use super::front::{Extra, HttpConfig, MAX_HEAD, MAX_HEADERS};
use super::metrics::Process;
use super::published::Published;
use super::respond::{self, Rendered};
use super::route::{Resource, RouteLimits, Routed, Verb};
use crate::driver::{NodeHandle, Unavailable};
use crate::postgres::figures as database;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use orbit_core::api::{self, ApiError, ErrorCode};
use orbit_core::node::RequestId;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// What the front counts.
#[derive(Default)]
pub struct Figures {
    pub connections: AtomicU64,
    pub requests: AtomicU64,
}

/// What all connections share.
pub struct Service {
    pub node: NodeHandle,
    pub config: HttpConfig,
    pub figures: Figures,
    limits: RouteLimits,
    extra: Option<Arc<dyn Extra>>,
    database: Option<Arc<database::Figures>>,
    /// Makes the ids of requests differ from those of the process before.
    boot: String,
    /// Memory of bodies that are being read, and of requests made of them that the node has not looked at.
    body_memory: Arc<AtomicUsize>,
    /// Numbers requests that never reach the node.
    unsubmitted: AtomicU64,
}

/// An answer, before it has a body that is tied to its connection.
struct Reply {
    response: Response<Bytes>,
    /// The request whose answer must not be lost unnoticed.
    tracked: Option<RequestId>,
}

/// A refusal, before it has a request id.
struct Refusal {
    error: ApiError,
    also: Also,
}

/// A header that goes with a refusal.
enum Also {
    Nothing,
    /// `allow`, with these methods.
    Allow(&'static str),
    /// `www-authenticate`
    Authenticate,
    /// `connection: close`
    Close,
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Refusal {
        // After a body that came too slowly its rest may still come, and would be read as the next request.
        let also = if error.code == ErrorCode::RequestTimeout { Also::Close } else { Also::Nothing };
        Refusal { error, also }
    }
}

const LEADER: HeaderName = HeaderName::from_static("x-orbit-leader");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What of a body that is not wanted is read all the same, and for how long: a client that still sends would not see
/// the answer if the socket went.
const DISCARDED_BYTES: usize = 16 << 20;
const DISCARDED_FOR: Duration = Duration::from_secs(10);

impl Service {
    /// A service in front of a node.
    pub fn new(
        node: NodeHandle,
        config: HttpConfig,
        extra: Option<Arc<dyn Extra>>,
        database: Option<Arc<database::Figures>>,
    ) -> Service {
        let limits = RouteLimits { max_payload_bytes: config.max_payload_bytes };
        let boot = getrandom::u32().unwrap_or_else(|_| std::process::id());
        Service {
            node,
            config,
            figures: Figures::default(),
            limits,
            extra,
            database,
            boot: format!("{boot:08x}"),
            body_memory: Arc::default(),
            unsubmitted: AtomicU64::new(1),
        }
    }

    /// Answers one request. A panic becomes INTERNAL; the connection lives on.
    pub async fn call(
        self: Arc<Service>,
        activity: Arc<Activity>,
        request: Request<Incoming>,
    ) -> Result<Response<Answer>, Infallible> {
        activity.serving();
        let reply = match caught(self.answer(request)).await {
            Some(reply) => reply,
            None => {
                tracing::error!(target: "orbit_runtime::server", "a request handler panicked; please report this");
                let error =
                    ApiError::new(ErrorCode::Internal, "the server made a mistake while it handled the request");
                self.refusal(error.into())
            }
        };
        self.figures.requests.fetch_add(1, Ordering::Relaxed);
        Ok(reply.response.map(|bytes| Answer::new(bytes, reply.tracked, activity)))
    }

    async fn answer(&self, request: Request<Incoming>) -> Reply {
        let (head, mut body) = request.into_parts();
        match self.checked(&head, &mut body).await {
            Ok(reply) => reply,
            Err(refusal) => {
                // Nothing more is to be expected of a client whose time is over, or who asked first whether its body
                // is wanted.
                let over = matches!(refusal.also, Also::Close) || head.headers.contains_key(header::EXPECT);
                if !body.is_end_stream() && !over {
                    discard(body).await;
                }
                match self.leader_instead(&head).await {
                    Some(error) => self.refusal(error.into()),
                    None => self.refusal(refusal),
                }
            }
        }
    }

    /// In a cluster, what this server refuses may be none of its business: then who leads is said, and nothing else. What
    /// only reads is everybody's business.
    async fn leader_instead(&self, head: &hyper::http::request::Parts) -> Option<ApiError> {
        let reads = matches!(head.method, Method::GET | Method::HEAD);
        if reads || !self.config.in_cluster {
            return None;
        }
        let answer = self.node.submit(api::Request::Gate).ok()?.await.ok()?;
        match answer.reply {
            api::Reply::Error(error) if error.code == ErrorCode::NotLeader => Some(error),
            _ => None,
        }
    }

    async fn checked(&self, head: &hyper::http::request::Parts, body: &mut Incoming) -> Result<Reply, Refusal> {
        let path = head.uri.path();
        if let Some(document) = Published::find(path) {
            return self.publish(document, head);
        }
        let resource = Resource::find(path);
        if let (Err(_), Some(extra)) = (&resource, &self.extra)
            && extra.serves(path)
        {
            let (bytes, _room) = self.read(&head.headers, body).await?;
            let mut response = extra.serve(Request::from_parts(head.clone(), bytes)).await;
            response.headers_mut().insert(REQUEST_ID, self.new_id());
            return Ok(Reply { response, tracked: None });
        }
        if !resource.as_ref().is_ok_and(Resource::is_open) {
            self.authorize(&head.headers)?;
        }
        let resource = resource?;
        let verb =
            resource.verb(&head.method).map_err(|error| Refusal { error, also: Also::Allow(resource.allow()) })?;
        let content_type = match head.headers.get(header::CONTENT_TYPE) {
            Some(value) => Some(value.to_str().unwrap_or("something unreadable")),
            None => None,
        };
        let media = resource.media(verb, content_type)?;
        let (bytes, room) = match verb {
            Verb::Post => self.read(&head.headers, body).await?,
            Verb::Get => (Bytes::new(), Room::none(&self.body_memory)),
        };
        let routed = resource.request(verb, head.uri.query(), media, &bytes, &self.limits)?;
        drop(bytes);
        let room = self.room_for(room, routed.request.memory())?;
        Ok(self.submit(routed, room).await?)
    }

    fn publish(&self, document: Published, head: &hyper::http::request::Parts) -> Result<Reply, Refusal> {
        if !document.is_open() {
            self.authorize(&head.headers)?;
        }
        Published::takes(&head.method).map_err(|error| Refusal { error, also: Also::Allow(Published::ALLOW) })?;
        let rendered = Rendered {
            status: 200,
            content_type: document.content_type(),
            retry_after: None,
            leader: None,
            body: document.text().into(),
        };
        Ok(Reply { response: written(rendered, self.new_id()), tracked: None })
    }

    /// What a body took, as what the request takes that was made of it.
    fn room_for(&self, body: Room, memory: u64) -> Result<Room, ApiError> {
        drop(body);
        let mut room = Room::none(&self.body_memory);
        let bytes = usize::try_from(memory).unwrap_or(usize::MAX / 2);
        if room.grow(bytes, self.config.max_body_memory) { Ok(room) } else { Err(self.no_memory()) }
    }

    fn no_memory(&self) -> ApiError {
        let most = self.config.max_body_memory;
        let message = format!(
            "the requests that this server is reading, or has not looked at yet, take {most} bytes of memory already \
             (max_body_memory)"
        );
        ApiError::new(ErrorCode::ResourceExhausted, message).with("limit", "max_body_memory").with("max", most)
    }

    async fn submit(&self, routed: Routed, room: Room) -> Result<Reply, ApiError> {
        let Routed { request, refused, document } = routed;
        let hands_out_tasks = matches!(request, api::Request::Poll(_));
        let pending = self.node.submit_with(request, Some(Box::new(room))).map_err(unavailable)?;
        let id = pending.id();
        let mut response = pending.await.map_err(unavailable)?;
        if !refused.is_empty() {
            respond::insert_refused(&mut response.reply, refused);
        }
        if let Some(document) = document {
            respond::insert_places(&mut response.reply, &document);
        }
        let request_id = self.id_of(id);
        let rendered = respond::render(&response, text_of(&request_id), || Process {
            resident_bytes: Process::resident(),
            connections: self.figures.connections.load(Ordering::Relaxed),
            requests: self.figures.requests.load(Ordering::Relaxed),
            database: self.database.as_ref().and_then(|database| database.newest()),
        });
        Ok(Reply { response: written(rendered, request_id), tracked: hands_out_tasks.then_some(id) })
    }

    /// What a connection past the limit is told, as bytes.
    pub fn no_room(&self) -> Vec<u8> {
        let limit = self.config.max_connections;
        let message = format!("{limit} connections are open, and that is the limit (--max-connections)");
        let error = ApiError::new(ErrorCode::ResourceExhausted, message).with("setting", "max_connections");
        self.last_words(&error)
    }

    /// What is said to a head that hyper refuses with this status, as bytes.
    pub fn malformed(&self, status: u16) -> Vec<u8> {
        self.figures.requests.fetch_add(1, Ordering::Relaxed);
        self.last_words(&match status {
            400 => ApiError::new(
                ErrorCode::InvalidRequest,
                "these bytes are no HTTP/1.1 request: the request line or a header is malformed",
            )
            .with("in", "head"),
            _ => ApiError::new(
                ErrorCode::HeadTooLarge,
                format!("the head of the request has more than {MAX_HEAD} bytes, or more than {MAX_HEADERS} headers"),
            ),
        })
    }

    /// An answer as bytes, after which the connection ends.
    fn last_words(&self, error: &ApiError) -> Vec<u8> {
        let request_id = self.new_id();
        let Rendered { status, content_type, retry_after, body, .. } =
            respond::render_error(error, text_of(&request_id));
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = retry_after.map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
        let mut bytes = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nx-request-id: {id}\r\n{retry_after}connection: \
             close\r\ncontent-length: {length}\r\n\r\n",
            id = text_of(&request_id),
            length = body.len(),
        )
        .into_bytes();
        bytes.extend_from_slice(&body);
        bytes
    }

    fn refusal(&self, refusal: Refusal) -> Reply {
        let request_id = self.new_id();
        let mut response = written(respond::render_error(&refusal.error, text_of(&request_id)), request_id);
        let also = match refusal.also {
            Also::Nothing => None,
            Also::Allow(methods) => Some((header::ALLOW, methods)),
            Also::Authenticate => Some((header::WWW_AUTHENTICATE, "Bearer realm=\"orbit\"")),
            Also::Close => Some((header::CONNECTION, "close")),
        };
        if let Some((name, value)) = also {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Reply { response, tracked: None }
    }

    /// An id for a request that does not reach the node, told apart from those that do.
    fn new_id(&self) -> HeaderValue {
        self.id_of(format_args!("f{}", self.unsubmitted.fetch_add(1, Ordering::Relaxed)))
    }

    fn id_of(&self, number: impl fmt::Display) -> HeaderValue {
        HeaderValue::from_maybe_shared(Bytes::from(format!("{}-{number}", self.boot)))
            .expect("hexadecimal digits, a hyphen and a number")
    }

    fn authorize(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.config.token else { return Ok(()) };
        let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let message = match given.map(bearer) {
            Some(Some(given)) if same(given, token.as_bytes()) => return Ok(()),
            Some(Some(_)) => "the token is not this server's",
            Some(None) => "the `authorization` header does not begin with `Bearer `",
            None => "this server wants a token",
        };
        Err(Refusal { error: ApiError::new(ErrorCode::Unauthorized, message), also: Also::Authenticate })
    }

    /// Reads a body whole, within its bounds of size and time.
    async fn read(&self, headers: &HeaderMap, body: &mut Incoming) -> Result<(Bytes, Room), ApiError> {
        let limit = self.config.body_limit;
        let too_large = || {
            ApiError::new(ErrorCode::PayloadTooLarge, format!("the body is larger than {limit} bytes (--body-limit)"))
                .with("limit", limit)
                .with("setting", "body_limit")
        };
        if body.is_end_stream() {
            return Ok((Bytes::new(), Room::none(&self.body_memory)));
        }
        let announced = body.size_hint().lower();
        if announced > limit as u64 {
            return Err(too_large());
        }
        // Without a length, a body comes in chunks; growing from the first is good enough.
        let room = usize::try_from(announced).unwrap_or(limit);
        let most = self.config.max_body_memory;
        let whole = async {
            let mut taken = Room::none(&self.body_memory);
            let mut first = Bytes::new();
            let mut rest = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|cause| {
                    let text = if headers.contains_key(header::TRANSFER_ENCODING) { "chunked body" } else { "body" };
                    ApiError::new(ErrorCode::InvalidRequest, format!("the {text} cannot be read: {cause}"))
                })?;
                let Ok(data) = frame.into_data() else { continue };
                if first.len() + rest.len() + data.len() > limit {
                    return Err(too_large());
                }
                if !taken.grow(data.len(), most) {
                    return Err(self.no_memory());
                }
                // Most bodies are one piece, and that piece is not copied.
                if first.is_empty() && rest.is_empty() {
                    first = data;
                } else {
                    if rest.is_empty() {
                        rest.reserve(room.max(first.len() + data.len()));
                        rest.extend_from_slice(&std::mem::take(&mut first));
                    }
                    rest.extend_from_slice(&data);
                }
            }
            Ok((if rest.is_empty() { first } else { rest.freeze() }, taken))
        };
        match tokio::time::timeout(self.config.body_timeout, whole).await {
            Ok(result) => result,
            Err(_) => {
                let waited = self.config.body_timeout.as_secs_f64();
                Err(ApiError::new(ErrorCode::RequestTimeout, format!("the body was not complete within {waited} s")))
            }
        }
    }
}

/// What a body takes of the memory that all bodies share; it is given back when this goes.
struct Room {
    all: Arc<AtomicUsize>,
    taken: usize,
}

impl Room {
    fn none(all: &Arc<AtomicUsize>) -> Room {
        Room { all: Arc::clone(all), taken: 0 }
    }

    /// Takes more; false where there is no more than `most` in all.
    fn grow(&mut self, bytes: usize, most: usize) -> bool {
        self.taken += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed) + bytes <= most
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.all.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

/// Reads on for a while, so that the client comes to read the answer.
async fn discard(mut body: Incoming) {
    let rest = async {
        let mut bytes = 0;
        while bytes < DISCARDED_BYTES
            && let Some(Ok(frame)) = body.frame().await
        {
            bytes += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    let _ = tokio::time::timeout(DISCARDED_FOR, rest).await;
}

fn unavailable(why: Unavailable) -> ApiError {
    match why {
        Unavailable::Overloaded => ApiError::new(
            ErrorCode::ResourceExhausted,
            "too many requests are waiting for this server; send this one again in a moment",
        ),
        Unavailable::Stopped => ApiError::new(ErrorCode::NotReady, "the server is stopping"),
    }
}

fn written(rendered: Rendered, request_id: HeaderValue) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(rendered.body));
    *response.status_mut() = StatusCode::from_u16(rendered.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(rendered.content_type));
    headers.insert(REQUEST_ID, request_id);
    if let Some(seconds) = rendered.retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if let Some(leader) = rendered.leader.and_then(|addr| HeaderValue::try_from(addr).ok()) {
        headers.insert(LEADER, leader);
    }
    response
}

/// A request id, as errors carry it.
fn text_of(request_id: &HeaderValue) -> &str {
    request_id.to_str().expect("made of visible ASCII")
}

/// The credentials of an `authorization` header of the kind that we take.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Whether two secrets are the same, in a time that does not tell where they differ.
fn same(given: &[u8], secret: &[u8]) -> bool {
    let mut difference = u8::from(given.len() != secret.len());
    for (index, byte) in given.iter().enumerate() {
        difference |= byte ^ secret.get(index).copied().unwrap_or(0);
    }
    std::hint::black_box(difference) == 0
}

/// What a future gives, or `None` where it panicked.
async fn caught<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Some(output)),
        // It is not polled again, only dropped.
        Err(_) => Poll::Ready(None),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_token_is_the_same() {
        assert!(same(b"secret", b"secret"));
        for other in [&b""[..], b"secre", b"secrets", b"Secret", b"secret\0"] {
            assert!(!same(other, b"secret"));
        }
        assert!(same(b"", b""));
    }

    #[test]
    fn the_scheme_of_credentials_is_bearer_in_any_case() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bEARER  abc "), Some(&b"abc"[..]));
        for other in [&b"Basic abc"[..], b"Bearer", b"abc", b""] {
            assert_eq!(bearer(other), None);
        }
    }

    #[tokio::test]
    async fn a_panic_is_caught_at_whichever_poll_it_comes() {
        assert_eq!(caught(async { 1 }).await, Some(1));
        let late = async {
            tokio::task::yield_now().await;
            panic!("on purpose");
        };
        assert_eq!(caught::<std::pin::Pin<Box<dyn Future<Output = ()>>>>(Box::pin(late)).await, None);
    }
}
