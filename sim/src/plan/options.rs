//! The options of a plan by their names: changed by `--set`, listed by `sim options`, and left out of scenario files where
//! the seed's own are meant.

use super::{ClusterPlan, Plan, StoreKind};
use crate::rng::Ratio;
use serde_json::{Value, json};

/// An option, as it stands in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its path, such as `faults.pause`.
    pub name: String,
    pub value: String,
    /// How a value is written.
    pub form: &'static str,
}

/// How many servers there are: one alone, or a cluster of so many on PostgreSQL.
const NODES: &str = "nodes";

const NODES_FORM: &str = "number: 1, or a cluster of so many on PostgreSQL";

impl Plan {
    /// The same with one option changed. `key` is a path such as `faults.pause`, which `0` switches off whatever kind of
    /// probability it is, or `nodes`.
    pub fn set(&self, key: &str, value: &str) -> Result<Plan, String> {
        if key == NODES {
            return self.with_nodes(value);
        }
        let mut all = json!(self);
        if key.starts_with("cluster.") && self.cluster.is_none() {
            return Err(format!("{key}: this plan has no cluster; say `nodes=2` before it, or `nodes=3`"));
        }
        let pointer = format!("/{}", key.replace('.', "/"));
        let place = all.pointer_mut(&pointer).ok_or_else(|| no_option(self, key))?;
        let fits = form(place);
        match place {
            Value::Object(fault) if value == "0" && fault.contains_key("chance") => {
                fault.insert("chance".into(), json!(Ratio::NEVER));
            }
            // How often is what is meant of a fault that lasts.
            Value::Object(fault) if fault.contains_key("chance") && value.parse::<Ratio>().is_ok() => {
                fault.insert("chance".into(), Value::String(value.into()));
            }
            Value::String(text) if value == "0" && text.parse::<Ratio>().is_ok() => *place = json!(Ratio::NEVER),
            _ => *place = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.into())),
        }
        serde_json::from_value(all).map_err(|e| format!("{value:?} is no value of {key}, a {fits}: {e}"))
    }

    fn with_nodes(&self, value: &str) -> Result<Plan, String> {
        match value.parse::<u32>() {
            Ok(1) => Ok(Plan { cluster: None, ..self.clone() }),
            Ok(servers @ 2..=9) => {
                let cluster = self.cluster.clone().unwrap_or_else(|| some_cluster(self));
                let cluster = Some(ClusterPlan { servers, ..cluster });
                Ok(Plan { cluster, store: StoreKind::Postgres, ..self.clone() })
            }
            _ => Err(format!("{value:?} is no value of {NODES}: a number from 1 to 9")),
        }
    }

    /// A plan of which somebody has written a part: the rest is as its seed draws it.
    pub fn from_part(part: &Value) -> Result<Plan, String> {
        let seed = part.get("seed").and_then(Value::as_u64).ok_or("a plan names its `seed`, a number")?;
        let mut drawn = Plan::draw(seed);
        if part.get("cluster").is_some_and(Value::is_object) && drawn.cluster.is_none() {
            drawn.cluster = Some(some_cluster(&drawn));
        }
        let mut all = json!(drawn);
        merge(&mut all, part);
        serde_json::from_value(all).map_err(|e| format!("a plan is not written so: {e}"))
    }

    /// All options by their names.
    pub fn options(&self) -> Vec<Setting> {
        let servers = self.cluster.as_ref().map_or(1, |cluster| cluster.servers);
        let mut all = vec![Setting { name: NODES.into(), value: servers.to_string(), form: NODES_FORM }];
        walk(&json!(self), "", &mut all);
        all
    }
}

/// A cluster as another seed draws one.
fn some_cluster(plan: &Plan) -> ClusterPlan {
    let others = (0..).map(|n| Plan::draw(plan.seed.wrapping_add(n)));
    let cluster = others.filter_map(|plan| plan.cluster).next().expect("some of the plans have one");
    ClusterPlan { validity_ms: cluster.validity_ms.max(2 * plan.server.check_ms), ..cluster }
}

fn merge(into: &mut Value, part: &Value) {
    match (into, part) {
        (Value::Object(into), Value::Object(part)) => {
            for (key, value) in part {
                match into.get_mut(key) {
                    Some(there) => merge(there, value),
                    None => drop(into.insert(key.clone(), value.clone())),
                }
            }
        }
        (into, part) => *into = part.clone(),
    }
}

fn walk(value: &Value, path: &str, found: &mut Vec<Setting>) {
    match value {
        Value::Object(members) if !members.contains_key("chance") => {
            for (key, value) in members {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                walk(value, &path, found);
            }
        }
        Value::Object(fault) => {
            let part = |name: &str| fault.get(name).cloned().unwrap_or_default();
            let chance = part("chance");
            let value = format!(
                "{} for {} to {} ms",
                chance.as_str().unwrap_or_default(),
                part("shortest_ms"),
                part("longest_ms")
            );
            found.push(Setting { name: path.into(), value, form: form(&Value::Object(fault.clone())) });
        }
        value => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            found.push(Setting { name: path.into(), value: text, form: form(value) });
        }
    }
}

fn form(value: &Value) -> &'static str {
    match value {
        Value::Number(_) => "number",
        Value::Bool(_) => "true or false",
        Value::Array(_) => "pair of bounds, such as [1,20]",
        Value::Object(fault) if fault.contains_key("chance") => {
            "fault: how often it begins, such as 1/40, or 0; its `.shortest_ms` and `.longest_ms` are options too"
        }
        Value::Object(_) => "group of options",
        Value::String(text) if text.parse::<Ratio>().is_ok() => "probability, such as 1/20, or 0",
        Value::String(_) => "word",
        Value::Null => "group of options, or number, that this seed is without",
    }
}

/// What to say where a name is none: those that are like it.
fn no_option(plan: &Plan, key: &str) -> String {
    let last = key.rsplit('.').next().unwrap_or(key);
    let all = plan.options();
    let like: Vec<&str> = all.iter().map(|o| o.name.as_str()).filter(|name| name.contains(last)).take(5).collect();
    match like.as_slice() {
        [] => format!("a plan has no option {key:?}; `sim options` lists them"),
        like => format!("a plan has no option {key:?}; is it {}?", like.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_changed_by_its_path_and_a_fault_is_switched_off_by_zero() {
        let plan = Plan::draw(1).set("clients", "9").unwrap();
        assert_eq!(plan.clients, 9);
        let plan = plan.set("faults.pause.chance", "1/3").unwrap();
        assert_eq!(plan.faults.pause.chance, Ratio::new(1, 3));
        assert!(plan.set("faults.pause", "0").unwrap().faults.pause.chance.is_never());
        assert_eq!(plan.set("faults.pause", "1/9").unwrap().faults.pause.chance, Ratio::new(1, 9));
        assert!(plan.set("disk.unknown", "0").unwrap().disk.unknown.is_never());
        assert_eq!(plan.set("think_ms", "[1,2]").unwrap().think_ms, [1, 2]);
    }

    #[test]
    fn what_is_no_option_or_no_value_of_one_is_refused_with_what_would_be_right() {
        let plan = Plan::draw(1);
        assert!(plan.set("faults.flood", "0").unwrap_err().contains("`sim options`"));
        assert!(plan.set("pause", "0").unwrap_err().contains("faults.pause"));
        let wrong = plan.set("clients", "many").unwrap_err();
        assert!(wrong.contains("no value of clients, a number"), "{wrong}");
        assert!(plan.set("disk.unknown", "2/1").unwrap_err().contains("`1/20`"));
        assert!(plan.set("nodes", "0").unwrap_err().contains("from 1 to 9"));
        let alone = plan.set("nodes", "1").unwrap();
        assert!(alone.set("cluster.exits", "true").unwrap_err().contains("nodes=2"));
    }

    #[test]
    fn every_plan_becomes_a_cluster_of_three_or_a_server_alone() {
        for seed in 0..20 {
            let plan = Plan::draw(seed).set("nodes", "3").unwrap();
            let cluster = plan.cluster.as_ref().expect("a cluster");
            assert_eq!((cluster.servers, plan.store), (3, StoreKind::Postgres));
            assert!(cluster.validity_ms >= 2 * plan.server.check_ms);
            assert_eq!(plan.set("nodes", "1").unwrap().cluster, None);
        }
    }

    #[test]
    fn every_listed_option_can_be_set_to_what_it_is() {
        let plan = Plan::draw(3).set("nodes", "2").unwrap();
        let options = plan.options();
        assert!(options.len() > 80, "{}", options.len());
        for Setting { name, value, form } in options {
            let value = value.split(" for ").next().expect("there is a first part");
            assert_eq!(plan.set(&name, value).as_ref(), Ok(&plan), "{name}, a {form}");
        }
    }

    #[test]
    fn a_part_of_a_plan_leaves_the_rest_to_its_seed() {
        assert_eq!(Plan::from_part(&json!({"seed": 5})), Ok(Plan::draw(5)));
        let part = json!({"seed": 5, "clients": 2, "faults": {"pause": {"chance": "1/7"}}, "cluster": {"servers": 3}});
        let plan = Plan::from_part(&part).unwrap();
        assert_eq!((plan.clients, plan.faults.pause.chance), (2, Ratio::new(1, 7)));
        assert_eq!(plan.faults.crash, Plan::draw(5).faults.crash);
        assert_eq!(plan.cluster.map(|cluster| cluster.servers), Some(3));
        assert!(Plan::from_part(&json!({"clients": 2})).unwrap_err().contains("`seed`"));
        assert!(Plan::from_part(&json!({"seed": 5, "klients": 2})).unwrap_err().contains("klients"));
    }
}
