//! What is known of a value before there is one: from a JSON Schema that it matches, or from a literal with expressions
//! in it.
//!
//! Nothing here judges a value; whoever asks learns whether a field can be there, and of which kinds a value can be.
//! What is not understood (`$dynamicRef`, patterns of names, conditions) counts as unknown, never as wrong. A schema is
//! walked along its own references, so every question is paid for: past [`MAX_VISITS`] in one document all is unknown.

use super::expression::{Access, Node, from_start};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::ops::{BitAnd, BitOr};

/// Schemas that the questions about one document may visit.
const MAX_VISITS: usize = 1_000_000;
/// Schemas within each other, references followed.
const MAX_DEPTH: usize = 32;

/// Kinds of JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kinds(u8);

/// The kinds with their names, in the order in which messages list them.
const KINDS: [(Kinds, &str, &str); 6] = [
    (Kinds::BOOLEAN, "boolean", "a boolean"),
    (Kinds::NUMBER, "number", "a number"),
    (Kinds::TEXT, "string", "a text"),
    (Kinds::LIST, "array", "a list"),
    (Kinds::OBJECT, "object", "an object"),
    (Kinds::NULL, "null", "null"),
];

impl Kinds {
    pub const NULL: Kinds = Kinds(1);
    pub const BOOLEAN: Kinds = Kinds(2);
    pub const NUMBER: Kinds = Kinds(4);
    pub const TEXT: Kinds = Kinds(8);
    pub const LIST: Kinds = Kinds(16);
    pub const OBJECT: Kinds = Kinds(32);
    const NONE: Kinds = Kinds(0);
    pub const ALL: Kinds = Kinds(63);

    /// Whether a value can be of one of `others`.
    pub fn may_be(self, others: Kinds) -> bool {
        self & others != Kinds::NONE
    }

    fn of(value: &Value) -> Kinds {
        match value {
            Value::Null => Kinds::NULL,
            Value::Bool(_) => Kinds::BOOLEAN,
            Value::Number(_) => Kinds::NUMBER,
            Value::String(_) => Kinds::TEXT,
            Value::Array(_) => Kinds::LIST,
            Value::Object(_) => Kinds::OBJECT,
        }
    }

    /// Of JSON Schema's `type`.
    fn of_type(name: &str) -> Kinds {
        let name = if name == "integer" { "number" } else { name };
        KINDS.iter().find(|(_, known, _)| *known == name).map_or(Kinds::ALL, |(kinds, ..)| *kinds)
    }

    /// With articles: `a number or null`.
    pub fn words(self) -> String {
        let words: Vec<&str> = KINDS.iter().filter(|(kind, ..)| self.may_be(*kind)).map(|(.., words)| *words).collect();
        words.join(" or ")
    }
}

impl BitAnd for Kinds {
    type Output = Kinds;

    fn bitand(self, other: Kinds) -> Kinds {
        Kinds(self.0 & other.0)
    }
}

impl BitOr for Kinds {
    type Output = Kinds;

    fn bitor(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }
}

/// What is known of a value.
#[derive(Clone, Debug)]
pub(super) enum Shape<'a> {
    /// Nothing.
    Any,
    /// It matches all of these schemas, which are parts of one.
    Schemas(Vec<&'a Value>),
    /// It is this.
    Value(&'a Value),
    /// It is a text.
    Text,
}

/// What a field or an item of a value can be.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// It may be there.
    Maybe(Shape<'a>),
    /// No schema declares it, and none forbids it; the names are those that are declared.
    Undeclared(BTreeSet<&'a str>),
    /// It cannot be there; these can.
    Never(BTreeSet<&'a str>),
    /// There are only so many items.
    TooFew(usize),
    /// The value is of kinds that have no fields, or no items.
    Kinds(Kinds),
}

/// What is known of the field or item of a value with this node, if the node is a literal.
pub(super) fn part_of_literal<'a>(node: &'a Node, access: &Access) -> Option<Result<&'a Node, Found<'a>>> {
    match (node, access) {
        (Node::Object(fields), Access::Key(key)) => {
            let found = fields.iter().find(|(name, _)| name == key);
            let names = || Found::Never(fields.iter().map(|(name, _)| name.as_str()).collect());
            Some(found.map(|(_, node)| node).ok_or_else(names))
        }
        (Node::List(items), Access::Index(index)) => {
            let found = from_start(*index, items.len()).and_then(|at| items.get(at));
            Some(found.ok_or(Found::TooFew(items.len())))
        }
        (Node::Object(_), Access::Index(_)) => Some(Err(Found::Kinds(Kinds::OBJECT))),
        (Node::List(_), Access::Key(_)) => Some(Err(Found::Kinds(Kinds::LIST))),
        _ => None,
    }
}

/// Answers questions about shapes, as far as it is paid for.
pub(super) struct Shapes<'a> {
    /// The schema in which references are looked up.
    root: &'a Value,
    /// In older drafts nothing beside `$ref` counts.
    reference_alone: bool,
    /// An `$id` changes what references mean.
    no_references: bool,
    visits: usize,
}

/// What schemas say of a field.
#[derive(Default)]
struct Said<'a> {
    /// It matches these.
    schemas: Vec<&'a Value>,
    /// It may be there, or nothing is known of it.
    maybe: bool,
    never: bool,
    names: BTreeSet<&'a str>,
}

impl Said<'_> {
    fn is_known(&self) -> bool {
        self.maybe || !self.schemas.is_empty()
    }
}

impl<'a> Shapes<'a> {
    /// About values of a document whose input matches `root`.
    pub fn new(root: &'a Value) -> Shapes<'a> {
        let mut no_references = false;
        super::each_schema(root, &mut |_, fields| {
            no_references |= ["$id", "id"].iter().any(|id| fields.get(*id).is_some_and(Value::is_string));
        });
        let draft = root.get("$schema").and_then(Value::as_str);
        let reference_alone = draft.is_some_and(|draft| !draft.contains("/2020-12/") && !draft.contains("/2019-09/"));
        Shapes { root, reference_alone, no_references, visits: 0 }
    }

    /// The kinds of which a value can be.
    pub fn kinds(&mut self, shape: &Shape<'a>) -> Kinds {
        let kinds = match shape {
            Shape::Any => Kinds::ALL,
            Shape::Text => Kinds::TEXT,
            Shape::Value(value) => Kinds::of(value),
            Shape::Schemas(schemas) => {
                schemas.iter().fold(Kinds::ALL, |kinds, schema| kinds & self.kinds_of(schema, MAX_DEPTH))
            }
        };
        // No value matches: whatever is said of one is right.
        if kinds == Kinds::NONE { Kinds::ALL } else { kinds }
    }

    /// What is known of a value's field or item.
    pub fn part(&mut self, shape: &Shape<'a>, access: &Access) -> Found<'a> {
        let kinds = self.kinds(shape);
        // A field of null is null.
        let able = match access {
            Access::Key(_) => Kinds::OBJECT | Kinds::NULL,
            Access::Index(_) => Kinds::LIST | Kinds::TEXT | Kinds::NULL,
        };
        if !kinds.may_be(able) {
            return Found::Kinds(kinds);
        }
        match (shape, access) {
            (Shape::Value(value @ Value::Null), _) => Found::Maybe(Shape::Value(value)),
            (Shape::Value(Value::Object(fields)), Access::Key(key)) => match fields.get(key) {
                Some(value) => Found::Maybe(Shape::Value(value)),
                None => Found::Never(fields.keys().map(String::as_str).collect()),
            },
            (Shape::Value(Value::Array(items)), Access::Index(index)) => {
                match from_start(*index, items.len()).and_then(|at| items.get(at)) {
                    Some(value) => Found::Maybe(Shape::Value(value)),
                    None => Found::TooFew(items.len()),
                }
            }
            (Shape::Schemas(schemas), Access::Key(key)) => {
                let mut said = Said::default();
                schemas.iter().for_each(|schema| self.field(schema, key, &mut said, MAX_DEPTH));
                match said {
                    Said { never: true, names, .. } => Found::Never(names),
                    Said { schemas, .. } if !schemas.is_empty() => Found::Maybe(Shape::Schemas(schemas)),
                    Said { maybe: false, names, .. } if !names.is_empty() => Found::Undeclared(names),
                    _ => Found::Maybe(Shape::Any),
                }
            }
            (Shape::Schemas(schemas), Access::Index(_)) => {
                let mut items = Vec::new();
                schemas.iter().for_each(|schema| self.items(schema, &mut items, MAX_DEPTH));
                Found::Maybe(if items.is_empty() { Shape::Any } else { Shape::Schemas(items) })
            }
            _ => Found::Maybe(Shape::Any),
        }
    }

    /// The fields of a schema, where it may still be visited.
    fn visit(&mut self, schema: &'a Value, depth: usize) -> Option<&'a Map<String, Value>> {
        if depth == 0 || self.visits >= MAX_VISITS {
            return None;
        }
        self.visits += 1;
        schema.as_object()
    }

    /// Where a reference leads.
    fn target(&self, reference: &Value) -> Option<&'a Value> {
        if self.no_references {
            return None;
        }
        self.root.pointer(reference.as_str()?.strip_prefix('#')?)
    }

    /// Whether nothing beside this schema's reference counts.
    fn only_refers(&self, fields: &Map<String, Value>) -> bool {
        self.reference_alone && fields.contains_key("$ref")
    }

    fn kinds_of(&mut self, schema: &'a Value, depth: usize) -> Kinds {
        let Some(fields) = self.visit(schema, depth) else { return Kinds::ALL };
        let referred = fields.get("$ref").and_then(|reference| self.target(reference));
        let mut kinds = referred.map_or(Kinds::ALL, |target| self.kinds_of(target, depth - 1));
        if self.only_refers(fields) {
            return kinds;
        }
        kinds = kinds
            & match fields.get("type") {
                Some(Value::String(name)) => Kinds::of_type(name),
                Some(Value::Array(names)) => {
                    let of = |name: &Value| name.as_str().map_or(Kinds::ALL, Kinds::of_type);
                    names.iter().map(of).fold(Kinds::NONE, BitOr::bitor)
                }
                _ => Kinds::ALL,
            };
        if let Some(value) = fields.get("const") {
            kinds = kinds & Kinds::of(value);
        }
        if let Some(Value::Array(values)) = fields.get("enum") {
            kinds = kinds & values.iter().map(Kinds::of).fold(Kinds::NONE, BitOr::bitor);
        }
        for part in list(fields, "allOf") {
            kinds = kinds & self.kinds_of(part, depth - 1);
        }
        for keyword in ["anyOf", "oneOf"].into_iter().filter(|keyword| !list(fields, keyword).is_empty()) {
            let any = list(fields, keyword).iter().fold(Kinds::NONE, |any, part| any | self.kinds_of(part, depth - 1));
            kinds = kinds & any;
        }
        kinds
    }

    /// Adds what a schema says of the items of a list.
    fn items(&mut self, schema: &'a Value, found: &mut Vec<&'a Value>, depth: usize) {
        let Some(fields) = self.visit(schema, depth) else { return };
        if let Some(target) = fields.get("$ref").and_then(|reference| self.target(reference)) {
            self.items(target, found, depth - 1);
        }
        if self.only_refers(fields) {
            return;
        }
        if let (Some(items @ Value::Object(_)), None) = (fields.get("items"), fields.get("prefixItems")) {
            found.push(items);
        }
        list(fields, "allOf").iter().for_each(|part| self.items(part, found, depth - 1));
    }

    /// Adds what a schema says of a field.
    fn field(&mut self, schema: &'a Value, key: &str, said: &mut Said<'a>, depth: usize) {
        let Some(fields) = self.visit(schema, depth) else {
            // `true`, `false`, and what is not looked at.
            said.maybe |= !matches!(schema, Value::Bool(true));
            return;
        };
        said.maybe |= fields.contains_key("$dynamicRef") || fields.contains_key("$recursiveRef");
        if let Some(reference) = fields.get("$ref") {
            match self.target(reference) {
                Some(target) => self.field(target, key, said, depth - 1),
                None => said.maybe = true,
            }
        }
        if self.only_refers(fields) {
            return;
        }
        self.own_field(fields, key, said);
        for part in list(fields, "allOf") {
            self.field(part, key, said, depth - 1);
        }
        for keyword in ["anyOf", "oneOf"] {
            self.field_of_any(list(fields, keyword), key, said, depth);
        }
        // What holds on a condition may declare a field, and forbids none for sure.
        let conditional = ["if", "then", "else"].into_iter().filter_map(|keyword| fields.get(keyword));
        let dependent =
            ["dependentSchemas", "dependencies"].into_iter().filter_map(|keyword| fields.get(keyword)?.as_object());
        for part in conditional.chain(dependent.flat_map(|named| named.values())) {
            let mut here = Said::default();
            if part.is_object() {
                self.field(part, key, &mut here, depth - 1);
            }
            said.maybe |= here.is_known();
            said.names.extend(here.names);
        }
        match fields.get("unevaluatedProperties") {
            None => {}
            Some(_) if said.is_known() => {}
            Some(Value::Bool(false)) => said.never = true,
            Some(_) => said.maybe = true,
        }
    }

    /// What the keywords say that speak of fields themselves.
    fn own_field(&mut self, fields: &'a Map<String, Value>, key: &str, said: &mut Said<'a>) {
        let properties = fields.get("properties").and_then(Value::as_object);
        let possible = properties.into_iter().flatten().filter(|(_, schema)| **schema != Value::Bool(false));
        let before = said.names.len();
        said.names.extend(possible.map(|(name, _)| name.as_str()));
        self.visits += said.names.len() - before;
        let required = fields.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        let mut is_required = false;
        for name in required {
            is_required |= name == key;
            said.names.insert(name);
        }
        let patterns = fields.get("patternProperties").and_then(Value::as_object).is_some_and(|p| !p.is_empty());
        match (properties.and_then(|properties| properties.get(key)), fields.get("additionalProperties")) {
            (Some(Value::Bool(false)), _) => said.never = true,
            (Some(schema), _) => said.schemas.push(schema),
            // Which names a pattern means is not known here.
            (None, _) if patterns => said.maybe = true,
            (None, Some(Value::Bool(false))) => said.never = true,
            (None, Some(Value::Object(schema))) if !schema.is_empty() => {
                said.schemas.extend(fields.get("additionalProperties"));
            }
            (None, Some(_)) => said.maybe = true,
            (None, None) => said.maybe |= is_required,
        }
    }

    /// Adds what several schemas say of which one holds.
    fn field_of_any(&mut self, parts: &'a [Value], key: &str, said: &mut Said<'a>, depth: usize) {
        let mut all_never = true;
        let mut any = false;
        for part in parts {
            // What is no object has no fields.
            if !self.kinds_of(part, depth - 1).may_be(Kinds::OBJECT) {
                continue;
            }
            any = true;
            let mut here = Said::default();
            self.field(part, key, &mut here, depth - 1);
            all_never &= here.never;
            // One that names no field at all is open to every one.
            said.maybe |= !here.never && (here.is_known() || here.names.is_empty());
            said.names.extend(here.names);
        }
        said.never |= any && all_never;
    }
}

/// A keyword's list of schemas.
fn list<'a>(fields: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    fields.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What a schema says of `input.<key>`, in a word, and the names that it lists.
    fn field(schema: &Value, key: &str) -> String {
        let found = Shapes::new(schema).part(&Shape::Schemas(vec![schema]), &Access::Key(key.into()));
        let names = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(" ");
        match found {
            Found::Maybe(Shape::Any) => "maybe".into(),
            Found::Maybe(_) => "declared".into(),
            Found::Undeclared(known) => format!("undeclared: {}", names(known)),
            Found::Never(known) => format!("never: {}", names(known)),
            Found::TooFew(_) => "too few".into(),
            Found::Kinds(kinds) => kinds.words(),
        }
    }

    #[test]
    fn a_closed_schema_has_no_other_fields_and_an_open_one_may() {
        let closed = json!({"properties": {"a": {"type": "string"}, "b": false}, "additionalProperties": false});
        assert_eq!(field(&closed, "a"), "declared");
        assert_eq!(field(&closed, "b"), "never: a");
        assert_eq!(field(&closed, "c"), "never: a");
        assert_eq!(field(&json!({"properties": {"a": {}}, "required": ["b"]}), "c"), "undeclared: a b");
        assert_eq!(field(&json!({"required": ["b"]}), "b"), "maybe");
        for open in [
            json!({}),
            json!(true),
            json!({"type": "object"}),
            json!({"properties": {"a": {}}, "additionalProperties": true}),
            json!({"properties": {"a": {}}, "additionalProperties": {}}),
            json!({"properties": {"a": {}}, "patternProperties": {"^x-": {}}, "additionalProperties": false}),
            json!({"properties": {"a": {}}, "$dynamicRef": "#x"}),
            json!({"properties": {"a": {}}, "$ref": "https://json-schema.org/draft/2020-12/schema"}),
        ] {
            assert_eq!(field(&open, "c"), "maybe", "{open}");
        }
        assert_eq!(field(&json!({"additionalProperties": {"type": "number"}}), "c"), "declared");
        assert_eq!(field(&json!({"type": ["integer", "string"]}), "c"), "a number or a text");
        assert_eq!(field(&json!({"type": ["integer", "null"]}), "c"), "maybe");
    }

    #[test]
    fn parts_of_a_schema_are_taken_together() {
        let closed = json!({"properties": {"a": {}}, "additionalProperties": false});
        let open = json!({"properties": {"b": {}}});
        let with = |schema: Value| {
            let mut schema = schema;
            schema["$defs"] = json!({"closed": closed, "open": open});
            schema
        };
        let (of_closed, of_open) = (json!({"$ref": "#/$defs/closed"}), json!({"$ref": "#/$defs/open"}));
        assert_eq!(field(&with(of_closed.clone()), "c"), "never: a");
        assert_eq!(field(&with(json!({"allOf": [of_closed, of_open]})), "c"), "never: a b");
        assert_eq!(field(&with(json!({"allOf": [of_open, {"properties": {"c": {}}}]})), "c"), "declared");
        for any in ["anyOf", "oneOf"] {
            assert_eq!(field(&with(json!({any: [of_closed, of_open]})), "c"), "undeclared: a b");
            assert_eq!(field(&with(json!({any: [of_closed, {"type": "null"}]})), "c"), "never: a");
            assert_eq!(field(&with(json!({any: [of_closed, of_open]})), "b"), "maybe");
            assert_eq!(field(&with(json!({any: [of_closed, {}]})), "c"), "maybe");
        }
        let conditional =
            json!({"properties": {"a": {}}, "if": {"required": ["a"]}, "then": {"properties": {"b": {}}}});
        assert_eq!((field(&conditional, "b"), field(&conditional, "c")), ("maybe".into(), "undeclared: a b".into()));
        let unevaluated = with(json!({"allOf": [of_open], "unevaluatedProperties": false}));
        assert_eq!((field(&unevaluated, "b"), field(&unevaluated, "c")), ("declared".into(), "never: b".into()));
    }

    #[test]
    fn in_older_drafts_nothing_counts_beside_a_reference() {
        let schema = |draft: &str| {
            json!({"$schema": draft, "$ref": "#/definitions/a", "additionalProperties": false,
                   "definitions": {"a": {"properties": {"a": {}}}}})
        };
        assert_eq!(field(&schema("http://json-schema.org/draft-07/schema#"), "b"), "undeclared: a");
        assert_eq!(field(&schema("https://json-schema.org/draft/2020-12/schema"), "b"), "never: a");
    }

    #[test]
    fn a_schema_within_itself_without_end_is_unknown_soon() {
        let twice = json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "allOf": [{"$ref": "#"}, {"$ref": "#"}]});
        assert_eq!(field(&twice, "a"), "maybe");
        let list = json!({"properties": {"next": {"$ref": "#"}}, "additionalProperties": false});
        let mut shapes = Shapes::new(&list);
        let mut shape = Shape::Schemas(vec![&list]);
        for _ in 0..100 {
            let Found::Maybe(next) = shapes.part(&shape, &Access::Key("next".into())) else { panic!("it is declared") };
            shape = next;
        }
        assert!(matches!(shapes.part(&shape, &Access::Key("nxt".into())), Found::Never(_)));
    }
}
