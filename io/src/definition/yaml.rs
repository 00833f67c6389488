//! YAML 1.2 by `serde-saphyr`, with the place of every value.
//!
//! Only what JSON has comes out. Spellings that YAML versions read differently (`yes`, `0755`, `1_000`) are texts.

use super::{Document, Location, Parts, Spot, SyntaxError, Written, mistakes, too_deep, too_large};
use orbit_core::definition::MAX_DEPTH;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{DuplicateKeyPolicy, Error, NonFiniteFloatPolicy, Spanned};
use std::collections::BTreeMap;
use std::fmt;

/// The stack for one parse. The deserializer recurses with every list and object, and in an unoptimised build one
/// level takes some 20 kB: too much for the stack of any thread that may call this. The depth is bounded, so this is
/// enough.
const STACK_BYTES: usize = 16 << 20;

/// Values of one document, each reference counted as what it stands for.
const MAX_NODES: usize = 250_000;

pub(super) fn parse(text: &str) -> Result<Document, SyntaxError> {
    std::thread::scope(|scope| {
        let parser = std::thread::Builder::new().name("yaml".into()).stack_size(STACK_BYTES);
        match parser.spawn_scoped(scope, || parse_here(text)) {
            Ok(parser) => parser.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => {
                let message = format!("the parser cannot start: {error}; try again");
                Err(SyntaxError { location: None, message })
            }
        }
    })
}

fn parse_here(text: &str) -> Result<Document, SyntaxError> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            // One more than is allowed, so that the error below names the limit rather than the parser's.
            max_depth: MAX_DEPTH + 1,
            flow_nesting_limit: MAX_DEPTH + 1,
            max_documents: 1,
            max_nodes: MAX_NODES,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    let node: Spanned<Node> = serde_saphyr::from_str_with_options(text, options).map_err(|e| explain(&e, text))?;
    let (value, places) = Reader { text }.read(node, None, 0)?;
    Ok(Document { value, places })
}

/// A YAML value before its numbers and keys are checked.
enum Node {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<Node>>),
    Object(Vec<(Spanned<Node>, Spanned<Node>)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }

            fn visit_none<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
                Node::deserialize(deserializer)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Number(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
                Ok(Node::Number(value.into()))
            }

            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Node, E> {
                Number::from_f64(value).map(Node::Number).ok_or_else(|| E::custom("no finite number"))
            }

            fn visit_str<E>(self, value: &str) -> Result<Node, E> {
                Ok(Node::Text(value.to_owned()))
            }

            fn visit_string<E>(self, value: String) -> Result<Node, E> {
                Ok(Node::Text(value))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Node::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut fields = Vec::new();
                while let Some(key) = map.next_key()? {
                    fields.push((key, map.next_value()?));
                }
                Ok(Node::Object(fields))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

fn location(spanned: serde_saphyr::Location) -> Option<Location> {
    let line = usize::try_from(spanned.line()).ok().filter(|line| *line > 0)?;
    Some(Location { line, column: usize::try_from(spanned.column()).ok()? })
}

struct Reader<'t> {
    text: &'t str,
}

impl Reader<'_> {
    /// The value and the places in it. `key` is where its key is.
    fn read(&self, node: Spanned<Node>, key: Option<Location>, depth: usize) -> Result<(Value, Spot), SyntaxError> {
        let here = location(node.referenced);
        let at = key.or(here);
        if depth == MAX_DEPTH && matches!(node.value, Node::List(_) | Node::Object(_)) {
            return Err(too_deep(here));
        }
        let mut written = None;
        let at_value = if matches!(node.value, Node::Bool(_) | Node::Number(_) | Node::Text(_)) { here } else { None };
        let (value, parts) = match node.value {
            Node::Null => (Value::Null, Parts::None),
            Node::Bool(value) => (Value::Bool(value), Parts::None),
            Node::Text(text) => {
                written = self.written(node.defined, &text);
                (Value::String(text), Parts::None)
            }
            Node::Number(number) => {
                if let Some(written) = self.rounded(&number, node.defined) {
                    return Err(too_large(here, written));
                }
                (Value::Number(number), Parts::None)
            }
            Node::List(items) => {
                let (mut values, mut spots) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
                for item in items {
                    let (value, spot) = self.read(item, None, depth + 1)?;
                    values.push(value);
                    spots.push(spot);
                }
                (Value::Array(values), Parts::Items(spots))
            }
            Node::Object(fields) => {
                let (mut values, mut spots) = (Map::new(), BTreeMap::new());
                for (key, field) in fields {
                    let key_at = location(key.referenced);
                    let name = key_text(key.value, key_at)?;
                    let (value, spot) = self.read(field, key_at, depth + 1)?;
                    values.insert(name.clone(), value);
                    spots.insert(name, spot);
                }
                (Value::Object(values), Parts::Fields(spots))
            }
        };
        Ok((value, Spot { at, value: at_value, parts, text: written }))
    }

    /// A text with expressions, as it is written where it is defined.
    fn written(&self, at: serde_saphyr::Location, value: &str) -> Option<Box<Written>> {
        let start = usize::try_from(at.span().byte_offset()?).ok()?;
        Written::new(self.text, start, location(at)?, value).map(Box::new)
    }

    /// The number as written, if it is whole and was read as one with a fraction: it does not fit, and was rounded.
    fn rounded(&self, number: &Number, at: serde_saphyr::Location) -> Option<&str> {
        if !number.is_f64() {
            return None;
        }
        let span = at.span();
        let start = usize::try_from(span.byte_offset()?).ok()?;
        let end = start + usize::try_from(span.byte_len()?).ok()?;
        let written = self.text.get(start..end)?.trim();
        let digits = written.strip_prefix(['+', '-']).unwrap_or(written);
        let whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let radix = digits.starts_with("0x") || digits.starts_with("0o") || digits.starts_with("0b");
        (whole || radix).then_some(written)
    }
}

/// A key, which must be a text.
fn key_text(key: Node, at: Option<Location>) -> Result<String, SyntaxError> {
    let found = match &key {
        Node::Text(text) => return Ok(text.clone()),
        Node::Null => "null".to_owned(),
        Node::Bool(value) => value.to_string(),
        Node::Number(number) => number.to_string(),
        Node::List(_) => "a list".to_owned(),
        Node::Object(_) => "an object".to_owned(),
    };
    let message = if matches!(key, Node::Object(_)) {
        "a key must be a text, and this one is an object; an expression is written `${ input.x }`, in quotes inside braces"
            .to_owned()
    } else {
        format!("a key must be a text, and this one is {found}; write it in quotes if a text is meant")
    };
    Err(SyntaxError { location: at, message })
}

/// The parser's error in our words where it has none that help.
fn explain(error: &Error, text: &str) -> SyntaxError {
    let plain = error.without_snippet();
    let place = plain.location().and_then(location);
    let message = match plain {
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => return too_deep(place),
        Error::DuplicateMappingKey { key, .. } => match key {
            Some(key) => format!("the key `{key}` is there twice in one object; remove one"),
            None => "a key is there twice in one object; remove one".to_owned(),
        },
        Error::MultipleDocuments { .. } | Error::Budget { breach: BudgetBreach::Documents { .. }, .. } => {
            "more than one document in the text; keep one, without `---` after it".into()
        }
        Error::NonFiniteFloat { .. } => "JSON has no infinity and no NaN; write a number, or a text in quotes".into(),
        other if other.to_string().contains("recursion limit") => return too_deep(place),
        Error::Budget { breach: BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. }, .. } => too_many(),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "the document is too large, what `*` stands for counted each time; split it, or write less of it".into()
        }
        other => {
            let message = without_place(&other.to_string());
            let Some(place) = place else { return SyntaxError { location: None, message } };
            let line = text.lines().nth(place.line.saturating_sub(1)).unwrap_or_default();
            if message.contains("budget breached") {
                return SyntaxError { location: Some(place), message: too_many() };
            }
            let other = ["trailing content", "mapping values"].iter().any(|words| message.contains(words));
            if has_bare_expression(line) && !other {
                "an expression inside `{…}` or `[…]` stands in quotes; write `\"${ input.x }\"`".into()
            } else {
                let (place, message) = mistakes::explain(&message, place, text).unwrap_or((place, message));
                return SyntaxError { location: Some(place), message };
            }
        }
    };
    SyntaxError { location: place, message }
}

/// What is said of a document with too much in it.
fn too_many() -> String {
    format!("the document has more than {MAX_NODES} values, those that `*` stands for counted each time; split it")
}

/// Whether an expression stands in a line without quotes, where YAML takes its braces for an object's.
fn has_bare_expression(line: &str) -> bool {
    let quotes = |before: &str| before.matches(['"', '\'']).count();
    line.match_indices("${").any(|(at, _)| quotes(&line[..at]) % 2 == 0)
}

/// The parser's message without the place that it repeats.
fn without_place(message: &str) -> String {
    let end = message.find(" at line ").unwrap_or(message.len());
    message[..end].trim_end_matches([':', ' ']).to_owned()
}
