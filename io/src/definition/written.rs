//! How a text with expressions is written in its document, so that a place in it has a line and a column.
//!
//! However a text is written (plain, in quotes, as a block, over several lines), its characters that are no white space
//! stand in its source in the same order: line breaks, indentation and escapes apart. A place is found by counting them.

use super::Location;

/// A text as it is written: with its quotes and escapes, or with the mark of a block, where it has some.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// Where it begins.
    at: Location,
    raw: Box<str>,
    value: Box<str>,
}

impl Written {
    /// The text `value` that begins at byte `start` of `text`. None where it holds no expression, or is written as
    /// something else.
    pub(super) fn new(text: &str, start: usize, at: Location, value: &str) -> Option<Written> {
        if !value.contains("${") {
            return None;
        }
        // No further than the text goes: all of a document may stand in one line.
        let mut marks = Marks::new(text.get(start..)?)?;
        for wanted in value.chars().filter(|c| !c.is_whitespace()) {
            if marks.next()?.is != wanted {
                return None;
            }
        }
        let raw = &text[start..start + marks.at];
        Some(Written { at, raw: raw.into(), value: value.into() })
    }

    /// Where the character is before which `offset` others stand in the text. Of white space, where what follows it is.
    pub(super) fn locate(&self, offset: usize) -> Location {
        let before = self.value.chars().take(offset).filter(|c| !c.is_whitespace()).count();
        let mark = Marks::new(&self.raw).and_then(|mut marks| marks.nth(before));
        let ahead = &self.raw[..mark.map_or(self.raw.len(), |mark| mark.at)];
        match ahead.rfind('\n') {
            None => Location { line: self.at.line, column: self.at.column + ahead.chars().count() },
            Some(end) => Location {
                line: self.at.line + ahead.matches('\n').count(),
                column: ahead[end + 1..].chars().count() + 1,
            },
        }
    }
}

/// A character of a text that is no white space, and the byte of the source at which it is written.
struct Mark {
    is: char,
    at: usize,
}

/// The characters of a text in its source.
struct Marks<'t> {
    source: &'t str,
    /// The quote around the text, if it stands in one.
    quote: Option<char>,
    at: usize,
}

impl<'t> Marks<'t> {
    fn new(source: &'t str) -> Option<Marks<'t>> {
        let (quote, at) = match source.chars().next()? {
            quote @ ('"' | '\'') => (Some(quote), 1),
            // The mark of a block, what is said of it, and perhaps a comment.
            '|' | '>' => (None, source.find('\n')? + 1),
            _ => (None, 0),
        };
        Some(Marks { source, quote, at })
    }

    fn take(&mut self) -> Option<char> {
        let c = self.source[self.at..].chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// The character that an escape in double quotes stands for. None for a line break that is passed over.
    fn escaped(&mut self) -> Option<char> {
        Some(match self.take()? {
            'x' => return self.hex(2),
            'u' => return self.hex(4),
            'U' => return self.hex(8),
            '0' => '\0',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'e' => '\u{1b}',
            't' | 'n' | 'v' | 'f' | 'r' | 'N' | '_' | 'L' | 'P' => ' ',
            other => other,
        })
    }

    /// A character by its number, which may come in two halves.
    fn hex(&mut self, digits: usize) -> Option<char> {
        let number = |marks: &mut Marks<'_>| {
            let digits = marks.source.get(marks.at..marks.at + digits)?;
            marks.at += digits.len();
            u32::from_str_radix(digits, 16).ok()
        };
        let first = number(self)?;
        if (0xd800..0xdc00).contains(&first) && self.source[self.at..].starts_with("\\u") {
            self.at += 2;
            let second = number(self)?;
            return char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + second.checked_sub(0xdc00)?);
        }
        char::from_u32(first)
    }
}

impl Iterator for Marks<'_> {
    type Item = Mark;

    fn next(&mut self) -> Option<Mark> {
        loop {
            let at = self.at;
            let mut is = self.take()?;
            match (self.quote, is) {
                (Some('"'), '\\') => is = self.escaped()?,
                // Two single quotes are one that is meant.
                (Some('\''), '\'') if self.source[self.at..].starts_with('\'') => self.at += 1,
                (Some(quote), is) if quote == is => return None,
                _ => {}
            }
            if !is.is_whitespace() {
                return Some(Mark { is, at });
            }
        }
    }
}
