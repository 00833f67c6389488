//! How results are printed: as a table for people, or as JSON, JSON lines or ids for programs.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use orbit_core::calendar::Moment;
use orbit_sdk::Value;
use serde::Serialize;
use std::io::{self, Write};

/// The option that chooses the form.
#[derive(Clone, Copy, Debug, Args)]
pub struct Output {
    /// The form of the output: a table, JSON, JSON lines (one value a line), or ids alone.
    #[arg(short = 'o', long = "output", value_enum, default_value = "table")]
    pub form: Form,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    Table,
    Json,
    Jsonl,
    Ids,
}

/// A list with a title for each column.
#[derive(Clone, Debug)]
pub struct Table {
    titles: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new(titles: &[&'static str]) -> Table {
        Table { titles: titles.to_vec(), rows: Vec::new() }
    }

    /// One more row, a cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.titles.len());
        self.rows.push(cells);
    }

    /// The text, each column as wide as its widest cell.
    pub fn render(&self) -> String {
        let width_of = |text: &str| text.chars().count();
        let mut widths: Vec<usize> = self.titles.iter().map(|title| width_of(title)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(width_of(cell));
            }
        }
        let mut text = String::new();
        let titles: Vec<String> = self.titles.iter().map(ToString::to_string).collect();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let mut line = String::new();
            for (width, cell) in widths.iter().zip(row) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Prints a list: `whole` for JSON, `items` one by one for JSON lines, `id` of each for ids.
pub fn list<T: Serialize>(
    form: Form,
    whole: &impl Serialize,
    items: &[T],
    id: impl Fn(&T) -> &str,
    table: impl FnOnce() -> Table,
) -> Result<(), Failure> {
    match form {
        Form::Json => print(&pretty(whole)),
        form => many(form, items, id, || table().render()),
    }
}

/// Prints one thing: `people` as lines for people.
pub fn one(form: Form, item: &impl Serialize, id: &str, people: impl FnOnce() -> String) -> Result<(), Failure> {
    match form {
        Form::Table => print(&people()),
        Form::Json => print(&pretty(item)),
        Form::Jsonl => print(&line(item)),
        Form::Ids => print(&format!("{id}\n")),
    }
}

/// Prints a list that people read as lines: `items` as a list for JSON, one by one for JSON lines, `id` of each for ids.
pub fn many<T: Serialize>(
    form: Form,
    items: &[T],
    id: impl Fn(&T) -> &str,
    people: impl FnOnce() -> String,
) -> Result<(), Failure> {
    match form {
        Form::Table => print(&people()),
        Form::Json => print(&pretty(&items)),
        Form::Jsonl => print(&items.iter().map(line).collect::<String>()),
        Form::Ids => print(&items.iter().map(|item| format!("{}\n", id(item))).collect::<String>()),
    }
}

/// Lines of `name: value`, aligned. Values of several lines are indented below their name.
pub fn fields(fields: &[(&str, String)]) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    let mut text = String::new();
    for (name, value) in fields {
        let name = format!("{name}:");
        if value.contains('\n') {
            let indented: String = value.lines().map(|line| format!("\n  {line}")).collect();
            text.push_str(&format!("{name}{indented}\n"));
        } else {
            text.push_str(&format!("{name:<width$} {value}\n"));
        }
    }
    text
}

/// A value as one line of JSON.
pub fn line(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string(value).expect("what is printed has string keys");
    text.push('\n');
    text
}

/// A value as JSON for people.
pub fn pretty(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("what is printed has string keys");
    text.push('\n');
    text
}

/// A JSON value for people: short ones in one line.
pub fn value(value: &Value) -> String {
    let short = value.to_string();
    if short.len() <= 80 { short } else { pretty(value).trim_end().into() }
}

/// Milliseconds since 1970 as a date and time: `2026-11-15 16:33:26.041Z`.
pub fn time(at_ms: i64) -> String {
    let Moment { year, month, day, hour, minute, second, milli } = Moment::of(at_ms);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Tells something beside the output, on stderr.
pub fn note(text: &str) {
    // Nobody reads stderr: there is nobody to tell that to either.
    let _ = writeln!(io::stderr(), "note: {text}");
}

/// Writes to standard output. A reader that has had enough (`| head`) ends the process quietly.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new(format!("standard output cannot be written: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["ID", "STATUS"]);
        table.row(vec!["größer".into(), "x".into()]);
        table.row(vec!["a".into(), String::new()]);
        assert_eq!(table.render(), "ID      STATUS\ngrößer  x\na\n");
    }

    #[test]
    fn a_moment_is_shown_as_its_date_and_time() {
        assert_eq!(time(0), "1970-01-01 00:00:00.000Z");
        assert_eq!(time(951_782_399_999), "2000-02-28 23:59:59.999Z");
        assert_eq!(time(951_782_400_000), "2000-02-29 00:00:00.000Z");
        assert_eq!(time(1_794_760_406_041), "2026-11-15 16:33:26.041Z");
        assert_eq!(time(-1), "1969-12-31 23:59:59.999Z");
    }

    #[test]
    fn fields_are_aligned_and_long_values_stand_below() {
        let text = fields(&[("id", "a".into()), ("status", "b".into()), ("input", "{\n}".into())]);
        assert_eq!(text, "id:     a\nstatus: b\ninput:\n  {\n  }\n");
    }
}
