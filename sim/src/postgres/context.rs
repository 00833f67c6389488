//! The primitives that statements are made of; advisory locks in a file of their own.

mod advisory;

use super::SessionId;
use super::engine::{Domain, Flaw, State, Writable};
use super::error::{Code, SqlError, Stop};
use super::lock::{Mode, Request, RowId, Scope, Tag, Xid};
use super::session::{Locking, Running, Waits};
use super::table::{Mark, Snapshot, Strength, Version};
use std::collections::VecDeque;
use std::ops::RangeBounds;

/// What to do about a row that others hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    Wait,
    /// Fail: `NOWAIT`.
    Fail,
    /// Leave it out: `SKIP LOCKED`.
    Skip,
}

/// What a row is locked for, which decides how newer versions of it are come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// `SELECT … FOR`: with the version that it saw, those that have followed are locked while it still stands in line.
    Select,
    /// `UPDATE` and `DELETE`: the newest version is looked for.
    Write,
    /// `ON CONFLICT DO UPDATE`: this version or none.
    Conflict,
}

/// A row as the statement's snapshot sees it.
#[derive(Clone, Debug)]
pub struct Found<K, R> {
    pub row: RowId,
    pub version: u32,
    pub key: K,
    pub value: R,
}

/// What became of a lock on a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locked<R> {
    /// It is as the snapshot saw it. What held it may have locked it only: conditions are not looked at again (R5).
    Same,
    /// A newer version was committed meanwhile: conditions are looked at again on this one (R2).
    Newer(R),
    /// It was deleted meanwhile.
    Gone,
    /// Others hold it, and it is left out.
    Skipped,
}

/// What became of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    Done,
    /// A row of that key is there.
    Exists(RowId),
}

/// Where a statement does what it does.
pub struct Context<'a, D: Domain + ?Sized> {
    pub(super) state: &'a mut State<D>,
    pub(super) session: SessionId,
}

impl<D: Domain + ?Sized> Context<'_, D> {
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// `clock_timestamp()`, in milliseconds.
    pub fn clock_ms(&self) -> i64 {
        self.state.clock_ms()
    }

    /// `now()`: when the transaction began (R6).
    pub fn now_ms(&mut self) -> i64 {
        self.state.transaction(self.session).began_ms
    }

    /// Says what this transaction does, to those who watch commits.
    pub fn note(&mut self, note: D::Note) {
        self.state.transaction(self.session).notes.push(note);
    }

    /// The commit of this transaction waits for no replica.
    pub fn commits_at_once(&mut self) {
        self.state.transaction(self.session).at_once = true;
    }

    fn running(&mut self) -> &mut Running<D::Program> {
        self.state.session(self.session).running.as_mut().expect("a statement runs")
    }

    fn snapshot(&mut self) -> Snapshot {
        let (upto, command) = (self.running().snapshot, self.running().command);
        Snapshot { upto, own: self.state.transaction(self.session).xid, command }
    }

    /// What the snapshot sees of a range of keys, in their order.
    pub fn scan(&mut self, range: impl RangeBounds<D::Key>) -> Vec<Found<D::Key, D::Row>> {
        let snapshot = self.snapshot();
        let tables = &self.state.tables;
        let found = tables.scan(range, snapshot).map(|(row, version)| Found {
            row,
            version: version.id,
            key: tables.row(row).key.clone(),
            value: version.value.clone(),
        });
        found.collect()
    }

    /// What the snapshot sees under a key.
    pub fn get(&mut self, key: &D::Key) -> Option<Found<D::Key, D::Row>> {
        self.scan(key.clone()..=key.clone()).pop()
    }

    /// The row of this key that is there now, whatever the snapshot sees.
    pub fn newest_of(&self, key: &D::Key) -> Option<RowId> {
        let mut rows = self.state.tables.of_key(key).iter().copied();
        rows.rfind(|row| self.state.tables.row(*row).newest().ended.is_none())
    }

    /// What earlier statements of this transaction have written, which no other sees; none where one deleted a row.
    pub fn own_writes(&mut self) -> Vec<(D::Key, Option<D::Row>)> {
        let transaction = self.state.transaction(self.session);
        let Some(xid) = transaction.xid else { return Vec::new() };
        let touched = transaction.touched.clone();
        self.state.written(&touched, xid)
    }

    /// As if another statement of the same transaction began: it sees what was committed meanwhile.
    pub fn new_snapshot(&mut self) {
        let commits = self.state.commits;
        let transaction = self.state.transaction(self.session);
        transaction.commands += 1;
        let command = transaction.commands;
        let running = self.running();
        (running.snapshot, running.command) = (commits, command);
    }

    /// The newest version of a row that this transaction has locked.
    pub fn newest(&self, row: RowId) -> &D::Row {
        &self.state.tables.row(row).newest().value
    }

    /// An error where nothing can be written.
    pub fn may_write(&self) -> Result<(), Stop> {
        match self.state.writable {
            Writable::Yes => Ok(()),
            Writable::ReadOnly => Err(Stop::error(Code::ReadOnly)),
            Writable::DiskFull => Err(Stop::error(Code::DiskFull)),
        }
    }

    /// Begins to wait for a lock of the lock manager, or has it.
    fn ask(&mut self, tag: Tag, mode: Mode, scope: Scope) -> Result<(), Stop> {
        match self.state.locks.ask(self.session, tag, mode, scope, true) {
            Request::Granted => Ok(()),
            Request::Queued => {
                self.state.counts.waits += 1;
                let since = self.state.now;
                self.running().waits = Some(Waits { since, looked: false, caught_after: None });
                Err(Stop::Waits)
            }
            Request::Deadlock => {
                self.state.counts.deadlocks += 1;
                Err(Stop::error(Code::Deadlock))
            }
            Request::Refused => unreachable!("a request that waits is not refused"),
        }
    }

    /// Waits for the end of a transaction. Resumed, it asks again: then the lock on the number is held, and given back.
    fn wait_for_end(&mut self, xid: Xid) -> Result<(), Stop> {
        let tag = Tag::Transaction(xid);
        if self.running().asked == Some(tag) {
            self.running().asked = None;
        } else {
            if !self.state.owners.contains_key(&xid) {
                return Ok(());
            }
            self.running().asked = Some(tag);
            self.ask(tag, Mode::Share, Scope::Transaction)?;
            self.running().asked = None;
        }
        let woken = self.state.locks.release(self.session, tag, Mode::Share, Scope::Transaction);
        self.state.runnable.extend(woken.expect("it was granted"));
        Ok(())
    }

    /// `SELECT … FOR`: locks a row that the snapshot saw, on its newest version (R2, R8 to R12). Under [`Policy::Wait`]
    /// it waits for those who hold it, in line with others who wait for it.
    pub fn lock(
        &mut self,
        found: &Found<D::Key, D::Row>,
        strength: Strength,
        policy: Policy,
    ) -> Result<Locked<D::Row>, Stop> {
        self.lock_for(found, strength, policy, Purpose::Select)
    }

    /// The same for an UPDATE or a DELETE.
    pub fn lock_to_write(&mut self, found: &Found<D::Key, D::Row>, strength: Strength) -> Result<Locked<D::Row>, Stop> {
        self.lock_for(found, strength, Policy::Wait, Purpose::Write)
    }

    fn lock_for(
        &mut self,
        found: &Found<D::Key, D::Row>,
        strength: Strength,
        policy: Policy,
        purpose: Purpose,
    ) -> Result<Locked<D::Row>, Stop> {
        if self.state.writable == Writable::ReadOnly {
            return Err(Stop::error(Code::ReadOnly));
        }
        if self.running().locking.is_none() {
            self.let_in(Some((&found.key, strength)))?;
        }
        let mut locking = self.running().locking.take().unwrap_or(Locking {
            row: found.row,
            version: found.version,
            strength,
            newer: false,
            arrives: false,
            chain: false,
            in_front: false,
            holders: VecDeque::new(),
        });
        assert_eq!((locking.row, locking.strength), (found.row, strength), "it asks again for the same");
        loop {
            let step = self.lock_step(&mut locking, policy, purpose);
            match step {
                Ok(None) => {}
                Ok(Some(locked)) => {
                    self.leave_front(&mut locking);
                    return Ok(locked);
                }
                Err(Stop::Waits) => {
                    self.running().locking = Some(locking);
                    return Err(Stop::Waits);
                }
                Err(stop) => return Err(stop),
            }
        }
    }

    /// The same, of a row that no other statement asks for now: nobody comes in before.
    pub fn lock_at_once(&mut self, found: &Found<D::Key, D::Row>, strength: Strength) -> Result<Locked<D::Row>, Stop> {
        self.running().lets_in = true;
        self.lock(found, strength, Policy::Fail)
    }

    /// Between two rows, others may be faster: where that is explored, it lets those in who can go on, if there are any
    /// to whom it makes a difference. Resumed, the program comes to the same place again, and goes on.
    fn let_in(&mut self, next: Option<(&D::Key, Strength)>) -> Result<(), Stop> {
        let explored = self.state.choices.are_explored() && !self.state.runnable.is_empty();
        let meets = |program: &D::Program| next.is_none_or(|(key, strength)| D::meets(program, key, strength));
        let mut others = self.state.sessions.values().filter_map(|s| s.running.as_ref()?.program.as_ref());
        let others = explored && others.any(meets);
        let running = self.running();
        running.lets_in = others && !running.lets_in;
        if !running.lets_in {
            return Ok(());
        }
        self.state.runnable.push_back(self.session);
        Err(Stop::Waits)
    }

    fn lock_step(
        &mut self,
        locking: &mut Locking,
        policy: Policy,
        purpose: Purpose,
    ) -> Result<Option<Locked<D::Row>>, Stop> {
        let strength = locking.strength;
        if let Some(Tag::Tuple(..)) = self.running().asked {
            // The wait in line is over.
            self.running().asked = None;
            locking.in_front = true;
        }
        while let Some(xid) = locking.holders.front().copied() {
            self.wait_for_end(xid)?;
            locking.holders.pop_front();
        }
        if locking.chain {
            self.follow_chain(locking);
            return Ok(None);
        }
        let me = self.state.transaction(self.session).xid;
        let row = self.state.tables.row(locking.row);
        let version = row.version(locking.version);
        if let Some(ended) = version.ended {
            // Who comes to a newer version that somebody else is about to replace waits for that one, and stands in no
            // line: it has not asked for a lock on this version yet.
            let open = ended.committed.is_none() && Some(ended.xid) != me;
            if locking.arrives && open {
                return match policy {
                    Policy::Wait => {
                        locking.holders = VecDeque::from([ended.xid]);
                        Ok(None)
                    }
                    Policy::Skip => self.skips(),
                    Policy::Fail => Err(Stop::error(Code::LockNotAvailable)),
                };
            }
            let passes = strength == Strength::KeyShare && !locking.arrives && version.keeps_key;
            if passes {
                return self.pass(locking, me);
            }
            if ended.committed.is_some() {
                let next = row.versions.iter().find(|v| v.id > version.id).map(|v| v.id);
                let others = self.leave_front(locking);
                let Some(next) = next.filter(|_| purpose != Purpose::Conflict) else { return Ok(Some(Locked::Gone)) };
                (locking.version, locking.newer, locking.arrives) = (next, true, true);
                // Those behind it follow to the new version at the same time.
                if others && self.state.choices.are_explored() {
                    self.state.runnable.push_back(self.session);
                    return Err(Stop::Waits);
                }
                return Ok(None);
            }
        }
        locking.arrives = false;
        let is_replaced = version.ended.is_some();
        let mut holders = row.holders(me, strength);
        // Who holds the row already does not stand in line for more of it.
        let holds_some = me.is_some_and(|me| row.is_locked_by(me));
        let flaw = self.state.flaw;
        if flaw == Some(Flaw::SharedIsNotSkipped) && policy == Policy::Skip {
            holders.retain(|xid| !row.locks.contains(&(*xid, Strength::Share)));
        }
        if flaw == Some(Flaw::SharersQueue) && policy == Policy::Wait && !locking.in_front {
            let tag = Tag::Tuple(locking.row, locking.version);
            self.running().asked = Some(tag);
            self.ask(tag, strength.in_line(), Scope::Transaction)?;
            self.running().asked = None;
            locking.in_front = true;
        }
        if holders.is_empty() {
            let value = self.has_locked(locking);
            if locking.newer {
                self.running().followed = true;
                self.state.counts.rechecks += 1;
                if flaw == Some(Flaw::NoRecheck) {
                    return Ok(Some(Locked::Same));
                }
                return Ok(Some(Locked::Newer(value)));
            }
            return Ok(Some(Locked::Same));
        }
        match policy {
            Policy::Skip => return self.skips(),
            Policy::Fail => return Err(Stop::error(Code::LockNotAvailable)),
            Policy::Wait => {}
        }
        // Whoever is waited for is known before it stands in line, and whether that one replaces the version.
        locking.holders = holders.into();
        locking.chain = purpose == Purpose::Select && is_replaced;
        if !locking.in_front && !holds_some {
            let tag = Tag::Tuple(locking.row, locking.version);
            self.running().asked = Some(tag);
            self.ask(tag, strength.in_line(), Scope::Transaction)?;
            self.running().asked = None;
            locking.in_front = true;
        }
        Ok(None)
    }

    /// Who has waited for one that replaced the version locks the versions that followed, and waits for those who hold
    /// them, before it leaves the line of this one. It gives that up where they are replaced in turn.
    fn follow_chain(&mut self, locking: &mut Locking) {
        let me = self.state.transaction(self.session).xid;
        let row = self.state.tables.row(locking.row);
        let mut later = row.versions.iter().filter(|v| v.id > locking.version).peekable();
        let replaced = |v: &Version<D::Row>| v.ended.is_some_and(|ended| ended.committed.is_some());
        if later.peek().is_none() || later.any(replaced) {
            locking.chain = false;
            return;
        }
        locking.holders = row.holders(me, locking.strength).into();
        if locking.holders.is_empty() {
            locking.chain = false;
            self.has_locked(locking);
        }
    }

    fn skips(&mut self) -> Result<Option<Locked<D::Row>>, Stop> {
        self.state.counts.skips += 1;
        Ok(Some(Locked::Skipped))
    }

    /// A key share of a version that was updated takes it as it is, though the update is committed: no key has changed.
    /// The versions that follow are locked as well, and who has updated the row and then deleted it, or locked it for
    /// that, is waited for, whatever the policy.
    fn pass(&mut self, locking: &mut Locking, me: Option<Xid>) -> Result<Option<Locked<D::Row>>, Stop> {
        let row = self.state.tables.row(locking.row);
        let holders = row.holders(me, locking.strength);
        if !holders.is_empty() {
            locking.holders = holders.into();
            return Ok(None);
        }
        if row.newest().ended.is_some_and(|ended| ended.committed.is_some()) {
            return Ok(Some(Locked::Gone));
        }
        let value = self.has_locked(locking);
        Ok(Some(if locking.newer { Locked::Newer(value) } else { Locked::Same }))
    }

    /// The row is locked, from the version on that was come to; that one's value.
    fn has_locked(&mut self, locking: &Locking) -> D::Row {
        let xid = self.state.xid(self.session);
        self.state.tables.lock(locking.row, xid, locking.strength);
        let transaction = self.state.transaction(self.session);
        if !transaction.touched.contains(&locking.row) {
            transaction.touched.push(locking.row);
        }
        self.state.tables.row(locking.row).version(locking.version).value.clone()
    }

    /// Lets the next in line come to the front; whether there is one.
    fn leave_front(&mut self, locking: &mut Locking) -> bool {
        if std::mem::replace(&mut locking.in_front, false) {
            let (tag, mode) = (Tag::Tuple(locking.row, locking.version), locking.strength.in_line());
            let woken = self.state.locks.release(self.session, tag, mode, Scope::Transaction);
            let woken = woken.expect("who is in front holds the version");
            let others = !woken.is_empty();
            self.state.runnable.extend(woken);
            return others;
        }
        false
    }

    /// Where a statement has followed a row to a newer version, it locks that one before it writes it, and others may
    /// come in between. Else locking and writing are one.
    pub fn before_it_writes(&mut self) -> Result<(), Stop> {
        if self.running().followed {
            self.let_in(None)?;
            self.running().followed = false;
        }
        Ok(())
    }

    fn mark(&mut self) -> Mark {
        let xid = self.state.xid(self.session);
        Mark { xid, command: self.running().command, committed: None }
    }

    fn touches(&mut self, row: RowId) {
        let transaction = self.state.transaction(self.session);
        transaction.wrote = true;
        if !transaction.touched.contains(&row) {
            transaction.touched.push(row);
        }
    }

    /// What a statement begins with that writes for certain: an error where nothing can be written, and the transaction's
    /// number.
    pub fn writes(&mut self) -> Result<(), Stop> {
        self.may_write()?;
        self.state.xid(self.session);
        Ok(())
    }

    /// Gives a row that this transaction has locked a new version.
    pub fn update(&mut self, row: RowId, value: D::Row) -> Result<(), Stop> {
        self.may_write()?;
        let mark = self.mark();
        let others = self.state.tables.row(row).holders(Some(mark.xid), Strength::NoKeyUpdate);
        assert!(others.is_empty() || self.state.flaw.is_some(), "it is locked");
        self.state.tables.replace(row, value, mark);
        self.state.tables.lock(row, mark.xid, Strength::NoKeyUpdate);
        self.touches(row);
        Ok(())
    }

    /// Deletes a row that this transaction has locked.
    pub fn delete(&mut self, row: RowId) -> Result<(), Stop> {
        self.may_write()?;
        let mark = self.mark();
        let others = self.state.tables.row(row).holders(Some(mark.xid), Strength::Update);
        assert!(others.is_empty() || self.state.flaw.is_some(), "it is locked");
        self.state.tables.delete(row, mark);
        self.state.tables.lock(row, mark.xid, Strength::Update);
        self.touches(row);
        Ok(())
    }

    /// Before it inserts a row of this key, others may come in.
    pub fn before_it_inserts(&mut self, key: &D::Key) -> Result<(), Stop> {
        if self.running().asked.is_none() { self.let_in(Some((key, Strength::Update))) } else { Ok(()) }
    }

    /// Inserts a row, unless one of its key is there. Where another transaction in progress has inserted one, or is
    /// about to change or delete the one that is there, it waits for that transaction (R14).
    pub fn insert(&mut self, key: &D::Key, value: impl FnOnce() -> D::Row) -> Result<Inserted, Stop> {
        self.may_write()?;
        loop {
            if let Some(Tag::Transaction(xid)) = self.running().asked {
                self.wait_for_end(xid)?;
            }
            let me = self.state.transaction(self.session).xid;
            let mut waits_for = None;
            for id in self.state.tables.of_key(key) {
                let newest = self.state.tables.row(*id).newest();
                let open = |mark: &Mark| mark.committed.is_none() && Some(mark.xid) != me;
                if open(&newest.made) {
                    waits_for = Some(newest.made.xid);
                    break;
                }
                match &newest.ended {
                    None => return Ok(Inserted::Exists(*id)),
                    Some(mark) if open(mark) => {
                        waits_for = Some(mark.xid);
                        break;
                    }
                    Some(_) => {}
                }
            }
            let Some(xid) = waits_for else { break };
            if self.state.flaw == Some(Flaw::UniqueFailsAtOnce) {
                return Err(Context::<D>::unique_violation());
            }
            self.state.counts.unique_waits += 1;
            self.wait_for_end(xid)?;
        }
        let mark = self.mark();
        let row = self.state.tables.insert(key.clone(), value(), mark);
        self.state.tables.lock(row, mark.xid, Strength::Update);
        self.touches(row);
        Ok(Inserted::Done)
    }

    /// Locks the row that an insert met, on its newest version: what `ON CONFLICT DO UPDATE` does. `Gone` where it has
    /// changed meanwhile, and the insert is to be tried again.
    pub fn lock_conflicting(&mut self, row: RowId, strength: Strength) -> Result<Locked<D::Row>, Stop> {
        let me = self.state.transaction(self.session).xid;
        let asked = self.running().locking.as_ref().map(|locking| locking.version);
        // What the insert met, though others may be about to replace it.
        let Some(there) = self.state.tables.find(row) else { return Ok(Locked::Gone) };
        let met = there.versions.iter().rev().find(|v| match asked {
            Some(version) => v.id == version,
            None => v.made.committed.is_some() || Some(v.made.xid) == me,
        });
        let Some(met) = met else { return Ok(Locked::Gone) };
        let (version, key, value) = (met.id, there.key.clone(), met.value.clone());
        match self.lock_for(&Found { row, version, key, value }, strength, Policy::Wait, Purpose::Conflict)? {
            Locked::Same => Ok(Locked::Same),
            Locked::Newer(_) | Locked::Gone => Ok(Locked::Gone),
            Locked::Skipped => unreachable!("it waits"),
        }
    }

    /// True time, in microseconds.
    pub fn true_time_us(&self) -> u64 {
        self.state.now
    }

    /// Does nothing before this moment of true time, in microseconds.
    pub fn sleep_until(&mut self, at: u64) -> Result<(), Stop> {
        if self.state.now >= at {
            return Ok(());
        }
        self.running().sleeps_until = Some(at);
        Err(Stop::Waits)
    }

    /// Does nothing for so long.
    pub fn sleep(&mut self, ms: u64) -> Result<(), Stop> {
        let until = self.running().since + ms * 1_000;
        self.sleep_until(until)
    }

    /// The error of a key that is there twice.
    pub fn unique_violation() -> Stop {
        Stop::Fails(SqlError::error(Code::UniqueViolation))
    }
}
