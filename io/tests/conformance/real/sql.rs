//! The language as SQL, and what comes of it.

use super::client::Answer;
use orbit_sim::postgres::script::{Change, Clock, Filter, Got, OnConflict, Op, Order, Seen};
use orbit_sim::postgres::{Code, Policy, Scope, Settings, Strength};

/// One statement. It is sent as text: everything that it is reaches the backend at once.
pub fn text(op: &Op) -> String {
    match op {
        Op::Begin => "BEGIN".into(),
        Op::Commit => "COMMIT".into(),
        Op::Rollback => "ROLLBACK".into(),
        Op::Set(settings) => set(settings),
        Op::Read(table, filter) => {
            format!("SELECT id, v FROM {} t WHERE {} ORDER BY id", table.name(), condition(filter))
        }
        Op::Lock { table, filter, strength, policy, order, limit } => {
            let order = match order {
                Order::Id => "id",
                Order::V => "v, id",
            };
            let limit = limit.map(|n| format!(" LIMIT {n}")).unwrap_or_default();
            let strength = match strength {
                Strength::KeyShare => "KEY SHARE",
                Strength::Share => "SHARE",
                Strength::NoKeyUpdate => "NO KEY UPDATE",
                Strength::Update => "UPDATE",
            };
            let policy = match policy {
                Policy::Wait => "",
                Policy::Fail => " NOWAIT",
                Policy::Skip => " SKIP LOCKED",
            };
            let (table, condition) = (table.name(), condition(filter));
            format!("SELECT id, v FROM {table} t WHERE {condition} ORDER BY {order}{limit} FOR {strength}{policy}")
        }
        Op::Update(table, filter, change) => {
            let change = match change {
                Change::V(v) => format!("v = {v}"),
                Change::Add(by) => format!("v = v + {by}"),
                Change::Lease(ms) => format!("at_ms = {} + {ms}", ms_of("clock_timestamp()")),
            };
            format!("UPDATE {} t SET {change} WHERE {} RETURNING id, v", table.name(), condition(filter))
        }
        Op::Delete(table, filter) => {
            format!("DELETE FROM {} t WHERE {} RETURNING id, v", table.name(), condition(filter))
        }
        Op::Insert(table, id, v, conflict) => {
            let conflict = match conflict {
                OnConflict::Fail => String::new(),
                OnConflict::Nothing => "ON CONFLICT DO NOTHING".into(),
                OnConflict::Add { only_if } => {
                    let only_if = only_if.map(|v| format!(" WHERE t.v = {v}")).unwrap_or_default();
                    format!("ON CONFLICT (id) DO UPDATE SET v = t.v + excluded.v{only_if}")
                }
            };
            format!("INSERT INTO {} AS t (id, v) VALUES ({id}, {v}) {conflict} RETURNING id, v", table.name())
        }
        Op::Advisory { key, shared, scope, wait } => {
            let attempt = if *wait { "" } else { "try_" };
            let scope = if *scope == Scope::Transaction { "xact_" } else { "" };
            let shared = if *shared { "_shared" } else { "" };
            format!("SELECT pg_{attempt}advisory_{scope}lock{shared}({key})")
        }
        Op::Unlock { key, shared } => {
            format!("SELECT pg_advisory_unlock{}({key})", if *shared { "_shared" } else { "" })
        }
        Op::Sleep(ms) => format!("SELECT pg_sleep({ms} / 1000.0)"),
        Op::Fail => "SELECT 1 / 0".into(),
    }
}

/// The settings of a session.
pub fn set(settings: &Settings) -> String {
    let Settings {
        statement_timeout,
        lock_timeout,
        idle_in_transaction_timeout,
        idle_session_timeout,
        deadlock_timeout,
        client_check_interval,
    } = settings;
    format!(
        "SET statement_timeout = {statement_timeout}; SET lock_timeout = {lock_timeout};
         SET idle_in_transaction_session_timeout = {idle_in_transaction_timeout};
         SET idle_session_timeout = {idle_session_timeout}; SET deadlock_timeout = {deadlock_timeout};
         SET client_connection_check_interval = {client_check_interval}"
    )
}

fn ms_of(clock: &str) -> String {
    format!("floor(extract(epoch FROM {clock}) * 1000)::bigint")
}

fn condition(filter: &Filter) -> String {
    let mut all = vec![format!("id BETWEEN {} AND {}", filter.ids.0, filter.ids.1)];
    all.extend(filter.v.map(|v| format!("v = {v}")));
    all.extend(filter.live.map(|clock| {
        let clock = match clock {
            Clock::Transaction => "now()",
            Clock::Wall => "clock_timestamp()",
        };
        format!("at_ms > {}", ms_of(clock))
    }));
    all.extend(filter.other.map(|(id, v)| format!("EXISTS (SELECT 1 FROM b WHERE b.id = {id} AND b.v = {v})")));
    all.join(" AND ")
}

/// What came of it.
pub fn seen(op: &Op, answer: &Answer) -> Seen {
    match &answer.error {
        None => Seen::Ended(got(op, answer)),
        Some(told) if told.severity == "ERROR" => {
            let code = Code::ALL.iter().find(|c| c.as_str() == told.code);
            Seen::Failed(*code.unwrap_or_else(|| panic!("a code that the model knows, not {told:?}")))
        }
        Some(_) => Seen::Closed,
    }
}

fn got(op: &Op, answer: &Answer) -> Got {
    match op {
        Op::Read(..) | Op::Lock { .. } | Op::Update(..) | Op::Delete(..) | Op::Insert(..) => {
            Got::Rows(pairs(&answer.rows))
        }
        Op::Advisory { wait: false, .. } | Op::Unlock { .. } => Got::Flag(answer.rows[0][0].as_deref() == Some("t")),
        _ if answer.tag == "ROLLBACK" => Got::RolledBack,
        Op::Begin | Op::Commit | Op::Rollback | Op::Set(_) | Op::Advisory { .. } | Op::Sleep(_) | Op::Fail => Got::Done,
    }
}

/// Id and `v` of each row.
pub fn pairs(rows: &[Vec<Option<String>>]) -> Vec<(i32, i32)> {
    rows.iter().map(|row| (number(&row[0]), number(&row[1]))).collect()
}

/// A column that is a number.
pub fn number(text: &Option<String>) -> i32 {
    text.as_deref().expect("the column is not null").parse().expect("a number")
}
