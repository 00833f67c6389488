//! The figures as Prometheus reads them (text format 0.0.4).

use crate::postgres::figures::DatabaseFigures;
use orbit_core::api::response::{LatencyView, Metrics, QueueView};
use std::fmt::{Display, Write};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the process knows of itself, beside the node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// Resident memory, in bytes, where the system tells it.
    pub resident_bytes: Option<u64>,
    /// Open connections of the HTTP front.
    pub connections: u64,
    /// Requests that the front has answered.
    pub requests: u64,
    /// What the database says of its age, where it is one that does and once it was asked.
    pub database: Option<DatabaseFigures>,
}

impl Process {
    /// Reads the resident memory of this process.
    pub fn resident() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
    }
}

/// What the counters count. A counter that is missing here is described by its name.
const HELP: &[(&str, &str)] = &[
    ("executions_started", "Executions started."),
    ("executions_completed", "Executions that ended as completed."),
    ("executions_failed", "Executions that ended as failed."),
    ("executions_cancelled", "Executions that ended as cancelled."),
    ("executions_timed_out", "Executions that ended as timed out."),
    ("executions_terminated", "Executions that ended as terminated."),
    ("executions_continued_as_new", "Runs that ended by continuing as new."),
    ("executions_held", "Executions that this server held when it took over."),
    ("executions_recovered", "Executions that went on after they were held."),
    ("tasks_dispatched", "Task attempts handed to workers."),
    ("tasks_dispatched_directly", "Task attempts handed over inside the append that scheduled them."),
    ("tasks_succeeded", "Task attempts that succeeded."),
    ("task_attempts_failed", "Task attempts that failed."),
    ("task_attempts_uncertain", "Task attempts whose outcome became uncertain."),
    ("retries_scheduled", "Retries scheduled."),
    ("steps_skipped", "Steps skipped because their condition was false."),
    ("stale_results", "Results that nothing waited for any more."),
    ("timers_fired", "Timers fired."),
    ("signals_received", "Signals taken in."),
    ("updates_accepted", "Updates that workflows took."),
    ("compensations_started", "Executions that began to undo what they did."),
    ("compensations_failed", "Executions of which something could not be undone."),
    ("events_committed", "Events committed to histories."),
    ("appends", "Appends committed."),
    ("append_groups", "Groups written by appends."),
    ("appends_fenced", "Groups rejected because another server had taken over."),
    ("failovers", "Times that this server came to lead after another leadership."),
    ("calls_unknown", "Store calls whose outcome was unknown at first."),
    ("executions_loaded", "Executions loaded from the store."),
    ("executions_parked", "Executions that left memory while they wait."),
    ("clock_steps", "Steps of the database's clock."),
];

/// Writes the figures out.
pub fn render(metrics: &Metrics, process: &Process) -> String {
    let mut text = String::with_capacity(4096);
    let counters = serde_json::to_value(metrics.counters).expect("counters are numbers with string keys");
    for (name, value) in counters.as_object().into_iter().flatten() {
        let help = match HELP.iter().find(|(known, _)| known == name) {
            Some((_, help)) => (*help).to_owned(),
            None => name.replace('_', " "),
        };
        figure(&mut text, &format!("orbit_{name}_total"), "counter", &help, value.as_u64().unwrap_or_default());
    }
    let gauges = [
        ("orbit_active_executions", "Executions that have not ended.", metrics.active_executions),
        ("orbit_held_executions", "Executions that are held, and wait to be recovered.", metrics.held_executions),
        ("orbit_resident_executions", "Executions in memory.", metrics.resident_executions),
        ("orbit_worker_sessions", "Worker sessions that are alive.", metrics.worker_sessions),
        ("orbit_open_attempts", "Task attempts at workers.", metrics.open_attempts),
        ("orbit_waiting_polls", "Long polls that wait for a task.", metrics.waiting_polls),
        ("orbit_ready", "Whether this server serves writes.", metrics.ready.into()),
        ("orbit_leader", "Whether this server leads.", metrics.leads.into()),
        ("orbit_term", "The number of leaderships of the database so far.", metrics.term.0),
        ("orbit_http_connections", "Open HTTP connections.", process.connections),
    ];
    for (name, help, value) in gauges {
        figure(&mut text, name, "gauge", help, value);
    }
    queue(&mut text, &metrics.queue);
    appends(&mut text, metrics);
    figure(&mut text, "orbit_http_requests_total", "counter", "HTTP requests answered.", process.requests);
    if let Some(bytes) = process.resident_bytes {
        figure(&mut text, "process_resident_memory_bytes", "gauge", "Resident memory in bytes.", bytes);
    }
    if let Some(database) = &process.database {
        of_database(&mut text, database);
    }
    text
}

fn of_database(text: &mut String, database: &DatabaseFigures) {
    let DatabaseFigures { held_back, xid_age, multixact_age, dead_rows, .. } = *database;
    for (name, help, age) in [
        (
            "orbit_database_oldest_transaction_seconds",
            "How long the oldest transaction in the database has been open.",
            database.oldest_transaction,
        ),
        (
            "orbit_database_most_overdue_seconds",
            "By how much the execution is late that has waited longest since its time came.",
            database.most_overdue,
        ),
        ("orbit_database_figures_age_seconds", "How long ago these figures were read.", database.read_ago),
    ] {
        figure(text, name, "gauge", help, age.as_secs_f64());
    }
    for (name, help, count) in [
        (
            "orbit_database_held_back_transactions",
            "Transactions since the oldest snapshot for whose sake dead rows are kept.",
            held_back,
        ),
        ("orbit_database_xid_age", "Transactions since the oldest row that is not frozen.", xid_age),
        ("orbit_database_multixact_age", "Multixacts since the oldest row that is not frozen.", multixact_age),
        ("orbit_database_dead_rows", "Rows that were replaced or deleted and are not removed yet.", dead_rows),
    ] {
        figure(text, name, "gauge", help, count);
    }
    let help = "How full the queue of notifications is, from 0 to 1.";
    figure(text, "orbit_database_notify_queue_ratio", "gauge", help, database.notify_queue);
}

/// The queue: as a whole, and for each task that is counted apart.
fn queue(text: &mut String, queue: &QueueView) {
    figure(text, "orbit_queued_tasks", "gauge", "Task attempts that wait for a worker.", queue.tasks);
    let help = "How long the one that has waited longest has waited.";
    let seconds = format_args!("{}.{:03}", queue.oldest_ms / 1_000, queue.oldest_ms % 1_000);
    figure(text, "orbit_oldest_queued_task_seconds", "gauge", help, seconds);
    let name = "orbit_queued_tasks_by_name";
    title(text, name, "gauge", "Task attempts that wait for a worker, by the name of the task.");
    for (task, count) in &queue.by_task {
        let task = task.as_str().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        line(text, format_args!("{name}{{task_name=\"{task}\"}}"), count);
    }
}

/// How long appends take, when the last one was, and what time it is.
fn appends(text: &mut String, metrics: &Metrics) {
    let LatencyView { buckets, count, sum_us } = &metrics.appends;
    let name = "orbit_append_seconds";
    title(text, name, "histogram", "How long appends took, from sending to answer.");
    for (bound_us, count) in buckets {
        line(text, format_args!("{name}_bucket{{le=\"{}\"}}", seconds(*bound_us)), count);
    }
    line(text, format_args!("{name}_bucket{{le=\"+Inf\"}}"), count);
    line(text, format_args!("{name}_sum"), seconds(*sum_us));
    line(text, format_args!("{name}_count"), count);
    if let Some(ms) = metrics.last_append_ms {
        let help = "How long ago the last append committed.";
        figure(text, "orbit_last_append_age_seconds", "gauge", help, seconds(ms.saturating_mul(1_000)));
    }
    if let Some(ms) = metrics.clock_offset_ms {
        let help = "By how much this server's clock is ahead of the database's.";
        figure(text, "orbit_clock_offset_seconds", "gauge", help, ms as f64 / 1_000.0);
    }
}

/// Microseconds as seconds.
fn seconds(us: u64) -> f64 {
    us as f64 / 1_000_000.0
}

fn figure(text: &mut String, name: &str, kind: &str, help: &str, value: impl Display) {
    title(text, name, kind, help);
    line(text, name, value);
}

fn title(text: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("writing to a string cannot fail");
}

fn line(text: &mut String, sample: impl Display, value: impl Display) {
    writeln!(text, "{sample} {value}").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use orbit_core::id::Term;
    use orbit_core::node::counters::Counters;
    use std::time::Duration;

    fn sample() -> Metrics {
        Metrics {
            counters: Counters { executions_started: 7, clock_steps: 3, ..Counters::default() },
            active_executions: 11,
            held_executions: 6,
            resident_executions: 5,
            worker_sessions: 2,
            open_attempts: 4,
            waiting_polls: 1,
            queue: QueueView { tasks: 9, oldest_ms: 61_005, by_task: vec![("a".into(), 7), ("b\"\\".into(), 2)] },
            ready: true,
            term: Term(9),
            leads: true,
            appends: LatencyView { buckets: vec![(2_500, 3), (1_000_000, 4)], count: 5, sum_us: 12_034_500 },
            last_append_ms: Some(1_250),
            clock_offset_ms: Some(-40),
        }
    }

    #[test]
    fn every_counter_is_shown_with_help_and_type() {
        let text = render(&sample(), &Process::default());
        let counters = serde_json::to_value(Counters::default()).unwrap();
        let names: Vec<&String> = counters.as_object().unwrap().keys().collect();
        assert!(!names.is_empty());
        for name in names {
            assert!(text.contains(&format!("\n# TYPE orbit_{name}_total counter\norbit_{name}_total ")), "{name}");
            assert!(HELP.iter().any(|(known, _)| known == name), "say in HELP what {name} counts");
        }
        assert!(text.contains("\norbit_executions_started_total 7\n"));
        assert!(text.contains("\norbit_clock_steps_total 3\n"));
    }

    #[test]
    fn gauges_show_the_moment() {
        let database = DatabaseFigures {
            oldest_transaction: Duration::from_millis(1500),
            xid_age: 17,
            notify_queue: 0.25,
            ..DatabaseFigures::default()
        };
        let process = Process { resident_bytes: Some(4096), connections: 6, requests: 8, database: Some(database) };
        let text = render(&sample(), &process);
        for line in [
            "orbit_active_executions 11",
            "orbit_held_executions 6",
            "orbit_resident_executions 5",
            "orbit_worker_sessions 2",
            "orbit_open_attempts 4",
            "orbit_waiting_polls 1",
            "orbit_queued_tasks 9",
            "orbit_oldest_queued_task_seconds 61.005",
            "orbit_queued_tasks_by_name{task_name=\"a\"} 7",
            r#"orbit_queued_tasks_by_name{task_name="b\"\\"} 2"#,
            "orbit_ready 1",
            "orbit_term 9",
            "orbit_leader 1",
            r#"orbit_append_seconds_bucket{le="0.0025"} 3"#,
            r#"orbit_append_seconds_bucket{le="1"} 4"#,
            r#"orbit_append_seconds_bucket{le="+Inf"} 5"#,
            "orbit_append_seconds_sum 12.0345",
            "orbit_append_seconds_count 5",
            "orbit_last_append_age_seconds 1.25",
            "orbit_clock_offset_seconds -0.04",
            "orbit_http_connections 6",
            "orbit_http_requests_total 8",
            "process_resident_memory_bytes 4096",
            "orbit_database_oldest_transaction_seconds 1.5",
            "orbit_database_xid_age 17",
            "orbit_database_notify_queue_ratio 0.25",
            "orbit_database_most_overdue_seconds 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}");
        }
        let bare = render(&sample(), &Process::default());
        assert!(!bare.contains("process_resident") && !bare.contains("orbit_database"), "{bare}");
    }

    #[test]
    fn the_text_has_one_sample_for_each_name() {
        let text = render(&sample(), &Process::default());
        let names: Vec<&str> =
            text.lines().filter(|l| !l.starts_with('#')).map(|l| l.split(' ').next().unwrap()).collect();
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn the_process_knows_its_memory() {
        assert!(Process::resident().unwrap() > 1 << 20);
    }
}
