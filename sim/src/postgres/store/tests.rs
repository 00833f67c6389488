//! What only several sessions at once show of Orbit's statements.

use super::{Orbit, Program, database_of};
use crate::postgres::engine::{Engine, SessionId};
use crate::postgres::session::{Answer, Command, Settings};
use orbit_core::cluster::{Elected, Mode};
use orbit_core::id::{CallKey, ClusterId, Incarnation, Term};
use orbit_core::store::append::{Append, Fence};
use orbit_core::store::statement::{
    CampaignRule, ClaimTasks, ClearHolder, DefinitionRow, Holder, PutDefinition, RaiseFence, Statement, TakeLock,
};
use orbit_core::time::{ClusterMs, WallMs};
use uuid::Uuid;

const WRITER: Fence = Fence { term: Term(1), incarnation: Incarnation(Uuid::from_u128(1)) };

struct Database(Engine<Orbit>);

impl Database {
    fn new() -> Database {
        Database(database_of(ClusterId(Uuid::nil()), WRITER, Mode::Single, Elected::Lock))
    }

    /// A session whose transaction has begun.
    fn begun(&mut self) -> SessionId {
        let session = self.0.connect(Settings::default()).expect("it is up");
        self.ends(session, Command::Begin);
        session
    }

    fn runs(&mut self, session: SessionId, statement: impl Into<Statement>) {
        self.0.start(session, Command::Run(Program::new(statement.into())));
    }

    fn ends(&mut self, session: SessionId, command: Command<Program>) {
        self.0.start(session, command);
        assert!(!self.0.is_busy(session), "it waits for nobody");
    }
}

fn definition(version: &str) -> PutDefinition {
    let definition = DefinitionRow {
        name: "W".into(),
        version: version.into(),
        hash: "sha256:0".into(),
        document: serde_json::Value::Null,
        created_at_ms: ClusterMs(0),
    };
    PutDefinition { key: CallKey(Uuid::nil()), fence: WRITER, definition }
}

#[test]
fn definitions_stand_in_the_order_in_which_they_were_sent_and_not_in_that_of_their_commits() {
    let mut database = Database::new();
    let (first, second) = (database.begun(), database.begun());
    database.runs(first, definition("1"));
    database.runs(second, definition("2"));
    database.ends(second, Command::Commit);
    database.ends(first, Command::Commit);
    let versions: Vec<&str> = database.0.domain.store.definitions().map(|row| row.version.as_str()).collect();
    assert_eq!(versions, ["1", "2"]);
}

#[test]
fn who_waits_for_the_fence_has_no_number_before_it_has_it() {
    let mut database = Database::new();
    let [takeover, append, claim, release] = [(); 4].map(|()| database.begun());
    database.runs(takeover, TakeLock);
    let holder = Holder { node_id: "n".into(), host: "h".into(), pid: 1, addr: None, since_ms: WallMs(0) };
    let incarnation = Incarnation(Uuid::from_u128(2));
    let (mode, timeline, rule) = (Mode::Single, None, CampaignRule::Sound);
    database.runs(takeover, RaiseFence { expected: WRITER, mode, incarnation, holder, timeline, rule });
    database.runs(append, Append::under(WRITER, Vec::new()));
    database.runs(claim, ClaimTasks { key: CallKey(Uuid::nil()), fence: WRITER, wants: Vec::new() });
    database.runs(release, ClearHolder { fence: WRITER });
    assert_eq!(database.0.blockers(release), [append, claim], "in line behind those who share");
    database.0.take_answers();
    // Those who share the row are waited for in the order of their numbers, which is the one in which they had it.
    database.ends(takeover, Command::Commit);
    let had: Vec<SessionId> = database
        .0
        .take_answers()
        .into_iter()
        .filter(|(_, a)| matches!(a, Ok(Answer::Rows(_))))
        .map(|(s, _)| s)
        .collect();
    assert_eq!(had, [append, claim]);
    assert_eq!(database.0.blockers(release), [append]);
}
