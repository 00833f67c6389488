//! What must hold after the run.

use crate::chaos::{KILLS, ORDERS, Record, Store};
use crate::common::history;
use crate::worker::{self, Delivery};
use orbit_core::definition::Definition;
use orbit_core::execution::event::{Event, Recorded};
use orbit_core::id::Token;
use orbit_sdk::{Client, ExecutionsQuery, Status};
use std::collections::{BTreeMap, BTreeSet};

/// What the run saw, in numbers.
#[derive(Debug, Default)]
struct Seen {
    events: usize,
    redeliveries: usize,
    /// Late results that became the step's result, and those that were recorded as stale.
    late_accepted: usize,
    late_stale: usize,
    /// The token with which each attempt of each step was handed out first.
    first_tokens: BTreeSet<String>,
}

/// Checks everything; the figures, or every problem that was found.
pub async fn all(record: &Record) -> Result<String, Vec<String>> {
    let mut problems = Vec::new();
    let mut seen = Seen::default();
    let client = record.server.client();
    let text = crate::common::ORDER_PROCESSING;
    let definition =
        orbit_io::definition::check(text, orbit_io::definition::Format::Yaml).expect("the example is valid");

    if record.acknowledged.len() != ORDERS {
        problems.push(format!("{} of {ORDERS} starts were acknowledged", record.acknowledged.len()));
    }
    for id in &record.acknowledged {
        match history_of(&client, id).await {
            Ok(history) => of_one_history(&definition, id, &history, &mut seen, &mut problems),
            Err(missing) => problems.push(format!("{id} was acknowledged, and: {missing}")),
        }
    }
    of_pings(&client, record, &mut problems).await;
    let deliveries: Vec<Delivery> = record.deliveries.iter().flat_map(|file| worker::read(file)).collect();
    let flagged = of_deliveries(&deliveries, &seen, &mut problems);
    of_durability(record, &mut problems);

    // Nothing passes for want of trying.
    let late = seen.late_accepted + seen.late_stale;
    for (what, saw, least) in [
        ("redeliveries", seen.redeliveries, 5),
        ("deliveries flagged as repeated", flagged, 5),
        ("late results", late, 5),
        ("kills with an append in flight", record.appends_hit, 10),
    ] {
        if saw < least {
            problems.push(format!("the run saw {saw} {what}, which is too few to show anything (at least {least})"));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(format!(
        "{ORDERS} orders and {} pings went through {KILLS} kills of the server ({} with an append in flight), {} kills \
         and {} stops of workers: {} events of orders, {} deliveries, {flagged} of them flagged as repeated; {} \
         redeliveries, {late} late results ({} accepted, {} stale)",
        record.pings.len(),
        record.appends_hit,
        record.worker_kills,
        record.worker_stops,
        seen.events,
        deliveries.len(),
        seen.redeliveries,
        seen.late_accepted,
        seen.late_stale,
    ))
}

/// The whole history of a completed execution, as the API shows it.
async fn history_of(client: &Client, id: &str) -> Result<Vec<Recorded>, String> {
    let execution = client.execution(id).await.map_err(|error| error.to_string())?;
    let history = history::read(client, id).await?;
    if execution.status() != &Status::Completed {
        let last: Vec<&Event> = history.iter().rev().take(3).map(|recorded| &recorded.event).collect();
        return Err(format!("it is {} and not completed; its last events: {last:?}", execution.status()));
    }
    Ok(history)
}

/// Every ping whose start was acknowledged is there, and has ended.
async fn of_pings(client: &Client, record: &Record, problems: &mut Vec<String>) {
    let mut there = BTreeSet::new();
    let mut query = ExecutionsQuery { workflow: Some("Ping".into()), limit: Some(1000), ..ExecutionsQuery::default() };
    loop {
        let page = match client.executions(&query).await {
            Ok(page) => page,
            Err(error) => return problems.push(format!("the executions cannot be listed: {error}")),
        };
        for execution in page.executions {
            if execution.status != Status::Completed {
                problems.push(format!("{} is {}", execution.execution_id, execution.status));
            }
            if !there.insert(execution.execution_id.clone()) {
                problems.push(format!("{} is listed twice", execution.execution_id));
            }
        }
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    for missing in record.pings.difference(&there) {
        problems.push(format!("{missing} was acknowledged, and is missing"));
    }
}

/// One history: gapless, one end, one success a step, and exactly what `decide` says.
fn of_one_history(
    definition: &Definition,
    id: &str,
    history: &[Recorded],
    seen: &mut Seen,
    problems: &mut Vec<String>,
) {
    problems.extend(history::faults(definition, id, history));
    seen.events += history.len();
    let mut succeeded = BTreeSet::new();
    let mut uncertain: BTreeSet<Token> = BTreeSet::new();
    let mut dispatched = BTreeSet::new();
    for event in history {
        match &event.event {
            Event::StepSucceeded { step, token, .. } => {
                succeeded.insert(step.clone());
                seen.late_accepted += usize::from(token.as_ref().is_some_and(|token| uncertain.contains(token)));
            }
            Event::StaleResultIgnored { token, .. } => {
                seen.late_stale += usize::from(uncertain.contains(token));
            }
            Event::StepAttemptUncertain { token, .. } => {
                uncertain.insert(token.clone());
            }
            Event::StepDispatched { step, attempt, token, .. } if dispatched.insert((step.clone(), *attempt)) => {
                seen.first_tokens.insert(token.to_string());
            }
            Event::StepScheduled { redelivery: true, .. } => seen.redeliveries += 1,
            _ => {}
        }
    }
    if succeeded.len() != definition.steps.len() {
        problems.push(format!("{id}: {} of {} steps succeeded", succeeded.len(), definition.steps.len()));
    }
}

/// What the workers received: every repetition was flagged, and the key of a step never changed. Gives how many
/// deliveries were flagged.
///
/// What is a repetition, the order of dispatches in the histories says, and not the order in which workers read: one
/// that stood still reads the first delivery after others have read, and done, the repetition. So an unflagged delivery
/// must carry the token with which its attempt was handed out first, and must be the only unflagged one with it.
fn of_deliveries(deliveries: &[Delivery], seen: &Seen, problems: &mut Vec<String>) -> usize {
    let mut unflagged: BTreeSet<&str> = BTreeSet::new();
    let mut keys: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for delivery in deliveries {
        let Delivery { execution, step, attempt, token, key, .. } = delivery;
        let is_first = seen.first_tokens.contains(token);
        let is_right = delivery.redelivery || (is_first && unflagged.insert(token));
        if !is_right {
            problems.push(format!("{execution}: attempt {attempt} of {step} came again without a flag: {delivery:?}"));
        }
        let before = keys.insert((execution, step), key);
        if before.is_some_and(|before| before != key) {
            problems.push(format!("{execution}: step {step} had two keys, {before:?} and {key}"));
        }
    }
    if keys.values().collect::<BTreeSet<_>>().len() != keys.len() {
        problems.push("two steps had the same idempotency key".into());
    }
    deliveries.iter().filter(|delivery| delivery.redelivery).count()
}

/// A log that is flushed at each commit, as the server that wrote and the database itself say.
fn of_durability(record: &Record, problems: &mut Vec<String>) {
    let durability = &record.durability;
    let settings = match record.store {
        Store::Sqlite => &["journal_mode=wal", "synchronous=FULL", "journal_mode:\"wal\""][..],
        Store::Postgres => &["synchronous_commit=on", "fsync=on", "synchronous_commit:\"on\"", "fsync:\"on\""][..],
    };
    for setting in settings {
        if !durability.contains(setting) {
            problems.push(format!("the database does not say {setting}: {durability}"));
        }
    }
}
