//! Advisory locks: of a session or of a transaction, shared or not (R20).

use super::Context;
use crate::postgres::engine::Domain;
use crate::postgres::error::Stop;
use crate::postgres::lock::{Mode, Request, Scope, Tag};

impl<D: Domain + ?Sized> Context<'_, D> {
    /// Takes an advisory lock, and waits for it where it must (R20).
    pub fn advisory_lock(&mut self, key: i64, shared: bool, scope: Scope) -> Result<(), Stop> {
        let tag = Tag::Advisory(key);
        if self.running().asked.take() == Some(tag) {
            return Ok(());
        }
        self.running().asked = Some(tag);
        self.ask(tag, advisory_mode(shared), scope)?;
        self.running().asked = None;
        Ok(())
    }

    /// The same, for so many milliseconds at most: that the wait is over is no error. Whether it has it.
    pub fn advisory_lock_within(&mut self, key: i64, ms: u64, scope: Scope) -> Result<bool, Stop> {
        if self.running().asked == Some(Tag::Advisory(key)) && !self.holds_advisory(key) {
            self.running().asked = None;
            return Ok(false);
        }
        let asked = self.advisory_lock(key, false, scope);
        if let Some(waits) = &mut self.running().waits {
            waits.caught_after = Some(ms);
        }
        asked.map(|()| true)
    }

    /// The same without waiting; whether it has it.
    pub fn try_advisory_lock(&mut self, key: i64, shared: bool, scope: Scope) -> bool {
        let asked = self.state.locks.ask(self.session, Tag::Advisory(key), advisory_mode(shared), scope, false);
        asked == Request::Granted
    }

    /// Gives one count of a session's advisory lock back; whether it was held.
    pub fn advisory_unlock(&mut self, key: i64, shared: bool) -> bool {
        let tag = Tag::Advisory(key);
        match self.state.locks.release(self.session, tag, advisory_mode(shared), Scope::Session) {
            Some(woken) => {
                self.state.runnable.extend(woken);
                true
            }
            None => false,
        }
    }

    /// Whether this session holds that advisory lock, however.
    pub fn holds_advisory(&self, key: i64) -> bool {
        self.state.locks.holds(self.session, Tag::Advisory(key))
    }
}

fn advisory_mode(shared: bool) -> Mode {
    if shared { Mode::Share } else { Mode::Exclusive }
}
