//! Definitions: checked, deployed, listed and shown.

use crate::common::{Ended, orbit, run};
use crate::{STUCK, SUM, Stage, error, file_name};
use serde_json::{Value, json};

#[tokio::test]
async fn a_definition_is_deployed_once_and_never_changed() {
    let stage = Stage::new(&[]).await;
    let file = stage.file("sum.yaml", SUM);
    let deploy = |more: &[&str]| stage.run(&[&["deploy", file_name(&file)][..], more].concat());
    let created = deploy(&["-o", "json"]).json();
    assert_eq!((&created[0]["name"], &created[0]["result"]), (&json!("Sum"), &json!("created")));
    assert_eq!(deploy(&["-o", "jsonl"]).json()["result"], "unchanged");
    assert_eq!(deploy(&["-o", "ids"]).stdout, "Sum\n");
    assert!(deploy(&[]).stdout.contains("unchanged"));
    stage.file("sum.yaml", &SUM.replace("input.a + input.b", "input.a - input.b"));
    let conflict = deploy(&[]);
    assert_eq!(conflict.code, 1);
    assert!(error(&conflict).contains("DEFINITION_CONFLICT") && conflict.stderr.contains("hint: "), "{conflict:?}");
    // Standard input, too.
    let from_input = stage.run_with_input(&["deploy", "-"], STUCK);
    assert_eq!(from_input.code, 0, "{from_input:?}");
}

#[tokio::test]
async fn a_bad_definition_is_refused_with_the_line_of_each_problem_and_does_not_keep_others_back() {
    let stage = Stage::new(&[]).await;
    let bad = stage.file("bad.yaml", &SUM.replace("steps:", "stepz:"));
    let good = stage.file("good.yaml", SUM);
    let checked = run(orbit(&["check", file_name(&bad), file_name(&good)]));
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(checked.stdout.contains("Sum 1.0.0 is valid"), "{checked:?}");
    assert!(checked.stderr.contains("bad.yaml:5") && checked.stderr.contains("steps"), "{checked:?}");
    assert_eq!(run(orbit(&["check", file_name(&good)])).code, 0);

    let deployed = stage.run(&["deploy", file_name(&bad), file_name(&good), "-o", "ids"]);
    assert_eq!((deployed.code, deployed.stdout.as_str()), (1, "Sum\n"), "{deployed:?}");
    assert!(error(&deployed).contains("bad.yaml") && deployed.stderr.contains("bad.yaml:5"), "{deployed:?}");
    let no_yaml = stage.file("no.yaml", "a: [");
    assert_eq!(run(orbit(&["check", file_name(&no_yaml)])).code, 1);
    let refused = stage.run(&["deploy", file_name(&no_yaml)]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("no.yaml:1:4") && refused.stderr.contains("   ^\n"), "{refused:?}");
}

#[tokio::test]
async fn a_slip_in_a_schema_is_warned_of_by_check_and_deploy_and_refuses_nothing() {
    let stage = Stage::new(&[]).await;
    let file = stage.file("slip.yaml", &SUM.replace("required:", "requird:"));
    let warned = |ended: &Ended| {
        assert_eq!(ended.code, 0, "{ended:?}");
        let warning = "warning: `requird` is no keyword of JSON Schema: it checks nothing";
        assert!(ended.stderr.starts_with(warning), "{ended:?}");
        assert!(
            ended.stderr.contains("slip.yaml:4:23") && ended.stderr.contains("did you mean `required`?"),
            "{ended:?}"
        );
    };
    let checked = run(orbit(&["check", file_name(&file)]));
    warned(&checked);
    assert!(checked.stdout.contains("Sum 1.0.0 is valid"), "{checked:?}");
    let deployed = stage.run(&["deploy", file_name(&file), "-o", "json"]);
    warned(&deployed);
    let warning = &deployed.json()[0]["warnings"][0];
    assert_eq!(
        (&warning["path"], &warning["line"], &warning["column"]),
        (&json!("/input/requird"), &json!(4), &json!(23))
    );
    // Strictly, it is refused, and nothing is deployed.
    assert!(checked.stderr.ends_with("slip.yaml: 1 warning, allowed without --strict\n"), "{checked:?}");
    let strict = run(orbit(&["check", "--strict", file_name(&file)]));
    assert_eq!((strict.code, strict.stdout.as_str()), (1, ""), "{strict:?}");
    assert!(strict.stderr.contains("slip.yaml: 1 warning, refused with --strict\n"), "{strict:?}");
    let other = stage.file("other.yaml", &SUM.replace("required:", "requird:").replace("Sum", "Other"));
    let refused = stage.run(&["deploy", "--strict", file_name(&other)]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(error(&refused).contains("DEFINITION_WARNINGS"), "{refused:?}");
    assert!(refused.stderr.contains("other.yaml:4:23") && refused.stderr.contains("^^^^^^^"), "{refused:?}");
    assert_eq!(stage.run(&["workflows", "list", "-o", "ids"]).stdout.trim(), "Sum");
    assert_eq!(stage.run(&["deploy", "--strict", file_name(&stage.file("other.yaml", SUM))]).code, 1, "a conflict");
    let right = stage.file("other.yaml", &SUM.replace("Sum", "Other"));
    assert_eq!(stage.run(&["deploy", "--strict", file_name(&right)]).code, 0);
    let wrong =
        stage.file("wrong.yaml", &SUM.replace("{type: integer}", "{type: strnig}").replace("input.a +", "inptu.a +"));
    let refused = stage.run(&["deploy", file_name(&wrong)]);
    for place in ["wrong.yaml:4:64", "wrong.yaml:4:83", "wrong.yaml:6:28"] {
        assert!(refused.stderr.contains(place), "{place}: {refused:?}");
    }
}

#[tokio::test]
async fn workflows_are_listed_and_shown() {
    let stage = Stage::with_workflows().await;
    let second = stage.file("second.yaml", &SUM.replace("version: 1.0.0", "version: 1.1.0"));
    stage.run(&["deploy", file_name(&second)]);
    let listed = stage.run(&["workflows", "list", "-o", "json"]).json();
    let of_sum: Vec<(&Value, &Value)> = listed
        .as_array()
        .expect("a list")
        .iter()
        .filter(|one| one["name"] == "Sum")
        .map(|one| (&one["version"], &one["latest"]))
        .collect();
    assert_eq!(of_sum.len(), 2);
    assert!(of_sum.contains(&(&json!("1.1.0"), &json!(true))), "{of_sum:?}");
    assert!(of_sum.contains(&(&json!("1.0.0"), &json!(false))), "{of_sum:?}");
    assert!(stage.run(&["workflows", "list"]).stdout.contains("Adds two numbers"));
    assert_eq!(stage.run(&["workflows", "show", "Sum", "-o", "json"]).json()["version"], "1.1.0");
    let old = stage.run(&["workflows", "show", "Sum", "--version", "1.0.0"]);
    assert!(old.stdout.contains("1.0.0") && old.stdout.contains("input.a + input.b"), "{old:?}");
}
