use super::*;
use serde_json::json;

mod properties;

/// A template rendered on an input, with the step `paid` ended and the step `skipped` skipped.
fn render_on(input: Value, template: Value) -> Result<Value, ExpressionError> {
    let outputs = BTreeMap::from([
        (StepId::new("paid"), Json::new(json!({"id": "ch_1", "items": [1, 2, 3], "none": null}))),
        (StepId::new("skipped"), Json::new(Value::Null)),
    ]);
    let scope = Scope {
        input: &Json::new(input),
        outputs: &outputs,
        execution: &ExecutionId::new("e-1"),
        workflow: &WorkflowName::new("Order"),
        version: &Version::new("1.0.0"),
        run: Run(1),
        local: Default::default(),
    };
    Template::new(&template)?.render(&scope)
}

fn input() -> Value {
    json!({
        "customer": {"name": "Ada", "age": 36},
        "amount": 9_007_199_254_740_993_i64,
        "price": 2.5,
        "tags": ["a", "b"],
        "nothing": null,
        "big": u64::MAX,
        "lines": [{"sku": "x", "n": 2, "price": 10}, {"sku": "y", "n": 1, "price": 5}],
    })
}

fn value(source: &str) -> Value {
    render_on(input(), json!(format!("${{ {source} }}"))).unwrap_or_else(|e| panic!("{e}"))
}

fn message(source: &str) -> String {
    match render_on(input(), json!(format!("${{ {source} }}"))) {
        Ok(value) => panic!("{source} gave {value}"),
        Err(error) => error.message,
    }
}

#[test]
fn a_string_that_is_one_expression_keeps_the_type_of_its_value() {
    assert_eq!(value("input.customer"), json!({"name": "Ada", "age": 36}));
    assert_eq!(value("input.customer.age + 1"), json!(37));
    assert_eq!(value("input.price > 2"), json!(true));
    assert_eq!(value("input.tags"), json!(["a", "b"]));
    assert_eq!(value("steps.paid.output.id"), json!("ch_1"));
    assert_eq!(value("execution.workflow ~ '@' ~ execution.version"), json!("Order@1.0.0"));
    assert_eq!(value("{'id': execution.id, 'run': execution.run}"), json!({"id": "e-1", "run": 1}));
    assert_eq!(value("execution.run"), json!(1));
}

#[test]
fn the_line_break_that_a_yaml_block_adds_does_not_make_a_text_of_it() {
    assert_eq!(render_on(input(), json!("${ input.customer.age }\n")), Ok(json!(36)));
    assert_eq!(render_on(input(), json!("${ input.customer.age } ")), Ok(json!("36 ")));
}

#[test]
fn in_a_longer_text_values_stand_as_text() {
    let template =
        json!("${ input.customer.name } is ${input.customer.age}: ${ input.tags } ${ input.nothing } $${ x }");
    assert_eq!(render_on(input(), template), Ok(json!("Ada is 36: [\"a\",\"b\"] null ${ x }")));
}

#[test]
fn a_doubled_dollar_sign_makes_a_literal_of_an_expression() {
    assert_eq!(render_on(input(), json!("$${ input.x }")), Ok(json!("${ input.x }")));
    assert_eq!(render_on(input(), json!("costs $5, or $$${ 5 }")), Ok(json!("costs $5, or $${ 5 }")));
    assert_eq!(render_on(input(), json!("a } and a { and a $")), Ok(json!("a } and a { and a $")));
}

#[test]
fn expressions_may_hold_braces_and_texts_with_braces() {
    assert_eq!(value("{'a': {'b': '}'}}"), json!({"a": {"b": "}"}}));
    assert_eq!(value(r#""\"}" ~ '{'"#), json!("\"}{"));
}

#[test]
fn lists_and_objects_are_rendered_inside() {
    let template = json!({"id": "${ input.customer.name }", "fixed": [1, "x", null], "deep": [{"age": "${ input.customer.age }"}]});
    let expected = json!({"id": "Ada", "fixed": [1, "x", null], "deep": [{"age": 36}]});
    assert_eq!(render_on(input(), template), Ok(expected));
}

#[test]
fn whole_numbers_stay_exact() {
    assert_eq!(value("input.amount"), json!(9_007_199_254_740_993_i64));
    assert_eq!(value("input.amount + 1"), json!(9_007_199_254_740_994_i64));
    assert_eq!(value("9007199254740993 + 1"), json!(9_007_199_254_740_994_i64));
    assert_eq!(value("input.big"), json!(u64::MAX));
    assert_eq!(value("input.big - 1"), json!(u64::MAX - 1));
    assert!(message("input.big + 1").contains("does not fit 64 bits"));
    assert_eq!(value("7 // 2"), json!(3));
}

#[test]
fn numbers_that_json_does_not_have_are_refused() {
    assert!(message("1e308 * 10").contains("no finite number"), "{}", message("1e308 * 10"));
    assert!(message("[1e308 * 10]").contains("no finite number"));
    for division in ["1 / 0", "5 // 0", "5 % 0", "1.5 / 0.0"] {
        assert!(message(division).starts_with(&format!("divides by zero: {division}; ")), "{}", message(division));
    }
}

#[test]
fn a_field_of_null_is_null() {
    assert_eq!(value("steps.skipped.output"), Value::Null);
    assert_eq!(value("steps.skipped.output.a.b[0]"), Value::Null);
    assert_eq!(value("steps.skipped.output.a is none"), json!(true));
    assert_eq!(value("steps.skipped.output.a == none and steps.skipped.output == null"), json!(true));
    assert_eq!(value("none == input.nothing.x"), json!(true));
    assert_eq!(value("steps.skipped.output.a != none"), json!(false));
    assert_eq!(value("1 if steps.skipped.output.a else 2"), json!(2));
    assert_eq!(value("steps.skipped.output.a or 'x'"), json!("x"));
    assert_eq!(value("steps.skipped.output.a.b | default(7)"), json!(7));
    assert_eq!(value("[input.nothing, steps.paid.output.none.x]"), json!([null, null]));
    assert_eq!(value("input.nothing is mapping or input.nothing is defined and false"), json!(false));
    assert_eq!(value("'a' ~ input.nothing"), json!("anull"));
    assert_eq!(value("[3, none] | tojson"), json!("[3,null]"));
    assert_eq!(value("none.x"), Value::Null);
    assert!(message("input.nothing + 1").contains("null and number"), "{}", message("input.nothing + 1"));
}

#[test]
fn filters_and_tests_of_the_table_work() {
    assert_eq!(value("input.tags | join(', ') | upper"), json!("A, B"));
    assert_eq!(value("input.lines | map(attribute='price') | sum"), json!(15));
    assert_eq!(value("input.lines | selectattr('n', 'gt', 1) | map(attribute='sku') | list"), json!(["x"]));
    assert_eq!(value("input.lines | sort(attribute='price') | map(attribute='sku')"), json!(["y", "x"]));
    assert_eq!(value("input.tags | length"), json!(2));
    assert_eq!(value("'b' in input.tags"), json!(true));
    assert_eq!(value("range(3)"), json!([0, 1, 2]));
    assert_eq!(value("input.customer | items"), json!([["age", 36], ["name", "Ada"]]));
    assert_eq!(value("input.tags is sequence and input.customer is mapping"), json!(true));
    assert_eq!(value("input.tags[1:]"), json!(["b"]));
    assert_eq!(value("input.tags[-1]"), json!("b"));
    assert_eq!(value("(input.price * 3) | round(1)"), json!(7.5));
    assert_eq!(value("input.missing is defined"), json!(false));
    assert_eq!(value("input.missing | default('x')"), json!("x"));
}

/// One use of every filter, function and test of the tables, with what it gives.
#[test]
fn every_word_of_the_tables_does_what_its_line_says() {
    let cases = [
        ("-3 | abs", json!(3)),
        ("[1, 2, 3] | batch(2)", json!([[1, 2], [3]])),
        ("'' | bool", json!(false)),
        ("'aDA' | capitalize", json!("Ada")),
        ("none | default(0)", json!(0)),
        ("{'b': 1, 'a': 2} | dictsort(by='value', reverse=true)", json!([["a", 2], ["b", 1]])),
        ("[4, 5] | first", json!(4)),
        ("'1.5' | float", json!(1.5)),
        ("'12' | int", json!(12)),
        ("{'b': 1} | items", json!([["b", 1]])),
        ("[1, 'a'] | join(', ')", json!("1, a")),
        ("[4, 5] | last", json!(5)),
        ("'äb' | length", json!(2)),
        ("'a\\nb' | lines", json!(["a", "b"])),
        ("['ab' | list, {'k': 1} | list, (1, 2) | list]", json!([["a", "b"], ["k"], [1, 2]])),
        ("'AB' | lower", json!("ab")),
        ("['a'] | map('upper')", json!(["A"])),
        ("[1, 3, 2] | max", json!(3)),
        ("[3, 1, 2] | min", json!(1)),
        ("[1, none] | reject('none')", json!([1])),
        ("[{'p': 1}, {'p': 2}] | rejectattr('p', 'eq', 1)", json!([{"p": 2}])),
        ("'aba' | replace('a', 'x')", json!("xbx")),
        ("[1, 2] | reverse", json!([2, 1])),
        ("2.345 | round(2)", json!(2.35)),
        ("[5, 15] | select('gt', 10)", json!([15])),
        ("[{'p': 1}, {'p': 2}] | selectattr('p', 'gt', 1)", json!([{"p": 2}])),
        ("[1, 2, 3] | slice(2)", json!([[1, 2], [3]])),
        ("[{'p': 1}, {'p': 2}] | sort(attribute='p', reverse=true)", json!([{"p": 2}, {"p": 1}])),
        ("'a,b' | split(',')", json!(["a", "b"])),
        ("12 | string", json!("12")),
        ("[1, 2.5] | sum", json!(3.5)),
        ("'ada lovelace' | title", json!("Ada Lovelace")),
        ("{'a': [1, none]} | tojson", json!("{\"a\":[1,null]}")),
        ("' a ' | trim", json!("a")),
        ("[1, 2, 1] | unique", json!([1, 2])),
        ("'ab' | upper", json!("AB")),
        ("range(1, 4)", json!([1, 2, 3])),
        ("true is boolean", json!(true)),
        ("input.x is not defined", json!(true)),
        ("9 is divisibleby(3)", json!(true)),
        ("'ab' is endingwith('b')", json!(true)),
        ("1 is eq(1)", json!(true)),
        ("2 is even", json!(true)),
        ("false is false", json!(true)),
        ("1.5 is float", json!(true)),
        ("2 is ge(2)", json!(true)),
        ("2 is gt(2)", json!(false)),
        ("'a' is in(['a'])", json!(true)),
        ("1 is integer", json!(true)),
        ("[1] is iterable", json!(true)),
        ("2 is le(2)", json!(true)),
        ("2 is lt(2)", json!(false)),
        ("{} is mapping", json!(true)),
        ("1 is ne(2)", json!(true)),
        ("none is none", json!(true)),
        ("1 is null", json!(false)),
        ("1 is number", json!(true)),
        ("2 is odd", json!(false)),
        ("[] is sequence", json!(true)),
        ("'ab' is startingwith('b')", json!(false)),
        ("1 is string", json!(false)),
        ("1 is true", json!(false)),
        ("input.x is undefined", json!(true)),
    ];
    for (source, expected) in &cases {
        assert_eq!(value(source), *expected, "{source}");
    }
    for (word, _) in [vocabulary::FILTERS, vocabulary::TESTS, vocabulary::FUNCTIONS].concat() {
        let used = |source: &str| source.split(|c: char| !c.is_alphanumeric()).any(|part| part == word);
        assert!(cases.iter().any(|(source, _)| used(source)), "no case for {word}");
    }
}

#[test]
fn objects_come_in_the_order_of_their_keys() {
    assert_eq!(value("{'b': 1, 'a': 2} | list"), json!(["a", "b"]));
}

#[test]
fn what_is_not_there_is_named_with_what_was_meant() {
    assert_eq!(message("input.custmer.name"), "`input` has no field `custmer`; did you mean `customer`?");
    assert_eq!(message("input.customer.nam ~ 'x'"), "`input.customer` has no field `nam`; did you mean `name`?");
    assert_eq!(message("input.customer.zip"), "`input.customer` has no field `zip`; it has `age`, `name`");
    assert_eq!(message("input.tags[7]"), "`input.tags` has 2 items, and so none at [7]");
    assert_eq!(message("input.price.x"), "`input.price` is a number, which has no field `x`");
    assert_eq!(message("[input.customer.nam]"), "gives a list or object with something in it that is not there");
    assert!(message("1 if false").contains("`else`"));
}

#[test]
fn names_that_do_not_exist_are_refused_before_anything_runs() {
    let refused = |source: &str| match Template::new(&json!(format!("${{ {source} }}"))) {
        Ok(_) => panic!("{source} was taken"),
        Err(error) => error.message,
    };
    assert_eq!(refused("inptu.x"), "nothing is called `inptu`; did you mean `input`?");
    assert_eq!(refused("1 + step.a.output"), "nothing is called `step`; did you mean `steps`?");
    assert!(refused("banana").contains("`input`, `steps` and `execution`"));
    assert_eq!(refused("failure.coed"), "`failure` has no field `coed`; did you mean `code`?");
    assert!(refused("steps").contains("steps.<id>.output"));
    assert!(refused("steps | length").contains("steps.<id>.output"));
    assert!(refused("steps[input.x].output").contains("steps.<id>.output"));
    assert!(refused("steps.a").contains("steps.a.output"));
    assert!(refused("steps.a.result").contains("steps.a.output"));
    assert!(refused("execution.name").contains("`execution` has no field `name`"));
    assert_eq!(refused("input | uper"), "there is no filter `uper`; did you mean `upper`?");
    assert_eq!(refused("input is evne"), "there is no test `evne`; did you mean `even`?");
    assert!(refused("input is not safe").contains("there is no test `safe`"));
    assert!(refused("input | pprint").contains("there is no filter `pprint`"));
    assert!(refused("debug()").contains("there is no function `debug`"));
    assert!(refused("upper(input)").contains("value | upper"));
    assert!(refused("input.name.upper()").contains("no methods"));
    assert!(refused("'a'.upper()").contains("did you mean `upper`?"));
    assert!(refused("input.x +").starts_with("syntax error"));
    assert!(refused("").contains("is empty"));
    assert!(refused("a b").contains("nothing is called `a`"));
}

#[test]
fn an_expression_without_an_end_is_refused() {
    let refused = |text: &str| Template::new(&json!(text)).expect_err(text).message;
    assert!(refused("x ${ input.a").contains("has no `}`"));
    assert!(refused("x ${ 'a }").contains("does not end"));
    assert!(Template::new(&json!({"${ input.a }": 1})).is_err_and(|e| e.message.contains("not in keys")));
}

#[test]
fn every_error_of_a_template_is_told_with_its_place() {
    let errors =
        Template::check(&json!({"a/b": ["${ x }", "${ input.y }", "${ z }"], "c": "${"})).expect_err("three errors");
    let places: Vec<_> = errors.iter().map(|e| (e.spot.path.as_str(), e.spot.offset)).collect();
    assert_eq!(places, [("/a~1b/0", Some(3)), ("/a~1b/2", Some(3)), ("/c", Some(0))]);
    assert_eq!(errors[0].error.source_text, "${ x }");
}

#[test]
fn the_steps_that_a_template_reads_are_known() {
    let template = Template::new(&json!({
        "a": "${ steps.one.output.x + steps['two'].output }",
        "b": ["text ${ input.steps.no ~ (steps.three.output | default(steps.four.output)) }"],
        "c": "$${ steps.five.output }",
        "d": "${ [input.x][steps.six.output[steps.seven.output]:] }",
    }))
    .expect("the template is right");
    let names: Vec<&str> = template.references().map(StepId::as_str).collect();
    assert_eq!(names, ["four", "one", "seven", "six", "three", "two"]);
}

#[test]
fn work_is_bounded() {
    let much = "range(100000) | map('string') | map('length') | sort | sum";
    let more = format!("[{}] | map('length') | sum", vec![format!("({much})"); 15].join(", "));
    assert!(message(&more).contains("too much work"), "{}", message(&more));
}

#[test]
fn the_expressions_of_one_value_share_one_bound_of_work() {
    let much = "${ range(20000) | map('string') | sort | length }";
    assert_eq!(render_on(input(), json!(much)), Ok(json!(20_000)));
    let error = render_on(input(), json!([much, {"a": much}, much])).expect_err("three are too much");
    assert!(error.message.contains("expressions of one value may do 1000000 steps"), "{error}");
}

/// Each is short and would compare, copy or search hundreds of megabytes: what they name stands there once.
#[test]
fn large_values_that_are_met_often_are_paid_for_as_often() {
    let list: Vec<u64> = (0..20_000).collect();
    let wide = json!({"text": "x".repeat(1 << 19), "same": "x".repeat(1 << 19), "list": list, "like": list,
        "texts": vec!["some text"; 20_000], "nulls": vec![Value::Null; 20_000]});
    for source in [
        "[input.list] * 4000 == [input.like] * 4000",
        "[[input.list] * 4000] == [[input.like] * 4000]",
        "1 if false else [input.list] * 4000 < [input.like] * 4000",
        "[] < [input.list] * 4000 < [input.like] * 4000",
        "input.text in [input.same] * 4000",
        "(4000 * [input.text]) | sort | length",
        "range(4000) | map(attribute='x', default=input.text) | sort | length",
        "range(4000) | map(attribute='x', default=input.list) | unique | length",
        "range(4000) | map(attribute='x', default=input.text) | select('eq', input.same) | list | length",
        "range(4000) | map(attribute='x', default=input.list) | select('in', [input.like]) | list | length",
        "input.nulls | map('default', input.list) | max | length",
        "input.texts | map('int', input.list) | min | length",
        "[1] | batch(4000, input.text) | first | sort | length",
        "range(4000) | slice(4000, input.list) | sort | length",
        "input.texts | sum(start='') | length",
        "input.text | trim(input.same) | length",
        "range(10000) | map(attribute=input.text) | length",
        "([{'a': 1}] * 10000) | selectattr(input.text) | list | length",
        "([input.text] * 4000) | join | length",
        "([input.list] * 4000) | map('tojson') | length",
    ] {
        let message = match render_on(wide.clone(), json!(format!("${{ {source} }}"))) {
            Ok(value) => panic!("{source} gave {value}"),
            Err(error) => error.message,
        };
        assert!(message.contains("too much work") || message.contains("at most 1024"), "{source}: {message}");
    }
}

#[test]
fn a_list_of_ordinary_size_can_be_sorted_searched_and_summed() {
    let orders: Vec<Value> = (0..1_000)
        .map(
            |n| json!({"sku": format!("sku-{:04}", n * 7 % 1_000), "tags": ["a", "b"], "price": n, "paid": n % 2 == 0}),
        )
        .collect();
    let give = |source: &str| render_on(json!({"orders": orders}), json!(format!("${{ {source} }}")));
    assert_eq!(give("(input.orders | sort(attribute='sku') | first).sku"), Ok(json!("sku-0000")));
    assert_eq!(give("input.orders | sort(attribute='paid,price', reverse=true) | length"), Ok(json!(1_000)));
    assert_eq!(give("input.orders | sort | unique | length"), Ok(json!(1_000)));
    assert_eq!(give("input.orders | map(attribute='tags') | sum(start=[]) | length"), Ok(json!(2_000)));
    assert_eq!(
        give("input.orders | selectattr('price', 'ge', 998) | map(attribute='price') | list"),
        Ok(json!([998, 999]))
    );
    assert_eq!(give("input.orders == input.orders and input.orders[3] in input.orders"), Ok(json!(true)));
    assert_eq!(give("input.orders | tojson | length > 60000"), Ok(json!(true)));
}

/// Weighing what is compared moves the engine's jumps: every kind of them is met here.
#[test]
fn what_is_weighed_and_multiplied_gives_what_it_gave() {
    assert_eq!(value("1 < input.customer.age < 40"), json!(true));
    assert_eq!(value("1 < 2 == 2 != 3 >= 3 > 1 <= 1"), json!(true));
    assert_eq!(value("[1 < 0 < input.nothing.x, 5 > 4 > 3]"), json!([false, true]));
    assert_eq!(value("1 == (2 if input.nothing else 1)"), json!(true));
    assert_eq!(value("(1 == 2 or 3 < 4) and not 'a' in 'bcd' and 'a' not in ['b']"), json!(true));
    assert_eq!(
        value("[2 * 3, 2 * 1.5, 'ab' * 2, [1] * 2, 2 * [none], -2 * 3 ** 2, 7 % 4 * 2, 'a' * -1]"),
        json!([6, 3.0, "abab", [1, 1], [null, null], -18, 6, ""])
    );
    assert_eq!(value("9007199254740993 * 2"), json!(18_014_398_509_481_986_i64));
    assert!(message("'a' * input.missing").contains("no field `missing`"));
    assert!(message("'a' * 'b'").contains("multiplied"), "{}", message("'a' * 'b'"));
    assert!(message("input.missing == 1").contains("no field `missing`"));
}

#[test]
fn what_is_given_is_bounded() {
    let long = json!({"text": "x".repeat(1 << 20)});
    let all = format!("${{ [{}] }}", vec!["input.text"; 20].join(", "));
    let error = render_on(long.clone(), json!(all)).expect_err("20 MiB are too much");
    assert!(error.message.contains("4 MiB"), "{error}");
    let many = json!(vec!["${ input.text }"; 20]);
    assert!(render_on(long, many).is_err_and(|e| e.message.contains("4 MiB")));
}

#[test]
fn what_is_given_nests_no_deeper_than_stored_events_can() {
    let deep = |depth: usize| (0..depth).fold(json!(1), |inner, _| Value::Array(vec![inner]));
    assert!(render_on(deep(120), json!("${ input }")).is_ok());
    assert!(render_on(deep(118), json!([{"x": "${ input }"}])).is_ok());
    assert!(render_on(deep(118), json!([{"x": "${ (input) }"}])).is_ok());
    for template in [json!([[["${ input }"]]]), json!([["${ [input] }"]]), json!("${ [[[input]]] }")] {
        let error = render_on(deep(118), template).expect_err("121 are too deep");
        assert!(error.message.contains("more than 120"), "{error}");
    }
}

#[test]
fn a_template_has_a_bounded_number_of_expressions() {
    let errors = Template::check(&json!(vec!["${ 1 }"; 1_010])).err().map(|e| e.len());
    assert_eq!(errors, Some(1));
    assert!(Template::new(&json!(vec!["${ 1 }"; 1_000])).is_ok());
}

/// The longest sources that the bounds let through, each built to recurse as deep as it can.
#[test]
fn no_source_within_the_bounds_comes_near_the_end_of_a_small_stack() {
    let chains = |unit: &str, end: &str, times: usize| format!("{}{end}", unit.repeat(times));
    let sources = [
        chains("1+", "1", 199),
        chains("1 ~ ", "1", 199),
        chains("2**", "1", 199),
        chains("-", "1", 399),
        chains("not ", "1", 399),
        chains("1 or ", "1", 199),
        chains("1 if 1 else ", "1", 99),
        chains("1<", "1", 199),
        format!("input{}", ".nothing".repeat(199)),
        format!("(input{})", ".nothing".repeat(198)),
        format!("input{}", "[0]".repeat(133)),
        format!("input{}", "|list".repeat(199)),
        format!("{}1{}", "(".repeat(32), ")".repeat(32)),
        format!("{}1{}", "[".repeat(32), "]".repeat(32)),
        format!("{}1{}", "{'a':".repeat(32), "}".repeat(32)),
        format!("{}input{}", "(1 if 1 else -(".repeat(16), "))".repeat(16)),
    ];
    let small = std::thread::Builder::new().stack_size(640 << 10);
    let thread = small.spawn(move || {
        for source in sources {
            // Whatever the answer is, there is one.
            let _ = render_on(input(), json!(format!("${{ {source} }}")));
        }
    });
    thread.expect("a thread starts").join().expect("no source overflows the stack");
}

#[test]
fn longer_or_deeper_sources_are_refused() {
    let refused = |source: String| Template::new(&json!(format!("${{ {source} }}"))).expect_err("too large").message;
    assert!(refused("1+".repeat(100_000) + "1").contains("2048"));
    assert!(refused("1+".repeat(300) + "1").contains("400 words"));
    assert!(refused("(".repeat(100_000)).contains("2048"));
    assert!(refused("(".repeat(33) + "1").contains("32 brackets"));
}

#[test]
fn operators_of_other_languages_are_told_as_they_are_written_here() {
    for (expression, expected) in [
        ("input.a = 1", "`=` compares nothing; write `==`"),
        ("input.a === 1", "`===` is no comparison; write `==`"),
        ("input.a !== 1", "`!==` is no comparison; write `!=`"),
        ("input.a && input.b", "`&&` is no operator; write `and`"),
        ("input.a || input.b", "`||` is no operator; write `or`"),
        ("!input.a", "`!` is no operator; write `not`"),
        ("input.a ? 1 : 2", "`? :` is no operator; write `a if condition else b`"),
        ("input.a ?? 1", "`??` is no operator; write `a | default(b)`"),
        (
            "input?.a",
            "`?.` is no operator; write `.`: a field of null is null, and `| default(b)` stands in for a missing one",
        ),
        ("len(input.a)", "there is no function `len`; write `value | length`"),
        ("input.a | upcase", "there is no filter `upcase`; did you mean `upper`?"),
        (
            "input.a.strip()",
            "values have no methods such as `.strip()`; filters are written `value | name`: write `value | trim`",
        ),
        (
            "now()",
            "there is no function `now`; what an expression gives must be the same each time; take it from the input, or \
             let a task give it",
        ),
        (
            "pow(2, 3)",
            "there is no function `pow`; `range` is the only one: filters, as in `value | round`, do what functions do \
             elsewhere",
        ),
    ] {
        let error = Template::new(&json!(format!("${{ {expression} }}"))).expect_err(expression);
        assert_eq!(error.message, expected, "{expression}");
    }
    for right in
        ["input.a | sort(reverse=true)", "input.a | sort(attribute=\"x\", reverse=true)", "\"a = b\"", "1 != 2"]
    {
        assert!(Template::new(&json!(format!("${{ {right} }}"))).is_ok(), "{right}");
    }
}
