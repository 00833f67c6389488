use super::*;
use proptest::prelude::*;
use serde_json::json;

fn yaml(text: &str) -> Value {
    parse(text, Format::Yaml).unwrap_or_else(|e| panic!("{text:?}: {e}")).value
}

fn refused(text: &str, format: Format) -> String {
    match parse(text, format) {
        Ok(document) => panic!("{text:?} was read as {}", document.value),
        Err(error) => error.to_string(),
    }
}

fn at(line: usize, column: usize) -> Option<Location> {
    Some(Location { line, column })
}

#[test]
fn yaml_becomes_the_value_that_it_says() {
    assert_eq!(
        yaml("a: 1\nb: [x, {c: 2.5}]\nd:\n  - true\n  - null\n"),
        json!({"a": 1, "b": ["x", {"c": 2.5}], "d": [true, null]})
    );
    assert_eq!(
        yaml("a: &once {b: 1}\nc: *once\nd:\n  <<: *once\n  e: 2\n"),
        json!({"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}})
    );
    assert_eq!(
        yaml("a: ${ input.b }\nc: \"${ {'d': 1} }\"\ne: |\n  ${ f }\n"),
        json!({"a": "${ input.b }", "c": "${ {'d': 1} }", "e": "${ f }\n"})
    );
    assert_eq!(yaml(""), Value::Null);
}

#[test]
fn an_expression_without_quotes_inside_braces_is_told_to_be_quoted() {
    for text in ["a: {b: ${ input.c }}\n", "a: 1\nb: [${ input.c }]\n"] {
        let message = refused(text, Format::Yaml);
        assert!(message.contains("stands in quotes; write `\"${ input.x }\"`"), "{message}");
    }
    let other = refused("a: {b: \"${ input.c }\", d\n", Format::Yaml);
    assert!(!other.contains("an expression"), "{other}");
    // Outside of braces it is something in the expression.
    let other = refused("a: ${ input.b ? 1 : 2 }\n", Format::Yaml);
    assert!(other.contains("a text with `: ` in it stands in quotes"), "{other}");
}

#[test]
fn what_versions_of_yaml_read_differently_is_text() {
    assert_eq!(
        yaml("[yes, no, on, off, 0755, 1_000, 12:30:00]"),
        json!(["yes", "no", "on", "off", "0755", "1_000", "12:30:00"])
    );
}

#[test]
fn json_becomes_the_value_that_it_says() {
    let document = parse(" {\"a\": [1, -2.5e3, \"x\\\"y\", true, null, {}, []]} ", Format::Json).expect("JSON");
    assert_eq!(document.value, json!({"a": [1, -2500.0, "x\"y", true, null, {}, []]}));
}

#[test]
fn whole_numbers_are_exact_or_refused() {
    for number in ["9007199254740993", "18446744073709551615", "-9223372036854775808"] {
        for format in [Format::Yaml, Format::Json] {
            let document = parse(&format!("{{\"a\": {number}}}"), format).expect(number);
            assert_eq!(document.value["a"].to_string(), number, "{format:?}");
        }
    }
    for number in ["18446744073709551616", "-9223372036854775809", "123456789012345678901234567890"] {
        for format in [Format::Yaml, Format::Json] {
            let error = refused(&format!("{{\"a\": [\n{number}]}}"), format);
            assert_eq!(
                error,
                format!(
                    "line 2, column 1: the number {number} does not fit 64 bits; write it in quotes to pass it as text"
                )
            );
        }
    }
    assert!(refused("a: *b", Format::Yaml).contains("there is no anchor `&b` before it"));
}

#[test]
fn a_rounded_number_is_noticed_where_an_alias_stands_for_it() {
    assert!(refused("a: &n 18446744073709551616\nb: *n\n", Format::Yaml).contains("does not fit 64 bits"));
}

#[test]
fn duplicate_keys_are_refused_at_the_second() {
    let yaml = "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n";
    assert_eq!(refused(yaml, Format::Yaml), "line 5, column 3: the key `c` is there twice in one object; remove one");
    let json = "{\"a\": 1,\n \"b\": {\"c\": 1,\n  \"\\u0063\": 2}}";
    assert_eq!(refused(json, Format::Json), "line 3, column 3: the key `c` is there twice in one object; remove one");
}

#[test]
fn keys_that_are_no_texts_are_refused() {
    for (text, found) in
        [("1: x", "1"), ("true: x", "true"), ("~: x", "null"), ("? [a]\n: x", "a list"), ("1.5: x", "1.5")]
    {
        let error = refused(text, Format::Yaml);
        assert!(error.contains(&format!("a key must be a text, and this one is {found};")), "{error}");
    }
    assert_eq!(yaml("\"1\": x"), json!({"1": "x"}));
}

#[test]
fn numbers_that_json_does_not_have_are_refused() {
    for text in ["a: .inf", "a: -.inf", "a: .nan"] {
        assert!(refused(text, Format::Yaml).starts_with("line 1, column 4: JSON has no infinity"), "{text}");
    }
    assert!(refused("{\"a\": 1e999}", Format::Json).contains("number out of range"));
}

#[test]
fn syntax_errors_say_where() {
    assert!(refused("a: 1\n---\nb: 2\n", Format::Yaml).starts_with("line 2, column 1: more than one document"));
    assert_eq!(refused("{\n\"ä\": 1 2}", Format::Json), "line 2, column 8: expected `,` or `}`");
    assert!(refused("", Format::Json).contains("EOF"));
    assert!(refused("{\"a\": 1} x", Format::Json).contains("trailing characters"));
}

#[test]
fn nesting_is_bounded_however_it_is_written() {
    let list = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let block = |depth: usize| (0..depth).map(|i| format!("{}a:\n", " ".repeat(i))).collect::<String>();
    for format in [Format::Yaml, Format::Json] {
        assert!(parse(&list(120), format).is_ok(), "{format:?}");
        for depth in [121, 122, 123, 128, 129, 1_000, 100_000] {
            assert!(refused(&list(depth), format).contains("more than 120 lists and objects"), "{format:?} {depth}");
        }
    }
    assert!(parse(&block(120), Format::Yaml).is_ok());
    for depth in [121, 122, 200, 1_000] {
        assert!(refused(&block(depth), Format::Yaml).contains("more than 120 lists and objects"), "{depth}");
    }
}

#[test]
fn references_that_multiply_without_end_are_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let items = vec![format!("*a{}", i - 1); 10].join(", ");
        text.push_str(&format!("a{i}: &a{i} [{items}]\n"));
    }
    assert!(
        refused(&text, Format::Yaml).contains("more than 250000 values, those that `*` stands for counted each time")
    );
}

#[test]
fn a_pointer_finds_its_line_however_the_text_is_laid_out() {
    let text =
        "name: W\nsteps:\n  - id: a\n    task: t\n    after: [x,\n      y]\n  -\n    id: b\n    \"a/b\": {c~d: 1}\n";
    let document = parse(text, Format::Yaml).expect("YAML");
    for (pointer, place) in [
        ("", at(1, 1)),
        ("/name", at(1, 1)),
        ("/steps", at(2, 1)),
        ("/steps/0", at(3, 5)),
        ("/steps/0/id", at(3, 5)),
        ("/steps/0/task", at(4, 5)),
        ("/steps/0/after", at(5, 5)),
        ("/steps/0/after/1", at(6, 7)),
        ("/steps/1/id", at(8, 5)),
        ("/steps/1/a~1b", at(9, 5)),
        ("/steps/1/a~1b/c~0d", at(9, 13)),
    ] {
        assert_eq!(document.locate(pointer), place, "{pointer}");
    }
    // What is not there is where it would be.
    assert_eq!(document.locate("/steps/1/task"), document.locate("/steps/1"));
    assert_eq!(document.locate("/steps/7/id"), at(2, 1));
    assert_eq!(document.locate("/version"), at(1, 1));
    assert_eq!(document.locate("version"), None);
}

#[test]
fn places_are_the_same_in_json() {
    let text = "{\"name\": \"ä\", \"steps\": [\n  {\"id\": \"a\",\n   \"after\": [ \"x\" ]}\n]}";
    let document = parse(text, Format::Json).expect("JSON");
    for (pointer, place) in [
        ("", at(1, 1)),
        ("/name", at(1, 2)),
        ("/steps", at(1, 15)),
        ("/steps/0", at(2, 3)),
        ("/steps/0/id", at(2, 4)),
        ("/steps/0/after/0", at(3, 15)),
    ] {
        assert_eq!(document.locate(pointer), place, "{pointer}");
        let as_yaml = parse(text, Format::Yaml).expect("YAML is a superset here").locate(pointer);
        assert_eq!(as_yaml, place, "{pointer}");
    }
}

const FAULTY: &str = "\
name: Order
version: \"1\"
steps:
  - id: validate
    task: orders.validate
  - id: charge
    task: payments.charge
    after: [valdate]
    timeout: 30
    input:
      order: ${ steps.validate.output.id }
result: ${ steps.chrage.output }
";

#[test]
fn problems_are_shown_with_their_lines_and_what_would_be_right() {
    let error = check(FAULTY, Format::Yaml).expect_err("it has problems");
    let expected = "\
error: there is no step `valdate`
 --> order.yaml:8:13
  |
8 |     after: [valdate]
  |             ^^^^^^^
  = did you mean `validate`?

error: a duration needs its unit; 30 has none
 --> order.yaml:9:14
  |
9 |     timeout: 30
  |              ^^
  = write `30s` or `30ms`

error: there is no step `chrage` to read from
  --> order.yaml:12:18
   |
12 | result: ${ steps.chrage.output }
   |                  ^^^^^^^^^^^^^
   = did you mean `charge`?

order.yaml: 3 problems
";
    assert_eq!(error.render("order.yaml", FAULTY), expected);
    assert!(error.to_string().contains("the first of 3 problems"));
}

#[test]
fn a_syntax_error_is_shown_with_its_line() {
    let text = "name: W\nsteps: [\n";
    let expected = "\
error: the `[` here is never closed
 --> a.yaml:2:8
  |
2 | steps: [
  |        ^
  = put `]` where the list ends

a.yaml: 1 problem
";
    assert_eq!(check(text, Format::Yaml).expect_err("it is no YAML").render("a.yaml", text), expected);
}

#[test]
fn a_located_problem_is_one_flat_object_for_programs() {
    let Err(CheckError::Problems(problems)) = check("name: W\nversion: \"1\"\nsteps: 1\n", Format::Yaml) else {
        panic!("it has problems")
    };
    let expected = json!([{
        "path": "/steps", "message": "must be a list of steps, not a number", "hint": "write `- id: …` lines, with a space behind each `-`",
        "line": 3, "column": 8,
    }]);
    assert_eq!(serde_json::to_value(&problems).expect("JSON"), expected);
}

#[test]
fn control_characters_and_long_lines_do_not_reach_the_terminal() {
    let text = format!("\"a\\u001b\": 1\n\"b\u{7f}\": {}\n", "x".repeat(500));
    let report = check(&text, Format::Yaml).expect_err("it is no definition").render("a", &text);
    assert!(!report.contains(['\u{1b}', '\u{7f}']), "{report:?}");
    assert!(report.lines().all(|line| line.chars().count() < 200), "{report}");
}

#[test]
fn the_format_follows_the_files_name() {
    assert_eq!(Format::of_file(Path::new("a/b.JSON")), Format::Json);
    assert_eq!(Format::of_file(Path::new("a/b.yml")), Format::Yaml);
    assert_eq!(Format::of_file(Path::new("json")), Format::Yaml);
}

/// Line and column of each problem.
fn places(text: &str, format: Format) -> Vec<(usize, usize)> {
    let Err(CheckError::Problems(problems)) = check(text, format) else { panic!("{text:?} has problems") };
    problems.iter().filter_map(|p| p.location).map(|place| (place.line, place.column)).collect()
}

#[test]
fn a_problem_in_an_expression_is_where_it_shows() {
    // Whatever is written in place of the input, and the text from which on it is wrong.
    for (written, wrong) in [
        ("${ inptu.a }", "inptu"),
        ("total ${ input.a } of ${ inptu.b }", "inptu"),
        ("\"ä ${ inptu.a }\"", "inptu"),
        ("\"q \\\" \\u00e4 \\x41 \\n ${ inptu.a }\"", "inptu"),
        ("'it''s ${ inptu.a }'", "inptu"),
        ("'${ input.a | uper }'", "uper"),
        ("'${ input.a is bigger }'", "bigger"),
        ("'${ input.a.trim() }'", "trim"),
        ("'${ execution.idd }'", "idd"),
        ("'${ steps.nothing.output }'", "nothing"),
        ("'${ steps[\"nothing\"].output }'", "\"nothing\""),
        ("'${ steps.late.output.x }'", "late"),
        ("'${ input.a + }'", "}'"),
        ("'${ input.a input.b }'", "input.b"),
        ("'${ [1, 2 }'", "}'"),
        ("'${ \"open }'", "\"open"),
        ("'a ${ input.b'", "${ input.b"),
        ("[\"${ input.a }\", \"${ nope }\"]", "nope"),
        ("{a: \"${ nope }\"}", "nope"),
    ] {
        let text = format!(
            "name: W\nversion: \"1\"\nsteps:\n  - id: a\n    task: t\n    input: {written}\n  - {{id: late, task: t}}\n"
        );
        let line = text.lines().nth(5).expect("the input's line");
        let byte = line.find(wrong).expect("it is written there");
        let column = line[..byte].chars().count() + 1;
        assert_eq!(places(&text, Format::Yaml), [(6, column)], "{line}");
    }
    let json = r#"{"name": "W", "version": "1", "steps": [{"id": "a", "compute": "\ud83d\ude00 \" ${ nope }"}]}"#;
    let column = json.find("nope").expect("it is written there") + 1;
    assert_eq!(places(json, Format::Json), [(1, column)]);
}

#[test]
fn a_problem_in_an_expression_is_where_it_shows_in_a_text_of_several_lines() {
    // Whatever is written in place of the value; all problems are where `nope` is written.
    for written in [
        "|\n      ${ nope }\n",
        ">- # folded\n\n      ä b\n       ${ input.a }\n\n      c ${\n        nope }\n",
        "|2\n        ${ nope }\n",
        "|+\n      a\n      ${ input.a }${ nope }\n\n",
        "plain ${ input.a }\n      and\n\n      ${ nope }\n",
        "\"ä \\\n        \\\" \\x41 \\t \\ud83d\\ude00\n\n   ${ nope }\"\n",
        "'it''s\n      ${ nope }'\n",
        "\n      ${ nope }\n",
    ] {
        for line_break in ["\n", "\r\n"] {
            let text = format!("name: W\nversion: \"1\"\nsteps:\n  - id: a\n    compute: {written}    when: true\n");
            let text = text.replace('\n', line_break);
            let (line, found) = text.lines().enumerate().find(|(_, line)| line.contains("nope")).expect("it is there");
            let column = found[..found.find("nope").expect("it is there")].chars().count() + 1;
            assert_eq!(places(&text, Format::Yaml), [(line + 1, column)], "{text}");
        }
    }
}

#[test]
fn a_problem_of_a_value_is_at_the_value_and_one_of_a_field_at_its_key() {
    let yaml = "name: W\nversion: 1\nsteps:\n  - id: a-b\n    tusk: t\n    timeout:\n      30\n    retry: {max_attempts: 0, jitter: [x]}\n    task: ~\n";
    assert_eq!(places(yaml, Format::Yaml), [(2, 10), (4, 9), (5, 5), (7, 7), (8, 27), (8, 30), (9, 5)]);
    let json = r#"{"name": "W", "version": 1, "steps": [{"id": "a-b", "tusk": "t", "task": null}]}"#;
    let column = |of: &str| json.find(of).expect("it is there") + 1;
    let expected = ["1,", "\"a-b", "\"tusk", "\"task\": null"].map(|of| (1, column(of)));
    assert_eq!(places(json, Format::Json), expected);
}

const SCHEMAS: &str = "\
name: W
version: \"1\"
input:
  type: object
  requird: [a]
  properties:
    a: {type: strnig}
    b: {minimum: low}
output: {$ref: \"#/$defs/b\", $defs: {a: {}}}
steps:
  - id: one
    compute: ${ nope }
";

#[test]
fn problems_of_schemas_are_told_at_their_keywords_beside_all_others_and_slips_are_warned_of() {
    assert_eq!(places(SCHEMAS, Format::Yaml), [(7, 15), (8, 18), (9, 16), (12, 17)]);
    let warnings = examine(SCHEMAS, Format::Yaml).warnings;
    let expected = "\
warning: `requird` is no keyword of JSON Schema: it checks nothing
 --> w.yaml:5:3
  |
5 |   requird: [a]
  |   ^^^^^^^
  = did you mean `required`?

";
    assert_eq!(render_warnings(&warnings, "w.yaml", SCHEMAS), expected);
    let right = "name: W\nversion: \"1\"\ninput: {requird: [a]}\nsteps: [{id: one, compute: 1}]\n";
    let checked = examine(right, Format::Yaml);
    assert!(checked.definition.is_ok(), "a warning refuses nothing");
    assert_eq!(checked.warnings.len(), 1);
}

const READS: &str = "\
name: W
version: \"1\"
input:
  properties: {amount: {type: number}, lines: {items: {properties: {sku: {}}}}}
  additionalProperties: false
steps:
  - id: one
    compute: {total: \"${ input.amuont }\", a/b: [\"ä ${ input.lines[0].skuu }\"]}
    when: ${ input.amount }
result: ${ steps.one.output.totl }
";

#[test]
fn what_cannot_be_read_is_told_where_it_is_written() {
    assert_eq!(places(READS, Format::Yaml), [(8, 32), (9, 14), (10, 29)]);
    let open = READS.replace("  additionalProperties: false\n", "");
    let checked = examine(&open, Format::Yaml);
    assert_eq!(checked.warnings.iter().map(|warning| warning.location).collect::<Vec<_>>(), [at(7, 32), at(7, 70)]);
    let report = check(READS, Format::Yaml).expect_err("it has problems").render("w.yaml", READS);
    let expected = "\
error: `${ input.amuont }`: its schema allows no field `amuont` in `input`
 --> w.yaml:8:32
  |
8 |     compute: {total: \"${ input.amuont }\", a/b: [\"ä ${ input.lines[0].skuu }\"]}
  |                                ^^^^^^
  = did you mean `amount`?
";
    assert!(report.starts_with(expected), "{report}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "[ -~äß☃]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[ -~ä]{0,6}", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Every pointer into a value.
fn pointers(value: &Value, pointer: &str, found: &mut Vec<String>) {
    found.push(pointer.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| pointers(item, &format!("{pointer}/{i}"), found));
        }
        Value::Object(fields) => fields.iter().for_each(|(key, field)| {
            pointers(field, &format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")), found);
        }),
        _ => {}
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,64}") {
        for format in [Format::Yaml, Format::Json] {
            if let Err(error) = check(&text, format) {
                prop_assert!(!error.render("x", &text).is_empty());
            }
        }
    }

    #[test]
    fn json_is_read_back_with_every_place(value in any_json(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let text = text.expect("JSON");
        let document = parse(&text, Format::Json).expect("JSON");
        prop_assert_eq!(&document.value, &value);
        let mut all = Vec::new();
        pointers(&value, "", &mut all);
        for pointer in all {
            let place = document.locate(&pointer).expect("every part has a place");
            // Keys and values begin where the place says.
            let line = text.lines().nth(place.line - 1).expect("the line is there");
            let there: String = line.chars().skip(place.column - 1).collect();
            let key = pointer.rsplit_once('/').map(|(_, key)| key.replace("~1", "/").replace("~0", "~"));
            let key = key.map(|key| Value::from(key).to_string());
            let start = value.pointer(&pointer).expect("the pointer leads somewhere").to_string();
            prop_assert!(
                key.is_some_and(|key| there.starts_with(&key)) || there.starts_with(&start[..start.len().min(1)]),
                "{} is not at {}: {}", pointer, place, there
            );
        }
    }

    #[test]
    fn a_definition_with_a_line_changed_is_read_or_refused_with_lines(line in 0..12usize, with in "[ -~]{0,20}") {
        let text: Vec<&str> = FAULTY.lines().enumerate().map(|(i, l)| if i == line { with.as_str() } else { l }).collect();
        let text = text.join("\n");
        match check(&text, Format::Yaml) {
            Ok(_) => {}
            Err(CheckError::Syntax(error)) => prop_assert!(error.location.is_some(), "{}", error),
            Err(CheckError::Problems(problems)) => {
                prop_assert!(problems.iter().all(|p| p.location.is_some()), "{:?}", problems);
            }
        }
    }
}

/// A test of time, in that the walk of every place from the beginning of its line would take minutes.
#[test]
fn one_long_line_is_read_as_soon_as_many_short_ones() {
    let count = 300_000;
    for format in [Format::Json, Format::Yaml] {
        let text = format!("[{}\"ä\", 7]", "\"ä\", ".repeat(if format == Format::Json { count } else { 20_000 }));
        let document = parse(&text, format).expect("it is right");
        let last = document.value.as_array().expect("a list").len() - 1;
        assert_eq!(document.locate(&format!("/{last}")), at(1, text.chars().count() - 1), "{format:?}");
    }
}

/// Whatever stands behind an expression in its line, finding where it is written takes no longer: this took the square of
/// the document's size once, and minutes.
#[test]
fn a_document_of_ten_thousand_steps_in_one_line_is_checked() {
    let step =
        |n: usize| json!({"id": format!("s{n}"), "task": "t", "input": {"a": "${ input.a }", "b": "${ input.b }"}});
    let steps: Vec<Value> = (0..10_000).map(step).collect();
    let document = json!({"name": "W", "version": "1", "steps": steps}).to_string();
    for format in [Format::Json, Format::Yaml] {
        assert!(check(&document, format).is_ok());
    }
}
