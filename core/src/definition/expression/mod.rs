//! Expressions: what stands in `${ … }`.
//!
//! A [`Template`] is a JSON value with expressions in its texts. A text that is one expression and nothing else (but
//! for line breaks at its end, which YAML's blocks add) becomes the expression's value with its type; in any other
//! text the values stand as text: texts as they are, everything else as JSON. `$${` is a literal `${`.
//!
//! * [`vocabulary`]: the names, functions, filters and tests that exist.
//! * `scan`: bounds on the source, and the names and paths that it uses.
//! * `path`: what a path leads to. `render`: a template with the values of its expressions.
//! * `engine`: minijinja, cut down to what is deterministic and bounded.
//! * `filters`: its words that pay for what they cost.
//!
//! Most expressions only read a path (`${ input.order.id }`). Those never reach the engine: the path is followed in
//! the JSON itself, which keeps every number exact and costs no copy of the input.

mod engine;
mod filters;
mod path;
mod render;
mod scan;
pub mod vocabulary;

pub use engine::{MAX_RENDERED_BYTES, MAX_WORK};
pub(super) use path::{from_start, kind};
pub use scan::{LocalName, MAX_NESTING, MAX_SOURCE_BYTES, MAX_TOKENS};

use super::MAX_DEPTH;
use super::problem::Spot;
use crate::execution::event::Json;
use crate::id::{ExecutionId, Run, StepId, Version, WorkflowName};
use engine::Program;
use scan::Scan;
pub(super) use scan::{Access, Literal, Path, Root};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Expressions of one template.
pub const MAX_EXPRESSIONS: usize = 1_000;

/// A JSON value with expressions in its strings. A string that is one expression becomes that expression's value;
/// otherwise the values stand in the text.
#[derive(Clone)]
pub struct Template {
    compiled: Arc<Compiled>,
}

struct Compiled {
    source: Value,
    node: Node,
    references: References,
    locals: Locals,
}

/// The names that are there in some places alone, each with the place where one expression reads it.
pub(super) type Locals = BTreeMap<LocalName, Spot>;

/// The steps whose outputs are read, each with the place where one expression does.
pub(super) type References = BTreeMap<StepId, Spot>;

/// What expressions see.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// `input`
    pub input: &'a Json,
    /// `steps.<id>.output`: null where the step was skipped; absent where it has not ended.
    pub outputs: &'a BTreeMap<StepId, Json>,
    /// `execution.id`
    pub execution: &'a ExecutionId,
    /// `execution.workflow`
    pub workflow: &'a WorkflowName,
    /// `execution.version`
    pub version: &'a Version,
    /// `execution.run`
    pub run: Run,
    /// What is there in some places alone.
    pub local: Local<'a>,
}

/// What expressions see in some places alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Local<'a> {
    /// Outputs of the steps of the handler whose expression it is: they come before those of the workflow.
    pub own: Option<&'a BTreeMap<StepId, Json>>,
    /// Outputs that are not there are null. Without it they are errors.
    pub absent_is_null: bool,
    /// `execution.continue_suggested`: the history has grown so long that it is time to continue as new.
    pub continue_suggested: bool,
    /// `item` and `index`
    pub item: Option<(&'a Json, u32)>,
    /// `event`
    pub event: Option<&'a Json>,
    /// `failure`
    pub failure: Option<&'a Json>,
    /// `output`
    pub output: Option<&'a Json>,
}

impl<'a> Scope<'a> {
    fn output(&self, step: &StepId) -> Option<&'a Json> {
        self.local.own.and_then(|own| own.get(step)).or_else(|| self.outputs.get(step))
    }
}

impl<'a> Local<'a> {
    fn get(&self, name: LocalName) -> Option<Cow<'a, Value>> {
        let value = |json: &'a Json| Cow::Borrowed(json.as_ref());
        match name {
            LocalName::Item => self.item.map(|(item, _)| value(item)),
            LocalName::Index => self.item.map(|(_, index)| Cow::Owned(Value::from(index))),
            LocalName::Event => self.event.map(value),
            LocalName::Failure => self.failure.map(value),
            LocalName::Output => self.output.map(value),
        }
    }
}

/// An expression that gives no value, or a source that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{source_text}`: {message}")]
pub struct ExpressionError {
    /// The expression, as written.
    pub source_text: String,
    /// What is wrong, in words for the definition's author.
    pub message: String,
}

/// An error and where in the template it is.
#[derive(Debug)]
pub(super) struct Located {
    pub spot: Spot,
    pub error: ExpressionError,
}

/// Why a source is no expression, and at which of its bytes that shows.
#[derive(Debug)]
struct Refusal {
    message: String,
    at: usize,
}

impl Refusal {
    fn new(at: usize, message: impl Into<String>) -> Refusal {
        Refusal { message: message.into(), at }
    }
}

pub(super) enum Node {
    /// No expression in it.
    Constant(Value),
    /// A text that is one expression.
    Expression(Source),
    /// A text with expressions in it.
    Text(Vec<Piece>),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

pub(super) enum Piece {
    Text(String),
    Expression(Source),
}

/// A compiled expression.
pub(super) struct Source {
    /// As written, with its `${` and `}`.
    text: String,
    /// The byte of the template's text at which the expression begins, behind `${`.
    start: usize,
    paths: Vec<Path>,
    literal: Option<Literal>,
    careful: bool,
    /// None where the expression is just its one path.
    program: Option<Program>,
}

impl Template {
    /// Compiles every expression in `source`.
    pub fn new(source: &Value) -> Result<Template, ExpressionError> {
        let first = |errors: Vec<Located>| errors.into_iter().next().expect("there is an error").error;
        Template::check(source).map_err(first)
    }

    /// Compiles every expression in `source`, and tells everything that is wrong.
    pub(super) fn check(source: &Value) -> Result<Template, Vec<Located>> {
        let mut compiler =
            Compiler { errors: Vec::new(), references: References::new(), locals: Locals::new(), expressions: 0 };
        let node = compiler.node(source, &mut String::new(), 0);
        if !compiler.errors.is_empty() {
            return Err(compiler.errors);
        }
        let Compiler { references, locals, .. } = compiler;
        Ok(Template { compiled: Arc::new(Compiled { source: source.clone(), node, references, locals }) })
    }

    /// The value with every expression evaluated.
    pub fn render(&self, scope: &Scope<'_>) -> Result<Value, ExpressionError> {
        render::render(&self.compiled, scope)
    }

    /// The template as written.
    pub fn source(&self) -> &Value {
        &self.compiled.source
    }

    /// The steps whose outputs the template reads.
    pub fn references(&self) -> impl Iterator<Item = &StepId> {
        self.compiled.references.keys()
    }

    /// The same with a place for each.
    pub(super) fn places(&self) -> &References {
        &self.compiled.references
    }

    /// The names that it reads and that are there in some places alone, each with a place.
    pub(super) fn locals(&self) -> &Locals {
        &self.compiled.locals
    }

    /// What the template is made of.
    pub(super) fn node(&self) -> &Node {
        &self.compiled.node
    }

    /// The value, where no expression is in it.
    pub fn constant(&self) -> Option<&Value> {
        match &self.compiled.node {
            Node::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// Whether the template is one expression and nothing else, so that its value can be of any type.
    pub fn is_one_expression(&self) -> bool {
        matches!(self.compiled.node, Node::Expression(_))
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Template) -> bool {
        self.compiled.source == other.compiled.source
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Template").field(&self.compiled.source).finish()
    }
}

/// Adds a key or index to a JSON pointer.
pub(super) fn push_pointer(pointer: &mut String, part: &str) {
    pointer.push('/');
    for c in part.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

/// A text as an error shows it.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 120;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

struct Compiler {
    errors: Vec<Located>,
    references: References,
    locals: Locals,
    expressions: usize,
}

impl Compiler {
    fn error(&mut self, spot: impl Into<Spot>, source: &str, message: impl Into<String>) {
        let error = ExpressionError { source_text: shortened(source), message: message.into() };
        self.errors.push(Located { spot: spot.into(), error });
    }

    fn node(&mut self, source: &Value, pointer: &mut String, depth: usize) -> Node {
        if depth == MAX_DEPTH && (source.is_array() || source.is_object()) {
            self.error(pointer.as_str(), "…", format!("has more than {MAX_DEPTH} lists and objects within each other"));
            return Node::Constant(Value::Null);
        }
        let length = pointer.len();
        match source {
            Value::String(text) => self.text(text, pointer),
            Value::Array(items) => {
                let mut nodes = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    push_pointer(pointer, &index.to_string());
                    nodes.push(self.node(item, pointer, depth + 1));
                    pointer.truncate(length);
                }
                match nodes.iter().map(Node::constant).collect::<Option<Vec<_>>>() {
                    Some(items) => Node::Constant(Value::Array(items.into_iter().cloned().collect())),
                    None => Node::List(nodes),
                }
            }
            Value::Object(fields) => {
                let mut nodes = Vec::with_capacity(fields.len());
                for (key, field) in fields {
                    push_pointer(pointer, key);
                    if key.contains("${") {
                        self.error(Spot::key(pointer.as_str()), key, "expressions stand in values, not in keys");
                    }
                    nodes.push((key.clone(), self.node(field, pointer, depth + 1)));
                    pointer.truncate(length);
                }
                match nodes.iter().map(|(k, n)| Some((k, n.constant()?))).collect::<Option<Vec<_>>>() {
                    Some(fields) => Node::Constant(Value::Object(
                        fields.into_iter().map(|(key, field)| (key.clone(), field.clone())).collect(),
                    )),
                    None => Node::Object(nodes),
                }
            }
            other => Node::Constant(other.clone()),
        }
    }

    fn text(&mut self, text: &str, pointer: &str) -> Node {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            if rest[..at].ends_with('$') {
                plain.push_str(&rest[..at - 1]);
                plain.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            plain.push_str(&rest[..at]);
            let inner = &rest[at + 2..];
            // The place of a byte of what follows `${`, as characters of the whole text.
            let before = text.len() - inner.len();
            let spot = |byte: usize| {
                let offset = text.get(..before + byte).map(|before| before.chars().count());
                Spot { path: pointer.to_owned(), offset, of_key: false }
            };
            let end = match scan::end_of_expression(inner) {
                Ok(Some(end)) => end,
                Ok(None) => {
                    let message = "`${` has no `}` after it; a `${` that is meant as text is written `$${`";
                    let offset = text[..before - 2].chars().count();
                    self.error(Spot { offset: Some(offset), ..spot(0) }, &rest[at..], message);
                    return Node::Constant(Value::Null);
                }
                Err(Refusal { message, at: byte }) => {
                    self.error(spot(byte), &rest[at..], message);
                    return Node::Constant(Value::Null);
                }
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            let written = &rest[at..at + 2 + end + 1];
            match self.expression(&inner[..end], written, before, &spot) {
                Ok(source) => pieces.push(Piece::Expression(source)),
                Err(Refusal { message, at }) => self.error(spot(at), written, message),
            }
            rest = &inner[end + 1..];
        }
        plain.push_str(rest);
        // YAML's blocks end with line breaks that nobody means.
        let line_breaks = plain.bytes().all(|b| matches!(b, b'\n' | b'\r'));
        match pieces.as_slice() {
            [] => return Node::Constant(Value::String(plain)),
            [Piece::Expression(_)] if line_breaks => {}
            _ => {
                if !plain.is_empty() {
                    pieces.push(Piece::Text(plain));
                }
                return Node::Text(pieces);
            }
        }
        match pieces.pop() {
            Some(Piece::Expression(source)) => Node::Expression(source),
            _ => Node::Constant(Value::Null),
        }
    }

    /// Compiles an expression; `spot` is where a byte of it stands.
    fn expression(
        &mut self,
        source: &str,
        written: &str,
        start: usize,
        spot: &dyn Fn(usize) -> Spot,
    ) -> Result<Source, Refusal> {
        self.expressions += 1;
        if self.expressions == MAX_EXPRESSIONS + 1 {
            let message = format!("is one more than the {MAX_EXPRESSIONS} expressions that one value may have");
            return Err(Refusal::new(0, message));
        }
        let Scan { paths, only_path, literal, careful, source } = scan::scan(source)?;
        for path in &paths {
            match &path.root {
                Root::Output(step) => drop(self.references.entry(step.clone()).or_insert_with(|| spot(path.at))),
                Root::Local(name) => drop(self.locals.entry(*name).or_insert_with(|| spot(path.at))),
                Root::Input | Root::Execution => {}
            }
        }
        let program = if only_path { None } else { Some(compiled(source)?) };
        Ok(Source { text: written.to_owned(), start, paths, literal, careful, program })
    }
}

/// Compiles what the scan has passed. Where the engine refuses it, the place is the first token with which no expression
/// goes on, or the end, where something is missing.
fn compiled(source: String) -> Result<Program, Refusal> {
    let tokens = scan::tokens(&source);
    let refused = engine::compile(source.clone());
    refused.map_err(|message| {
        // A beginning that can go on in some way ends too early at worst; and so does every shorter one.
        let ends: Vec<usize> = tokens.iter().map(|token| token.end).collect();
        let good = ends.partition_point(|end| engine::may_go_on(&source[..*end]));
        let at = tokens.get(good).map_or(source.len(), |token| token.start);
        Refusal::new(at, message)
    })
}

impl Source {
    /// The expression with its `${` and `}`, as an error shows it.
    pub(super) fn shown(&self) -> String {
        shortened(&self.text)
    }

    /// The same, whole.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The expression without them.
    pub(super) fn inner(&self) -> &str {
        let inner = self.text.strip_prefix("${").and_then(|text| text.strip_suffix('}'));
        inner.unwrap_or(&self.text).trim()
    }

    pub(super) fn start(&self) -> usize {
        self.start
    }

    /// Everything that it reads.
    pub(super) fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// The path, where the expression is one and nothing else.
    pub(super) fn only_path(&self) -> Option<&Path> {
        if self.program.is_none() { self.paths.first() } else { None }
    }

    /// What it gives, where it is one text or number.
    pub(super) fn literal(&self) -> Option<Literal> {
        self.literal
    }

    /// It may ask whether something is there before it reads it, or say what holds where it is not.
    pub(super) fn is_careful(&self) -> bool {
        self.careful
    }
}

impl Node {
    fn constant(&self) -> Option<&Value> {
        match self {
            Node::Constant(value) => Some(value),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
