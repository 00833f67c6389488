//! Connections that are reused, that go away, and that see the server stop.

use super::support::{NEVER, Says, Seen, Server, fine, hold, one_task, poll, post, quick, soon};
use orbit_core::api::response::Reply;
use orbit_core::api::{Request, Response};
use orbit_io::http::HttpConfig;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

fn poll_bytes() -> Vec<u8> {
    post("/v1/workers/poll", "application/json", poll().to_string().as_bytes())
}

fn ok() -> Response {
    Response::ok(Reply::Probe { ok: true })
}

#[tokio::test]
async fn a_connection_is_reused_and_closed_once_it_is_idle_for_too_long() {
    let server = Server::start(quick(), fine);
    let mut client = server.connect().await;
    client.get("/livez").await;
    // Idle for longer than a head may take, as one that is begun now shows: that is another deadline.
    let mut witness = server.connect().await;
    witness.send("GET /livez HT").await;
    witness.closed().await;
    assert_eq!(client.get("/livez").await.status, 200);
    let begun = Instant::now();
    assert_eq!(client.closed().await, b"");
    assert!(begun.elapsed() >= quick().idle_timeout);
}

#[tokio::test]
async fn a_request_may_take_longer_than_any_deadline_of_its_connection() {
    let mut server = Server::start(quick(), |request| match request {
        Request::Poll(_) => Says::Hold,
        other => fine(other),
    });
    let mut client = server.connect().await;
    client.send(poll_bytes()).await;
    server.next_request().await;
    // A connection that is idle from now on is closed in time, and the longest of its deadlines is that.
    assert!(quick().idle_timeout > quick().header_timeout.max(quick().body_timeout).max(quick().write_timeout));
    let mut witness = server.connect().await;
    witness.get("/livez").await;
    witness.closed().await;
    server.answer_held(one_task(3)).await;
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test]
async fn requests_sent_at_once_are_answered_in_their_order() {
    let mut server = Server::start(quick(), hold);
    let mut client = server.connect().await;
    let start = |workflow: &str| {
        post("/v1/executions", "application/json", json!({"workflow": workflow}).to_string().as_bytes())
    };
    client.send([start("a"), start("b"), b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n".to_vec()].concat()).await;
    for status in [201, 202, 203] {
        server.next_request().await;
        server.answer_held(Response { status, retry_after: None, reply: Reply::Unregistered }).await;
        assert_eq!(client.answer().await.status, status);
    }
}

#[tokio::test]
async fn bodies_come_in_pieces_and_in_chunks() {
    let mut server = Server::start(quick(), fine);
    let mut client = server.connect().await;
    // What is answered on another connection shows that the server has read what came before it.
    let mut other = server.connect().await;
    let head = "POST /v1/executions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let expected = |request: &Request| matches!(request, Request::Start(start) if start.workflow.as_str() == "W");
    client.send(format!("{head}content-length: 16\r\n\r\n{{\"work")).await;
    other.get("/livez").await;
    server.next_request().await;
    client.send("flow\":\"W\"}").await;
    client.answer().await;
    assert!(expected(&server.next_request().await.1));
    client.send(format!("{head}transfer-encoding: chunked\r\n\r\n6\r\n{{\"work\r\n")).await;
    other.get("/livez").await;
    server.next_request().await;
    client.send("a\r\nflow\":\"W\"}\r\n0\r\n\r\n").await;
    client.answer().await;
    assert!(expected(&server.next_request().await.1));
}

#[tokio::test]
async fn a_client_that_leaves_a_long_poll_is_reported_as_gone() {
    let mut server = Server::start(quick(), hold);
    for target in ["/v1/workers/poll", "/v1/executions/a/wait"] {
        let mut client = server.connect().await;
        client
            .send(match target {
                "/v1/workers/poll" => poll_bytes(),
                _ => format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").into_bytes(),
            })
            .await;
        let (id, _) = server.next_request().await;
        drop(client);
        assert_eq!(server.next().await, Seen::Gone(id), "{target}");
    }
}

#[tokio::test]
async fn an_answer_to_a_poll_that_cannot_be_written_is_reported_as_lost() {
    let mut server = Server::start(HttpConfig { write_timeout: NEVER, ..quick() }, hold);
    let mut client = server.connect().await;
    client.send(poll_bytes()).await;
    let (id, _) = server.next_request().await;
    // More than the buffers of both sockets hold, so that it is still being written when the client goes.
    server.answer_held(one_task(32 << 20)).await;
    soon("the first bytes of the answer", client.socket.readable()).await.unwrap();
    drop(client);
    assert_eq!(server.next().await, Seen::AnswerLost(id));
}

#[tokio::test]
async fn a_client_that_is_slow_to_take_a_long_answer_gets_it_whole() {
    let config = HttpConfig { idle_timeout: Duration::from_millis(200), write_timeout: NEVER, ..quick() };
    let server = Server::start(config, |request| match request {
        Request::Poll(_) => Says::Answer(one_task(32 << 20)),
        other => fine(other),
    });
    let mut client = server.connect().await;
    client.send(poll_bytes()).await;
    soon("the first bytes of the answer", client.socket.readable()).await.unwrap();
    // One that is idle from now on is closed before the long answer is taken.
    let mut witness = server.connect().await;
    witness.get("/livez").await;
    witness.closed().await;
    assert!(client.answer().await.body.len() > 32 << 20);
    assert_eq!(client.get("/livez").await.status, 200, "it is not idle before it has it");
}

#[tokio::test]
async fn an_answer_that_was_written_is_not_reported_as_lost() {
    let mut server = Server::start(quick(), hold);
    let mut client = server.connect().await;
    for _ in 0..3 {
        client.send(poll_bytes()).await;
        server.next_request().await;
        server.answer_held(one_task(100)).await;
        assert_eq!(client.answer().await.status, 200);
    }
    drop(client);
    assert_eq!(server.stopped().await, []);
}

#[tokio::test]
async fn a_stop_closes_idle_connections_at_once_and_lets_requests_end() {
    let config = HttpConfig { header_timeout: NEVER, idle_timeout: NEVER, stop_timeout: NEVER, ..quick() };
    let mut server = Server::start(config, hold);
    let mut used = server.connect().await;
    let silent = server.connect().await;
    let mut busy = server.connect().await;
    used.send("GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await;
    server.next_request().await;
    server.answer_held(ok()).await;
    used.answer().await;
    busy.send(poll_bytes()).await;
    server.next_request().await;

    server.ask_to_stop();
    assert_eq!(used.closed().await, b"");
    assert_eq!(silent.closed().await, b"");
    let refused = TcpStream::connect(server.addr).await;
    assert!(refused.is_err(), "nothing new is taken in");

    server.answer_held(one_task(3)).await;
    let answer = busy.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert_eq!(busy.closed().await, b"");
    assert_eq!(server.ended().await, []);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let mut server = Server::start(quick(), hold);
    let mut client = server.connect().await;
    client.send(poll_bytes()).await;
    let (id, _) = server.next_request().await;
    let begun = Instant::now();
    server.ask_to_stop();
    assert_eq!(client.closed().await, b"");
    assert!(begun.elapsed() >= quick().stop_timeout);
    assert_eq!(server.ended().await, [Seen::Gone(id)]);
}
