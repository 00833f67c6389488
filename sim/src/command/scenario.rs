//! `sim replay`, `sim shrink` and `sim faults`: scenarios.

use super::{Code, EXIT_HOLE, output, write};
use orbit_core::mutant::Mutant;
use orbit_sim::fault::{FaultKind, Moment};
use orbit_sim::mutant::Planted;
use orbit_sim::plan::Plan;
use orbit_sim::scenario::{self, Scenario, Shrunk};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn read(file: &Path) -> Result<Scenario, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
    Scenario::parse(&text).map_err(|e| format!("{}: {e}", file.display()))
}

pub fn replay(files: &[PathBuf], trace: Option<&str>, unplanted: bool) -> Code {
    if trace.is_some() && files.len() > 1 {
        return Err("a trace is of one scenario, and these are several".into());
    }
    for file in files {
        let code = replay_one(file, trace, unplanted)?;
        if code != 0 {
            return Ok(code);
        }
    }
    Ok(0)
}

fn replay_one(file: &Path, trace: Option<&str>, unplanted: bool) -> Code {
    let mut scenario = read(file)?;
    if unplanted {
        (scenario.mutant, scenario.fails) = (None, None);
    }
    let out = trace.map(output).transpose()?;
    let ended = scenario.run(out);
    let (ms, lines, hash) = (ended.simulated_ms, ended.lines, &ended.hash);
    eprintln!("{}: {ms} simulated ms, {lines} lines, trace {hash}", file.display());
    match (&scenario.fails, ended.failure) {
        (Some(expected), Some(failure)) if expected.is(Some(&failure)) => {
            eprintln!("it fails as it says: {failure}");
            Ok(0)
        }
        (Some(expected), None) => {
            eprintln!("every check holds, and the scenario says that {} fails", expected.check);
            Ok(EXIT_HOLE)
        }
        (_, Some(failure)) => {
            eprintln!("{failure}");
            Ok(failure.kind.exit_code())
        }
        (None, None) => {
            eprintln!("every check holds");
            Ok(0)
        }
    }
}

pub fn shrink(file: Option<&Path>, seed: Option<u64>, mutant: Option<Mutant>, out: &str, seconds: u64) -> Code {
    let whole = match (file, seed) {
        (Some(file), _) => read(file)?,
        (None, Some(seed)) => Scenario::of_run(&Plan::draw(seed), Planted(mutant)).0,
        (None, None) => unreachable!("the command line demands one of the two"),
    };
    let people = std::io::stderr().is_terminal();
    let shrunk = scenario::shrink(&whole, Duration::from_secs(seconds), &|now| {
        if people {
            eprint!("\r{} runs, {} faults   ", now.runs, now.faults);
        }
    });
    if people {
        eprintln!();
    }
    let Some(Shrunk { scenario, runs, unfinished }) = shrunk else {
        return Err("there is nothing to shrink: every check holds, or another one fails than the scenario says".into());
    };
    eprintln!(
        "{} faults of {} are left after {runs} runs{}: {}",
        scenario.faults.len(),
        whole.faults.len(),
        if unfinished { " (the time was over)" } else { "" },
        scenario.about
    );
    write(out, &scenario.text())?;
    Ok(0)
}

pub fn faults() -> Code {
    println!("faults (* can strike at a moment as well as at a time):");
    for kind in FaultKind::ALL {
        let star = if scenario::at_a_moment().contains(kind) { "*" } else { " " };
        println!("{star} {:<20} {}", kind.as_str(), kind.what());
    }
    println!("\nmoments:");
    for moment in Moment::ALL {
        println!("  {:<20} {}", moment.as_str(), moment.what());
    }
    Ok(0)
}
