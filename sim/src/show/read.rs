//! Reads the lines of a trace.

use crate::report::header::Header;
use serde::Deserialize;
use serde_json::Value;

/// One thing that happened, as [`crate::report::Trace`] wrote it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Line {
    /// Microseconds since the world began.
    pub at_us: u64,
    pub what: String,
    pub data: Value,
}

impl Line {
    /// The nth member of what a line says, where it says several things.
    pub fn part(&self, index: usize) -> &Value {
        self.data.get(index).unwrap_or(&Value::Null)
    }
}

/// The lines of a trace's text. What says neither when nor what, such as a header, tells of nothing that happened.
pub fn lines(text: &str) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for (text, number) in text.lines().zip(1..) {
        let value: Value =
            serde_json::from_str(text).map_err(|e| format!("line {number} is no line of a trace: {e}"))?;
        if number == 1 && value.get("format").is_some() {
            Header::parse(text).map_err(|e| e.to_string())?;
        }
        if value.get("what").is_some() {
            let line = serde_json::from_value(value);
            lines.push(line.map_err(|e| format!("line {number} is no line of a trace: {e}"))?);
        }
    }
    Ok(lines)
}
