//! Two traces, compared to their first difference: where a run that should have been the same went another way.

use crate::show::words::short;
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead};

/// How many lines before a difference are told.
const CONTEXT: usize = 5;

/// How much of a line is told.
const WIDTH: usize = 160;

/// The first difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The number of the line, from 1 on.
    pub line: u64,
    /// The last lines that are the same.
    pub before: Vec<String>,
    /// The line in each of the two; none where that trace has ended.
    pub lines: [Option<String>; 2],
}

/// Compares two traces, line by line. `None`: they are the same.
pub fn first_difference(left: impl BufRead, right: impl BufRead) -> io::Result<Option<Difference>> {
    let (mut left, mut right) = (left.lines(), right.lines());
    let mut before = VecDeque::new();
    for line in 1.. {
        let lines = [left.next().transpose()?, right.next().transpose()?];
        match lines {
            [None, None] => return Ok(None),
            [Some(same), Some(other)] if same == other => {
                before.push_back(same);
                if before.len() > CONTEXT {
                    before.pop_front();
                }
            }
            lines => return Ok(Some(Difference { line, before: before.into(), lines })),
        }
    }
    unreachable!("a trace ends")
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the first {} lines are the same; line {} is not", self.line - 1, self.line)?;
        for line in &self.before {
            writeln!(f, "    {}", told(line))?;
        }
        for (sign, line) in ["<", ">"].iter().zip(&self.lines) {
            writeln!(f, "  {sign} {}", line.as_deref().map_or_else(|| "(it ends here)".into(), told))?;
        }
        if let [Some(left), Some(right)] = &self.lines
            && let (Ok(left), Ok(right)) = (serde_json::from_str(left), serde_json::from_str(right))
            && let Some((path, left, right)) = where_they_part(&left, &right, String::new())
        {
            write!(f, "at {path}: {} and {}", short(&left, WIDTH), short(&right, WIDTH))?;
        }
        Ok(())
    }
}

/// A line as people read it: when, what, and the beginning of its data.
fn told(line: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(line) else { return short(line, WIDTH) };
    match (value["at_us"].as_u64(), value["what"].as_str()) {
        (Some(us), Some(what)) => {
            format!("{:>10}.{:03} ms  {what}  {}", us / 1_000, us % 1_000, short(&value["data"].to_string(), WIDTH))
        }
        _ => short(line, WIDTH),
    }
}

/// The first place in which two values differ, and what stands there.
fn where_they_part(left: &Value, right: &Value, path: String) -> Option<(String, String, String)> {
    match (left, right) {
        (Value::Object(l), Value::Object(r)) if l.keys().eq(r.keys()) => {
            l.iter().find_map(|(key, left)| where_they_part(left, &r[key], format!("{path}.{key}")))
        }
        (Value::Array(l), Value::Array(r)) if l.len() == r.len() => {
            let pairs = l.iter().zip(r).zip(0..);
            pairs.into_iter().find_map(|((left, right), n)| where_they_part(left, right, format!("{path}[{n}]")))
        }
        (left, right) if left == right => None,
        (left, right) => Some((path.trim_start_matches('.').to_owned(), left.to_string(), right.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at_us: u64, data: &str) -> String {
        format!("{{\"at_us\":{at_us},\"what\":\"input\",\"data\":{data}}}\n")
    }

    #[test]
    fn traces_that_are_the_same_have_no_difference() {
        let trace = line(1, "[1,\"Start\"]") + &line(2, "[1,\"Wake\"]");
        assert_eq!(first_difference(trace.as_bytes(), trace.as_bytes()).unwrap(), None);
    }

    #[test]
    fn the_first_difference_is_told_with_what_came_before_and_the_place_in_the_line() {
        let same: String = (0..8).map(|at| line(at, "[1,\"Wake\"]")).collect();
        let left = same.clone() + &line(9_500, "[1,{\"Log\":{\"term\":3}}]");
        let right = same + &line(9_500, "[1,{\"Log\":{\"term\":4}}]");
        let difference = first_difference(left.as_bytes(), right.as_bytes()).unwrap().expect("they differ");
        assert_eq!((difference.line, difference.before.len()), (9, CONTEXT));
        let text = difference.to_string();
        assert!(text.contains("the first 8 lines are the same"), "{text}");
        assert!(text.contains("9.500 ms  input"), "{text}");
        assert!(text.ends_with("at data[1].Log.term: 3 and 4"), "{text}");
    }

    #[test]
    fn a_trace_that_ends_before_the_other_differs_from_it() {
        let short = line(1, "1");
        let long = short.clone() + &line(2, "2");
        let difference = first_difference(short.as_bytes(), long.as_bytes()).unwrap().expect("they differ");
        assert_eq!(difference.line, 2);
        assert!(difference.to_string().contains("< (it ends here)"), "{difference}");
    }
}
