//! PgBouncer between a server and its database, thrown away as well.

use crate::postgres::{Database, Owner, Postgres, free_port};
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Starts it, and stops it once nobody holds the other end of standard input any more.
const WATCH: &str = r#"
    "$@" &
    pooler=$!
    cat > /dev/null
    kill -TERM "$pooler"
    wait "$pooler"
"#;

/// A pooler. Stopped when dropped.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    watch: Child,
    _folder: TempDir,
}

impl PgBouncer {
    /// Starts one before `postgres` that hands backends out by the `mode`: `session` or `transaction`.
    pub fn start(postgres: &Postgres, mode: &str) -> PgBouncer {
        let folder = tempfile::Builder::new().prefix("orbit-pgbouncer-").tempdir().expect("a temporary folder");
        let owner = Owner::of_servers();
        let port = free_port();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = 20\n\
             logfile = {folder}/log\n",
            postgres.port(),
            folder = folder.path().display(),
        );
        // With `any`, whoever comes is let in as this user.
        let settings = settings.replace("* = host", "* = user=postgres host");
        let file = folder.path().join("pgbouncer.ini");
        fs::write(&file, settings).expect("a file can be written");
        owner.give(&file);
        owner.give(folder.path());
        let mut watch = owner.command(Path::new("/bin/sh"));
        watch.args(["-c", WATCH, "sh"]).arg(program()).arg("-q").arg(&file);
        watch.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let watch = watch.spawn().expect("a shell can be started");
        let pooler = PgBouncer { port, watch, _folder: folder };
        let begun = Instant::now();
        let url = pooler.database(&postgres.database("postgres")).url();
        while let Err(error) = ::postgres::Client::connect(&url, ::postgres::NoTls) {
            assert!(begun.elapsed() < Duration::from_secs(60), "PgBouncer does not start: {error:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        pooler
    }

    /// A database, as it is reached through the pooler.
    pub fn database(&self, database: &Database) -> Database {
        Database { name: database.name.clone(), port: self.port }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.watch.stdin.take());
        let _ = self.watch.wait();
    }
}

fn program() -> &'static Path {
    let packaged = Path::new("/usr/sbin/pgbouncer");
    assert!(packaged.exists(), "PgBouncer is not installed: `apt-get install pgbouncer`");
    packaged
}
