use super::*;
use crate::definition::{Jitter, RetryPolicy, StepKind};
use proptest::prelude::*;
use serde_json::json;
use std::time::Duration;

fn checked(document: &Value) -> Definition {
    Definition::from_document(document).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// The problems as `path: message (hint)`.
fn problems(document: Value) -> Vec<String> {
    let problems = Definition::from_document(&document).expect_err("the document has problems");
    problems.iter().map(Problem::to_string).collect()
}

/// The one problem of a workflow with these steps.
fn problem(steps: Value) -> String {
    let mut found = problems(json!({"name": "W", "version": "1", "steps": steps}));
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

fn full() -> Value {
    json!({
        "name": "OrderProcessing",
        "version": "1.0.0",
        "description": "An order from its arrival to its shipment.",
        "input": {"type": "object", "required": ["order_id"]},
        "output": {"type": "object"},
        "steps": [
            {"id": "validate", "task": "orders.validate", "input": {"order": "${ input }"}},
            {"id": "charge", "description": "Takes the money.", "task": "payments.charge", "contract_version": "2",
             "after": ["validate"], "when": "${ input.amount > 0 }",
             "input": {"order": "${ steps.validate.output.id }"},
             "retry": {"max_attempts": 5, "initial": "500ms", "factor": 1.5, "max": "1m", "jitter": "none",
                       "non_retryable": ["CARD_DECLINED"]},
             "timeout": "30s", "queue_timeout": "10m"},
            {"id": "pause", "sleep": "1h30m"},
            {"id": "until", "sleep": "${ input.minutes }m"},
            {"id": "sum", "after": [], "compute": {"total": "${ input.amount * 2 }"}},
        ],
        "result": {"charge": "${ steps.charge.output.id }", "total": "${ steps.sum.output.total }"},
    })
}

#[test]
fn a_document_with_everything_becomes_a_definition() {
    let definition = checked(&full());
    assert_eq!(definition.name.as_str(), "OrderProcessing");
    assert_eq!(definition.version.as_str(), "1.0.0");
    assert_eq!(definition.input_schema, Some(json!({"type": "object", "required": ["order_id"]})));
    assert_eq!(definition.document, full());
    assert!(definition.hash.as_str().starts_with("sha256:"));
    let charge = definition.step("charge").expect("the step is there");
    let StepKind::Task(task) = &charge.kind else { panic!("{:?}", charge.kind) };
    assert_eq!(task.task.as_str(), "payments.charge");
    assert_eq!(task.contract_version.as_str(), "2");
    assert_eq!(task.timeout, Some(Duration::from_secs(30)));
    assert_eq!(task.queue_timeout, Some(Duration::from_secs(600)));
    let retry = RetryPolicy {
        max_attempts: 5,
        initial: Duration::from_millis(500),
        factor_milli: 1500,
        max: Duration::from_secs(60),
        jitter: Jitter::None,
        non_retryable: vec!["CARD_DECLINED".into()],
    };
    assert_eq!(task.retry, retry);
    assert!(matches!(definition.step("pause").map(|s| &s.kind), Some(StepKind::Sleep(_))));
    assert!(matches!(definition.step("sum").map(|s| &s.kind), Some(StepKind::Compute(_))));
}

#[test]
fn what_is_left_out_has_its_default() {
    let definition = checked(&json!({"name": "W", "version": "1", "steps": [{"id": "a", "task": "t"}]}));
    let StepKind::Task(task) = &definition.steps[0].kind else { panic!("a task") };
    assert_eq!(task.contract_version.as_str(), "1");
    assert_eq!(task.retry, RetryPolicy::once());
    assert_eq!((task.timeout, task.queue_timeout), (None, None));
    assert_eq!(task.input.source(), &Value::Null);
    assert_eq!(definition.result, None);
}

#[test]
fn a_step_waits_for_the_one_written_before_it_unless_it_says_otherwise() {
    let steps = json!([
        {"id": "a", "task": "t"}, {"id": "b", "task": "t"}, {"id": "c", "task": "t", "after": ["a"]},
        {"id": "d", "task": "t", "after": []}, {"id": "e", "task": "t", "after": ["c", "b"]},
    ]);
    let definition = checked(&json!({"name": "W", "version": "1", "steps": steps}));
    let after: Vec<Vec<&str>> =
        definition.steps.iter().map(|s| s.after.iter().map(crate::id::StepId::as_str).collect()).collect();
    assert_eq!(after, [vec![], vec!["a"], vec!["a"], vec![], vec!["c", "b"]]);
}

#[test]
fn every_problem_is_told_at_once() {
    let found = problems(json!({
        "nmae": "W", "version": 1.0, "output": 3,
        "steps": [
            {"id": "a b", "task": "t"},
            {"id": "b", "task": "t", "after": ["x"], "retry": {"max_attempts": 0, "jitter": "some"}, "timeout": 30},
            {"id": "b", "compute": "${ inptu }", "timeout": "1s"},
        ],
        "result": "${ steps.bb.output }",
    }));
    assert_eq!(
        found,
        [
            "/nmae: a definition has no field `nmae` (did you mean `name`?)",
            "the document: a definition needs `name` (add `name`: the workflow's name)",
            "/version: must be a text, not a number (write it in quotes: \"1.0\")",
            "/output: must be a JSON Schema, not a number (write an object, such as `{type: object, required: [order_id]}`)",
            "/steps/0/id: the id of a step cannot hold ' ' (the id of a step begins with a letter or `_` and goes on with \
             letters, digits and `_`, at most 64 characters)",
            "/steps/1/retry/max_attempts: must be a whole number from 1 to 10000, not 0 (write a number from 1 to 10000)",
            "/steps/1/retry/jitter: `jitter` is `none` or `full` (`full` spreads retries over the whole delay, `none` \
             waits exactly as long)",
            "/steps/1/timeout: a duration needs its unit; 30 has none (write `30s` or `30ms`)",
            "/steps/2/timeout: `timeout` is only for steps with a `task`, `workflow` or `await` (remove it: a `compute` step is done by the \
             server itself)",
            "/steps/2/compute: `${ inptu }`: nothing is called `inptu` (did you mean `input`?)",
            "/steps/2/id: the id `b` is taken by step 2 already (give each step an id of its own)",
            "/steps/1/after/0: there is no step `x` (the steps are b)",
            "/result: there is no step `bb` to read from (the steps are b)",
        ]
    );
}

#[test]
fn a_document_that_is_no_object_says_so() {
    assert_eq!(
        problems(json!([])),
        ["the document: a definition must be an object with fields, not a list (write `field: value` lines)"]
    );
    assert!(
        problems(json!({"name": "W", "version": "1", "steps": {}}))[0]
            .contains("must be a list of steps, not an object")
    );
    assert!(problems(json!({"name": "W", "version": "1", "steps": []}))[0].contains("at least one step"));
    assert!(problem(json!(["a"])).contains("a step must be an object with fields, not a text"));
}

#[test]
fn names_outside_their_alphabets_are_refused() {
    let name =
        |name: &str| problems(json!({"name": name, "version": "1", "steps": [{"id": "a", "task": "t"}]})).remove(0);
    assert!(name("").contains("must not be empty"));
    assert!(name("1x").contains("cannot begin with '1'"));
    assert!(name("a/b").contains("cannot hold '/'"));
    assert!(name("ä").contains("letters, digits"));
    assert!(name(&"a".repeat(129)).contains("129 characters"));
    assert!(problem(json!([{"id": "a-b", "task": "t"}])).contains("cannot hold '-'"));
    assert!(problem(json!([{"id": "a", "task": "a task"}])).contains("cannot hold ' '"));
    assert!(problem(json!([{"id": "a", "task": "t", "contract_version": 1}])).contains("in quotes: \"1\""));
}

#[test]
fn a_step_does_exactly_one_thing() {
    assert!(problem(json!([{"id": "a"}])).contains("`for`, `workflow` and `continue_as_new`"));
    assert!(problem(json!([{"id": "a", "task": "t", "sleep": "1s"}])).contains("this one has `task` and `sleep`"));
    for later in ["http", "approval"] {
        let found = problem(json!([{"id": "a", (later): {}}]));
        assert!(found.starts_with(&format!("/steps/0/{later}: `{later}` is not supported in this version")), "{found}");
    }
    assert!(problem(json!([{"id": "a", "tsk": "t", "task": "t"}])).contains("did you mean `task`?"));
}

#[test]
fn a_field_as_other_systems_call_it_is_told_as_it_is_called_here() {
    for (field, here) in [
        ("if", "when"),
        ("depends_on", "after"),
        ("needs", "after"),
        ("wait", "sleep"),
        ("delay", "sleep"),
        ("run", "task"),
        ("with", "input"),
        ("retries", "retry"),
        ("name", "id"),
    ] {
        let found = problem(json!([{"id": "a", "task": "t", (field): "x"}]));
        assert_eq!(found, format!("/steps/0/{field}: a step has no field `{field}` (did you mean `{here}`?)"));
    }
    let found = problem(json!([{"id": "a", "task": "t", "retry": {"max_attempts": 2, "delay": "1s"}}]));
    assert!(found.contains("(did you mean `initial`?)"), "{found}");
}

#[test]
fn a_step_that_does_two_things_is_told_what_is_wrong_with_both() {
    let step = json!({"id": "a", "task": "a task", "sleep": 5, "input": "${ inptu }", "timeout": 30});
    let found = problems(json!({"name": "W", "version": "1", "steps": [step]}));
    assert_eq!(found.len(), 5, "{found:#?}");
    for expected in ["this one has `task` and `sleep`", "cannot hold ' '", "write `5s`", "`inptu`", "write `30s`"] {
        assert!(found.iter().any(|found| found.contains(expected)), "{expected}: {found:#?}");
    }
}

#[test]
fn a_duration_that_is_none_is_told_as_it_was_meant() {
    let sleep = |text: &str| problem(json!([{"id": "a", "sleep": text}]));
    assert!(sleep("30m1h").contains("\"30m1h\" is no duration (write `1h30m`)"));
    assert!(sleep("1.5s").contains("(write `1s500ms`)"));
    assert!(sleep("soon").contains("(whole numbers with d, h, m, s, ms"));
}

#[test]
fn a_condition_without_expression_signs_is_noticed() {
    assert!(problem(json!([{"id": "a", "task": "t", "when": "input.x > 0"}])).contains("write `${ input.x > 0 }`"));
    assert!(problem(json!([{"id": "a", "task": "t", "when": "a ${ input.x }"}])).contains("one expression"));
    assert!(problem(json!([{"id": "a", "task": "t", "when": 1}])).contains("one expression"));
    checked(&json!({"name": "W", "version": "1", "steps": [{"id": "a", "task": "t", "when": false}]}));
}

#[test]
fn durations_need_units_and_limits_need_time() {
    assert!(problem(json!([{"id": "a", "sleep": 10}])).contains("write `10s` or `10ms`"));
    assert!(problem(json!([{"id": "a", "sleep": "ten"}])).contains("\"ten\" is no duration"));
    assert!(problem(json!([{"id": "a", "sleep": ["1s"]}])).contains("must be a duration, not a list"));
    assert!(problem(json!([{"id": "a", "task": "t", "timeout": "0s"}])).contains("longer than zero"));
    assert!(problem(json!([{"id": "a", "task": "t", "timeout": "${ input.x }"}])).contains("is no duration"));
    assert!(problem(json!([{"id": "a", "task": "t", "queue_timeout": "584542046091d"}])).contains("is no duration"));
}

#[test]
fn a_retry_policy_is_checked() {
    let retry = |retry: Value| problem(json!([{"id": "a", "task": "t", "retry": retry}]));
    assert!(retry(json!({})).contains("`retry` needs `max_attempts`"));
    assert!(retry(json!(3)).contains("must be an object"));
    assert!(retry(json!({"max_attempts": 2, "inital": "1s"})).contains("did you mean `initial`?"));
    assert!(retry(json!({"max_attempts": 2.5})).contains("not 2.5"));
    let hash = |attempts: Value| {
        let steps = json!([{"id": "a", "task": "t", "retry": {"max_attempts": attempts}}]);
        Definition::from_document(&json!({"name": "N", "version": "1", "steps": steps})).expect("valid").hash
    };
    assert_eq!(hash(json!(2.0)), hash(json!(2)), "one number, one definition");
    assert!(retry(json!({"max_attempts": 2, "factor": 0.5})).contains("from 1 to 1000"));
    assert!(retry(json!({"max_attempts": 2, "initial": "2s", "max": "1s"})).contains("shorter than `initial`"));
    assert!(retry(json!({"max_attempts": 2, "non_retryable": "X"})).contains("[CARD_DECLINED]"));
    let policy = |retry: Value| {
        let steps = json!([{"id": "a", "task": "t", "retry": retry}]);
        match checked(&json!({"name": "W", "version": "1", "steps": steps})).steps.remove(0).kind {
            StepKind::Task(task) => task.retry,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(policy(json!({"max_attempts": 2, "initial": "5m"})).max, Duration::from_secs(300));
    assert_eq!(policy(json!({"max_attempts": 2, "max": "100ms"})).initial, Duration::from_millis(100));
}

#[test]
fn after_names_steps_that_exist_once() {
    assert!(problem(json!([{"id": "a", "task": "t"}, {"id": "b", "task": "t", "after": "a"}])).contains("write `[a]`"));
    let validate = json!({"id": "validate", "task": "t"});
    assert!(
        problem(json!([validate, {"id": "b", "task": "t", "after": ["valdate"]}])).contains("did you mean `validate`?")
    );
    assert!(problem(json!([validate, {"id": "b", "task": "t", "after": ["b"]}])).contains("cannot wait for itself"));
    assert!(problem(json!([validate, {"id": "b", "task": "t", "after": ["validate", "validate"]}])).contains("twice"));
}

#[test]
fn steps_that_wait_for_each_other_are_named_in_their_circle() {
    let steps = json!([
        {"id": "a", "task": "t", "after": ["c"]}, {"id": "b", "task": "t"}, {"id": "c", "task": "t"},
        {"id": "free", "task": "t", "after": []}, {"id": "behind", "task": "t", "after": ["a"]},
        {"id": "x", "task": "t", "after": ["y"]}, {"id": "y", "task": "t", "after": ["x"]},
    ]);
    let found = problems(json!({"name": "W", "version": "1", "steps": steps}));
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(
        found[0]
            .starts_with("/steps/0/after: steps wait for each other in a circle: `a` after `c` after `b` after `a`")
    );
    assert!(found[1].contains("`x` after `y` after `x`"));
    // The circle begins with its step written first, however it was found.
    let found = problem(json!([
        {"id": "outside", "task": "t", "after": ["c"]}, {"id": "a", "task": "t", "after": ["c"]},
        {"id": "b", "task": "t"}, {"id": "c", "task": "t"},
    ]));
    assert!(found.starts_with("/steps/1/after") && found.contains("`a` after `c` after `b` after `a`"), "{found}");
}

#[test]
fn what_a_step_reads_must_be_there_when_it_starts() {
    let read = |id: &str| format!("${{ steps.{id}.output }}");
    let found = problem(json!([
        {"id": "a", "task": "t"},
        {"id": "b", "task": "t", "after": []},
        {"id": "c", "task": "t", "after": ["b"], "input": {"x": [read("b"), read("a")]}},
    ]));
    assert_eq!(
        found,
        "/steps/2/input/x/1: step `c` reads the output of `a`, but does not wait for it (write `after: [b, a]` in step `c`)"
    );
    let found = problem(json!([{"id": "a", "task": "t", "input": read("b")}, {"id": "b", "task": "t"}]));
    assert!(found.contains("step `a` reads the output of `b`, which runs after it"), "{found}");
    let found = problem(json!([{"id": "a", "task": "t", "when": read("a")}]));
    assert!(found.contains("its own output"), "{found}");
    let found = problem(json!([{"id": "charge", "task": "t"}, {"id": "b", "sleep": read("chrage")}]));
    assert!(found.contains("there is no step `chrage` to read from (did you mean `charge`?)"), "{found}");
    // Through others is early enough.
    let steps =
        json!([{"id": "a", "task": "t"}, {"id": "b", "task": "t"}, {"id": "c", "task": "t", "input": read("a")}]);
    checked(&json!({"name": "W", "version": "1", "steps": steps, "result": read("a")}));
}

#[test]
fn a_misspelt_after_is_not_told_again_as_an_output_read_too_early() {
    let read = json!("${ steps.a.output }");
    let steps = json!([{"id": "a", "task": "t"}, {"id": "b", "task": "t", "after": ["aa"]}, {"id": "c", "task": "t", "input": read}]);
    assert!(problem(steps).contains("there is no step `aa`"));
    let steps = json!([{"id": "a", "task": "t"}, {"id": "b", "task": "t", "after": "a", "input": read}]);
    assert!(problem(steps).contains("write `[a]`"));
    let steps = json!([{"id": "a", "task": "t"}, {"id": "b-", "task": "t"}, {"id": "c", "task": "t", "input": read}]);
    assert!(problem(steps).contains("cannot hold '-'"));
}

#[test]
fn a_large_definition_is_checked_in_reasonable_time() {
    let step = |i: usize| {
        let input = if i == 0 { json!(null) } else { json!(format!("${{ steps.s{}.output }}", i / 2)) };
        json!({"id": format!("s{i}"), "task": "t", "input": input})
    };
    let steps: Vec<Value> = (0..MAX_STEPS).map(step).collect();
    let mut document = json!({"name": "W", "version": "1", "steps": steps});
    checked(&document);
    // Ten thousand problems are not ten thousand searches for the nearest of ten thousand names.
    for step in document["steps"].as_array_mut().expect("a list") {
        step["after"] = json!(["nothing_like_it"]);
    }
    let found = problems(document.clone());
    assert_eq!(found.len(), MAX_PROBLEMS + 1);
    assert!(found[MAX_PROBLEMS].contains("more problems"));
    let step = document["steps"][0].clone();
    document["steps"].as_array_mut().expect("a list").push(step);
    assert!(problems(document)[0].contains("at most 10000 steps"));
}

#[test]
fn a_document_that_nests_too_deep_is_refused() {
    let deep = |depth: usize| (0..depth).fold(json!(1), |inner, _| Value::Array(vec![inner]));
    let with = |value: Value| json!({"name": "W", "version": "1", "steps": [{"id": "a", "task": "t", "input": value}]});
    checked(&with(deep(117)));
    assert!(problems(with(deep(118)))[0].contains("more than 120"));
    assert!(problems(with(deep(1_000)))[0].contains("more than 120"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let words =
        ["name", "version", "steps", "id", "task", "sleep", "compute", "after", "when", "retry", "input", "result"];
    let texts = ["a", "b", "1s", "W", "${ input.x }", "${ steps.a.output }", "${ steps.b.output", "${", "none", "full"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        proptest::sample::select(texts.to_vec()).prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, move |inner| {
        let key = prop_oneof![proptest::sample::select(words.to_vec()).prop_map(str::to_owned), ".{0,4}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(key, inner, 0..6).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Puts `with` in place of the `at`-th value of the document, counted through all of it.
fn replace(document: &mut Value, at: &mut usize, with: &Value) {
    if *at == 0 {
        *document = with.clone();
    }
    *at = at.wrapping_sub(1);
    match document {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, at, with)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, at, with)),
        _ => {}
    }
}

fn check_is_total(document: &Value) {
    match Definition::from_document(document) {
        Ok(definition) => {
            // What was taken keeps its promises: ids are there, and the same document gives the same definition.
            for step in &definition.steps {
                assert!(step.after.iter().all(|id| definition.step(id.as_str()).is_some()));
            }
            assert_eq!(Definition::from_document(document), Ok(definition));
        }
        Err(problems) => {
            assert!(!problems.is_empty(), "a refusal says why");
            // Every path leads to something, but for a field's own place, which may be missing.
            for problem in problems {
                let parent = problem.path.rsplit_once('/').map_or("", |(parent, _)| parent);
                assert!(document.pointer(parent).is_some(), "{problem:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn any_value_is_taken_or_refused_with_reasons(value in any_json()) {
        check_is_total(&value);
        check_is_total(&json!({"name": "W", "version": "1", "steps": value}));
    }

    #[test]
    fn a_valid_document_with_a_part_replaced_is_taken_or_refused_with_reasons(
        changes in proptest::collection::vec((0..60usize, any_json()), 1..4),
    ) {
        let mut document = full();
        for (mut at, with) in changes {
            replace(&mut document, &mut at, &with);
        }
        check_is_total(&document);
    }
}

#[test]
fn the_hint_for_a_read_keeps_what_the_step_waits_for_unsaid() {
    let document = json!({"name": "W", "version": "1", "steps": [
        {"id": "a", "after": [], "task": "x.a"},
        {"id": "b", "after": [], "task": "x.b"},
        {"id": "nap", "after": ["a"], "sleep": "1d"},
        {"id": "mail", "task": "x.mail", "input": "${ steps.b.output }"},
    ]});
    let problems = Definition::from_document(&document).expect_err("`mail` does not wait for `b`");
    assert!(problems[0].to_string().contains("write `after: [nap, b]` in step `mail`"), "{}", problems[0]);
}
