//! A text as a template, alone and as one expression.

use orbit_core::definition::{MAX_DEPTH, Scope, Template};
use orbit_core::execution::event::Json;
use orbit_core::id::{ExecutionId, Run, StepId, Version, WorkflowName};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

struct World {
    input: Json,
    outputs: BTreeMap<StepId, Json>,
}

static WORLD: LazyLock<World> = LazyLock::new(|| World {
    input: Json::new(json!({
        "customer": {"name": "Ada", "age": 36},
        "amount": 9_007_199_254_740_993_i64,
        "price": 2.5,
        "tags": ["a", "b", "é🦀"],
        "nothing": null,
        "big": u64::MAX,
        "small": i64::MIN,
        "lines": [{"sku": "x", "n": 2, "price": 10}, {"sku": "y", "n": 1, "price": 0.1}],
        "": {"a b": [[], {}]},
    })),
    outputs: BTreeMap::from([
        (StepId::new("paid"), Json::new(json!({"id": "ch_1", "items": [1, 2, 3], "none": null}))),
        (StepId::new("skipped"), Json::new(Value::Null)),
    ]),
});

/// Renders the text as a template, as one expression, and, where it is JSON, with all the templates in it.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    render(&json!(text));
    let plain = render(&json!(format!("${{ {text} }}")));
    // A path alone is followed without the engine; in brackets the engine follows it.
    if let (Some(plain), Some(by_engine)) = (plain, render(&json!(format!("${{ ({text}) }}")))) {
        assert_eq!(plain, by_engine, "`{text}` gives another value in brackets");
    }
    if let Ok(document) = serde_json::from_str(text) {
        render(&document);
    }
}

fn render(source: &Value) -> Option<Value> {
    let template = Template::new(source).ok()?;
    let execution = (ExecutionId::new("e-1"), WorkflowName::new("Order"), Version::new("1.0.0"));
    let scope = Scope {
        input: &WORLD.input,
        outputs: &WORLD.outputs,
        execution: &execution.0,
        workflow: &execution.1,
        version: &execution.2,
        run: Run(1),
        local: Default::default(),
    };
    let rendered = template.render(&scope);
    // What is recorded once must come out again.
    assert_eq!(template.render(&scope), rendered);
    let value = match rendered {
        Ok(value) => value,
        Err(error) => {
            assert!(!error.message.is_empty());
            return None;
        }
    };
    assert!(depth(&value) <= MAX_DEPTH, "a value nests deeper than what is stored may");
    let text = value.to_string();
    assert_eq!(serde_json::from_str::<Value>(&text).as_ref().ok(), Some(&value), "a value is read back as it was");
    Some(value)
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
