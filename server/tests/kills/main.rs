//! Orders survive a server that is killed again and again, and workers that are killed and stand still; on each database.
//!
//! The server is killed (SIGKILL) at 30 random moments while 200 orders of the six-task example run on three worker
//! processes. Between the kills some workers are killed too, and some are stopped for longer than their session lives
//! and then go on, so that they report late. Then everything that was promised is checked from the outside: histories
//! over HTTP, and what each worker wrote down when a task came (`worker.rs`).
//!
//! So that nothing passes for want of trying, the run fails unless it saw at least
//!
//! * 5 redeliveries: attempts that were given out again after a doubt;
//! * 5 late results: recorded, as the step's result or as stale, after the delivery that they belong to had been
//!   declared uncertain;
//! * 10 kills with an append in flight: the last lines of the killed server's log say that an append had been handed
//!   to the database and was not answered yet (`store call sent`, and no `store call answered` with its number). The
//!   log is written before the call is handed over and after its answer is taken, without a buffer in the process, so
//!   that a kill between the two is a kill with the append in flight or just committed.
//!
//! `KILLS_SEED=n` repeats the random choices of a run; which instruction a kill hits, no seed repeats.

#[path = "../common/mod.rs"]
mod common;

mod chaos;
mod check;
mod random;
mod worker;

use chaos::Store;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The tests, and the database of each.
const TESTS: [(&str, Store); 2] = [
    ("every_order_survives_thirty_kills_of_its_server", Store::Sqlite),
    ("every_order_survives_thirty_kills_of_its_server_on_postgresql", Store::Postgres),
];
/// A run takes about a minute, on a machine that is busy with much else several; past this it hangs.
const LONGEST: Duration = Duration::from_secs(900);

fn main() -> ExitCode {
    if let Some(ending) = worker::run_if_asked() {
        return ending;
    }
    // As far as the arguments of other tests concern these.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        for (name, _) in TESTS {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let exact = arguments.iter().any(|argument| argument == "--exact");
    let filters: Vec<&str> = arguments.iter().map(String::as_str).filter(|one| !one.starts_with('-')).collect();
    let wanted = |name: &str| {
        let fits = |filter: &&str| if exact { name == *filter } else { name.contains(*filter) };
        filters.is_empty() || filters.iter().any(fits)
    };
    let tests: Vec<_> = TESTS.into_iter().filter(|(name, _)| wanted(name)).collect();
    println!("\nrunning {} tests", tests.len());
    let begun = Instant::now();
    // Side by side: each of them waits for most of its time.
    let passed = std::thread::scope(|scope| {
        let runs: Vec<_> = tests.iter().map(|(name, store)| scope.spawn(|| passes(name, *store))).collect();
        runs.into_iter().filter_map(|run| run.join().ok()).filter(|passed| *passed).count()
    });
    let failed = tests.len() - passed;
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out; finished in \
         {:.2}s\n",
        TESTS.len() - tests.len(),
        begun.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One run, with what it saw.
fn passes(name: &str, store: Store) -> bool {
    let seed = std::env::var("KILLS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(random::fresh_seed);
    println!("KILLS_SEED={seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let outcome = runtime.block_on(async {
        let run = tokio::spawn(async move {
            let record = chaos::run(seed, store).await;
            check::all(&record).await
        });
        match tokio::time::timeout(LONGEST, run).await {
            Err(_) => Err(vec![format!("the run has not ended within {LONGEST:?}")]),
            Ok(Err(panicked)) => Err(vec![panicked.to_string()]),
            Ok(Ok(outcome)) => outcome,
        }
    });
    match outcome {
        Ok(figures) => println!("{figures}\ntest {name} ... ok"),
        Err(problems) => {
            for problem in &problems {
                println!("{problem}");
            }
            println!("\nrepeat with: KILLS_SEED={seed} cargo test -p server --test kills {name}");
            println!("test {name} ... FAILED");
            return false;
        }
    }
    true
}
