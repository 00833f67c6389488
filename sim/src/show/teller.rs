//! From the lines of a trace to a [`Story`].
//!
//! A message has two ends, which stand in two lines of the trace (a transaction is sent, and commits); they are joined by
//! the numbers of requests and calls. What has only one end was lost, or is still on its way.

use super::read::Line;
use super::story::{Item, Lane, Shape, Story, Verdict};
use super::words::{self, Kind, Said, variant};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A server process.
#[derive(Debug)]
struct Server {
    lane: Lane,
    since: u64,
    paused: Option<u64>,
    /// The term in which it may write, since when.
    term: Option<(u64, u64)>,
}

/// A request under way.
#[derive(Debug)]
struct Asked {
    by: Lane,
    at: u64,
    to: Option<u64>,
    name: String,
    about: Value,
    line: usize,
    arrived: bool,
    answer: Option<(u64, Lane, Said, usize)>,
}

/// A transaction under way.
#[derive(Debug)]
struct Called {
    by: Lane,
    at: u64,
    said: Said,
    line: usize,
    /// When, and where.
    committed: Option<(u64, Lane)>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Teller {
    story: Story,
    servers: BTreeMap<u64, Server>,
    /// Names of those that are no more, whose messages may still arrive.
    gone: BTreeMap<u64, Lane>,
    asked: BTreeMap<u64, Asked>,
    called: BTreeMap<(u64, u64), Called>,
    /// The newest timeline of the database, once one was promoted.
    timeline: u64,
    /// The newest term, since when.
    term: (u64, u64),
}

impl Teller {
    fn add(&mut self, item: Item) {
        self.story.items.push(item);
    }

    fn mark(&mut self, lane: Lane, line: usize, at: u64, said: Said) {
        self.add(Item { shape: Shape::Mark, lane, to: None, at, until: at, said, lines: vec![line] });
    }

    fn bar(&mut self, lane: Lane, line: usize, at: u64, until: u64, said: Said) {
        self.add(Item { shape: Shape::Bar, lane, to: None, at, until, said, lines: vec![line] });
    }

    fn server(&self, pid: &Value) -> Lane {
        let pid = pid.as_u64().unwrap_or_default();
        let living = self.servers.get(&pid).map(|server| &server.lane);
        living.or(self.gone.get(&pid)).cloned().unwrap_or(Lane::Server(format!("process {pid}"), 0))
    }

    /// The next line.
    pub fn tell(&mut self, index: usize, line: &Line) {
        let (at, data) = (line.at_us, &line.data);
        match line.what.as_str() {
            "start" => self.starts(index, line),
            "input" => self.input(index, at, line.part(0), line.part(1)),
            "effect" => self.effect(index, at, line.part(0), line.part(1)),
            "asks" => self.asks(index, line),
            "answered" => self.hears(index, at, data, None),
            "unanswered" => self.hears(index, at, line.part(0), line.part(1).as_str()),
            "commit" => self.commits(index, line),
            "fault" => self.fault(index, line),
            "exit" => self.ends(index, at, line.part(0), &format!("ends with status {}", line.part(1))),
            "crash" => self.ends(index, at, data, "is killed"),
            "pause" => {
                if let Some(server) = line.part(0).as_u64().and_then(|pid| self.servers.get_mut(&pid)) {
                    server.paused = Some(at);
                }
            }
            "resume" => self.resumes(index, at, data),
            "healed" => self.mark(Lane::World, index, at, Said::key(Kind::Fault, "every fault ends")),
            "audit" => {
                self.mark(Lane::World, index, at, Said::key(Kind::Fault, "all is over; everything is read once more"))
            }
            "promoted" => self.promoted(index, line),
            "old primary ends" => self.mark(Lane::OldPrimary, index, at, Said::key(Kind::State, "is no more")),
            "database restarts" => {
                let how = if *line.part(0) == Value::Bool(true) { "is killed" } else { "is stopped" };
                let until = at + 1_000 * line.part(1).as_u64().unwrap_or_default();
                self.bar(Lane::Database, index, at, until, Said::key(Kind::State, format!("{how}; down")));
            }
            "no writes" => {
                let until = at + 1_000 * line.part(1).as_u64().unwrap_or_default();
                let why = format!("takes no writes ({})", line.part(0).as_str().unwrap_or("?"));
                self.bar(Lane::Database, index, at, until, Said::new(Kind::State, why));
            }
            "pooler" => {
                let until = at + 1_000 * data.as_u64().unwrap_or_default();
                let text = "new connections lead to a pooler in transaction mode";
                self.bar(Lane::World, index, at, until, Said::key(Kind::Fault, text));
            }
            "session frozen" => {
                let until = at + 1_000 * line.part(1).as_u64().unwrap_or_default();
                let text = format!("{} stands still", self.connection(line.part(2)));
                self.bar(Lane::Database, index, at, until, Said::key(Kind::State, text));
            }
            "session killed" => {
                let text = format!("{} is ended", self.connection(line.part(1)));
                self.mark(Lane::Database, index, at, Said::key(Kind::State, text));
            }
            "connection breaks" => {
                let text = format!("{} breaks", self.connection(data));
                self.mark(Lane::Database, index, at, Said::key(Kind::State, text));
            }
            "worker dies" => self.worker(index, at, data, "dies, or leaves"),
            "worker pauses" => self.worker(index, at, line.part(0), &format!("stands still for {} ms", line.part(1))),
            "worker resumes" => self.worker(index, at, data, "goes on"),
            "violation" => {
                let text = |part: &Value| part.as_str().unwrap_or("?").to_owned();
                let (check, message) = (text(line.part(0)), text(line.part(1)));
                self.story.verdict = Some(Verdict { check, message, at, line: index.checked_sub(1) });
            }
            _ => {}
        }
    }

    /// Whose connection, and which.
    fn connection(&self, whose: &Value) -> String {
        match (&whose[0], whose[1].as_str()) {
            (pid @ Value::Number(_), Some(kind)) => format!("the {kind} connection of {}", self.server(pid).name()),
            _ => "a connection".into(),
        }
    }

    fn worker(&mut self, index: usize, at: u64, number: &Value, text: &str) {
        let lane = Lane::Worker(number.as_u64().unwrap_or_default());
        self.mark(lane, index, at, Said::key(Kind::State, text));
    }

    fn starts(&mut self, index: usize, line: &Line) {
        let (pid, name) = match line.data.as_u64() {
            Some(pid) => (pid, format!("server {pid}")),
            None => (line.part(0).as_u64().unwrap_or_default(), line.part(1).as_str().unwrap_or("server").to_owned()),
        };
        let taken: BTreeSet<&Lane> = self.servers.values().map(|server| &server.lane).collect();
        let mut lanes = (0..).map(|twin| Lane::Server(name.clone(), twin));
        let lane = lanes.find(|lane| !taken.contains(lane)).expect("some lane is free");
        self.servers.insert(pid, Server { lane: lane.clone(), since: line.at_us, paused: None, term: None });
        self.mark(lane, index, line.at_us, Said::key(Kind::State, format!("starts (process {pid})")));
    }

    fn resumes(&mut self, index: usize, at: u64, pid: &Value) {
        let Some(server) = pid.as_u64().and_then(|pid| self.servers.get_mut(&pid)) else { return };
        let (lane, since) = (server.lane.clone(), server.paused.take());
        if let Some(since) = since {
            let text = format!("stands still for {} ms", (at - since) / 1_000);
            self.bar(lane, index, since, at, Said::key(Kind::State, text));
        }
    }

    /// A server leads no more.
    fn deposed(&mut self, index: usize, at: u64, pid: u64) {
        let Some(server) = self.servers.get_mut(&pid) else { return };
        let lane = server.lane.clone();
        if let Some((term, since)) = server.term.take() {
            self.leads(lane, index, since, at, term);
        }
    }

    fn leads(&mut self, lane: Lane, index: usize, since: u64, until: u64, term: u64) {
        let said =
            Said { term: Some(term), ..Said::new(Kind::State, format!("believes that it may write: term {term}")) };
        self.bar(lane, index, since, until, said);
    }

    fn ends(&mut self, index: usize, at: u64, pid: &Value, how: &str) {
        let Some(number) = pid.as_u64() else { return };
        self.resumes(index, at, pid);
        self.deposed(index, at, number);
        let Some(server) = self.servers.remove(&number) else { return };
        self.gone.insert(number, server.lane.clone());
        self.bar(server.lane.clone(), index, server.since, at, Said::new(Kind::State, format!("process {number}")));
        self.mark(server.lane, index, at, Said::key(Kind::State, how));
    }

    fn fault(&mut self, index: usize, line: &Line) {
        let fault = line.part(0).as_str().unwrap_or("?");
        let ms = line.part(1).as_u64().unwrap_or_default();
        let mut text = fault.replace('-', " ");
        if ms > 0 {
            text += &format!(", {ms} ms");
        }
        if let Some(moment) = line.part(2).as_str() {
            text += &format!(" (after {moment})");
        }
        // What happens to single messages is told where it happens.
        let small = matches!(
            fault,
            "request-lost" | "answer-lost" | "answer-slow" | "false-notice" | "early-wake" | "call-slow"
        );
        let said = Said { key: !small, ..Said::new(Kind::Fault, text) };
        match ms {
            0 => self.mark(Lane::World, index, line.at_us, said),
            ms => self.bar(Lane::World, index, line.at_us, line.at_us + 1_000 * ms, said),
        }
    }

    fn promoted(&mut self, index: usize, line: &Line) {
        self.timeline = line.data["timeline"].as_u64().unwrap_or(self.timeline + 1);
        let text = format!("a replica is promoted: timeline {}", self.timeline);
        self.mark(Lane::Database, index, line.at_us, Said::key(Kind::State, text));
    }

    fn asks(&mut self, index: usize, line: &Line) {
        let (by, number) = variant(line.part(1));
        let by = match by {
            "Worker" => Lane::Worker(number[0].as_u64().unwrap_or_default()),
            _ => Lane::Client(number.as_u64().unwrap_or_default()),
        };
        let asked = Asked {
            by,
            at: line.at_us,
            to: line.part(2).as_u64(),
            name: line.part(3).as_str().unwrap_or("asks").to_owned(),
            about: line.part(4).clone(),
            line: index,
            arrived: false,
            answer: None,
        };
        self.asked.insert(line.part(0).as_u64().unwrap_or_default(), asked);
    }

    fn arrives(&mut self, index: usize, at: u64, pid: &Value, request: &Value) {
        let Some(asked) = request["id"].as_u64().and_then(|id| self.asked.get_mut(&id)) else { return };
        asked.arrived = true;
        let (by, sent, line) = (asked.by.clone(), asked.at, asked.line);
        let said = words::request(&request["request"]);
        let to = Some(self.server(pid));
        self.add(Item { shape: Shape::Message, lane: by, to, at: sent, until: at, said, lines: vec![line, index] });
    }

    /// Somebody who asked hears something, or nothing.
    fn hears(&mut self, index: usize, at: u64, id: &Value, nothing: Option<&str>) {
        let Some(asked) = id.as_u64().and_then(|id| self.asked.remove(&id)) else { return };
        let by = asked.by.clone();
        let answered = asked.answer.is_some();
        if !asked.arrived {
            self.never_arrived(&asked);
        }
        if let Some((sent, lane, said, line)) = asked.answer {
            let shape = if nothing.is_none() { Shape::Message } else { Shape::Lost };
            self.add(Item { shape, lane, to: Some(by.clone()), at: sent, until: at, said, lines: vec![line, index] });
        }
        if let Some(nothing) = nothing {
            let text = match nothing {
                "Broken" => "its connection breaks",
                _ if answered => "has heard nothing, and gives up",
                _ => "gives up: no answer",
            };
            self.mark(by, index, at, Said::new(Kind::Trouble, text));
        }
    }

    fn never_arrived(&mut self, asked: &Asked) {
        let id = asked.about.as_str();
        let text = id.map_or(asked.name.clone(), |id| format!("{} {id}", asked.name));
        let mut said = Said::new(Kind::Trouble, text);
        said.about.extend(id.map(str::to_owned));
        let to = asked.to.map(|pid| self.server(&pid.into()));
        let (at, until) = (asked.at, asked.at + 1_000);
        match to {
            Some(_) => self.add(Item {
                shape: Shape::Lost,
                lane: asked.by.clone(),
                to,
                at,
                until,
                said,
                lines: vec![asked.line],
            }),
            None => self.mark(
                asked.by.clone(),
                asked.line,
                at,
                Said { text: format!("{}: no server is there", said.text), ..said },
            ),
        }
    }

    fn input(&mut self, index: usize, at: u64, pid: &Value, input: &Value) {
        match variant(input) {
            ("Request", request) => self.arrives(index, at, pid, request),
            ("Store", told) => {
                let key = (pid.as_u64().unwrap_or_default(), told["call"].as_u64().unwrap_or_default());
                let Some(called) = self.called.remove(&key) else { return };
                let mut said = words::reply(&told["reply"]);
                if said.kind == Kind::Watch {
                    said.kind = called.said.kind;
                }
                if said.kind == Kind::Trouble {
                    let what = called.said.text.split(':').next().unwrap_or_default();
                    said.text = format!("{what}: {}", said.text);
                    said.key &= matches!(called.said.kind, Kind::Write | Kind::Lead);
                }
                said.about.extend(called.said.about.iter().cloned());
                // What only read has no moment of its own: it is drawn half-way.
                let half = called.at + (at - called.at) / 2;
                let there = self.database_of(&told["origin"]["timeline"]);
                let (from, lane) = called.committed.clone().unwrap_or((half, there));
                if called.committed.is_none() {
                    let mut asked = called.said.clone();
                    if said.kind == Kind::Trouble {
                        asked.kind = Kind::Trouble;
                    }
                    self.sent(&called, lane.clone(), half, asked, None);
                }
                let to = Some(called.by.clone());
                let lines = vec![called.line, index];
                self.add(Item { shape: Shape::Message, lane, to, at: from, until: at, said, lines });
            }
            ("Stop", _) => {
                let lane = self.server(pid);
                self.mark(lane, index, at, Said::key(Kind::State, "is told to stop"));
            }
            ("AnswerLost", _) => {
                let lane = self.server(pid);
                self.mark(lane, index, at, Said::new(Kind::Trouble, "hears that an answer was lost"));
            }
            _ => {}
        }
    }

    fn database_of(&self, timeline: &Value) -> Lane {
        match timeline.as_u64() {
            Some(timeline) if timeline < self.timeline => Lane::OldPrimary,
            _ => Lane::Database,
        }
    }

    fn sent(&mut self, called: &Called, lane: Lane, until: u64, said: Said, commit: Option<usize>) {
        let lines = std::iter::once(called.line).chain(commit).collect();
        let to = Some(lane);
        self.add(Item { shape: Shape::Message, lane: called.by.clone(), to, at: called.at, until, said, lines });
    }

    fn effect(&mut self, index: usize, at: u64, pid: &Value, effect: &Value) {
        let number = pid.as_u64().unwrap_or_default();
        let lane = self.server(pid);
        match variant(effect) {
            ("Store", store) => {
                let said = words::transaction(&store["transaction"]);
                let called = Called { by: lane, at, said, line: index, committed: None };
                self.called.insert((number, store["call"].as_u64().unwrap_or_default()), called);
            }
            ("WriteOff", call) => {
                let called = call["call"].as_u64().and_then(|call| self.called.remove(&(number, call)));
                if let Some(called) = called {
                    let mut said = Said { kind: Kind::Trouble, ..called.said.clone() };
                    said.text += " (given up)";
                    if called.committed.is_none() {
                        self.add(Item {
                            shape: Shape::Lost,
                            lane: called.by.clone(),
                            to: Some(Lane::Database),
                            at: called.at,
                            until: at,
                            said,
                            lines: vec![called.line, index],
                        });
                    }
                }
            }
            ("Respond", respond) => {
                let said = words::response(&respond["response"]);
                if let Some(asked) = respond["request"].as_u64().and_then(|id| self.asked.get_mut(&id)) {
                    asked.answer = Some((at, lane, said, index));
                }
            }
            ("Log", log) => {
                let event = log["event"].as_str().unwrap_or_default();
                self.mark(lane, index, at, words::log(log));
                if matches!(event, "leadership_lost" | "lease_lost" | "handed_over" | "fence_lost") {
                    self.deposed(index, at, number);
                }
            }
            _ => {}
        }
    }

    fn commits(&mut self, index: usize, line: &Line) {
        let (pid, call, commit, timeline) = (line.part(0), line.part(1), line.part(2), line.part(4));
        let lane = self.database_of(timeline);
        let mut said = Said::new(Kind::Watch, String::new());
        let changes = commit["changes"].as_array();
        for change in changes.into_iter().flatten() {
            let one = words::change(change);
            if let ("FenceRaised", Some(term)) = (variant(change).0, one.term) {
                self.term_begins(index, line.at_us, pid, term);
            }
            if !one.text.is_empty() {
                said.text += if said.text.is_empty() { "" } else { "; " };
                said.text += &one.text;
            }
            said.kind = if said.kind == Kind::Watch { one.kind } else { said.kind };
            (said.key, said.term) = (said.key || one.key, said.term.or(one.term));
            said.about.extend(one.about);
        }
        if said.text.is_empty() {
            said.text = commit["transaction"].as_str().unwrap_or("commit").replace('_', " ");
        }
        let key = (pid.as_u64().unwrap_or_default(), call.as_u64().unwrap_or_default());
        match self.called.get_mut(&key) {
            Some(called) if called.committed.is_none() => {
                called.committed = Some((line.at_us, lane.clone()));
                let (by, at, first) = (called.by.clone(), called.at, called.line);
                said.text = format!("{}; {}", called.said.text.split(':').next().unwrap_or_default(), said.text);
                said.term = called.said.term.or(said.term);
                let (until, lines) = (line.at_us, vec![first, index]);
                self.add(Item { shape: Shape::Message, lane: by, to: Some(lane), at, until, said, lines });
            }
            // The other half of an append that the database refused as a whole.
            Some(_) => self.mark(lane, index, line.at_us, said),
            // Nobody waits for it any more.
            _ => {
                let whose =
                    if pid.is_null() { "of somebody".into() } else { format!("of {}", self.server(pid).name()) };
                said.text = format!("a late commit {whose}: {}", said.text);
                said.key = said.kind != Kind::Watch;
                self.mark(lane, index, line.at_us, said);
            }
        }
    }

    fn term_begins(&mut self, index: usize, at: u64, pid: &Value, term: u64) {
        let (before, since) = std::mem::replace(&mut self.term, (term, at));
        self.term_was(index, since, at, before);
        if let Some(server) = pid.as_u64().and_then(|pid| self.servers.get_mut(&pid)) {
            server.term = Some((term, at));
        }
    }

    fn term_was(&mut self, index: usize, since: u64, at: u64, term: u64) {
        if term > 0 {
            let said = Said { term: Some(term), ..Said::new(Kind::State, format!("term {term}")) };
            self.bar(Lane::Database, index, since, at, said);
        }
    }

    /// The story, once the last line is told.
    pub fn finish(mut self, ends_at: u64) -> Story {
        let last = usize::MAX;
        for asked in std::mem::take(&mut self.asked).into_values() {
            if !asked.arrived {
                self.never_arrived(&asked);
            }
            if let Some((at, lane, said, line)) = asked.answer {
                // It is on its way.
                let until = ends_at.max(at);
                self.add(Item { shape: Shape::Open, lane, to: Some(asked.by), at, until, said, lines: vec![line] });
            }
        }
        for called in std::mem::take(&mut self.called).into_values().filter(|called| called.committed.is_none()) {
            let (said, lines) = (called.said, vec![called.line]);
            let to = Some(Lane::Database);
            self.add(Item { shape: Shape::Open, lane: called.by, to, at: called.at, until: ends_at, said, lines });
        }
        let pids: Vec<u64> = self.servers.keys().copied().collect();
        for pid in pids {
            self.resumes(last, ends_at, &pid.into());
            self.deposed(last, ends_at, pid);
            let server = self.servers.remove(&pid).expect("one of them");
            self.bar(server.lane, last, server.since, ends_at, Said::new(Kind::State, format!("process {pid}")));
        }
        let (term, since) = self.term;
        self.term_was(last, since, ends_at, term);
        let mut story = self.story;
        story.ends_at = ends_at;
        for item in &mut story.items {
            item.lines.retain(|line| *line != last);
            item.until = item.until.min(ends_at).max(item.at);
        }
        story.items.sort_by_key(|item| (item.at, item.until));
        story
    }
}
