//! Protocols as people read them: small worlds in which one thing happens, told a line for each message and each change.
//!
//! `GOLDEN_REWRITE=1` writes the files anew. **They are looked at by people**: read the difference before you keep it, and
//! do not rewrite what you cannot explain by the change that you made. What a line leaves out (times, looks at the fence,
//! polls, events of histories) is left out so that only a change of the protocol changes a file.

use orbit_sim::fault::{FaultKind, Moment, Strike, When};
use orbit_sim::mutant::Planted;
use orbit_sim::plan::{ClusterPlan, Plan};
use orbit_sim::run::{Faulty, run_with};
use orbit_sim::show::story::{Item, Lane, Shape, Story, sentence};
use orbit_sim::show::words::Kind;
use orbit_sim::show::{Tape, lines};
use std::path::PathBuf;

/// A world of two servers on PostgreSQL, one of which is elected by the lock, and in which nothing goes wrong by itself.
fn cluster() -> Plan {
    Plan { cluster: Some(ClusterPlan::quiet()), ..Plan::quiet(7) }
}

fn after(moment: Moment, nth: u32, fault: FaultKind, for_ms: u64) -> Strike {
    Strike { when: When::After { moment, nth, node: None }, fault, for_ms, skip: 0 }
}

/// What happens in a plan with these faults.
fn story(plan: &Plan, faults: &[Strike]) -> Story {
    let tape = Tape::default();
    let out = Some(Box::new(tape.clone()) as Box<dyn std::io::Write>);
    let ended = run_with(plan, Planted(None), out, Faulty::Scripted(faults), &Default::default());
    assert!(ended.failure.is_none(), "{:?}", ended.failure);
    Story::of(&lines(&tape.text()).expect("a trace"))
}

/// A line for each item that matters, from the first one that `begin` says on, up to the first one that `end` says.
fn told(story: &Story, matters: impl Fn(&Item) -> bool, begin: &str, end: &str) -> String {
    let all: Vec<String> = story.items.iter().filter(|item| matters(item)).map(sentence).collect();
    let first = all.iter().position(|line| line.contains(begin)).unwrap_or_else(|| panic!("no {begin:?} in {all:#?}"));
    let last =
        all[first..].iter().position(|line| line.contains(end)).unwrap_or_else(|| panic!("no {end:?} in {all:#?}"));
    all[first..=first + last].iter().map(|line| format!("{}\n", without_times(line))).collect()
}

/// How long something took says nothing of a protocol.
fn without_times(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let is_time =
        |at: usize| words.get(at + 1).is_some_and(|unit| unit.starts_with("ms")) && words[at].parse::<u64>().is_ok();
    let shown = words.iter().enumerate().map(|(at, word)| if is_time(at) { "…" } else { word });
    shown.collect::<Vec<_>>().join(" ")
}

/// Who may write, and how that comes to change.
fn leads(item: &Item) -> bool {
    let term_bar = item.shape == Shape::Bar && item.said.term.is_some();
    let of_servers = matches!(item.lane, Lane::Server(..) | Lane::Database | Lane::World);
    of_servers && !term_bar && (item.said.key || item.said.kind == Kind::Lead)
}

fn check(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("GOLDEN_REWRITE").is_some_and(|set| set == "1") {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
        std::fs::write(&path, text).expect("it can be written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == text,
        "{name} has changed. Read what happens now, and keep it by GOLDEN_REWRITE=1 if it is what you mean:\n{text}"
    );
}

#[test]
fn an_election_has_one_winner_and_the_other_stands_by() {
    check("election.txt", &told(&story(&cluster(), &[]), leads, "starts", "leads in term 1"));
}

#[test]
fn a_leader_that_stood_still_steps_down_once_another_was_elected() {
    let faults = [after(Moment::Leading, 1, FaultKind::Pause, 9_000)];
    check("step-down.txt", &told(&story(&cluster(), &faults), leads, "leads in term 1", "leads no more"));
}

#[test]
fn an_append_whose_answer_is_lost_is_sent_again_until_its_outcome_is_known() {
    let faults = [after(Moment::AppendSent, 5, FaultKind::LinkCut, 0)];
    let appends = |item: &Item| {
        let of_append = item.said.text.starts_with("append")
            || item.said.text.contains("written")
            || item.said.text.contains("there already");
        leads(item) || (of_append && matches!(item.said.kind, Kind::Write | Kind::Trouble))
    };
    check("unknown-commit.txt", &told(&story(&Plan::quiet(7), &faults), appends, "fault: link cut", "there already"));
}

#[test]
fn a_promotion_makes_the_servers_forget_and_campaign_on_the_new_timeline() {
    let at = When::AtUs(orbit_sim::world::clock::Time(6_000_000));
    let faults = [Strike { when: at, fault: FaultKind::Promotion, for_ms: 300, skip: 0 }];
    check("promotion.txt", &told(&story(&cluster(), &faults), leads, "fault: promotion", "leads in term"));
}
