//! What must come of a step, and the playing of a script.

use super::{Got, Op, Step, Table};
use crate::postgres::error::Code;

/// What must come of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// These rows, id and `v`.
    Rows(Vec<(i32, i32)>),
    Flag(bool),
    Done,
    RolledBack,
    /// It waits for these sessions.
    Waits(Vec<u32>),
    /// It does something that takes time, and waits for nobody.
    Busy,
    Fails(Code),
    /// Its connection ends.
    Closed,
}

/// How a session's last command stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Ended(Got),
    Failed(Code),
    /// The connection ended.
    Closed,
    /// It has not ended, and waits for these sessions (none: it waits for no lock).
    Waits(Vec<u32>),
}

impl Expect {
    /// What is seen then.
    pub fn seen(&self) -> Seen {
        match self {
            Expect::Rows(rows) => Seen::Ended(Got::Rows(rows.clone())),
            Expect::Flag(flag) => Seen::Ended(Got::Flag(*flag)),
            Expect::Done => Seen::Ended(Got::Done),
            Expect::RolledBack => Seen::Ended(Got::RolledBack),
            Expect::Waits(on) => Seen::Waits(on.clone()),
            Expect::Busy => Seen::Waits(Vec::new()),
            Expect::Fails(code) => Seen::Failed(*code),
            Expect::Closed => Seen::Closed,
        }
    }
}

/// What a script is played on. Sessions open when they first do something.
pub trait Server {
    /// Hands a command to a session.
    fn send(&mut self, session: u32, op: &Op);
    /// How its last command stands, once that is `wanted`, or at the latest after a while.
    fn look(&mut self, session: u32, wanted: &Seen) -> Seen;
    fn terminate(&mut self, session: u32);
    fn vanish(&mut self, session: u32);
    fn freeze(&mut self, session: u32);
    fn thaw(&mut self, session: u32);
    /// Whether the backend is gone, or at the latest after a while.
    fn is_gone(&mut self, session: u32) -> bool;
    fn pause(&mut self, ms: u64);
    fn crash(&mut self);
    /// What is committed in a table, by id.
    fn holds(&mut self, table: Table) -> Vec<(i32, i32)>;
}

/// Plays a script to its end; panics at the first thing that is not as it must be.
pub fn play(server: &mut dyn Server, script: &[Step]) {
    for (number, step) in script.iter().enumerate() {
        let check = |seen: Seen, wanted: Seen| assert_eq!(seen, wanted, "step {number}: {step:?}");
        match step {
            Step::Do(session, op, expect) => {
                server.send(*session, op);
                let wanted = expect.seen();
                check(server.look(*session, &wanted), wanted);
            }
            Step::Ends(session, expect) => {
                let wanted = expect.seen();
                check(server.look(*session, &wanted), wanted);
            }
            Step::Waits(session, on) => {
                let wanted = Seen::Waits(on.clone());
                check(server.look(*session, &wanted), wanted);
            }
            Step::Terminate(session) => server.terminate(*session),
            Step::Vanish(session) => server.vanish(*session),
            Step::Freeze(session) => server.freeze(*session),
            Step::Thaw(session) => server.thaw(*session),
            Step::Gone(session) => assert!(server.is_gone(*session), "step {number}: session {session} is still there"),
            Step::Pause(ms) => server.pause(*ms),
            Step::Crash => server.crash(),
            Step::Holds(table, rows) => assert_eq!(server.holds(*table), *rows, "step {number}: {table:?}"),
        }
    }
}
