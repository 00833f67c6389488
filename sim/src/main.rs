//! The simulator's command line: see `sim --help` and the page on simulation in the book.

use clap::{Args, Parser, Subcommand};
use orbit_core::mutant::Mutant;
use orbit_sim::coverage::Coverage;
use orbit_sim::diff::first_difference;
use orbit_sim::fault::{FaultKind, Moment};
use orbit_sim::mutant::{self, Planted};
use orbit_sim::plan::Plan;
use orbit_sim::report::{FailureKind, reproduce};
use orbit_sim::run::{Ensemble, Explored, Shard, found_within, run, run_twice};
use orbit_sim::scenario::{self, Scenario, Shrunk};
use orbit_sim::show::Shown;
use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// A coverage hole, or a planted mistake that no seed found.
const EXIT_HOLE: u8 = 6;
const EXIT_USAGE: u8 = 2;

/// Runs Orbit's core through seeded worlds full of faults, and checks what must hold.
///
/// Exit codes: 0, 1 safety, 2 usage, 3 liveness, 4 crash, 5 nondeterminism, 6 coverage hole or mutant not found.
#[derive(Parser)]
#[command(name = "sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one seed, with its options and its verdict.
    Run {
        /// A number, or a commit's hash.
        #[arg(long, value_parser = parse_seed)]
        seed: u64,
        /// Plants a mistake.
        #[arg(long, value_parser = mutant::parse)]
        mutant: Option<Mutant>,
        /// Writes everything that happens as JSON lines, to a file or to the standard output.
        #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
        trace: Option<String>,
        /// Runs it twice, and compares.
        #[arg(long)]
        check_determinism: bool,
        #[command(flatten)]
        settings: Settings,
    },
    /// Runs many seeds, until one fails.
    Explore {
        /// Half open, such as `0..1000`.
        #[arg(long, value_parser = parse_seeds, default_value = "0..1000")]
        seeds: Range<u64>,
        /// Begins no run after so many seconds.
        #[arg(long)]
        seconds: Option<u64>,
        /// Goes on after a failure.
        #[arg(long)]
        keep_going: bool,
        /// Threads.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        #[command(flatten)]
        settings: Settings,
    },
    /// Runs a scenario: a file that `shrink` wrote, or that was written by hand.
    ///
    /// Where the file says how the run fails, that failure is what is wanted (exit code 0), and any other end is not.
    Replay {
        file: PathBuf,
        /// Writes everything that happens as JSON lines, to a file or to the standard output.
        #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
        trace: Option<String>,
        /// Without the mistake that the file plants: every check must hold.
        #[arg(long)]
        unplanted: bool,
    },
    /// Makes the failure of a seed, or of a scenario, small: the fewest faults, clients, workers and starts that still lead to it.
    Shrink {
        /// A scenario that fails.
        #[arg(conflicts_with = "seed", required_unless_present = "seed")]
        file: Option<PathBuf>,
        /// A seed that fails.
        #[arg(long, value_parser = parse_seed)]
        seed: Option<u64>,
        /// Plants a mistake.
        #[arg(long, value_parser = mutant::parse, requires = "seed")]
        mutant: Option<Mutant>,
        /// Where the small scenario is written; `-` is the standard output.
        #[arg(long, short, default_value = "-")]
        out: String,
        /// Gives up making it smaller after so many seconds.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Writes a run as one HTML page: a lane for each process, time downward, messages as arrows, the violation marked.
    Show {
        /// A trace, or a scenario.
        #[arg(conflicts_with = "seed", required_unless_present = "seed")]
        file: Option<PathBuf>,
        /// A number, or a commit's hash.
        #[arg(long, value_parser = parse_seed)]
        seed: Option<u64>,
        /// Plants a mistake.
        #[arg(long, value_parser = mutant::parse, requires = "seed")]
        mutant: Option<Mutant>,
        /// Where the page is written; `-` is the standard output.
        #[arg(long, short)]
        out: String,
        /// Leaves out what was over so many milliseconds before the end.
        #[arg(long, value_name = "MS")]
        last_ms: Option<u64>,
        #[command(flatten)]
        settings: Settings,
    },
    /// Compares two traces to their first difference; exit code 5 where there is one.
    Diff { left: PathBuf, right: PathBuf },
    /// Lists the faults and the moments that a scenario can name.
    Faults,
    /// Plants each mistake in turn, and says after how many seeds it was found.
    Mutants {
        /// Half open, such as `0..100`.
        #[arg(long, value_parser = parse_seeds, default_value = "0..100")]
        seeds: Range<u64>,
    },
    /// Counts how often each rare event happened; fails where one never did.
    Coverage {
        /// Half open, such as `0..500`.
        #[arg(long, value_parser = parse_seeds, default_value = "0..500")]
        seeds: Range<u64>,
    },
    /// Runs seeds until so many drawn workflows have run to an end, and says what they were made of; fails where a construct
    /// stands in fewer than 5 % of them, half of them have fewer than eight steps, or no child lay three deep.
    Census {
        /// Half open, such as `0..100000`.
        #[arg(long, value_parser = parse_seeds, default_value = "0..100000")]
        seeds: Range<u64>,
        /// How many workflows.
        #[arg(long, default_value_t = 10_000)]
        workflows: u64,
        /// Threads.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
    },
    /// Prints the hash of each seed's trace: the same on every machine and in every build.
    Hash {
        /// Half open, such as `0..8`.
        #[arg(long, value_parser = parse_seeds, default_value = "0..8")]
        seeds: Range<u64>,
    },
}

#[derive(Args)]
struct Settings {
    /// Changes an option of the plan, such as `clients=3`, `faults.pause=0`, `disk.unknown=1/10`.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_setting)]
    set: Vec<(String, String)>,
}

fn parse_seed(text: &str) -> Result<u64, String> {
    if text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(u64::from_str_radix(&text[..16], 16).expect("sixteen hexadecimal digits"));
    }
    text.parse().map_err(|_| "a seed is a number, or the 40 hexadecimal digits of a commit".into())
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    ends.filter(|r| r.start < r.end).ok_or_else(|| format!("seeds are written as `0..1000`, not {text:?}"))
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("an option is changed by KEY=VALUE")?;
    Ok((key.into(), value.into()))
}

fn main() -> ExitCode {
    let code = match Cli::parse().command {
        Command::Run { seed, mutant, trace, check_determinism, settings } => {
            run_one(seed, mutant, trace.as_deref(), check_determinism, settings.set)
        }
        Command::Explore { seeds, seconds, keep_going, jobs, settings } => explore(&Ensemble {
            budget: seconds.map(Duration::from_secs),
            jobs,
            stop_at_first: !keep_going,
            settings: settings.set,
            shard: Shard::WHOLE,
            ..Ensemble::of(seeds)
        }),
        Command::Replay { file, trace, unplanted } => replay(&file, trace.as_deref(), unplanted),
        Command::Shrink { file, seed, mutant, out, seconds } => {
            shrink(file.as_deref(), seed, mutant, &out, Duration::from_secs(seconds))
        }
        Command::Show { file, seed, mutant, out, last_ms, settings } => {
            show(file.as_deref(), seed, mutant, &out, last_ms, settings.set)
        }
        Command::Diff { left, right } => diff(&left, &right),
        Command::Faults => {
            faults();
            Ok(0)
        }
        Command::Mutants { seeds } => Ok(mutants(&seeds)),
        Command::Coverage { seeds } => coverage(&Ensemble::of(seeds)),
        Command::Census { seeds, workflows, jobs } => {
            census(&Ensemble { enough: Some(workflows), jobs, ..Ensemble::of(seeds) }, workflows)
        }
        Command::Hash { seeds } => hashes(seeds),
    };
    ExitCode::from(code.unwrap_or_else(|message| {
        eprintln!("sim: {message}");
        EXIT_USAGE
    }))
}

fn run_one(
    seed: u64,
    mutant: Option<Mutant>,
    trace: Option<&str>,
    twice: bool,
    settings: Vec<(String, String)>,
) -> Result<u8, String> {
    let plan = Ensemble { settings, ..Ensemble::of(seed..seed + 1) }.plan(seed)?;
    eprintln!("{}", serde_json::to_string_pretty(&plan).expect("a plan is plain data"));
    let out = trace.map(output).transpose()?;
    let ended = if twice { run_twice(&plan, Planted(mutant)) } else { run(&plan, Planted(mutant), out) };
    eprint!("{}", ended.marks.table());
    eprintln!(
        "seed {seed}: {} executions in {} simulated ms, {} lines, trace {}",
        ended.executions, ended.simulated_ms, ended.lines, ended.hash
    );
    match ended.failure {
        None => {
            eprintln!("every check holds");
            Ok(0)
        }
        Some(failure) => {
            eprintln!("{failure}\n{}", reproduce(seed));
            Ok(failure.kind.exit_code())
        }
    }
}

/// A file, or the standard output.
fn output(path: &str) -> Result<Box<dyn Write>, String> {
    if path == "-" {
        return Ok(Box::new(BufWriter::new(std::io::stdout())));
    }
    let file = File::create(path).map_err(|e| format!("{path} cannot be written: {e}"))?;
    Ok(Box::new(BufWriter::new(file)))
}

fn scenario(file: &Path) -> Result<Scenario, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
    Scenario::parse(&text).map_err(|e| format!("{}: {e}", file.display()))
}

fn replay(file: &Path, trace: Option<&str>, unplanted: bool) -> Result<u8, String> {
    let mut scenario = scenario(file)?;
    if unplanted {
        (scenario.mutant, scenario.fails) = (None, None);
    }
    let out = trace.map(output).transpose()?;
    let ended = scenario.run(out);
    eprintln!("{} simulated ms, {} lines, trace {}", ended.simulated_ms, ended.lines, ended.hash);
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

fn shrink(
    file: Option<&Path>,
    seed: Option<u64>,
    mutant: Option<Mutant>,
    out: &str,
    budget: Duration,
) -> Result<u8, String> {
    let whole = match (file, seed) {
        (Some(file), _) => scenario(file)?,
        (None, Some(seed)) => Scenario::of_run(&Plan::draw(seed), Planted(mutant)).0,
        (None, None) => unreachable!("the command line demands one of the two"),
    };
    let people = std::io::stderr().is_terminal();
    let shrunk = scenario::shrink(&whole, budget, &|now| {
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
    output(out)?.write_all(scenario.text().as_bytes()).map_err(|e| format!("{out} cannot be written: {e}"))?;
    Ok(0)
}

fn show(
    file: Option<&Path>,
    seed: Option<u64>,
    mutant: Option<Mutant>,
    out: &str,
    last_ms: Option<u64>,
    settings: Vec<(String, String)>,
) -> Result<u8, String> {
    let mut shown = match (file, seed) {
        (Some(file), _) => {
            let path = file.display().to_string();
            let text = std::fs::read_to_string(file).map_err(|e| format!("{path} cannot be read: {e}"))?;
            Shown::of_file(&path, &text).map_err(|e| format!("{path}: {e}"))?
        }
        (None, Some(seed)) => {
            let plan = Ensemble { settings, ..Ensemble::of(seed..seed + 1) }.plan(seed)?;
            Shown::of_seed(&plan, Planted(mutant))
        }
        (None, None) => unreachable!("the command line demands one of the two"),
    };
    if let Some(ms) = last_ms {
        shown.keep_last_ms(ms);
    }
    output(out)?.write_all(shown.page().as_bytes()).map_err(|e| format!("{out} cannot be written: {e}"))?;
    Ok(0)
}

fn diff(left: &Path, right: &Path) -> Result<u8, String> {
    let open = |path: &Path| {
        let file = File::open(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
        Ok::<_, String>(BufReader::new(file))
    };
    match first_difference(open(left)?, open(right)?).map_err(|e| format!("a trace cannot be read: {e}"))? {
        None => {
            println!("they are the same");
            Ok(0)
        }
        Some(difference) => {
            println!("{difference}");
            Ok(FailureKind::Nondeterminism.exit_code())
        }
    }
}

fn faults() {
    println!("faults (* can strike at a moment as well as at a time):");
    for kind in FaultKind::ALL {
        let star = if scenario::at_a_moment().contains(kind) { "*" } else { " " };
        println!("{star} {:<20} {}", kind.as_str(), kind.what());
    }
    println!("\nmoments:");
    for moment in Moment::ALL {
        println!("  {:<20} {}", moment.as_str(), moment.what());
    }
}

fn explore(ensemble: &Ensemble) -> Result<u8, String> {
    let explored = with_progress(ensemble)?;
    summary(&explored);
    Ok(failures(&explored))
}

/// Prints them. The exit code of the gravest: safety before liveness before crash.
fn failures(explored: &Explored) -> u8 {
    for (seed, failure) in explored.failures.iter().take(20) {
        println!("seed {seed}: {failure}\n    {}", reproduce(*seed));
    }
    explored.failures.iter().map(|(_, f)| f.kind.exit_code()).min().unwrap_or(0)
}

fn census(ensemble: &Ensemble, workflows: u64) -> Result<u8, String> {
    let explored = with_progress(ensemble)?;
    let census = &explored.census;
    print!("{census}");
    summary(&explored);
    let code = failures(&explored);
    let enough = census.workflows >= workflows && census.median_of_steps() >= 8 && census.depth() >= 3;
    for rare in census.rare() {
        println!("in fewer than 5 % of them: {rare}");
    }
    Ok(if code == 0 && !(enough && census.rare().is_empty()) { EXIT_HOLE } else { code })
}

fn with_progress(ensemble: &Ensemble) -> Result<Explored, String> {
    let people = std::io::stderr().is_terminal();
    let explored = ensemble.explore(&|seed, so_far| {
        if people {
            eprint!("\r{} runs, {} failures (seed {seed})   ", so_far.runs, so_far.failures.len());
        }
    })?;
    if people {
        eprintln!();
    }
    Ok(explored)
}

fn summary(explored: &Explored) {
    println!(
        "{} runs, {} executions, {} simulated minutes, {} lines of trace, {} failures",
        explored.runs,
        explored.executions,
        explored.simulated_ms / 60_000,
        explored.lines,
        explored.failures.len()
    );
}

fn mutants(seeds: &Range<u64>) -> u8 {
    let mut missed = 0;
    for mutant in Mutant::ALL {
        match found_within(mutant, seeds.clone()) {
            Some((count, failure)) => println!("{}: found by seed {count}: {failure}", mutant::name(mutant)),
            None => {
                println!("{}: NOT found within {} seeds", mutant::name(mutant), seeds.end - seeds.start);
                missed += 1;
            }
        }
    }
    if missed == 0 { 0 } else { EXIT_HOLE }
}

fn coverage(ensemble: &Ensemble) -> Result<u8, String> {
    let explored = with_progress(ensemble)?;
    summary(&explored);
    let marks: &Coverage = &explored.marks;
    print!("{}", marks.table());
    let holes = marks.holes();
    for hole in &holes {
        println!("never happened: {}", hole.as_str());
    }
    Ok(if holes.is_empty() { 0 } else { EXIT_HOLE })
}

fn hashes(seeds: Range<u64>) -> Result<u8, String> {
    let ensemble = Ensemble::of(seeds.clone());
    for seed in seeds {
        println!("{seed} {}", run(&ensemble.plan(seed)?, Planted(None), None).hash);
    }
    Ok(0)
}
