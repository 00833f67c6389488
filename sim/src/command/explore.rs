//! `sim explore`: many seeds.

use super::{Code, EXIT_HOLE, failures, holes, summary, usual, with_progress, write};
use crate::Settings;
use clap::Args;
use orbit_core::mutant::Mutant;
use orbit_sim::mutant;
use orbit_sim::report::{artifacts, summary as report};
use orbit_sim::run::{Ensemble, Shard, seed};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
pub struct Arguments {
    /// Half open, such as `0..2000`.
    #[arg(long, value_parser = seed::parse_range, default_value = usual())]
    seeds: Range<u64>,
    /// Runs one part of them, for one of several machines: `0/4` is the first of four.
    #[arg(long, value_name = "I/N", value_parser = Shard::parse, default_value = "0/1")]
    shard: Shard,
    /// Begins no run after so many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Goes on after a failure.
    #[arg(long)]
    keep_going: bool,
    /// Runs each seed twice, and compares.
    #[arg(long)]
    check_determinism: bool,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Plants a mistake: to be found is what is wanted then (exit code 0), and not to be is not (6).
    #[arg(long, value_parser = mutant::parse)]
    mutant: Option<Mutant>,
    /// Writes what it gave as JSON; `-` is the standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Writes it as JUnit's XML, with a case for each seed.
    #[arg(long, value_name = "FILE")]
    junit: Option<String>,
    /// Keeps the traces and scenarios of the first failures, each with the line that reproduces it.
    #[arg(long, value_name = "DIR")]
    artifacts: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

pub fn explore(arguments: Arguments) -> Code {
    let ensemble = Ensemble {
        shard: arguments.shard,
        budget: arguments.seconds.map(Duration::from_secs),
        jobs: arguments.jobs,
        planted: arguments.mutant,
        settings: arguments.settings.set,
        stop_at_first: !arguments.keep_going,
        twice: arguments.check_determinism,
        ..Ensemble::of(arguments.seeds)
    };
    if ensemble.size() == 0 {
        return Err(format!("there is no seed in the part {} of {:?}", ensemble.shard, ensemble.seeds));
    }
    let explored = with_progress(&ensemble)?;
    let judged = ensemble.shows_rare_events() && explored.whole;
    let code = match (explored.exit_code(), ensemble.planted) {
        (0, Some(_)) => EXIT_HOLE,
        (_, Some(_)) => 0,
        (0, None) if judged && !explored.marks.holes().is_empty() => EXIT_HOLE,
        (code, None) => code,
    };
    let kept = match &arguments.artifacts {
        Some(dir) => artifacts::keep(dir, &ensemble, &explored.failures)
            .map_err(|e| format!("{} cannot be written: {e}", dir.display()))?,
        None => Vec::new(),
    };
    let to_stdout = arguments.json.as_deref() == Some("-") || arguments.junit.as_deref() == Some("-");
    if let Some(path) = &arguments.json {
        let value = report::json(&ensemble, &explored, &kept, code);
        write(path, &format!("{}\n", serde_json::to_string_pretty(&value).expect("plain data")))?;
    }
    if let Some(path) = &arguments.junit {
        write(path, &report::junit(&ensemble, &explored, &kept))?;
    }
    if !to_stdout {
        summary(&explored);
        failures(&ensemble, &explored);
        for kept in &kept {
            println!("seed {}: {kept}", kept.seed);
        }
        if judged {
            holes(&explored);
        }
        match ensemble.planted {
            Some(mutant) if code == EXIT_HOLE => println!("{} was not found", mutant::name(mutant)),
            _ => {}
        }
    }
    Ok(code)
}
