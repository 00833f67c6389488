//! A template with the values of its expressions. What only reads a path never reaches the engine.

use super::engine::{self, Budget, Failure};
use super::{Compiled, ExpressionError, Node, Piece, Scope, Source, shortened};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The value of a template, with every expression evaluated.
pub(super) fn render(compiled: &Compiled, scope: &Scope<'_>) -> Result<Value, ExpressionError> {
    Renderer { scope, compiled, names: None, budget: Budget::new(), depth: 0 }.node(&compiled.node)
}

struct Renderer<'a, 's> {
    scope: &'a Scope<'s>,
    compiled: &'a Compiled,
    /// The scope as the engine sees it, made when an expression first needs it.
    names: Option<minijinja::Value>,
    budget: Budget,
    /// Lists and objects around what is rendered.
    depth: usize,
}

impl Renderer<'_, '_> {
    fn node(&mut self, node: &Node) -> Result<Value, ExpressionError> {
        Ok(match node {
            Node::Constant(value) => value.clone(),
            Node::Expression(source) => self.value(source)?,
            Node::Text(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Text(plain) => text.push_str(plain),
                        Piece::Expression(source) => match self.value(source)? {
                            Value::String(value) => text.push_str(&value),
                            value => text.push_str(&value.to_string()),
                        },
                    }
                }
                Value::String(text)
            }
            Node::List(nodes) => {
                self.depth += 1;
                let items = nodes.iter().map(|n| self.node(n)).collect::<Result<_, _>>()?;
                self.depth -= 1;
                Value::Array(items)
            }
            Node::Object(nodes) => {
                self.depth += 1;
                let mut fields = Map::new();
                for (key, node) in nodes {
                    fields.insert(key.clone(), self.node(node)?);
                }
                self.depth -= 1;
                Value::Object(fields)
            }
        })
    }

    fn value(&mut self, source: &Source) -> Result<Value, ExpressionError> {
        let error = |message: String| ExpressionError { source_text: shortened(&source.text), message };
        let Some(program) = &source.program else {
            let path = source.paths.first().expect("an expression without a program is one path");
            let value = path.follow(self.scope).map_err(|missing| error(missing.to_string()))?;
            self.budget.spend_json(&value, self.depth).map_err(error)?;
            return Ok(value.into_owned());
        };
        let names = match &self.names {
            Some(names) => names.clone(),
            None => {
                let names = engine_names(self.scope, self.compiled, &mut self.budget).map_err(error)?;
                self.names.insert(names).clone()
            }
        };
        engine::run(program, &names, &mut self.budget, self.depth).map_err(|failure| {
            error(match failure {
                Failure::Other(message) => message,
                Failure::Undefined => explain_undefined(source, self.scope),
            })
        })
    }
}

/// What the engine sees of a scope: of the outputs and the local names only those that the template reads.
fn engine_names(scope: &Scope<'_>, compiled: &Compiled, budget: &mut Budget) -> Result<minijinja::Value, String> {
    let text = minijinja::Value::from;
    let mut outputs = BTreeMap::new();
    for id in compiled.references.keys() {
        let absent = scope.local.absent_is_null.then_some(&Value::Null);
        if let Some(output) = scope.output(id).map(|output| output.as_ref()).or(absent) {
            let output = engine::from_json(output, budget)?;
            outputs.insert(id.to_string(), engine::names(BTreeMap::from([("output".to_owned(), output)])));
        }
    }
    let execution = [
        ("id".to_owned(), text(scope.execution.as_str())),
        ("workflow".to_owned(), text(scope.workflow.as_str())),
        ("version".to_owned(), text(scope.version.as_str())),
        ("run".to_owned(), minijinja::Value::from(scope.run.0)),
        ("continue_suggested".to_owned(), minijinja::Value::from(scope.local.continue_suggested)),
    ];
    let mut names = BTreeMap::from([
        ("input".to_owned(), engine::from_json(scope.input, budget)?),
        ("steps".to_owned(), engine::names(outputs)),
        ("execution".to_owned(), engine::names(execution.into())),
    ]);
    for name in compiled.locals.keys() {
        if let Some(value) = scope.local.get(*name) {
            names.insert(name.as_str().to_owned(), engine::from_json(&value, budget)?);
        }
    }
    Ok(engine::names(names))
}

/// Why an expression came upon something that is not there: the paths of it that lead nowhere.
fn explain_undefined(source: &Source, scope: &Scope<'_>) -> String {
    let missing: BTreeSet<String> =
        source.paths.iter().filter_map(|path| path.follow(scope).err()).map(|m| m.to_string()).collect();
    if missing.is_empty() {
        "reads something that is not there, or has an `if` without an `else`".into()
    } else {
        missing.into_iter().collect::<Vec<_>>().join("; ")
    }
}
