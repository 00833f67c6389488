//! The commands, one file each.

pub mod census;
pub mod checks;
pub mod coverage;
pub mod explore;
pub mod hashes;
pub mod mutants;
pub mod options;
pub mod run;
pub mod scenario;
pub mod show;

use indicatif::{ProgressBar, ProgressStyle};
use orbit_sim::report::reproduce;
use orbit_sim::run::{Ensemble, Explored, OFTEN, USUAL};
use std::fs::File;
use std::io::{BufWriter, Write};

/// A coverage hole, or a planted mistake that no seed found.
pub const EXIT_HOLE: u8 = 6;
/// The command line is wrong, or a file.
pub const EXIT_USAGE: u8 = 2;

/// How a command ends: its exit code, or what is wrong with what it was told.
pub type Code = Result<u8, String>;

/// The usual seeds, as they are written.
pub fn usual() -> String {
    format!("{}..{}", USUAL.start, USUAL.end)
}

/// A file, or the standard output.
pub fn output(path: &str) -> Result<Box<dyn Write>, String> {
    if path == "-" {
        return Ok(Box::new(BufWriter::new(std::io::stdout())));
    }
    let file = File::create(path).map_err(|e| format!("{path} cannot be written: {e}"))?;
    Ok(Box::new(BufWriter::new(file)))
}

/// Writes a whole text to a file, or to the standard output.
pub fn write(path: &str, text: &str) -> Result<(), String> {
    output(path)?.write_all(text.as_bytes()).map_err(|e| format!("{path} cannot be written: {e}"))
}

/// A bar on the terminal, if the standard error is one.
pub fn bar(length: u64) -> ProgressBar {
    let style = "{wide_bar} {pos}/{len} runs  {elapsed} of {duration}  {msg}";
    ProgressBar::new(length).with_style(ProgressStyle::with_template(style).expect("a template that is right"))
}

/// Runs an ensemble while people watch.
pub fn with_progress(ensemble: &Ensemble) -> Result<Explored, String> {
    let bar = bar(ensemble.size());
    let explored = ensemble.explore(&|_, so_far| {
        bar.set_position(so_far.runs);
        bar.set_message(format!("{:.0} s/s, {} failures", so_far.speed(), so_far.failures.len()));
    })?;
    bar.finish_and_clear();
    Ok(explored)
}

/// What was run, and how fast.
pub fn summary(explored: &Explored) {
    println!(
        "{} runs, {} executions, {} simulated minutes, {} lines of trace, {} failures",
        explored.runs,
        explored.executions,
        explored.simulated_ms / 60_000,
        explored.lines,
        explored.failures.len()
    );
    println!("{}", explored.sizes.line());
    println!(
        "{:.0} simulated seconds and {:.0} events for each second of one processor; {:.1} s of processors in {:.1} s",
        explored.speed(),
        explored.events_per_second(),
        explored.processor.as_secs_f64(),
        explored.wall.as_secs_f64()
    );
}

/// Prints what failed.
pub fn failures(ensemble: &Ensemble, explored: &Explored) {
    for (seed, failure) in explored.failures.iter().take(20) {
        println!("seed {seed}: {failure}\n    {}", reproduce(ensemble, *seed));
    }
    if explored.failures.len() > 20 {
        println!("and {} more", explored.failures.len() - 20);
    }
}

/// Prints which rare events never happened, and which hardly did; whether there was none of either.
pub fn holes(explored: &Explored) -> bool {
    let holes = explored.marks.holes();
    for hole in &holes {
        println!("never happened: {}", hole.as_str());
    }
    for (mark, count) in explored.rare() {
        println!("{count} times alone, and {OFTEN} are wanted: {}", mark.as_str());
    }
    holes.is_empty()
}
