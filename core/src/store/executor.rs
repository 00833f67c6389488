//! Runs a transaction's list of statements: ask and tell, without I/O (protocols, 1).
//!
//! `io` asks, runs the statements on its connection and tells; `sim` does the same whenever its model answers. Neither
//! decides anything.

use crate::store::outcome::{self, Fact, Reply};
use crate::store::sending::Sending;
use crate::store::statement::{Rows, Statement};
use crate::store::transaction::{Step, Transaction, Verdict};

/// Where BEGIN and COMMIT stand around one sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// One statement that carries its own transaction.
    Auto,
    /// BEGIN before; the transaction stays open.
    Begin,
    /// Inside an open transaction.
    Middle,
    /// COMMIT behind.
    Commit,
    /// BEGIN before and COMMIT behind.
    Whole,
}

/// What the executor wants done.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // one at a time, and looked at on the spot
pub enum Ask {
    /// Run these in order, then [`Executor::tell`].
    Send(Vec<Statement>, Frame),
    /// Roll the open transaction back; then this is the reply.
    Rollback(Verdict),
}

/// One transaction under way.
#[derive(Clone, Debug)]
pub struct Executor(Course);

#[derive(Clone, Debug)]
enum Course {
    List(List),
    /// It may take several transactions of the database.
    Append(Sending),
}

/// A list of statements in one transaction of the database.
#[derive(Clone, Debug)]
struct List {
    transaction: Transaction,
    seen: Vec<Rows>,
    begun: bool,
    last: bool,
}

impl Executor {
    /// Starts `transaction`.
    pub fn new(transaction: Transaction) -> Executor {
        Executor(match transaction {
            Transaction::Append(append) => Course::Append(Sending::new(append)),
            transaction => Course::List(List { transaction, seen: Vec::new(), begun: false, last: false }),
        })
    }

    /// Whether the transaction may change something.
    pub fn writes(&self) -> bool {
        match &self.0 {
            Course::List(list) => list.transaction.writes(),
            Course::Append(_) => true,
        }
    }

    /// What to do next. To be called once at first, and after each [`Executor::tell`] that answered `None`.
    pub fn ask(&mut self) -> Ask {
        match &mut self.0 {
            Course::List(list) => list.ask(),
            Course::Append(sending) => sending.ask(),
        }
    }

    /// Takes what the statements gave: the transaction's reply, or `None` where it goes on.
    pub fn tell(&mut self, got: Result<Vec<Rows>, Fact>) -> Option<Reply<Verdict>> {
        match &mut self.0 {
            Course::List(list) => list.tell(got),
            Course::Append(sending) => sending.tell(got),
        }
    }
}

impl List {
    fn ask(&mut self) -> Ask {
        assert!(!self.last, "nothing is to be asked of a transaction that has sent its last statement");
        let first = !std::mem::replace(&mut self.begun, true);
        match self.transaction.step(&self.seen) {
            Step::Send(statements) => Ask::Send(statements, if first { Frame::Begin } else { Frame::Middle }),
            Step::Last(statements) => {
                self.last = true;
                let frame = match (first, statements.len()) {
                    (true, 1) => Frame::Auto,
                    (true, _) => Frame::Whole,
                    (false, _) => Frame::Commit,
                };
                Ask::Send(statements, frame)
            }
            Step::Stop(verdict) => Ask::Rollback(verdict),
        }
    }

    fn tell(&mut self, got: Result<Vec<Rows>, Fact>) -> Option<Reply<Verdict>> {
        match got {
            Err(fact) => Some(outcome::judge(fact)),
            Ok(rows) => {
                self.seen.extend(rows);
                self.last.then(|| Reply::Done(self.transaction.verdict(&self.seen)))
            }
        }
    }
}
