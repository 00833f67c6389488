//! Texts that look like expressions, and are none: `input.amount`, `{{ input.amount }}`, `$input.amount`.
//!
//! They are what other systems read. Here they are passed on as they stand, so that nobody is told: hence a warning (and
//! no refusal, since a text may say anything).

use super::{Problems, join};
use crate::definition::problem::Spot;
use serde_json::Value;

/// Names that texts are looked through for. The others are words of every day.
const ROOTS: &[&str] = &["input", "steps"];
/// Those that may stand between braces.
const BRACED: &[&str] = &["input", "steps", "item", "event", "execution"];

/// Warns of each such text in a value without expressions.
pub(super) fn of_constant(value: &Value, path: &str, problems: &mut Problems) {
    match value {
        Value::String(text) => of_text(text, path, true, problems),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| of_constant(item, &join(path, &at.to_string()), problems));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| of_constant(field, &join(path, name), problems));
        }
        _ => {}
    }
}

/// Warns of what looks like an expression in a text; `whole` if nothing stands beside it.
pub(super) fn of_text(text: &str, path: &str, whole: bool, problems: &mut Problems) {
    let found = [whole.then(|| bare(text)).flatten(), braced(text), dollar(text)].into_iter().flatten().next();
    if let Some((written, meant)) = found {
        let message = format!("`{written}` is passed on as text: it reads nothing");
        problems.warn(Spot::from(path), message, || format!("write `${{ {meant} }}`"));
    }
}

/// `input.amount` alone.
fn bare(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    (path_at(text)? == text).then_some((text, text))
}

/// `{{ input.amount }}` somewhere.
fn braced(text: &str) -> Option<(&str, &str)> {
    let (at, _) = text.match_indices("{{").find(|(at, _)| {
        let inner = text[at + 2..].trim_start();
        BRACED
            .iter()
            .any(|root| inner.strip_prefix(root).is_some_and(|rest| rest.starts_with(['.', '[', ' ', '}', '|'])))
    })?;
    let end = at + text[at..].find("}}")?;
    Some((&text[at..end + 2], text[at + 2..end].trim()))
}

/// `$input.amount` or `$(input.amount)` somewhere.
fn dollar(text: &str) -> Option<(&str, &str)> {
    text.match_indices('$').find_map(|(at, _)| {
        let rest = &text[at + 1..];
        let within = rest.strip_prefix('(').unwrap_or(rest);
        let meant = path_at(within)?;
        let end = text.len() - within.len() + meant.len();
        let end = if within.len() < rest.len() && text[end..].starts_with(')') { end + 1 } else { end };
        Some((&text[at..end], meant))
    })
}

/// The path that a text begins with: one of the roots, and something of it.
fn path_at(text: &str) -> Option<&str> {
    let root = ROOTS.iter().find(|root| text.strip_prefix(**root).is_some_and(|rest| rest.starts_with('.')))?;
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "_.[]".contains(c);
    let path = &text[..text.find(|c| !is_of_path(c)).unwrap_or(text.len())];
    // What ends a sentence is no part of it.
    let path = path.trim_end_matches('.');
    let has_field = path.len() > root.len() + 1 && !path.contains("..");
    (has_field && (*root != "steps" || path.contains(".output"))).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{AnySchema, Definition};
    use serde_json::json;

    fn warned(input: Value) -> Vec<String> {
        let document = json!({"name": "W", "version": "1", "steps": [{"id": "a", "task": "t", "input": input}]});
        let checked = Definition::check(&document, &AnySchema);
        assert!(checked.definition.is_ok(), "a text may say anything: {:?}", checked.definition);
        checked.warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_text_that_other_systems_would_read_as_an_expression_is_warned_of_with_how_it_is_written_here() {
        for (text, written, meant) in [
            ("input.amount", "input.amount", "input.amount"),
            (" input.lines[0].sku ", "input.lines[0].sku", "input.lines[0].sku"),
            ("steps.charge.output.id", "steps.charge.output.id", "steps.charge.output.id"),
            ("Dear {{ input.name }},", "{{ input.name }}", "input.name"),
            ("{{item}}", "{{item}}", "item"),
            ("{{ event.by | upper }}", "{{ event.by | upper }}", "event.by | upper"),
            ("for $input.name.", "$input.name", "input.name"),
            ("$(steps.a.output)", "$(steps.a.output)", "steps.a.output"),
        ] {
            let expected = format!(
                "/steps/0/input/x/1: `{written}` is passed on as text: it reads nothing (write `${{ {meant} }}`)"
            );
            assert_eq!(warned(json!({"x": [1, text]})), [expected], "{text}");
        }
        assert_eq!(
            warned(json!("${ input.a } and {{ input.b }}")),
            ["/steps/0/input: `{{ input.b }}` is passed on as text: it reads nothing (write `${ input.b }`)"]
        );
    }

    #[test]
    fn what_merely_has_such_words_in_it_is_text() {
        for text in [
            "input",
            "the input.",
            "input.amount is missing",
            "steps.a",
            "item.sold",
            "event.created",
            "{{ name }}",
            "$input",
            "$5",
            "{{",
            "$${ input.x }",
            "inputs.a",
            "{{ inputs.a }}",
            "input..",
            "input. ",
            "{{ input.a",
        ] {
            assert_eq!(warned(json!(text)), Vec::<String>::new(), "{text}");
        }
    }
}
