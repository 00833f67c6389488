//! JSON by `serde_json`, and a second walk over the text for what that crate lets pass: duplicate keys, whole numbers
//! that it rounds, and places.

use super::{Document, Location, Parts, Spot, SyntaxError, Written, too_deep, too_large};
use orbit_core::definition::MAX_DEPTH;
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) fn parse(text: &str) -> Result<Document, SyntaxError> {
    // The walk bounds the depth that serde_json is then given.
    let mut walk = Walk { text, at: 0, line: 1, column: 1, counted: 0 };
    let places = walk.value(None, 0)?;
    walk.white_space();
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => {
            let location = (error.line() > 0).then(|| Location {
                line: error.line(),
                column: column(text.lines().nth(error.line() - 1).unwrap_or_default(), error.column()),
            });
            let message = error.to_string();
            let end = message.find(" at line ").unwrap_or(message.len());
            return Err(SyntaxError { location, message: message[..end].to_owned() });
        }
    };
    Ok(Document { value, places })
}

/// A column in characters from one in bytes, both counted from 1.
fn column(line: &str, bytes: usize) -> usize {
    line.char_indices().take_while(|(at, _)| *at + 1 < bytes).count() + 1
}

/// A walk over text that is JSON, or is not: then it stops without a word, and the parser says why.
struct Walk<'t> {
    text: &'t str,
    at: usize,
    line: usize,
    /// The column of the byte `counted`, which is in this line and not past `at`: counted on from there, a text of one
    /// long line takes no longer than one of many.
    column: usize,
    counted: usize,
}

impl<'t> Walk<'t> {
    fn here(&mut self) -> Location {
        self.column += self.text[self.counted..self.at].chars().count();
        self.counted = self.at;
        Location { line: self.line, column: self.column }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn white_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
            if self.text.as_bytes()[self.at - 1] == b'\n' {
                self.line += 1;
                self.column = 1;
                self.counted = self.at;
            }
        }
    }

    fn take(&mut self, wanted: u8) -> bool {
        self.white_space();
        let there = self.peek() == Some(wanted);
        self.at += usize::from(there);
        there
    }

    /// A text with its quotes; none where there is none.
    fn quoted(&mut self) -> Option<&'t str> {
        self.white_space();
        let start = self.at;
        if self.peek() != Some(b'"') {
            return None;
        }
        let mut escaped = false;
        for (offset, byte) in self.text.as_bytes()[start + 1..].iter().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    self.at = start + offset + 2;
                    return Some(&self.text[start..self.at]);
                }
                _ => {}
            }
        }
        None
    }

    fn value(&mut self, key: Option<Location>, depth: usize) -> Result<Spot, SyntaxError> {
        self.white_space();
        let here = self.here();
        let at = key.or(Some(here));
        if depth == MAX_DEPTH && matches!(self.peek(), Some(b'{' | b'[')) {
            return Err(too_deep(Some(here)));
        }
        let mut text = None;
        let value = (!matches!(self.peek(), Some(b'{' | b'[' | b'n'))).then_some(here);
        let parts = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => {
                let start = self.at;
                // That it has an expression is seen as it is written: nobody writes `${` with escapes.
                let quoted = self.quoted().unwrap_or_default();
                if quoted.contains("${")
                    && let Ok(value) = serde_json::from_str::<String>(quoted)
                {
                    text = Written::new(self.text, start, here, &value).map(Box::new);
                }
                Parts::None
            }
            Some(b'-' | b'0'..=b'9') => {
                self.number(here)?;
                Parts::None
            }
            _ => {
                let rest = &self.text[self.at..];
                self.at += rest.bytes().take_while(u8::is_ascii_alphabetic).count();
                Parts::None
            }
        };
        Ok(Spot { at, value, parts, text })
    }

    fn number(&mut self, here: Location) -> Result<(), SyntaxError> {
        let rest = &self.text[self.at..];
        let length = rest.bytes().take_while(|b| b.is_ascii_digit() || b"+-.eE".contains(b)).count();
        let written = &rest[..length];
        self.at += length;
        let whole = written.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        if whole && written.parse::<i64>().is_err() && written.parse::<u64>().is_err() {
            return Err(too_large(Some(here), written));
        }
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<Parts, SyntaxError> {
        self.take(b'[');
        let mut items = Vec::new();
        if self.take(b']') {
            return Ok(Parts::Items(items));
        }
        loop {
            items.push(self.value(None, depth + 1)?);
            if !self.take(b',') {
                self.take(b']');
                return Ok(Parts::Items(items));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Parts, SyntaxError> {
        self.take(b'{');
        let mut fields = BTreeMap::new();
        if self.take(b'}') {
            return Ok(Parts::Fields(fields));
        }
        loop {
            self.white_space();
            let here = self.here();
            let Some(quoted) = self.quoted() else { return Ok(Parts::Fields(fields)) };
            let Ok(name) = serde_json::from_str::<String>(quoted) else { return Ok(Parts::Fields(fields)) };
            if !self.take(b':') {
                return Ok(Parts::Fields(fields));
            }
            let spot = self.value(Some(here), depth + 1)?;
            if fields.insert(name.clone(), spot).is_some() {
                let message = format!("the key `{name}` is there twice in one object; remove one");
                return Err(SyntaxError { location: Some(here), message });
            }
            if !self.take(b',') {
                self.take(b'}');
                return Ok(Parts::Fields(fields));
            }
        }
    }
}
