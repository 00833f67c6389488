//! A look at an expression before the engine sees it: its size, its names, and the paths that it reads.
//!
//! The engine's parser recurses once for each operator of a chain, so a long enough source would overflow the stack
//! and end the process. The bounds here keep it far from that. The scan also finds the names that an expression uses,
//! so that a misspelt one is an error when the workflow is deployed, not when it runs.

use super::Refusal;
use super::vocabulary::{
    self, DRAWN, DRAWN_WHERE, EXECUTION_FIELDS, FAILURE_FIELDS, FILTERS, FUNCTIONS, NAMES, TESTS, called_here, has,
    words,
};
use crate::definition::nearest::did_you_mean;
use crate::id::StepId;
use std::ops::Range;

/// Bytes of one expression.
pub const MAX_SOURCE_BYTES: usize = 2048;
/// Words, numbers, texts and signs of one expression.
pub const MAX_TOKENS: usize = 400;
/// Brackets within brackets.
pub const MAX_NESTING: usize = 32;

/// What an expression reads: a name and the fields behind it, as far as they are written out.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::definition) struct Path {
    pub root: Root,
    pub accesses: Vec<Access>,
    /// The byte at which each access stands.
    pub places: Vec<usize>,
    /// The byte at which it is told apart from others: of a step's output the step's id.
    pub at: usize,
}

/// Where a path begins.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::definition) enum Root {
    Input,
    /// `steps.<id>.output`
    Output(StepId),
    Execution,
    /// What is there in some places alone.
    Local(LocalName),
}

/// A name that is there in some places alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocalName {
    /// The item of a `for` step's list.
    Item,
    /// Its position.
    Index,
    /// What a signal or update brought.
    Event,
    /// Why the execution ends otherwise than well.
    Failure,
    /// What the step gave that is compensated.
    Output,
}

impl LocalName {
    /// All of them.
    pub const ALL: [LocalName; 5] =
        [LocalName::Item, LocalName::Index, LocalName::Event, LocalName::Failure, LocalName::Output];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            LocalName::Item => "item",
            LocalName::Index => "index",
            LocalName::Event => "event",
            LocalName::Failure => "failure",
            LocalName::Output => "output",
        }
    }

    /// Where it is there.
    pub fn place(self) -> &'static str {
        match self {
            LocalName::Item | LocalName::Index => "in `do` and `compensate` of a `for` step",
            LocalName::Event => "in handlers of events and in updates",
            LocalName::Failure => "in the handlers `failure`, `cancel` and `timeout`",
            LocalName::Output => "in `compensate`",
        }
    }
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::definition) enum Access {
    Key(String),
    Index(i64),
}

/// What the scan found.
#[derive(Debug)]
pub(super) struct Scan {
    pub paths: Vec<Path>,
    /// The expression is its one path and nothing else.
    pub only_path: bool,
    /// What the expression gives, where it is one text or number and nothing else.
    pub literal: Option<Literal>,
    /// It may ask whether something is there before it reads it, or say what holds where it is not.
    pub careful: bool,
    /// The source with every spelling of null as the one that the engine is given.
    pub source: String,
}

/// A text or number, written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::definition) enum Literal {
    Text,
    Number,
}

/// Words by which an expression minds what is not there.
const CAREFUL: [&str; 5] = ["default", "defined", "undefined", "if", "in"];

#[derive(Clone, Debug, PartialEq)]
enum Token<'s> {
    Word(&'s str),
    /// The text, if it stands there as it is (without escapes).
    Text(Option<&'s str>),
    /// The number, if it is whole and not too large.
    Number(Option<i64>),
    /// `==`, `!=`, `<=`, `>=`, `**`, `//` or one character.
    Sign(&'s str),
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn take_while(&mut self, mut wanted: impl FnMut(u8) -> bool) -> &'s str {
        let length = self.rest().bytes().take_while(|b| wanted(*b)).count();
        let taken = &self.rest()[..length];
        self.at += length;
        taken
    }

    /// The next token and where it stands; none at the end.
    fn next(&mut self) -> Result<Option<(Token<'s>, Range<usize>)>, Refusal> {
        self.take_while(|b| b.is_ascii_whitespace());
        let start = self.at;
        let Some(first) = self.rest().chars().next() else { return Ok(None) };
        let token = match first {
            'a'..='z' | 'A'..='Z' | '_' => Token::Word(self.take_while(|b| b.is_ascii_alphanumeric() || b == b'_')),
            '0'..='9' => self.number(),
            '"' | '\'' => self.text(first)?,
            _ => {
                let rest = self.rest();
                let two = ["==", "!=", "<=", ">=", "**", "//"].into_iter().any(|sign| rest.starts_with(sign));
                let length = if two { 2 } else { first.len_utf8() };
                self.at += length;
                Token::Sign(&rest[..length])
            }
        };
        Ok(Some((token, start..self.at)))
    }

    fn number(&mut self) -> Token<'s> {
        let start = self.at;
        self.take_while(|b| b.is_ascii_alphanumeric() || b == b'_');
        // A fraction only where a digit follows: `x.0.name` and `range(1).x` are no fractions.
        if self.rest().starts_with('.') && self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) {
            self.at += 1;
            self.take_while(|b| b.is_ascii_alphanumeric() || b == b'_');
        }
        // `1e-5`
        if self.source[start..self.at].ends_with(['e', 'E'])
            && self.rest().starts_with(['+', '-'])
            && !self.source[start..].starts_with("0x")
        {
            self.at += 1;
            self.take_while(|b| b.is_ascii_digit());
        }
        Token::Number(self.source[start..self.at].parse().ok())
    }

    fn text(&mut self, quote: char) -> Result<Token<'s>, Refusal> {
        let start = self.at + 1;
        let mut escaped = false;
        let mut plain = true;
        for (offset, c) in self.source[start..].char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => (escaped, plain) = (true, false),
                c if c == quote => {
                    self.at = start + offset + 1;
                    return Ok(Token::Text(plain.then(|| &self.source[start..start + offset])));
                }
                _ => {}
            }
        }
        Err(Refusal::new(self.at, format!("a text that begins with {quote} does not end")))
    }
}

/// Where the expression that begins at the start of `text` ends: the position of its `}`, if there is one.
pub(super) fn end_of_expression(text: &str) -> Result<Option<usize>, Refusal> {
    let mut lexer = Lexer { source: text, at: 0 };
    let mut braces = 0usize;
    while let Some((token, range)) = lexer.next()? {
        match token {
            Token::Sign("{") => braces += 1,
            Token::Sign("}") if braces == 0 => return Ok(Some(range.start)),
            Token::Sign("}") => braces -= 1,
            _ => {}
        }
    }
    Ok(None)
}

/// Where the tokens of a source stand that was scanned.
pub(super) fn tokens(source: &str) -> Vec<Range<usize>> {
    let mut lexer = Lexer { source, at: 0 };
    std::iter::from_fn(|| lexer.next().ok().flatten().map(|(_, range)| range)).collect()
}

/// Checks an expression's size and names, and finds what it reads.
pub(super) fn scan(source: &str) -> Result<Scan, Refusal> {
    if source.len() > MAX_SOURCE_BYTES {
        let message = format!(
            "is {} bytes long; at most {MAX_SOURCE_BYTES} are allowed: split it into `compute` steps",
            source.len()
        );
        return Err(Refusal::new(0, message));
    }
    let mut lexer = Lexer { source, at: 0 };
    let mut tokens = Vec::new();
    let mut nesting = 0usize;
    while let Some((token, range)) = lexer.next()? {
        match token {
            Token::Sign("(" | "[" | "{") => nesting += 1,
            Token::Sign(")" | "]" | "}") => nesting = nesting.saturating_sub(1),
            _ => {}
        }
        if nesting > MAX_NESTING {
            let message =
                format!("has more than {MAX_NESTING} brackets within each other: split it into `compute` steps");
            return Err(Refusal::new(range.start, message));
        }
        tokens.push((token, range));
        if tokens.len() > MAX_TOKENS {
            let message = format!("has more than {MAX_TOKENS} words, numbers and signs: split it into `compute` steps");
            return Err(Refusal::new(lexer.at, message));
        }
    }
    if tokens.is_empty() {
        return Err(Refusal::new(0, "is empty; a `${` that is meant as text is written `$${`"));
    }
    Names { source, tokens: &tokens, at: 0, paths: Vec::new(), nulls: Vec::new() }.read()
}

/// The walk over the tokens that finds names.
struct Names<'t, 's> {
    source: &'s str,
    tokens: &'t [(Token<'s>, Range<usize>)],
    at: usize,
    paths: Vec<Path>,
    nulls: Vec<Range<usize>>,
}

impl<'s> Names<'_, 's> {
    fn token(&self, at: usize) -> Option<&Token<'s>> {
        self.tokens.get(at).map(|(token, _)| token)
    }

    fn is_sign(&self, at: usize, sign: &str) -> bool {
        matches!(self.token(at), Some(Token::Sign(s)) if *s == sign)
    }

    /// A refusal for what stands at a token.
    fn refuse<T>(&self, token: usize, message: impl Into<String>) -> Result<T, Refusal> {
        let at = self.tokens.get(token).map_or(self.source.len(), |(_, range)| range.start);
        Err(Refusal::new(at, message))
    }

    fn read(mut self) -> Result<Scan, Refusal> {
        let mut only_path = false;
        while self.at < self.tokens.len() {
            let start = self.at;
            self.at += 1;
            if let Some(right) = self.written_elsewhere(start) {
                return self.refuse(start, right);
            }
            match self.token(start) {
                Some(Token::Sign(".")) => self.attribute(self.at)?,
                Some(Token::Sign("|")) => self.word_of("filter", FILTERS)?,
                Some(Token::Word("is")) => {
                    if matches!(self.token(self.at), Some(Token::Word("not"))) {
                        self.at += 1;
                    }
                    self.word_of("test", TESTS)?;
                }
                Some(Token::Word(word)) => {
                    let before = self.paths.len();
                    let word = *word;
                    self.name(word, start)?;
                    only_path = start == 0 && self.at == self.tokens.len() && self.paths.len() == before + 1;
                }
                _ => {}
            }
        }
        let literal = match self.tokens {
            [(Token::Text(_), _)] => Some(Literal::Text),
            [(Token::Number(_), _)] => Some(Literal::Number),
            _ => None,
        };
        let careful = self.tokens.iter().any(|(token, _)| matches!(token, Token::Word(word) if CAREFUL.contains(word)));
        let mut rewritten = self.source.to_owned();
        for range in self.nulls {
            // All spellings have the same length, so the other positions stay.
            rewritten.replace_range(range, "null");
        }
        Ok(Scan { paths: self.paths, only_path, literal, careful, source: rewritten })
    }

    /// What would be right where a sign of other languages stands.
    fn written_elsewhere(&self, at: usize) -> Option<String> {
        let Some(Token::Sign(sign)) = self.token(at) else { return None };
        let next = |sign: &str| self.is_sign(at + 1, sign) && self.tokens[at].1.end == self.tokens[at + 1].1.start;
        Some(match *sign {
            "&" if next("&") => "`&&` is no operator; write `and`".into(),
            "&" => "`&` is no operator; write `and`".into(),
            "|" if next("|") => "`||` is no operator; write `or`".into(),
            "!" => "`!` is no operator; write `not`".into(),
            "==" | "!=" if next("=") => format!("`{sign}=` is no comparison; write `{sign}`"),
            "=" if !self.names_an_argument(at) => "`=` compares nothing; write `==`".into(),
            "?" if next("?") => "`??` is no operator; write `a | default(b)`".into(),
            "?" if next(".") || next("[") => {
                "`?.` is no operator; write `.`: a field of null is null, and `| default(b)` stands in for a missing one".into()
            }
            "?" => "`? :` is no operator; write `a if condition else b`".into(),
            _ => return None,
        })
    }

    /// Whether the `=` there stands behind the name of an argument: `sort(reverse=true)`.
    fn names_an_argument(&self, at: usize) -> bool {
        let before = |count: usize| at.checked_sub(count).and_then(|at| self.token(at));
        matches!((before(1), before(2)), (Some(Token::Word(_)), Some(Token::Sign("(" | ","))))
    }

    /// What follows a dot.
    fn attribute(&mut self, at: usize) -> Result<(), Refusal> {
        if let Some(Token::Word(word)) = self.token(at) {
            if self.is_sign(at + 1, "(") {
                let hint = match called_here(word) {
                    Some(filter) => format!("write `value | {filter}`"),
                    None => did_you_mean(word, words(FILTERS), || "filters do what methods do elsewhere".into()),
                };
                let message =
                    format!("values have no methods such as `.{word}()`; filters are written `value | name`: {hint}");
                return self.refuse(at, message);
            }
            self.at = at + 1;
        }
        Ok(())
    }

    /// The name of a filter or test, which must be one of the table.
    fn word_of(&mut self, what: &str, table: &'static [vocabulary::Word]) -> Result<(), Refusal> {
        if let Some(Token::Word(word)) = self.token(self.at) {
            if !has(table, word) {
                let hint = match called_here(word).filter(|meant| has(table, meant)) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => did_you_mean(word, words(table), || {
                        format!("the {what}s are {}", words(table).collect::<Vec<_>>().join(", "))
                    }),
                };
                return self.refuse(self.at, format!("there is no {what} `{word}`; {hint}"));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// A word where a value stands.
    fn name(&mut self, word: &'s str, start: usize) -> Result<(), Refusal> {
        // The name of an argument: `sort(reverse=true)`.
        if self.is_sign(self.at, "=") {
            return Ok(());
        }
        match word {
            "and" | "or" | "not" | "in" | "if" | "else" | "true" | "false" | "True" | "False" => return Ok(()),
            "none" | "None" | "null" => {
                self.nulls.push(self.tokens[start].1.clone());
                return Ok(());
            }
            _ => {}
        }
        if self.is_sign(self.at, "(") {
            if has(FUNCTIONS, word) {
                return Ok(());
            }
            if has(FILTERS, word) {
                return self.refuse(start, format!("`{word}` is a filter, not a function: write `value | {word}`"));
            }
            let hint = match called_here(word) {
                Some(filter) => format!("write `value | {filter}`"),
                None if DRAWN.contains(&word) => DRAWN_WHERE.into(),
                None => did_you_mean(word, words(FUNCTIONS), || {
                    "`range` is the only one: filters, as in `value | round`, do what functions do elsewhere".into()
                }),
            };
            return self.refuse(start, format!("there is no function `{word}`; {hint}"));
        }
        let (accesses, mut places) = self.accesses()?;
        // Behind the name and a `.` or `[`.
        let field_at = start + 2;
        let mut at = start;
        let (root, accesses) = match word {
            "input" => (Root::Input, accesses),
            "execution" => {
                if let Some(Access::Key(field)) = accesses.first()
                    && !EXECUTION_FIELDS.contains(&field.as_str())
                {
                    let hint = did_you_mean(field, EXECUTION_FIELDS.iter().copied(), || {
                        format!("it has {}", EXECUTION_FIELDS.join(", "))
                    });
                    return self.refuse(field_at, format!("`execution` has no field `{field}`; {hint}"));
                }
                (Root::Execution, accesses)
            }
            "steps" => {
                let mut accesses = accesses.into_iter();
                let Some(Access::Key(id)) = accesses.next() else {
                    return self.refuse(start, "`steps` stands only before the id of a step: `steps.<id>.output`");
                };
                match accesses.next() {
                    Some(Access::Key(output)) if output == "output" => {}
                    None => {
                        let message = format!("of a step only the output can be read: write `steps.{id}.output`");
                        return self.refuse(field_at, message);
                    }
                    Some(_) => {
                        let message = format!(
                            "of a step only the output can be read: write `steps.{id}.output` and the field after it"
                        );
                        return self.refuse(field_at, message);
                    }
                }
                at = field_at;
                places.drain(..2);
                (Root::Output(StepId::new(id)), accesses.collect())
            }
            unknown => {
                if let Some(local) = LocalName::ALL.into_iter().find(|local| local.as_str() == unknown) {
                    if let (LocalName::Failure, Some(Access::Key(field))) = (local, accesses.first())
                        && !FAILURE_FIELDS.contains(&field.as_str())
                    {
                        let hint = did_you_mean(field, FAILURE_FIELDS.iter().copied(), || {
                            format!("it has {}", FAILURE_FIELDS.join(", "))
                        });
                        return self.refuse(field_at, format!("`failure` has no field `{field}`; {hint}"));
                    }
                    let at = self.tokens[at].1.start;
                    self.paths.push(Path { root: Root::Local(local), accesses, places, at });
                    return Ok(());
                }
                let hint = did_you_mean(unknown, words(NAMES), || {
                    "expressions see `input`, `steps` and `execution`, and texts stand in quotes".into()
                });
                return self.refuse(start, format!("nothing is called `{unknown}`; {hint}"));
            }
        };
        let at = self.tokens[at].1.start;
        self.paths.push(Path { root, accesses, places, at });
        Ok(())
    }

    /// The fields and indexes that follow a name, as far as they are written out, and where each stands.
    fn accesses(&mut self) -> Result<(Vec<Access>, Vec<usize>), Refusal> {
        let (mut accesses, mut places) = (Vec::new(), Vec::new());
        loop {
            let before = accesses.len();
            let place = self.tokens.get(self.at + 1).map_or(self.source.len(), |(_, range)| range.start);
            self.access(&mut accesses)?;
            if accesses.len() == before {
                return Ok((accesses, places));
            }
            places.push(place);
        }
    }

    /// The next of them, if there is one.
    fn access(&mut self, accesses: &mut Vec<Access>) -> Result<(), Refusal> {
        if self.is_sign(self.at, ".") {
            match self.token(self.at + 1) {
                Some(Token::Word(word)) => {
                    accesses.push(Access::Key((*word).to_owned()));
                    self.attribute(self.at + 1)?;
                }
                Some(Token::Number(Some(index))) => {
                    accesses.push(Access::Index(*index));
                    self.at += 2;
                }
                _ => {}
            }
        } else if self.is_sign(self.at, "[") {
            match (self.token(self.at + 1), self.token(self.at + 2), self.token(self.at + 3)) {
                (Some(Token::Text(Some(key))), Some(Token::Sign("]")), _) => {
                    accesses.push(Access::Key((*key).to_owned()));
                    self.at += 3;
                }
                (Some(Token::Number(Some(index))), Some(Token::Sign("]")), _) => {
                    accesses.push(Access::Index(*index));
                    self.at += 3;
                }
                (Some(Token::Sign("-")), Some(Token::Number(Some(index))), Some(Token::Sign("]"))) => {
                    accesses.push(Access::Index(-*index));
                    self.at += 4;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
