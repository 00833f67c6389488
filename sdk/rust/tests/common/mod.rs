//! A server of which the test plays every part: it takes each request out by its path and answers it as it likes.
#![allow(dead_code)]

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

/// No step of a test takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A request that waits for the test's answer. Dropping it closes its connection without one.
pub struct Exchange {
    pub method: String,
    pub path: String,
    pub headers: HeaderMap,
    pub text: String,
    pub body: Value,
    answer: oneshot::Sender<Response<Full<Bytes>>>,
}

impl Exchange {
    pub fn answer(self, status: u16, body: Value) {
        self.answer_with(status, &[], body);
    }

    pub fn answer_with(self, status: u16, headers: &[(&str, &str)], body: Value) {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        // The client may have gone; then the test shows it elsewhere.
        let _ = self.answer.send(response.body(Full::new(Bytes::from(body.to_string()))).unwrap());
    }

    pub fn error(self, status: u16, code: &str, retryable: bool) {
        self.answer(
            status,
            json!({"error": {"code": code, "message": "scripted", "hint": "none", "retryable": retryable,
                             "details": {}, "request_id": "1"}}),
        );
    }

    /// Whether the client still waits for the answer.
    pub fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    /// Ready once the client has gone.
    pub async fn given_up(mut self) {
        tokio::time::timeout(PATIENCE, self.answer.closed()).await.expect("the client gives the request up");
    }

    /// The texts in a list of the body.
    pub fn list(&self, field: &str) -> Vec<&str> {
        self.body[field].as_array().map(|all| all.iter().map(|one| one.as_str().unwrap()).collect()).unwrap_or_default()
    }
}

/// The server. Ends, with every connection, when dropped.
pub struct Fake {
    pub addr: SocketAddr,
    arriving: mpsc::UnboundedReceiver<Exchange>,
    /// Requests that came while the test waited for another path.
    set_aside: Vec<Exchange>,
    listening: JoinHandle<()>,
}

impl Fake {
    pub async fn start() -> Fake {
        Fake::start_on("127.0.0.1:0".parse().unwrap()).await
    }

    pub async fn start_on(addr: SocketAddr) -> Fake {
        let listener = TcpListener::bind(addr).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (arrived, arriving) = mpsc::unbounded_channel();
        Fake { addr, arriving, set_aside: Vec::new(), listening: tokio::spawn(listen(listener, arrived)) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The next request that brings results: a report, or a poll where none was waiting.
    pub async fn expect_results(&mut self) -> Exchange {
        let brings = |exchange: &Exchange| exchange.body["results"].as_array().is_some_and(|r| !r.is_empty());
        let begun = std::time::Instant::now();
        while begun.elapsed() < PATIENCE {
            for path in ["/v1/tasks/complete", "/v1/workers/poll"] {
                let found = self.within(std::time::Duration::from_millis(20), path).await;
                if let Some(exchange) = found.filter(&brings) {
                    return exchange;
                }
            }
        }
        panic!("no request with results came")
    }

    /// The next request with this path (its query apart).
    pub async fn expect(&mut self, path: &str) -> Exchange {
        let found = self.within(PATIENCE, path).await;
        found.unwrap_or_else(|| {
            let others: Vec<&str> = self.set_aside.iter().map(|exchange| exchange.path.as_str()).collect();
            panic!("no request for {path} came; there are {others:?}")
        })
    }

    /// The next request with this path, if one comes in time.
    pub async fn within(&mut self, wait: Duration, path: &str) -> Option<Exchange> {
        let matches = |exchange: &Exchange| exchange.path.split('?').next() == Some(path);
        if let Some(index) = self.set_aside.iter().position(matches) {
            return Some(self.set_aside.remove(index));
        }
        tokio::time::timeout(wait, async {
            loop {
                let exchange = self.arriving.recv().await.expect("the listener runs");
                if matches(&exchange) {
                    return exchange;
                }
                self.set_aside.push(exchange);
            }
        })
        .await
        .ok()
    }

    /// Answers a registration.
    pub async fn register(&mut self, session: &str, heartbeat_interval_ms: u64) {
        let request = self.expect("/v1/workers/register").await;
        request.answer(
            200,
            json!({"session_id": session, "heartbeat_interval_ms": heartbeat_interval_ms, "session_timeout_ms": 2000}),
        );
    }

    /// Ends the server and closes every connection, as a kill would.
    pub async fn kill(self) -> SocketAddr {
        self.listening.abort();
        let addr = self.addr;
        drop(self);
        // The port is free once a new listener can have it.
        while TcpListener::bind(addr).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        addr
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen(listener: TcpListener, arrived: mpsc::UnboundedSender<Exchange>) {
    let mut connections = JoinSet::new();
    let arrived = Arc::new(Mutex::new(arrived));
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let arrived = Arc::clone(&arrived);
        let service = service_fn(move |request| serve(request, Arc::clone(&arrived)));
        connections.spawn(async move {
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(
    request: Request<Incoming>,
    arrived: Arc<Mutex<mpsc::UnboundedSender<Exchange>>>,
) -> Result<Response<Full<Bytes>>, &'static str> {
    let (parts, body) = request.into_parts();
    let text = String::from_utf8(body.collect().await.map_err(|_| "half a body")?.to_bytes().to_vec()).unwrap();
    let (answer, answered) = oneshot::channel();
    let exchange = Exchange {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: parts.headers,
        body: serde_json::from_str(&text).unwrap_or(Value::Null),
        text,
        answer,
    };
    arrived.lock().await.send(exchange).map_err(|_| "the test is over")?;
    answered.await.map_err(|_| "the test gave no answer")
}

/// A task as a poll's answer brings it.
pub fn task(token: &str) -> Value {
    json!({
        "token": token, "execution_id": token.split('/').next(), "workflow": "W", "workflow_version": "1.0.0",
        "step_id": "charge", "task_name": "payments.charge", "contract_version": "1", "input": {"amount": 5},
        "idempotency_key": "cluster/x/1/charge", "attempt": 1, "redelivery": false, "timeout_ms": 30000,
    })
}

/// What a poll's answer may hold.
pub fn polled(tasks: &[Value], cancel: &[&str], outcomes: &[(&str, &str)]) -> Value {
    json!({"tasks": tasks, "cancel": cancel, "outcomes": answered(outcomes)["outcomes"]})
}

/// The answer to a report.
pub fn answered(outcomes: &[(&str, &str)]) -> Value {
    let outcomes: Vec<Value> =
        outcomes.iter().map(|(token, outcome)| json!({"token": token, "outcome": outcome})).collect();
    json!({"outcomes": outcomes})
}
