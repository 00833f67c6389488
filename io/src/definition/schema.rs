//! JSON Schemas, compiled and applied: what [`SchemaCheck`] promises to `orbit_core`.
//!
//! Drafts up to 2020-12 (which holds where a schema names none); references to other documents are refused, since a
//! definition is complete in itself. `format` is an annotation, as the draft has it.

use jsonschema::{Draft, ValidationError, Validator};
use orbit_core::definition::{Boundary, Problem, SchemaCheck, Violation, each_schema, nearest};
use orbit_core::id::DefinitionHash;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Compiled schemas, by definition and boundary: a definition never changes.
#[derive(Debug, Default)]
pub struct Schemas {
    compiled: Mutex<HashMap<(DefinitionHash, Boundary), Arc<Validator>>>,
}

impl Schemas {
    /// None compiled yet.
    pub fn new() -> Schemas {
        Schemas::default()
    }

    fn compiled(&self, key: (DefinitionHash, Boundary), schema: &Value) -> Result<Arc<Validator>, Violation> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(validator) = compiled.get(&key) {
            return Ok(validator.clone());
        }
        // A deployed schema compiled once already; if this version of Orbit cannot compile it, nothing matches it.
        let validator = compile(schema).map_err(|message| Violation { path: String::new(), message })?;
        let validator = Arc::new(validator);
        compiled.insert(key, validator.clone());
        Ok(validator)
    }
}

fn compile(schema: &Value) -> Result<Validator, String> {
    // The draft is the one that `$schema` names, else 2020-12.
    jsonschema::options().build(schema).map_err(|e| e.to_string())
}

impl SchemaCheck for Schemas {
    fn problems(&self, schema: &Value) -> Vec<Problem> {
        find_problems(schema)
    }

    fn check(
        &self,
        definition: &DefinitionHash,
        boundary: Boundary,
        schema: &Value,
        value: &Value,
    ) -> Result<(), Violation> {
        let validator = self.compiled((definition.clone(), boundary), schema)?;
        validator.validate(value).map_err(|error| Violation {
            path: error.instance_path().to_string(),
            message: shortened(error.to_string()),
        })
    }
}

/// What JSON Schema calls the types of values.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
const RIGHT: &str = "write a JSON Schema of draft 2020-12";

fn problem(path: impl Into<String>, message: impl Into<String>, hint: impl Into<String>) -> Problem {
    Problem { path: path.into(), offset: None, of_key: false, message: message.into(), hint: hint.into() }
}

/// Everything that is wrong with a schema, each where it is: by the draft's own schema of schemas, then patterns and
/// references, which no schema judges; and last what only compiling the whole shows.
fn find_problems(schema: &Value) -> Vec<Problem> {
    let meta = match Draft::default().detect(schema) {
        Draft::Draft4 => jsonschema::draft4::meta::validator(),
        Draft::Draft6 => jsonschema::draft6::meta::validator(),
        Draft::Draft7 => jsonschema::draft7::meta::validator(),
        Draft::Draft201909 => jsonschema::draft201909::meta::validator(),
        Draft::Draft202012 => jsonschema::draft202012::meta::validator(),
        _ => {
            let hint = "leave it out for draft 2020-12, `https://json-schema.org/draft/2020-12/schema`";
            return vec![problem("/$schema", format!("there is no draft {} here", schema["$schema"]), hint)];
        }
    };
    let mut problems: Vec<Problem> = Vec::new();
    for error in meta.iter_errors(schema) {
        let problem = of_meta_schema(schema, &error);
        // Some drafts ask the same in several of their parts.
        if !problems.iter().any(|known| known.path == problem.path) {
            problems.push(problem);
        }
    }
    let mut more = patterns(schema);
    more.extend(references(schema));
    more.retain(|problem| !problems.iter().any(|known| known.path == problem.path));
    problems.extend(more);
    if problems.is_empty() {
        problems.extend(compile(schema).err().map(|message| problem("", shortened(message), RIGHT)));
    }
    problems
}

/// What a draft's schema of schemas says, in words for the definition's author.
fn of_meta_schema(schema: &Value, error: &ValidationError<'_>) -> Problem {
    let path = error.instance_path().to_string();
    let found = schema.pointer(&path);
    let keyword = path.rsplit('/').next().unwrap_or_default();
    match (keyword, found) {
        // `/properties/type` is a property of that name, whose schema is no text.
        ("type", Some(Value::String(name))) if !path.ends_with("/properties/type") => {
            let hint = match nearest(name, TYPES) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("the types are {}", TYPES.join(", ")),
            };
            problem(path, format!("there is no type `{name}`"), hint)
        }
        ("items", Some(Value::Array(_))) => {
            problem(path, "`items` is one schema, of every item", "write `prefixItems` for a schema of each item")
        }
        (_, Some(Value::String(name))) if TYPES.contains(&name.as_str()) => {
            let message = format!("a schema stands here, not the text `{name}`");
            problem(path, message, format!("write `{{type: {name}}}`"))
        }
        ("", _) => problem("", shortened(error.to_string()), RIGHT),
        _ => problem(path.clone(), format!("`{keyword}`: {}", shortened(error.to_string())), RIGHT),
    }
}

/// Patterns that are no regular expressions.
fn patterns(schema: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    let refused = |pattern: &str| compile(&json!({"pattern": pattern})).err();
    each_schema(schema, &mut |path, fields| {
        let pattern = fields.get("pattern").and_then(Value::as_str).map(|pattern| (format!("{path}/pattern"), pattern));
        let of_names = fields.get("patternProperties").and_then(Value::as_object);
        let of_names = of_names.into_iter().flat_map(|schemas| schemas.keys());
        let of_names = of_names.map(|name| (format!("{path}/patternProperties/{}", escaped(name)), name.as_str()));
        for (path, pattern) in pattern.into_iter().chain(of_names) {
            if refused(pattern).is_some() {
                let hint = "write one of ECMA 262, as JavaScript has them";
                problems.push(problem(path, format!("{pattern:?} is no regular expression"), hint));
            }
        }
    });
    problems
}

/// References that lead nowhere, or out of the document.
fn references(schema: &Value) -> Vec<Problem> {
    let mut found: Vec<(String, &str)> = Vec::new();
    let mut anchors = Vec::new();
    let mut has_ids = false;
    each_schema(schema, &mut |path, fields| {
        if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
            found.push((format!("{path}/$ref"), target));
        }
        has_ids |= ["$id", "id"].iter().any(|id| fields.get(*id).is_some_and(Value::is_string));
        let named = ["$anchor", "$dynamicAnchor"].into_iter().filter_map(|key| fields.get(key)?.as_str());
        anchors.extend(named);
    });
    // An id changes what is meant by a reference: then compiling the whole has to tell.
    if has_ids {
        return Vec::new();
    }
    let lost = |(path, target): &(String, &str)| {
        if let Some(pointer) = target.strip_prefix('#') {
            let decoded = percent_decoded(pointer);
            let there = decoded.is_empty() || schema.pointer(&decoded).is_some() || anchors.contains(&pointer);
            return (!there).then(|| {
                let (parent, name) = decoded.rsplit_once('/').unwrap_or(("", &decoded));
                let named = schema.pointer(parent).and_then(Value::as_object);
                let near = nearest(name, named.into_iter().flat_map(|n| n.keys()).map(String::as_str));
                let known = named_schemas(schema);
                let hint = match (near, nearest(name, known.iter().map(|(_, name)| name.as_str()))) {
                    (Some(name), _) => format!("did you mean `#{parent}/{name}`?"),
                    (None, Some(near)) => {
                        let place = known.iter().find(|(_, name)| *name == near).map_or("", |(place, _)| *place);
                        format!("did you mean `#/{place}/{near}`?")
                    }
                    (None, None) if known.is_empty() => {
                        "put the schema under `$defs`, and write `#/$defs/<name>`".to_owned()
                    }
                    (None, None) => {
                        let some: Vec<_> = known.iter().take(8).map(|(at, name)| format!("`#/{at}/{name}`")).collect();
                        format!("there is {}", some.join(", "))
                    }
                };
                problem(path.clone(), format!("`{target}` leads nowhere"), hint)
            });
        }
        let of_drafts = ["http://json-schema.org/", "https://json-schema.org/"];
        (!of_drafts.iter().any(|known| target.starts_with(known))).then(|| {
            let hint = "a definition is complete in itself: put the schema under `$defs`, and write `#/$defs/<name>`";
            problem(path.clone(), format!("`{target}` is in another document"), hint)
        })
    };
    found.iter().filter_map(lost).collect()
}

/// The schemas that references can name, each with the keyword that it stands under.
fn named_schemas(schema: &Value) -> Vec<(&'static str, &String)> {
    let under = |keyword: &'static str| {
        let named = schema.get(keyword).and_then(Value::as_object);
        named.into_iter().flat_map(|named| named.keys()).map(move |name| (keyword, name))
    };
    ["$defs", "definitions"].into_iter().flat_map(under).collect()
}

/// A key as a part of a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// A fragment of a URI as text; what is not right in it stays.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let code = (*first == b'%').then(|| others.get(..2)).flatten();
        let code = code.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &others[2..] } else { others };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// A message that shows the value, as far as a person reads it: values may have a mebibyte.
fn shortened(message: String) -> String {
    const SHOWN: usize = 400;
    // What is wrong stands at the end, behind the value.
    match (message.char_indices().nth(SHOWN), message.char_indices().nth_back(SHOWN / 2 - 1)) {
        (Some(_), Some((end, _))) => {
            let begin = message.char_indices().nth(SHOWN / 2).map_or(0, |(at, _)| at);
            format!("{} … {}", &message[..begin], &message[end..])
        }
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: Value, value: Value) -> Result<(), Violation> {
        Schemas::new().check(&"sha256:x".into(), Boundary::Input, &schema, &value)
    }

    #[test]
    fn a_violation_names_the_place_and_what_is_wrong() {
        let schema = json!({"type": "object", "properties": {"amount": {"type": "number", "exclusiveMinimum": 0}}});
        assert_eq!(check(schema.clone(), json!({"amount": 1})), Ok(()));
        let violation = check(schema, json!({"amount": 0})).expect_err("zero is too small");
        assert_eq!(violation.path, "/amount");
        assert!(violation.message.contains('0'), "{violation:?}");
    }

    #[test]
    fn a_large_value_is_shown_in_part_and_what_is_wrong_with_it_whole() {
        let violation = check(json!({"type": "integer"}), json!("é".repeat(100_000))).expect_err("it is a string");
        assert!(violation.message.chars().count() < 500, "{violation:?}");
        assert!(violation.message.ends_with(r#" is not of type "integer""#), "{violation:?}");
        let violation = check(json!({"type": "integer"}), json!("é".repeat(100))).expect_err("it is a string");
        assert!(!violation.message.contains('…'), "{violation:?}");
    }

    #[test]
    fn integers_past_two_to_the_53rd_are_told_apart() {
        let schema = json!({"const": 9_007_199_254_740_993_u64});
        assert_eq!(check(schema.clone(), json!(9_007_199_254_740_993_u64)), Ok(()));
        assert!(check(schema, json!(9_007_199_254_740_992_u64)).is_err());
    }

    /// Path, message and hint of each problem.
    fn told(schema: Value) -> Vec<String> {
        let problems = Schemas::new().problems(&schema);
        problems.into_iter().map(|p| format!("{}: {} ({})", p.path, p.message, p.hint)).collect()
    }

    #[test]
    fn everything_that_is_wrong_with_a_schema_is_told_at_once_where_it_is() {
        let problems = told(json!({
            "type": "objct",
            "required": "a",
            "properties": {"a": {"type": "string", "minLength": -1}, "b": {"pattern": "[a"}, "c": "number"},
            "patternProperties": {"(/": {}},
            "anyOf": [{"$ref": "#/$defs/on"}, {"$ref": "https://example.com/schema.json"}],
            "allOf": [{"$ref": "#/oen"}, {"$ref": "#/zebra"}],
            "$defs": {"one": {"items": [{"type": "text"}]}},
        }));
        let expected = [
            "/$defs/one/items: `items` is one schema, of every item (write `prefixItems` for a schema of each item)",
            "/allOf/0/$ref: `#/oen` leads nowhere (did you mean `#/$defs/one`?)",
            "/allOf/1/$ref: `#/zebra` leads nowhere (there is `#/$defs/one`)",
            "/anyOf/0/$ref: `#/$defs/on` leads nowhere (did you mean `#/$defs/one`?)",
            "/anyOf/1/$ref: `https://example.com/schema.json` is in another document (a definition is complete in \
             itself: put the schema under `$defs`, and write `#/$defs/<name>`)",
            "/patternProperties/(~1: \"(/\" is no regular expression (write one of ECMA 262, as JavaScript has them)",
            "/properties/a/minLength: `minLength`: -1 is less than the minimum of 0 (write a JSON Schema of draft 2020-12)",
            "/properties/b/pattern: \"[a\" is no regular expression (write one of ECMA 262, as JavaScript has them)",
            "/properties/c: a schema stands here, not the text `number` (write `{type: number}`)",
            "/required: `required`: \"a\" is not of type \"array\" (write a JSON Schema of draft 2020-12)",
            "/type: there is no type `objct` (did you mean `object`?)",
        ];
        let mut problems = problems;
        problems.sort();
        assert_eq!(problems, expected);
    }

    #[test]
    fn what_is_a_schema_has_no_problem() {
        for schema in [
            json!(true),
            json!({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": ["string", "null"]}}}),
            json!({"$ref": "#there", "$defs": {"a": {"$anchor": "there", "pattern": "^a+$"}}}),
            json!({"properties": {"type": {"type": "string"}, "pattern": {"const": "[a"}}}),
            json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}),
            json!({"$id": "urn:a", "$defs": {"b": {"$id": "urn:b"}}, "$ref": "urn:b"}),
        ] {
            assert_eq!(told(schema.clone()), [""; 0], "{schema}");
        }
    }

    #[test]
    fn a_schema_is_read_by_the_draft_that_it_names() {
        let pair = |draft: &str| json!({"$schema": draft, "items": [{"type": "string"}, {"type": "number"}]});
        let older = pair("http://json-schema.org/draft-07/schema#");
        assert_eq!(told(older.clone()), [""; 0]);
        assert_eq!(check(older.clone(), json!(["a", 1])), Ok(()));
        assert!(check(older, json!([1, "a"])).is_err());
        assert!(!told(pair("https://json-schema.org/draft/2020-12/schema")).is_empty());
        assert!(told(pair("https://example.com/my-own-draft"))[0].starts_with("/$schema: there is no draft"));
        assert!(!told(json!({"items": [{"type": "string"}]})).is_empty());
    }

    #[test]
    fn a_hostile_pattern_does_not_hang() {
        let value = json!("a".repeat(5_000) + "!");
        assert!(check(json!({"pattern": "^(a+)+$"}), value).is_err());
    }
}
