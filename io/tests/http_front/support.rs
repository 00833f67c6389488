//! A node that answers by script, and a client that sends bytes.

use super::api;
use orbit_core::api::response::{Assignment, Polled, Reply};
use orbit_core::api::{Request, Response};
use orbit_core::id::{SessionId, Token};
use orbit_core::node::RequestId;
use orbit_io::driver::handle::{Message, NodeHandle};
use orbit_io::http::{Extra, Front, HttpConfig};
use orbit_io::postgres::figures::{DatabaseFigures, Figures};
use serde_json::{Value, json};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// How long a test waits for what must happen: long past any time-out of [`quick`].
const PATIENCE: Duration = Duration::from_secs(60);

/// A time-out that no test waits for.
pub const NEVER: Duration = Duration::from_secs(600);

pub const SESSION: &str = "00000000-0000-0000-0000-000000000005";

pub fn session() -> SessionId {
    SessionId(Uuid::from_u128(5))
}

pub fn token(execution: &str) -> Token {
    Token { execution: execution.into(), id: Uuid::from_u128(7) }
}

/// Waits for what must happen soon.
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// What the node is told.
#[derive(Debug, PartialEq)]
pub enum Seen {
    Request(RequestId, Request),
    Gone(RequestId),
    AnswerLost(RequestId),
    Stop,
}

/// What the node says to a request.
#[allow(clippy::large_enum_variant)]
pub enum Says {
    Answer(Response),
    /// Nothing, until [`Server::answer_held`].
    Hold,
}

/// Settings whose time-outs are short, so that tests can wait for them.
pub fn quick() -> HttpConfig {
    HttpConfig {
        header_timeout: Duration::from_millis(300),
        body_timeout: Duration::from_millis(300),
        idle_timeout: Duration::from_millis(1500),
        write_timeout: Duration::from_millis(500),
        stop_timeout: Duration::from_millis(800),
        ..HttpConfig::default()
    }
}

/// A front that serves, with its scripted node.
pub struct Server {
    pub addr: SocketAddr,
    pub seen: mpsc::UnboundedReceiver<Seen>,
    held: mpsc::UnboundedReceiver<oneshot::Sender<Response>>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Server {
    /// A server whose node answers every request the same way.
    pub fn start(config: HttpConfig, script: impl FnMut(&Request) -> Says + Send + 'static) -> Server {
        Server::start_with(config, None, script)
    }

    /// The same, with a service beside the API.
    pub fn start_with(
        config: HttpConfig,
        extra: Option<Arc<dyn Extra>>,
        mut script: impl FnMut(&Request) -> Says + Send + 'static,
    ) -> Server {
        let (node, mut requests, mut notices) = NodeHandle::new(100);
        let (tell, seen) = mpsc::unbounded_channel();
        let (hold, held) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let message = tokio::select! {
                    Some(message) = requests.recv() => message,
                    Some(message) = notices.recv() => message,
                    else => break,
                };
                let told = match message {
                    Message::Request { id, request, answer, .. } => {
                        match script(&request) {
                            Says::Answer(response) => drop(answer.send(response)),
                            Says::Hold => drop(hold.send(answer)),
                        }
                        Seen::Request(id, request)
                    }
                    Message::Gone(id) => Seen::Gone(id),
                    Message::AnswerLost(id) => Seen::AnswerLost(id),
                    Message::Stop => Seen::Stop,
                };
                let _ = tell.send(told);
            }
        });
        let mut front = Front::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        if let Some(extra) = extra {
            front = front.with_extra(extra);
        }
        let figures = Figures::default();
        figures.put(DatabaseFigures::default());
        let front = front.with_database(Arc::new(figures));
        let addr = front.local_addr();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(front.serve(node, config, async {
            let _ = stopped.await;
        }));
        Server { addr, seen, held, stop: Some(stop), serving }
    }

    pub async fn connect(&self) -> Client {
        Client { socket: TcpStream::connect(self.addr).await.unwrap(), unread: Vec::new() }
    }

    /// The next thing that the node is told.
    pub async fn next(&mut self) -> Seen {
        soon("a message to the node", self.seen.recv()).await.expect("the node runs")
    }

    /// The next thing that the node is told, which is a request.
    pub async fn next_request(&mut self) -> (RequestId, Request) {
        match self.next().await {
            Seen::Request(id, request) => (id, request),
            other => panic!("a request, not {other:?}"),
        }
    }

    /// Answers the oldest request that is held.
    pub async fn answer_held(&mut self, response: Response) {
        let answer = soon("a held request", self.held.recv()).await.expect("the node runs");
        answer.send(response).expect("somebody waits");
    }

    /// Asks the front to stop.
    pub fn ask_to_stop(&mut self) {
        self.stop.take().expect("asked once").send(()).expect("the front runs");
    }

    /// Waits for the end of the front, and gives what the node was told until then and not yet taken.
    pub async fn ended(mut self) -> Vec<Seen> {
        soon("the end of the front", &mut self.serving).await.unwrap();
        // The front and its handles are gone, so the node's task ends and drops its sender.
        let mut rest = Vec::new();
        while let Some(seen) = soon("the end of the node", self.seen.recv()).await {
            rest.push(seen);
        }
        rest
    }

    /// Stops the front, and gives what the node was told until then and not yet taken.
    pub async fn stopped(mut self) -> Vec<Seen> {
        self.ask_to_stop();
        self.ended().await
    }
}

/// An answer, as it came over the wire.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("JSON: {self:?}"))
    }

    /// The code and the place of an error.
    pub fn error(&self) -> (u16, String, String) {
        let error = &self.json()["error"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (self.status, text(&error["code"]), text(&error["details"]["path"]))
    }
}

/// An answer, which is one that the API's description knows where it is JSON.
fn described(method: &str, target: &str, answer: Answer) -> Answer {
    if answer.header("content-type") == Some("application/json") {
        let path = target.split('?').next().unwrap_or_default();
        let problem = api::problem(method, path, answer.status, &answer.json());
        assert_eq!(problem, None, "{method} {target}: {answer:?}");
    }
    answer
}

/// A connection that sends what it is told to.
pub struct Client {
    pub socket: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends a GET.
    pub async fn get(&mut self, target: &str) -> Answer {
        self.send(format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        self.described("GET", target).await
    }

    /// Sends a POST of JSON.
    pub async fn post(&mut self, target: &str, body: &Value) -> Answer {
        self.send(post(target, "application/json", body.to_string().as_bytes())).await;
        self.described("POST", target).await
    }

    /// Reads the answer to a request that was sent, and holds it to the API's description.
    pub async fn described(&mut self, method: &str, target: &str) -> Answer {
        described(method, target, self.answer().await)
    }

    /// Reads one answer with its body.
    pub async fn answer(&mut self) -> Answer {
        self.read_answer(true).await.expect("an answer")
    }

    /// Reads an answer whose body is not sent (to a HEAD).
    pub async fn head_of_answer(&mut self) -> Answer {
        self.read_answer(false).await.expect("an answer")
    }

    async fn read_answer(&mut self, with_body: bool) -> io::Result<Answer> {
        soon("an answer", async {
            let end = loop {
                match self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                    Some(at) => break at + 4,
                    None => self.read_more().await?,
                }
            };
            let head = String::from_utf8(self.unread.drain(..end).collect()).unwrap();
            let mut lines = head.split("\r\n");
            let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
            let headers: Vec<(String, String)> = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            let mut answer = Answer { status, headers, body: Vec::new() };
            if with_body && status >= 200 {
                let length: usize = answer.header("content-length").expect("a length").parse().unwrap();
                while self.unread.len() < length {
                    self.read_more().await?;
                }
                answer.body = self.unread.drain(..length).collect();
            }
            Ok(answer)
        })
        .await
    }

    async fn read_more(&mut self) -> io::Result<()> {
        match self.socket.read_buf(&mut self.unread).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Waits for the server to close, and gives what came before that.
    pub async fn closed(mut self) -> Vec<u8> {
        soon("the end of the connection", async {
            // A reset is an end too: the server closed without reading all that was sent.
            while self.read_more().await.is_ok() {}
        })
        .await;
        self.unread
    }
}

/// A POST, as bytes.
pub fn post(target: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "POST {target} HTTP/1.1\r\nhost: x\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A poll of the session of these tests.
pub fn poll() -> Value {
    json!({"session_id": SESSION, "max_tasks": 1, "wait_ms": 60_000})
}

/// The answer to a poll: one task with an input of so many bytes.
pub fn one_task(bytes: usize) -> Response {
    let task = Assignment {
        token: token("order-1"),
        execution_id: "order-1".into(),
        workflow: "OrderProcessing".into(),
        workflow_version: "1.0.0".into(),
        step_id: "charge".into(),
        task_name: "payments.charge".into(),
        contract_version: "1".into(),
        input: Arc::new(json!("x".repeat(bytes))),
        idempotency_key: "c/order-1/1/charge".into(),
        attempt: 1,
        redelivery: false,
        deadline_ms: None,
        timeout_ms: Some(30_000),
    };
    Response::ok(Reply::Polled(Polled { tasks: vec![task], cancel: vec![], outcomes: vec![] }))
}

/// The answer of a node that has nothing to say: probes are fine, everything else has gone.
pub fn fine(_: &Request) -> Says {
    Says::Answer(Response::ok(Reply::Probe { ok: true }))
}

/// A node that answers nothing by itself.
pub fn hold(_: &Request) -> Says {
    Says::Hold
}
