//! A connection as Orbit wants it: named, bounded in every wait, and on a server that can be written.

use crate::driver::witness::Witness;
use crate::postgres::address::Address;
use crate::postgres::facts;
use crate::postgres::statement::fence::origin_of;
use ::postgres::error::Severity as Said;
use ::postgres::{Client, Error};
use orbit_core::store::origin::Origin;
use orbit_core::store::outcome::{Cause, Fact, FailureKind, Phase, Severity};
use r2d2::ManageConnection;
use r2d2_postgres::PostgresConnectionManager;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uuid::Uuid;

/// The oldest PostgreSQL that has what is used here (`idle_session_timeout`, `client_connection_check_interval`).
const OLDEST: u32 = 140_000;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Appends and what must be ordered with them.
    Store,
    /// Holds the election lock.
    Election,
    /// Looks at the fence and the clock.
    Control,
    /// Reads for requests.
    Requests,
    /// Commands and set-up.
    Tool,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Store => "store",
            Role::Election => "election",
            Role::Control => "control",
            Role::Requests => "requests",
            Role::Tool => "tool",
        }
    }
}

/// How long the server lets a connection wait, and stand still. They bound how long a lock of a server that has hung is
/// in the way of others (design, section 5, "No frozen locks").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// One statement that writes, and one of the election and of control.
    pub write: Duration,
    /// One statement of a request.
    pub read: Duration,
    /// A lock that another transaction holds.
    pub lock: Duration,
    /// A transaction that nothing is sent to.
    pub idle_in_transaction: Duration,
    /// An election session that nothing is sent to loses its lock. It is asked at every check.
    pub election_idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            write: Duration::from_secs(20),
            read: Duration::from_secs(25),
            lock: Duration::from_secs(1),
            idle_in_transaction: Duration::from_secs(5),
            election_idle: Duration::from_secs(10),
        }
    }
}

/// What a server says of itself when it is asked, not what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// Such as `15.18`.
    pub version: String,
    /// `on` waits for the log to be flushed at each commit; `off` may lose acknowledged work.
    pub synchronous_commit: String,
    /// Whether the server flushes at all.
    pub fsync: String,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

/// Why there is no connection that can be relied on.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("{}", facts::message(.0))]
    Postgres(#[from] Error),
    #[error("the server is in recovery: it is a standby, or has not finished starting, and cannot be written")]
    Recovery,
    #[error("the server takes no writes: `default_transaction_read_only` is on for it, the database or the role")]
    ReadOnly,
    #[error("the server is PostgreSQL {0}, and Orbit needs 14 or newer")]
    TooOld(String),
    #[error("the database's encoding is {0}, and Orbit needs UTF8")]
    Encoding(String),
    #[error("the server does not say which timeline it writes: its log's file is {0:?}")]
    Unnamed(String),
}

impl ConnectError {
    /// What the judgement is made from: nothing was sent.
    pub fn fact(&self) -> Fact {
        let kind = match self {
            ConnectError::Postgres(error) => return facts::fact(error, Phase::NotSent),
            ConnectError::Recovery | ConnectError::ReadOnly => FailureKind::Unwritable,
            ConnectError::TooOld(_) | ConnectError::Encoding(_) | ConnectError::Unnamed(_) => FailureKind::Broken,
        };
        let severity = Some(Severity::Error);
        Fact { phase: Phase::NotSent, severity, cause: Cause::Kind(kind), message: self.to_string() }
    }
}

/// How a server's sessions are named, in `application_name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerName {
    pub node_id: String,
    /// Whoever looks for the leader finds the election's session as `orbit-cluster:<node id>` (reference, "Health fields").
    pub in_cluster: bool,
}

/// One that is alone, or a command.
impl From<&str> for ServerName {
    fn from(node_id: &str) -> ServerName {
        ServerName { node_id: node_id.into(), in_cluster: false }
    }
}

impl ServerName {
    fn of_session(&self, role: Role) -> String {
        match role {
            Role::Election if self.in_cluster => format!("orbit-cluster:{}", self.node_id),
            role => format!("orbit:{}:{}", self.node_id, role.name()),
        }
    }
}

/// Makes connections to one database for one server.
#[derive(Clone, Debug)]
pub struct Connector {
    pub address: Address,
    pub name: ServerName,
    pub timeouts: Timeouts,
    /// A pooler in transaction mode stands in between: what is set on a session is another's soon after, so everything is
    /// set for each transaction by itself (protocols, 31).
    pub pooled: bool,
    /// Who sees what each statement gave.
    pub witness: Witness,
}

/// A connection that was set up and looked at.
pub struct Opened {
    pub client: Client,
    pub settings: ServerSettings,
    /// Where it leads. A session that may write stays on the timeline that it found.
    pub origin: Origin,
    /// Set on the session; what answers without it is another session.
    pub marker: Uuid,
    /// Whether the server warned since this was last cleared.
    pub warned: Arc<AtomicBool>,
    /// What each transaction begins with, where nothing can be set on the session.
    pub local: Option<String>,
}

impl Connector {
    /// Connects. May hang for as long as the server does.
    pub fn open(&self, role: Role) -> Result<Opened, ConnectError> {
        let warned = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&warned);
        let mut config = self.address.config();
        config.notice_callback(move |notice| {
            if notice.parsed_severity() == Some(Said::Warning) {
                tracing::warn!(target: "orbit_runtime::store", code = notice.code().code(), "PostgreSQL warns: {}", notice.message());
                flag.store(true, Ordering::SeqCst);
            }
        });
        let mut client = PostgresConnectionManager::new(config, self.address.connector()).connect()?;
        let mut marker = [0; 16];
        getrandom::fill(&mut marker).expect("the operating system gives random bytes");
        let marker = uuid::Builder::from_random_bytes(marker).into_uuid();
        if self.pooled {
            client.batch_execute("BEGIN")?;
            let (settings, origin) = look(&mut client)?;
            client.batch_execute("COMMIT")?;
            return Ok(Opened { client, settings, origin, marker, warned, local: Some(self.set_locally(role)) });
        }
        // By SET and not at the start: a pooler refuses the `options` of a start.
        client.batch_execute(&self.set_up(role, marker))?;
        // Not every system can do this one; without it, a backend notices later that its client is gone.
        let _ = client.batch_execute("SET client_connection_check_interval = '1s'");
        let (settings, origin) = look(&mut client)?;
        warned.store(false, Ordering::SeqCst);
        Ok(Opened { client, settings, origin, marker, warned, local: None })
    }

    /// What can be set for one transaction, and bounds its waits.
    fn set_locally(&self, role: Role) -> String {
        let Timeouts { write, read, lock, idle_in_transaction, .. } = self.timeouts;
        let statement = if role == Role::Requests { read } else { write };
        let mut sql = format!(
            "SET LOCAL statement_timeout = {}; SET LOCAL lock_timeout = {};
             SET LOCAL idle_in_transaction_session_timeout = {}; SET LOCAL client_min_messages = 'warning';
             SET LOCAL jit = off;",
            statement.as_millis(),
            lock.as_millis(),
            idle_in_transaction.as_millis(),
        );
        if role == Role::Store {
            sql.push_str("SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = force_generic_plan;");
        }
        sql
    }

    fn set_up(&self, role: Role, marker: Uuid) -> String {
        let Timeouts { write, read, lock, idle_in_transaction, election_idle } = self.timeouts;
        let statement = if role == Role::Requests { read } else { write };
        let mut sql = format!(
            "SET application_name = '{}'; SET orbit.session = '{marker}'; SET client_min_messages = 'warning';
             SET statement_timeout = {}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {};
             SET DateStyle = 'ISO'; SET jit = off; SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5;
             SET tcp_keepalives_count = 3; SET tcp_user_timeout = 30000;",
            self.name.of_session(role).replace('\'', "''"),
            statement.as_millis(),
            lock.as_millis(),
            idle_in_transaction.as_millis(),
        );
        match role {
            // Plans that were made while tables were small are as good later: rows are found by their keys alone.
            Role::Store => sql.push_str("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan;"),
            Role::Election => sql.push_str(&format!("SET idle_session_timeout = {};", election_idle.as_millis())),
            Role::Control | Role::Requests | Role::Tool => {}
        }
        sql
    }
}

/// What the server is, and whether it can be written.
fn look(client: &mut Client) -> Result<(ServerSettings, Origin), ConnectError> {
    let row = client.query_one(
        "SELECT current_setting('server_version_num'), current_setting('server_version'), pg_is_in_recovery(),
                current_setting('transaction_read_only') = 'on', current_setting('server_encoding'),
                current_setting('synchronous_commit'), current_setting('fsync'),
                coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false),
                (SELECT system_identifier FROM pg_control_system()),
                CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(pg_current_wal_insert_lsn()) END",
        &[],
    )?;
    let version: String = row.get(1);
    let number: u32 = row.get::<_, String>(0).parse().unwrap_or(0);
    if number < OLDEST {
        return Err(ConnectError::TooOld(version));
    }
    if row.get(2) {
        return Err(ConnectError::Recovery);
    }
    if row.get(3) {
        return Err(ConnectError::ReadOnly);
    }
    let encoding: String = row.get(4);
    if encoding != "UTF8" {
        return Err(ConnectError::Encoding(encoding));
    }
    let file: String = row.get(9);
    let origin = origin_of(row.get(8), &file).map_err(|_| ConnectError::Unnamed(file))?;
    Ok((ServerSettings { version, synchronous_commit: row.get(5), fsync: row.get(6), tls: row.get(7) }, origin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_session_names_itself_and_bounds_each_of_its_waits() {
        let database = orbit_support::Postgres::shared().fresh();
        let timeouts = Timeouts::default();
        let address = Address::parse(&database.url()).expect("an address");
        let connector =
            Connector { address, name: "node-a".into(), timeouts, pooled: false, witness: Witness::default() };
        let in_cluster = ServerName { node_id: "node-a".into(), in_cluster: true };
        assert_eq!(in_cluster.of_session(Role::Election), "orbit-cluster:node-a");
        assert_eq!(in_cluster.of_session(Role::Store), "orbit:node-a:store");
        for role in [Role::Store, Role::Election, Role::Control, Role::Requests, Role::Tool] {
            let mut client = connector.open(role).expect("it opens").client;
            let named = "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()";
            let name: String = client.query_one(named, &[]).expect("it answers").get(0);
            assert_eq!(name, format!("orbit:node-a:{}", role.name()));
            let rows = client.query("SELECT name, setting FROM pg_settings", &[]).expect("it answers");
            let settings: BTreeMap<String, String> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            let ms = |time: Duration| time.as_millis().to_string();
            let statement = if role == Role::Requests { timeouts.read } else { timeouts.write };
            let idle = if role == Role::Election { timeouts.election_idle } else { Duration::ZERO };
            for (setting, wanted) in [
                ("statement_timeout", ms(statement)),
                ("lock_timeout", ms(timeouts.lock)),
                ("idle_in_transaction_session_timeout", ms(timeouts.idle_in_transaction)),
                ("idle_session_timeout", ms(idle)),
                ("client_connection_check_interval", "1000".into()),
                ("tcp_keepalives_idle", "10".into()),
                ("tcp_keepalives_interval", "5".into()),
                ("tcp_keepalives_count", "3".into()),
                ("tcp_user_timeout", "30000".into()),
            ] {
                assert_eq!(settings[setting], wanted, "{setting} of {role:?}");
            }
        }
    }
}
