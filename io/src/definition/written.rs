//! How a text with expressions is written in its document, so that a place in it has a column.

use super::Location;

/// A text of one line, as it is written: with its quotes and escapes, where it has some.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// Where it begins.
    at: Location,
    raw: Box<str>,
}

impl Written {
    /// The text `value` that begins at byte `start` of `text`. None where it holds no expression, or is written over
    /// several lines.
    pub(super) fn new(text: &str, start: usize, at: Location, value: &str) -> Option<Written> {
        if !value.contains("${") {
            return None;
        }
        // No further than the text goes: all of a document may stand in one line.
        let rest = text.get(start..)?;
        let raw = match rest.chars().next()? {
            '"' => &rest[..end_of_double(rest)?],
            '\'' => &rest[..end_of_single(rest)?],
            // A plain text stands as it is.
            _ if rest.starts_with(value) => value,
            _ => return None,
        };
        if raw.contains(['\n', '\r']) {
            return None;
        }
        Some(Written { at, raw: raw.into() })
    }

    /// Where the character is before which `offset` others stand in the text.
    pub(super) fn locate(&self, offset: usize) -> Location {
        let before = match self.raw.chars().next() {
            Some('"') => before_double(&self.raw, offset),
            Some('\'') => before_single(&self.raw, offset),
            _ => offset,
        };
        Location { line: self.at.line, column: self.at.column + before }
    }
}

/// The byte after the closing quote.
fn end_of_double(raw: &str) -> Option<usize> {
    let mut escaped = false;
    let closing = raw.char_indices().skip(1).find(|(_, c)| match c {
        _ if escaped => {
            escaped = false;
            false
        }
        '\\' => {
            escaped = true;
            false
        }
        c => *c == '"',
    });
    closing.map(|(at, _)| at + 1)
}

/// The same; two quotes are one that is meant.
fn end_of_single(raw: &str) -> Option<usize> {
    let bytes = raw.as_bytes();
    let mut at = 1;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == b'\'')?;
        if bytes.get(at + 1) != Some(&b'\'') {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// How many written characters, the opening quote too, stand before the one after `offset` others.
fn before_double(raw: &str, offset: usize) -> usize {
    let written: Vec<char> = raw.chars().collect();
    let length_at = |at: usize| match (written.get(at), written.get(at + 1)) {
        (Some('\\'), Some('x')) => 4,
        // A pair of halves is one character.
        (Some('\\'), Some('u')) if is_high_half(&written, at) => 12,
        (Some('\\'), Some('u')) => 6,
        (Some('\\'), Some('U')) => 10,
        (Some('\\'), _) => 2,
        _ => 1,
    };
    (0..offset).fold(1, |at, _| at + length_at(at))
}

fn is_high_half(written: &[char], at: usize) -> bool {
    let digits: String = written.iter().skip(at + 2).take(4).collect();
    u32::from_str_radix(&digits, 16).is_ok_and(|half| (0xd800..0xdc00).contains(&half))
}

fn before_single(raw: &str, offset: usize) -> usize {
    let written: Vec<char> = raw.chars().collect();
    let length_at = |at: usize| if written.get(at) == Some(&'\'') { 2 } else { 1 };
    (0..offset).fold(1, |at, _| at + length_at(at))
}
