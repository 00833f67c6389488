//! `sim hash`: the hashes of traces.

use super::Code;
use orbit_sim::mutant::Planted;
use orbit_sim::run::{Ensemble, run};
use std::ops::Range;

pub fn hashes(seeds: Range<u64>) -> Code {
    let ensemble = Ensemble::of(seeds.clone());
    for seed in seeds {
        println!("{seed} {}", run(&ensemble.plan(seed)?, Planted(None), None).hash);
    }
    Ok(0)
}
