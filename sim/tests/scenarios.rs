//! Scenarios: what struck in a run can be written down, run again and made small.

use orbit_core::mutant::Mutant;
use orbit_sim::fault::{FaultKind, Moment, Strike, When};
use orbit_sim::mutant::Planted;
use orbit_sim::plan::{Plan, StoreKind};
use orbit_sim::run::Ensemble;
use orbit_sim::scenario::{FORMAT, Scenario, ScenarioError, shrink};
use std::time::Duration;

#[test]
fn the_scenario_of_a_run_is_that_run_to_the_byte() {
    let mut faults = 0;
    for seed in 0..24 {
        let (scenario, ended) = Scenario::of_run(&Plan::draw(seed), Planted(None));
        let read = Scenario::parse(&scenario.text()).expect("what is written is read");
        assert_eq!(read, scenario);
        assert_eq!(read.run(None).hash, ended.hash, "seed {seed}");
        faults += scenario.faults.len();
    }
    assert!(faults > 200, "{faults} faults in 24 runs");
}

#[test]
fn without_its_faults_a_run_is_another_and_every_check_holds() {
    for seed in 0..8 {
        let (scenario, ended) = Scenario::of_run(&Plan::draw(seed), Planted(None));
        let calm = Scenario { faults: Vec::new(), ..scenario }.run(None);
        assert!(calm.failure.is_none(), "seed {seed}: {:?}", calm.failure);
        assert_ne!(calm.hash, ended.hash, "seed {seed}");
    }
}

/// The first seed by which a mistake is found, as a scenario.
fn found(mutant: Mutant) -> Scenario {
    let ensemble = Ensemble { planted: Some(mutant), stop_at_first: true, jobs: 1, ..Ensemble::of(0..1_000) };
    let seed = ensemble.explore(&|_, _| {}).expect("nothing is changed").failures[0].0;
    Scenario::of_run(&Plan::draw(seed), Planted(Some(mutant))).0
}

#[test]
fn what_fails_is_made_small_and_fails_in_the_same_way_from_its_file() {
    let whole = found(Mutant::UnknownTakenAsFailed);
    let shrunk = shrink(&whole, Duration::from_secs(60), &|_| {}).expect("it fails");
    println!("{} faults of {} after {} runs", shrunk.scenario.faults.len(), whole.faults.len(), shrunk.runs);
    assert!(shrunk.scenario.faults.len() <= 10, "{:?}", shrunk.scenario.faults);
    assert!(shrunk.scenario.faults.len() < whole.faults.len());
    let read = Scenario::parse(&shrunk.scenario.text()).expect("what is written is read");
    let expected = read.fails.clone().expect("it says how it fails");
    assert!(expected.is(read.run(None).failure.as_ref()));
    let unplanted = Scenario { mutant: None, ..read };
    assert!(unplanted.run(None).failure.is_none(), "without the mistake every check holds");
}

#[test]
fn nothing_is_made_small_that_does_not_fail() {
    let (scenario, _) = Scenario::of_run(&Plan::draw(1), Planted(None));
    assert!(shrink(&scenario, Duration::from_secs(5), &|_| {}).is_none());
}

/// A plan of a cluster that elects by the lock, and whose servers step down in their process.
fn cluster() -> Plan {
    let stays = |plan: &Plan| plan.cluster.as_ref().is_some_and(|c| c.lease_ms.is_none() && !c.exits);
    let is_one = |plan: &Plan| plan.store == StoreKind::Postgres && stays(plan);
    (0..).map(Plan::draw).find(is_one).expect("some of the plans")
}

/// The trace of a cluster whose leader stands still for 30 s at its second moment of this kind.
fn leader_stands_still(moment: Moment) -> String {
    let text = Scenario {
        format: FORMAT.into(),
        about: String::new(),
        mutant: None,
        fails: None,
        faults: vec![Strike {
            when: When::After { moment, nth: 2, node: None },
            fault: FaultKind::Pause,
            for_ms: 30_000,
            skip: 0,
        }],
        plan: Plan { chaos_ms: 60_000, ..cluster() },
    }
    .text();
    let scenario = Scenario::parse(&text).expect("it is one");
    let path = std::env::temp_dir().join(format!("orbit-scenario-{}-{}.jsonl", std::process::id(), moment.as_str()));
    let file = std::fs::File::create(&path).expect("a file");
    let ended = scenario.run(Some(Box::new(file)));
    let trace = std::fs::read_to_string(&path).expect("a trace");
    std::fs::remove_file(&path).expect("it is there");
    assert!(ended.failure.is_none(), "{:?}", ended.failure);
    trace
}

fn line(trace: &str, what: &str) -> usize {
    trace.lines().position(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what}"))
}

#[test]
fn a_leader_that_stands_still_once_it_has_sent_an_append_is_replaced_and_fenced() {
    let trace = leader_stands_still(Moment::AppendSent);
    let (pause, lost) = (line(&trace, "\"what\":\"pause\""), line(&trace, "leadership_lost"));
    assert!(pause < lost, "it notices when it goes on");
    let elections = trace.lines().filter(|line| line.contains("\"elected\"")).count();
    assert!(elections >= 2, "another was elected: {elections}");
}

#[test]
fn a_leader_can_be_made_to_stand_still_between_the_fence_check_of_an_append_and_its_commit() {
    let trace = leader_stands_still(Moment::AppendFenceLocked);
    let pause = line(&trace, "\"what\":\"pause\"");
    let data = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("a line of JSON")["data"].clone();
    let paused = data(trace.lines().nth(pause).expect("it is there"))[0].clone();
    let committed = |line: &&str| line.contains("\"what\":\"commit\"") && line.contains("\"transaction\":\"append\"");
    let next = trace.lines().skip(pause).find(committed).expect("an append commits");
    assert_eq!(data(next)[0], paused, "what it had sent is committed while it stands still");
    assert!(pause < line(&trace, "leadership_lost"), "it notices when it goes on");
}

#[test]
fn what_is_no_scenario_is_refused_with_what_would_be_right() {
    let scenario = Scenario::of_run(&Plan::draw(1), Planted(None)).0;
    let with = |change: &dyn Fn(&mut Scenario)| {
        let mut changed = Scenario { faults: Vec::new(), ..scenario.clone() };
        change(&mut changed);
        Scenario::parse(&changed.text()).expect_err("it is refused").to_string()
    };
    assert!(with(&|s| s.format = "orbit-scenario/9".into()).contains(FORMAT));
    assert!(with(&|s| s.mutant = Some("fence-made-of-paper".into())).contains("fence-missing"));
    let at = |fault, nth| {
        let when = When::After { moment: Moment::Elected, nth, node: None };
        Strike { when, fault, for_ms: 0, skip: 0 }
    };
    assert!(with(&|s| s.faults = vec![at(FaultKind::RequestLost, 1)]).contains("at_us"));
    assert!(with(&|s| s.faults = vec![at(FaultKind::Pause, 0)]).contains("begins with 1"));
    let alone = |s: &mut Scenario| (s.plan.store, s.plan.cluster) = (StoreKind::Sqlite, None);
    let restart = with(&|s| {
        alone(s);
        s.faults = vec![at(FaultKind::DatabaseRestart, 1)];
    });
    assert!(restart.contains("database-restart strikes PostgreSQL"), "{restart}");
    assert!(matches!(Scenario::parse("{}"), Err(ScenarioError::Json(_))));
    assert!(Scenario::parse(&scenario.text().replace("\"crash\"", "\"crush\"")).is_err());
}

#[test]
fn every_kind_of_fault_strikes_in_some_seed() {
    let mut missing: Vec<FaultKind> = FaultKind::ALL.to_vec();
    for seed in 0..200 {
        let struck = Scenario::of_run(&Plan::draw(seed), Planted(None)).0.faults;
        missing.retain(|kind| struck.iter().all(|strike| strike.fault != *kind));
        if missing.is_empty() {
            return;
        }
    }
    let never: Vec<&str> = missing.iter().map(|kind| kind.as_str()).collect();
    panic!("never in 200 seeds: {never:?}");
}
