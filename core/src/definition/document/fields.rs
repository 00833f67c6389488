//! Reading the fields of an object, and the kinds of value that fields have.

use super::{Problems, join, problems_of_template, synonyms};
use crate::definition::duration::meant_duration;
use crate::definition::expression::{LocalName, kind};
use crate::definition::nearest::did_you_mean;
use crate::definition::problem::Spot;
use crate::definition::{Template, format_duration, parse_duration, whole_number};
use serde_json::{Map, Value};
use std::time::Duration;

/// Bytes of the name of a workflow or task.
pub const MAX_NAME_BYTES: usize = 128;
/// Bytes of a version.
pub const MAX_VERSION_BYTES: usize = 64;
/// Bytes of a step's id.
pub const MAX_STEP_ID_BYTES: usize = 64;

/// The fields of one object of the document.
pub(super) struct Fields<'d> {
    object: &'d Map<String, Value>,
    path: String,
    what: &'static str,
}

impl<'d> Fields<'d> {
    /// The fields of `value`, if it is an object.
    pub(super) fn new(value: &'d Value, path: &str, what: &'static str, problems: &mut Problems) -> Option<Self> {
        match value {
            Value::Object(object) => Some(Fields { object, path: path.to_owned(), what }),
            other => {
                problems.add(
                    path,
                    format!("{what} must be an object with fields, not {}", kind(other)),
                    || match other {
                        Value::String(text) if text.contains(':') => {
                            "write `field: value` lines, with a space behind each `:`".into()
                        }
                        _ => "write `field: value` lines".into(),
                    },
                );
                None
            }
        }
    }

    /// Tells of every field that is not one of `known`.
    pub(super) fn known(&self, known: &[&str], later: &[&str], problems: &mut Problems) {
        for field in self.object.keys().filter(|f| !known.contains(&f.as_str())) {
            let path = Spot::key(join(&self.path, field));
            if later.contains(&field.as_str()) {
                problems.add(path, format!("`{field}` is not supported in this version"), || {
                    "remove it, or use a version of Orbit that supports it".into()
                });
            } else {
                let hint = || match synonyms::meant(field, known) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => {
                        did_you_mean(field, known.iter().copied(), || format!("the fields are {}", known.join(", ")))
                    }
                };
                problems.add(path, format!("{} has no field `{field}`", self.what), hint);
            }
        }
    }

    /// A field and its path, if it is there.
    pub(super) fn get(&self, field: &str) -> Option<(String, &'d Value)> {
        Some((join(&self.path, field), self.object.get(field)?))
    }

    /// Every field, with its path.
    pub(super) fn all(&self) -> impl Iterator<Item = (String, &'d String, &'d Value)> {
        self.object.iter().map(|(field, value)| (join(&self.path, field), field, value))
    }

    /// Whether a field is there.
    pub(super) fn has(&self, field: &str) -> bool {
        self.object.contains_key(field)
    }

    /// A field that must be there.
    pub(super) fn required(&self, field: &str, is: &str, problems: &mut Problems) -> Option<(String, &'d Value)> {
        let found = self.get(field);
        if found.is_none() {
            problems
                .add(self.path.clone(), format!("{} needs `{field}`", self.what), || format!("add `{field}`: {is}"));
        }
        found
    }
}

/// The alphabet and length of a kind of name.
pub(super) struct Alphabet {
    what: &'static str,
    first: fn(char) -> bool,
    rest: fn(char) -> bool,
    max: usize,
    rule: &'static str,
}

fn letter(c: char) -> bool {
    c.is_ascii_alphabetic()
}

fn letter_or_digit(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

pub(super) const NAME: Alphabet = Alphabet {
    what: "the name of a workflow",
    first: letter,
    rest: |c| letter_or_digit(c) || "_.-".contains(c),
    max: MAX_NAME_BYTES,
    rule: "begins with a letter and goes on with letters, digits and `_ . -`, at most 128 characters",
};

pub(super) const VERSION: Alphabet = Alphabet {
    what: "a version",
    first: letter_or_digit,
    rest: |c| letter_or_digit(c) || "_.+-".contains(c),
    max: MAX_VERSION_BYTES,
    rule: "begins with a letter or digit and goes on with letters, digits and `_ . + -`, at most 64 characters",
};

pub(super) const STEP_ID: Alphabet = Alphabet {
    what: "the id of a step",
    first: |c| letter(c) || c == '_',
    rest: |c| letter_or_digit(c) || c == '_',
    max: MAX_STEP_ID_BYTES,
    rule: "begins with a letter or `_` and goes on with letters, digits and `_`, at most 64 characters",
};

pub(super) const TASK: Alphabet = Alphabet {
    what: "the name of a task",
    first: letter,
    rest: |c| letter_or_digit(c) || "_.:/-".contains(c),
    max: MAX_NAME_BYTES,
    rule: "begins with a letter and goes on with letters, digits and `_ . : / -`, at most 128 characters",
};

pub(super) const SIGNAL: Alphabet = Alphabet { what: "the name of a signal", max: MAX_STEP_ID_BYTES, ..SIGNAL_LIKE };

pub(super) const UPDATE: Alphabet = Alphabet { what: "the name of an update", ..SIGNAL_LIKE };

pub(super) const QUERY: Alphabet = Alphabet { what: "the name of a query", ..SIGNAL_LIKE };

/// They stand in paths of requests, and in keys of histories.
const SIGNAL_LIKE: Alphabet = Alphabet {
    what: "a name",
    first: letter,
    rest: |c| letter_or_digit(c) || "_.-".contains(c),
    max: MAX_STEP_ID_BYTES,
    rule: "begins with a letter and goes on with letters, digits and `_ . -`, at most 64 characters",
};

impl Alphabet {
    /// The name that is the key of a field, if it is one.
    pub(super) fn key(&self, path: &str, key: &str, problems: &mut Problems) -> Option<String> {
        self.read(path.to_owned(), &Value::from(key), problems)
    }

    /// The name, if it is one.
    pub(super) fn read(&self, path: String, value: &Value, problems: &mut Problems) -> Option<String> {
        let text = text(path.clone(), value, problems)?;
        let mut chars = text.chars();
        let what = self.what;
        let message = match chars.next() {
            None => format!("{what} must not be empty"),
            Some(c) if !(self.first)(c) => format!("{what} cannot begin with {c:?}"),
            Some(_) => match chars.find(|c| !(self.rest)(*c)) {
                Some(c) => format!("{what} cannot hold {c:?}"),
                None if text.len() > self.max => format!("{what} has {} characters", text.len()),
                None => return Some(text),
            },
        };
        problems.add(path, message, || format!("{what} {}", self.rule));
        None
    }
}

/// A text.
pub(super) fn text(path: String, value: &Value, problems: &mut Problems) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        other => {
            problems.add(path, format!("must be a text, not {}", kind(other)), || match other {
                Value::Number(_) | Value::Bool(_) => format!("write it in quotes: \"{other}\""),
                _ => "write one text".into(),
            });
            None
        }
    }
}

/// The names that expressions see in a place, besides those that they see everywhere.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sees([bool; LocalName::ALL.len()]);

impl Sees {
    /// With these as well.
    pub(super) fn and(self, names: &[LocalName]) -> Sees {
        let mut sees = self;
        names.iter().for_each(|name| sees.0[*name as usize] = true);
        sees
    }

    /// Whether this name is seen.
    pub(super) fn has(self, name: LocalName) -> bool {
        self.0[name as usize]
    }
}

/// A value with expressions in it.
pub(super) fn template(path: String, value: &Value, sees: Sees, problems: &mut Problems) -> Option<Template> {
    problems_of_template(&path, value, sees, problems)
}

/// A list, or one expression that gives one.
pub(super) fn list(path: String, value: &Value, sees: Sees, problems: &mut Problems) -> Option<Template> {
    let template = problems_of_template(&path, value, sees, problems)?;
    if template.is_one_expression() || value.is_array() {
        return Some(template);
    }
    problems.add(path, format!("must be a list, or one expression that gives a list, not {}", kind(value)), || {
        "write `${ … }`, such as `${ input.lines }`".into()
    });
    None
}

/// A condition: one expression, or a constant true or false.
pub(super) fn condition(path: String, value: &Value, sees: Sees, problems: &mut Problems) -> Option<Template> {
    let template = problems_of_template(&path, value, sees, problems)?;
    if template.is_one_expression() || value.is_boolean() {
        return Some(template);
    }
    problems.add(path, "a condition is one expression that gives true or false", || match value {
        Value::String(text) if ["yes", "true", "on"].contains(&text.as_str()) => "write `true`, without quotes".into(),
        Value::String(text) if ["no", "false", "off"].contains(&text.as_str()) => {
            "write `false`, without quotes".into()
        }
        Value::String(text) if Template::check(&format!("${{ {text} }}").into()).is_ok() => {
            format!("write `${{ {text} }}`")
        }
        _ => "write `${ … }`, such as `${ input.amount > 100 }`".into(),
    });
    None
}

/// What a sleep waits for: a duration, or expressions that give one.
pub(super) fn pause(path: String, value: &Value, sees: Sees, problems: &mut Problems) -> Option<Template> {
    if !value.is_string() {
        duration(path, value, problems);
        return None;
    }
    let template = problems_of_template(&path, value, sees, problems)?;
    match template.constant() {
        None => Some(template),
        Some(constant) => duration(path, constant, problems).map(|_| template),
    }
}

/// A duration.
pub(super) fn duration(path: String, value: &Value, problems: &mut Problems) -> Option<Duration> {
    let (message, example) = match value {
        Value::String(text) => match parse_duration(text) {
            Some(duration) => return Some(duration),
            None => (format!("{text:?} is no duration"), None),
        },
        Value::Number(number) => (format!("a duration needs its unit; {number} has none"), number.as_u64()),
        other => (format!("must be a duration, not {}", kind(other)), None),
    };
    problems.add(path, message, || match example {
        Some(number) => format!("write `{number}s` or `{number}ms`"),
        None => match value.as_str().and_then(meant_duration) {
            Some(meant) => format!("write `{}`", format_duration(meant)),
            None => "whole numbers with d, h, m, s, ms, such as `250ms`, `10s`, `1h30m`".into(),
        },
    });
    None
}

/// A duration that is not zero.
pub(super) fn limit(path: String, value: &Value, problems: &mut Problems) -> Option<Duration> {
    let duration = duration(path.clone(), value, problems)?;
    if duration.is_zero() {
        problems.add(path, "a time limit must be longer than zero", || "leave it out for no limit".into());
        return None;
    }
    Some(duration)
}

/// A whole number within bounds.
pub(super) fn whole(path: String, value: &Value, min: u32, max: u32, problems: &mut Problems) -> Option<u32> {
    let number = whole_number(value).and_then(|n| u32::try_from(n).ok()).filter(|n| (min..=max).contains(n));
    if number.is_none() {
        let found = match value {
            Value::Number(number) => number.to_string(),
            other => kind(other).to_owned(),
        };
        problems.add(path, format!("must be a whole number from {min} to {max}, not {found}"), || {
            format!("write a number from {min} to {max}")
        });
    }
    number
}
