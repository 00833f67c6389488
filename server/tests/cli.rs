//! Every command, every exit code, and what is said of bad input.

mod common;

#[path = "cli/definitions.rs"]
mod definitions;
#[path = "cli/executions.rs"]
mod executions;
#[path = "cli/servers.rs"]
mod servers;
#[path = "cli/settings.rs"]
mod settings;

use common::{Ended, Server, folder, orbit, run, run_with_input};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A workflow without a worker: it ends by itself.
const SUM: &str = "\
name: Sum
version: 1.0.0
description: Adds two numbers
input: {type: object, required: [a, b], properties: {a: {type: integer}, b: {type: integer}}}
steps:
  - {id: add, compute: '${ input.a + input.b }'}
result: {sum: '${ steps.add.output }'}
";

/// One that waits for a worker that never comes.
const STUCK: &str = "name: Stuck\nversion: 1.0.0\nsteps: [{id: wait, task: nobody.does}]\n";

/// One that fails.
const FAILS: &str = "\
name: Fails
version: 1.0.0
steps: [{id: wait, task: nobody.does, queue_timeout: 50ms}]
";

/// A server with these three workflows, and the files that they came from.
struct Stage {
    server: Server,
    folder: TempDir,
}

impl Stage {
    async fn new(more: &[&str]) -> Stage {
        let folder = folder();
        let server = Server::start(&folder.path().join("orbit.db"), more).await;
        Stage { server, folder }
    }

    async fn with_workflows() -> Stage {
        let stage = Stage::new(&[]).await;
        let mut arguments = vec!["deploy".to_owned()];
        for (name, text) in [("sum.yaml", SUM), ("stuck.yaml", STUCK), ("fails.yaml", FAILS)] {
            arguments.push(stage.file(name, text).display().to_string());
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let deployed = stage.run(&arguments);
        assert_eq!((deployed.code, deployed.stderr.as_str()), (0, ""), "{deployed:?}");
        stage
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("a writable folder");
        path
    }

    /// Runs a command against this server.
    fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = orbit(arguments);
        command.env("ORBIT_SERVER", self.server.url());
        run(command)
    }

    fn run_with_input(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = orbit(arguments);
        command.env("ORBIT_SERVER", self.server.url());
        run_with_input(command, input)
    }

    fn start_stuck(&self, id: &str) {
        let started = self.run(&["start", "Stuck", "--id", id, "--label", "team=a"]);
        assert_eq!(started.code, 0, "{started:?}");
    }
}

/// The first line of stderr.
fn error(ended: &Ended) -> &str {
    let line = ended.stderr.lines().find(|line| line.starts_with("error: "));
    line.unwrap_or_else(|| panic!("no error is told: {ended:?}"))
}

fn file_name(path: &Path) -> &str {
    path.to_str().expect("a path of plain characters")
}
