//! Liveness: once the world is healed, every execution ends, every queue drains and everybody gets an answer; "not
//! yet" comes with its reason.

use crate::world::World;
use crate::world::server::Pid;

/// What has not come to its end yet, or `None`.
pub fn pending(world: &World) -> Option<String> {
    if world.processes.is_empty() {
        return Some("no server lives".into());
    }
    if world.processes.len() > world.servers() {
        return Some("a server that was replaced still lives".into());
    }
    if world.processes.len() < world.servers() {
        return Some("not every server lives".into());
    }
    if world.is_changing() {
        return Some("the operator changes the mode".into());
    }
    if world.leader().is_none() {
        return Some("no server may write".into());
    }
    let registered = |pid: &Pid| world.store().nodes().any(|row| row.pid == pid.0 && row.heartbeat_ms.0 != 0);
    if let Some(pid) = world.processes.keys().find(|pid| world.is_cluster() && !registered(pid)) {
        return Some(format!("server {} is not among the nodes", pid.0));
    }
    let running = world.store().owners();
    if !running.is_empty() {
        let few = running.iter().take(3).map(|(id, owner)| {
            let last = world.checks.history.get(id).and_then(|t| t.events.last());
            format!("{id} ({:?}, wake {:?})", last.map(|e| &e.event), owner.wake)
        });
        return Some(format!("{} executions run: {}", running.len(), few.collect::<Vec<_>>().join("; ")));
    }
    if let Some(task) = world.store().tasks().next() {
        return Some(format!("a task is queued for an execution that has ended: {:?}", task.row));
    }
    if let Some(client) = world.clients.iter().find(|c| c.is_busy()) {
        return Some(format!("a client waits: {}", client.business()));
    }
    if let Some((index, worker)) = world.workers.iter().enumerate().find(|(_, w)| w.is_busy() || !w.is_well()) {
        return Some(format!("worker {index} is not at rest: {worker:?}"));
    }
    if let Some(left) = world.audit.as_ref().filter(|audit| !audit.is_empty()) {
        return Some(format!("{} requests are still to be asked", left.len()));
    }
    None
}
