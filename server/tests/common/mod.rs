//! Real processes for end-to-end tests: ended by their own id, always reaped, and no step without a bound in time.
#![allow(dead_code)]

pub mod book;
pub mod cluster;
pub mod history;
pub mod raw;
pub mod tables;

use orbit_sdk::{Client, Error};
use orbit_support::{Database, Postgres};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// No step of a test takes longer, on a machine that is busy with much else.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The example that the demo runs.
pub const ORDER_PROCESSING: &str = include_str!("../../../docs/examples/order-processing.yaml");

/// A folder that is removed at the end of the test.
pub fn folder() -> TempDir {
    tempfile::Builder::new().prefix("orbit-test-").tempdir().expect("a temporary folder can be made")
}

/// Waits until there is something, or fails with what was waited for.
pub fn wait_for<T>(what: &str, patience: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < patience, "no {what} within {patience:?}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// An `orbit` command line, with nothing of this process's own configuration.
pub fn orbit<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orbit"));
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORBIT_") {
            command.env_remove(name);
        }
    }
    command
}

/// A process that is killed and reaped when dropped.
pub struct Process {
    child: Child,
    /// What it writes to stderr.
    log: PathBuf,
}

impl Process {
    /// Starts it, its stderr going to a file of this name.
    pub fn spawn(mut command: Command, log: &Path) -> Process {
        let stderr = File::create(log).expect("a log file can be made");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn();
        Process { child: child.expect("the process starts"), log: log.into() }
    }

    /// Takes a process over that was started otherwise. `log` need not exist.
    pub fn adopt(child: Child, log: PathBuf) -> Process {
        Process { child, log }
    }

    /// What it wrote to stderr so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    pub fn log_path(&self) -> PathBuf {
        self.log.clone()
    }

    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("process ids are small");
        let pid = Pid::from_raw(id).expect("process ids are not 0");
        kill_process(pid, signal).expect("a child that is not reaped can be signalled");
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(mut self) {
        self.kill_now();
    }

    /// The same, of a process that another one is put in the place of.
    pub fn kill_now(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// Waits for the end.
    pub fn ended(&mut self, patience: Duration) -> ExitStatus {
        let child = &mut self.child;
        wait_for("end of the process", patience, || child.try_wait().expect("a child can be waited for"))
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, and be reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("--- the end of {}:", self.log.display());
            for line in tail.iter().rev() {
                eprintln!("{line}");
            }
        }
    }
}

/// A server process.
pub struct Server {
    pub process: Process,
    pub addr: SocketAddr,
}

impl Server {
    /// Starts a server on this database and waits until it is ready. `more` are further arguments.
    pub async fn start(db: &Path, more: &[&str]) -> Server {
        Server::start_on(db, "127.0.0.1:0".parse().expect("an address"), more).await
    }

    pub async fn start_on(db: &Path, addr: SocketAddr, more: &[&str]) -> Server {
        let server = Server::spawn(db, addr, more);
        server.ready().await;
        server
    }

    /// Starts a server, and waits until it listens.
    pub fn spawn(db: &Path, addr: SocketAddr, more: &[&str]) -> Server {
        let folder = db.parent().expect("a database is in a folder");
        Server::spawn_on(db.to_str().expect("a plain path"), folder, addr, more)
    }

    /// The same, on what `--db` is given; its log goes to this folder.
    pub fn spawn_on(db: &str, folder: &Path, addr: SocketAddr, more: &[&str]) -> Server {
        let mut command = orbit(&["server"]);
        command.args(["--db", db]).arg("--addr").arg(addr.to_string()).args(more);
        let number = std::fs::read_dir(folder).expect("a readable folder").count();
        Server::spawn_command(command, &folder.join(format!("server-{number}.log")))
    }

    /// Starts a command that serves, and waits until it listens.
    pub fn spawn_command(command: Command, log: &Path) -> Server {
        let mut process = Process::spawn(command, log);
        let addr = wait_for("listening server", PATIENCE, || {
            let addr = listening(&process.log());
            assert!(addr.is_some() || process.is_running(), "the server ended: {}", process.log());
            addr
        });
        Server { process, addr }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn client(&self) -> Client {
        Client::new(&self.url(), None).expect("an address")
    }

    /// Waits until `/v1/ready` says so.
    pub async fn ready(&self) {
        let client = self.client();
        let begun = Instant::now();
        while !client.ready().await.is_ok_and(|ready| ready.ready) {
            assert!(begun.elapsed() < PATIENCE, "the server is not ready: {}", self.process.log());
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The address in the line that tells it.
pub fn listening(log: &str) -> Option<SocketAddr> {
    let line = log.lines().find(|line| line.contains("ORBIT runtime listening"))?;
    let rest = line.split("addr=").nth(1).or_else(|| line.split("\"addr\":\"").nth(1))?;
    rest.split([' ', '"']).next()?.parse().ok()
}

/// An address that was free a moment ago, for servers that are started again and again on the same one.
pub fn free_addr() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there are free ports");
    listener.local_addr().expect("a bound address")
}

/// How a command ended, and what it printed.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }
}

/// Runs a command to its end.
pub fn run(command: Command) -> Ended {
    run_with_input(command, "")
}

/// Runs a command to its end, with this on its standard input.
pub fn run_with_input(mut command: Command, input: &str) -> Ended {
    let folder = folder();
    let (out, err) = (folder.path().join("out"), folder.path().join("err"));
    command.stdin(Stdio::piped());
    command.stdout(File::create(&out).expect("a file can be made"));
    command.stderr(File::create(&err).expect("a file can be made"));
    let mut process = Process { child: command.spawn().expect("the command starts"), log: err.clone() };
    let mut stdin = process.child.stdin.take().expect("it is piped");
    // It may end without reading.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let status = process.ended(PATIENCE);
    let text = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).expect("it was written")).into_owned();
    Ended { code: status.code().unwrap_or(-1), stdout: text(&out), stderr: text(&err) }
}

/// The input of an order.
pub fn order(id: &str) -> serde_json::Value {
    serde_json::json!({
        "order_id": id, "customer": "ada", "amount": 25, "items": [{"sku": "book", "quantity": 1}],
    })
}

/// Whether a call failed for want of a server.
pub fn is_unreachable<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(error) if error.is_unreachable())
}

/// Blocking calls of the database's client, off the runtime.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("no panic")
}

/// A PostgreSQL of a test's own, which it may halt and kill, with a database.
pub async fn own_postgres() -> (Arc<Postgres>, Database) {
    aside(|| {
        let postgres = Arc::new(Postgres::start(&[]));
        let database = postgres.fresh();
        (postgres, database)
    })
    .await
}
