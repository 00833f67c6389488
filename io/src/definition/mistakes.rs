//! The YAML parser's errors in words for the definition's author: what stands there, and what would be right.
//!
//! The parser tells where it stopped. What was meant is seen from the lines around that: where an open quote or bracket
//! began, which line a wrong indentation belongs to. An error without a sentence here keeps the parser's words.

use super::Location;

/// The place and the sentence for what the parser says of `text` at `place`. None where its own words have to do.
pub(super) fn explain(message: &str, place: Location, text: &str) -> Option<(Location, String)> {
    let text = Text { lines: text.lines().collect(), place };
    let here = |sentence: String| Some((place, sentence));
    if let Some(open) = bracket_after(message, "unclosed bracket '") {
        let (what, close) = bracket(open)?;
        return here(format!("the `{open}` here is never closed; put `{close}` where the {what} ends"));
    }
    if let Some(open) = bracket_after(message, "mismatched bracket '") {
        let (what, close) = bracket(open)?;
        return here(format!(
            "the `{open}` here is not closed before what is around it; put `{close}` where the {what} ends"
        ));
    }
    if let Some(found) = message.strip_prefix("unexpected character: `") {
        return here(unexpected_character(found.strip_suffix('\'')?));
    }
    if let Some(tag) = message.strip_prefix("unsupported tag ") {
        return here(format!("the tag {tag} is not supported; put a text that begins with `!` in quotes"));
    }
    let is = |words: &[&str]| words.iter().any(|words| message.contains(words));
    if is(&["unclosed quote"]) {
        let quote = text.at(place)?;
        return here(format!("the text that begins with this `{quote}` does not end; put `{quote}` where it ends"));
    }
    if is(&["invalid trailing content after double-quoted", "invalid trailing content after single-quoted"]) {
        return text.behind_a_quote();
    }
    if is(&["tabs disallowed", "found a tab", "tab cannot be used"]) {
        let sentence = "a tab stands where YAML has spaces alone; replace it with spaces";
        return Some((text.tab(), sentence.to_owned()));
    }
    if is(&["did not find expected '-' indicator"]) {
        return here(text.no_item());
    }
    if is(&["did not find expected key"]) {
        let spaces = spaces(indent(text.line(place.line)?));
        return here(format!(
            "the line is indented by {spaces}, as no line that it can belong to; indent it as the lines that it belongs with"
        ));
    }
    if is(&["mapping values are not allowed", "simple key expected ':'"]) {
        return text.misplaced_colon();
    }
    if is(&["expected ',' or '}'", "expected ',' or ']'", "illegal placement of ':'"]) {
        return here(match text.open_bracket() {
            Some((at, open)) => {
                let (what, close) = bracket(open)?;
                let parts = if open == '{' { "fields" } else { "items" };
                format!(
                    "this cannot stand in the {what} that begins with `{open}` at {at}; close that with `{close}`, or put \
                     `,` between its {parts}"
                )
            }
            None => "this cannot stand here; is a bracket missing before it?".to_owned(),
        });
    }
    if is(&["misplaced bracket"]) {
        let bracket = text.at(place)?;
        return here(format!("this `{bracket}` closes nothing; remove it, or put a text that has one in quotes"));
    }
    if is(&["unexpected EOF", "unexpected eof"]) && text.at(place) == Some(',') {
        return here("a value cannot begin with `,`; remove it, or put the text in quotes".into());
    }
    if is(&["unknown escape character"]) {
        let (at, escape) = text.unknown_escape()?;
        return Some((
            at,
            format!("`{escape}` means nothing in double quotes; write `\\{escape}`, or use single quotes"),
        ));
    }
    if is(&["while scanning a block scalar"]) {
        return here("the text of a block begins in the line below `|` or `>`; put it there".into());
    }
    if is(&["unknown anchor"]) {
        let name = text.word(place)?.trim_start_matches('*');
        return here(format!("there is no anchor `&{name}` before it; put a text that begins with `*` in quotes"));
    }
    if is(&["while scanning an anchor or alias"]) {
        return here("`&` and `*` begin anchors and references; put a text that begins with one in quotes".into());
    }
    if is(&["merge value must be"]) {
        return here("`<<` takes in the fields of an object; write a reference to one, such as `<<: *name`".into());
    }
    None
}

/// Of `'['` behind these words.
fn bracket_after(message: &str, words: &str) -> Option<char> {
    message.strip_prefix(words)?.chars().next()
}

/// What a bracket begins, and the bracket that ends it.
fn bracket(open: char) -> Option<(&'static str, char)> {
    match open {
        '[' => Some(("list", ']')),
        '{' => Some(("object", '}')),
        _ => None,
    }
}

fn unexpected_character(found: &str) -> String {
    let mut chars = found.chars();
    match (chars.next(), chars.next()) {
        (Some('`'), None) => "a text cannot begin with a backtick; put it in quotes".to_owned(),
        (Some(c), None) if !c.is_control() => {
            format!("a text cannot begin with `{c}`; put it in quotes")
        }
        _ => format!(
            "the character {found} cannot stand in YAML; in double quotes write it as an escape, such as `\\u0007`"
        ),
    }
}

fn indent(line: &str) -> usize {
    line.chars().take_while(|c| *c == ' ').count()
}

/// The column, counted from 0, of what a line holds, behind the `- ` of the lists that it begins items of.
fn content(line: &str) -> usize {
    let mut at = indent(line);
    while let Some(rest) = line.get(at..).and_then(|rest| rest.strip_prefix("- ")) {
        at += 2 + indent(rest);
    }
    at
}

fn spaces(count: usize) -> String {
    if count == 1 { "1 space".to_owned() } else { format!("{count} spaces") }
}

/// The key of a `key: …` or `key:` line, as far as it is one.
fn key(content: &str) -> Option<&str> {
    let end = content.find(": ").or_else(|| content.strip_suffix(':').map(str::len))?;
    let key = &content[..end];
    (!key.is_empty() && !key.contains(['"', '\'', '{', '[', '#'])).then_some(key)
}

/// A text of which the parser stopped at a place.
struct Text<'t> {
    lines: Vec<&'t str>,
    place: Location,
}

impl<'t> Text<'t> {
    /// A line by its number.
    fn line(&self, number: usize) -> Option<&'t str> {
        self.lines.get(number.checked_sub(1)?).copied()
    }

    fn at(&self, place: Location) -> Option<char> {
        self.line(place.line)?.chars().nth(place.column.checked_sub(1)?)
    }

    /// The word at a place.
    fn word(&self, place: Location) -> Option<&'t str> {
        let line = self.line(place.line)?;
        let (start, _) = line.char_indices().nth(place.column.checked_sub(1)?)?;
        line[start..].split([' ', ',', ']', '}']).next()
    }

    /// The last line above another that holds something.
    fn line_above(&self, number: usize) -> Option<(usize, &'t str)> {
        let holds = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        (1..number).rev().filter_map(|n| Some((n, self.line(n)?))).find(|(_, line)| holds(line))
    }

    /// Something goes on behind a text in quotes, as it seems: the quote that ended it may have been meant to begin
    /// another.
    fn behind_a_quote(&self) -> Option<(Location, String)> {
        let before = self.before(self.place)?;
        let close = before.trim_end().len().checked_sub(1)?;
        let quote = before[close..].chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let open = opening(&before[..close], quote)?;
        let line = before[..open].matches('\n').count() + 1;
        let start = before[..open].rfind('\n').map_or(0, |at| at + 1);
        let began = Location { line, column: before[start..open].chars().count() + 1 };
        let within = if quote == '"' { "\\\"" } else { "''" };
        Some(if line == self.place.line {
            let sentence = format!(
                "the text that begins with `{quote}` in column {} has ended before this; close it where it was meant to \
                 end, or write `{within}` for a quote within it",
                began.column
            );
            (self.place, sentence)
        } else {
            let sentence = format!(
                "the text that begins with this `{quote}` ends at the next one, in line {}; put `{quote}` where it was \
                 meant to end",
                self.place.line
            );
            (began, sentence)
        })
    }

    /// All of the text before a place, with its line breaks as one character each.
    fn before(&self, place: Location) -> Option<String> {
        let above = self.lines.get(..place.line.checked_sub(1)?)?;
        let last: String = self.line(place.line)?.chars().take(place.column - 1).collect();
        Some(above.iter().map(|line| format!("{line}\n")).collect::<String>() + &last)
    }

    /// The tab in an indentation at which the parser stopped.
    fn tab(&self) -> Location {
        let found = (self.place.line..=self.place.line + 1).find_map(|number| {
            let line = self.line(number)?;
            let space = line.len() - line.trim_start().len();
            line[..space].find('\t').map(|at| Location { line: number, column: at + 1 })
        });
        found.unwrap_or(self.place)
    }

    /// A line below an item of a list that is neither another item nor a part of that one.
    fn no_item(&self) -> String {
        let own = self.line(self.place.line).map_or(0, indent);
        let item = (1..self.place.line).rev().find_map(|number| {
            let line = self.line(number)?;
            (indent(line) <= own && line.trim_start().starts_with("- ")).then_some((number, content(line)))
        });
        match item {
            Some((number, fields)) => format!(
                "the line is neither an item of the list above it nor a part of the item in line {number}; begin it with \
                 `- `, or indent it by {}",
                spaces(fields)
            ),
            None => "the line is no item of the list above it; begin it with `- `".to_owned(),
        }
    }

    /// A `:` where the value of another key goes on, or a line without one.
    fn misplaced_colon(&self) -> Option<(Location, String)> {
        let line = self.line(self.place.line)?;
        let column = content(line);
        let own = line.get(column..)?;
        let before: String = line.chars().take(self.place.column - 1).skip(column).collect();
        if before.contains(": ") {
            let sentence = "a text with `: ` in it stands in quotes; put quotes around the value";
            return Some((self.place, sentence.to_owned()));
        }
        // The line goes on with the text above it, which is no key.
        let (number, above) = self.line_above(self.place.line).filter(|_| key(own).is_some()).unzip();
        let (number, above) = (number.unwrap_or(self.place.line), above.unwrap_or(line));
        let start = content(above);
        let held = above.get(start..)?;
        match key(held) {
            Some(name) if column > start && number != self.place.line => {
                let place = Location { line: self.place.line, column: column + 1 };
                let sentence = format!(
                    "the line is indented deeper than `{name}` in line {number}, which has its value already; {}",
                    if start == 0 { "do not indent it".to_owned() } else { format!("indent it by {}", spaces(start)) }
                );
                Some((place, sentence))
            }
            Some(_) => None,
            None => {
                let place = Location { line: number, column: start + 1 };
                Some((place, "the line has no `: ` behind its first word; write `field: value`".to_owned()))
            }
        }
    }

    /// The bracket that is open at the place, the innermost.
    fn open_bracket(&self) -> Option<(Location, char)> {
        let mut open = Vec::new();
        let mut quote: Option<char> = None;
        let mut escaped = false;
        for (number, line) in self.lines.iter().take(self.place.line).enumerate() {
            let end = if number + 1 == self.place.line { self.place.column - 1 } else { usize::MAX };
            let mut last = ' ';
            for (at, c) in line.chars().take(end).enumerate() {
                match (quote, c) {
                    (Some('"'), _) if escaped => escaped = false,
                    (Some('"'), '\\') => escaped = true,
                    (Some(open), c) if c == open => quote = None,
                    (Some(_), _) => {}
                    // Elsewhere these are letters of a plain text.
                    (None, '"' | '\'') if " [{,:".contains(last) => quote = Some(c),
                    (None, '#') if last == ' ' => break,
                    (None, '[' | '{') if !open.is_empty() || " -".contains(last) => {
                        open.push((Location { line: number + 1, column: at + 1 }, c));
                    }
                    (None, ']' | '}') => drop(open.pop()),
                    _ => {}
                }
                last = c;
            }
        }
        open.pop()
    }

    /// The first escape of a text in double quotes that means nothing.
    fn unknown_escape(&self) -> Option<(Location, String)> {
        for number in self.place.line..=self.lines.len() {
            let line = self.line(number)?;
            let from = if number == self.place.line { self.place.column - 1 } else { 0 };
            let mut chars = line.chars().enumerate().skip(from);
            while let Some((at, c)) = chars.next() {
                if c != '\\' {
                    continue;
                }
                match chars.next() {
                    Some((_, escaped)) if !"0abt\tnvfre \"/\\N_LPxuU".contains(escaped) => {
                        return Some((Location { line: number, column: at + 1 }, format!("\\{escaped}")));
                    }
                    _ => {}
                }
            }
        }
        None
    }
}

/// The byte of the quote that began the text that ends where `before` does.
fn opening(before: &str, quote: char) -> Option<usize> {
    let mut end = before.len();
    loop {
        let at = before[..end].rfind(quote)?;
        let ahead = &before[..at];
        match quote {
            // An odd number of backslashes makes it a part of the text.
            '"' if (ahead.len() - ahead.trim_end_matches('\\').len()) % 2 == 1 => end = at,
            '\'' if ahead.ends_with('\'') => end = at - 1,
            _ => return Some(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, parse};

    fn told(text: &str) -> String {
        parse(text, Format::Yaml).map(|document| document.value).expect_err(text).to_string()
    }

    #[test]
    fn a_missing_closing_quote_is_told_where_its_text_began() {
        for (text, expected) in [
            (
                "name: \"Order\nversion: \"1\"\n",
                "line 1, column 7: the text that begins with this `\"` ends at the next one, in line 2; put `\"` where it \
                 was meant to end",
            ),
            (
                "a: 'x\\'\nb: 'it''s\nc: 'd'\n",
                "line 2, column 4: the text that begins with this `'` ends at the next one, in line 3; put `'` where it \
                 was meant to end",
            ),
            (
                "a: \"b \\\" c\nd: \"e\"",
                "line 1, column 4: the text that begins with this `\"` ends at the next one, in line 2; put `\"` where it \
                 was meant to end",
            ),
            (
                "a: \"${ input.x == \"b\" }\"\n",
                "line 1, column 20: the text that begins with `\"` in column 4 has ended before this; close it where it was \
                 meant to end, or write `\\\"` for a quote within it",
            ),
            (
                "a: {b: \"${ input.x }, c: \"${ input.y }\"}\n",
                "line 1, column 27: the text that begins with `\"` in column 8 has ended before this; close it where it was \
                 meant to end, or write `\\\"` for a quote within it",
            ),
            (
                "a: 'it's'\n",
                "line 1, column 8: the text that begins with `'` in column 4 has ended before this; close it where it was \
                 meant to end, or write `''` for a quote within it",
            ),
            (
                "a: 1\nb: \"c\n",
                "line 2, column 4: the text that begins with this `\"` does not end; put `\"` where it ends",
            ),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }

    #[test]
    fn a_wrong_indentation_is_told_with_the_line_that_was_meant_to_hold_it() {
        let steps = |rest: &str| format!("name: W\nsteps:\n  - id: a\n    task: t\n{rest}");
        for (rest, expected) in [
            (
                "  id: b\n",
                "line 5, column 3: the line is neither an item of the list above it nor a part of the item in line 3; \
                 begin it with `- `, or indent it by 4 spaces",
            ),
            (
                "     input: x\n",
                "line 5, column 6: the line is indented deeper than `task` in line 4, which has its value already; indent \
                 it by 4 spaces",
            ),
            (
                " - id: b\n",
                "line 5, column 2: the line is indented by 1 space, as no line that it can belong to; indent it as the \
                 lines that it belongs with",
            ),
        ] {
            assert_eq!(told(&steps(rest)), expected, "{rest}");
        }
        assert!(told("a: 1\n b: 2\n").ends_with("`a` in line 1, which has its value already; do not indent it"));
        assert!(told("- - a: 1\n     b: 2\n").ends_with("indent it by 4 spaces"));
    }

    #[test]
    fn tabs_are_told_where_they_stand() {
        for (text, line, column) in
            [("a:\n\t- x\n", 2, 1), ("a:\n  - b: c\n  \td: e\n", 3, 3), ("a:\n  b:\n\t  c: 1\n", 3, 1)]
        {
            let expected = format!(
                "line {line}, column {column}: a tab stands where YAML has spaces alone; replace it with spaces"
            );
            assert_eq!(told(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_misplaced_colon_is_told_as_what_was_likely_meant() {
        assert_eq!(
            told("a: b: c"),
            "line 1, column 5: a text with `: ` in it stands in quotes; put quotes around the value"
        );
        for text in ["name\nversion: 1\n", "name \"W\"\nversion: 1\n"] {
            let expected = "line 1, column 1: the line has no `: ` behind its first word; write `field: value`";
            assert_eq!(told(text), expected, "{text}");
        }
    }

    #[test]
    fn brackets_are_told_with_where_they_began() {
        for (text, expected) in [
            ("a:\n  b: [1, 2\n", "line 2, column 6: the `[` here is never closed; put `]` where the list ends"),
            (
                "a: {b: [1, 2}\n",
                "line 1, column 8: the `[` here is not closed before what is around it; put `]` where the list ends",
            ),
            (
                "a: [\"[\", {b: 1\nc: 2}]\n",
                "line 2, column 2: this cannot stand in the object that begins with `{` at line 1, column 10; close that \
                 with `}`, or put `,` between its fields",
            ),
            (
                "a: [1, 2 # [\nb: 3\n",
                "line 2, column 2: this cannot stand in the list that begins with `[` at line 1, column 4; close that with \
                 `]`, or put `,` between its items",
            ),
            (
                "a: 1]\nb: ]\n",
                "line 2, column 4: this `]` closes nothing; remove it, or put a text that has one in quotes",
            ),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }

    #[test]
    fn what_a_text_cannot_begin_with_is_told_to_be_quoted() {
        for (text, expected) in [
            ("a: @x", "line 1, column 4: a text cannot begin with `@`; put it in quotes"),
            ("a: `x`", "line 1, column 4: a text cannot begin with a backtick; put it in quotes"),
            ("a: 1\nb: ,\n", "line 2, column 4: a value cannot begin with `,`; remove it, or put the text in quotes"),
            ("a: *x", "line 1, column 4: there is no anchor `&x` before it; put a text that begins with `*` in quotes"),
            (
                "a: & x",
                "line 1, column 4: `&` and `*` begin anchors and references; put a text that begins with one in quotes",
            ),
            (
                "a: !secret x",
                "line 1, column 12: the tag `!secret` is not supported; put a text that begins with `!` in quotes",
            ),
            (
                "a: \"x\n  \\d\"",
                "line 2, column 3: `\\d` means nothing in double quotes; write `\\\\d`, or use single quotes",
            ),
            ("a: |x\n  b", "line 1, column 4: the text of a block begins in the line below `|` or `>`; put it there"),
            (
                "a: {{ input.x }}",
                "line 1, column 5: a key must be a text, and this one is an object; an expression is \
              written `${ input.x }`, in quotes inside braces",
            ),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
        assert!(told("a: \"\u{1}\"").contains("cannot stand in YAML; in double quotes write it as an escape"));
        let many = format!("a: [{}]", "1,".repeat(250_000));
        assert!(told(&many).contains("the document has more than 250000 values"), "{}", told(&many));
    }
}
