//! Where random sessions meet: tables that are emptied for each interleaving, and sessions that are kept where they can.

use super::client::{Client, await_words};
use super::rest::{Does, Telling, Watch};
use super::sql;
use super::{IN_ORDER, Session, TABLES};
use orbit_sim::postgres::Code;
use orbit_sim::postgres::script::{Got, Op, Seen, Table};
use orbit_support::Database;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A server that has not come to rest by then hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is looked whether those wait that have not answered.
const LOOKS: Duration = Duration::from_millis(1);

/// How a session stands when all have come to rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stands {
    /// Its backend is no more.
    Gone,
    /// What its last command came to, and whether it is in a transaction.
    Ended(Seen, bool),
    /// It waits for these sessions.
    Waits(Vec<u32>),
}

/// Under what the planner plans: nothing of it may change what statements do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// Whose statistics are like that.
    pub schema: &'static str,
    pub settings: &'static str,
}

/// Tables that were never analysed, that were when they were empty, and when they had rows.
const SCHEMAS: [&str; 3] = ["never", "empty", "filled"];
const PLANNERS: [&str; 4] =
    ["", "SET enable_nestloop = off;", "SET enable_hashjoin = off;", "SET enable_mergejoin = off;"];

impl Circumstances {
    /// Those of a seed.
    pub fn of(seed: u64) -> Circumstances {
        let (schema, settings) = (seed as usize % SCHEMAS.len(), seed as usize / SCHEMAS.len() % PLANNERS.len());
        Circumstances { schema: SCHEMAS[schema], settings: PLANNERS[settings] }
    }
}

/// See the module's documentation.
pub struct Arena<'a> {
    database: Database,
    watch: Watch<'a>,
    schema: &'static str,
    sessions: BTreeMap<u32, Session>,
    /// Their backends are no more.
    gone: BTreeSet<u32>,
    /// They were told to end.
    doomed: BTreeSet<u32>,
    /// They wait for nothing long.
    hasty: BTreeSet<u32>,
    begun: u64,
}

impl<'a> Arena<'a> {
    pub fn new(telling: &'a Telling) -> Arena<'a> {
        let database = telling.server.fresh();
        let mut watch = Watch::new(telling, &database);
        for schema in SCHEMAS {
            watch.admin().query(&format!("CREATE SCHEMA {schema}; SET search_path = {schema}; {TABLES}"));
        }
        watch.admin().query("ANALYZE empty.a, empty.b");
        watch.admin().query("INSERT INTO filled.a VALUES (1, 1), (2, 2), (3, 0); INSERT INTO filled.b VALUES (1, 1)");
        watch.admin().query("ANALYZE filled.a, filled.b");
        Arena {
            database,
            watch,
            schema: SCHEMAS[0],
            sessions: BTreeMap::new(),
            gone: BTreeSet::new(),
            doomed: BTreeSet::new(),
            hasty: BTreeSet::new(),
            begun: 0,
        }
    }

    /// New sessions with these settings, and tables with these rows alone.
    pub fn begin(&mut self, circumstances: Circumstances, sessions: &[(String, bool)], rows: &[(Table, i32, i32)]) {
        // What is whole is kept, since opening a session is what costs.
        let lost: BTreeSet<u32> = self.gone.union(&self.doomed).copied().collect();
        self.sessions.retain(|number, s| {
            let wanted = (1..=sessions.len()).contains(&(*number as usize)) && !lost.contains(number);
            wanted && !s.client.is_busy() && !s.client.is_closed()
        });
        let kept: Vec<String> = self.sessions.values().map(|s| s.client.pid().to_string()).collect();
        self.watch.admin().query(&format!(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database()
                 AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND NOT pid = ANY ('{{{}}}')",
            kept.join(",")
        ));
        self.schema = circumstances.schema;
        let Circumstances { schema, settings } = circumstances;
        for ((own, hasty), number) in sessions.iter().zip(1..) {
            let database = &self.database;
            let open = || Session { client: Client::open(database), op: None };
            let session = self.sessions.entry(number).or_insert_with(open);
            session.op = None;
            session.client.send(&format!(
                "ROLLBACK; RESET ALL; SELECT pg_advisory_unlock_all(); SET search_path = {schema};
                 {IN_ORDER} {settings} {own}"
            ));
            if *hasty {
                self.hasty.insert(number);
            } else {
                self.hasty.remove(&number);
            }
        }
        for session in self.sessions.values_mut() {
            session.client.wait();
            assert_eq!(session.client.answer().error, None, "a session can be made as new");
        }
        self.gone.clear();
        self.doomed.clear();
        let inserts = rows
            .iter()
            .map(|(table, id, v)| format!("INSERT INTO {schema}.{} (id, v) VALUES ({id}, {v});", table.name()));
        let inserts: String = inserts.collect();
        let admin = self.watch.admin();
        admin.query(&format!("DELETE FROM {schema}.a; DELETE FROM {schema}.b; {inserts}"));
        self.begun += 1;
        if self.begun.is_multiple_of(200) {
            admin.query(&format!("VACUUM {schema}.a, {schema}.b"));
        }
    }

    pub fn send(&mut self, session: u32, op: &Op) {
        let one = self.sessions.get_mut(&session).expect("it was opened at the beginning");
        self.watch.forget(one.client.pid());
        one.op = Some(op.clone());
        one.client.send(&sql::text(op));
    }

    pub fn terminate(&mut self, session: u32) {
        let pid = self.sessions[&session].client.pid();
        self.watch.admin().query(&format!("SELECT pg_terminate_backend({pid})"));
        self.doomed.insert(session);
    }

    pub fn vanish(&mut self, session: u32) {
        self.sessions.get_mut(&session).expect("it was opened").client.vanish();
    }

    /// Who holds and waits for what, for whoever has to understand a difference.
    pub fn locks(&mut self) -> String {
        let rows = self.watch.admin().query(
            "SELECT pid, locktype, coalesce(transactionid::text, page || ',' || tuple || '/' || relation::regclass, objid::text, ''),
                 mode, granted FROM pg_locks WHERE locktype IN ('transactionid', 'tuple', 'advisory') ORDER BY 2, 3, 5 DESC",
        );
        let who = |pid: &str| self.sessions.iter().find(|(_, s)| s.client.pid().to_string() == pid).map(|(n, _)| *n);
        let line = |row: &Vec<Option<String>>| {
            let column = |at: usize| row[at].as_deref().unwrap_or_default();
            let does = if column(4) == "t" { "holds" } else { "waits for" };
            Some(format!("{} {does} {} on {} {}", who(column(0))?, column(3), column(1), column(2)))
        };
        rows.iter().filter_map(line).collect::<Vec<String>>().join("\n  ")
    }

    /// What is committed in a table, by id.
    pub fn holds(&mut self, table: Table) -> Vec<(i32, i32)> {
        let sql = format!("SELECT id, v FROM {}.{} ORDER BY id", self.schema, table.name());
        sql::pairs(&self.watch.admin().query(&sql))
    }

    /// Waits until nothing happens any more, and says how every session stands.
    pub fn rest(&mut self) -> Result<BTreeMap<u32, Stands>, String> {
        let begun = Instant::now();
        loop {
            await_words(self.sessions.values().map(|s| &s.client), Some(LOOKS));
            let mut stands = BTreeMap::new();
            let mut open = Vec::new();
            for (number, session) in &mut self.sessions {
                session.client.listen();
                if self.gone.contains(number) {
                    stands.insert(*number, Stands::Gone);
                } else if session.client.is_busy() || session.client.is_closed() || self.doomed.contains(number) {
                    open.push((*number, session.client.pid()));
                } else {
                    let answer = session.client.answer();
                    let seen = session.op.as_ref().map_or(Seen::Ended(Got::Done), |op| sql::seen(op, answer));
                    stands.insert(*number, Stands::Ended(seen, answer.in_transaction));
                }
            }
            if open.is_empty() || self.all_rest(&open, &mut stands) {
                return Ok(stands);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("PostgreSQL does not come to rest: {stands:?}, and then {open:?}"));
            }
        }
    }

    /// Whether none of those that have not answered can go on by itself.
    fn all_rest(&mut self, open: &[(u32, i32)], stands: &mut BTreeMap<u32, Stands>) -> bool {
        let pids: Vec<i32> = open.iter().map(|(_, pid)| *pid).collect();
        let look = self.watch.look(&pids);
        for (number, pid) in open {
            match &look[pid] {
                Does::Something => return false,
                Does::Waits(_) if self.hasty.contains(number) || self.doomed.contains(number) => return false,
                Does::Waits(pids) => {
                    let on = self.sessions.iter().filter(|(_, s)| pids.contains(&s.client.pid()));
                    stands.insert(*number, Stands::Waits(on.map(|(number, _)| *number).collect()));
                }
                Does::Gone => {
                    stands.insert(*number, Stands::Gone);
                }
            }
        }
        let gone = stands.iter().filter(|(_, s)| **s == Stands::Gone).map(|(number, _)| *number);
        self.gone.extend(gone.collect::<Vec<u32>>());
        true
    }
}

impl Stands {
    /// Whether this is an error of this code.
    pub fn is(&self, code: Code) -> bool {
        matches!(self, Stands::Ended(Seen::Failed(failed), _) if *failed == code)
    }
}
