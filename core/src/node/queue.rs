//! Which attempts wait in the queue, and since when: for people (`claim` knows of it only what claims need).
//!
//! Rows are noted as the appends that make and take them are done, and as histories are loaded. After a restart the
//! rows of executions that are out of memory are not known until those come back.

use super::draft::Draft;
use super::slot::{Resident, task_id};
use crate::api::response::QueueView;
use crate::execution::{State, UnitStatus};
use crate::id::{ExecutionId, TaskId, TaskName};
use crate::node::rows::contract_of;
use crate::store::append::{TaskChange, TaskState};
use crate::time::ClusterMs;
use std::collections::BTreeMap;

/// The rows in state `queued` that this server knows of.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    rows: BTreeMap<TaskId, (TaskName, ClusterMs)>,
}

impl Queue {
    /// What an append that is done did to the queue.
    pub fn written(&mut self, draft: &Draft) {
        for change in &draft.tasks {
            match change {
                TaskChange::Insert(row) => {
                    self.rows.insert(row.task.clone(), (row.task_name.clone(), row.enqueued_ms));
                }
                TaskChange::Delete { task, .. } => self.taken(task),
                // It goes back: below.
                TaskChange::Requeue { .. } => {}
            }
        }
        let goes_back = draft.tasks.iter().any(|change| matches!(change, TaskChange::Requeue { .. }));
        if let Some(resident) = draft.resident.as_ref().filter(|_| goes_back) {
            self.note(resident);
        }
    }

    /// A row was claimed, or is gone.
    pub fn taken(&mut self, task: &TaskId) {
        self.rows.remove(task);
    }

    /// An execution was read: its rows are these, and no others.
    pub fn loaded(&mut self, execution: &ExecutionId, resident: Option<&Resident>) {
        // No id of an execution holds a `/`: this is the beginning of the ids of its rows alone.
        let first = TaskId::new(format!("{execution}/"));
        let known = self.rows.range(first.clone()..).map(|(task, _)| task);
        let stale: Vec<TaskId> = known.take_while(|task| task.as_str().starts_with(first.as_str())).cloned().collect();
        for task in stale {
            self.rows.remove(&task);
        }
        if let Some(resident) = resident {
            self.note(resident);
        }
    }

    fn note(&mut self, resident: &Resident) {
        let state: &State = &resident.state;
        for (unit, scheduled, seq) in state.scheduled() {
            let task = task_id(state, seq);
            if resident.tasks.get(&task) != Some(&TaskState::Queued) {
                continue;
            }
            let UnitStatus::Scheduled { at, .. } = scheduled.status else { unreachable!("listed as scheduled") };
            if let Some(contract) = contract_of(&resident.definition, unit) {
                self.rows.insert(task, (contract.task_name, at));
            }
        }
    }

    /// The figures at `now`.
    pub fn view(&self, now: ClusterMs) -> QueueView {
        let mut counts: BTreeMap<&TaskName, u64> = BTreeMap::new();
        for (name, _) in self.rows.values() {
            *counts.entry(name).or_default() += 1;
        }
        let mut by_task: Vec<(TaskName, u64)> = counts.into_iter().map(|(name, count)| (name.clone(), count)).collect();
        // Stable: of as many, by name.
        by_task.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        by_task.truncate(QueueView::MAX_NAMES);
        let oldest = self.rows.values().map(|(_, since)| *since).min();
        let oldest_ms = oldest.and_then(|since| u64::try_from(now.0 - since.0).ok()).unwrap_or(0);
        QueueView { tasks: self.rows.len() as u64, oldest_ms, by_task }
    }
}
