//! Recovering: what a server that has become the writer reads before it serves.
//!
//! Definitions and totals first, then the executions that were in memory, a page at a time; each of those is loaded. What only
//! waits for a timer is not read (design, section 6).

use super::lifecycle::Phase;
use super::{Connection, LogEvent, Node, Purpose};
use crate::definition::Definition;
use crate::id::ExecutionId;
use crate::mutant::Mutants;
use crate::node::slot::{Body, Slot};
use crate::store::append::Wake;
use crate::store::outcome::{Failure, FailureKind};
use crate::store::statement::{DefinitionRow, ReadDue};
use crate::store::transaction::{Transaction, Verdict};
use std::sync::Arc;

/// What a recovery reads before it loads executions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reading {
    /// Definitions and totals.
    Whole,
    /// A page of the executions that were in memory.
    Hot(Option<(Wake, ExecutionId)>),
}

/// How many executions one page of a recovery names.
const RECOVERY_PAGE: u32 = 1000;

impl<M: Mutants> Node<M> {
    /// The definitions and totals are here: now the executions that were in memory.
    pub(super) fn on_recover(&mut self, outcome: Result<Verdict, Failure>) {
        if !matches!(self.phase, Phase::Recovering { .. }) {
            return;
        }
        let recovery = match outcome {
            Ok(Verdict::Recover(recovery)) => recovery,
            Ok(other) => unreachable!("a recovery gives a recovery's verdict, not {other:?}"),
            Err(failure) => return self.recovery_failed(&failure),
        };
        self.learn_definitions(recovery.definitions);
        (self.active, self.held) = (recovery.totals.active, recovery.totals.held);
        self.claims.recover(recovery.totals.queued);
        self.read_on(Reading::Hot(None));
    }

    /// Takes stored definitions in.
    pub(super) fn learn_definitions(&mut self, rows: Vec<DefinitionRow>) {
        for row in rows {
            match Definition::from_document(&row.document) {
                Ok(definition) => self.catalog.insert(Arc::new(definition), row.created_at_ms),
                // They may be read again and again; it is said once.
                Err(_) if !self.catalog.is_new_unreadable(&row.name, &row.version) => {}
                Err(problems) => self.log(LogEvent::DefinitionUnreadable {
                    workflow: row.name,
                    version: row.version,
                    reason: problems.first().map(|p| p.message.clone()).unwrap_or_default(),
                }),
            }
        }
    }

    /// Alone, a server that has just been started says at once what is wrong. Otherwise it is read again: a connection that
    /// ends in a recovery costs no lead, which goes when the checks fail as well.
    fn recovery_failed(&mut self, failure: &Failure) {
        let message = format!("the database cannot be read: {}", failure.message);
        match self.standby() {
            None if !self.returns => self.unservable(message),
            Some(_) if matches!(failure.kind, FailureKind::Data | FailureKind::Broken) => self.step_down(message),
            _ => self.pause_after_failure(),
        }
    }

    /// Reads what a recovery needs first.
    pub(super) fn read_on(&mut self, reading: Reading) {
        self.reads = Some(reading.clone());
        match reading {
            Reading::Whole => self.send(Connection::Store, Transaction::Recover, Purpose::Recover),
            Reading::Hot(after) => {
                let read = ReadDue { until: Wake::Hot, after, owner: None, limit: RECOVERY_PAGE };
                self.send(Connection::Store, Transaction::Due(read), Purpose::RecoverHot);
            }
        }
    }

    /// Goes on with a recovery that paused after a failure.
    pub(super) fn recover_on(&mut self) {
        if !self.is_recovering() {
            return;
        }
        match self.reads.clone() {
            Some(reading) => self.read_on(reading),
            // Loads begin once all that is to be read is known.
            None => self.send_loads(),
        }
    }

    pub(super) fn on_recover_hot(&mut self, outcome: Result<Verdict, Failure>) {
        if !matches!(self.phase, Phase::Recovering { .. }) {
            return;
        }
        let rows = match outcome {
            Ok(Verdict::Due(rows)) => rows,
            Ok(other) => unreachable!("a scan gives rows, not {other:?}"),
            Err(failure) => return self.recovery_failed(&failure),
        };
        let last = rows.due.last().cloned();
        let full = rows.due.len() >= RECOVERY_PAGE as usize;
        for (_, execution) in rows.due {
            self.slots.insert(execution.clone(), Slot::recovering());
            self.to_load.insert(execution);
        }
        if full {
            self.read_on(Reading::Hot(last));
        } else {
            self.reads = None;
            self.due.expect(rows.next);
            self.send_loads();
            self.serve_when_recovered();
        }
    }

    /// Serves once every execution that was in memory is in memory again.
    pub(super) fn serve_when_recovered(&mut self) {
        let Phase::Recovering { fence, cluster_id, since } = self.phase else { return };
        if self.reads.is_some() || self.slots.values().any(|slot| matches!(slot.body, Body::Loading)) {
            return;
        }
        self.phase = Phase::Serving { fence, cluster_id };
        self.begin_registry();
        let recovery_ms = u64::try_from(self.now.mono.since(since).as_millis()).unwrap_or(u64::MAX);
        self.log(LogEvent::Recovered {
            executions: self.active,
            resident: self.slots.len() as u64,
            in_flight: self.attempts.len() as u64,
            recovery_ms,
        });
        if self.standby().is_some() {
            // Those who wait since before: the one who led may have recorded their ends.
            self.read_for_waits();
            let (node_id, term, active_executions) = (self.config.node_id.clone(), fence.term, self.active);
            self.log(LogEvent::Leading { node_id, term, active_executions, recovery_ms });
        }
    }
}
