//! What clients do that no SDK would: they keep connections for ever, send half of a request, read half of an answer, or
//! nothing at all, and come back with a session that is over.
//!
//! Each of these ends early where its connection does: that is nobody's mistake. Whatever else goes otherwise than it
//! must is.

use super::raw::{Raw, Said, get, head, post};
use super::server::{BODY_TIMEOUT, REQUEST_DEADLINE, SESSION_TIMEOUT, WRITE_TIMEOUT};
use super::socket::PORT;
use super::trace::Mark;
use super::world::Host;
use serde_json::{Value, json};
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long an answer may take that waits for nothing, with the way there and back.
const BOUND: Duration = Duration::from_secs(REQUEST_DEADLINE.as_secs() + 3);

/// A document of the API that is larger than what may wait unread on a connection.
const LARGE: &str = "/v1/openapi.json";

/// What a leader answers with UNKNOWN_WORKFLOW, and nobody else.
fn only_leaders_know() -> Vec<u8> {
    post("/v1/executions", &json!({"workflow": "Nowhere", "execution_id": "nowhere"}))
}

impl Host {
    /// Opens a connection.
    async fn connect(&self, server: &'static str) -> io::Result<Raw> {
        Raw::connect(server, self.weather.since(server, self.name)).await
    }

    /// Whether nothing has come between since a connection was opened.
    fn is_calm(&self, raw: &Raw) -> bool {
        self.weather.was_calm(raw.since, raw.server, self.name)
    }

    /// Asks on a connection. In calm weather, an answer that does not come is a mistake.
    async fn ask(&self, raw: &mut Raw, request: &[u8], bound: Duration) -> io::Result<Said> {
        let begun = Instant::now();
        let said = raw.ask(request, bound).await;
        if said.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) && self.is_calm(raw) {
            self.trace.wrong(format!("{}: no answer within {bound:?} of calm weather", self.name));
        }
        match &said {
            Ok(said) => {
                let took = begun.elapsed().as_millis();
                self.trace.record(format!("{} is told {} {} after {took} ms", self.name, said.status, said.code()));
            }
            Err(error) => self.trace.record(format!("{} is told nothing: {error}", self.name)),
        }
        said
    }
}

/// Asks on one connection again and again, for as long as the server leads, and once more. Says where it was sent then.
pub async fn keep_alive(host: &Host, server: &'static str, patience: Duration) -> io::Result<Option<String>> {
    let mut raw = host.connect(server).await?;
    let end = Instant::now() + patience;
    let mut led = false;
    while Instant::now() < end {
        let said = host.ask(&mut raw, &only_leaders_know(), BOUND).await?;
        match said.code() {
            "UNKNOWN_WORKFLOW" => led = true,
            "NOT_LEADER" => {
                let leader = said.header("x-orbit-leader").map(str::to_owned);
                if leader == Some(format!("http://{server}:{PORT}")) {
                    host.trace.wrong(format!("{server} does not lead, and says that {server} does"));
                }
                if led {
                    host.trace.hit(Mark::KeptToOldLeader);
                    // It has lost the lead just now; who has it next is known only once somebody has.
                    if leader.is_some() {
                        return Ok(leader);
                    }
                }
            }
            // It is about to lead, or to end.
            "NOT_READY" | "FENCED" | "OUTCOME_UNKNOWN" | "STORAGE_ERROR" | "RESOURCE_EXHAUSTED" => {}
            other => host.trace.wrong(format!("{server} answered {} {other}", said.status)),
        }
        sleep(Duration::from_millis(250)).await;
    }
    Ok(None)
}

/// Sends half of a request that would start something, and then nothing: it must be told so in time, and what comes late
/// must be nobody's request.
pub async fn half_body(host: &Host, server: &'static str, id: &str) -> io::Result<()> {
    let mut raw = host.connect(server).await?;
    let body = json!({"workflow": "Errand", "execution_id": format!("half-{id}"), "input": {"of": "x".repeat(2_000)}});
    let body = body.to_string().into_bytes();
    raw.send(&head("/v1/executions", body.len())).await?;
    raw.send(&body[..body.len() / 2]).await?;
    let said = host.ask(&mut raw, &[], BODY_TIMEOUT + BOUND).await?;
    match said.code() {
        "REQUEST_TIMEOUT" => host.trace.hit(Mark::HalfBody),
        // A standby has nothing to do with it; one that has no room says so before.
        "NOT_LEADER" | "RESOURCE_EXHAUSTED" => {}
        other => host.trace.wrong(format!("half a body was answered with {} {other}", said.status)),
    }
    // The rest, which would be a request of its own if anybody took it for one.
    raw.send(&body[body.len() / 2..]).await?;
    raw.send(&post("/v1/executions", &json!({"workflow": "Errand", "execution_id": format!("half-{id}-late")})))
        .await?;
    match timeout(BOUND, raw.answer()).await {
        Ok(Ok(Some(said))) if said.status < 300 => {
            host.trace.wrong(format!("what came after half a body was answered with {}", said.status));
        }
        Ok(_) => {}
        Err(_) if host.is_calm(&raw) => host.trace.wrong("a connection with half a body stayed open"),
        Err(_) => {}
    }
    Ok(())
}

/// Goes away in the middle of a request.
pub async fn vanish(host: &Host, server: &'static str, id: &str) -> io::Result<()> {
    let mut raw = host.connect(server).await?;
    raw.send(&head("/v1/executions", 4_000)).await?;
    let begun = format!(r#"{{"workflow":"Errand","execution_id":"half-{id}","input":{{"of":""#);
    raw.send(begun.as_bytes()).await?;
    sleep(Duration::from_millis(100)).await;
    host.trace.record(format!("{} goes away", host.name));
    Ok(())
}

/// Reads half of an answer, and goes away.
pub async fn half_answer(host: &Host, server: &'static str) -> io::Result<()> {
    let mut raw = host.connect(server).await?;
    raw.send(&get(LARGE)).await?;
    let reads = async {
        while raw.heard() < 20_000 && raw.read().await? {}
        io::Result::Ok(())
    };
    timeout(BOUND, reads).await.map_err(|_| io::ErrorKind::TimedOut)??;
    if raw.heard() >= 20_000 {
        host.trace.hit(Mark::HalfAnswer);
    }
    Ok(())
}

/// Asks for much, and reads nothing: it must be cut off.
pub async fn slow_reader(host: &Host, server: &'static str) -> io::Result<()> {
    let mut raw = host.connect(server).await?;
    raw.send(&get(LARGE)).await?;
    sleep(WRITE_TIMEOUT + Duration::from_secs(2)).await;
    // What had been sent by then is there still. The end is not where as much waits as can (the network forgets it); a
    // byte that goes the other way finds it.
    let mut read = timeout(Duration::from_secs(1), raw.answer()).await;
    if read.is_err() {
        let _ = raw.send(b"\r\n").await;
        read = timeout(Duration::from_secs(1), raw.answer()).await;
    }
    let (was_calm, heard) = (host.is_calm(&raw), raw.heard());
    match read {
        Ok(Ok(None) | Err(_)) if heard > 0 && was_calm => {
            host.trace.record(format!("{} is cut off after {heard} bytes", host.name));
            host.trace.hit(Mark::SlowReader);
        }
        // There was no room for it.
        Ok(Ok(Some(said))) if said.status == 429 => {}
        Ok(Ok(Some(_))) if was_calm => host.trace.wrong("who reads nothing for long was not cut off"),
        Err(_) if was_calm => host.trace.wrong("who reads nothing for long is kept waiting"),
        _ => {}
    }
    Ok(())
}

/// Asks for much, and reads it in small pieces with pauses: it must get everything.
pub async fn steady_reader(host: &Host, server: &'static str) -> io::Result<Option<Said>> {
    let mut raw = host.connect(server).await?;
    raw.send(&get(LARGE)).await?;
    while !raw.has_answer() {
        sleep(Duration::from_millis(200)).await;
        if !raw.read().await? {
            return Ok(None);
        }
    }
    raw.answer().await
}

/// A worker by hand.
pub struct Hand {
    pub session: Value,
    pub raw: Raw,
}

/// Registers for everything.
pub async fn register(host: &Host, server: &'static str) -> io::Result<Option<Hand>> {
    let mut raw = host.connect(server).await?;
    let contracts = json!([
        {"task_name": "errand.fetch", "contract_version": "1"}, {"task_name": "errand.bring", "contract_version": "1"},
    ]);
    let body = json!({"worker_id": host.name, "runtime": "hand", "sdk": "none", "contracts": contracts});
    let said = host.ask(&mut raw, &post("/v1/workers/register", &body), BOUND).await?;
    let session = said.body["session_id"].clone();
    Ok((said.status == 200).then_some(Hand { session, raw }))
}

/// A poll by hand.
pub fn poll(session: &Value) -> Vec<u8> {
    post("/v1/workers/poll", &json!({"session_id": session, "max_tasks": 2, "wait_ms": 20_000, "holding": []}))
}

/// Polls, hears nothing of its server for longer than its session lives, and then reports what the poll brought. Says
/// how many tasks it brought.
pub async fn outlived_poll(host: &Host, server: &'static str) -> io::Result<usize> {
    let Some(Hand { session, mut raw }) = register(host, server).await? else { return Ok(0) };
    raw.send(&poll(&session)).await?;
    sleep(Duration::from_millis(100)).await;
    host.record(format!("{} hears nothing of {server}", host.name));
    host.weather.begins(server, host.name);
    turmoil::hold(host.name, server);
    sleep(SESSION_TIMEOUT + Duration::from_millis(1_500)).await;
    turmoil::release(host.name, server);
    host.weather.ends(server, host.name);
    let polled = timeout(BOUND, raw.answer()).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let Some(polled) = polled else { return Ok(0) };
    let tasks = polled.body["tasks"].as_array().cloned().unwrap_or_default();
    host.record(format!("{} is brought {} tasks late: {} {}", host.name, tasks.len(), polled.status, polled.code()));
    let output = json!({"of": "late", "what": "late"});
    let results: Vec<Value> = tasks.iter().map(|task| json!({"token": task["token"], "output": output})).collect();
    let report = match results.is_empty() {
        true => post("/v1/workers/heartbeat", &json!({"session_id": session, "holding": []})),
        false => post("/v1/tasks/complete", &json!({"session_id": session, "results": results})),
    };
    let said = host.ask(&mut raw, &report, BOUND).await?;
    if said.code() == "UNKNOWN_SESSION" {
        host.trace.hit(Mark::PollOutlived);
        if !tasks.is_empty() {
            host.trace.hit(Mark::BroughtLate);
        }
    }
    let outcomes = said.body["outcomes"].as_array().cloned().unwrap_or_default();
    if outcomes.iter().any(|outcome| outcome["outcome"] == "accepted") {
        host.trace.wrong(format!("{}: what a lost worker brought late was taken: {}", host.name, said.body));
    }
    Ok(tasks.len())
}
