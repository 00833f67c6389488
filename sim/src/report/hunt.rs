//! How soon each planted mistake is found, over several ranges of seeds, and by which checks: the table of the book.

use super::Failure;
use crate::mutant;
use crate::run::found_within;
use orbit_core::mutant::Mutant;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

/// What became of one mistake.
#[derive(Clone, Debug)]
pub struct Hunt {
    pub mutant: Mutant,
    /// In each range after how many of its seeds it was found, and how; none where it was not.
    pub found: Vec<Option<(u64, Failure)>>,
}

impl Hunt {
    /// Looks for a mistake in each of these ranges.
    pub fn run(mutant: Mutant, ranges: &[Range<u64>]) -> Hunt {
        Hunt { mutant, found: ranges.iter().map(|seeds| found_within(mutant, seeds.clone())).collect() }
    }

    /// The median of the seeds that it took; none where half of the ranges or more have not found it.
    pub fn median(&self) -> Option<u64> {
        let mut all: Vec<u64> =
            self.found.iter().map(|found| found.as_ref().map_or(u64::MAX, |(seeds, _)| *seeds)).collect();
        all.sort_unstable();
        all.get(all.len().saturating_sub(1) / 2).copied().filter(|seeds| *seeds < u64::MAX)
    }

    /// Whether no range has found it.
    pub fn is_missed(&self) -> bool {
        self.found.iter().all(Option::is_none)
    }

    /// The checks that found it, the most frequent one first.
    pub fn checks(&self) -> Vec<(&str, usize)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, failure) in self.found.iter().flatten() {
            *counts.entry(&failure.check).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    }

    /// For machines.
    pub fn json(&self) -> Value {
        let found: Vec<Value> = self
            .found
            .iter()
            .map(|found| json!(found.as_ref().map(|(seeds, failure)| json!({"seeds": seeds, "failure": failure}))))
            .collect();
        json!({
            "mutant": mutant::name(self.mutant),
            "what": mutant::what(self.mutant),
            "median_seeds": self.median(),
            "found": found,
        })
    }

    fn seeds(&self) -> String {
        let each = self.found.iter().map(|found| found.as_ref().map_or("–".into(), |(seeds, _)| seeds.to_string()));
        each.collect::<Vec<_>>().join(", ")
    }

    fn by(&self) -> String {
        self.checks().iter().map(|(check, count)| format!("{check} {count}")).collect::<Vec<_>>().join(", ")
    }

    /// The median, for people.
    fn middle(&self) -> String {
        self.median().map_or("not found".into(), |seeds| seeds.to_string())
    }

    /// How its row of [`markdown`] begins, whatever was found.
    pub fn head(mutant: Mutant) -> String {
        format!("| `{}` | {} |", mutant::name(mutant), mutant::what(mutant))
    }
}

/// A line for people: the name, the median, every range, the checks.
pub fn line(hunt: &Hunt) -> String {
    format!("{:<34} {:>9}   {:<28} {}", mutant::name(hunt.mutant), hunt.middle(), hunt.seeds(), hunt.by())
}

/// A page of the book.
pub fn markdown(hunts: &[Hunt], ranges: &[Range<u64>]) -> String {
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return String::new() };
    let mut page = String::new();
    let each = first.end - first.start;
    let _ = writeln!(
        page,
        "# Planted mistakes\n\n\
         Each of these mistakes can be switched on in the very code that decides in production (`core/src/mutant.rs`), and never\n\
         is there: the simulator plants one at a time, to show that its checks find it. For each the table says after how many\n\
         seeds some check found it, beginning at each of {count} places (seeds {start}, {second} …; {each} seeds at most, the\n\
         middle one of the {count} first), and which checks did, and how often. No check was written for one mistake alone.\n\n\
         The table is made by `cargo run -rp sim -- mutants -o markdown --out docs/src/reference/mutants.md`.\n\n\
         | Mistake | What it does | Seeds, median | Seeds at each place | Found by |\n|---|---|---|---|---|",
        count = ranges.len(),
        start = first.start,
        second = ranges.get(1).unwrap_or(last).start,
    );
    for hunt in hunts {
        let _ = writeln!(page, "{} {} | {} | {} |", Hunt::head(hunt.mutant), hunt.middle(), hunt.seeds(), hunt.by());
    }
    let soon = hunts.iter().filter(|hunt| hunt.median().is_some_and(|seeds| seeds <= 100)).count();
    let _ = writeln!(page, "\n{soon} of {} are found within 100 seeds at the median.", hunts.len());
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::FailureKind;
    use crate::world::clock::Time;

    fn hunt(found: &[Option<(u64, &str)>]) -> Hunt {
        let failure = |check: &str| Failure {
            kind: FailureKind::Safety,
            check: check.into(),
            message: "it is broken".into(),
            at_us: Time(0),
        };
        let found = found.iter().map(|found| found.map(|(seeds, check)| (seeds, failure(check)))).collect();
        Hunt { mutant: Mutant::FenceMissing, found }
    }

    #[test]
    fn the_median_counts_what_was_not_found_as_last() {
        assert_eq!(hunt(&[Some((9, "fence")), Some((2, "fence")), None]).median(), Some(9));
        assert_eq!(hunt(&[Some((9, "fence")), None, None]).median(), None);
        assert!(hunt(&[None, None]).is_missed());
    }

    #[test]
    fn the_page_has_a_row_with_every_place_and_every_check() {
        let hunt = hunt(&[Some((9, "fence")), Some((2, "history")), Some((4, "fence"))]);
        let page = markdown(&[hunt], &[0..10, 10..20, 20..30]);
        assert!(
            page.contains(&format!("{} 4 | 9, 2, 4 | fence 2, history 1 |", Hunt::head(Mutant::FenceMissing))),
            "{page}"
        );
        assert!(page.contains("seeds 0, 10 …; 10 seeds at most"), "{page}");
    }
}
