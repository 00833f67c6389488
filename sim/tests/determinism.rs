//! The same seed gives the same trace, to the byte. `scripts/check-determinism` compares the builds.

use orbit_sim::mutant::Planted;
use orbit_sim::plan::Plan;
use orbit_sim::run::{run, run_twice};

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
