//! What expressions read, against what is known of it: the fields that the input's schema declares, and those that a
//! literal `compute` step gives.
//!
//! What cannot be there for sure is a problem. What likely is not meant is a warning: a field that an open schema does
//! not declare, and one that cannot be there where the expression minds that (`default`, `is defined`, `if`). So are texts
//! that look like expressions (`lookalikes`).

use super::{Problems, join, lookalikes};
use crate::definition::Template;
use crate::definition::expression::{Access, Literal, Node, Path, Piece, Root, Source};
use crate::definition::nearest::{did_you_mean, nearest};
use crate::definition::problem::Spot;
use crate::definition::shape::{Found, Kinds, Shape, Shapes, part_of_literal};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Computed values that read each other, followed.
const MAX_DEPTH: usize = 16;
/// Names that a hint lists.
const LISTED: usize = 12;

/// Tells of reads of what cannot be there, and of conditions and pauses that cannot be ones.
pub(super) fn check(document: &Value, problems: &mut Problems) {
    let templates = std::mem::take(&mut problems.templates);
    let mut known = Known {
        input: document.get("input").filter(|schema| schema.is_object()),
        computed: computed(document, &templates),
        shapes: Shapes::new(document.get("input").unwrap_or(&Value::Null)),
    };
    for (path, template) in &templates {
        let mut at = Place { path: path.clone(), root: path.len(), template };
        known.node(template.node(), &mut at, problems);
        known.whole(template, path, problems);
        if problems.full() {
            break;
        }
    }
}

/// The steps that only compute, with what they give.
fn computed<'a>(document: &'a Value, templates: &'a [(String, Template)]) -> BTreeMap<&'a str, &'a Node> {
    let by_path: BTreeMap<&str, &Template> =
        templates.iter().map(|(path, template)| (path.as_str(), template)).collect();
    let mut computed = BTreeMap::new();
    let steps = document.get("steps").and_then(Value::as_array);
    for (index, step) in steps.into_iter().flatten().enumerate() {
        // A field that is not known here may make something else of the value.
        let only_computes =
            |field: &String| ["id", "description", "when", "after", "compute"].contains(&field.as_str());
        let Some(fields) = step.as_object().filter(|fields| fields.keys().all(only_computes)) else { continue };
        let template = by_path.get(format!("/steps/{index}/compute").as_str());
        if let (Some(id), Some(template)) = (fields.get("id").and_then(Value::as_str), template) {
            computed.insert(id, template.node());
        }
    }
    computed
}

/// Where in a template something stands.
struct Place<'t> {
    path: String,
    /// The length of the template's own path, with which it begins.
    root: usize,
    template: &'t Template,
}

/// What is known of what expressions read.
struct Known<'a> {
    input: Option<&'a Value>,
    computed: BTreeMap<&'a str, &'a Node>,
    shapes: Shapes<'a>,
}

/// A value that is read, as far as it is known.
#[derive(Clone)]
enum Reading<'a> {
    Shape(Shape<'a>),
    Node(&'a Node),
}

/// A field or item that is not there: the number of its access, and what is read up to it.
struct Missing<'a> {
    access: usize,
    up_to: String,
    /// A schema says so, rather than the value itself.
    of_schema: bool,
    found: Found<'a>,
}

impl<'a> Known<'a> {
    /// Checks everything that the expressions below `node` read.
    fn node(&mut self, node: &Node, at: &mut Place<'_>, problems: &mut Problems) {
        let length = at.path.len();
        match node {
            Node::Constant(value) => lookalikes::of_constant(value, &at.path, problems),
            Node::Expression(source) => self.source(source, at, problems),
            Node::Text(pieces) => {
                for piece in pieces {
                    match piece {
                        Piece::Expression(source) => self.source(source, at, problems),
                        Piece::Text(text) => lookalikes::of_text(text, &at.path, false, problems),
                    }
                }
            }
            Node::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    at.path = join(&at.path, &index.to_string());
                    self.node(item, at, problems);
                    at.path.truncate(length);
                }
            }
            Node::Object(fields) => {
                for (name, field) in fields {
                    at.path = join(&at.path, name);
                    self.node(field, at, problems);
                    at.path.truncate(length);
                }
            }
        }
    }

    fn source(&mut self, source: &Source, at: &Place<'_>, problems: &mut Problems) {
        for path in source.paths() {
            if let Err(missing) = self.follow(path, 0) {
                tell(&missing, path, source, at, problems);
            }
        }
    }

    /// What is known of the value at the end of a path; else the first part of it that cannot be there.
    fn follow(&mut self, path: &Path, depth: usize) -> Result<Reading<'a>, Missing<'a>> {
        let (mut reading, mut up_to) = match &path.root {
            Root::Input => match self.input {
                Some(schema) => (Reading::Shape(Shape::Schemas(vec![schema])), "input".to_owned()),
                None => return Ok(Reading::Shape(Shape::Any)),
            },
            Root::Output(step) => match self.computed.get(step.as_str()) {
                Some(node) => (self.settle(node, depth), format!("steps.{step}.output")),
                None => return Ok(Reading::Shape(Shape::Any)),
            },
            _ => return Ok(Reading::Shape(Shape::Any)),
        };
        for (number, access) in path.accesses.iter().enumerate() {
            let of_schema = matches!(reading, Reading::Shape(Shape::Schemas(_)));
            let missing = |found, up_to| Missing { access: number, up_to, of_schema, found };
            reading = match reading {
                Reading::Node(node) => match part_of_literal(node, access) {
                    Some(Ok(node)) => self.settle(node, depth),
                    Some(Err(found)) => return Err(missing(found, up_to)),
                    None => Reading::Shape(Shape::Any),
                },
                Reading::Shape(shape) => match self.shapes.part(&shape, access) {
                    Found::Maybe(shape) => Reading::Shape(shape),
                    found => return Err(missing(found, up_to)),
                },
            };
            match access {
                Access::Key(key) => up_to.push_str(&format!(".{key}")),
                Access::Index(index) => up_to.push_str(&format!("[{index}]")),
            }
        }
        Ok(reading)
    }

    /// What is known of a literal: where it is an expression that only reads, of what that reads.
    fn settle(&mut self, node: &'a Node, depth: usize) -> Reading<'a> {
        match node {
            Node::Constant(value) => Reading::Shape(Shape::Value(value)),
            Node::Text(_) => Reading::Shape(Shape::Text),
            Node::List(_) | Node::Object(_) => Reading::Node(node),
            // What it reads in vain is told where it stands.
            Node::Expression(source) => match source.only_path() {
                Some(path) if depth < MAX_DEPTH => self.follow(path, depth + 1).unwrap_or(Reading::Shape(Shape::Any)),
                _ => Reading::Shape(Shape::Any),
            },
        }
    }

    /// Checks that a condition can be true or false, and a pause a duration, where the whole value is one expression.
    fn whole(&mut self, template: &Template, path: &str, problems: &mut Problems) {
        let Node::Expression(source) = template.node() else { return };
        let is_field =
            |name: &str| path.strip_prefix("/steps/").is_some_and(|rest| rest.split('/').nth(1) == Some(name));
        let (wanted, what) = match path.rsplit('/').next() {
            Some("when") if is_field("when") => (Kinds::BOOLEAN, "`when` must give true or false"),
            Some("sleep") if is_field("sleep") => (Kinds::TEXT | Kinds::NUMBER, "`sleep` must give a duration"),
            _ => return,
        };
        let kinds = match (source.literal(), source.only_path()) {
            (Some(Literal::Text), _) => Kinds::TEXT,
            (Some(Literal::Number), _) => Kinds::NUMBER,
            (None, Some(only)) => match self.follow(only, 0) {
                Ok(Reading::Shape(shape)) => self.shapes.kinds(&shape),
                Ok(Reading::Node(Node::List(_))) => Kinds::LIST,
                Ok(Reading::Node(_)) => Kinds::OBJECT,
                Err(_) => return,
            },
            (None, None) => return,
        };
        if kinds.may_be(wanted) {
            return;
        }
        let inner = source.inner();
        let spot = Place { path: path.to_owned(), root: path.len(), template }.spot(source, leading(source));
        problems.add(spot, format!("{what}, and `{}` gives {}", source.shown(), kinds.words()), || {
            if wanted != Kinds::BOOLEAN {
                "give a text such as `10s`, or a number of milliseconds".into()
            } else if source.literal().is_some() {
                "write `true` or `false`, or compare with something: `${ input.amount > 100 }`".into()
            } else if kinds.may_be(Kinds::NUMBER) {
                format!("compare it: `${{ {inner} > 0 }}`")
            } else if kinds.may_be(Kinds::TEXT) {
                format!("compare it: `${{ {inner} == \"yes\" }}`")
            } else if kinds.may_be(Kinds::LIST) {
                format!("ask how long it is: `${{ {inner} | length > 0 }}`")
            } else {
                "read one of its fields, or compare something".into()
            }
        });
    }
}

impl Place<'_> {
    /// Where a byte of an expression stands.
    fn spot(&self, source: &Source, byte: usize) -> Spot {
        let text = self.template.source().pointer(&self.path[self.root..]).and_then(Value::as_str);
        let offset = text.and_then(|text| text.get(..source.start() + byte)).map(|before| before.chars().count());
        Spot { path: self.path.clone(), offset, of_key: false }
    }
}

/// Tells of a field or item that cannot be there, or that no schema declares.
fn tell(missing: &Missing<'_>, path: &Path, source: &Source, at: &Place<'_>, problems: &mut Problems) {
    let Missing { access: number, up_to, of_schema, found } = missing;
    let (access, byte) = (&path.accesses[*number], path.places[*number]);
    let spot = || at.spot(source, byte);
    let part = match access {
        Access::Key(key) => format!("field `{key}`"),
        Access::Index(index) => format!("item [{index}]"),
    };
    let careful = source.is_careful();
    let (message, hint): (String, Box<dyn FnOnce() -> String>) = match (found, access) {
        (Found::Undeclared(names), Access::Key(key)) => {
            let near = nearest(key, names.iter().copied());
            // Who asks whether it is there knows that it is not declared.
            if careful && near.is_none() {
                return;
            }
            let message = format!("`{}`: the schema of `{up_to}` declares no {part}", source.shown());
            let hint = near.map_or_else(
                || "declare it under `properties`, so that it is checked where executions start".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            return problems.warn(spot(), message, || hint);
        }
        (Found::Never(names), Access::Key(key)) => {
            let hint = move || did_you_mean(key, names.iter().copied(), || listed(names));
            let why = if *of_schema {
                format!("its schema allows no {part} in `{up_to}`")
            } else {
                format!("`{up_to}` has no {part}")
            };
            (why, Box::new(hint))
        }
        (Found::TooFew(count), _) => {
            let items = if *count == 1 { "1 item".to_owned() } else { format!("{count} items") };
            (format!("`{up_to}` has {items}, and no {part}"), Box::new(|| "the first is [0]".to_owned()))
        }
        (Found::Kinds(kinds), _) => {
            let hint = move || format!("read `{up_to}` itself, or something else");
            (format!("`{up_to}` is {}, which has no {part}", kinds.words()), Box::new(hint))
        }
        _ => return,
    };
    let message = format!("`{}`: {message}", source.shown());
    if careful {
        problems.warn(spot(), message, hint);
    } else {
        problems.add(spot(), message, hint);
    }
}

/// Some of the names that there are.
fn listed(names: &BTreeSet<&str>) -> String {
    let some: Vec<String> = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
    match (some.is_empty(), names.len() > some.len()) {
        (true, _) => "it has none".to_owned(),
        (false, false) => format!("it has {}", some.join(", ")),
        (false, true) => format!("it has {} and others", some.join(", ")),
    }
}

/// How many bytes of white space an expression begins with.
fn leading(source: &Source) -> usize {
    source.text().find(source.inner()).unwrap_or_default().saturating_sub("${".len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{AnySchema, Checked, Definition};
    use serde_json::json;

    /// Problems, and after them warnings, of a definition with this input and these steps.
    fn told(input: Value, steps: Value) -> Vec<String> {
        let document = json!({"name": "W", "version": "1", "input": input, "steps": steps});
        let Checked { definition, warnings } = Definition::check(&document, &AnySchema);
        assert!(definition.is_ok() || Definition::from_document(&document).is_ok(), "what is deployed stays readable");
        let problems = definition.err().unwrap_or_default();
        let warnings = warnings.iter().map(|warning| format!("warning: {warning}"));
        problems.iter().map(ToString::to_string).chain(warnings).collect()
    }

    fn order(additional: Value) -> Value {
        json!({
            "type": "object",
            "properties": {
                "amount": {"type": "number"},
                "express": {"type": "boolean"},
                "note": {"type": ["string", "null"]},
                "lines": {"type": "array", "items": {
                    "type": "object", "properties": {"sku": {"type": "string"}}, "additionalProperties": false,
                }},
            },
            "additionalProperties": additional,
        })
    }

    /// The same of one expression that is a task's input.
    fn reads(input: Value, expression: &str) -> Vec<String> {
        told(input, json!([{"id": "a", "task": "t", "input": {"x": format!("${{ {expression} }}")}}]))
    }

    #[test]
    fn a_field_that_a_closed_input_cannot_have_is_a_problem_with_the_one_that_was_meant() {
        assert_eq!(
            reads(order(json!(false)), "input.amuont"),
            [
                "/steps/0/input/x: `${ input.amuont }`: its schema allows no field `amuont` in `input` (did you mean `amount`?)"
            ]
        );
        let found = reads(order(json!(false)), "1 + input.lines[0].skuu + input[\"zebra\"]");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("no field `skuu` in `input.lines[0]` (did you mean `sku`?)"), "{found:?}");
        assert!(found[1].ends_with("(it has `amount`, `express`, `lines`, `note`)"), "{found:?}");
        for right in ["input.amount", "input.lines[0].sku", "input.lines | length", "input.note.any", "input"] {
            assert_eq!(reads(order(json!(false)), right), [""; 0], "{right}");
        }
    }

    #[test]
    fn a_field_that_an_open_input_does_not_declare_is_warned_of() {
        let open = json!({"properties": {"amount": {}}});
        let found = reads(open.clone(), "input.amuont");
        let expected = "the schema of `input` declares no field `amuont` (did you mean `amount`?)";
        assert_eq!(found, [format!("warning: /steps/0/input/x: `${{ input.amuont }}`: {expected}")]);
        assert!(reads(open.clone(), "input.other")[0].contains("declare it under `properties`"));
        // Who minds that it may be missing knows that it is not declared; a slip stays one.
        assert_eq!(reads(open.clone(), "input.other | default(1)"), [""; 0]);
        assert_eq!(reads(open.clone(), "input.amuont | default(1)").len(), 1);
        assert_eq!(reads(order(json!(true)), "input.other"), [""; 0]);
        assert_eq!(reads(json!({"type": "object"}), "input.other"), [""; 0]);
    }

    #[test]
    fn a_read_in_vain_that_an_expression_minds_is_a_warning() {
        for careful in ["input.amuont | default(0)", "input.amuont is defined", "1 if input.amuont else 2"] {
            let found = reads(order(json!(false)), careful);
            assert!(found.len() == 1 && found[0].starts_with("warning: "), "{careful}: {found:?}");
        }
    }

    #[test]
    fn what_is_no_object_has_no_fields() {
        let found = reads(order(json!(false)), "input.amount.value");
        assert!(found[0].contains("`input.amount` is a number, which has no field `value`"), "{found:?}");
        let found = reads(order(json!(false)), "input.lines.sku");
        assert!(found[0].contains("`input.lines` is a list, which has no field `sku`"), "{found:?}");
        let found = reads(order(json!(false)), "input.lines[0][1]");
        assert!(found[0].contains("`input.lines[0]` is an object, which has no item [1]"), "{found:?}");
    }

    #[test]
    fn a_field_that_a_computed_value_does_not_have_is_a_problem() {
        let with = |read: &str| {
            let literal = json!({"total": "${ input.amount * 2 }", "order": "${ input }", "text": "a ${ input.note }",
                                 "list": [1, {"a": 2}]});
            told(
                order(json!(false)),
                json!([
                    {"id": "c", "compute": literal, "when": "${ input.express }"},
                    {"id": "d", "compute": "${ steps.c.output.order }"},
                    {"id": "a", "task": "t", "input": format!("${{ steps.{read} }}")},
                ]),
            )
        };
        let found = with("c.output.totl");
        assert_eq!(
            found,
            [
                "/steps/2/input: `${ steps.c.output.totl }`: `steps.c.output` has no field `totl` (did you mean `total`?)"
            ]
        );
        for (read, expected) in [
            ("c.output.list[1].b", "`steps.c.output.list[1]` has no field `b` (it has `a`)"),
            ("c.output.list[2]", "`steps.c.output.list` has 2 items, and no item [2]"),
            ("c.output.list.x", "is a list, which has no field `x`"),
            ("c.output.text.x", "is a text, which has no field `x`"),
            ("c.output.order.amuont", "no field `amuont` in `steps.c.output.order` (did you mean `amount`?)"),
            ("d.output.amuont", "in `steps.d.output` (did you mean `amount`?)"),
        ] {
            let found = with(read);
            assert!(found.len() == 1 && found[0].contains(expected), "{read}: {found:?}");
        }
        for right in ["c.output.total.x", "c.output.list[-1].a", "d.output.amount", "c.output.order.lines[3].sku"] {
            assert_eq!(with(right), [""; 0], "{right}");
        }
    }

    #[test]
    fn a_condition_that_is_none_by_its_schema_or_as_written_is_a_problem() {
        let when = |expression: &str| {
            let steps = json!([{"id": "c", "compute": {"l": [1], "yes": true}},
                               {"id": "a", "task": "t", "when": format!("${{ {expression} }}")}]);
            told(order(json!(false)), steps)
        };
        for (condition, expected) in [
            (
                "input.amount",
                "`when` must give true or false, and `${ input.amount }` gives a number (compare it: `${ input.amount > 0 }`)",
            ),
            ("input.note", "gives a text or null (compare it: `${ input.note == \"yes\" }`)"),
            ("input.lines", "gives a list (ask how long it is: `${ input.lines | length > 0 }`)"),
            ("steps.c.output", "gives an object (read one of its fields"),
            ("steps.c.output.l", "gives a list"),
            ("\"yes\"", "gives a text (write `true` or `false`"),
            ("1", "gives a number"),
        ] {
            let found = when(condition);
            assert!(found.len() == 1 && found[0].contains(expected), "{condition}: {found:?}");
        }
        for right in ["input.express", "input.amount > 0", "true", "steps.c.output.yes", "input.lines | length > 0"] {
            assert_eq!(when(right), [""; 0], "{right}");
        }
    }

    #[test]
    fn a_pause_that_is_none_by_its_schema_is_a_problem() {
        let sleep =
            |expression: &str| told(order(json!(false)), json!([{"id": "a", "sleep": format!("${{ {expression} }}")}]));
        assert!(
            sleep("input.express")[0]
                .contains("`sleep` must give a duration, and `${ input.express }` gives a boolean")
        );
        assert_eq!(sleep("input.amount"), [""; 0]);
        assert_eq!(sleep("input.note"), [""; 0]);
    }

    #[test]
    fn what_another_kind_of_step_makes_of_a_value_is_not_known() {
        let steps = json!([{"id": "c", "compute": {"a": 1}, "frob": 1}, {"id": "a", "task": "t", "input": "${ steps.c.output.b }"}]);
        let document = json!({"name": "W", "version": "1", "steps": steps});
        let problems = Definition::check(&document, &AnySchema).definition.expect_err("`frob` is no field");
        assert_eq!(problems.len(), 1, "{problems:?}");
    }
}
