//! The chapters whose commands are shown with what they print: each is typed into a shell, against a real server with
//! real workers, and prints what the chapter shows. `REWRITE=1 cargo test -p server --test book` writes the chapters anew:
//! read the difference before it is committed.

mod common;

use common::book::{blocks, compare_with_files, root, rust_example};
use common::{PATIENCE, Process, Server, folder, run};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long what is written anew must have stayed the same.
const SETTLED: Duration = Duration::from_secs(1);
/// How often a command that only looks is repeated.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[tokio::test]
async fn the_examples_give_what_their_page_shows() {
    follow("docs/src/guide/examples.md", 3).await;
}

#[tokio::test]
async fn waiting_for_people_goes_as_its_chapter_shows() {
    follow("docs/src/guide/waiting.md", 3).await;
}

/// Types the commands of a chapter one after the other. It shows so many files, as they are.
async fn follow(path: &str, files: usize) {
    let chapter = std::fs::read_to_string(root().join(path)).expect("the chapter is there");
    assert_eq!(compare_with_files(&chapter), files);
    let shown: Vec<String> =
        blocks(&chapter).into_iter().filter(|block| block.language == "console").map(|block| block.code).collect();
    let mut shell = Shell::open().await;
    let mut rewritten = chapter.clone();
    for block in shown {
        let entries = entries(&block);
        assert!(!entries.is_empty(), "no command in {block}");
        let mut printed = String::new();
        for entry in &entries {
            let output = shell.enter(entry);
            // Where nothing but times differ, the chapter stays as it is.
            let output = if masked(&output) == masked(&entry.output) { entry.output.clone() } else { output };
            printed.push_str(&format!("$ {}\n{output}", entry.command));
        }
        rewritten = rewritten.replacen(&format!("```console\n{block}```"), &format!("```console\n{printed}```"), 1);
    }
    if rewriting() {
        std::fs::write(root().join(path), rewritten).expect("a writable checkout");
    }
}

fn rewriting() -> bool {
    std::env::var_os("REWRITE").is_some()
}

/// A command, and what it prints.
struct Entry {
    command: String,
    output: String,
}

fn entries(block: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), entries.last_mut()) {
            (Some(command), _) => entries.push(Entry { command: command.into(), output: String::new() }),
            (None, Some(entry)) => entry.output.push_str(&format!("{line}\n")),
            (None, None) => panic!("no command stands before {line:?}"),
        }
    }
    entries
}

/// A shell in the clone, with a server and `orbit` on the path.
struct Shell {
    server: Server,
    folder: TempDir,
    path: String,
    /// What runs in the background, `%1` first; none where it was ended.
    jobs: Vec<Option<Process>>,
}

impl Shell {
    async fn open() -> Shell {
        let folder = folder();
        let programs = folder.path().join("bin");
        std::fs::create_dir(&programs).expect("a writable folder");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_orbit"), programs.join("orbit")).expect("a writable folder");
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
        Shell { server, folder, path, jobs: Vec::new() }
    }

    /// Enters a command, and gives what it prints once that is what is shown.
    fn enter(&mut self, entry: &Entry) -> String {
        if let Some(command) = entry.command.strip_suffix(" &") {
            let log = self.log();
            self.jobs.push(Some(Process::spawn(self.background(command), &log)));
            return entry.output.clone();
        }
        if let Some(job) = entry.command.strip_prefix("kill %") {
            let job: usize = job.parse().expect("the number of a job");
            let mut process = self.jobs[job - 1].take().expect("it runs");
            process.signal(Signal::TERM);
            assert!(process.ended(PATIENCE).success(), "{}", process.log());
            return entry.output.clone();
        }
        let (mut printed, mut since) = (self.run(&entry.command), Instant::now());
        let begun = Instant::now();
        // What only looks sees what is shown sooner or later: whoever reads the chapter does not type at once.
        while only_looks(&entry.command)
            && if rewriting() { since.elapsed() < SETTLED } else { masked(&printed) != masked(&entry.output) }
            && begun.elapsed() < PATIENCE
        {
            std::thread::sleep(LOOK_EVERY);
            let now = self.run(&entry.command);
            if now != printed {
                (printed, since) = (now, Instant::now());
            }
        }
        if !rewriting() {
            assert_eq!(masked(&printed), masked(&entry.output), "`{}` prints:\n{printed}", entry.command);
        }
        printed
    }

    fn run(&self, command: &str) -> String {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec 2>&1\n{command}"));
        self.furnish(&mut shell);
        run(shell).stdout
    }

    /// A program with its arguments, and with variables before it.
    fn background(&self, command: &str) -> Command {
        let words: Vec<&str> = command.split_whitespace().collect();
        let variables = words.iter().take_while(|word| word.contains('=')).count();
        let (variables, words) = words.split_at(variables);
        let mut command = match words {
            ["cargo", "run", "-p", "orbit-sdk", "--example", name] => Command::new(rust_example(name)),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
            [] => panic!("no program in {command:?}"),
        };
        command.envs(variables.iter().filter_map(|variable| variable.split_once('=')));
        self.furnish(&mut command);
        command
    }

    fn furnish(&self, command: &mut Command) {
        command.current_dir(root()).env("PATH", &self.path).env("ORBIT_SERVER", self.server.url());
        command.env("PYTHONDONTWRITEBYTECODE", "1");
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join(format!("job-{}.log", self.jobs.len() + 1))
    }
}

/// Whether it changes nothing, and may be repeated.
fn only_looks(command: &str) -> bool {
    let looks = ["why", "executions show", "executions list", "executions history", "executions query"];
    looks.iter().any(|look| command.starts_with(&format!("orbit {look} ")))
}

/// The text with zeros for the digits of times (`+1.234s`, `2026-11-30 06:17:46.405Z`), which differ with each run.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    // White space is kept, since it aligns the columns.
    for piece in text.split_inclusive([' ', '\n']) {
        let (word, space) = piece.split_at(piece.trim_end_matches([' ', '\n']).len());
        let is_time = word.contains(':') && word.trim_end_matches(',').ends_with('Z');
        let is_date = word.len() == 10 && word.bytes().filter(|byte| *byte == b'-').count() == 2;
        if word.starts_with('+') && word.ends_with('s') {
            // It stands at the right of its column, so longer times have fewer spaces before them.
            masked.truncate(masked.trim_end_matches(' ').len());
            masked.push_str(" +0.000s");
        } else if is_time || is_date {
            masked.push_str(&word.replace(|c: char| c.is_ascii_digit(), "0"));
        } else {
            masked.push_str(word);
        }
        masked.push_str(space);
    }
    masked
}

#[test]
fn times_alone_are_masked() {
    let text = "created:   2026-11-30 06:17:46.405Z\n   5    +12.002s  x 12 receipt-1 2026-11-30 06:17:56.564Z, 3\n";
    let zeros = "created:   0000-00-00 00:00:00.000Z\n   5 +0.000s  x 12 receipt-1 0000-00-00 00:00:00.000Z, 3\n";
    assert_eq!(masked(text), zeros);
}
