//! A small HTTP/1.1 client: several servers, kept connections, a deadline on everything.
//!
//! Every call of Orbit's API may be sent twice (starts carry an id, results a token), so a call that failed on a
//! connection that had been idle is sent again on a new one, and a call that found one server gone goes to the next.

use crate::error::{ApiError, Error};
use crate::outside::Outside;
use crate::random;
use crate::servers::{Address, Servers};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// How long connecting to one server may take.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// A connection that was idle for longer is not used again: the server may be about to close it.
const IDLE_LIMIT: Duration = Duration::from_secs(20);
/// No answer of the API is larger.
const LARGEST_ANSWER: usize = 256 << 20;
/// Idle connections that are kept.
const KEPT_CONNECTIONS: usize = 16;
/// How many times one call follows a server that names another one as the leader.
const LEADERS_FOLLOWED: usize = 2;

/// A request, independent of the server that it goes to.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub method: Method,
    /// Path and query.
    pub path: String,
    pub content_type: &'static str,
    pub body: Bytes,
    /// How long each server has for its whole answer.
    pub deadline: Duration,
}

impl Call {
    pub(crate) fn get(path: impl Into<String>, deadline: Duration) -> Call {
        Call { method: Method::GET, path: path.into(), content_type: "", body: Bytes::new(), deadline }
    }

    pub(crate) fn post(path: impl Into<String>, body: &Value, deadline: Duration) -> Call {
        let body = Bytes::from(body.to_string());
        Call { method: Method::POST, path: path.into(), content_type: "application/json", body, deadline }
    }
}

/// A server's answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub body: Bytes,
    leader: Option<String>,
    server: String,
}

impl Answer {
    /// The body of a success, or the error that the server told.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        if (200..300).contains(&self.status) { self.body_as() } else { Err(self.error()) }
    }

    /// The body, whatever the status.
    pub(crate) fn body_as<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body)
            .map_err(|error| self.unexpected(&format!("its answer is unreadable: {error}")))
    }

    /// The error that a server told with this answer.
    pub(crate) fn error(&self) -> Error {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or(Value::Null);
        let error = &body["error"];
        let Some(code) = error["code"].as_str() else {
            return self.unexpected(&format!("it answered with status {}", self.status));
        };
        let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
        let leader = self.leader.clone().or_else(|| error["details"]["leader_addr"].as_str().map(str::to_owned));
        ApiError {
            status: self.status,
            code: code.into(),
            message: text("message"),
            hint: text("hint"),
            retryable: error["retryable"].as_bool().unwrap_or(self.status >= 500 || self.status == 429),
            details: error["details"].as_object().cloned().unwrap_or_else(Map::new),
            request_id: text("request_id"),
            leader,
        }
        .into()
    }

    /// Whether it is the refusal of a server that does not serve (just now), where another one of the list may.
    fn is_of_no_use(&self) -> bool {
        let codes = ["NOT_LEADER", "NOT_READY", "FENCED"];
        self.status == 503 && self.error().api().is_some_and(|error| codes.contains(&error.code.as_str()))
    }

    fn unexpected(&self, message: &str) -> Error {
        Error::Unexpected { server: self.server.clone(), message: message.into() }
    }
}

/// A connection that nothing is sent on at the moment.
struct Connection {
    address: Address,
    sender: http1::SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    idle_since: Instant,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Who is asked, and the connections to them.
pub(crate) struct Transport {
    servers: Servers,
    authorization: Option<HeaderValue>,
    /// In place of TCP and the random numbers of this host.
    outside: Option<Arc<dyn Outside>>,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Which server of the list is asked first.
    first: usize,
    /// A leader that a server named; asked before those of the list.
    leader: Option<Address>,
    idle: Vec<Connection>,
}

impl Transport {
    pub(crate) fn new(servers: Servers, token: Option<&str>) -> Result<Transport, Error> {
        let authorization = match token {
            None | Some("") => None,
            Some(token) => {
                let header = HeaderValue::from_str(&format!("Bearer {token}"));
                let mut header = header.map_err(|_| {
                    Error::Setup("the token holds characters that a header cannot carry; use printable ASCII".into())
                })?;
                header.set_sensitive(true);
                Some(header)
            }
        };
        Ok(Transport { servers, authorization, outside: None, shared: Mutex::default() })
    }

    /// The same servers, reached through something else.
    pub(crate) fn through(&self, outside: Arc<dyn Outside>) -> Transport {
        Transport {
            servers: self.servers.clone(),
            authorization: self.authorization.clone(),
            outside: Some(outside),
            shared: Mutex::default(),
        }
    }

    /// A random number.
    pub(crate) fn random(&self) -> u64 {
        self.outside.as_ref().map_or_else(random::number, |outside| outside.random())
    }

    /// A random UUID as text.
    pub(crate) fn uuid(&self) -> String {
        random::uuid([self.random(), self.random()])
    }

    /// Asks the servers in turn until one answers; follows a server that names another as the leader.
    ///
    /// The answer may be an error of the API: [`Answer::json`] tells. What is [`Error::Unreachable`] was tried on
    /// every server once.
    pub(crate) async fn call(&self, call: &Call) -> Result<Answer, Error> {
        let mut tried = Vec::new();
        let mut followed = 0;
        let mut failed = 0;
        let mut refused = None;
        while failed < self.servers.count() {
            let (address, is_hint) = self.next_server();
            match self.ask(&address, call).await {
                Ok(answer) => match self.other_leader(&answer, &address) {
                    Some(leader) if followed < LEADERS_FOLLOWED => {
                        followed += 1;
                        self.lock().leader = Some(leader);
                    }
                    // It cannot say who leads, or where: one of the others may.
                    _ if answer.is_of_no_use() => {
                        self.give_up_on(&address);
                        failed += usize::from(!is_hint);
                        refused = Some(answer);
                    }
                    _ => return Ok(answer),
                },
                Err(message) => {
                    tried.push(format!("{address}: {message}"));
                    self.give_up_on(&address);
                    failed += usize::from(!is_hint);
                }
            }
        }
        refused.ok_or(Error::Unreachable { tried })
    }

    /// Every server, for those who want to know about each.
    pub(crate) fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Whether another server may be asked where one does not answer.
    pub(crate) fn knows_several(&self) -> bool {
        self.servers.count() > 1 || self.lock().leader.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("nothing panics while it holds this lock")
    }

    /// Whom to ask next, and whether a server named it rather than the list.
    fn next_server(&self) -> (Address, bool) {
        let shared = self.lock();
        match &shared.leader {
            Some(leader) => (leader.clone(), true),
            None => (self.servers.at(shared.first).clone(), false),
        }
    }

    /// Another server is asked from now on.
    fn give_up_on(&self, address: &Address) {
        let mut shared = self.lock();
        shared.idle.retain(|connection| connection.address != *address);
        if shared.leader.as_ref() == Some(address) {
            shared.leader = None;
        } else if self.servers.at(shared.first) == address {
            shared.first = (shared.first + 1) % self.servers.count();
        }
    }

    /// The leader that a refusal names, if it is not the one that refused.
    fn other_leader(&self, answer: &Answer, asked: &Address) -> Option<Address> {
        if answer.status != 503 {
            return None;
        }
        let leader = answer.error().api()?.leader.as_deref()?.parse::<Address>().ok()?;
        (leader != *asked).then_some(leader)
    }

    async fn ask(&self, address: &Address, call: &Call) -> Result<Answer, String> {
        let asked = timeout(call.deadline, async {
            if let Some(connection) = self.kept(address) {
                // It may have been closed at the other end in this moment, which says nothing about the server.
                if let Ok(answer) = self.ask_on(connection, call).await {
                    return Ok(answer);
                }
            }
            self.ask_on(self.connect(address).await?, call).await
        });
        asked.await.unwrap_or_else(|_| Err(format!("no answer within {:?}", call.deadline)))
    }

    fn kept(&self, address: &Address) -> Option<Connection> {
        let mut shared = self.lock();
        shared.idle.retain(|kept| kept.idle_since.elapsed() < IDLE_LIMIT && !kept.sender.is_closed());
        let index = shared.idle.iter().rposition(|kept| kept.address == *address)?;
        Some(shared.idle.remove(index))
    }

    async fn connect(&self, address: &Address) -> Result<Connection, String> {
        let late = |_| format!("no connection within {CONNECT_DEADLINE:?}");
        if let Some(outside) = &self.outside {
            let connected = timeout(CONNECT_DEADLINE, outside.connect(address.authority())).await.map_err(late)?;
            return open(address, connected.map_err(|error| reason(&error))?).await;
        }
        let connected = timeout(CONNECT_DEADLINE, TcpStream::connect(address.authority())).await.map_err(late)?;
        let stream = connected.map_err(|error| reason(&error))?;
        // Requests are small and waited for: without this, some would wait for an acknowledgement first.
        stream.set_nodelay(true).map_err(|error| reason(&error))?;
        open(address, stream).await
    }

    async fn ask_on(&self, mut connection: Connection, call: &Call) -> Result<Answer, String> {
        connection.sender.ready().await.map_err(|error| reason(&error))?;
        let request = self.request(&connection.address, call)?;
        let response = connection.sender.send_request(request).await.map_err(|error| reason(&error))?;
        let status = response.status().as_u16();
        let leader = header(response.headers(), "x-orbit-leader");
        let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
        let body = body.map_err(|error| format!("the answer broke off: {error}"))?.to_bytes();
        let answer = Answer { status, body, leader, server: connection.address.to_string() };
        self.keep(connection);
        Ok(answer)
    }

    fn keep(&self, mut connection: Connection) {
        connection.idle_since = Instant::now();
        let mut shared = self.lock();
        if shared.idle.len() < KEPT_CONNECTIONS && !connection.sender.is_closed() {
            shared.idle.push(connection);
        }
    }

    fn request(&self, address: &Address, call: &Call) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(&call.path)
            .header(HOST, address.authority())
            .header(USER_AGENT, concat!("orbit-sdk-rust/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json");
        if !call.body.is_empty() {
            request = request.header(CONTENT_TYPE, call.content_type);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        request.body(Full::new(call.body.clone())).map_err(|error| format!("the request cannot be made: {error}"))
    }
}

/// Begins to speak HTTP on a connection.
async fn open<S>(address: &Address, stream: S) -> Result<Connection, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| reason(&error))?;
    let driver = tokio::spawn(async move {
        // What goes wrong on the connection is told to the one who waits for an answer.
        let _ = driver.await;
    });
    Ok(Connection { address: address.clone(), sender, driver, idle_since: Instant::now() })
}

/// A text header.
fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// What went wrong, down to its cause: hyper's errors name only their own part.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// A segment of a path, with what has a meaning in addresses escaped.
pub(crate) fn segment(text: &str) -> String {
    escape(text, b"-._~:@+")
}

/// A value of a query.
pub(crate) fn query_value(text: &str) -> String {
    escape(text, b"-._~")
}

fn escape(text: &str, kept: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            escaped.push(byte.into());
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_meaning_in_addresses_is_escaped() {
        assert_eq!(segment("order-1:a@b+c~d/é?"), "order-1:a@b+c~d%2F%C3%A9%3F");
        assert_eq!(query_value("a+b=c d"), "a%2Bb%3Dc%20d");
    }

    #[test]
    fn a_token_that_no_header_can_carry_is_refused_at_once() {
        let made = Transport::new("http://a:1".parse().unwrap(), Some("a\nb"));
        assert!(matches!(made, Err(Error::Setup(_))));
    }
}
