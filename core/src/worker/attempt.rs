//! The open deliveries of this server: attempts that were handed out and have no result yet.

use crate::id::{ExecutionId, SessionId, Token};
use crate::time::Mono;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Every delivery that a step waits for, and who has it.
#[derive(Debug, Default)]
pub struct Attempts {
    open: BTreeMap<Token, Holder>,
    /// Deliveries that nobody here has, by the time at which they are given up.
    orphans: BTreeSet<(Mono, Token)>,
}

/// Who has a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A session of this server.
    Session(SessionId),
    /// No worker that is known here. Given up at `until`.
    Nobody { until: Mono, why: Orphaned },
}

/// Why nobody is known to have a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphaned {
    /// It was handed out before a restart, and its worker has not been heard of since.
    Restart,
    /// The session that it was recorded for ended while that was under way.
    SessionEnded,
}

impl Attempts {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Who has it; `None` if it is not open.
    pub fn holder(&self, token: &Token) -> Option<Holder> {
        self.open.get(token).copied()
    }

    /// Opens a delivery, or moves it to another holder; the holder before.
    pub fn hold(&mut self, token: Token, holder: Holder) -> Option<Holder> {
        let before = self.open.insert(token.clone(), holder);
        if let Some(Holder::Nobody { until, .. }) = before {
            self.orphans.remove(&(until, token.clone()));
        }
        if let Holder::Nobody { until, .. } = holder {
            self.orphans.insert((until, token));
        }
        before
    }

    /// Closes a delivery: it has a result, or nothing waits for it any more.
    pub fn close(&mut self, token: &Token) -> Option<Holder> {
        let before = self.open.remove(token)?;
        if let Holder::Nobody { until, .. } = before {
            self.orphans.remove(&(until, token.clone()));
        }
        Some(before)
    }

    /// The open deliveries of one execution.
    pub fn of(&self, execution: &ExecutionId) -> Vec<Token> {
        let first = Token { execution: execution.clone(), id: Uuid::nil() };
        self.open.range(first..).take_while(|(t, _)| t.execution == *execution).map(|(t, _)| t.clone()).collect()
    }

    /// A delivery that nobody reported in time, if there is one. It stays open until it is closed, and is not
    /// returned again.
    pub fn given_up(&mut self, now: Mono) -> Option<Token> {
        let (at, _) = self.orphans.first()?;
        if *at > now {
            return None;
        }
        self.orphans.pop_first().map(|(_, token)| token)
    }

    /// When the next delivery is given up.
    pub fn next_given_up(&self) -> Option<Mono> {
        self.orphans.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(execution: &str, id: u128) -> Token {
        Token { execution: execution.into(), id: Uuid::from_u128(id) }
    }

    #[test]
    fn a_delivery_that_a_session_adopts_is_not_given_up() {
        let mut attempts = Attempts::default();
        attempts.hold(token("a", 1), Holder::Nobody { until: Mono(10), why: Orphaned::Restart });
        attempts.hold(token("a", 2), Holder::Nobody { until: Mono(20), why: Orphaned::Restart });
        let session = Holder::Session(SessionId(Uuid::from_u128(5)));
        assert_eq!(
            attempts.hold(token("a", 1), session),
            Some(Holder::Nobody { until: Mono(10), why: Orphaned::Restart })
        );
        assert_eq!(attempts.given_up(Mono(10)), None);
        assert_eq!(attempts.given_up(Mono(20)), Some(token("a", 2)));
        assert_eq!(attempts.given_up(Mono(20)), None);
        assert_eq!(attempts.len(), 2);
    }

    #[test]
    fn the_deliveries_of_one_execution_are_found_among_others() {
        let mut attempts = Attempts::default();
        for t in [token("a", 1), token("ab", 2), token("a", 3), token("b", 4)] {
            attempts.hold(t, Holder::Nobody { until: Mono(1), why: Orphaned::Restart });
        }
        assert_eq!(attempts.of(&"a".into()), vec![token("a", 1), token("a", 3)]);
        attempts.close(&token("a", 1));
        assert_eq!(attempts.of(&"a".into()), vec![token("a", 3)]);
    }
}
