//! The worked examples of the book's page on the simulator are what it shows, and do what it says.

#[path = "guide/check.rs"]
mod check;

use check::TermsCheck;
use orbit_core::id::{Incarnation, Term};
use orbit_core::store::append::Fence;
use orbit_sim::check::{Checked, Committed};
use orbit_sim::fault::{Strike, Struck};
use orbit_sim::mutant::Planted;
use orbit_sim::plan::{ClusterPlan, Plan};
use orbit_sim::run::{Faulty, run_with};
use orbit_sim::store::{Change, Commit, ModelStore};
use orbit_sim::world::book::Book;
use std::path::Path;
use uuid::Uuid;

const CHAPTER: &str = include_str!("../../docs/src/guide/simulating.md");

/// The chapter shows a file as it is.
fn is_shown(file: &str, language: &str) {
    let block = format!("```{language}\n{file}```");
    assert!(CHAPTER.contains(&block), "the chapter does not show this file as it is:\n{file}");
}

#[test]
fn the_faults_that_the_book_shows_are_some_and_every_check_holds_whatever_they_do() {
    let file = include_str!("guide/faults.json");
    is_shown(file, "json");
    let faults: Vec<Strike> = serde_json::from_str(file).expect("they are faults");
    let plan = Plan { cluster: Some(ClusterPlan::quiet()), ..Plan::quiet(7) };
    let struck = Struck::default();
    let ended = run_with(&plan, Planted(None), None, Faulty::Scripted(&faults), &struck);
    assert!(ended.failure.is_none(), "{:?}", ended.failure);
    assert_eq!(struck.borrow().len(), faults.len(), "each of them strikes");
}

/// A commit that raises the fence.
fn raised(check: &mut TermsCheck, term: u64) -> Checked {
    let fence = |term| Fence { term: Term(term), incarnation: Incarnation(Uuid::nil()) };
    let changes = vec![Change::FenceRaised { before: fence(term - 1), after: fence(term) }];
    let commit = Commit { transaction: "campaign", changes };
    let (store, book) = (ModelStore::new(orbit_core::id::ClusterId(Uuid::nil())), Book::default());
    check.on_commit(&Committed::alone(&commit, &store, &book, true))
}

#[test]
fn the_check_that_the_book_shows_bites_where_a_term_is_skipped_and_only_there() {
    is_shown(include_str!("guide/check.rs"), "rust");
    let mut check = TermsCheck::default();
    assert_eq!(raised(&mut check, 1), Ok(()));
    assert_eq!(raised(&mut check, 2), Ok(()));
    let violation = raised(&mut check, 4).expect_err("a term is skipped");
    assert_eq!((violation.check, violation.message.as_str()), ("terms", "term 4 begins after term 2"));
}

#[test]
fn the_mutant_that_the_book_shows_stands_where_it_says() {
    for path in ["core/src/mutant.rs", "core/src/node/standby.rs"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let source = std::fs::read_to_string(root.join(path)).expect("a file of core");
        let (_, shown) = CHAPTER.split_once(&format!("// {path}\n")).unwrap_or_else(|| panic!("{path} is not shown"));
        let (shown, _) = shown.split_once("```").expect("the block ends");
        for line in shown.lines().map(str::trim).filter(|line| !line.is_empty()) {
            assert!(source.lines().any(|of_source| of_source.trim() == line), "{path} has no line {line:?}");
        }
    }
}
