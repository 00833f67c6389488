//! `sim census`: what the drawn workflows were made of that ran to an end.

use super::{Code, EXIT_HOLE, failures, summary, with_progress};
use orbit_sim::run::Ensemble;
use std::ops::Range;

pub fn census(seeds: Range<u64>, workflows: u64, jobs: usize) -> Code {
    let ensemble = Ensemble { enough: Some(workflows), jobs, ..Ensemble::of(seeds) };
    let explored = with_progress(&ensemble)?;
    let census = &explored.census;
    print!("{census}");
    summary(&explored);
    failures(&ensemble, &explored);
    let enough = census.workflows >= workflows && census.median_of_steps() >= 8 && census.depth() >= 3;
    for rare in census.rare() {
        println!("in fewer than 5 % of them: {rare}");
    }
    let code = explored.exit_code();
    Ok(if code == 0 && !(enough && census.rare().is_empty()) { EXIT_HOLE } else { code })
}
