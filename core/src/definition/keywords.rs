//! The keywords of JSON Schema: which there are, and which of them hold schemas.
//!
//! JSON Schema takes any other key for a note, so that a misspelt keyword checks nothing and nobody is told: hence a
//! warning (and no refusal, since notes are allowed).

use super::document::join;
use super::nearest::nearest;
use super::problem::Problem;
use serde_json::{Map, Value};

/// What stands under a keyword.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// No schema.
    Other,
    /// A schema.
    Schema,
    /// Schemas by name. What is no schema there (`dependencies` also has lists of names) is passed over.
    Named,
    /// A list of schemas; of `items` in older drafts a list or one.
    List,
}

/// Every keyword of the drafts from 4 to 2020-12.
const KEYWORDS: &[(&str, Holds)] = &[
    ("$anchor", Holds::Other),
    ("$comment", Holds::Other),
    ("$defs", Holds::Named),
    ("$dynamicAnchor", Holds::Other),
    ("$dynamicRef", Holds::Other),
    ("$id", Holds::Other),
    ("$recursiveAnchor", Holds::Other),
    ("$recursiveRef", Holds::Other),
    ("$ref", Holds::Other),
    ("$schema", Holds::Other),
    ("$vocabulary", Holds::Other),
    ("additionalItems", Holds::Schema),
    ("additionalProperties", Holds::Schema),
    ("allOf", Holds::List),
    ("anyOf", Holds::List),
    ("const", Holds::Other),
    ("contains", Holds::Schema),
    ("contentEncoding", Holds::Other),
    ("contentMediaType", Holds::Other),
    ("contentSchema", Holds::Schema),
    ("default", Holds::Other),
    ("definitions", Holds::Named),
    ("dependencies", Holds::Named),
    ("dependentRequired", Holds::Other),
    ("dependentSchemas", Holds::Named),
    ("deprecated", Holds::Other),
    ("description", Holds::Other),
    ("else", Holds::Schema),
    ("enum", Holds::Other),
    ("examples", Holds::Other),
    ("exclusiveMaximum", Holds::Other),
    ("exclusiveMinimum", Holds::Other),
    ("format", Holds::Other),
    ("id", Holds::Other),
    ("if", Holds::Schema),
    ("items", Holds::List),
    ("maxContains", Holds::Other),
    ("maxItems", Holds::Other),
    ("maxLength", Holds::Other),
    ("maxProperties", Holds::Other),
    ("maximum", Holds::Other),
    ("minContains", Holds::Other),
    ("minItems", Holds::Other),
    ("minLength", Holds::Other),
    ("minProperties", Holds::Other),
    ("minimum", Holds::Other),
    ("multipleOf", Holds::Other),
    ("not", Holds::Schema),
    ("oneOf", Holds::List),
    ("pattern", Holds::Other),
    ("patternProperties", Holds::Named),
    ("prefixItems", Holds::List),
    ("properties", Holds::Named),
    ("propertyNames", Holds::Schema),
    ("readOnly", Holds::Other),
    ("required", Holds::Other),
    ("then", Holds::Schema),
    ("title", Holds::Other),
    ("type", Holds::Other),
    ("unevaluatedItems", Holds::Schema),
    ("unevaluatedProperties", Holds::Schema),
    ("uniqueItems", Holds::Other),
    ("writeOnly", Holds::Other),
];

/// Notes that other tools have agreed on (OpenAPI).
const NOTES: &[&str] = &["discriminator", "example", "externalDocs", "nullable", "xml"];

/// Visits a schema and every schema in it, each that is an object with its JSON pointer.
///
/// The document bounds how deep schemas lie within each other.
pub fn each_schema<'s>(schema: &'s Value, visit: &mut dyn FnMut(&str, &'s Map<String, Value>)) {
    walk(schema, "", visit);
}

fn walk<'s>(schema: &'s Value, path: &str, visit: &mut dyn FnMut(&str, &'s Map<String, Value>)) {
    let Value::Object(fields) = schema else { return };
    visit(path, fields);
    for (keyword, value) in fields {
        let Some((_, holds)) = KEYWORDS.iter().find(|(known, _)| known == keyword) else { continue };
        let path = join(path, keyword);
        match (holds, value) {
            (Holds::Schema, value) | (Holds::List, value @ Value::Object(_)) => walk(value, &path, visit),
            (Holds::Named, Value::Object(named)) => {
                named.iter().for_each(|(name, schema)| walk(schema, &join(&path, name), visit));
            }
            (Holds::List, Value::Array(items)) => {
                items.iter().enumerate().for_each(|(at, item)| walk(item, &join(&path, &at.to_string()), visit));
            }
            _ => {}
        }
    }
}

/// A warning for each key of a schema that is no keyword, no note that others know, and does not begin with `x-`.
pub(super) fn unknown_keywords(schema: &Value) -> Vec<Problem> {
    let known = |key: &str| KEYWORDS.iter().any(|(known, _)| *known == key) || NOTES.contains(&key);
    let mut warnings = Vec::new();
    each_schema(schema, &mut |path, fields| {
        for key in fields.keys().filter(|key| !known(key) && !key.starts_with("x-")) {
            let hint = match nearest(key, KEYWORDS.iter().map(|(keyword, _)| *keyword)) {
                Some(keyword) => format!("did you mean `{keyword}`?"),
                None => format!("remove it, or call a note of your own `x-{key}`"),
            };
            let message = format!("`{key}` is no keyword of JSON Schema: it checks nothing");
            warnings.push(Problem { path: join(path, key), offset: None, of_key: true, message, hint });
        }
    });
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn warned(schema: Value) -> Vec<(String, String)> {
        unknown_keywords(&schema).into_iter().map(|warning| (warning.path, warning.hint)).collect()
    }

    #[test]
    fn a_misspelt_keyword_is_warned_of_with_the_one_that_was_meant_wherever_a_schema_stands() {
        let schema = json!({
            "requird": ["a"],
            "properties": {"requird": {"minlength": 1}, "b": {"anyOf": [{"tpye": "string"}, true]}},
            "items": {"optional": true},
            "dependencies": {"a": ["b"], "c": {"Const": 1}},
        });
        let expected = [
            ("/requird", "did you mean `required`?"),
            ("/dependencies/c/Const", "did you mean `const`?"),
            ("/items/optional", "remove it, or call a note of your own `x-optional`"),
            ("/properties/b/anyOf/0/tpye", "did you mean `type`?"),
            ("/properties/requird/minlength", "did you mean `minLength`?"),
        ];
        let mut expected: Vec<_> = expected.map(|(path, hint)| (path.to_owned(), hint.to_owned())).into();
        let mut found = warned(schema);
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_schema_may_hold_anything() {
        let schema = json!({
            "const": {"requird": 1}, "enum": [{"requird": 1}], "default": {"requird": 1}, "examples": [{"requird": 1}],
            "x-requird": 1, "nullable": true, "title": "t", "additionalProperties": false,
        });
        assert_eq!(warned(schema), []);
        assert_eq!(warned(json!(true)), []);
    }
}
