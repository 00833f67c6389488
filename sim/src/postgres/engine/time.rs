//! What happens by the clock.

use super::{Domain, Engine, Flaw, SessionId};
use crate::postgres::error::{Code, SqlError};
use crate::postgres::session::{Timer, Waits};

impl<D: Domain> Engine<D> {
    /// True time, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.state.now
    }

    /// What the database host's clock shows, in milliseconds.
    pub fn clock_ms(&self) -> i64 {
        self.state.clock_ms()
    }

    /// The database host's clock shows this from now on.
    pub fn set_clock_ms(&mut self, ms: i64) {
        self.state.clock_offset_ms = ms - self.state.now as i64 / 1_000;
    }

    /// When something happens by itself next, in microseconds.
    pub fn next_timer(&self) -> Option<u64> {
        let timers = self.state.sessions.iter().filter(|(_, s)| !s.frozen);
        timers.filter_map(|(id, _)| self.timer_of(*id)).map(|(at, _)| at).min()
    }

    pub(super) fn timer_of(&self, session: SessionId) -> Option<(u64, Timer)> {
        self.state.sessions.get(&session)?.next_timer()
    }

    /// Time passes, up to `now`, in microseconds.
    pub fn advance(&mut self, now: u64) {
        assert!(now >= self.state.now, "time does not go back");
        loop {
            let live = self.state.sessions.iter().filter(|(_, s)| !s.frozen);
            let mut due: Vec<_> =
                live.filter_map(|(id, s)| s.next_timer().map(|(at, timer)| (at, timer, *id))).collect();
            due.sort();
            let first = due.first().filter(|(at, ..)| *at <= now).map(|(at, timer, _)| (*at, *timer));
            let Some(first) = first else { break };
            due.retain(|(at, timer, _)| (*at, *timer) == first);
            let (at, timer, session) = due.swap_remove(self.state.choices.one_of(due.len()));
            self.state.now = self.state.now.max(at);
            self.fires(session, timer);
            self.pump();
        }
        self.state.now = now;
    }

    pub(super) fn fires(&mut self, session: SessionId, timer: Timer) {
        match timer {
            Timer::Wakes => {
                let s = self.state.sessions.get_mut(&session).expect("it lives");
                s.running.as_mut().expect("it sleeps").sleeps_until = None;
                self.state.runnable.push_back(session);
            }
            Timer::Deadlock => {
                let waits = self.waits_of(session);
                waits.looked = true;
                if self.state.locks.waits_for(session).is_none() {
                    return;
                }
                if self.state.flaw == Some(Flaw::NoDeadlock) {
                    return;
                }
                match self.state.locks.resolve_deadlock(session) {
                    Some(woken) => self.state.runnable.extend(woken),
                    None => {
                        self.state.counts.deadlocks += 1;
                        self.fail(session, SqlError::error(Code::Deadlock));
                    }
                }
            }
            Timer::Lock => {
                self.state.counts.timeouts += 1;
                if self.waits_of(session).caught_after.is_some() {
                    let s = self.state.sessions.get_mut(&session).expect("it lives");
                    s.running.as_mut().expect("it waits").waits = None;
                    let woken = self.state.locks.leave_line(session);
                    self.state.runnable.extend(woken);
                    self.state.runnable.push_back(session);
                    return;
                }
                self.fail(session, SqlError::error(Code::LockNotAvailable));
            }
            Timer::Statement => {
                self.state.counts.timeouts += 1;
                self.fail(session, SqlError::error(Code::QueryCanceled));
            }
            Timer::Durable => {
                let s = self.state.sessions.get_mut(&session).expect("it lives");
                let (_, answer) = s.committing.take().expect("it waits for a replica");
                self.end_transaction(session, true);
                self.ended(session, Ok(answer));
            }
            Timer::Client => self.end_session(session, Some(SqlError::fatal(Code::ConnectionLost))),
            Timer::IdleInTransaction | Timer::Idle => {
                self.state.counts.timeouts += 1;
                self.end_session(session, None);
            }
        }
    }

    fn waits_of(&mut self, session: SessionId) -> &mut Waits {
        let s = self.state.sessions.get_mut(&session).expect("it lives");
        s.running.as_mut().and_then(|r| r.waits.as_mut()).expect("it waits")
    }
}
