//! Reading a retry policy.

use super::fields::{self, Fields};
use super::{Problems, join};
use crate::definition::expression::kind;
use crate::definition::{Jitter, RetryPolicy};
use serde_json::Value;
use std::time::Duration;

/// Attempts that a retry policy may allow.
pub const MAX_ATTEMPTS: u32 = 10_000;
/// How fast a delay may grow.
const MAX_FACTOR: f64 = 1000.0;
const RETRY_FIELDS: &[&str] = &["max_attempts", "initial", "factor", "max", "jitter", "non_retryable"];

/// A retry policy, complete if no problem was found.
pub(super) fn read(path: &str, value: &Value, problems: &mut Problems) -> Option<RetryPolicy> {
    let fields = Fields::new(value, path, "`retry`", problems)?;
    fields.known(RETRY_FIELDS, &[], problems);
    let mut policy = RetryPolicy::once();
    let before = problems.found.len() + problems.more;
    if let Some((path, value)) = fields.required("max_attempts", "how often the step is tried, such as 5", problems)
        && let Some(attempts) = fields::whole(path, value, 1, MAX_ATTEMPTS, problems)
    {
        policy.max_attempts = attempts;
    }
    let delay = |field: &str, problems: &mut Problems| -> Option<Duration> {
        fields.get(field).and_then(|(path, value)| fields::duration(path, value, problems))
    };
    let initial = delay("initial", problems);
    let max = delay("max", problems);
    policy.initial = initial.unwrap_or(policy.initial);
    // Without `max` the first delay is never cut.
    policy.max = max.unwrap_or(policy.max.max(policy.initial));
    if policy.initial > policy.max {
        match initial {
            Some(_) => problems.add(join(path, "max"), "`max` is shorter than `initial`", || {
                "make `max` at least as long as the first delay".into()
            }),
            // `initial` was left to its default.
            None => policy.initial = policy.max,
        }
    }
    if let Some((path, value)) = fields.get("factor") {
        match value.as_f64().filter(|f| (1.0..=MAX_FACTOR).contains(f)) {
            // At most 1,000,000 and not negative, so that nothing is lost.
            Some(factor) => policy.factor_milli = (factor * 1000.0).round() as u32,
            None => problems.add(path, "`factor` is a number from 1 to 1000", || "write 2 to double each delay".into()),
        }
    }
    if let Some((path, value)) = fields.get("jitter") {
        match value.as_str() {
            Some("none") => policy.jitter = Jitter::None,
            Some("full") => policy.jitter = Jitter::Full,
            _ => problems.add(path, "`jitter` is `none` or `full`", || {
                "`full` spreads retries over the whole delay, `none` waits exactly as long".into()
            }),
        }
    }
    if let Some((path, value)) = fields.get("non_retryable") {
        policy.non_retryable = read_codes(&path, value, problems);
    }
    (problems.found.len() + problems.more == before).then_some(policy)
}

/// Error codes.
fn read_codes(path: &str, value: &Value, problems: &mut Problems) -> Vec<String> {
    let Value::Array(items) = value else {
        problems.add(path, format!("must be a list of error codes, not {}", kind(value)), || {
            "write a list, such as `[CARD_DECLINED]`".into()
        });
        return Vec::new();
    };
    let codes = items.iter().enumerate();
    codes.filter_map(|(index, item)| fields::text(join(path, &index.to_string()), item, problems)).collect()
}
