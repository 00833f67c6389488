//! What the steps of one list wait for and read, by name and position.

use super::fields;
use super::graph::Place;
use super::steps::{Draft, Read};
use super::{Problems, join};
use crate::definition::expression::kind;
use crate::definition::nearest::did_you_mean;
use crate::id::StepId;
use serde_json::Value;

/// The steps that a step waits for, with their paths.
pub(super) fn read_after(path: &str, value: &Value, problems: &mut Problems) -> Option<Vec<(String, StepId)>> {
    let Value::Array(items) = value else {
        problems.add(path, format!("must be a list of step ids, not {}", kind(value)), || match value {
            Value::String(id) => format!("write `[{id}]`"),
            _ => "write `[]` for a step that starts at once".into(),
        });
        return None;
    };
    let mut after = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let path = join(path, &index.to_string());
        if let Some(id) = fields::text(path.clone(), item, problems) {
            after.push((path, StepId::new(id)));
        }
    }
    Some(after)
}

/// Finds each step's place in the order: names resolved, the written order where `after` says nothing.
pub(super) fn places(drafts: &[Draft], outer: &[StepId], problems: &mut Problems) -> Vec<Place> {
    let mut positions = std::collections::BTreeMap::new();
    for (index, draft) in drafts.iter().enumerate() {
        let Some(id) = &draft.id else { continue };
        if let Some(first) = positions.get(id) {
            let message = format!("the id `{id}` is taken by step {} already", first + 1);
            problems.add(join(&draft.path, "id"), message, || "give each step an id of its own".into());
        } else {
            positions.insert(id.clone(), index);
        }
        if outer.contains(id) {
            let message = format!("the id `{id}` is taken by a step of the workflow already");
            problems.add(join(&draft.path, "id"), message, || "give each step an id of its own".into());
        }
    }
    let names = || positions.keys().map(StepId::as_str);
    let all = || {
        let some: Vec<&str> = names().chain(outer.iter().map(StepId::as_str)).take(20).collect();
        format!("the steps are {}", some.join(", "))
    };
    let mut places = Vec::with_capacity(drafts.len());
    for (index, draft) in drafts.iter().enumerate() {
        let mut after = Vec::new();
        let mut unsure = draft.unsure;
        match &draft.after {
            None => {
                if let Some(before) = index.checked_sub(1) {
                    match &drafts[before].id {
                        Some(id) => after.push((id.clone(), positions.get(id).copied().unwrap_or(before))),
                        None => unsure = true,
                    }
                }
            }
            Some(written) => {
                for (path, id) in written {
                    if draft.id.as_ref() == Some(id) {
                        problems
                            .add(path.clone(), format!("step `{id}` cannot wait for itself"), || "remove it".into());
                    } else if after.iter().any(|(known, _)| known == id) {
                        problems.add(path.clone(), format!("`{id}` is listed twice"), || "remove one".into());
                    } else if let Some(position) = positions.get(id) {
                        after.push((id.clone(), *position));
                    } else {
                        unsure = true;
                        let hint = || did_you_mean(id.as_str(), names(), all);
                        problems.add(path.clone(), format!("there is no step `{id}`"), hint);
                    }
                }
            }
        }
        let mut reads = Vec::new();
        for Read { path, template, once_done } in &draft.reads {
            for (id, place) in template.places() {
                match positions.get(id) {
                    Some(position) if *once_done && *position == index => {}
                    Some(position) => reads.push((place.under(path), *position)),
                    None if outer.contains(id) => {}
                    None => {
                        let readable = || names().chain(outer.iter().map(StepId::as_str));
                        let hint = || did_you_mean(id.as_str(), readable(), all);
                        problems.add(place.under(path), format!("there is no step `{id}` to read from"), hint);
                    }
                }
            }
        }
        places.push(Place { path: draft.path.clone(), id: draft.id.clone(), after, unsure, reads });
    }
    places
}
