//! The simulator has teeth: each planted mistake is found, within a stated number of seeds.

use orbit_core::mutant::Mutant;
use orbit_sim::mutant::name;
use orbit_sim::run::found_within;

/// How many seeds may pass before a mistake is found.
const SEEDS: u64 = 100;

#[test]
fn every_planted_mistake_is_found_within_a_hundred_seeds() {
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        match found_within(mutant, 0..SEEDS) {
            Some((count, failure)) => println!("{}: found by seed {count}: {failure}", name(mutant)),
            None => missed.push(name(mutant)),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {}", missed.join(", "));
}
