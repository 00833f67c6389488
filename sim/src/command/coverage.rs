//! `sim coverage`: how often each rare event happened.

use super::{Code, EXIT_HOLE, holes, summary, with_progress};
use crate::Output;
use orbit_sim::coverage::Mark;
use orbit_sim::run::Ensemble;
use serde_json::{Map, json};
use std::ops::Range;

pub fn coverage(seeds: Range<u64>, output: Output, jobs: usize) -> Code {
    let explored = with_progress(&Ensemble { jobs, ..Ensemble::of(seeds.clone()) })?;
    let marks = &explored.marks;
    let whole = match output {
        Output::Table => {
            summary(&explored);
            print!("{}", marks.table());
            holes(&explored)
        }
        Output::Json => {
            let counts: Map<_, _> =
                Mark::ALL.iter().map(|mark| (mark.as_str().into(), json!(marks.count(*mark)))).collect();
            println!("{}", json!({"seeds": [seeds.start, seeds.end], "runs": explored.runs, "marks": counts}));
            marks.holes().is_empty()
        }
        Output::Markdown => {
            println!("| Event | Times in the seeds {} to {} |\n|---|---|", seeds.start, seeds.end - 1);
            for mark in Mark::ALL {
                println!("| {} | {} |", mark.as_str(), marks.count(*mark));
            }
            marks.holes().is_empty()
        }
    };
    Ok(match explored.exit_code() {
        0 if whole => 0,
        0 => EXIT_HOLE,
        code => code,
    })
}
