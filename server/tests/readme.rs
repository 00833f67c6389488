//! The README's five minutes, followed step by step: its files are those in the repository, its commands run.

mod common;

use common::book::{blocks, compare_with_files, root, rust_example};
use common::{Process, Server, folder};
use std::path::Path;
use std::process::Command;

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).expect("there is a README")
}

#[test]
fn the_files_that_the_readme_shows_are_those_in_the_repository() {
    assert_eq!(compare_with_files(&readme()), 2, "a workflow and a worker");
}

#[test]
fn every_file_that_the_papers_name_is_there() {
    let mut papers = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    for folder in ["docs/src/guide", "docs/src/reference", "docs/src/runtime", "docs/src/sdk"] {
        let entries = std::fs::read_dir(root().join(folder)).expect("a folder of the book");
        papers.extend(entries.map(|entry| entry.expect("an entry").path()));
    }
    let folders = ["core/", "io/", "sim/", "server/", "sdk/", "docs/", "scripts/"];
    let mut named = 0;
    for paper in papers {
        let text = std::fs::read_to_string(&paper).expect("a paper");
        for path in text.split('`').skip(1).step_by(2).filter(|code| folders.iter().any(|f| code.starts_with(f))) {
            // What a program is given may follow, or a test: `file::name`.
            let path = path.split(' ').next().unwrap_or(path);
            let (file, test) = path.split_once("::").map_or((path, None), |(file, test)| (file, Some(test)));
            assert!(root().join(file).exists(), "{} names {path}", paper.display());
            if let Some(test) = test {
                let source = std::fs::read_to_string(root().join(file)).expect("a file of tests");
                assert!(source.contains(&format!("fn {test}(")), "{} names {path}", paper.display());
            }
            named += 1;
        }
    }
    assert!(named > 80, "only {named} were found");
}

#[tokio::test]
async fn the_five_minutes_of_the_readme_end_with_two_greetings() {
    let readme = readme();
    let section = readme.split("\n## ").find(|s| s.starts_with("Your own workflow")).expect("the section is there");
    let commands: Vec<String> = blocks(section)
        .into_iter()
        .filter(|block| block.language == "sh")
        .flat_map(|block| block.code.lines().map(String::from).collect::<Vec<_>>())
        .filter(|line| line.starts_with("orbit ") && !line.starts_with("orbit server"))
        .collect();
    assert!(commands.len() >= 5, "{commands:?}");

    let folder = folder();
    std::fs::copy(root().join("docs/examples/greeting.yaml"), folder.path().join("greeting.yaml")).expect("a copy");
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    let mut worker = None;
    for command in commands {
        if command.starts_with("orbit executions wait") {
            worker = Some(greeter(&server, folder.path()));
        }
        let script = format!("orbit() {{ \"{}\" \"$@\"; }}; {command}", env!("CARGO_BIN_EXE_orbit"));
        let mut shell = Command::new("sh");
        shell.arg("-ec").arg(script).current_dir(folder.path()).env("ORBIT_SERVER", server.url());
        let output = tokio::task::spawn_blocking(move || shell.output()).await.expect("it runs").expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "`{command}` ended with {}: {said}", output.status);
    }
    drop(worker);
    let execution = server.client().execution("hello-1").await.expect("it is there");
    assert_eq!(execution.output, Some(serde_json::json!(["Hello, Ada!", "Hello, Ada, how was it!"])));
}

/// The worker that the README shows, started.
fn greeter(server: &Server, folder: &Path) -> Process {
    let mut command = Command::new(rust_example("greeter"));
    command.env("ORBIT_SERVER", server.url());
    Process::spawn(command, &folder.join("greeter.log"))
}
