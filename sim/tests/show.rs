//! Pages: what somebody who has not seen the code reads of a violation.

use orbit_core::mutant::Mutant;
use orbit_sim::mutant::Planted;
use orbit_sim::plan::Plan;
use orbit_sim::run::Ensemble;
use orbit_sim::scenario::{Scenario, shrink};
use orbit_sim::show::Shown;
use serde_json::Value;
use std::time::Duration;

/// The data that a page's script draws.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("<script id=\"data\" type=\"application/json\">").expect("a page has data");
    let (data, _) = rest.split_once("</script>").expect("the data ends");
    serde_json::from_str(data).expect("the data is JSON")
}

fn names(data: &Value) -> Vec<&str> {
    data["lanes"].as_array().expect("lanes").iter().map(|lane| lane["name"].as_str().expect("a name")).collect()
}

#[test]
fn the_page_of_a_shrunk_scenario_names_the_violation_and_tells_how_it_came_to_it() {
    let mutant = Mutant::FenceMissing;
    let ensemble = Ensemble { planted: Some(mutant), stop_at_first: true, jobs: 1, ..Ensemble::of(0..1_000) };
    let (seed, failure) = ensemble.explore(&|_, _| {}).expect("nothing is changed").failures.remove(0);
    let whole = Scenario::of_run(&Plan::draw(seed), Planted(Some(mutant))).0;
    let small = shrink(&whole, Duration::from_secs(60), &|_| {}).expect("it fails").scenario;
    let page = Shown::of_scenario(&small).page();
    assert!(page.contains("the check <code>fence</code> says"), "the violation is not named");
    assert!(page.contains("nothing looks at the fence row"), "the mistake is not told");
    let data = data(&page);
    assert_eq!(data["verdict"]["check"], failure.check.as_str());
    let names = names(&data);
    for lane in ["faults", "client 0", "sim-0", "database"] {
        assert!(names.contains(&lane), "no lane of {lane}: {names:?}");
    }
    let story: Vec<&str> =
        data["story"].as_array().expect("a story").iter().map(|line| line[1].as_str().expect("a sentence")).collect();
    let last = story.last().expect("something is told");
    assert!(last.starts_with("fence: term"), "the violation is the end of the story: {last}");
    let raised = story.iter().filter(|line| line.contains("begins")).count();
    assert!(raised >= 2, "two terms begin before one of them is written under again: {story:#?}");
}

#[test]
fn the_page_of_a_run_in_which_every_check_holds_says_so_and_needs_nothing_from_elsewhere() {
    let page = Shown::of_seed(&Plan::draw(1), Planted(None)).page();
    assert!(page.contains("Every check holds."));
    assert!(page.len() < 6 << 20, "{} bytes", page.len());
    for elsewhere in ["src=", "href=", "url(http", "@import", "fetch("] {
        assert!(!page.contains(elsewhere), "{elsewhere} is in the page");
    }
    let data = data(&page);
    assert_eq!(data["verdict"], Value::Null);
    assert!(data["items"].as_array().expect("items").len() <= 3_000);
}

#[test]
fn a_trace_gives_the_page_of_the_run_that_it_is_of_and_what_is_neither_trace_nor_scenario_is_refused() {
    let tape = orbit_sim::show::Tape::default();
    let plan = Plan::draw(2);
    orbit_sim::run::run(&plan, Planted(None), Some(Box::new(tape.clone())));
    let of_trace = Shown::of_file("t.jsonl", &tape.text()).expect("it is a trace");
    let of_seed = Shown::of_seed(&plan, Planted(None));
    assert_eq!(data(&of_trace.page())["items"], data(&of_seed.page())["items"]);
    assert!(Shown::of_file("x", "").expect_err("it is nothing").contains("neither a trace nor a scenario"));
    assert!(Shown::of_file("x", "hello").expect_err("it is text").contains("line 1"));
}

#[test]
fn what_happened_long_before_is_left_out_on_demand() {
    let mut shown = Shown::of_seed(&Plan::draw(1), Planted(None));
    let whole = data(&shown.page());
    shown.keep_last_ms(500);
    let part = data(&shown.page());
    let from = part["ends_at"].as_u64().expect("a time") - 500_000;
    let items = part["items"].as_array().expect("items");
    assert!(!items.is_empty() && items.len() < whole["items"].as_array().expect("items").len());
    assert!(items.iter().all(|item| item[4].as_u64().expect("a time") >= from));
}
