//! `sim run`: one seed, with its options and its verdict.

use super::{Code, output};
use orbit_core::mutant::Mutant;
use orbit_sim::mutant::Planted;
use orbit_sim::report::reproduce;
use orbit_sim::run::{Ensemble, Sizes, run, run_twice};

pub fn one(
    seed: u64,
    mutant: Option<Mutant>,
    trace: Option<&str>,
    twice: bool,
    settings: Vec<(String, String)>,
) -> Code {
    let ensemble = Ensemble { settings, planted: mutant, ..Ensemble::of(seed..seed.saturating_add(1)) };
    let plan = ensemble.plan(seed)?;
    eprintln!("{}", serde_json::to_string_pretty(&plan).expect("a plan is plain data"));
    let out = trace.map(output).transpose()?;
    let mut ended = run(&plan, Planted(mutant), out);
    if twice {
        let again = run_twice(&plan, Planted(mutant));
        ended.failure = ended.failure.or(again.failure);
    }
    eprint!("{}", ended.marks.table());
    let mut sizes = Sizes::default();
    sizes.add(ended.size);
    eprintln!(
        "seed {seed}: {} executions in {} simulated ms, {} lines, trace {}\n{}",
        ended.executions,
        ended.simulated_ms,
        ended.lines,
        ended.hash,
        sizes.line()
    );
    match ended.failure {
        None => {
            eprintln!("every check holds");
            Ok(0)
        }
        Some(failure) => {
            eprintln!("{failure}\n{}", reproduce(&ensemble, seed));
            Ok(failure.kind.exit_code())
        }
    }
}
