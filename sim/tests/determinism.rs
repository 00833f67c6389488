//! The same seed gives the same trace, to the byte. `scripts/check-determinism` compares the builds.

use orbit_sim::mutant::Planted;
use orbit_sim::plan::Plan;
use orbit_sim::run::{run, run_twice};
use std::path::Path;

#[test]
fn the_same_seed_gives_the_same_trace_twice() {
    for seed in [1, 2, 3, 42, u64::MAX] {
        let ended = run_twice(&Plan::draw(seed), Planted(None));
        assert!(ended.failure.is_none(), "seed {seed}: {:?}", ended.failure);
        assert!(ended.lines > 100, "seed {seed}: a world in which something happens");
    }
}

#[test]
fn another_seed_gives_another_trace() {
    let hash = |seed| run(&Plan::draw(seed), Planted(None), None).hash;
    assert_ne!(hash(1), hash(2));
}

/// The hashes of the traces of these seeds, in `tests/golden/traces.txt`.
const GOLDEN: std::ops::Range<u64> = 0..50;

/// `GOLDEN_REWRITE=1` writes the file anew. Do that only where you know what has changed, and that it should have: a
/// protocol, the plans or the world. A change that was meant to be of speed or of form alone leaves every line as it is.
#[test]
fn the_traces_of_fifty_seeds_are_those_that_are_kept() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/traces.txt");
    let text: String =
        GOLDEN.map(|seed| format!("{seed} {}\n", run(&Plan::draw(seed), Planted(None), None).hash)).collect();
    if std::env::var("GOLDEN_REWRITE").is_ok_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
        std::fs::write(&path, &text).expect("the file can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("the file is there");
    let other: Vec<&str> =
        text.lines().zip(kept.lines()).filter(|(now, kept)| now != kept).map(|(now, _)| now).collect();
    assert!(
        other.is_empty() && text.len() == kept.len(),
        "{} of {GOLDEN:?} have other traces than in {}; where that is meant: GOLDEN_REWRITE=1 cargo test -p sim --test \
         determinism\n{}",
        other.len(),
        path.display(),
        other.join("\n")
    );
}
