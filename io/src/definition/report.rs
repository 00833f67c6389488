//! What is wrong with a text, for people: the line, a mark under the place, and what would be right.

use super::{LocatedProblem, Location, SyntaxError};
use std::fmt::Write;

/// Characters of a line that are shown.
const SHOWN: usize = 160;

/// Why a text is no definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It is no document.
    #[error("{0}")]
    Syntax(SyntaxError),
    /// It is a document with these problems, at least one.
    #[error("{}", summary(.0))]
    Problems(Vec<LocatedProblem>),
}

fn summary(problems: &[LocatedProblem]) -> String {
    let first = problems.first().map(|p| p.problem.to_string()).unwrap_or_default();
    match problems.len() {
        0 | 1 => first,
        several => format!("{first} (the first of {several} problems)"),
    }
}

impl CheckError {
    /// The errors as a person reads them, each with its line. `name` is what the text is called, such as its file.
    pub fn render(&self, name: &str, text: &str) -> String {
        let lines: Vec<&str> = text.lines().collect();
        let mut report = String::new();
        match self {
            CheckError::Syntax(error) => {
                // What would be right stands at the end.
                let words = error.message.rsplit_once("; ").unwrap_or((&error.message, ""));
                entry(&mut report, "error", name, &lines, words, error.location);
            }
            CheckError::Problems(problems) => {
                for LocatedProblem { problem, location } in problems {
                    entry(&mut report, "error", name, &lines, (&problem.message, &problem.hint), *location);
                }
            }
        }
        let count = match self {
            CheckError::Syntax(_) => 1,
            CheckError::Problems(problems) => problems.len(),
        };
        let noun = if count == 1 { "problem" } else { "problems" };
        report.push_str(&format!("{name}: {count} {noun}\n"));
        report
    }
}

/// Warnings as a person reads them, each with its line.
pub fn render_warnings(warnings: &[LocatedProblem], name: &str, text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut report = String::new();
    for LocatedProblem { problem, location } in warnings {
        entry(&mut report, "warning", name, &lines, (&problem.message, &problem.hint), *location);
    }
    report
}

/// One error or warning, its line and a mark.
fn entry(
    report: &mut String,
    level: &str,
    name: &str,
    lines: &[&str],
    (message, hint): (&str, &str),
    location: Option<Location>,
) {
    let mut write = |line: String| writeln!(report, "{line}").expect("writing to a text does not fail");
    write(format!("{level}: {message}"));
    let line = location.and_then(|l| Some((l, *lines.get(l.line.checked_sub(1)?)?)));
    match (location, line) {
        (_, Some((location, line))) => {
            let number = location.line.to_string();
            let margin = " ".repeat(number.len());
            write(format!("{margin}--> {name}:{}:{}", location.line, location.column));
            write(format!("{margin} |"));
            write(format!("{number} | {}", shown(line)));
            // Tabs stay tabs, so that the mark stands where the place is.
            let before = line.chars().take(location.column - 1).map(|c| if c == '\t' { '\t' } else { ' ' });
            let length = marked(line, location.column);
            if location.column <= SHOWN {
                write(format!("{margin} | {}{}", before.collect::<String>(), "^".repeat(length)));
            }
            if !hint.is_empty() {
                write(format!("{margin} = {hint}"));
            }
        }
        (Some(location), None) => {
            write(format!("  --> {name}:{}:{}", location.line, location.column));
            if !hint.is_empty() {
                write(format!("  = {hint}"));
            }
        }
        (None, None) => {
            write(format!("  --> {name}"));
            if !hint.is_empty() {
                write(format!("  = {hint}"));
            }
        }
    }
    write(String::new());
}

/// A line cut to what is shown, without what would move the cursor.
fn shown(line: &str) -> String {
    let safe = |c: char| if c.is_control() && c != '\t' { '\u{fffd}' } else { c };
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", line[..end].chars().map(safe).collect::<String>()),
        None => line.chars().map(safe).collect(),
    }
}

/// How many characters the mark spans: the word at the column.
fn marked(line: &str, column: usize) -> usize {
    let mut rest = line.chars().skip(column - 1).take(SHOWN);
    let Some(first) = rest.next() else { return 1 };
    let length = if first == '"' || first == '\'' {
        rest.position(|c| c == first).map_or(1, |end| end + 2)
    } else {
        1 + rest.take_while(|c| c.is_alphanumeric() || "_-.".contains(*c)).count()
    };
    length.min(SHOWN)
}
