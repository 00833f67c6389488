//! `sim checks`: what must hold, and what must have happened for that to mean something.

use super::Code;
use crate::Output;
use orbit_sim::check::catalogue::{CHECKS, ELSEWHERE, Elsewhere};
use orbit_sim::coverage::Mark;
use serde_json::{Value, json};

pub fn checks(output: Output) -> Code {
    let sometimes = |marks: &[Mark]| marks.iter().map(|mark| mark.as_str()).collect::<Vec<_>>();
    match output {
        Output::Table => {
            for entry in CHECKS {
                println!(
                    "{:<12} {}\n{:12} sometimes: {}",
                    entry.check,
                    entry.promise,
                    "",
                    sometimes(entry.sometimes).join("; ")
                );
            }
            for Elsewhere { check, promise, test } in ELSEWHERE {
                println!("{check:<12} {promise}\n{:12} sometimes: see {test}", "");
            }
        }
        Output::Json => {
            let all: Vec<Value> = CHECKS
                .iter()
                .map(|e| json!({"check": e.check, "promise": e.promise, "sometimes": sometimes(e.sometimes)}))
                .chain(ELSEWHERE.iter().map(|e| json!({"check": e.check, "promise": e.promise, "test": e.test})))
                .collect();
            println!("{:#}", Value::Array(all));
        }
        Output::Markdown => {
            println!("| Check | Always | Sometimes |\n|---|---|---|");
            for entry in CHECKS {
                println!("| {} | {} | {} |", entry.check, entry.promise, sometimes(entry.sometimes).join("; "));
            }
            for Elsewhere { check, promise, test } in ELSEWHERE {
                println!("| {check} | {promise} | `{test}` |");
            }
        }
    }
    Ok(0)
}
