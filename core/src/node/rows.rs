//! What the rows of an execution are to say after a draft: its tasks in the queue, and when it wants to wake.

use super::draft::{Leaves, PARK_AFTER};
use super::slot::{Resident, task_id};
use crate::api::request::Contract;
use crate::definition::Definition;
use crate::execution::{UnitStatus, next_wake};
use crate::id::{TaskId, UnitKey};
use crate::store::append::{TaskChange, TaskRow, TaskState, Wake};
use crate::time::ClusterMs;
use std::collections::{BTreeMap, BTreeSet};

/// Rows of `orbit_tasks` follow the state: there is a row for each scheduled attempt, and no other. Each change of a row
/// names the state that it was decided from (protocols, 21).
pub(super) fn change_tasks(resident: &mut Resident, requeue: &BTreeSet<TaskId>) -> Vec<TaskChange> {
    let state = &resident.state;
    let mut changes = Vec::new();
    let mut rows = BTreeMap::new();
    for (key, unit, seq) in state.scheduled() {
        let task = task_id(state, seq);
        let row = match resident.tasks.get(&task) {
            Some(found) if requeue.contains(&task) => {
                changes.push(TaskChange::Requeue { task: task.clone(), expect: *found });
                TaskState::Queued
            }
            Some(found) => *found,
            None => {
                let Some(contract) = contract_of(&resident.definition, key) else { continue };
                let UnitStatus::Scheduled { at, .. } = unit.status else { unreachable!("listed as scheduled") };
                changes.push(TaskChange::Insert(TaskRow {
                    task: task.clone(),
                    execution: state.identity.execution_id.clone(),
                    unit: key.clone(),
                    attempt: unit.attempt,
                    task_name: contract.task_name,
                    contract_version: contract.contract_version,
                    enqueued_ms: at,
                }));
                TaskState::Queued
            }
        };
        rows.insert(task, row);
    }
    for (task, expect) in &resident.tasks {
        if !rows.contains_key(task) {
            changes.push(TaskChange::Delete { task: task.clone(), expect: *expect });
        }
    }
    resident.tasks = rows;
    changes
}

/// What the owner row says of the next wake, and whether the execution leaves memory.
pub(super) fn wake_of(resident: &Resident, parks: bool, now: ClusterMs) -> (Wake, Leaves) {
    let state = &resident.state;
    let queued = state.scheduled().next().is_some();
    if resident.stays() || (queued && !parks) {
        return (Wake::Hot, Leaves::No);
    }
    let leaves = if parks { Leaves::AtOnce } else { Leaves::Rested };
    match next_wake(&resident.definition, state) {
        Some(at) if at > now + PARK_AFTER || parks => (Wake::At(at), leaves),
        Some(_) => (Wake::Hot, Leaves::No),
        None => (Wake::Never, leaves),
    }
}

/// The contract of the task that a unit runs.
pub(crate) fn contract_of(definition: &Definition, unit: &UnitKey) -> Option<Contract> {
    let task = definition.task_of(unit)?;
    Some(Contract { task_name: task.task.clone(), contract_version: task.contract_version.clone() })
}
