//! Clients that send what they should not, or stop in the middle.

use super::support::{NEVER, Says, Seen, Server, fine, hold, one_task, poll, post, quick, soon};
use bytes::Bytes;
use orbit_io::driver::NodeHandle;
use orbit_io::http::{Extra, Front, HttpConfig};
use serde_json::json;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn a_connection_that_sends_nothing_is_closed_after_the_header_timeout() {
    // It is not taken for an idle one.
    let server = Server::start(HttpConfig { idle_timeout: NEVER, ..quick() }, fine);
    let begun = Instant::now();
    assert_eq!(server.connect().await.closed().await, b"");
    assert!(begun.elapsed() >= quick().header_timeout);
}

#[tokio::test]
async fn a_head_must_come_within_the_header_timeout_however_it_trickles() {
    let server = Server::start(HttpConfig { idle_timeout: NEVER, ..quick() }, fine);
    let mut client = server.connect().await;
    // On a connection that was used before, too.
    client.get("/livez").await;
    let begun = Instant::now();
    client.send("GET /livez HTTP/1.1\r\nhost: x\r\n").await;
    soon("the end of the connection", async {
        let mut byte = [0];
        // The server has nothing to say, so whatever can be read is the end.
        while tokio::time::timeout(Duration::from_millis(30), client.socket.read(&mut byte)).await.is_err() {
            let _ = client.socket.write_all(b"x: y\r\n").await;
        }
    })
    .await;
    assert!(begun.elapsed() >= quick().header_timeout);
}

#[tokio::test]
async fn a_body_that_stops_half_way_is_answered_with_408_and_the_connection_ends() {
    let server = Server::start(quick(), fine);
    let mut client = server.connect().await;
    let begun = Instant::now();
    client
        .send(
            "POST /v1/executions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
        )
        .await;
    let answer = client.answer().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "nobody waits for the rest after that");
    assert_eq!(answer.error(), (408, "REQUEST_TIMEOUT".into(), String::new()));
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(client.closed().await, b"");
    assert_eq!(server.stopped().await, []);
}

#[tokio::test]
async fn a_body_that_never_ends_is_answered_with_408_however_it_trickles() {
    let server = Server::start(quick(), fine);
    let head = "POST /v1/executions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    for (framing, piece) in [("content-length: 1000000", " "), ("transfer-encoding: chunked", "1\r\n \r\n")] {
        let mut client = server.connect().await;
        let begun = Instant::now();
        client.send(format!("{head}{framing}\r\n\r\n")).await;
        soon("an answer", async {
            while tokio::time::timeout(Duration::from_millis(20), client.socket.readable()).await.is_err() {
                client.send(piece).await;
            }
        })
        .await;
        assert!(begun.elapsed() >= quick().body_timeout);
        assert_eq!(client.answer().await.error(), (408, "REQUEST_TIMEOUT".into(), String::new()), "{framing}");
    }
    assert_eq!(server.stopped().await, []);
}

#[tokio::test]
async fn a_body_past_the_limit_is_refused_whether_its_length_is_announced_or_not() {
    let config = HttpConfig { body_limit: 1000, ..quick() };
    let server = Server::start(config, fine);
    let head = "POST /v1/executions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let (long, chunk) = ("x".repeat(1001), format!("64\r\n{}\r\n", "x".repeat(100)));
    for request in [
        format!("{head}content-length: 1001\r\n\r\n{long}"),
        format!("{head}transfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(11)),
    ] {
        let mut client = server.connect().await;
        client.send(request).await;
        let answer = client.answer().await;
        assert_eq!(answer.error(), (413, "PAYLOAD_TOO_LARGE".into(), String::new()));
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains("1000 bytes (--body-limit)"));
        // The body was read to its end, so the connection serves on.
        assert_eq!(client.get("/livez").await.status, 200);
    }
}

#[tokio::test]
async fn a_client_that_asks_first_is_refused_before_it_sends() {
    let server = Server::start(quick(), fine);
    let mut client = server.connect().await;
    let head = "POST /v1/executions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n";
    let begun = Instant::now();
    client.send(format!("{head}content-length: 99999999999\r\n\r\n")).await;
    assert_eq!(client.answer().await.status, 413);
    assert!(begun.elapsed() < Duration::from_secs(10), "nobody waits for bytes that will not come");

    let mut client = server.connect().await;
    client.send(format!("{head}content-length: 2\r\n\r\n")).await;
    assert_eq!(client.head_of_answer().await.status, 100);
    client.send("{}").await;
    assert_eq!(client.answer().await.error(), (400, "INVALID_REQUEST".into(), "workflow".into()));
}

#[tokio::test]
async fn bodies_that_are_no_valid_request_are_refused_and_the_connection_serves_on() {
    let server = Server::start(quick(), fine);
    let mut client = server.connect().await;
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    type Case<'a> = (&'a str, &'a str, &'a [u8], u16, &'a str, &'a str);
    let cases: [Case<'_>; 11] = [
        ("/v1/executions", "application/json", b"{\"workflow\":\"\xff\"}", 400, "INVALID_REQUEST", ""),
        ("/v1/executions", "application/json", b"{\"workflow\":\"W\",\"workflow\":\"W\"}", 400, "INVALID_REQUEST", ""),
        ("/v1/executions", "application/json", &deep, 400, "INVALID_REQUEST", ""),
        ("/v1/executions", "application/json", b"", 400, "INVALID_REQUEST", ""),
        ("/v1/executions", "application/json", b"{\"workflow\":\"W\"", 400, "INVALID_REQUEST", ""),
        ("/v1/executions", "application/json", b"{\"worfklow\":\"W\"}", 400, "INVALID_REQUEST", "worfklow"),
        ("/v1/executions", "application/json", b"{\"workflow\":\"a\\u0000\"}", 400, "INVALID_REQUEST", "workflow"),
        ("/v1/executions", "text/plain", b"{\"workflow\":\"W\"}", 415, "UNSUPPORTED_MEDIA_TYPE", ""),
        ("/v1/executions", "application/yaml", b"workflow: W", 415, "UNSUPPORTED_MEDIA_TYPE", ""),
        ("/v1/executions/%zz/cancel", "application/json", b"{}", 400, "INVALID_REQUEST", "execution_id"),
        ("/v1/executions/a%2Fb/cancel", "application/json", b"{}", 400, "INVALID_REQUEST", "execution_id"),
    ];
    for (target, content_type, body, status, code, path) in cases {
        client.send(post(target, content_type, body)).await;
        let answer = client.answer().await;
        assert_eq!(answer.error(), (status, code.into(), path.into()), "{target} {answer:?}");
    }
    assert_eq!(client.get("/livez").await.status, 200);
    let seen = server.stopped().await;
    assert_eq!(seen.len(), 1, "only the probe reached the node: {seen:?}");
}

#[tokio::test]
async fn what_is_no_http_is_answered_with_400_and_the_connection_ends() {
    let server = Server::start(quick(), fine);
    for (garbage, status, code) in [
        ("\x16\x03\x01 hello\r\n\r\n".to_owned(), 400, "INVALID_REQUEST"),
        ("GET / HTTP/1.1\r\nhost x\r\n\r\n".to_owned(), 400, "INVALID_REQUEST"),
        (
            "POST /v1/executions HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
            400,
            "INVALID_REQUEST",
        ),
        (format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(100_000)), 431, "HEAD_TOO_LARGE"),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(200)), 431, "HEAD_TOO_LARGE"),
    ] {
        let mut client = server.connect().await;
        let _ = client.socket.write_all(garbage.as_bytes()).await;
        let answer = client.answer().await;
        assert_eq!(answer.error(), (status, code.into(), String::new()), "{answer:?}");
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(answer.json()["error"]["request_id"], *answer.header("x-request-id").expect("an id"));
        assert_eq!(client.closed().await, b"");
    }
    assert_eq!(server.stopped().await, []);
}

#[tokio::test]
async fn what_is_no_http_after_a_request_is_answered_after_it() {
    let server = Server::start(quick(), fine);
    for (first, pause) in [("GET /livez", false), ("GET /livez", true), ("HEAD /livez", false), ("HEAD /livez", true)] {
        let mut client = server.connect().await;
        let first = format!("{first} HTTP/1.1\r\nhost: x\r\n\r\n");
        let answered = async |client: &mut super::support::Client| match first.starts_with("HEAD") {
            true => client.head_of_answer().await.status,
            false => client.answer().await.status,
        };
        if pause {
            client.send(&first).await;
            assert_eq!(answered(&mut client).await, 200);
            client.send("no http\r\n\r\n").await;
        } else {
            client.send(format!("{first}no http\r\n\r\n")).await;
            assert_eq!(answered(&mut client).await, 200);
        }
        assert_eq!(client.answer().await.error(), (400, "INVALID_REQUEST".into(), String::new()));
        assert_eq!(client.closed().await, b"");
    }
}

#[tokio::test]
async fn a_client_that_goes_on_sending_what_is_no_http_reads_the_answer_and_is_not_heard_for_ever() {
    let server = Server::start(quick(), fine);
    let mut client = server.connect().await;
    client.send(format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(300_000))).await;
    let answer = client.answer().await;
    assert_eq!(answer.error(), (431, "HEAD_TOO_LARGE".into(), String::new()));
    soon("the end of the connection", async {
        while client.socket.write_all(&[b'y'; 1000]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn requests_count_for_the_memory_that_their_values_take_and_not_for_their_text() {
    let config = HttpConfig { max_body_memory: 10_000, ..quick() };
    let server = Server::start(config, fine);
    // 2,000 bytes of text, 32,000 of memory.
    let many = [b"{\"workflow\":\"W\",\"input\":[1", ",1".repeat(999).as_bytes(), b"]}"].concat();
    let few = [b"{\"workflow\":\"W\",\"input\":\"", &[b'x'; 2_000][..], b"\"}"].concat();
    for _ in 0..10 {
        let mut client = server.connect().await;
        client.send(&post("/v1/executions", "application/json", &many)).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")));
        client.send(&post("/v1/executions", "application/json", &few)).await;
        assert_ne!(client.answer().await.status, 429);
    }
}

#[tokio::test]
async fn bodies_that_are_read_at_the_same_time_share_a_bound_of_memory() {
    let config = HttpConfig { max_body_memory: 1000, body_timeout: NEVER, ..quick() };
    let server = Server::start(config, fine);
    let body = [b"{\"workflow\":\"W\",\"input\":\"", &[b'x'; 560][..], b"\"}"].concat();
    let whole = post("/v1/executions", "application/json", &body);
    let mut slow = server.connect().await;
    slow.send(&whole[..whole.len() - 2]).await;
    // Until the front has read what was sent, another one may still find room.
    soon("a refusal", async {
        loop {
            let mut other = server.connect().await;
            other.send(&whole).await;
            let answer = other.answer().await;
            if answer.status == 429 {
                assert_eq!(answer.error().1, "RESOURCE_EXHAUSTED");
                assert_eq!(answer.header("retry-after"), Some("1"));
                return;
            }
        }
    })
    .await;
    slow.send(&whole[whole.len() - 2..]).await;
    assert_ne!(slow.answer().await.status, 429);
    let mut other = server.connect().await;
    other.send(&whole).await;
    assert_ne!(other.answer().await.status, 429, "there is room again");
}

#[tokio::test]
async fn a_client_that_still_sends_a_body_past_the_limit_gets_to_read_the_answer() {
    let server = Server::start(HttpConfig { body_limit: 1000, ..quick() }, fine);
    let mut client = server.connect().await;
    // More than the buffers of both sockets hold, so that sending it ends only if somebody reads.
    client.send(post("/v1/executions", "application/json", &vec![b' '; 12 << 20])).await;
    assert_eq!(client.answer().await.status, 413);
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_a_long_answer_is_given_up_and_the_node_learns_it() {
    let config = HttpConfig { idle_timeout: NEVER, header_timeout: NEVER, ..quick() };
    let mut server = Server::start(config, |_| Says::Answer(one_task(32 << 20)));
    let mut client = server.connect().await;
    let begun = Instant::now();
    client.send(post("/v1/workers/poll", "application/json", poll().to_string().as_bytes())).await;
    let (id, _) = server.next_request().await;
    assert_eq!(server.next().await, Seen::AnswerLost(id));
    assert!(begun.elapsed() >= quick().write_timeout);
    drop(client);
}

#[tokio::test]
async fn connections_past_the_limit_are_told_so() {
    let config = HttpConfig { max_connections: 2, ..quick() };
    let server = Server::start(config, fine);
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    assert_eq!(first.get("/livez").await.status, 200);
    assert_eq!(second.get("/livez").await.status, 200);
    let mut third = server.connect().await;
    let answer = third.get("/livez").await;
    assert_eq!(answer.error(), (429, "RESOURCE_EXHAUSTED".into(), String::new()));
    assert_eq!((answer.header("retry-after"), answer.header("connection")), (Some("1"), Some("close")));
    assert_eq!(third.closed().await, b"");
    // Both go on, and a place that is free again is taken.
    assert_eq!(first.get("/livez").await.status, 200);
    second.send("GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    second.answer().await;
    assert_eq!(second.closed().await, b"");
    soon("a free place", async {
        loop {
            if server.connect().await.get("/livez").await.status == 200 {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_node_with_too_many_requests_is_said_to_be_overloaded_and_one_that_stopped_not_ready() {
    // Nobody takes what is in the channel, and there is room for one.
    let (node, requests, notices) = NodeHandle::new(1);
    let front = Front::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = front.local_addr();
    let serving = tokio::spawn(front.serve(node.clone(), quick(), std::future::pending()));
    let _waiting = node.submit(orbit_core::api::Request::Livez).unwrap();
    let ask = async || {
        let mut server = tokio::net::TcpStream::connect(addr).await.unwrap();
        let request = b"GET /v1/executions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        server.write_all(request).await.unwrap();
        let mut answer = String::new();
        server.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = ask().await;
    assert!(answer.starts_with("HTTP/1.1 429 ") && answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    assert!(answer.contains("RESOURCE_EXHAUSTED"), "{answer}");
    drop((requests, notices));
    let answer = ask().await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    assert!(answer.contains("NOT_READY"), "{answer}");
    serving.abort();
}

/// A service beside the API, which panics where it is asked to.
struct Pages;

impl Extra for Pages {
    fn serves(&self, path: &str) -> bool {
        path.starts_with("/ui/")
    }

    fn serve(&self, request: hyper::Request<Bytes>) -> Pin<Box<dyn Future<Output = hyper::Response<Bytes>> + Send>> {
        Box::pin(async move {
            assert!(request.uri().path() != "/ui/broken", "on purpose");
            let text = format!("{} {} {}", request.method(), request.uri(), request.body().len());
            let mut response = hyper::Response::new(Bytes::from(text));
            response.headers_mut().insert("content-type", "text/html".parse().unwrap());
            response
        })
    }
}

#[tokio::test]
async fn a_panic_is_an_internal_error_and_the_connection_serves_on() {
    let server = Server::start_with(quick(), Some(Arc::new(Pages)), fine);
    let mut client = server.connect().await;
    assert_eq!(client.get("/ui/broken").await.error(), (500, "INTERNAL".into(), String::new()));
    assert_eq!(client.get("/livez").await.status, 200);
}

#[tokio::test]
async fn a_service_beside_the_api_gets_what_the_api_does_not_know() {
    let config = HttpConfig { token: Some("secret".into()), ..quick() };
    let server = Server::start_with(config, Some(Arc::new(Pages)), fine);
    let mut client = server.connect().await;
    let answer = client.get("/ui/page?x=1").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/html")));
    assert_eq!(answer.body, b"GET /ui/page?x=1 0");
    assert!(answer.header("x-request-id").is_some());
    client.send(post("/ui/form", "text/plain", b"hello")).await;
    assert_eq!(client.answer().await.body, b"POST /ui/form 5");
    assert_eq!(client.get("/other").await.status, 401, "what neither knows is not shown to strangers");
}

#[tokio::test]
async fn with_a_token_only_health_and_the_probes_are_open() {
    let config = HttpConfig { token: Some("secret".into()), ..quick() };
    let mut server = Server::start(config, fine);
    let mut client = server.connect().await;
    for open in ["/v1/health", "/v1/ready", "/livez", "/readyz", "/leaderz"] {
        assert_eq!(client.get(open).await.status, 200, "{open}");
        server.next_request().await;
    }
    for closed in ["/v1/metrics", "/v1/executions", "/v1/workers", "/v1/zebra", "/v1/executions/%zz"] {
        let answer = client.get(closed).await;
        assert_eq!(answer.error(), (401, "UNAUTHORIZED".into(), String::new()), "{closed}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"orbit\""));
    }
    assert_eq!(client.post("/v1/executions", &json!({"workflow": "W"})).await.status, 401);
    for (credentials, status) in [
        ("Bearer secret", 200),
        ("bearer secret", 200),
        ("Bearer secrets", 401),
        ("Bearer secre", 401),
        ("Bearer ", 401),
        ("Basic secret", 401),
        ("secret", 401),
    ] {
        client.send(format!("GET /v1/workers HTTP/1.1\r\nhost: x\r\nauthorization: {credentials}\r\n\r\n")).await;
        assert_eq!(client.answer().await.status, status, "{credentials}");
    }
    assert_eq!(server.stopped().await.len(), 2, "only the two with the token reached the node");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let server = Server::start(quick(), hold);
    let error = Front::bind(server.addr).err().expect("taken");
    let expected = format!("cannot listen on {}: another process uses port {}", server.addr, server.addr.port());
    assert!(error.to_string().starts_with(&expected), "{error}");
    let error = Front::bind("203.0.113.7:80".parse().unwrap()).err().expect("not here");
    assert!(error.to_string().contains("this machine has no such address"), "{error}");
}
