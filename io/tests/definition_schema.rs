//! The published JSON Schema of definitions says what the check says, as far as a schema can.

mod book;

use jsonschema::{Draft, Validator};
use orbit_core::definition::Definition;
use orbit_core::definition::document::{
    MAX_ATTEMPTS, MAX_NAME_BYTES, MAX_NAMES, MAX_PARALLEL, MAX_STEP_ID_BYTES, MAX_STEPS, MAX_VERSION_BYTES,
};
use orbit_io::definition::{DOCUMENT_SCHEMA, Format, check, parse};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::LazyLock;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(DOCUMENT_SCHEMA).expect("it is JSON"));
static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| validator(&SCHEMA));

fn validator(schema: &Value) -> Validator {
    jsonschema::options().with_draft(Draft::Draft202012).build(schema).unwrap_or_else(|e| panic!("{e}"))
}

fn matches(document: &Value) -> Result<(), String> {
    let errors: Vec<String> = VALIDATOR.iter_errors(document).map(|e| format!("{}: {e}", e.instance_path())).collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

/// Whether a document passes the whole check, which is `from_document` and a look at the schemas within.
fn passes(document: &Value) -> Result<(), String> {
    check(&document.to_string(), Format::Json).map(drop).map_err(|e| e.to_string())
}

fn value(text: &str, format: Format) -> Value {
    parse(text, format).unwrap_or_else(|e| panic!("{e}")).value
}

#[test]
fn every_example_and_every_block_of_the_reference_matches() {
    let mut seen = 0;
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples")).expect("a folder") {
        let path = file.expect("the folder can be read").path();
        let text = std::fs::read_to_string(&path).expect("it is text");
        matches(&value(&text, Format::of_file(&path))).unwrap_or_else(|e| panic!("{}\n{e}", path.display()));
        seen += 1;
    }
    assert!(seen >= 4, "{seen} examples");
    let mut seen = 0;
    for (kind, text) in book::blocks(&book::page("reference/definitions.md")) {
        let Some(definition) = book::definition(&kind, &text) else { continue };
        matches(&value(&definition, Format::Yaml)).unwrap_or_else(|e| panic!("{text}\n{e}"));
        seen += 1;
    }
    assert!(seen >= 6, "{seen} blocks");
}

/// Every subschema with a `description` or `examples`, as a schema of its own beside the definitions.
fn parts<'a>(schema: &'a Value, path: &str, found: &mut Vec<(String, &'a Value)>) {
    let Value::Object(fields) = schema else { return };
    found.push((path.to_owned(), schema));
    for group in ["properties", "$defs"] {
        for (name, part) in fields.get(group).and_then(Value::as_object).into_iter().flatten() {
            parts(part, &format!("{path}/{group}/{name}"), found);
        }
    }
}

#[test]
fn each_construct_is_described_and_its_examples_and_defaults_match_it() {
    let mut found = Vec::new();
    parts(&SCHEMA, "", &mut found);
    let mut examples = 0;
    for (path, part) in found {
        let mut alone = part.clone();
        alone["$defs"] = SCHEMA["$defs"].clone();
        alone["$schema"] = SCHEMA["$schema"].clone();
        let alone = validator(&alone);
        let shown = part.get("examples").and_then(Value::as_array).into_iter().flatten();
        for example in shown.chain(part.get("default")) {
            assert!(alone.is_valid(example), "{path}: {example}");
            examples += 1;
        }
        if path.contains("/properties/") && part.get("$ref").is_none_or(|to| to != "#/$defs/retry") {
            assert!(part["description"].is_string(), "{path} is not described");
            assert!(part["examples"].is_array(), "{path} has no example");
        }
    }
    assert!(examples >= 30, "{examples} examples");
    for example in SCHEMA["examples"].as_array().expect("the whole has examples") {
        passes(example).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn the_limits_are_those_of_the_code() {
    let at = |pointer: &str| SCHEMA.pointer(pointer).unwrap_or_else(|| panic!("{pointer}")).clone();
    assert_eq!(at("/$defs/workflowName/maxLength"), json!(MAX_NAME_BYTES));
    assert_eq!(at("/$defs/taskName/maxLength"), json!(MAX_NAME_BYTES));
    assert_eq!(at("/$defs/signalName/maxLength"), json!(MAX_STEP_ID_BYTES));
    for named in ["signals", "updates", "queries"] {
        assert_eq!(at(&format!("/properties/{named}/maxProperties")), json!(MAX_NAMES), "{named}");
    }
    assert_eq!(at("/$defs/handler/maxItems"), json!(MAX_STEPS));
    assert_eq!(at("/$defs/step/properties/parallel/maximum"), json!(MAX_PARALLEL));
    assert_eq!(at("/$defs/version/maxLength"), json!(MAX_VERSION_BYTES));
    assert_eq!(at("/$defs/stepId/maxLength"), json!(MAX_STEP_ID_BYTES));
    assert_eq!(at("/properties/steps/maxItems"), json!(MAX_STEPS));
    assert_eq!(at("/$defs/retry/properties/max_attempts/maximum"), json!(MAX_ATTEMPTS));
}

/// A valid document, with one value set: at the place of a pointer, whose last part may be new.
fn with(pointer: &str, value: Value) -> Value {
    let mut document = json!({
        "name": "W", "version": "1", "input": {"type": "object"}, "timeout": "1d",
        "signals": {"go": {"payload": {"type": "object"}}},
        "updates": {"raise": {"when": "${ event.by > 0 }", "result": "${ event.by }"}},
        "queries": {"progress": "${ steps.b.output }"},
        "steps": [
            {"id": "a", "task": "t", "retry": {"max_attempts": 3}},
            {"id": "b", "compute": 1},
            {"id": "c", "sleep": "1s"},
            {"id": "d", "await": "go", "timeout": "1h"},
            {"id": "e", "for": "${ input.a }", "do": {"task": "t"}, "compensate": {"task": "u", "input": "${ output }"}},
            {"id": "f", "workflow": "V"},
            {"id": "g", "for": [1], "do": {"workflow": "V"}},
            {"id": "h", "for": [1], "do": {"compute": "${ item }"}},
            {"id": "i", "continue_as_new": null},
        ],
        "on": {
            "failure": [{"id": "x", "task": "t", "input": "${ failure.code }"}],
            "event": {"raise": [{"id": "y", "compute": "${ event }"}]},
        },
    });
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
    match document.pointer_mut(parent).expect("the parent is there") {
        Value::Array(items) => items[field.parse::<usize>().expect("a number")] = value,
        object => object[field] = value,
    }
    document
}

#[test]
fn what_a_schema_can_see_is_refused_by_both() {
    let long = "x".repeat(129);
    let wrong = [
        ("/name", json!("")),
        ("/name", json!("1st")),
        ("/name", json!("a b")),
        ("/name", json!("é")),
        ("/name", json!(long)),
        ("/name", json!(null)),
        ("/version", json!(1.0)),
        ("/version", json!("-1")),
        ("/version", json!("1\n")),
        ("/description", json!(["a"])),
        ("/input", json!("object")),
        ("/input", json!({"type": "strnig"})),
        ("/input", json!({"properties": {"a": {"required": "b"}}})),
        ("/output", json!(null)),
        ("/steps", json!([])),
        ("/steps", json!({"id": "a", "task": "t"})),
        ("/timeout", json!(30)),
        ("/timeout", json!("0s")),
        ("/timeout", json!("${ input.a }")),
        ("/signals", json!([])),
        ("/signals/1st", json!({})),
        ("/signals/a b", json!({})),
        ("/signals/", json!({})),
        ("/signals/go", json!(null)),
        ("/signals/go", json!("about")),
        ("/signals/go/payload", json!("object")),
        ("/signals/go/payload", json!({"type": "strnig"})),
        ("/signals/go/description", json!(1)),
        ("/signals/go/when", json!(true)),
        ("/updates", json!(["raise"])),
        ("/updates/raise", json!(null)),
        ("/updates/a_update_whose_name_is_longer_than_sixty_four_characters_may_be_x", json!({})),
        ("/updates/raise/payload", json!(7)),
        ("/updates/raise/when", json!("event.by > 0")),
        ("/updates/raise/when", json!(1)),
        ("/updates/raise/answer", json!(1)),
        ("/queries", json!("progress")),
        ("/queries/_q", json!(1)),
        ("/on", json!([])),
        ("/on/canceled", json!([{"id": "x", "task": "t"}])),
        ("/on/cancel", json!([])),
        ("/on/cancel", json!({"id": "z", "task": "t"})),
        ("/on/timeout", json!([{"task": "t"}])),
        ("/on/failure/0", json!({"id": "x", "await": "go"})),
        ("/on/failure/0", json!({"id": "x", "workflow": "V"})),
        ("/on/failure/0", json!({"id": "x", "continue_as_new": 1})),
        ("/on/failure/0", json!({"id": "x", "http": {}})),
        ("/on/failure/0/compensate", json!({"task": "t"})),
        ("/on/failure/0/otherwise", json!(1)),
        ("/on/event", json!([])),
        ("/on/event/raise", json!([])),
        ("/on/event/raise/0/id", json!("y-1")),
        ("/nmae", json!("W")),
        ("/steps/0", json!("a")),
        ("/steps/0/id", json!("a-b")),
        ("/steps/0/id", json!("9")),
        ("/steps/0/id", json!("x".repeat(65))),
        ("/steps/0/tusk", json!("t")),
        ("/steps/0/task", json!("")),
        ("/steps/0/task", json!("pay ments")),
        ("/steps/0/compute", json!(1)),
        ("/steps/0/sleep", json!("1s")),
        ("/steps/0/http", json!({})),
        ("/steps/0/approval", json!({})),
        ("/steps/0/compensate", json!("u")),
        ("/steps/0/compensate", json!({"input": 1})),
        ("/steps/0/compensate", json!({"task": "u", "compute": 1})),
        ("/steps/0/compensate", json!({"task": "u", "retry": 3})),
        ("/steps/0/compensate", json!({"task": "u", "timeout": "0s"})),
        ("/steps/0/compensate", json!({"task": "u", "when": true})),
        ("/steps/0/version", json!("1")),
        ("/steps/0/otherwise", json!(1)),
        ("/steps/0/do", json!({"task": "t"})),
        ("/steps/0/parallel", json!(2)),
        ("/steps/0/contract_version", json!(2)),
        ("/steps/0/after", json!("b")),
        ("/steps/1/after", json!(["a", "a"])),
        ("/steps/1/after", json!([1])),
        ("/steps/0/when", json!("input.a")),
        ("/steps/0/when", json!("a ${ true }")),
        ("/steps/0/when", json!(null)),
        ("/steps/0/timeout", json!(30)),
        ("/steps/0/timeout", json!("30")),
        ("/steps/0/timeout", json!("0s")),
        ("/steps/0/timeout", json!("1.5s")),
        ("/steps/0/timeout", json!("1m1h")),
        ("/steps/0/timeout", json!("${ input.t }s")),
        ("/steps/0/queue_timeout", json!("")),
        ("/steps/0/queue_timeout", json!("0d0h")),
        ("/steps/0/retry", json!(3)),
        ("/steps/0/retry", json!({})),
        ("/steps/0/retry/max_attempts", json!(0)),
        ("/steps/0/retry/max_attempts", json!(10_001)),
        ("/steps/0/retry/max_attempts", json!(1.5)),
        ("/steps/0/retry/max_attempts", json!("3")),
        ("/steps/0/retry/initial", json!("1")),
        ("/steps/0/retry/factor", json!(0.5)),
        ("/steps/0/retry/factor", json!(1001)),
        ("/steps/0/retry/max", json!(60)),
        ("/steps/0/retry/jitter", json!("some")),
        ("/steps/0/retry/non_retryable", json!("X")),
        ("/steps/0/retry/non_retryable", json!([404])),
        ("/steps/0/retry/attempts", json!(3)),
        ("/steps/1/input", json!({})),
        ("/steps/1/timeout", json!("1s")),
        ("/steps/1/retry", json!({"max_attempts": 2})),
        ("/steps/2/contract_version", json!("1")),
        ("/steps/2/queue_timeout", json!("1s")),
        ("/steps/2/sleep", json!(5)),
        ("/steps/2/sleep", json!("soon")),
        ("/steps/2/sleep", json!("")),
        ("/steps/1/compensate", json!({"task": "u"})),
        ("/steps/2/compensate", json!({"task": "u"})),
        ("/steps/3/await", json!("")),
        ("/steps/3/await", json!("go now")),
        ("/steps/3/await", json!(["go"])),
        ("/steps/3/timeout", json!(60)),
        ("/steps/3/input", json!(1)),
        ("/steps/3/retry", json!({"max_attempts": 2})),
        ("/steps/3/compensate", json!({"task": "u"})),
        ("/steps/4/for", json!("lines")),
        ("/steps/4/for", json!("x ${ input.a }")),
        ("/steps/4/for", json!({"a": 1})),
        ("/steps/4/for", json!(3)),
        ("/steps/4/parallel", json!(0)),
        ("/steps/4/parallel", json!(1001)),
        ("/steps/4/parallel", json!("2")),
        ("/steps/4/input", json!(1)),
        ("/steps/4/timeout", json!("1s")),
        ("/steps/4/retry", json!({"max_attempts": 2})),
        ("/steps/4/do", json!("t")),
        ("/steps/4/do", json!({})),
        ("/steps/4/do", json!({"sleep": "1s"})),
        ("/steps/4/do", json!({"await": "go"})), // which is not compensated
        ("/steps/6/do", json!({"await": "go", "otherwise": 1})),
        ("/steps/6/do", json!({"await": "go now"})),
        ("/steps/6/do", json!({"await": "go", "retry": {"max_attempts": 2}})),
        ("/steps/6/do/otherwise", json!(1)),
        ("/steps/4/do", json!({"for": [1], "do": {"task": "t"}})),
        ("/steps/4/do", json!({"task": "t", "compute": 1})),
        ("/steps/4/do", json!({"compute": "${ item }"})), // which is not compensated
        ("/steps/4/do/when", json!(true)),
        ("/steps/4/do/version", json!("1")),
        ("/steps/4/do/retry", json!({"max_attempts": 0})),
        ("/steps/4/do/queue_timeout", json!(1)),
        ("/steps/5/workflow", json!("a b")),
        ("/steps/5/workflow", json!("")),
        ("/steps/5/version", json!(2)),
        ("/steps/5/version", json!("-2")),
        ("/steps/5/timeout", json!("soon")),
        ("/steps/5/contract_version", json!("1")),
        ("/steps/5/queue_timeout", json!("1s")),
        ("/steps/5/task", json!("t")),
        ("/steps/6/do/contract_version", json!("1")),
        ("/steps/6/do/queue_timeout", json!("1s")),
        ("/steps/6/do/workflow", json!("9")),
        ("/steps/7/do/input", json!(1)),
        ("/steps/7/do/retry", json!({"max_attempts": 2})),
        ("/steps/7/do/timeout", json!("1s")),
        ("/steps/7/compensate", json!({"task": "u"})),
        ("/steps/8/input", json!(1)),
        ("/steps/8/compensate", json!({"task": "u"})),
    ];
    for (pointer, value) in wrong {
        let document = with(pointer, value.clone());
        assert!(passes(&document).is_err(), "the check takes {pointer}: {value}");
        assert!(matches(&document).is_err(), "the schema takes {pointer}: {value}");
    }
    for (pointer, field) in [("", "name"), ("", "version"), ("", "steps"), ("/steps/0", "id"), ("/steps/0", "task")] {
        let mut document = with("/steps/0/description", json!("about"));
        let fields = document.pointer_mut(pointer).and_then(Value::as_object_mut).expect("an object");
        fields.remove(field);
        assert!(Definition::from_document(&document).is_err(), "the check misses no {field}");
        assert!(matches(&document).is_err(), "the schema misses no {field}");
    }
    for (pointer, field) in [("/steps/3", "timeout"), ("/steps/4", "do"), ("/steps/4/compensate", "task")] {
        let mut document = with("/steps/3/otherwise", json!(null));
        assert!(passes(&document).is_ok() && matches(&document).is_ok(), "with all of them it is right");
        document.pointer_mut(pointer).and_then(Value::as_object_mut).expect("an object").remove(field);
        assert!(passes(&document).is_err(), "the check misses no {field}");
        assert!(matches(&document).is_err(), "the schema misses no {field}");
    }
    let many: serde_json::Map<String, Value> = (0..=MAX_NAMES).map(|n| (format!("s{n}"), json!({}))).collect();
    for field in ["/signals", "/updates", "/queries"] {
        let mut document = with(field, Value::Object(many.clone()));
        assert!(passes(&document).is_err(), "the check takes any number of {field}");
        assert!(matches(&document).is_err(), "the schema takes any number of {field}");
        document.pointer_mut(field).and_then(Value::as_object_mut).expect("an object").remove("s0");
        assert!(matches(&document).is_ok(), "the schema takes fewer of {field} than the check");
    }
    for document in [json!(null), json!([]), json!("name: W"), json!({})] {
        assert!(Definition::from_document(&document).is_err());
        assert!(matches(&document).is_err(), "{document}");
    }
}

/// One of these values, or nothing. Values are such that each is right or wrong by itself, wherever it stands.
fn one_of(values: Vec<Value>) -> impl Strategy<Value = Option<Value>> {
    prop::option::of(prop::sample::select(values))
}

fn object(fields: Vec<(&'static str, BoxedStrategy<Option<Value>>)>) -> BoxedStrategy<Value> {
    let (names, values): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
    let fields = values.prop_map(move |values| {
        let given = names.iter().zip(values).filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
        Value::Object(given.collect())
    });
    fields.boxed()
}

/// Mostly what is right, at times something else.
fn mostly(right: BoxedStrategy<Option<Value>>) -> BoxedStrategy<Option<Value>> {
    let anything = vec![
        json!(null),
        json!(true),
        json!(7),
        json!(-0.5),
        json!(""),
        json!("10s"),
        json!("x y"),
        json!("${ input.a }"),
        json!([]),
        json!(["a"]),
        json!({}),
        json!({"max_attempts": 2}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}]}),
    ];
    prop_oneof![40 => right, 1 => one_of(anything)].boxed()
}

fn documents() -> impl Strategy<Value = Value> {
    let texts = |texts: &[&str]| mostly(one_of(texts.iter().map(|text| json!(text)).collect()).boxed());
    let values = |values: Vec<Value>| mostly(one_of(values).boxed());
    let required = |value: &str| mostly(Just(Some(json!(value))).boxed());
    let durations = ["250ms", "10s", "1h30m", "2d", "1d2h3m4s5ms", "00s1ms"];
    // No delay before a retry is longer than any of `max`.
    let retry = object(vec![
        ("max_attempts", mostly(prop::sample::select(vec![1, 5, 10_000]).prop_map(|n| Some(json!(n))).boxed())),
        ("initial", texts(&["0s", "1ms", "1s"])),
        ("factor", values(vec![json!(1), json!(2.5), json!(1000)])),
        ("max", texts(&["1s", "1m", "2d"])),
        ("jitter", texts(&["full", "none"])),
        ("non_retryable", values(vec![json!([]), json!(["A", "A", ""])])),
    ]);
    let templates = [json!(null), json!(3), json!("${ input.a } or $${"), json!([{"a": "${ 1 + 1 }"}, false, "text"])];
    let schemas = [
        json!(true),
        json!({}),
        json!({"type": ["object", "null"], "properties": {"a": {"minimum": 1}}}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}, false]}),
    ];
    let step = |id: &str, kind: Vec<(&'static str, BoxedStrategy<Option<Value>>)>, after: Vec<Value>| {
        let mut fields = vec![
            ("id", required(id)),
            ("description", texts(&["", "about"])),
            ("when", values(vec![json!(true), json!("${ input.a > 1 }"), json!("${ true }\n")])),
            ("after", values(after)),
        ];
        fields.extend(kind);
        object(fields)
    };
    let retry = || prop_oneof![1 => retry.clone().prop_map(Some), 2 => Just(None)].boxed();
    let task = || {
        vec![
            ("task", required("orders.charge:v2/x")),
            ("contract_version", texts(&["1", "2.0+b", "9_a-b"])),
            ("input", values(templates.to_vec())),
            ("retry", retry()),
            ("timeout", texts(&durations)),
            ("queue_timeout", texts(&durations)),
        ]
    };
    let child = || {
        vec![
            ("workflow", required("Billing-2.x")),
            ("version", texts(&["1", "2.0+b"])),
            ("input", values(templates.to_vec())),
            ("retry", retry()),
            ("timeout", texts(&durations)),
        ]
    };
    let maybe = |object: BoxedStrategy<Value>| mostly(prop::option::of(object).boxed());
    let always = |object: BoxedStrategy<Value>| mostly(object.prop_map(Some).boxed());
    let compute = || vec![("compute", values(templates.to_vec()))];
    let sleep = vec![("sleep", texts(&["0s", "10s", "1h30m", "${ input.a }", "${ input.a }d", "${ 1 }${ 2 }"]))];
    let signal = || {
        vec![
            ("await", required("go.on-2_x")),
            ("timeout", mostly(prop::sample::select(vec![json!("1h"), json!("250ms")]).prop_map(Some).boxed())),
            ("otherwise", values(templates.to_vec())),
        ]
    };
    let each = prop_oneof![object(task()), object(child()), object(compute()), object(signal())].boxed();
    let items = || {
        vec![
            ("for", mostly(prop::sample::select(vec![json!([]), json!("${ input.a }")]).prop_map(Some).boxed())),
            ("parallel", values(vec![json!(1), json!(1000), json!(4.0)])),
            ("do", always(each.clone())),
        ]
    };
    let undone = |mut fields: Vec<(&'static str, BoxedStrategy<Option<Value>>)>| {
        fields.push(("compensate", prop_oneof![2 => Just(None), 1 => maybe(object(task()))].boxed()));
        fields
    };
    let again = vec![("continue_as_new", values(templates.to_vec()))];
    let steps = (
        step("a", undone(task()), vec![json!([])]),
        step("_b", compute(), vec![json!([]), json!(["a"])]),
        step("C9", sleep.clone(), vec![json!([]), json!(["_b", "a"])]),
        step("d", signal(), vec![json!(["a"])]),
        step("e", undone(items()), vec![json!(["a"])]),
        step("f", undone(child()), vec![json!([])]),
        step("g", again.clone(), vec![json!([])]),
    );
    // A few of them, the first always.
    let steps = (steps, prop::bits::u8::ANY).prop_map(|((a, b, c, d, e, f, g), taken)| {
        let others = [b, c, d, e, f, g].into_iter().enumerate().filter(|(n, _)| taken >> n & 1 == 1);
        let steps: Vec<Value> = std::iter::once(a).chain(others.map(|(_, step)| step)).collect();
        Some(Value::Array(steps))
    });
    // Mostly of the kinds that a handler takes.
    let handler = |ids: [&str; 2]| {
        let right = prop_oneof![
            step(ids[0], task(), vec![json!([])]),
            step(ids[0], items(), vec![json!([])]),
            step(ids[0], compute(), vec![json!([])])
        ];
        let other = prop_oneof![
            6 => step(ids[1], sleep.clone(), vec![json!([])]),
            1 => step(ids[1], signal(), vec![json!([])]),
            1 => step(ids[1], child(), vec![json!([])]),
            1 => step(ids[1], again.clone(), vec![json!([])]),
            1 => step(ids[1], undone(task()), vec![json!([])]),
        ];
        let steps = (right, prop::option::weighted(0.3, other));
        steps.prop_map(|(first, second)| Value::Array(std::iter::once(first).chain(second).collect())).boxed()
    };
    let rarely = |object: BoxedStrategy<Value>| prop_oneof![3 => Just(None), 1 => maybe(object)].boxed();
    let event = object(vec![("go.on-2_x", rarely(handler(["x1", "x2"]))), ("raise", rarely(handler(["x3", "x4"])))]);
    let on = object(vec![
        ("failure", rarely(handler(["y1", "y2"]))),
        ("cancel", rarely(handler(["y3", "y4"]))),
        ("timeout", rarely(handler(["y5", "y6"]))),
        ("event", rarely(event)),
    ]);
    let signals = object(vec![
        ("go.on-2_x", always(object(vec![("payload", values(schemas.to_vec())), ("description", texts(&["about"]))]))),
        ("spare", rarely(object(vec![]))),
    ]);
    let update = object(vec![
        ("payload", values(schemas.to_vec())),
        ("description", texts(&["about"])),
        ("when", values(vec![json!(false), json!("${ event.by > 1 }")])),
        ("result", values(templates.to_vec())),
    ]);
    object(vec![
        ("name", required("Order.Processing_2-x")),
        ("version", required("1.0.0-rc.1+5")),
        ("description", texts(&["", "about"])),
        ("input", values(schemas.to_vec())),
        ("output", values(schemas.to_vec())),
        ("timeout", texts(&durations)),
        ("signals", always(signals)),
        ("updates", always(object(vec![("raise", always(update))]))),
        ("queries", rarely(object(vec![("progress", values(templates.to_vec()))]))),
        ("on", rarely(on)),
        ("steps", steps.boxed()),
        ("result", values(templates.to_vec())),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// What the check accepts matches, and what does not match is refused. (The other way round holds for these
    /// documents alone: in others, steps may name each other wrongly, which no schema sees.)
    #[test]
    fn the_schema_and_the_check_agree(document in documents()) {
        // A step that stands in the place of another is named wrongly by its neighbours; see above.
        let (passes, matches) = (passes(&document), matches(&document));
        if passes.is_ok() {
            prop_assert!(matches.is_ok(), "{:?}", matches);
        }
        let of_names = [
            "there is no step",
            "cannot wait for itself",
            "wait for each other",
            "is shorter than",
            "there is no signal or update",
            "is taken by its handler",
        ];
        if let Err(problems) = &passes
            && !of_names.iter().any(|words| problems.contains(words))
        {
            prop_assert!(matches.is_err(), "{}", problems);
        }
    }
}

/// The test above means something only if it sees both.
#[test]
fn the_documents_that_are_compared_are_right_and_wrong_ones() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let right = (0..200).filter(|_| {
        let document = documents().new_tree(&mut runner).expect("a document").current();
        matches(&document).is_ok()
    });
    let right = right.count();
    assert!((30..170).contains(&right), "{right} of 200 are right");
}
