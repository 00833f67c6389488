//! `sim options`: what `--set` changes.

use super::Code;
use orbit_sim::run::Ensemble;

pub fn list(seed: u64, settings: Vec<(String, String)>) -> Code {
    let plan = Ensemble { settings, ..Ensemble::of(seed..seed.saturating_add(1)) }.plan(seed)?;
    println!(
        "options, as seed {seed} draws them; `--set NAME=VALUE` changes one, in the order in which they are given:"
    );
    for option in plan.options() {
        println!("  {:<36} {:<24} {}", option.name, option.value, option.form);
    }
    Ok(0)
}
