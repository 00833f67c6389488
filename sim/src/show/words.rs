//! Words for what a trace tells: requests, answers, transactions, what they changed, log lines, faults.
//!
//! Everything is read from JSON by its names, so that a trace of another version is shown as far as it is understood.

use serde_json::Value;
use std::collections::BTreeSet;

/// What kind of thing it is, so that a reader can leave kinds out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A request that changes something, and its answer.
    Client,
    /// A request that reads.
    Read,
    /// A worker's request that brings or takes something.
    Worker,
    /// One that does neither.
    Idle,
    /// A transaction that records decisions.
    Write,
    /// One that says who may write.
    Lead,
    /// One that looks at the state of things: the fence, the lock, who lives.
    Watch,
    /// One that reads executions.
    Load,
    /// Something that went wrong, as its process sees it.
    Trouble,
    /// A log line.
    Log,
    /// What the world does.
    Fault,
    /// What a process is: there, leading, standing still.
    State,
    /// What a check says.
    Violation,
}

/// Something said of one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    pub kind: Kind,
    pub text: String,
    /// Executions that it concerns.
    pub about: BTreeSet<String>,
    /// Whether somebody who wants to know what happened wants to hear of it in any case.
    pub key: bool,
    /// The term in which it is done.
    pub term: Option<u64>,
}

impl Said {
    /// Something that only those look at who look for it.
    pub fn new(kind: Kind, text: impl Into<String>) -> Said {
        Said { kind, text: text.into(), about: BTreeSet::new(), key: false, term: None }
    }

    /// Something that matters.
    pub fn key(kind: Kind, text: impl Into<String>) -> Said {
        Said { key: true, ..Said::new(kind, text) }
    }

    fn about(mut self, id: &Value) -> Said {
        self.about.extend(id.as_str().map(str::to_owned));
        self
    }
}

/// A value of an enum: its variant, and what is in it.
pub fn variant(value: &Value) -> (&str, &Value) {
    match value {
        Value::String(name) => (name, &Value::Null),
        Value::Object(members) if members.len() == 1 => {
            members.iter().next().map_or(("", &Value::Null), |(name, inner)| (name.as_str(), inner))
        }
        _ => ("", value),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("?")
}

fn count(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// `3 tasks`, `1 task`.
pub fn several(n: usize, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

/// A text that fits into a picture.
pub fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(std::iter::once('…')).collect()
}

/// A request.
pub fn request(request: &Value) -> Said {
    let (name, r) = variant(request);
    let client = |text: String| Said::new(Kind::Client, text);
    let read = |text: String| Said::new(Kind::Read, text);
    match name {
        "Deploy" => client(format!("deploy {} {}", text(&r["document"], "name"), text(&r["document"], "version"))),
        "Start" => match r["execution_id"].as_str() {
            Some(id) => client(format!("start {id} ({})", text(r, "workflow"))).about(&r["execution_id"]),
            None => client(format!("start {}", text(r, "workflow"))),
        },
        "Cancel" | "Terminate" => {
            client(format!("{} {}", name.to_lowercase(), text(r, "execution"))).about(&r["execution"])
        }
        "Signal" | "Update" => {
            let kind = name.to_lowercase();
            let key = r[&kind]["key"].as_str().map_or_else(String::new, |key| format!(", id {key:?}"));
            client(format!("{kind} `{}` to {}{key}", text(&r[&kind], "name"), text(r, "execution")))
                .about(&r["execution"])
        }
        "StepDown" => Said::key(Kind::Client, "step down"),
        "GetExecution" => read(format!("read {}", r.as_str().unwrap_or("?"))).about(r),
        "GetHistory" => read(format!("read the history of {}", text(r, "execution"))).about(&r["execution"]),
        "Wait" => read(format!("wait for {}", text(r, "execution"))).about(&r["execution"]),
        "Query" => read(format!("query `{}` of {}", text(r, "name"), text(r, "execution"))).about(&r["execution"]),
        "Register" => Said::new(Kind::Worker, format!("register {}", text(r, "worker_id"))),
        "Unregister" => Said::new(Kind::Worker, "unregister"),
        "Poll" => poll(r),
        "Heartbeat" => Said::new(Kind::Idle, "heartbeat"),
        "Report" => results(Said::new(Kind::Worker, "report"), &r["results"]),
        other => read(other.to_owned()),
    }
}

fn poll(poll: &Value) -> Said {
    let idle = count(&poll["results"]) == 0;
    results(Said::new(if idle { Kind::Idle } else { Kind::Worker }, "poll"), &poll["results"])
}

/// What a worker says of its tasks.
fn results(mut said: Said, results: &Value) -> Said {
    for result in each(results) {
        let (outcome, _) = variant(&result["outcome"]);
        let token = text(result, "token");
        let execution = token.split('/').next().unwrap_or(token);
        said.about.insert(execution.to_owned());
        said.text += &format!(", a task of {execution} {}", outcome.to_lowercase());
    }
    said
}

/// An answer.
pub fn response(response: &Value) -> Said {
    let status = &response["status"];
    let (name, r) = variant(&response["reply"]);
    let said = |kind, text: String| Said::new(kind, format!("{status} {text}"));
    match name {
        "Error" => {
            let kind = if status.as_u64().is_some_and(|status| status >= 500) { Kind::Trouble } else { Kind::Client };
            said(kind, format!("{}: {}", text(r, "code"), text(r, "message")))
        }
        "Started" => {
            let how = if r["created"] == true { "started" } else { "had been started before:" };
            said(Kind::Client, format!("{how} {}", text(r, "execution_id"))).about(&r["execution_id"])
        }
        "Deployed" => said(Kind::Client, format!("deployed {}", text(r, "name"))),
        "Cancelled" | "Terminated" | "Execution" => {
            let kind = if name == "Execution" { Kind::Read } else { Kind::Client };
            said(kind, format!("{} is {}", text(r, "execution_id"), text(r, "status"))).about(&r["execution_id"])
        }
        "History" => said(Kind::Read, several(count(&r["events"]), "event")).about(&r["execution_id"]),
        "Signalled" => said(Kind::Client, format!("taken in as event {}", r["seq"])),
        "Updated" => {
            said(Kind::Client, format!("taken as event {}: {}", r["seq"], short(&r["result"].to_string(), 40)))
        }
        "SteppedDown" => Said::key(Kind::Client, format!("{status} term {} has ended", r["term"])),
        "Registered" => said(Kind::Worker, "registered".into()),
        "Polled" => polled(status, r),
        "Heartbeat" | "Unregistered" => said(Kind::Idle, String::new()),
        "Reported" => outcomes(said(Kind::Worker, String::new()), r),
        "ReportedOne" => outcomes(said(Kind::Worker, String::new()), &Value::Array(vec![r.clone()])),
        other => said(Kind::Read, other.to_lowercase()),
    }
}

fn polled(status: &Value, polled: &Value) -> Said {
    let nothing = count(&polled["tasks"]) + count(&polled["cancel"]) + count(&polled["outcomes"]) == 0;
    let kind = if nothing { Kind::Idle } else { Kind::Worker };
    let mut said = Said::new(kind, format!("{status}{}", if nothing { " nothing to do" } else { "" }));
    for task in each(&polled["tasks"]) {
        let again = if task["redelivery"] == true { ", perhaps again" } else { "" };
        let unit = format!("{} of {}", text(task, "step_id"), text(task, "execution_id"));
        said.text += &format!(" run {unit} (attempt {}{again})", task["attempt"]);
        said = said.about(&task["execution_id"]);
    }
    if count(&polled["cancel"]) > 0 {
        said.text += &format!(" stop {}", several(count(&polled["cancel"]), "task"));
    }
    outcomes(said, &polled["outcomes"])
}

fn outcomes(mut said: Said, outcomes: &Value) -> Said {
    for outcome in each(outcomes) {
        said.text += &format!(" {}", text(outcome, "outcome"));
        let token = text(outcome, "token");
        said.about.insert(token.split('/').next().unwrap_or(token).to_owned());
    }
    said
}

/// A transaction that a server sends.
pub fn transaction(transaction: &Value) -> Said {
    let (name, t) = variant(transaction);
    let said = |kind, text: &str| Said::new(kind, text);
    let term = |fence: &Value| fence["term"].as_u64();
    match name {
        "Campaign" => said(Kind::Lead, "I want to be the writer"),
        "Hold" => said(Kind::Watch, "is the election lock mine?"),
        "Line" => said(Kind::Watch, "wait in line for the election lock"),
        "Unlock" => said(Kind::Lead, "give the election lock back"),
        "Check" => said(Kind::Watch, "whose is the fence?"),
        "Release" => Said { term: term(t), ..said(Kind::Lead, "give the fence up") },
        "TakeLease" => said(Kind::Lead, "take the lease"),
        "RenewLease" => said(Kind::Watch, "renew the lease"),
        "FreeLease" => Said { term: term(t), ..said(Kind::Lead, "give the lease back") },
        "Append" => {
            let mut append = said(Kind::Write, "append");
            append.term = term(&t["fence"]);
            for group in each(&t["groups"]) {
                members(&mut append, group);
            }
            append
        }
        "Claim" => Said { term: term(&t["fence"]), ..said(Kind::Write, "claim queued tasks") },
        "Sweep" => Said { term: term(&t["fence"]), ..said(Kind::Watch, "put stray claims back") },
        "Deploy" => said(Kind::Write, &format!("store the definition {}", text(&t["definition"], "name"))),
        "Load" => {
            let mut load = said(Kind::Load, "load");
            for id in each(&t["executions"]) {
                load.text += &format!(" {}", id.as_str().unwrap_or("?"));
                load = load.about(id);
            }
            load
        }
        "Recover" | "Definitions" => said(Kind::Load, "read the definitions"),
        "Due" => said(Kind::Watch, "what is due?"),
        "Summary" | "History" => said(Kind::Load, "read an execution").about(&t["execution"]),
        "Summaries" => said(Kind::Load, "read a list"),
        "Beat" => said(Kind::Watch, "I live"),
        "Leave" => said(Kind::Lead, "I leave the cluster"),
        other => said(Kind::Watch, &other.to_lowercase()),
    }
}

/// What a group of an append does to each execution: the names of the events.
fn members(said: &mut Said, group: &Value) {
    for member in each(&group["members"]) {
        let id = text(member, "execution");
        said.about.insert(id.to_owned());
        let events: Vec<String> = each(&member["events"]).map(event).collect();
        let separator = if said.about.len() > 1 { ";" } else { ":" };
        said.text += &format!("{separator} {id} {}", if events.is_empty() { "(rows)".into() } else { folded(&events) });
    }
}

/// The type of a stored event, and its step.
fn event(stored: &Value) -> String {
    let json = stored["bytes"].as_str().and_then(|bytes| bytes.get(1..)).unwrap_or_default();
    let event: Value = serde_json::from_str(json).unwrap_or_default();
    let what = event["type"].as_str().unwrap_or("event");
    match event["step"].as_str().or_else(|| event["signal"].as_str()) {
        Some(step) => format!("{what} {step}"),
        None => what.to_owned(),
    }
}

/// The first events, and how many there are more.
fn folded(events: &[String]) -> String {
    let shown = events.len().min(4);
    let more = events.len() - shown;
    let more = if more == 0 { String::new() } else { format!(" +{more}") };
    events[..shown].join(", ") + &more
}

/// What came of a transaction.
pub fn reply(reply: &Value) -> Said {
    match variant(reply) {
        ("Done", verdict) => verdict_of(verdict),
        ("Failed", failure) => Said::new(Kind::Trouble, format!("failed: {}", text(failure, "message"))),
        ("Unknown", _) => Said::key(Kind::Trouble, "outcome unknown: it may have committed, or may commit still"),
        (other, _) => Said::new(Kind::Watch, other),
    }
}

fn verdict_of(verdict: &Value) -> Said {
    let (name, v) = variant(verdict);
    match name {
        "Append" => {
            let wrong = each(v).map(variant).find(|(outcome, _)| *outcome != "Written");
            match wrong {
                None => Said::new(Kind::Write, "written"),
                Some(("Rejected", why)) => {
                    let (rejection, r) = variant(why);
                    let how = match rejection {
                        "Fenced" => format!("term {} writes no more, term {} does", r["held"], r["current"]),
                        other => other.to_lowercase(),
                    };
                    Said { key: rejection == "Fenced", ..Said::new(Kind::Trouble, format!("rejected: {how}")) }
                }
                Some((other, _)) => Said::new(Kind::Trouble, other.to_lowercase()),
            }
        }
        "Campaign" => match variant(v) {
            ("Won", won) => Said::new(Kind::Lead, format!("won: term {}", won["term"])),
            ("Held", _) => Said::new(Kind::Watch, "another holds the election lock"),
            ("Leased", _) => Said::new(Kind::Watch, "another holds the lease"),
            (other, _) => Said::new(Kind::Trouble, other.to_lowercase()),
        },
        "Hold" | "Line" => match v.as_str() {
            Some("Mine") => Said::new(Kind::Watch, "mine"),
            Some("Pooled") => Said::new(Kind::Trouble, "a pooler stands in between"),
            _ => Said::new(Kind::Watch, "another's"),
        },
        "Check" => Said::new(Kind::Watch, format!("term {}'s", v["fence"]["term"])),
        "Renew" if *v == Value::Bool(false) => Said::key(Kind::Trouble, "the lease is not mine any more"),
        "Claim" => match count(v) {
            0 => Said::new(Kind::Watch, "no task"),
            n => Said::new(Kind::Write, several(n, "task")),
        },
        "Deploy" => Said::new(Kind::Write, "stored"),
        "Load" => Said::new(Kind::Load, several(count(v), "execution")),
        _ => Said::new(Kind::Watch, "done"),
    }
}

/// What a commit changed.
pub fn change(change: &Value) -> Said {
    let (name, c) = variant(change);
    let fence = c["fence"]["term"].as_u64();
    match name {
        "FenceRaised" => Said {
            term: c["after"]["term"].as_u64(),
            ..Said::key(Kind::Lead, format!("term {} begins", c["after"]["term"]))
        },
        "LeaseTaken" => Said::new(Kind::Lead, "the lease is taken"),
        "LeaseRenewed" => Said::new(Kind::Watch, "the lease is renewed"),
        "LeaseFreed" => Said { term: fence, ..Said::key(Kind::Lead, "the lease is given back") },
        "LeaseSeized" => Said::key(Kind::Lead, "the lease is taken away"),
        "HolderCleared" => Said { term: fence, ..Said::key(Kind::Lead, "the fence is given up") },
        "Group" => {
            let again = c["repeated"] == true;
            let mut said = Said::new(Kind::Write, if again { "was there already" } else { "recorded" });
            members(&mut said, &c["group"]);
            Said { term: fence, ..said }
        }
        "Claimed" => {
            Said { term: fence, ..Said::new(Kind::Write, format!("claimed {}", several(count(&c["tasks"]), "task"))) }
        }
        "Defined" => {
            Said { term: fence, ..Said::new(Kind::Write, format!("defined {}", text(&c["definition"], "name"))) }
        }
        "Requeued" | "Swept" => Said::new(Kind::Write, format!("{} tasks back in the queue", c["tasks"])),
        "NodeLeft" => Said::key(Kind::Lead, format!("{} has left", text(c, "node"))),
        _ => Said::new(Kind::Watch, String::new()),
    }
}

/// A log line.
pub fn log(line: &Value) -> Said {
    let key = |text: String| Said::key(Kind::Log, text);
    let event = text(line, "event");
    match event {
        "fence_taken" => key(format!("is the writer in term {}", line["term"])),
        "elected" => key(format!("is elected in term {}", line["term"])),
        "leading" => key(format!("leads in term {}", line["term"])),
        "following" => Said::new(Kind::Log, format!("follows {} in term {}", text(line, "leader"), line["term"])),
        "leadership_lost" | "lease_lost" => key(format!("leads no more: {}", text(line, "reason"))),
        "fence_lost" => {
            key(format!("finds that term {} has begun; it was term {}'s writer", line["current"], line["held"]))
        }
        "handing_over" => key("hands the lead over".into()),
        "handed_over" => key("has handed the lead over".into()),
        "promoted" => key("sees that a replica was promoted, and forgets what it knew".into()),
        "led_astray" => key(format!("is led elsewhere: {}", text(line, "to"))),
        "election_lock_lost" => key("sees that the election lock is another session's".into()),
        "unservable" => key(format!("cannot serve this database: {}", text(line, "message"))),
        "stopping" => key("stops: it finishes what is in flight".into()),
        "stopped" => Said::new(Kind::Log, "has stopped"),
        "worker_lost" => key(format!("takes {} for lost, with {} tasks", text(line, "worker_id"), line["holding"])),
        "attempt_uncertain" => {
            let step = format!("{} of {}", text(line, "step"), text(line, "execution_id"));
            let said = key(format!(
                "does not know whether attempt {} at {step} ran: {}",
                line["attempt"],
                text(line, "reason")
            ));
            said.about(&line["execution_id"])
        }
        "store_failed" => Said::new(Kind::Log, format!("{} failed: {}", text(line, "call"), text(line, "message"))),
        "store_unknown" => {
            Said::new(Kind::Log, format!("the outcome of {} is unknown: it is sent again", text(line, "call")))
        }
        "execution_started" => {
            Said::new(Kind::Log, format!("started {}", text(line, "execution_id"))).about(&line["execution_id"])
        }
        "execution_ended" => {
            Said::new(Kind::Log, format!("{} is {}", text(line, "execution_id"), text(line, "status")))
                .about(&line["execution_id"])
        }
        "quarantined" => key(format!("quarantines {}: {}", text(line, "execution_id"), text(line, "reason")))
            .about(&line["execution_id"]),
        "clock_stepped" => key(format!("sees the database's clock step by {} ms", line["by_ms"])),
        "recovered" => Said::new(
            Kind::Log,
            format!("has recovered {}", several(line["executions"].as_u64().unwrap_or(0) as usize, "execution")),
        ),
        other => Said::new(Kind::Log, other.replace('_', " ")),
    }
}
