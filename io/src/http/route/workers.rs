//! `/v1/workers`: sessions, polls, heartbeats.

use super::{MAX_NAME, Payloads, Routed, tasks};
use crate::http::fields::{Fields, Place, list, name, number, session, token};
use orbit_core::api::request::{Contract, Poll, Register};
use orbit_core::api::{ApiError, Request};
use orbit_core::id::{ContractVersion, TaskName, WorkerId};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

pub const MAX_RUNTIME: usize = 64;
pub const MAX_SDK: usize = 128;
pub const MAX_CONTRACTS: usize = 1000;
pub const MAX_HOLDING: usize = 10_000;
pub const MAX_TASKS: u64 = 1000;
/// The longest poll.
pub const MAX_WAIT_MS: u64 = 60_000;
/// What a poll that does not say waits.
pub const WAIT_MS: u64 = 30_000;

/// POST `/v1/workers/register`
pub fn register(body: Value) -> Result<Request, ApiError> {
    let mut fields = Fields::of(body, Place::Body, &["worker_id", "runtime", "sdk", "contracts"])?;
    let register = Register {
        worker_id: WorkerId::new(fields.required("worker_id", |value, place| name(value, place, MAX_NAME))?),
        runtime: fields.required("runtime", |value, place| name(value, place, MAX_RUNTIME))?,
        sdk: fields.optional("sdk", |value, place| name(value, place, MAX_SDK))?,
        contracts: fields.required("contracts", |value, place| {
            let contracts = list(value, place, MAX_CONTRACTS, contract)?;
            if contracts.is_empty() {
                return Err(place.invalid("is empty; name each task that the worker runs"));
            }
            let mut seen = BTreeSet::new();
            match contracts.iter().position(|contract| !seen.insert(contract)) {
                Some(twice) => Err(Place::Item(&place, twice).invalid("names the same task and version as one before")),
                None => Ok(contracts),
            }
        })?,
    };
    Ok(Request::Register(register))
}

fn contract(value: Value, place: Place<'_>) -> Result<Contract, ApiError> {
    let mut fields = Fields::of(value, place, &["task_name", "contract_version"])?;
    let version = fields.optional("contract_version", |value, place| name(value, place, MAX_NAME))?;
    Ok(Contract {
        task_name: TaskName::new(fields.required("task_name", |value, place| name(value, place, MAX_NAME))?),
        // As definitions have it.
        contract_version: ContractVersion::new(version.unwrap_or_else(|| "1".into())),
    })
}

/// POST `/v1/workers/poll`
pub fn poll(body: Value, payloads: &Payloads) -> Result<Routed, ApiError> {
    let mut fields = Fields::of(body, Place::Body, &["session_id", "max_tasks", "wait_ms", "holding", "results"])?;
    let session = fields.required("session_id", session)?;
    let max_tasks = fields.optional("max_tasks", |value, place| number(value, place, 0, MAX_TASKS))?.unwrap_or(1);
    let wait = fields.optional("wait_ms", |value, place| number(value, place, 0, MAX_WAIT_MS))?.unwrap_or(WAIT_MS);
    let holding = fields.optional("holding", |value, place| list(value, place, MAX_HOLDING, token))?;
    let batch = fields.optional("results", |value, place| tasks::batch(value, place, payloads))?.unwrap_or_default();
    let request = Request::Poll(Poll {
        session,
        max_tasks: u32::try_from(max_tasks).expect("bounded just above"),
        wait: Duration::from_millis(wait),
        holding,
        results: batch.results,
    });
    Ok(Routed { refused: batch.refused, ..request.into() })
}

/// POST `/v1/workers/heartbeat`
pub fn heartbeat(body: Value) -> Result<Request, ApiError> {
    let mut fields = Fields::of(body, Place::Body, &["session_id", "holding"])?;
    Ok(Request::Heartbeat {
        session: fields.required("session_id", session)?,
        holding: fields.optional("holding", |value, place| list(value, place, MAX_HOLDING, token))?,
    })
}

/// POST `/v1/workers/unregister`
pub fn unregister(body: Value) -> Result<Request, ApiError> {
    let mut fields = Fields::of(body, Place::Body, &["session_id"])?;
    Ok(Request::Unregister { session: fields.required("session_id", session)? })
}
