//! A PostgreSQL server that is thrown away, made with the programs of the system's packages. The system's own cluster
//! is never touched: a new one is made in a temporary folder, on a free port.
//!
//! A shell watches over it: when the test process ends, however it does, the pipe that the shell reads from closes, and
//! the shell stops the server by its process id and removes the folder.

use rustix::process::{Pid, Signal, kill_process};
use std::fmt;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// No step of setting up takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the server, and stops it once nobody holds the other end of standard input any more. The process id is the
/// one that the server that runs then wrote down: tests restart it.
const WATCH: &str = r#"
    "$1/postgres" -D "$2/data" 2>> "$2/log" &
    cat > /dev/null
    server=$(head -n 1 "$2/data/postmaster.pid" 2> /dev/null)
    if [ -n "$server" ]; then
        # Woken, if a test made it stand still; then an immediate shutdown.
        kill -CONT "$server" && kill -QUIT "$server"
        while kill -0 "$server"; do sleep 0.02; done
    fi 2> /dev/null
    rm -rf "$2/data" "$2/log"
    rmdir "$2"
"#;

/// A server of its own. Stopped and removed when dropped.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    folder: TempDir,
    port: u16,
    watch: Child,
    databases: AtomicU32,
}

/// A database of that server. It stays until the server goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    pub name: String,
    pub port: u16,
}

impl Database {
    /// How a superuser reaches it.
    pub fn url(&self) -> String {
        self.url_as("postgres")
    }

    /// How this role reaches it.
    pub fn url_as(&self, role: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/{}", self.port, self.name)
    }

    /// A connection of a superuser, for what tests do behind Orbit's back.
    pub fn connect(&self) -> ::postgres::Client {
        ::postgres::Client::connect(&self.url(), ::postgres::NoTls).expect("the database takes connections")
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url())
    }
}

impl Postgres {
    /// The server that all tests of this process share.
    pub fn shared() -> &'static Postgres {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| Postgres::start(&[]))
    }

    /// Starts a server with these settings beside PostgreSQL's own defaults, such as `("max_connections", "20")`.
    pub fn start(settings: &[(&str, &str)]) -> Postgres {
        Postgres::start_with(settings, &[])
    }

    /// The same, with further files in its folder: certificates, and what replaces its own, such as `pg_hba.conf`.
    pub fn start_with(settings: &[(&str, &str)], files: &[(&str, &str)]) -> Postgres {
        Postgres::launch(settings, files, None)
    }

    /// Starts a server that has a file system of so many megabytes beside its own, for databases that fill it
    /// ([`Postgres::fresh_in_small_space`]). None where this process may not mount one.
    pub fn start_in_small_space(megabytes: u32) -> Option<Postgres> {
        let mut attempt = Command::new("unshare");
        attempt.args(["-m", "/bin/sh", "-c", "mount -t tmpfs tmpfs /mnt"]).stdout(Stdio::null()).stderr(Stdio::null());
        let may = attempt.status().is_ok_and(|status| status.success());
        may.then(|| Postgres::launch(&[], &[], Some(megabytes)))
    }

    fn launch(settings: &[(&str, &str)], files: &[(&str, &str)], space: Option<u32>) -> Postgres {
        let programs = programs();
        let folder = tempfile::Builder::new().prefix("orbit-postgres-").tempdir().expect("a temporary folder");
        let owner = Owner::of_servers();
        owner.give(folder.path());
        let data = folder.path().join("data");
        let mut initdb = owner.command(&programs.join("initdb"));
        initdb.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync"]);
        // Not the order of bytes, as on most people's servers: what has to be in that order has to say so.
        initdb.args(["--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"]).arg("-D").arg(&data);
        let made = initdb.output().expect("initdb can be run");
        assert!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        let port = free_port();
        let mut lines = format!(
            "port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nlog_min_messages = warning\n\
             max_connections = 200\n"
        );
        for (name, value) in settings {
            lines.push_str(&format!("{name} = '{value}'\n"));
        }
        let file = data.join("postgresql.conf");
        let own = fs::read_to_string(&file).expect("initdb wrote it");
        fs::write(&file, own + &lines).expect("the configuration can be written");
        for (name, text) in files {
            let file = data.join(name);
            fs::write(&file, text).expect("a file can be written");
            fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("a file's own permissions");
            owner.give(&file);
        }
        Postgres::begun(programs, folder, port, space)
    }

    /// Starts a server whose folder of data is in this folder.
    pub(crate) fn watched(programs: PathBuf, folder: TempDir, port: u16) -> Postgres {
        Postgres::begun(programs, folder, port, None)
    }

    fn begun(programs: PathBuf, folder: TempDir, port: u16, space: Option<u32>) -> Postgres {
        let owner = Owner::of_servers();
        let mut watch = owner.command(Path::new("/bin/sh"));
        watch.args(["-c", WATCH, "sh"]).arg(&programs).arg(folder.path());
        if let Some(megabytes) = space {
            watch = owner.with_space(&watch, &folder.path().join("space"), megabytes);
        }
        watch.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let watch = watch.spawn().expect("a shell can be started");
        let server = Postgres { programs, folder, port, watch, databases: AtomicU32::new(0) };
        server.ready();
        server
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Waits until connections are taken.
    pub fn ready(&self) {
        let begun = Instant::now();
        let url = self.database("postgres").url();
        while let Err(error) = ::postgres::Client::connect(&url, ::postgres::NoTls) {
            assert!(begun.elapsed() < PATIENCE, "PostgreSQL does not start: {error:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What the server logged: warnings and errors.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Where it logs to.
    pub fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// The process id of the server, as it wrote it down.
    pub fn pid(&self) -> u32 {
        let text = fs::read_to_string(self.data().join("postmaster.pid")).expect("it runs");
        text.lines().next().and_then(|line| line.parse().ok()).expect("a number")
    }

    /// Stops it (`fast` rolls back what runs, `immediate` is a crash), and starts it again.
    pub fn restart(&self, mode: &str) {
        self.halt(mode);
        self.resume();
    }

    /// Stops it. [`Postgres::resume`] starts it again.
    pub fn halt(&self, mode: &str) {
        self.control(&["stop", "-w", "-m", mode]);
    }

    /// Starts it after [`Postgres::halt`] or [`Postgres::kill`].
    pub fn resume(&self) {
        let log = self.log_file();
        let begun = Instant::now();
        // After a kill, as long as one of its processes lives it may not be started.
        while !self.controlled(&["start", "-w", "-l", log.to_str().expect("a plain path")]) {
            assert!(begun.elapsed() < PATIENCE, "PostgreSQL does not start again: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.ready();
    }

    /// Kills the server itself, as a host does that runs out of memory: nothing is told to anybody. Its other processes
    /// notice and end.
    pub fn kill(&self) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::KILL).expect("it runs");
    }

    /// Makes the server and every process of it stand still (SIGSTOP), as on a host that is suspended, until
    /// [`Postgres::thaw`].
    pub fn freeze(&self) {
        self.signal_all(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal_all(Signal::CONT);
    }

    fn signal_all(&self, signal: Signal) {
        let server = self.pid();
        // The server first: from then on it begins no others.
        let send = |pid: u32| {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
            // One that has ended meanwhile needs no signal.
            let _ = kill_process(pid, signal);
        };
        send(server);
        children(server).into_iter().for_each(send);
    }

    fn control(&self, arguments: &[&str]) {
        assert!(self.controlled(arguments), "pg_ctl {arguments:?} failed: {}", self.log());
    }

    fn controlled(&self, arguments: &[&str]) -> bool {
        let mut command = Owner::of_servers().command(&self.programs.join("pg_ctl"));
        command.args(arguments).arg("-D").arg(self.data());
        // No pipes: the server would inherit them, and they would be waited for as long as it runs.
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.expect("pg_ctl can be run").success()
    }

    /// A new, empty database.
    pub fn fresh(&self) -> Database {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("orbit_{number}");
        let mut client = self.database("postgres").connect();
        client.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).expect("a database can be made");
        self.database(&name)
    }

    /// A new, empty database in the small file system.
    pub fn fresh_in_small_space(&self) -> Database {
        let mut client = self.database("postgres").connect();
        let space = self.folder.path().join("space");
        let space = format!("CREATE TABLESPACE small LOCATION '{}'", space.display());
        client.batch_execute(&space).expect("a space can be made");
        let database = "CREATE DATABASE small TEMPLATE template0 TABLESPACE small";
        client.batch_execute(database).expect("a database can be made");
        self.database("small")
    }

    /// Starts it after [`Postgres::halt`] as a server in recovery that takes no connections, until
    /// [`Postgres::promote`].
    pub fn resume_in_recovery(&self) {
        let (signal, settings) = (self.data().join("standby.signal"), self.data().join("postgresql.auto.conf"));
        fs::write(&signal, "").expect("a file can be written");
        Owner::of_servers().give(&signal);
        let own = fs::read_to_string(&settings).unwrap_or_default();
        fs::write(&settings, own + "hot_standby = off\n").expect("the configuration can be written");
        let log = self.folder.path().join("log");
        self.control(&["start", "-W", "-l", log.to_str().expect("a plain path")]);
        let (begun, url) = (Instant::now(), self.database("postgres").url());
        let says =
            || ::postgres::Client::connect(&url, ::postgres::NoTls).err().and_then(|error| error.code().cloned());
        while says() != Some(::postgres::error::SqlState::CANNOT_CONNECT_NOW) {
            assert!(begun.elapsed() < PATIENCE, "PostgreSQL does not say that it is starting: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends its recovery.
    pub fn promote(&self) {
        let begun = Instant::now();
        while !self.controlled(&["promote", "-W"]) {
            assert!(begun.elapsed() < PATIENCE, "PostgreSQL is not promoted: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.ready();
    }

    /// The database of this name.
    pub fn database(&self, name: &str) -> Database {
        Database { name: name.into(), port: self.port }
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.watch.stdin.take());
        let _ = self.watch.wait();
    }
}

/// Who runs servers: PostgreSQL refuses to run as root.
pub(crate) struct Owner {
    /// User and group to become.
    ids: Option<(u32, u32)>,
}

impl Owner {
    pub(crate) fn of_servers() -> Owner {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let root = status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
        Owner { ids: root.then(|| account("postgres").unwrap_or((65534, 65534))) }
    }

    /// Makes a folder theirs.
    pub(crate) fn give(&self, folder: &Path) {
        if let Some((user, group)) = self.ids {
            std::os::unix::fs::chown(folder, Some(user), Some(group)).expect("root may give files away");
        }
    }

    /// The same command, which sees a small file system of theirs in this folder; nobody else does.
    fn with_space(&self, command: &Command, folder: &Path, megabytes: u32) -> Command {
        const MOUNT: &str = r#"mount -t tmpfs -o "size=$1m,mode=700,uid=$2,gid=$3" tmpfs "$4" && shift 4 && exec "$@""#;
        fs::create_dir(folder).expect("a folder can be made");
        self.give(folder);
        let (user, group) = self.ids.unwrap_or_default();
        let mut mounted = Command::new("unshare");
        mounted.args(["-m", "/bin/sh", "-c", MOUNT, "sh"]);
        mounted.args([megabytes.to_string(), user.to_string(), group.to_string()]).arg(folder);
        mounted.arg(command.get_program()).args(command.get_args());
        mounted.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir("/");
        mounted
    }

    /// A command that they run, without this process's own settings.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = match self.ids {
            None => Command::new(program),
            Some((user, group)) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={user}")).arg(format!("--regid={group}")).arg("--clear-groups");
                command.arg("--").arg(program);
                command
            }
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("LANG", "C.UTF-8").env("HOME", "/tmp").current_dir("/");
        command
    }
}

/// The processes that this one has begun and that have not ended.
fn children(of: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("Linux lists its processes").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok());
        parent == Some(of)
    };
    pids.filter(is_child).collect()
}

/// User and group of an account of this system.
fn account(name: &str) -> Option<(u32, u32)> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// The folder of `initdb` and `postgres`: `$ORBIT_PG_BIN`, the newest of the system's packages, or the `PATH`.
pub fn programs() -> PathBuf {
    let has = |folder: &Path| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    if let Some(folder) = std::env::var_os("ORBIT_PG_BIN").map(PathBuf::from) {
        assert!(has(&folder), "ORBIT_PG_BIN is {}, and there is no initdb in it", folder.display());
        return folder;
    }
    let version = |folder: &Path| folder.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    versions.sort_by_key(|folder| version(folder));
    let packaged = versions.into_iter().rev().map(|folder| folder.join("bin"));
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let found = packaged.chain(std::env::split_paths(&on_path)).find(|folder| has(folder));
    found.expect("PostgreSQL's programs are not installed: `apt-get install postgresql`, or set ORBIT_PG_BIN")
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there are free ports");
    listener.local_addr().expect("a bound address").port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_runs_until_it_is_dropped_and_leaves_nothing() {
        let server = Postgres::start(&[]);
        let (first, second) = (server.fresh(), server.fresh());
        assert_ne!(first, second);
        first.connect().batch_execute("CREATE TABLE t (n int)").unwrap();
        let visible = "SELECT count(*) FROM pg_tables WHERE tablename = 't'";
        assert_eq!(second.connect().query_one(visible, &[]).unwrap().get::<_, i64>(0), 0);
        server.restart("immediate");
        server.kill();
        server.resume();
        assert_eq!(first.connect().query_one(visible, &[]).unwrap().get::<_, i64>(0), 1);
        let (folder, pid) = (server.folder.path().to_owned(), server.pid());
        assert!(Path::new(&format!("/proc/{pid}")).exists());
        drop(server);
        assert!(!folder.exists() && !Path::new(&format!("/proc/{pid}")).exists());
    }
}
