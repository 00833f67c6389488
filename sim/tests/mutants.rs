//! The simulator has teeth: each planted mistake is found, within a stated number of seeds, and most of them soon.
//!
//! `SIM_MUTANT=name` plants that one alone.

use orbit_core::mutant::Mutant;
use orbit_sim::mutant::{name, parse};
use orbit_sim::report::hunt::Hunt;
use orbit_sim::run::found_within;

/// How many seeds may pass before a mistake is found.
const SEEDS: u64 = 1_000;

/// Most are found by these.
const SOON: u64 = 100;

/// The page of the book that `sim mutants` writes.
const PAGE: &str = include_str!("../../docs/src/reference/mutants.md");

#[test]
fn every_planted_mistake_is_found_within_a_thousand_seeds_and_most_within_a_hundred() {
    let mut missed = Vec::new();
    let only = std::env::var("SIM_MUTANT").ok().filter(|name| !name.is_empty());
    let only = only.map(|name| parse(&name).unwrap_or_else(|why| panic!("{why}")));
    let (mut all, mut soon) = (0, 0);
    for mutant in Mutant::ALL.into_iter().filter(|m| only.is_none_or(|only| only == *m)) {
        all += 1;
        match found_within(mutant, 0..SEEDS) {
            Some((count, failure)) => {
                println!("{}: found by seed {count}: {failure}", name(mutant));
                soon += usize::from(count <= SOON);
            }
            None => missed.push(name(mutant)),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {}", missed.join(", "));
    assert!(only.is_some() || 2 * soon > all, "{soon} of {all} alone were found within {SOON} seeds");
}

#[test]
fn the_books_table_has_every_planted_mistake_and_no_other() {
    let rewrite = "rewrite it: cargo run -rp sim -- mutants -o markdown --out docs/src/reference/mutants.md";
    let rows: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("| `")).collect();
    for mutant in Mutant::ALL {
        let head = Hunt::head(mutant);
        let row = rows.iter().find(|row| row.starts_with(&head));
        let row = row.unwrap_or_else(|| panic!("{} is not as the book has it; {rewrite}", name(mutant)));
        assert!(!row.contains("not found"), "{row}");
    }
    assert_eq!(rows.len(), Mutant::ALL.len(), "the book has mistakes that nobody plants any more; {rewrite}");
}
