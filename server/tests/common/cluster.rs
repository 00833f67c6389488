//! Several servers on one PostgreSQL, of which one leads.
#![allow(dead_code)]

use super::{PATIENCE, Server, aside, folder, raw, wait_for};
use orbit_support::{Database, Postgres};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use tempfile::TempDir;

/// A database, and where its servers' logs are.
pub struct Cluster {
    pub database: Database,
    pub folder: TempDir,
}

impl Cluster {
    /// On the PostgreSQL that all tests of this process share.
    pub async fn new() -> Cluster {
        Cluster::on(aside(|| Postgres::shared().fresh()).await)
    }

    pub fn on(database: Database) -> Cluster {
        Cluster { database, folder: folder() }
    }

    /// A server of it, with quicker checks than usual; which of them leads, its readiness says.
    pub fn server(&self, name: &str, more: &[&str]) -> Server {
        self.server_at(&self.database.url(), name, more)
    }

    /// A server of it that is told these options alone.
    pub fn plain_server(&self, name: &str, options: &[&str]) -> Server {
        let any = "127.0.0.1:0".parse().expect("an address");
        let options = [&["--cluster", "--node-id", name], options].concat();
        Server::spawn_on(&self.database.url(), self.folder.path(), any, &options)
    }

    /// The same, which reaches the database by another way.
    pub fn server_at(&self, url: &str, name: &str, more: &[&str]) -> Server {
        spawn(url, self.folder.path(), name, more)
    }

    /// A leader `a`, and a standby `b` that follows it.
    pub async fn pair(&self) -> (Server, Server) {
        self.pair_with(&[]).await
    }

    pub async fn pair_with(&self, more: &[&str]) -> (Server, Server) {
        let a = self.server("a", more);
        a.ready().await;
        let b = self.server("b", more);
        follows(&b);
        (a, b)
    }

    /// Ends the session that would hold the election lock for this server; how many there were.
    pub fn end_election_of(&self, name: &str) -> usize {
        end_election_of(&self.database, name)
    }
}

/// Starts a server of a cluster, and waits until it listens.
pub fn spawn(url: &str, folder: &Path, name: &str, more: &[&str]) -> Server {
    spawn_on(url, folder, name, "127.0.0.1:0".parse().expect("an address"), more)
}

/// The same, on this address.
pub fn spawn_on(url: &str, folder: &Path, name: &str, addr: SocketAddr, more: &[&str]) -> Server {
    let usual = ["--cluster", "--node-id", name];
    let quick = [("--check-interval", "0.2"), ("--leader-validity", "1"), ("--election-session-timeout", "2")];
    let quick = quick.iter().filter(|(option, _)| !more.contains(option)).flat_map(|(option, value)| [*option, *value]);
    let arguments: Vec<&str> = usual.into_iter().chain(quick).chain(more.iter().copied()).collect();
    Server::spawn_on(url, folder, addr, &arguments)
}

/// Waits until a server says that it follows a leader.
pub fn follows(server: &Server) {
    wait_for("standby", PATIENCE, || server.process.log().contains("following the leader").then_some(()));
}

/// What a server says of itself.
pub fn health(server: &Server) -> Value {
    raw::get(server, "/v1/health").json()
}

/// See [`Cluster::end_election_of`].
pub fn end_election_of(database: &Database, name: &str) -> usize {
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE application_name = 'orbit-cluster:' || $1 AND datname = current_database()";
    database.connect().query(sql, &[&name]).expect("they are ended").len()
}
