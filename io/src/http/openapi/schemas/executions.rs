//! The schemas of executions, of what they wait for, of their histories and of what is sent to them.

use super::super::build::{Object, any, boolean, count, list, named, one_of_texts, said, text};
use super::{Schemas, listed};
use crate::http::route::executions::{MAX_MESSAGE_ID, MAX_REASON};
use serde_json::{Value, json};

pub(super) fn all() -> Schemas {
    let item = |description: &str| {
        Object::answer(description)
            .with("execution_id", named("ExecutionId"))
            .with("workflow", text())
            .with("version", text())
            .with("status", named("Status"))
            .with("run", said(count(), "The newest run: the first is 1, and continue-as-new begins the next one."))
            .with("created_at_ms", named("Time"))
            .with("updated_at_ms", named("Time"))
            .maybe("labels", named("Labels"))
    };
    listed([
        (
            "StartRequest",
            Object::request("An execution to start.")
                .with("workflow", said(named("Name"), "The workflow's name."))
                .maybe("version", said(named("Name"), "The newest deployed without it."))
                .maybe(
                    "execution_id",
                    said(named("ClientExecutionId"), "Drawn without it. With it, a repeated start starts once."),
                )
                .maybe("input", said(named("Payload"), "Null without it."))
                .maybe("labels", named("Labels"))
                .build(),
        ),
        (
            "Started",
            Object::answer("An execution that is running, or that ran.")
                .with("execution_id", named("ExecutionId"))
                .with("status", named("Status"))
                .with("created", said(boolean(), "Whether this request started it."))
                .with("workflow", text())
                .with("version", text())
                .build(),
        ),
        ("ExecutionItem", item("An execution, as lists show it.").build()),
        (
            "Executions",
            Object::answer("A page of executions, newest first.")
                .with("executions", list(named("ExecutionItem")))
                .maybe("next_cursor", said(text(), "Where the next page begins; absent on the last."))
                .build(),
        ),
        (
            "Execution",
            item("An execution, with what it was given and what it gave.")
                .maybe("parent", named("Parent"))
                .with("input", any())
                .maybe("output", said(any(), "Once completed."))
                .maybe("error", said(named("TaskError"), "Once failed."))
                .with("last_seq", said(count(), "The number of the last event; 0 where none can be read."))
                .maybe("reason", said(text(), "Why it is held, or quarantined."))
                .maybe("cancel_reason", said(text(), "Why it was cancelled, where a reason was given."))
                .maybe(
                    "waiting",
                    said(
                        list(named("Waiting")),
                        "What it waits for while it runs: an entry for each step that has begun and not ended, at most \
                         1,000 of them in the order of the definition.",
                    ),
                )
                .build(),
        ),
        (
            "Parent",
            Object::answer("The execution that started this one as its child.")
                .with("execution_id", named("ExecutionId"))
                .with("step", said(text(), "The step of it that waits, or the item: `pay`, `ship[3]`."))
                .build(),
        ),
        ("Waiting", waiting()),
        (
            "CancelRequest",
            Object::request("Why an execution is to end.")
                .maybe("reason", json!({"type": "string", "maxLength": MAX_REASON, "pattern": "^[^\\u0000]*$"}))
                .build(),
        ),
        ("SignalRequest", message("A signal to send.", "signal_id")),
        (
            "Signalled",
            Object::answer("A signal was taken in.")
                .with(
                    "seq",
                    said(
                        count(),
                        "Its number in the history of the run that took it; of a repetition that of the first.",
                    ),
                )
                .with("run", said(count(), "That run; of a repetition that of the first."))
                .build(),
        ),
        ("ReleaseRequest", Object::request("Nothing more is to be said.").build()),
        ("UpdateRequest", message("An update to send.", "update_id")),
        (
            "Updated",
            Object::answer("An update was taken by the workflow.")
                .with(
                    "seq",
                    said(
                        count(),
                        "Its number in the history of the run that took it; of a repetition that of the first.",
                    ),
                )
                .with("run", said(count(), "That run; of a repetition that of the first."))
                .with("result", said(any(), "What the workflow answers; to a repetition what it answered first."))
                .build(),
        ),
        ("Queried", Object::answer("What a query gave.").with("result", any()).build()),
        (
            "History",
            Object::answer("Events of an execution, in their order.")
                .with("execution_id", named("ExecutionId"))
                .with("run", said(count(), "The run whose history it is."))
                .with("events", list(named("Event")))
                .with("more", said(boolean(), "Ask for what follows with `after_seq` = the last event's `seq`."))
                .build(),
        ),
    ])
}

/// A signal or an update, whose id stands in the field `key`.
fn message(what: &str, key: &str) -> Value {
    let id = json!({"type": "string", "minLength": 1, "maxLength": MAX_MESSAGE_ID, "pattern": "^[^\\u0000]*$"});
    Object::request(what)
        .maybe("payload", said(named("Payload"), "Null without it."))
        .maybe(key, said(id, "With it, a repetition does nothing again and is answered as the first was."))
        .build()
}

/// Fields stand where they mean something: those of an attempt with the first four reasons.
fn waiting() -> Value {
    let reasons =
        ["no_worker", "queued", "running", "retry", "sleep", "signal", "update", "items", "child", "held", "server"];
    Object::answer("A step that has begun and not ended, and what it waits for.")
        .with("step_id", text())
        .maybe(
            "unit",
            said(
                text(),
                "What of the step it is, where it is not the step as a whole: `ship[3]`, the fourth item of a `for` \
                 step; `compensate:charge`, what undoes it; `on_failure/tell` or `on_event:paid@17/note`, a run of a \
                 handler.",
            ),
        )
        .with("kind", one_of_texts(&["task", "sleep", "compute", "await", "for", "workflow", "continue_as_new"]))
        .with("since_ms", said(named("Time"), "When it began to wait for this."))
        .with(
            "reason",
            said(
                one_of_texts(&reasons),
                "`no_worker`: no worker that is alive offers the task in this version of its contract. `queued`: some \
                 do, and none has taken it so far. `running`: a worker has it. `retry`: an attempt failed, and the \
                 next one waits for its time. `sleep`: a timer runs. `signal`: no signal of that name has come. `update`: no \
                 update of that name has been taken. `items`: items of the list are under way. `child`: another \
                 execution runs as a child of this one. `held`: the execution is held. `server`: the server goes on by itself.",
            ),
        )
        .maybe("task_name", text())
        .maybe("contract_version", text())
        .maybe("attempt", said(count(), "Which attempt it is, or with `retry` will be; the first is 1."))
        .maybe("max_attempts", count())
        .maybe("last_error", said(named("TaskError"), "Why the attempt before failed."))
        .maybe("other_versions", said(list(text()), "With `no_worker`: the versions in which the task is offered."))
        .maybe("sessions", said(count(), "With `queued`: how many worker sessions offer the task."))
        .maybe("worker_id", said(text(), "With `running`: who has it."))
        .maybe("deadline_ms", said(named("Time"), "With `running`: when the attempt is given up."))
        .maybe(
            "session_id",
            said(
                named("SessionId"),
                "With `running`: the session that has it; absent where the server has started since, and no worker has \
                 named it yet.",
            ),
        )
        .maybe("silent_ms", said(count(), "With `running`: for how long that session has not been heard from."))
        .maybe(
            "offered_again_ms",
            said(named("Time"), "With `running`: when it is offered again, unless its worker is heard from before."),
        )
        .maybe(
            "registered_again_ms",
            said(
                named("Time"),
                "With `running`: when its worker id registered again since, as a restarted worker does.",
            ),
        )
        .maybe("until_ms", said(named("Time"), "With `retry`, `sleep` and perhaps `signal` and `update`: when it goes on."))
        .maybe("signal", said(text(), "With `signal`: the signal's name."))
        .maybe("update", said(text(), "With `update`: the update's name."))
        .maybe("execution_id", said(named("ExecutionId"), "With `child`: the child."))
        .maybe("items", said(count(), "With `items`: how many there are."))
        .maybe("ended", said(count(), "With `items`: how many of them have ended."))
        .build()
}
