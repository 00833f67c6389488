//! When a failed attempt is repeated.

use crate::definition::{Jitter, RetryPolicy};
use crate::execution::event::{Identity, TaskError};
use crate::id::UnitKey;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// The delay before the attempt after `attempt`; `None` where the error is final or the attempts are used up.
///
/// Jitter comes from a fixed hash of cluster id, execution, run, unit and attempt, so that a replay draws the same
/// (interfaces, "History and storage").
pub fn delay(
    policy: &RetryPolicy,
    identity: &Identity,
    unit: &UnitKey,
    attempt: u32,
    error: &TaskError,
) -> Option<Duration> {
    if attempt >= policy.max_attempts || !error.retryable || policy.non_retryable.contains(&error.code) {
        return None;
    }
    let delay = backoff(policy, attempt);
    Some(match policy.jitter {
        Jitter::None => delay,
        Jitter::Full => Duration::from_millis(fixed_draw(identity, unit, attempt) % (millis(delay) + 1)),
    })
}

/// `initial · factor^(attempt - 1)`, at most `max`; in whole milliseconds.
fn backoff(policy: &RetryPolicy, attempt: u32) -> Duration {
    let max = u128::from(millis(policy.max));
    let mut delay = u128::from(millis(policy.initial));
    for _ in 1..attempt {
        if delay >= max {
            break;
        }
        delay = delay * u128::from(policy.factor_milli) / 1000;
    }
    Duration::from_millis(u64::try_from(delay.min(max)).expect("at most `max`, which is a u64"))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX - 1).min(u64::MAX - 1)
}

fn fixed_draw(identity: &Identity, unit: &UnitKey, attempt: u32) -> u64 {
    let hash = Sha256::digest(format!("{}#{attempt}", identity.idempotency_key(unit)));
    u64::from_be_bytes(hash[..8].try_into().expect("a SHA-256 hash has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ClusterId, Run};
    use uuid::Uuid;

    fn identity() -> Identity {
        Identity { cluster_id: ClusterId(Uuid::from_u128(1)), execution_id: "e".into(), run: Run(1) }
    }

    fn policy() -> RetryPolicy {
        RetryPolicy {
            max_attempts: 5,
            initial: Duration::from_secs(1),
            factor_milli: 1500,
            max: Duration::from_secs(3),
            jitter: Jitter::None,
            non_retryable: vec!["CARD_DECLINED".into()],
        }
    }

    #[test]
    fn delays_grow_by_the_factor_up_to_the_longest() {
        let failed = TaskError::retryable("X", "");
        let delays: Vec<_> =
            (1..=5).map(|n| delay(&policy(), &identity(), &"s".into(), n, &failed).map(|d| d.as_millis())).collect();
        assert_eq!(delays, [Some(1000), Some(1500), Some(2250), Some(3000), None]);
    }

    #[test]
    fn a_final_error_is_not_repeated() {
        let declined = TaskError::retryable("CARD_DECLINED", "");
        assert_eq!(delay(&policy(), &identity(), &"s".into(), 1, &declined), None);
        assert_eq!(delay(&policy(), &identity(), &"s".into(), 1, &TaskError::last("X", "")), None);
    }

    #[test]
    fn jitter_is_the_same_at_every_replay_and_differs_between_units() {
        let policy = RetryPolicy { jitter: Jitter::Full, ..policy() };
        let failed = TaskError::retryable("X", "");
        let draw = |unit: &str, n| delay(&policy, &identity(), &unit.into(), n, &failed).expect("attempts are left");
        assert_eq!(draw("a", 1), draw("a", 1));
        let drawn: std::collections::BTreeSet<_> = ["a", "b", "c", "d", "e"].map(|u| draw(u, 3)).into();
        assert!(drawn.len() > 1 && drawn.iter().all(|d| *d <= Duration::from_millis(2250)), "{drawn:?}");
    }

    #[test]
    fn the_largest_policy_does_not_overflow() {
        let policy = RetryPolicy {
            max_attempts: u32::MAX,
            initial: Duration::MAX,
            factor_milli: u32::MAX,
            max: Duration::MAX,
            jitter: Jitter::Full,
            non_retryable: vec![],
        };
        assert!(delay(&policy, &identity(), &"s".into(), u32::MAX - 1, &TaskError::retryable("X", "")).is_some());
    }
}
