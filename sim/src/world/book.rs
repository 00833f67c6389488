//! What the world's clients and workers asked for, said and were told: what the checks hold the server to.

use crate::check::history::HistoryCheck;
use crate::check::runs::Position;
use orbit_core::api::Request;
use orbit_core::api::request::{Message, Start, TaskOutcome};
use orbit_core::definition::Definition;
use orbit_core::id::{ExecutionId, Token, Version, WorkflowName};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is known of a start with an id that its client chose.
#[derive(Clone, Debug)]
pub struct StartRecord {
    /// The first request; repetitions send it again.
    pub start: Start,
    /// Requests that were sent, whatever became of them.
    pub sent: u64,
    /// Requests that were answered with a refusal.
    pub refused: u64,
    pub acknowledged: bool,
}

/// A signal or an update that was sent.
#[derive(Clone, Debug)]
pub struct MessageRecord {
    pub execution: ExecutionId,
    /// An update, not a signal.
    pub update: bool,
    pub message: Message,
    /// Requests that were sent, whatever became of them.
    pub sent: u64,
    /// Requests that were answered with a refusal.
    pub refused: u64,
    /// Where the one stands whose number was answered.
    pub told: Option<Position>,
}

impl MessageRecord {
    /// The request that sends it.
    pub fn request(&self) -> Request {
        let (execution, message) = (self.execution.clone(), self.message.clone());
        match self.update {
            true => Request::Update { execution, update: message },
            false => Request::Signal { execution, signal: message },
        }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Book {
    definitions: BTreeMap<(WorkflowName, Version), Arc<Definition>>,
    documents: Vec<Value>,
    starts: BTreeMap<ExecutionId, StartRecord>,
    anonymous_sent: u64,
    anonymous_refused: u64,
    anonymous_acknowledged: BTreeSet<ExecutionId>,
    /// Every outcome that was reported of a delivery, and how often any was.
    reports: BTreeMap<Token, (Vec<TaskOutcome>, u32)>,
    /// By their payloads, as text: no two have the same.
    messages: BTreeMap<String, MessageRecord>,
    /// How many messages were made.
    made: u64,
}

impl Book {
    /// A book that knows these definitions.
    pub fn new(documents: Vec<Value>) -> Book {
        let mut book = Book::default();
        for document in &documents {
            let definition = Definition::from_document(document)
                .unwrap_or_else(|problems| panic!("a drawn definition is right: {problems:?} in {document}"));
            let name = (definition.name.clone(), definition.version.clone());
            book.definitions.insert(name, Arc::new(definition));
        }
        book.documents = documents;
        book
    }

    /// The definition of that name and version, whether or not it is deployed yet.
    pub fn definition(&self, name: &WorkflowName, version: &Version) -> Option<Arc<Definition>> {
        self.definitions.get(&(name.clone(), version.clone())).cloned()
    }

    /// Every definition.
    pub fn definitions(&self) -> impl Iterator<Item = &Arc<Definition>> {
        self.definitions.values()
    }

    /// The documents to deploy.
    pub fn documents(&self) -> &[Value] {
        &self.documents
    }

    /// A request is sent.
    pub fn asked(&mut self, request: &Request) {
        match request {
            Request::Start(start) => self.start_asked(start),
            Request::Signal { execution, signal } => self.message_sent(execution, signal, false),
            Request::Update { execution, update } => self.message_sent(execution, update, true),
            _ => {}
        }
    }

    fn message_sent(&mut self, execution: &ExecutionId, message: &Message, update: bool) {
        let fresh = || MessageRecord {
            execution: execution.clone(),
            update,
            message: message.clone(),
            sent: 0,
            refused: 0,
            told: None,
        };
        self.messages.entry(message.payload.to_string()).or_insert_with(fresh).sent += 1;
    }

    /// A mark for the payload of a new message.
    pub fn next_mark(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// The message that brought this payload.
    pub fn message(&self, payload: &Value) -> Option<&MessageRecord> {
        self.messages.get(&payload.to_string())
    }

    /// The same, to write something down.
    pub fn message_mut(&mut self, payload: &Value) -> Option<&mut MessageRecord> {
        self.messages.get_mut(&payload.to_string())
    }

    /// Every message.
    pub fn messages(&self) -> impl Iterator<Item = &MessageRecord> {
        self.messages.values()
    }

    fn start_asked(&mut self, start: &Start) {
        match &start.execution_id {
            None => self.anonymous_sent += 1,
            Some(id) => {
                let fresh = || StartRecord { start: start.clone(), sent: 0, refused: 0, acknowledged: false };
                self.starts.entry(id.clone()).or_insert_with(fresh).sent += 1;
            }
        }
    }

    /// A start was answered with a refusal: nothing was written by it.
    pub fn refused(&mut self, start: &Start) {
        match &start.execution_id {
            None => self.anonymous_refused += 1,
            Some(id) => self.starts.get_mut(id).expect("it was asked for").refused += 1,
        }
    }

    /// Whether one request alone has asked for this execution.
    pub fn is_sent_once(&self, id: &ExecutionId) -> bool {
        self.starts.get(id).is_some_and(|record| record.sent == 1)
    }

    /// Whether one report alone has brought a result of this delivery.
    pub fn is_reported_once(&self, token: &Token) -> bool {
        self.reports.get(token).is_some_and(|(_, times)| *times == 1)
    }

    /// A start was acknowledged.
    pub fn acknowledged(&mut self, start: &Start, id: &ExecutionId) {
        match &start.execution_id {
            None => {
                self.anonymous_acknowledged.insert(id.clone());
            }
            Some(id) => self.starts.get_mut(id).expect("it was asked for").acknowledged = true,
        }
    }

    /// A promotion has lost what is not there any more: nobody is owed it.
    pub fn forget_lost(&mut self, is_there: impl Fn(&ExecutionId) -> bool, histories: &HistoryCheck) {
        for (id, record) in &mut self.starts {
            record.acknowledged &= is_there(id);
        }
        self.anonymous_acknowledged.retain(|id| is_there(id));
        for record in self.messages.values_mut() {
            let runs = histories.runs(&record.execution);
            record.told = record.told.filter(|position| runs.is_some_and(|runs| *position <= runs.last()));
        }
    }

    /// Starts with an id that a client chose.
    pub fn starts(&self) -> &BTreeMap<ExecutionId, StartRecord> {
        &self.starts
    }

    /// Whether a client chose that id.
    pub fn is_own_id(&self, id: &ExecutionId) -> bool {
        self.starts.contains_key(id)
    }

    /// The least and the greatest number of executions without an own id.
    pub fn anonymous(&self) -> (u64, u64) {
        (self.anonymous_acknowledged.len() as u64, self.anonymous_sent - self.anonymous_refused)
    }

    /// Ids that somebody may ask about.
    pub fn ids(&self) -> Vec<ExecutionId> {
        self.starts.keys().chain(&self.anonymous_acknowledged).cloned().collect()
    }

    /// A worker says how a delivery ended.
    pub fn report(&mut self, token: &Token, outcome: &TaskOutcome) {
        let (said, times) = self.reports.entry(token.clone()).or_default();
        *times += 1;
        if !said.contains(outcome) {
            said.push(outcome.clone());
        }
    }

    /// What workers said of a delivery.
    pub fn reported(&self, token: &Token) -> &[TaskOutcome] {
        self.reports.get(token).map_or(&[], |(said, _)| said)
    }
}
