//! The simulator has teeth: each planted mistake is found, within a stated number of seeds.
//!
//! `SIM_MUTANT=name` plants that one alone.

use orbit_core::mutant::Mutant;
use orbit_sim::mutant::{name, parse};
use orbit_sim::run::found_within;

/// How many seeds may pass before a mistake is found.
const SEEDS: u64 = 1_000;

#[test]
fn every_planted_mistake_is_found_within_a_thousand_seeds() {
    let mut missed = Vec::new();
    let only = std::env::var("SIM_MUTANT").ok().filter(|name| !name.is_empty());
    let only = only.map(|name| parse(&name).unwrap_or_else(|why| panic!("{why}")));
    for mutant in Mutant::ALL.into_iter().filter(|m| only.is_none_or(|only| only == *m)) {
        match found_within(mutant, 0..SEEDS) {
            Some((count, failure)) => println!("{}: found by seed {count}: {failure}", name(mutant)),
            None => missed.push(name(mutant)),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {}", missed.join(", "));
}
