//! What is said of a store that does not do what it is asked: the first time, and then now and then.

use crate::time::Mono;
use std::collections::BTreeMap;
use std::time::Duration;

/// The same of the same call is said once in so long.
const QUIET: Duration = Duration::from_secs(10);
/// An end is told of trouble that lasted so long.
const WORTH_AN_END: Duration = Duration::from_secs(1);

/// The troubles of each kind of call.
#[derive(Debug, Default)]
pub(crate) struct Troubles(BTreeMap<&'static str, Trouble>);

#[derive(Debug)]
struct Trouble {
    /// None where the outcome was unknown.
    message: Option<String>,
    /// When it began; none while the call goes well.
    since: Option<Mono>,
    said: Mono,
    /// How often it was met and not said.
    unsaid: u64,
}

impl Troubles {
    /// A call failed, or its outcome is unknown: whether to say so, and how often that was left unsaid before.
    pub fn met(&mut self, now: Mono, call: &'static str, message: Option<&str>) -> Option<u64> {
        let Some(trouble) = self.0.get_mut(call) else {
            let message = message.map(str::to_owned);
            self.0.insert(call, Trouble { message, since: Some(now), said: now, unsaid: 0 });
            return Some(0);
        };
        trouble.since.get_or_insert(now);
        if trouble.message.as_deref() == message && now < trouble.said + QUIET {
            trouble.unsaid += 1;
            return None;
        }
        trouble.message = message.map(str::to_owned);
        trouble.said = now;
        Some(std::mem::take(&mut trouble.unsaid))
    }

    /// A call went well: how long it had not, where that is to be said.
    pub fn over(&mut self, now: Mono, call: &'static str) -> Option<Duration> {
        let since = self.0.get_mut(call)?.since.take()?;
        Some(now.since(since)).filter(|lasted| *lasted >= WORTH_AN_END)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono(ms * 1000)
    }

    #[test]
    fn the_same_trouble_is_said_once_in_ten_seconds_and_another_at_once() {
        let mut troubles = Troubles::default();
        assert_eq!(troubles.met(at(0), "append", Some("refused")), Some(0));
        for ms in 1..100 {
            assert_eq!(troubles.met(at(ms), "append", Some("refused")), None);
        }
        assert_eq!(troubles.met(at(100), "check", Some("refused")), Some(0), "of another call");
        assert_eq!(troubles.met(at(200), "append", None), Some(99), "another trouble");
        assert_eq!(troubles.met(at(10_200), "append", None), Some(0));
    }

    #[test]
    fn its_end_is_said_where_it_lasted_and_does_not_make_the_next_one_louder() {
        let mut troubles = Troubles::default();
        assert_eq!(troubles.over(at(0), "append"), None);
        troubles.met(at(0), "append", None);
        assert_eq!(troubles.over(at(999), "append"), None);
        assert_eq!(troubles.met(at(1_000), "append", None), None);
        assert_eq!(troubles.over(at(4_000), "append"), Some(Duration::from_secs(3)));
        assert_eq!(troubles.over(at(5_000), "append"), None);
    }
}
