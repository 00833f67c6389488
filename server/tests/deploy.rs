//! The samples of `docs/deploy/` are of this Orbit: its metrics, its options, its routes.

mod common;

use common::book::root;
use common::{Server, folder, orbit, raw, run};
use orbit_io::definition::{Format, parse};
use serde_json::Value;
use std::collections::BTreeSet;

fn sample(name: &str) -> String {
    std::fs::read_to_string(root().join("docs/deploy").join(name)).expect("a sample")
}

fn yaml(text: &str) -> Value {
    parse(text, Format::Yaml).expect("it is YAML").value
}

/// The names of metrics in an expression.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("orbit_") || word.starts_with("process_")).map(str::to_owned).collect()
}

#[test]
fn every_alert_asks_for_metrics_that_there_are_and_the_cluster_has_those_that_it_needs() {
    // Whatever is served stands in this page: io/tests/http_front/described.rs.
    let book = std::fs::read_to_string(root().join("docs/src/reference/metrics.md")).expect("a page");
    let named = |metric: &str| book.contains(&format!("| `{metric}` |"));
    let alerts = yaml(&sample("alerts.yml"));
    let mut names = BTreeSet::new();
    for group in alerts["groups"].as_array().expect("groups") {
        for rule in group["rules"].as_array().expect("rules") {
            let (name, expression) = (&rule["alert"], rule["expr"].as_str().expect("an expression"));
            assert!(names.insert(name.as_str().expect("a name").to_owned()), "{name} stands twice");
            let metrics = metrics_of(expression);
            assert!(!metrics.is_empty(), "{name}: {expression}");
            for metric in metrics {
                let whole = metric.trim_end_matches("_bucket");
                assert!(named(whole), "{name} asks for {metric}");
            }
            let balanced = |open, close| expression.matches(open).count() == expression.matches(close).count();
            assert!(balanced('(', ')') && balanced('[', ']'), "{name}: {expression}");
        }
    }
    for needed in ["OrbitNoLeader", "OrbitSeveralLeaders", "OrbitFencedAppends", "OrbitClockOff", "OrbitAppendsStand"] {
        assert!(names.contains(needed), "{needed}");
    }
}

#[test]
fn the_manifest_gives_the_server_options_that_it_has_and_probes_that_it_answers() {
    let text = sample("kubernetes.yaml");
    let documents: Vec<Value> = text.split("\n---\n").map(yaml).collect();
    let of_kind = |kind: &str| documents.iter().filter(|one| one["kind"] == kind).collect::<Vec<_>>();
    let set = of_kind("StatefulSet")[0];
    assert_eq!(of_kind("PodDisruptionBudget").len(), 1);
    // A standby is never ready: pods must not wait for each other.
    assert_eq!(set["spec"]["podManagementPolicy"], "Parallel");
    assert_eq!(set["spec"]["updateStrategy"]["type"], "OnDelete");
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let help = run(orbit(&["server", "--help"])).stdout;
    let mut given = Vec::new();
    for variable in container["env"].as_array().expect("variables") {
        let name = variable["name"].as_str().expect("a name");
        assert!(help.contains(&format!("[env: {name}")), "{name} is no variable of the server");
        given.push(name);
    }
    for needed in ["ORBIT_CLUSTER", "ORBIT_NODE_ID", "ORBIT_ADVERTISE_ADDR", "ORBIT_DB", "ORBIT_TOKEN", "ORBIT_ADDR"] {
        assert!(given.contains(&needed), "{needed}");
    }
    let node_id = container["env"].as_array().unwrap().iter().find(|one| one["name"] == "ORBIT_NODE_ID").unwrap();
    assert_eq!(node_id["valueFrom"]["fieldRef"]["fieldPath"], "metadata.name");
    // Every selector meets the pods' label, and every port has its name.
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    for service in of_kind("Service") {
        assert_eq!(&service["spec"]["selector"], labels);
        assert_eq!(service["spec"]["ports"][0]["targetPort"], container["ports"][0]["name"]);
    }
    assert_eq!(
        of_kind("Service").iter().filter(|one| one["metadata"]["name"] == set["spec"]["serviceName"]).count(),
        1
    );
}

#[tokio::test]
async fn the_probes_of_the_manifest_are_answered() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    let text = sample("kubernetes.yaml");
    let paths: Vec<&str> = text.split("path: /").skip(1).filter_map(|rest| rest.split([',', '}']).next()).collect();
    assert_eq!(paths, ["v1/ready", "livez"]);
    for path in paths {
        assert_eq!(raw::get(&server, &format!("/{path}")).status, 200, "{path}");
    }
}

#[test]
fn the_unit_starts_what_there_is_and_the_pooler_keeps_sessions_apart() {
    let unit = sample("orbit.service");
    let started = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/")).expect("a command");
    assert_eq!(started, "orbit server --cluster --addr 0.0.0.0:7233");
    assert!(sample("pgbouncer.ini").lines().any(|line| line == "pool_mode = session"));
}
