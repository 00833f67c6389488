//! What holds of every value and of every source, however little sense it makes.

use super::*;
use proptest::prelude::*;

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter_map("finite", |f| serde_json::Number::from_f64(f).map(Value::Number)),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-c]", inner, 0..4).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Texts made of the language's words, most of them nonsense.
fn any_source() -> impl Strategy<Value = String> {
    let words = prop_oneof![
        proptest::sample::select(vec![
            "input",
            "steps",
            "paid",
            "skipped",
            "output",
            "execution",
            ".",
            ".a",
            "[",
            "]",
            "(",
            ")",
            "{",
            "}",
            "|",
            "is",
            "not",
            "in",
            "if",
            "else",
            "and",
            "or",
            "+",
            "-",
            "*",
            "/",
            "//",
            "**",
            "%",
            "~",
            "==",
            "<",
            "=",
            ",",
            ":",
            "'",
            "\"",
            "none",
            "true",
            "1",
            "0.5",
            "1e9",
            "'a'",
            "[0]",
            "default",
            "length",
            "map",
            "sort",
            "range",
            "$",
            "${",
            "\\",
            "é",
        ])
        .prop_map(str::to_owned),
        ".{0,3}",
    ];
    proptest::collection::vec(words, 0..16).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_source_on_any_input_gives_a_value_or_an_error(input in any_json(), source in any_source()) {
        let _ = render_on(input.clone(), json!(format!("${{ {source} }}")));
        let _ = render_on(input, json!([source.clone(), {"k": format!("a ${{{source}}} b")}]));
    }

    #[test]
    fn any_value_without_dollar_signs_is_its_own_template(value in any_json()) {
        prop_assume!(!value.to_string().contains('$'));
        prop_assert_eq!(render_on(json!(null), value.clone()), Ok(value));
    }

    #[test]
    fn a_value_passes_through_the_engine_unchanged(value in any_json()) {
        prop_assert_eq!(render_on(value.clone(), json!("${ input }")), Ok(value.clone()));
        prop_assert_eq!(render_on(value.clone(), json!("${ (input) }")), Ok(value));
    }

    /// A path read in the JSON and the same path read by the engine.
    #[test]
    fn a_path_gives_the_same_with_and_without_the_engine(
        value in any_json(),
        path in proptest::collection::vec(proptest::sample::select(vec![".a", ".b", "[0]", "[-1]", "['c']"]), 0..4),
    ) {
        let path = path.concat();
        let direct = render_on(value.clone(), json!(format!("${{ input{path} }}")));
        let engine = render_on(value, json!(format!("${{ (input{path}) }}")));
        prop_assert_eq!(direct.ok(), engine.ok());
    }
}
