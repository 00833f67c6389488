//! `sim mutants`: how soon each planted mistake is found.

use super::{Code, EXIT_HOLE, bar, write};
use crate::Output;
use clap::Args;
use orbit_core::mutant::Mutant;
use orbit_sim::mutant;
use orbit_sim::report::header::build;
use orbit_sim::report::hunt::{Hunt, line, markdown};
use orbit_sim::run::seed;
use serde_json::{Value, json};
use std::ops::Range;

#[derive(Args)]
pub struct Arguments {
    /// The first range of seeds, half open; those that follow are as long.
    #[arg(long, value_parser = seed::parse_range, default_value = "0..1000")]
    seeds: Range<u64>,
    /// How many ranges.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    ranges: u32,
    /// These alone; may be given several times.
    #[arg(long, value_parser = mutant::parse)]
    mutant: Vec<Mutant>,
    /// How the table is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Where it is written; `-` is the standard output.
    #[arg(long, default_value = "-")]
    out: String,
}

pub fn mutants(arguments: &Arguments) -> Code {
    let Range { start, end } = arguments.seeds;
    let length = end - start;
    let nth = |n: u32| {
        let first = length.checked_mul(u64::from(n)).and_then(|ahead| start.checked_add(ahead));
        first.and_then(|first| Some(first..first.checked_add(length)?)).ok_or("so many seeds there are not")
    };
    let ranges: Vec<Range<u64>> = (0..arguments.ranges).map(nth).collect::<Result<_, _>>()?;
    let all = if arguments.mutant.is_empty() { Mutant::ALL.to_vec() } else { arguments.mutant.clone() };
    let bar = bar(all.len() as u64);
    let mut hunts = Vec::new();
    for mutant in all {
        bar.set_message(mutant::name(mutant));
        hunts.push(Hunt::run(mutant, &ranges));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let text = match arguments.output {
        Output::Table => {
            let head = format!("{:<34} {:>9}   {:<28} {}", "mistake", "median", "seeds until found", "by");
            let lines: Vec<String> = std::iter::once(head).chain(hunts.iter().map(line)).collect();
            format!("{}\n", lines.join("\n"))
        }
        Output::Json => {
            let rows: Vec<Value> = hunts.iter().map(Hunt::json).collect();
            let ranges: Vec<[u64; 2]> = ranges.iter().map(|range| [range.start, range.end]).collect();
            format!("{:#}\n", json!({"build": build(), "ranges": ranges, "mutants": rows}))
        }
        Output::Markdown => markdown(&hunts, &ranges),
    };
    write(&arguments.out, &text)?;
    let missed: Vec<String> =
        hunts.iter().filter(|hunt| hunt.is_missed()).map(|hunt| mutant::name(hunt.mutant)).collect();
    if !missed.is_empty() {
        eprintln!("not found: {}", missed.join(", "));
    }
    Ok(if missed.is_empty() { 0 } else { EXIT_HOLE })
}
