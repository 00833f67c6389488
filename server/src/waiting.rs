//! What an execution waits for, in sentences: for `executions show`, `why` and the page.

use crate::output::time;
use orbit_sdk::Waiting;

/// What a step waits for. The sentence begins in lower case and has no full stop.
pub fn sentence(waiting: &Waiting) -> String {
    let Waiting { attempt, max_attempts, worker_id, sessions, .. } = waiting;
    let since = time(waiting.since_ms);
    let until = waiting.until_ms.map(time).unwrap_or_default();
    let (attempt, max_attempts) = (attempt.unwrap_or(1), max_attempts.unwrap_or(1));
    let count = format!("attempt {attempt} of {max_attempts}");
    let failed = match &waiting.last_error {
        Some(error) if error.message.is_empty() => format!("; attempt {} failed: {}", attempt - 1, error.code),
        Some(error) => format!("; attempt {} failed: {}: {}", attempt - 1, error.code, error.message),
        None => String::new(),
    };
    match waiting.reason.as_str() {
        "no_worker" => {
            let other = match waiting.other_versions.as_slice() {
                [] => String::new(),
                versions => format!(" (offered: version {})", versions.join(", ")),
            };
            format!("no worker offers {}{other}; {count} waits since {since}{failed}", task(waiting))
        }
        "queued" => {
            let offer = match sessions.unwrap_or(1) {
                1 => "1 worker session offers".to_owned(),
                sessions => format!("{sessions} worker sessions offer"),
            };
            format!("{count} waits for a worker since {since}; {offer} {}{failed}", task(waiting))
        }
        "running" => {
            let worker = worker_id.as_deref().unwrap_or("a worker");
            let deadline = waiting.deadline_ms.map(|at| format!(", and is given up at {}", time(at)));
            let deadline = deadline.unwrap_or_default();
            format!("{count} is with worker {worker} since {since}{deadline}{}{failed}", keeper(waiting, worker))
        }
        "retry" => format!("{count} begins at {until}{failed}"),
        "sleep" => format!("sleeps until {until}"),
        "signal" | "update" => {
            let until = waiting.until_ms.map(|at| format!(", until {}", time(at))).unwrap_or_default();
            format!("waits for the {} `{}` since {since}{until}", waiting.reason, awaited(waiting))
        }
        "child" => format!("runs as the child execution {} since {since}", child(waiting)),
        "items" => {
            let (ended, items) = (waiting.ended.unwrap_or(0), waiting.items.unwrap_or(0));
            format!("{ended} of {items} items have ended; it began at {since}")
        }
        "held" => "goes on once the execution is recovered".into(),
        "server" => format!("the server goes on with it by itself, since {since}"),
        other => format!("waits since {since} ({other})"),
    }
}

/// What would be right to do about it, of the execution with this id.
pub fn advice(execution: &str, waiting: &Waiting) -> String {
    match waiting.reason.as_str() {
        "no_worker" if !waiting.other_versions.is_empty() => format!(
            "start a worker that offers {}, or deploy a new version of the workflow with another `contract_version`",
            task(waiting)
        ),
        "no_worker" => format!(
            "start a worker that offers {}; `orbit workers list` shows who is there and what they offer",
            task(waiting)
        ),
        "queued" => {
            "its workers are busy, or gone without a word: wait, start more of them, or let each run more at once; `orbit \
             workers list` shows when each was last heard from"
                .into()
        }
        "running" if waiting.registered_again_ms.is_some() => {
            "wait until then; workers that run beside each other need ids of their own".into()
        }
        "running" => match waiting.offered_again_ms {
            Some(at) => format!("wait; if that worker is gone, the task is offered again at {}", time(at)),
            None => "wait".into(),
        },
        "retry" => "mend what the error names before then, or wait".into(),
        "signal" | "update" => {
            let (id, name) = (quoted(execution), awaited(waiting));
            format!("send it: `orbit executions {} {id} {name} --payload …`", waiting.reason)
        }
        "child" => format!("`orbit why {}` says what it waits for", quoted(child(waiting))),
        "items" => "wait; what each item that is under way waits for stands beside this".into(),
        "held" => format!("`orbit executions recover {}`", quoted(execution)),
        "server" => "wait a moment; if it stays so, look at the server's log and its database".into(),
        _ => "wait".into(),
    }
}

/// What is known of the worker that has it.
fn keeper(waiting: &Waiting, worker: &str) -> String {
    let again = waiting.offered_again_ms.map(time);
    let session = match (&waiting.session_id, waiting.silent_ms, &again) {
        (Some(session), Some(silent), _) => format!(", session {session}, last heard from {} ago", age(silent)),
        (None, _, Some(again)) => {
            format!(", and no worker has named it since the server started: it is offered again at {again}")
        }
        _ => String::new(),
    };
    let restarted = match (waiting.registered_again_ms.map(time), &again) {
        (Some(at), Some(again)) => format!(
            "; {worker} has registered again since, at {at}: if it was restarted, the task is offered again at {again}"
        ),
        _ => String::new(),
    };
    session + &restarted
}

/// A short time, for people.
fn age(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        10_000..120_000 => format!("{} s", ms / 1000),
        _ => format!("{} min", ms / 60_000),
    }
}

/// The signal or update that is awaited.
fn awaited(waiting: &Waiting) -> &str {
    waiting.signal.as_deref().or(waiting.update.as_deref()).unwrap_or("?")
}

/// An id as a shell takes it: those of items have brackets, which stand for file names.
fn quoted(id: &str) -> String {
    if id.contains('[') { format!("'{id}'") } else { id.into() }
}

fn child(waiting: &Waiting) -> &str {
    waiting.execution_id.as_deref().unwrap_or("?")
}

fn task(waiting: &Waiting) -> String {
    let name = waiting.task_name.as_deref().unwrap_or("its task");
    let version = waiting.contract_version.as_deref().unwrap_or("1");
    format!("{name}, version {version}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use orbit_sdk::{Value, json};

    fn waiting(mut fields: Value) -> Waiting {
        let whole = [("step_id", json!("charge")), ("kind", json!("task")), ("since_ms", json!(0))];
        for (name, value) in whole {
            fields[name] = value;
        }
        if fields["reason"] != "sleep" {
            fields["task_name"] = "payments.charge".into();
            fields["contract_version"] = "1".into();
            fields["max_attempts"] = 5.into();
        }
        serde_json::from_value(fields).expect("what the API says")
    }

    #[test]
    fn each_reason_is_a_sentence_with_what_would_be_right() {
        let declined = json!({"code": "DECLINED", "message": "card declined"});
        for (fields, says, advises) in [
            (
                json!({"reason": "no_worker", "attempt": 1}),
                "no worker offers payments.charge, version 1; attempt 1 of 5 waits since 1970-01-01 00:00:00.000Z",
                "start a worker that offers payments.charge, version 1; `orbit workers list`",
            ),
            (
                json!({"reason": "no_worker", "attempt": 1, "other_versions": ["2", "3"]}),
                "no worker offers payments.charge, version 1 (offered: version 2, 3)",
                "another `contract_version`",
            ),
            (
                json!({"reason": "queued", "attempt": 1, "sessions": 3}),
                "attempt 1 of 5 waits for a worker since 1970-01-01 00:00:00.000Z; 3 worker sessions offer payments",
                "its workers are busy",
            ),
            (
                json!({"reason": "running", "attempt": 2, "worker_id": "w", "deadline_ms": 1000, "last_error": declined}),
                "attempt 2 of 5 is with worker w since 1970-01-01 00:00:00.000Z, and is given up at 1970-01-01 \
                 00:00:01.000Z; attempt 1 failed: DECLINED: card declined",
                "wait",
            ),
            (
                json!({"reason": "running", "attempt": 1, "worker_id": "w", "session_id": "5-4", "silent_ms": 1234,
                    "offered_again_ms": 30_000}),
                "attempt 1 of 5 is with worker w since 1970-01-01 00:00:00.000Z, session 5-4, last heard from 1.2 s ago",
                "if that worker is gone, the task is offered again at 1970-01-01 00:00:30.000Z",
            ),
            (
                json!({"reason": "running", "attempt": 1, "worker_id": "w", "session_id": "5-4", "silent_ms": 12_345,
                    "offered_again_ms": 30_000, "registered_again_ms": 5_000}),
                "attempt 1 of 5 is with worker w since 1970-01-01 00:00:00.000Z, session 5-4, last heard from 12 s ago; w \
                 has registered again since, at 1970-01-01 00:00:05.000Z: if it was restarted, the task is offered again \
                 at 1970-01-01 00:00:30.000Z",
                "wait until then",
            ),
            (
                json!({"reason": "running", "attempt": 1, "worker_id": "w", "offered_again_ms": 30_000}),
                "attempt 1 of 5 is with worker w since 1970-01-01 00:00:00.000Z, and no worker has named it since the \
                 server started: it is offered again at 1970-01-01 00:00:30.000Z",
                "wait; if that worker is gone",
            ),
            (
                json!({"reason": "retry", "attempt": 2, "until_ms": 1000, "last_error": {"code": "DECLINED"}}),
                "attempt 2 of 5 begins at 1970-01-01 00:00:01.000Z; attempt 1 failed: DECLINED",
                "mend what the error names",
            ),
            (json!({"reason": "sleep", "until_ms": 1000}), "sleeps until 1970-01-01 00:00:01.000Z", "wait"),
            (
                json!({"reason": "signal", "signal": "paid"}),
                "waits for the signal `paid` since 1970-01-01 00:00:00.000Z",
                "`orbit executions signal e-1 paid --payload …`",
            ),
            (
                json!({"reason": "signal", "signal": "paid", "until_ms": 1000}),
                "waits for the signal `paid` since 1970-01-01 00:00:00.000Z, until 1970-01-01 00:00:01.000Z",
                "send it",
            ),
            (
                json!({"reason": "update", "update": "change"}),
                "waits for the update `change` since 1970-01-01 00:00:00.000Z",
                "`orbit executions update e-1 change --payload …`",
            ),
            (
                json!({"reason": "child", "execution_id": "e~pay"}),
                "runs as the child execution e~pay since 1970",
                "`orbit why e~pay`",
            ),
            (
                json!({"reason": "child", "execution_id": "e~pay[3]"}),
                "runs as the child execution e~pay[3] since 1970",
                "`orbit why 'e~pay[3]'`",
            ),
            (json!({"reason": "items", "items": 10, "ended": 3}), "3 of 10 items have ended; it began at 1970", "wait"),
            (json!({"reason": "server"}), "the server goes on with it by itself", "wait a moment"),
            (json!({"reason": "new"}), "waits since 1970-01-01 00:00:00.000Z (new)", "wait"),
        ] {
            let waiting = waiting(fields);
            assert!(sentence(&waiting).starts_with(says), "{}", sentence(&waiting));
            assert!(advice("e-1", &waiting).contains(advises), "{}", advice("e-1", &waiting));
        }
    }
}
