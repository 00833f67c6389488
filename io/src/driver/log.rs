//! Typed log events as `tracing` events. Texts and field names are the reference's where it shows them; target and
//! level are those of [`LogEvent::target`] and [`LogEvent::level`], which `tracing` wants as constants of each line.

use orbit_core::node::LogEvent;
use orbit_core::store::append::Status;

const CLUSTER: &str = "orbit_runtime::cluster";
const ENGINE: &str = "orbit_runtime::engine";
const SERVER: &str = "orbit_runtime::server";

/// Why the server ends by itself, if this is about that.
pub fn last_words(event: &LogEvent) -> Option<String> {
    match event {
        LogEvent::Unservable { message } => Some(message.clone()),
        LogEvent::FenceLost { held, current } => Some(format!(
            "another server has taken the database over: this one held term {held}, and the database is at term \
             {current}"
        )),
        _ => None,
    }
}

/// Writes one event.
pub fn write(event: &LogEvent) {
    match event {
        LogEvent::FenceTaken { node_id, term } => {
            tracing::info!(target: CLUSTER, %node_id, %term, "server: this server is the writer");
        }
        LogEvent::JoinedCluster { node_id, advertise_addr } => {
            let advertise_addr = advertise_addr.as_deref();
            tracing::info!(target: CLUSTER, %node_id, advertise_addr, "cluster mode: standby until elected");
        }
        LogEvent::Following { term, leader } => {
            tracing::info!(target: CLUSTER, %term, leader = leader.as_str(), "cluster: standby; following the leader");
        }
        LogEvent::Elected { node_id, term } => {
            tracing::info!(target: CLUSTER, %node_id, %term, "cluster: elected leader; recovering executions from history");
        }
        LogEvent::Leading { node_id, term, active_executions, recovery_ms } => {
            tracing::info!(target: CLUSTER, %node_id, %term, active_executions, recovery_ms, "cluster: leader is serving");
        }
        LogEvent::LeadershipLost { node_id, reason } => {
            tracing::error!(target: CLUSTER, %node_id, %reason, "cluster: lost leadership; stepped down to standby");
        }
        LogEvent::LeaseLost { node_id, reason } => {
            tracing::error!(target: CLUSTER, %node_id, %reason, "lease-lost: this server led, does not any more, and ends");
        }
        LogEvent::Promoted { from, to } => {
            tracing::warn!(target: CLUSTER, from, to, "database: a replica was promoted; forgetting what was known and recovering");
        }
        LogEvent::LedAstray { to } => {
            tracing::warn!(target: CLUSTER, %to, "database: the address leads to another server; its answers are not believed");
        }
        LogEvent::HandingOver { node_id, term } => {
            tracing::info!(target: CLUSTER, %node_id, %term, "cluster: handing the lead over");
        }
        LogEvent::HandedOver { node_id, term } => {
            tracing::info!(target: CLUSTER, %node_id, %term, "cluster: handed the lead over; standing by");
        }
        LogEvent::NodeIdHeld { node_id, host, pid } => {
            tracing::warn!(target: CLUSTER, %node_id, %host, pid, "cluster: another process has this node id; waiting until it has fallen silent");
        }
        LogEvent::Recovered { executions, resident, in_flight, recovery_ms } => {
            tracing::info!(target: ENGINE, executions, in_flight, resident, recovery_ms, "recovered active executions from history");
        }
        LogEvent::ExecutionStarted { execution_id, workflow, version } => {
            tracing::info!(target: ENGINE, %execution_id, %workflow, %version, "execution started");
        }
        LogEvent::ExecutionEnded { execution_id, status, code } => {
            let code = code.as_deref();
            match status {
                Status::Completed => tracing::info!(target: ENGINE, %execution_id, code, "execution completed"),
                Status::Failed => tracing::info!(target: ENGINE, %execution_id, code, "execution failed"),
                Status::Cancelled => tracing::info!(target: ENGINE, %execution_id, code, "execution cancelled"),
                Status::TimedOut => tracing::info!(target: ENGINE, %execution_id, code, "execution timed out"),
                Status::Terminated => tracing::info!(target: ENGINE, %execution_id, code, "execution terminated"),
                Status::Running | Status::Held | Status::Quarantined => {
                    tracing::info!(target: ENGINE, %execution_id, code, status = status.as_str(), "execution ended");
                }
            }
        }
        LogEvent::ExecutionHeld { execution_id, repeats } => {
            tracing::warn!(target: ENGINE, %execution_id, repeats, "execution held; it waits until it is recovered");
        }
        LogEvent::ExecutionRecovered { execution_id } => {
            tracing::info!(target: ENGINE, %execution_id, "execution recovered")
        }
        LogEvent::WorkerRegistered { worker_id, runtime, tasks } => {
            tracing::info!(target: ENGINE, %worker_id, %runtime, tasks, "worker registered");
        }
        LogEvent::WorkerUnregistered { worker_id } => {
            tracing::info!(target: ENGINE, %worker_id, "worker unregistered");
        }
        LogEvent::WorkerLost { worker_id, session, holding } => {
            tracing::warn!(target: ENGINE, %worker_id, %session, holding, "worker lost");
        }
        LogEvent::AttemptUncertain { execution_id, step, attempt, reason } => {
            tracing::warn!(target: ENGINE, %execution_id, %step, attempt, %reason, "attempt outcome uncertain; redelivering");
        }
        LogEvent::Deployed { workflow, version } => {
            tracing::info!(target: ENGINE, %workflow, %version, "workflow deployed");
        }
        LogEvent::DefinitionUnreadable { workflow, version, reason } => {
            tracing::error!(target: ENGINE, %workflow, %version, %reason, "definition unreadable");
        }
        LogEvent::Quarantined { execution_id, reason } => {
            tracing::error!(target: ENGINE, %execution_id, %reason, "execution quarantined");
        }
        LogEvent::StoreFailed { call, message, unsaid } => {
            tracing::warn!(target: ENGINE, %call, error = %message, unsaid, "store call failed");
        }
        LogEvent::StoreUnknown { call, unsaid } => {
            tracing::warn!(target: ENGINE, %call, unsaid, "store outcome unknown; sending again");
        }
        LogEvent::StoreAnswers { call, after_ms } => {
            tracing::info!(target: ENGINE, %call, after_ms, "store answers again");
        }
        LogEvent::StraysRequeued { tasks } => tracing::warn!(target: ENGINE, tasks, "late claims put back"),
        LogEvent::ElectionLockLost => {
            tracing::warn!(target: CLUSTER, "the election lock is another session's; a server that starts may take over");
        }
        LogEvent::FenceLost { held, current } => {
            tracing::error!(target: CLUSTER, %held, %current, "lost the fence; stopping");
        }
        LogEvent::Unservable { message } => {
            tracing::error!(target: SERVER, reason = %message, "cannot serve this database");
        }
        LogEvent::ClockStepped { by_ms } => tracing::warn!(target: CLUSTER, by_ms, "clock stepped"),
        LogEvent::Stopping => tracing::info!(target: SERVER, "stopping: finishing what is in flight"),
        LogEvent::Stopped { clean } => tracing::info!(target: SERVER, clean, "stopped"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orbit_core::id::{SessionId, Term};
    use orbit_core::node::log::Level;
    use std::fmt::Write;
    use std::sync::{Arc, Mutex};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};

    /// Keeps each event as a line of target, level, message and fields.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<(String, tracing::Level, String)>>>);

    struct Text(String, String);

    impl Visit for Text {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            if field.name() == "message" {
                write!(self.0, "{value:?}").unwrap();
            } else {
                write!(self.1, " {}={value:?}", field.name()).unwrap();
            }
        }
    }

    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            let mut text = Text(String::new(), String::new());
            event.record(&mut text);
            let metadata = event.metadata();
            self.0.lock().unwrap().push((metadata.target().into(), *metadata.level(), text.0 + &text.1));
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    fn written(event: &LogEvent) -> (String, tracing::Level, String) {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || write(event));
        let mut lines = std::mem::take(&mut *lines.0.lock().unwrap());
        assert_eq!(lines.len(), 1, "{event:?}");
        lines.remove(0)
    }

    fn every_event() -> Vec<LogEvent> {
        let ended = |status| LogEvent::ExecutionEnded { execution_id: "e".into(), status, code: None };
        vec![
            LogEvent::FenceTaken { node_id: "n".into(), term: Term(1) },
            LogEvent::JoinedCluster { node_id: "n".into(), advertise_addr: Some("http://127.0.0.1:47975".into()) },
            LogEvent::Following { term: Term(1), leader: "m".into() },
            LogEvent::Elected { node_id: "n".into(), term: Term(2) },
            LogEvent::Leading { node_id: "n".into(), term: Term(2), active_executions: 1, recovery_ms: 49 },
            LogEvent::LeadershipLost { node_id: "b".into(), reason: "the election session failed".into() },
            LogEvent::Recovered { executions: 1, resident: 1, in_flight: 1, recovery_ms: 5 },
            LogEvent::ExecutionStarted { execution_id: "e".into(), workflow: "W".into(), version: "1.0.0".into() },
            ended(Status::Completed),
            ended(Status::Failed),
            ended(Status::Cancelled),
            LogEvent::WorkerRegistered { worker_id: "w".into(), runtime: "rust".into(), tasks: 5 },
            LogEvent::WorkerUnregistered { worker_id: "w".into() },
            LogEvent::WorkerLost { worker_id: "w".into(), session: SessionId(uuid::Uuid::nil()), holding: 2 },
            LogEvent::AttemptUncertain {
                execution_id: "e".into(),
                step: "charge".into(),
                attempt: 1,
                reason: "worker `w` stopped responding".into(),
            },
            LogEvent::Deployed { workflow: "W".into(), version: "1.0.0".into() },
            LogEvent::Quarantined { execution_id: "e".into(), reason: "r".into() },
            LogEvent::StoreFailed { call: "append".into(), message: "m".into(), unsaid: 2 },
            LogEvent::StoreUnknown { call: "append".into(), unsaid: 0 },
            LogEvent::StoreAnswers { call: "append".into(), after_ms: 2_000 },
            LogEvent::StraysRequeued { tasks: 1 },
            LogEvent::ElectionLockLost,
            LogEvent::FenceLost { held: Term(1), current: Term(2) },
            LogEvent::Unservable { message: "m".into() },
            LogEvent::ClockStepped { by_ms: -3 },
            LogEvent::Stopping,
            LogEvent::Stopped { clean: true },
        ]
    }

    #[test]
    fn each_line_has_the_target_and_level_that_the_core_gives_it() {
        for event in every_event() {
            let (target, level, line) = written(&event);
            assert_eq!(target, event.target(), "{line}");
            let expected = match event.level() {
                Level::Error => tracing::Level::ERROR,
                Level::Warn => tracing::Level::WARN,
                Level::Info => tracing::Level::INFO,
                Level::Debug => tracing::Level::DEBUG,
            };
            assert_eq!(level, expected, "{line}");
        }
    }

    #[test]
    fn lines_of_the_reference_keep_their_texts_and_fields() {
        let lines: Vec<String> = every_event().iter().map(|event| written(event).2).collect();
        for line in [
            "cluster mode: standby until elected node_id=n advertise_addr=\"http://127.0.0.1:47975\"",
            "cluster: standby; following the leader term=1 leader=\"m\"",
            "cluster: elected leader; recovering executions from history node_id=n term=2",
            "cluster: leader is serving node_id=n term=2 active_executions=1 recovery_ms=49",
            "cluster: lost leadership; stepped down to standby node_id=b reason=the election session failed",
            "execution started execution_id=e workflow=W version=1.0.0",
            "execution completed execution_id=e",
            "worker registered worker_id=w runtime=rust tasks=5",
            "attempt outcome uncertain; redelivering execution_id=e step=charge attempt=1 reason=worker `w` stopped responding",
        ] {
            assert!(lines.iter().any(|l| l == line), "{line:?} is not among {lines:#?}");
        }
        let recovered = "recovered active executions from history executions=1 in_flight=1";
        assert!(lines.iter().any(|l| l.starts_with(recovered)), "{lines:#?}");
    }
}
