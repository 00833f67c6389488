//! Seeded worlds: every check holds in every one of them, every rare event happened in some, and each is a world in which
//! much happens. The corpus runs first.
//!
//! `SIM_SEED=n` runs one seed, a number or a commit's hash, `SIM_SEEDS=a..b` (half open) others than the usual ones,
//! `SIM_SECONDS=s` begins none after so long, `SIM_SHARD=i/n` takes every nth of them; `SIM_ARTIFACTS=dir` gets the traces
//! and scenarios of the first failures.

use orbit_sim::corpus::Corpus;
use orbit_sim::report::{artifacts, reproduce};
use orbit_sim::run::seed::Asked;
use orbit_sim::run::{Explored, OFTEN, USUAL};
use std::env;
use std::sync::OnceLock;

/// The runs, which all tests look at.
fn explored() -> &'static (Asked, Explored) {
    static EXPLORED: OnceLock<(Asked, Explored)> = OnceLock::new();
    EXPLORED.get_or_init(|| {
        let asked = Asked::read(USUAL, |name| env::var(name).ok()).unwrap_or_else(|message| panic!("{message}"));
        let explored = asked.ensemble.explore(&|_, _| {}).expect("nothing is changed");
        println!("{} runs, {} executions, {} lines", explored.runs, explored.executions, explored.lines);
        println!("{}", explored.sizes.line());
        let (speed, events) = (explored.speed(), explored.events_per_second());
        println!("{speed:.0} simulated seconds and {events:.0} events for each second of one processor");
        (asked, explored)
    })
}

#[test]
fn every_check_holds_in_the_corpus_and_for_every_seed() {
    let corpus = Corpus::read().unwrap_or_else(|message| panic!("{message}"));
    let failures = corpus.failures();
    assert!(failures.is_empty(), "mistakes that were found before are back:\n{}", failures.join("\n"));
    let (asked, explored) = explored();
    assert!(explored.runs > 0, "no seed was run");
    if let Some(dir) = &asked.artifacts {
        let kept = artifacts::keep(dir, &asked.ensemble, &explored.failures).expect("SIM_ARTIFACTS can be written");
        kept.iter().for_each(|kept| println!("seed {}: {kept}", kept.seed));
    }
    let lines: Vec<String> = explored
        .failures
        .iter()
        .take(10)
        .map(|(seed, failure)| format!("seed {seed}: {failure}\n    {}", reproduce(&asked.ensemble, *seed)))
        .collect();
    assert!(lines.is_empty(), "{} of {} seeds failed:\n{}", explored.failures.len(), explored.runs, lines.join("\n"));
}

#[test]
fn every_rare_event_happened_in_some_seed() {
    let (asked, explored) = explored();
    println!("{}", explored.marks.table());
    for (mark, count) in explored.rare() {
        println!("{count} times alone, and {OFTEN} are wanted: {}", mark.as_str());
    }
    // A part of the seeds promises nothing about rare events.
    if asked.ensemble.shows_rare_events() && explored.whole {
        let holes: Vec<&str> = explored.marks.holes().into_iter().map(|m| m.as_str()).collect();
        assert!(holes.is_empty(), "never happened in {} runs: {}", explored.runs, holes.join("; "));
    }
}

/// What makes a number of runs worth something (issue 7): nobody may buy seeds with smaller worlds.
#[test]
fn a_run_is_of_a_minute_of_three_workers_of_a_hundred_commits_and_of_several_faults() {
    let (asked, explored) = explored();
    if !asked.ensemble.shows_rare_events() || !explored.whole {
        return;
    }
    let (least, [servers, workers, ms, commits, faults, _]) = (explored.sizes.least, explored.sizes.averages());
    let line = explored.sizes.line();
    assert!(least.workers >= 3 && workers >= 3.0, "{line}");
    assert!(least.simulated_ms >= 60_000 && ms >= 60_000.0, "{line}");
    assert!(least.commits >= 100 && commits >= 100.0, "{line}");
    assert!(least.faults >= 3 && faults >= 3.0, "{line}");
    // Half of the servers on PostgreSQL are alone, as all of those on SQLite: the others are two or three.
    assert!(least.servers >= 1 && explored.sizes.least_cluster >= 2 && servers > 1.2, "{line}");
}
