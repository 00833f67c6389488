//! "Rehearse a failover" of the book, typed as it stands there, with real servers on a real PostgreSQL.

mod common;

use common::book::{blocks, root};
use common::{aside, folder, free_addr};
use orbit_support::Postgres;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The whole of it takes some seconds; on a busy machine many.
const LONG: Duration = Duration::from_secs(240);

/// Ends what the script leaves behind where it fails.
struct Servers<'a>(&'a Path);

impl Drop for Servers<'_> {
    fn drop(&mut self) {
        for name in ["a", "b"] {
            let pid = std::fs::read_to_string(self.0.join(format!("{name}.pid"))).unwrap_or_default();
            let of_ours = |pid: i32| {
                let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&command).contains(&format!("--node-id\0{name}"))
            };
            if let Some(pid) =
                pid.trim().parse().ok().filter(|pid| of_ours(*pid)).and_then(rustix::process::Pid::from_raw)
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

#[tokio::test]
async fn a_failover_goes_as_the_chapter_rehearses_it() {
    let chapter = std::fs::read_to_string(root().join("docs/src/runtime/cluster.md")).expect("a chapter");
    let section = chapter.split("\n## ").find(|part| part.starts_with("Rehearse a failover")).expect("a section");
    let steps: Vec<String> = blocks(section).into_iter().filter(|b| b.language == "sh").map(|b| b.code).collect();
    assert_eq!(steps.len(), 6);
    let database = aside(|| Postgres::shared().fresh()).await;
    let folder = folder();
    let (a, b) = (free_addr(), free_addr());
    let script: String = steps.concat();
    let script = script.replace("127.0.0.1:7301", &a.to_string()).replace("127.0.0.1:7302", &b.to_string());
    std::fs::create_dir(folder.path().join("bin")).expect("a folder");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_orbit"), folder.path().join("bin/orbit")).expect("a link");
    let path = format!("{}/bin:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let servers = Servers(folder.path());

    let out = folder.path().join("out");
    let file = std::fs::File::create(&out).expect("a file can be made");
    let mut shell = Command::new("sh");
    shell.arg("-ec").arg(&script).current_dir(folder.path()).env("PATH", path).env("DB", database.url());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ORBIT_")) {
        shell.env_remove(name);
    }
    shell.stdin(Stdio::null()).stdout(file.try_clone().expect("a file can be shared")).stderr(file);
    let mut shell = shell.spawn().expect("a shell");
    let begun = Instant::now();
    let said = || std::fs::read_to_string(&out).unwrap_or_default();
    let status = loop {
        if let Some(status) = shell.try_wait().expect("a child can be waited for") {
            break status;
        }
        if begun.elapsed() > LONG {
            let _ = shell.kill();
            let _ = shell.wait();
            panic!("the rehearsal does not end: {}", said());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let said = said();
    assert!(status.success(), "{said}\n{}", logs(folder.path()));
    drop(servers);
    let logs = logs(folder.path());
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        format!("a has handed over the lead of term 1; b leads now at http://{b}"),
        // The database, at the end: nobody holds anything any more.
        "last writer: none".into(),
        "nodes: a (left), b (left)".into(),
        "executions: 2 completed".into(),
    ] {
        assert!(said.lines().any(|one| words(one) == line), "{line}: {said}\n{logs}");
    }
    assert!(said.lines().any(|one| words(one) == "election lock: held by nobody"), "{said}\n{logs}");
}

fn logs(folder: &Path) -> String {
    ["a.log", "b.log"].map(|name| std::fs::read_to_string(folder.join(name)).unwrap_or_default()).join("\n--\n")
}
