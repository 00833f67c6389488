//! Fields as other systems call them, so that whoever comes from there is told what they are called here.

/// What another system calls a field, and what that is here: the first that is a field where it stands.
const SYNONYMS: &[(&[&str], &[&str])] = &[
    (&["if", "condition", "only_if"], &["when"]),
    (&["depends_on", "dependsOn", "needs", "requires", "dependencies"], &["after"]),
    (&["wait", "delay", "pause", "timer"], &["sleep", "initial"]),
    (&["run", "call", "activity", "action", "uses", "function", "job", "type"], &["task"]),
    (&["with", "args", "arguments", "params", "parameters", "payload", "inputs", "data"], &["input"]),
    (&["set", "value", "expression", "eval", "assign"], &["compute"]),
    (&["retries", "retry_policy", "retryPolicy"], &["retry"]),
    (&["attempts", "max_retries", "maxAttempts", "maximum_attempts"], &["max_attempts"]),
    (&["interval", "initial_delay", "initial_interval", "backoff"], &["initial"]),
    (&["multiplier", "backoff_coefficient", "backoff_factor"], &["factor"]),
    (&["max_delay", "max_interval", "maximum_interval"], &["max"]),
    (&["deadline", "timeout_seconds", "start_to_close_timeout"], &["timeout"]),
    (&["schedule_to_start_timeout"], &["queue_timeout"]),
    (&["name"], &["id"]),
    (&["jobs", "tasks", "stages", "states", "nodes"], &["steps"]),
    (&["return", "returns", "outputs"], &["result", "output"]),
    (&["workflow", "title", "id"], &["name"]),
];

/// The field of `known` that is called `field` elsewhere.
pub(super) fn meant<'k>(field: &str, known: &[&'k str]) -> Option<&'k str> {
    let (_, here) = SYNONYMS
        .iter()
        .find(|(elsewhere, here)| elsewhere.contains(&field) && here.iter().any(|name| known.contains(name)))?;
    here.iter().find_map(|name| known.iter().find(|known| *known == name).copied())
}
