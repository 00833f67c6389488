//! The simulator's command line: see `sim --help` and the page on simulation in the book.

mod command;

use clap::{Args, Parser, Subcommand, ValueEnum};
use command::{census, checks, coverage, explore, hashes, mutants, options, run, scenario, show};
use orbit_core::mutant::Mutant;
use orbit_sim::mutant;
use orbit_sim::run::seed;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

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
        #[arg(long, value_parser = seed::parse)]
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
    ///
    /// Where they are 2,000 or more, all of them are run, and nothing is changed in them, every rare event has to have
    /// happened.
    Explore(explore::Arguments),
    /// Runs scenarios: files that `shrink` wrote, or that were written by hand.
    ///
    /// Where a file says how the run fails, that failure is what is wanted (exit code 0), and any other end is not. The first
    /// one that does not end as it should ends it.
    Replay {
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Writes everything that happens as JSON lines, to a file or, as `--trace=-`, to the standard output.
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
        #[arg(long, value_parser = seed::parse)]
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
        #[arg(long, value_parser = seed::parse)]
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
    /// Lists the options that `--set` changes, as a seed draws them.
    Options {
        /// A number, or a commit's hash.
        #[arg(long, value_parser = seed::parse, default_value = "0")]
        seed: u64,
        #[command(flatten)]
        settings: Settings,
    },
    /// Plants each mistake in turn, and says after how many seeds it was found, and by which check.
    Mutants(mutants::Arguments),
    /// Lists the checks: what must hold always, and what must have happened sometimes for that to mean something.
    Checks {
        /// How it is written.
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Counts how often each rare event happened; fails where one never did.
    Coverage {
        /// Half open, such as `0..500`.
        #[arg(long, value_parser = seed::parse_range, default_value = command::usual())]
        seeds: Range<u64>,
        /// How it is written.
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
        /// Threads.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
    },
    /// Runs seeds until so many drawn workflows have run to an end, and says what they were made of; fails where a construct
    /// stands in fewer than 5 % of them, half of them have fewer than eight steps, or no child lay three deep.
    Census {
        /// Half open, such as `0..100000`.
        #[arg(long, value_parser = seed::parse_range, default_value = "0..100000")]
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
        #[arg(long, value_parser = seed::parse_range, default_value = "0..8")]
        seeds: Range<u64>,
    },
}

/// How tables are written.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    #[default]
    Table,
    Json,
    /// For the book.
    Markdown,
}

#[derive(Args)]
struct Settings {
    /// Changes an option of the plan, such as `nodes=3`, `faults.pause=0`, `disk.unknown=1/10`; `sim options` lists them.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_setting)]
    set: Vec<(String, String)>,
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("an option is changed by KEY=VALUE")?;
    Ok((key.trim().into(), value.trim().into()))
}

fn main() -> ExitCode {
    let code = match Cli::parse().command {
        Command::Run { seed, mutant, trace, check_determinism, settings } => {
            run::one(seed, mutant, trace.as_deref(), check_determinism, settings.set)
        }
        Command::Explore(arguments) => explore::explore(arguments),
        Command::Replay { files, trace, unplanted } => scenario::replay(&files, trace.as_deref(), unplanted),
        Command::Shrink { file, seed, mutant, out, seconds } => {
            scenario::shrink(file.as_deref(), seed, mutant, &out, seconds)
        }
        Command::Show { file, seed, mutant, out, last_ms, settings } => {
            show::show(file.as_deref(), seed, mutant, &out, last_ms, settings.set)
        }
        Command::Diff { left, right } => show::diff(&left, &right),
        Command::Faults => scenario::faults(),
        Command::Options { seed, settings } => options::list(seed, settings.set),
        Command::Mutants(arguments) => mutants::mutants(&arguments),
        Command::Checks { output } => checks::checks(output),
        Command::Coverage { seeds, output, jobs } => coverage::coverage(seeds, output, jobs),
        Command::Census { seeds, workflows, jobs } => census::census(seeds, workflows, jobs),
        Command::Hash { seeds } => hashes::hashes(seeds),
    };
    ExitCode::from(code.unwrap_or_else(|message| {
        eprintln!("sim: {message}");
        command::EXIT_USAGE
    }))
}
