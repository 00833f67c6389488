//! Nodes on the model: each runs one transaction at a time, message by message, as `io` does.

use super::{HASTY_MS, Next, Stands, normal};
use crate::{kind_of, normal_rows};
use orbit_core::cluster::{Elected, Mode};
use orbit_core::id::ClusterId;
use orbit_core::node::Connection;
use orbit_core::store::append::Fence;
use orbit_core::store::executor::{Ask, Executor, Frame};
use orbit_core::store::outcome::{self, Cause, Fact, Phase, Reply};
use orbit_core::store::statement::Rows;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_sim::postgres::store::whole::rows;
use orbit_sim::postgres::store::{Orbit, Program, database_of};
use orbit_sim::postgres::{
    Answer, Choices, Code, Command, Counts, Engine, Explored, Outcome, SessionId, Settings, Severity, SqlError,
    outcomes,
};
use orbit_sim::store::ModelStore;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many servers are looked at that a step could lead to.
const STATES: usize = 50_000;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Model {
    engine: Engine<Orbit>,
    hasty: Option<u32>,
    links: BTreeMap<(u32, Connection), SessionId>,
    nodes: BTreeMap<u32, Node>,
    /// Answers that nobody has heard yet.
    answers: VecDeque<(SessionId, Outcome<Rows>)>,
}

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // a few at a time
enum Node {
    Runs(Box<Course>),
    Replied(Reply<Verdict>, Vec<Rows>),
}

/// A transaction under way.
#[derive(Clone, Debug)]
struct Course {
    executor: Executor,
    connection: Connection,
    writes: bool,
    frame: Frame,
    /// How far it has got with what was sent last.
    phase: Phase,
    todo: VecDeque<Command<Program>>,
    got: Vec<Rows>,
    /// What all of its statements have given, but for those that were rolled back for an error.
    gave: Vec<Rows>,
    /// The reply, once the transaction is rolled back.
    then: Option<Reply<Verdict>>,
}

impl Course {
    /// Its next command is sent, whether or not it arrives.
    fn next(&mut self) -> Command<Program> {
        let command = self.todo.pop_front().expect("there is something to send");
        // One statement carries its own commit.
        let commits = matches!(command, Command::Commit) || self.frame == Frame::Auto;
        self.phase = if self.writes && commits { Phase::CommitSent } else { Phase::Open };
        command
    }
}

impl Model {
    /// Empty tables of this mode and election, on which this writer may write.
    pub fn new(cluster_id: ClusterId, fence: Fence, (mode, election): (Mode, Elected), hasty: Option<u32>) -> Model {
        let mut engine = database_of(cluster_id, fence, mode, election).by_hand();
        engine.set_clock_ms(crate::CLOCK.0);
        Model { engine, hasty, links: BTreeMap::new(), nodes: BTreeMap::new(), answers: VecDeque::new() }
    }

    /// What is committed.
    pub fn store(&self) -> &ModelStore {
        &self.engine.domain.store
    }

    pub fn counts(&self) -> Counts {
        self.engine.counts()
    }

    /// A node begins a transaction, and stands before its first message.
    pub fn begin(&mut self, node: u32, transaction: Transaction) {
        let connection = kind_of(&transaction);
        let lock_timeout = if self.hasty == Some(node) { HASTY_MS } else { 0 };
        let settings = Settings { deadlock_timeout: 1, lock_timeout, ..Settings::default() };
        let engine = &mut self.engine;
        self.links.entry((node, connection)).or_insert_with(|| engine.connect(settings).expect("it is up"));
        let executor = Executor::new(transaction);
        let course = Course {
            writes: executor.writes(),
            executor,
            connection,
            frame: Frame::Auto,
            phase: Phase::NotSent,
            todo: VecDeque::new(),
            got: Vec::new(),
            gave: Vec::new(),
            then: None,
        };
        self.nodes.insert(node, Node::Runs(Box::new(course)));
        self.goes_on(node);
    }

    /// A node sends the message that it stands before.
    pub fn step(&mut self, node: u32) {
        self.sends(node);
        self.hear();
    }

    /// The backend of a node's transaction is ended.
    pub fn terminate(&mut self, node: u32) {
        let session = self.session(node);
        let paused = !self.engine.is_busy(session);
        self.engine.terminate(session);
        if paused {
            // The message that it stood before is lost, and it hears of the end at once.
            drop(self.course(node).next());
            self.fails(node, SqlError::fatal(Code::AdminShutdown));
        }
        self.hear();
    }

    /// Everything that these can come to before they are at rest, each once: those who can go on do so in every order, and
    /// those who wait look for deadlocks and run out of patience.
    pub fn at_rest(begun: Vec<Model>) -> Result<Vec<Model>, String> {
        let (mut todo, mut ends) = (begun, Vec::new());
        let mut seen = BTreeSet::new();
        for looked_at in 0.. {
            let Some(mut model) = todo.pop() else { break };
            if looked_at > STATES {
                return Err(format!("the step leads to more than {STATES} servers"));
            }
            let before = todo.len();
            match (model.engine.runnable(), model.engine.next_timer()) {
                (0, None) => ends.push(model),
                (0, Some(at)) => {
                    let fires = |model: &mut Model| {
                        model.engine.advance(at);
                        model.hear();
                    };
                    todo.extend(outcomes(&model, STATES, fires).map_err(|error| error.to_string())?);
                }
                (1, _) => {
                    model.resumes(0);
                    todo.push(model);
                }
                (count, _) => todo.extend((0..count).map(|at| {
                    let mut one = model.clone();
                    one.resumes(at);
                    one
                })),
            }
            // Once there is more than one way, ways meet again.
            if !seen.is_empty() || todo.len() > before + 1 {
                let new: Vec<Model> = todo.drain(before.min(todo.len())..).collect();
                todo.extend(new.into_iter().filter(|model| seen.insert(model.identity())));
            }
        }
        let mut each = BTreeSet::new();
        if ends.len() > 1 {
            ends.retain(|model| each.insert(model.identity()));
        }
        Ok(ends)
    }

    fn resumes(&mut self, at: usize) {
        self.engine.step_of(at);
        self.hear();
    }

    /// How every node stands that has begun something.
    pub fn stands(&self) -> BTreeMap<u32, Stands> {
        let of = |session: &SessionId| {
            let found = self.links.iter().find(|(_, s)| *s == session);
            found.expect("only nodes have sessions").0.0
        };
        let stand = |(number, node): (&u32, &Node)| {
            let stands = match node {
                Node::Replied(reply, gave) => Stands::Replied(normal(reply.clone()), normal_rows(gave.clone())),
                Node::Runs(course) => {
                    let session = self.links[&(*number, course.connection)];
                    if self.engine.is_busy(session) {
                        let on: BTreeSet<u32> = self.engine.blockers(session).iter().map(of).collect();
                        Stands::Waits(on.into_iter().collect())
                    } else {
                        Stands::Before(match course.todo.front() {
                            Some(Command::Commit) => Next::Commit,
                            Some(Command::Rollback) => Next::Rollback,
                            _ => Next::Statement,
                        })
                    }
                }
            };
            (*number, stands)
        };
        self.nodes.iter().map(stand).collect()
    }

    fn course(&mut self, node: u32) -> &mut Course {
        match self.nodes.get_mut(&node) {
            Some(Node::Runs(course)) => course,
            other => unreachable!("node {node} runs a transaction, not {other:?}"),
        }
    }

    fn session(&mut self, node: u32) -> SessionId {
        let connection = self.course(node).connection;
        self.links[&(node, connection)]
    }

    fn replies(&mut self, node: u32, reply: Reply<Verdict>) {
        let gave = std::mem::take(&mut self.course(node).gave);
        self.nodes.insert(node, Node::Replied(reply, gave));
    }

    /// The transaction's next step. What BEGIN does nobody sees: it is not stopped at. A statement alone that writes is
    /// stopped at as if COMMIT stood behind it: at the message that ends it.
    fn goes_on(&mut self, node: u32) {
        let session = self.session(node);
        let course = self.course(node);
        match course.executor.ask() {
            Ask::Rollback(verdict) => {
                course.then = Some(Reply::Done(verdict));
                course.todo.push_back(Command::Rollback);
            }
            Ask::Send(statements, frame) => {
                course.frame = frame;
                course.todo.extend(statements.into_iter().map(|s| Command::Run(Program::new(s))));
                let alone = frame == Frame::Auto && course.writes;
                if alone || matches!(frame, Frame::Commit | Frame::Whole) {
                    course.todo.push_back(Command::Commit);
                }
                if alone || matches!(frame, Frame::Begin | Frame::Whole) {
                    let began = self.at_once(session, Command::Begin);
                    assert_eq!(began, Ok(Answer::Began), "its session is there, and idle");
                }
            }
        }
    }

    fn sends(&mut self, node: u32) {
        let session = self.session(node);
        let command = self.course(node).next();
        self.engine.start(session, command);
    }

    /// Runs what waits for nobody.
    fn at_once(&mut self, session: SessionId, command: Command<Program>) -> Outcome<Rows> {
        self.engine.start(session, command);
        self.answers.extend(self.engine.take_answers());
        let at = self.answers.iter().rposition(|(of, _)| *of == session).expect("it is answered at once");
        self.answers.remove(at).expect("found just now").1
    }

    /// Takes what has ended to the nodes that sent it.
    fn hear(&mut self) {
        loop {
            self.answers.extend(self.engine.take_answers());
            let Some((session, outcome)) = self.answers.pop_front() else { break };
            let found = self.links.iter().find(|(_, s)| **s == session).map(|(link, _)| link.0);
            self.heard(found.expect("a session of a node"), session, outcome);
        }
        self.engine.domain.done.clear();
    }

    fn heard(&mut self, node: u32, session: SessionId, outcome: Outcome<Rows>) {
        let answer = match outcome {
            Ok(answer) => answer,
            Err(error) => return self.fails(node, error),
        };
        let course = self.course(node);
        if let Answer::RolledBack = answer {
            let reply = course.then.take().expect("a rollback is the end of a transaction");
            return self.replies(node, reply);
        }
        course.got.extend(rows(answer));
        if !course.todo.is_empty() {
            // Nobody can tell where it stops that only reads. Nor a definition that was not made: `io` looks again then,
            // in a transaction of its own, and at once.
            let reads = !course.writes;
            let looks_again = matches!(course.got.as_slice(), [Rows::PutDefinition(_)]);
            if reads || looks_again && !self.engine.has_written(session) {
                self.sends(node);
            }
            return;
        }
        let got = std::mem::take(&mut course.got);
        course.gave.extend(got.iter().cloned());
        match course.executor.tell(Ok(got)) {
            Some(reply) => self.replies(node, reply),
            None => self.goes_on(node),
        }
    }

    fn fails(&mut self, node: u32, error: SqlError) {
        let session = self.session(node);
        let fatal = error.severity == Severity::Fatal;
        let course = self.course(node);
        let severity = error.code.map(|_| match error.severity {
            Severity::Error => outcome::Severity::Error,
            Severity::Fatal => outcome::Severity::Fatal,
        });
        let cause = error.code.map_or(Cause::Closed, |code| Cause::SqlState(code.as_str().into()));
        let fact = Fact { phase: course.phase, severity, cause, message: String::new() };
        course.todo.clear();
        course.got.clear();
        let alone = course.frame == Frame::Auto;
        let reply = match course.then.take() {
            Some(reply) => Some(reply),
            None => course.executor.tell(Err(fact)),
        };
        if fatal {
            let link = (node, self.course(node).connection);
            self.links.remove(&link);
        } else if alone {
            // Its own end has rolled it back.
            let ended = self.at_once(session, Command::Rollback);
            assert_eq!(ended, Ok(Answer::RolledBack), "a transaction that failed is rolled back");
        }
        match reply {
            Some(reply) if fatal || alone => self.replies(node, reply),
            Some(reply) => {
                let course = self.course(node);
                course.then = Some(reply);
                course.todo.push_back(Command::Rollback);
            }
            // An append goes on in halves.
            None => self.goes_on(node),
        }
    }
}

impl Explored for Model {
    fn choices(&mut self) -> &mut Choices {
        self.engine.choices()
    }

    fn identity(&self) -> String {
        format!("{} {:?}", self.engine.identity(), self.nodes)
    }
}
