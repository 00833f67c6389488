//! How the server is: health, readiness, probes, metrics.

use super::{Node, RequestId};
use crate::api::response::{Health, Metrics, Ready, Reply, Response};
use crate::id::NodeId;
use crate::mutant::Mutants;

/// Version strings of the API (interfaces, "HTTP").
const API_VERSION: &str = "orbit-api/1";
const IR_VERSION: &str = "orbit-def/1";

impl<M: Mutants> Node<M> {
    /// The name of a server in a cluster; one that is alone has none (reference, "Health fields").
    fn name_in_cluster(&self) -> Option<NodeId> {
        self.standby().map(|_| self.config.node_id.clone())
    }

    pub(super) fn health(&mut self, id: RequestId) {
        let health = Health {
            status: "ok".into(),
            api_version: API_VERSION.into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            ir_versions: vec![IR_VERSION.into()],
            active_executions: self.active,
            held_executions: self.held,
            worker_sessions: self.sessions.len() as u64,
            role: self.role_name().into(),
            node_id: self.name_in_cluster(),
            term: self.known_term(),
            leader: self.known_leader(),
        };
        self.answer(id, Response::ok(Reply::Health(health)));
    }

    pub(super) fn ready(&mut self, id: RequestId) {
        let ready = Ready {
            role: self.role_name().into(),
            node_id: self.name_in_cluster(),
            term: self.known_term(),
            leader: self.known_leader(),
            ready: self.is_ready(),
            reason: self.why_not_ready().or(self.why_not_writing()).map(Into::into),
        };
        let status = if ready.ready { 200 } else { 503 };
        self.answer(id, Response { status, retry_after: None, reply: Reply::Ready(ready) });
    }

    pub(super) fn probe(&mut self, id: RequestId, ok: bool) {
        let status = if ok { 200 } else { 503 };
        self.answer(id, Response { status, retry_after: None, reply: Reply::Probe { ok } });
    }

    pub(super) fn metrics(&mut self, id: RequestId) {
        let metrics = Metrics {
            counters: self.counters,
            active_executions: self.active,
            held_executions: self.held,
            resident_executions: self.slots.len() as u64,
            worker_sessions: self.sessions.len() as u64,
            open_attempts: self.attempts.len() as u64,
            waiting_polls: self.polls.len() as u64,
            queue: self.queue.view(self.cluster_now()),
            ready: self.is_ready(),
            term: self.known_term().unwrap_or_default(),
            leads: self.takes_requests(),
            appends: self.appends.view(),
            last_append_ms: self.appends.last_ms(self.now.mono),
            clock_offset_ms: self.clock_offset_ms(),
        };
        self.answer(id, Response::ok(Reply::Metrics(Box::new(metrics))));
    }
}
