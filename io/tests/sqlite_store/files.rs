//! Files, locks and processes.

use crate::support::*;
use orbit_core::id::Term;
use orbit_core::node::Connection;
use orbit_core::store::append::{Append, GroupOutcome, Status, TaskChange};
use orbit_core::store::outcome::Reply;
use orbit_core::store::transaction::{SCHEMA_VERSION, Transaction, Verdict};
use orbit_io::sqlite::{Durability, OpenError, PeekError, SqliteStore, Synchronous, peek};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::tempdir;

#[test]
fn commits_are_flushed_as_sqlite_itself_says() {
    let folder = tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("orbit.db")).unwrap();
    let found = store.durability().unwrap();
    assert_eq!(found, Durability::required());
    assert_eq!((found.journal_mode.as_str(), found.synchronous), ("wal", Synchronous::Full));
}

#[test]
fn a_second_server_is_refused_with_the_holders_name() {
    let (store, _) = Running::led();
    let refused = SqliteStore::open(&store.place.path).unwrap_err();
    let message = refused.to_string();
    let pid = std::process::id();
    let expected = format!(
        "node `node-a` (process {pid} on host host-a, serving http://127.0.0.1:7233, since 2026-11-15 16:33:26 UTC)"
    );
    assert!(message.contains(&expected), "{message}");
    assert!(matches!(refused, OpenError::Held { .. }));
}

#[test]
fn a_server_that_has_only_just_locked_the_file_is_named_by_its_process() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("orbit.db");
    let _held = SqliteStore::open(&path).unwrap();
    let message = SqliteStore::open(&path).unwrap_err().to_string();
    assert!(message.contains(&format!("open: process {};", std::process::id())), "{message}");
}

#[test]
fn another_name_of_the_same_file_has_the_same_lock() {
    let (store, _) = Running::led();
    let other = store.place.path.with_file_name("link.db");
    std::os::unix::fs::symlink(&store.place.path, &other).unwrap();
    assert!(matches!(SqliteStore::open(&other), Err(OpenError::Held { .. })));
}

#[test]
fn a_closed_store_frees_its_lock_and_leaves_one_file_with_everything() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 1)])]);
    let (folder, path) = store.close();
    let log = path.with_file_name("orbit.db-wal");
    assert!(!log.exists() || fs::metadata(&log).unwrap().len() == 0, "the log was not emptied");
    // A copy of the one file is a whole copy.
    let copy = path.with_file_name("copy.db");
    fs::copy(&path, &copy).unwrap();
    assert_eq!(Running::at(&copy).load("a").events.len(), 1);
    assert_eq!(Running::at(&path).load("a").events.len(), 1);
    drop(folder);
}

fn refuse(path: &Path) -> String {
    SqliteStore::open(path).expect_err("it was opened").to_string()
}

#[test]
fn a_path_that_cannot_be_a_database_is_refused_with_what_would_be_right() {
    let folder = tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name);
    assert!(refuse(folder.path()).contains("is a folder; name a file in it"));
    assert!(refuse(&inside("none").join("orbit.db")).contains("none does not exist; make it first"));
    for none in ["", "/", "..", ":memory:"] {
        let message = refuse(Path::new(none));
        assert!(message.contains("name a file"), "{none:?}: {message}");
    }
    std::os::unix::fs::symlink(inside("nowhere"), inside("dangling.db")).unwrap();
    assert!(refuse(&inside("dangling.db")).contains("does not exist"));
    // Nobody, root included, makes files there.
    let message = refuse(Path::new("/proc/orbit.db"));
    assert!(message.contains("/proc/orbit.db.lock cannot be taken"), "{message}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the link that this test made");
}

#[test]
#[cfg(target_os = "linux")]
fn a_folder_that_nothing_can_be_made_in_is_refused_as_one_that_cannot_be_written() {
    // Not even root makes files there.
    let error = SqliteStore::open("/sys/orbit.db").unwrap_err();
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error:?}");
    assert!(error.to_string().contains("make files beside it"), "{error}");
}

#[test]
fn a_file_of_another_kind_is_refused_and_left_as_it_is() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    for content in ["x", "not a database at all", &"long ".repeat(5_000)] {
        fs::write(&path, content).unwrap();
        assert!(refuse(&path).contains("is not an Orbit database but a file of another kind"));
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
    let path = folder.path().join("other.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)").unwrap();
    drop(other);
    let before = fs::read(&path).unwrap();
    assert!(refuse(&path).contains("a SQLite database of another program"));
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(matches!(peek(&path), Err(PeekError::Foreign(_))));
    let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.retain(|name| !name.to_string_lossy().contains("other.db-"));
    names.sort();
    assert_eq!(names, ["notes.txt", "other.db"], "no lock was left beside them");
}

#[test]
fn an_empty_file_becomes_a_database() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("orbit.db");
    fs::write(&path, "").unwrap();
    assert_eq!(Running::at(&path).campaign(1).term, Term(1));
}

#[test]
fn a_newer_database_is_refused_and_left_as_it_is() {
    let (folder, path) = Running::fresh().close();
    let newer = rusqlite::Connection::open(&path).unwrap();
    newer.execute_batch("UPDATE schema_version SET version = 77; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(newer);
    let before = fs::read(&path).unwrap();
    let message = refuse(&path);
    let says = format!("tables of version 77, and this Orbit knows version {SCHEMA_VERSION}");
    assert!(message.contains(&says), "{message}");
    assert!(matches!(peek(&path), Err(PeekError::NewerSchema { found: 77, .. })));
    assert_eq!(fs::read(&path).unwrap(), before);
    drop(folder);
}

#[test]
fn a_look_from_outside_sees_who_writes_and_how_much_there_is() {
    let (mut store, fence) = Running::led();
    let mut first = group(1, vec![start("a", 1)]);
    first.tasks = vec![
        TaskChange::Insert(task("t1", "a", "pay", 1)),
        TaskChange::Insert(task("t2", "a", "pay", 2)),
        TaskChange::Insert(task("t3", "a", "pay", 3)),
    ];
    store.written(fence, vec![first, group(2, vec![start("b", 1)]), group(3, vec![start("c", 1)])]);
    store.written(fence, vec![group(4, vec![end("c", 1)])]);
    store.claim(fence, 1, vec![want(&["pay"], &[1])]);
    let seen = peek(&store.place.path).unwrap();
    assert_eq!((seen.contents.fence.fence, seen.contents.fence.holder), (fence, Some(holder())));
    assert_eq!(seen.contents.executions, [(Status::Running, 2), (Status::Completed, 1)]);
    assert_eq!(
        (seen.contents.queued_tasks, seen.contents.claimed_tasks, seen.contents.workers, seen.contents.definitions),
        (2, 1, 0, 0)
    );
    assert_eq!(seen.journal_mode, "wal");
    // After a clean stop too, when only the one file is left.
    store.done(Connection::Control, Transaction::Release(fence));
    let (folder, path) = store.close();
    assert_eq!(peek(&path).unwrap().contents.fence.holder, None);
    let nowhere = path.with_file_name("nowhere.db");
    assert!(peek(&nowhere).unwrap_err().to_string().contains("there is no database at"));
    assert!(!nowhere.exists());
    drop(folder);
}

/// Starts this very test in another process, which finds `path` in its environment, and waits for its first line.
fn spawn(test: &str, path: &Path) -> (Child, BufReader<impl Read>) {
    spawn_by(Command::new(std::env::current_exe().unwrap()), test, path)
}

fn spawn_by(mut command: Command, test: &str, path: &Path) -> (Child, BufReader<impl Read>) {
    let mut child = command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("ORBIT_TEST_CHILD", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

/// Where this process is the other one: the path that it is to open.
fn child_path() -> Option<std::path::PathBuf> {
    std::env::var_os("ORBIT_TEST_CHILD").map(Into::into)
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").and_then(|()| out.flush()).unwrap();
}

/// The next line that the other process said itself.
fn heard(output: &mut impl BufRead, word: &str) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the other process ended before it said {word:?}");
        if line.starts_with(word) {
            return line.trim().to_owned();
        }
    }
}

#[test]
fn a_killed_process_frees_the_lock_and_is_named_until_then() {
    if let Some(path) = child_path() {
        let mut store = Running::at(&path);
        store.campaign(1);
        say("ready");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let folder = tempdir().unwrap();
    let path = folder.path().join("orbit.db");
    let (mut child, mut output) = spawn("files::a_killed_process_frees_the_lock_and_is_named_until_then", &path);
    heard(&mut output, "ready");
    let message = refuse(&path);
    assert!(message.contains(&format!("node `node-a` (process {} on host host-a", child.id())), "{message}");
    child.kill().unwrap();
    child.wait().unwrap();
    // At once: nothing of the lock outlives the process.
    assert_eq!(Running::at(&path).campaign(2).term, Term(2));
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_and_nothing_is_half_there() {
    if let Some(path) = child_path() {
        let mut store = Running::at(&path);
        let fence = store.campaign(1);
        store.written(fence, vec![group(1, vec![start("a", 1), start("b", 1)])]);
        for n in 1.. {
            store.written(fence, vec![group(1 + u128::from(n), vec![go_on("a", n, 1), go_on("b", n, 1)])]);
            say(&format!("written {}", n + 1));
        }
    }
    for kill_after in [1, 7, 40] {
        let folder = tempdir().unwrap();
        let path = folder.path().join("orbit.db");
        let (mut child, mut output) =
            spawn("files::what_was_acknowledged_is_there_after_a_kill_and_nothing_is_half_there", &path);
        for _ in 1..kill_after {
            heard(&mut output, "written");
        }
        let last = heard(&mut output, "written");
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged: usize = last.strip_prefix("written ").unwrap().parse().unwrap();
        let mut store = Running::at(&path);
        let (a, b) = (store.load("a"), store.load("b"));
        assert!(a.events.len() >= acknowledged, "{} of {acknowledged} events are there", a.events.len());
        assert_eq!(a.events.len(), b.events.len(), "a group is there whole or not at all");
        assert_eq!((last_of(&a), last_of(&b)), (Some(a.events.len() as u64), Some(b.events.len() as u64)));
    }
}

#[test]
fn an_append_whose_commit_fails_is_unknown_until_it_is_sent_again() {
    const NAME: &str = "files::an_append_whose_commit_fails_is_unknown_until_it_is_sent_again";
    let big = |n: u64| {
        let mut member = go_on("a", n, 1);
        member.events[0].bytes = vec![b'x'; 64 << 10];
        group(1 + u128::from(n), vec![member])
    };
    if let Some(path) = child_path() {
        let mut store = Running::at(&path);
        let fence = store.campaign(1);
        store.written(fence, vec![group(1, vec![start("a", 1)])]);
        for n in 1.. {
            match store.reply(Connection::Store, Transaction::Append(Append::under(fence, vec![big(n)]))) {
                Reply::Done(verdict) => assert_eq!(verdict, Verdict::Append(vec![GroupOutcome::Written])),
                Reply::Unknown => {
                    say(&format!("unknown {n}"));
                    std::io::stdin().read_line(&mut String::new()).unwrap();
                }
                Reply::Failed(failure) => panic!("the disk ended in a COMMIT, so this is not certain: {failure:?}"),
            }
        }
    }
    let folder = tempdir().unwrap();
    let path = folder.path().join("orbit.db");
    // A shell makes the system refuse to let files of the other process grow past 512 KiB, as a bad disk could.
    let script = "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(std::env::current_exe().unwrap());
    let (mut child, mut output) = spawn_by(shell, NAME, &path);
    let line = heard(&mut output, "unknown");
    child.kill().unwrap();
    child.wait().unwrap();
    let n: u64 = line.strip_prefix("unknown ").unwrap().parse().unwrap();
    let mut store = Running::at(&path);
    let there = store.load("a").events.len() as u64;
    assert!(there == n || there == n + 1, "{there} events, and the outcome of number {} was open", n + 1);
    let fence = store.check().fence;
    store.written(fence, vec![big(n)]);
    store.written(fence, vec![big(n)]);
    assert_eq!(store.load("a").events.len() as u64, n + 1);
}

#[test]
fn a_new_database_is_nobody_elses_to_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orbit.db");
    let store = orbit_io::sqlite::SqliteStore::open(&path).unwrap();
    assert!(path.exists());
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    // The lock holds nothing but a process number.
    for file in files.filter(|file| !file.to_string_lossy().ends_with(".lock")) {
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    drop(store);
}
