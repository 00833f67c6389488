//! Ownership in shared mode on the model of PostgreSQL (protocols, 16 and 17).

use orbit_core::cluster::detector::SilenceRule;
use orbit_core::store::ownership::TakeRule;
use orbit_sim::check::Violation;
use orbit_sim::owners::{Figures, Plan, Suspicion, run};

/// The seeds of a test: `OWNERS_SEEDS` of them, where it is set.
fn seeds() -> u64 {
    std::env::var("OWNERS_SEEDS").ok().map_or(400, |seeds| seeds.parse().expect("a number of seeds"))
}

#[test]
fn every_tree_has_one_writer_at_a_time_whoever_dies_stands_still_or_is_wrongly_declared_dead() {
    let mut all = Figures::new();
    for seed in 0..seeds() {
        let figures = run(seed, Plan { writers: 2 + (seed % 4) as usize, ..Plan::default() })
            .unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"));
        for (name, count) in figures {
            *all.entry(name).or_default() += count;
        }
    }
    println!("{all:#?}");
    for sometimes in [
        "tree taken over",
        "tree handed over",
        "members followed",
        "marked dead",
        "found itself dead",
        "group rejected",
        "group busy",
        "crash",
        "backend stood still",
    ] {
        assert!(all.get(sometimes).is_some_and(|count| *count >= 10), "{sometimes}: {all:?}");
    }
}

#[test]
fn nobody_is_declared_dead_who_beats_while_the_database_answers_and_whoever_is_gone_is_found_out() {
    let mut all = Figures::new();
    for seed in 0..seeds() {
        let suspicion = Suspicion::Detector(SilenceRule::Sound);
        let figures = run(seed, Plan { writers: 2 + (seed % 4) as usize, suspicion, ..Plan::default() })
            .unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"));
        for (name, count) in figures {
            *all.entry(name).or_default() += count;
        }
    }
    println!("{all:#?}");
    for sometimes in ["tree taken over", "marked dead", "found itself dead", "database away", "standstill"] {
        assert!(all.get(sometimes).is_some_and(|count| *count >= 10), "{sometimes}: {all:?}");
    }
}

/// The first seed at which a mistake is found.
fn found(plan: Plan) -> Option<(u64, Violation)> {
    (0..1_000).find_map(|seed| Some((seed, run(seed, plan).err()?)))
}

#[test]
fn a_detector_that_counts_over_gaps_or_goes_by_a_wall_clock_is_found() {
    for rule in [SilenceRule::OverGaps, SilenceRule::WallClock] {
        let plan = Plan { suspicion: Suspicion::Detector(rule), ..Plan::default() };
        let (seed, violation) = found(plan).unwrap_or_else(|| panic!("{rule:?} is not found"));
        println!("{rule:?}: seed {seed}: {violation:?}");
        assert!(violation.message.contains("declared dead"), "{rule:?}: seed {seed}: {violation:?}");
    }
}

#[test]
fn a_takeover_that_names_no_owner_keeps_the_epoch_or_moves_a_tree_in_one_statement_is_found() {
    for (rule, part) in [
        (TakeRule::AnyOwner, "which lives"),
        (TakeRule::SameEpoch, "under epoch"),
        (TakeRule::OneStatement, "the root of its tree"),
    ] {
        let (seed, violation) =
            found(Plan { rule, ..Plan::default() }).unwrap_or_else(|| panic!("{rule:?} is not found"));
        println!("{rule:?}: seed {seed}: {violation:?}");
        assert_eq!(violation.check, "owners");
        assert!(violation.message.contains(part), "{rule:?}: seed {seed}: {violation:?}");
    }
}
