//! The lock manager: what sessions hold and wait for, first come first served (postgres-rules, R15, R20).
//!
//! Advisory locks live here, and so do the two kinds of lock that a wait for a row is made of: the lock of a
//! transaction's number, which its session holds until its end, and the lock of one version of a row, which keeps
//! those who wait for that row in line. Locks on rows themselves are in the rows (`table`); a newcomer that does not
//! conflict with them never looks at this line, which is how sharers overtake (R10).

use super::SessionId;
use std::collections::{BTreeMap, BTreeSet};

/// The number of a transaction that has written or locked something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xid(pub u64);

/// The number of a row, whatever its versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowId(pub u64);

/// What can be locked here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tag {
    /// One version of a row.
    Tuple(RowId, u32),
    Transaction(Xid),
    Advisory(i64),
}

/// How. The names are those of PostgreSQL's table locks, whose conflicts these have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    AccessShare,
    RowShare,
    Share,
    Exclusive,
    AccessExclusive,
}

impl Mode {
    /// Whether two sessions cannot have these at once.
    pub fn conflicts(self, other: Mode) -> bool {
        use Mode::*;
        match (self.min(other), self.max(other)) {
            (_, AccessExclusive) => true,
            (RowShare | Share | Exclusive, Exclusive) => true,
            (AccessShare, _) | (RowShare | Share, _) => false,
            (Exclusive | AccessExclusive, _) => true,
        }
    }
}

/// Until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    Transaction,
    Session,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Granted,
    /// It waits in line.
    Queued,
    /// Others have it, and the request was not to wait.
    Refused,
    /// It could never be granted: the two sessions would wait for each other on this very lock.
    Deadlock,
}

#[derive(Clone, Debug)]
struct Held {
    session: SessionId,
    mode: Mode,
    /// How often, by scope.
    count: BTreeMap<Scope, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiter {
    session: SessionId,
    mode: Mode,
    scope: Scope,
}

#[derive(Clone, Debug, Default)]
struct Object {
    held: Vec<Held>,
    line: Vec<Waiter>,
}

impl Object {
    fn hinders(&self, session: SessionId, mode: Mode) -> bool {
        self.held.iter().any(|h| h.session != session && h.mode.conflicts(mode))
    }

    fn grant(&mut self, session: SessionId, mode: Mode, scope: Scope) {
        let found = self.held.iter_mut().find(|h| h.session == session && h.mode == mode);
        match found {
            Some(held) => *held.count.entry(scope).or_default() += 1,
            None => self.held.push(Held { session, mode, count: BTreeMap::from([(scope, 1)]) }),
        }
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    objects: BTreeMap<Tag, Object>,
    waiting: BTreeMap<SessionId, Tag>,
    held: BTreeMap<SessionId, BTreeSet<Tag>>,
}

impl Locks {
    /// Asks for a lock. One that is held already in the same mode is counted once more, whoever waits.
    pub fn ask(&mut self, session: SessionId, tag: Tag, mode: Mode, scope: Scope, wait: bool) -> Request {
        let object = self.objects.entry(tag).or_default();
        let granted = match place(object, session, mode) {
            Place::Ahead if !wait => Request::Refused,
            Place::Now | Place::Ahead => {
                object.grant(session, mode, scope);
                Request::Granted
            }
            _ if !wait => Request::Refused,
            Place::Never => Request::Deadlock,
            Place::At(at) => {
                object.line.insert(at, Waiter { session, mode, scope });
                self.waiting.insert(session, tag);
                Request::Queued
            }
        };
        if granted == Request::Granted {
            self.held.entry(session).or_default().insert(tag);
        } else {
            self.forget_if_unused(tag);
        }
        granted
    }

    /// Gives one count of a lock back; false if it is not held so. Then who is granted what it waited for.
    pub fn release(&mut self, session: SessionId, tag: Tag, mode: Mode, scope: Scope) -> Option<Vec<SessionId>> {
        let object = self.objects.get_mut(&tag)?;
        let at = object.held.iter().position(|h| h.session == session && h.mode == mode)?;
        let counts = &mut object.held[at].count;
        let count = counts.get_mut(&scope)?;
        *count -= 1;
        if *count == 0 {
            counts.remove(&scope);
            if counts.is_empty() {
                object.held.remove(at);
            }
        }
        self.update_held(session, tag);
        Some(self.wake(tag))
    }

    /// Gives back everything of this scope, and leaves the line. Who is granted what it waited for.
    pub fn release_all(&mut self, session: SessionId, scope: Scope) -> Vec<SessionId> {
        let mut woken = self.leave_line(session);
        let tags: Vec<Tag> = self.held.get(&session).into_iter().flatten().copied().collect();
        for tag in tags {
            let Some(object) = self.objects.get_mut(&tag) else { continue };
            for held in object.held.iter_mut().filter(|h| h.session == session) {
                held.count.remove(&scope);
            }
            object.held.retain(|h| !h.count.is_empty());
            self.update_held(session, tag);
            woken.extend(self.wake(tag));
        }
        woken
    }

    /// Stops waiting. Who is granted what it waited for.
    pub fn leave_line(&mut self, session: SessionId) -> Vec<SessionId> {
        let Some(tag) = self.waiting.remove(&session) else { return Vec::new() };
        if let Some(object) = self.objects.get_mut(&tag) {
            object.line.retain(|w| w.session != session);
        }
        self.wake(tag)
    }

    /// What a session waits for.
    pub fn waits_for(&self, session: SessionId) -> Option<Tag> {
        self.waiting.get(&session).copied()
    }

    /// Whether a session holds something.
    pub fn holds(&self, session: SessionId, tag: Tag) -> bool {
        self.held.get(&session).is_some_and(|tags| tags.contains(&tag))
    }

    /// Whom a session waits for: who holds what conflicts, and who stands before it in the line and would have it
    /// first. `pg_blocking_pids` says the same.
    pub fn blockers(&self, session: SessionId) -> Vec<SessionId> {
        let Some(tag) = self.waiting.get(&session) else { return Vec::new() };
        let object = &self.objects[tag];
        let at = object.line.iter().position(|w| w.session == session).expect("who waits stands in the line");
        let mode = object.line[at].mode;
        let holders = object.held.iter().filter(|h| h.session != session && h.mode.conflicts(mode)).map(|h| h.session);
        let ahead = object.line[..at].iter().filter(|w| w.mode.conflicts(mode)).map(|w| w.session);
        let all: BTreeSet<SessionId> = holders.chain(ahead).collect();
        all.into_iter().collect()
    }

    fn update_held(&mut self, session: SessionId, tag: Tag) {
        let still = self.objects.get(&tag).is_some_and(|o| o.held.iter().any(|h| h.session == session));
        if !still && let Some(tags) = self.held.get_mut(&session) {
            tags.remove(&tag);
            if tags.is_empty() {
                self.held.remove(&session);
            }
        }
    }

    fn wake(&mut self, tag: Tag) -> Vec<SessionId> {
        let Some(object) = self.objects.get_mut(&tag) else { return Vec::new() };
        let mut woken = Vec::new();
        let mut ahead: Vec<Mode> = Vec::new();
        for waiter in std::mem::take(&mut object.line) {
            let waits = ahead.iter().any(|m| m.conflicts(waiter.mode)) || object.hinders(waiter.session, waiter.mode);
            if waits {
                ahead.push(waiter.mode);
                object.line.push(waiter);
                continue;
            }
            object.grant(waiter.session, waiter.mode, waiter.scope);
            self.waiting.remove(&waiter.session);
            self.held.entry(waiter.session).or_default().insert(tag);
            woken.push(waiter.session);
        }
        self.forget_if_unused(tag);
        woken
    }

    fn forget_if_unused(&mut self, tag: Tag) {
        if self.objects.get(&tag).is_some_and(|o| o.held.is_empty() && o.line.is_empty()) {
            self.objects.remove(&tag);
        }
    }
}

/// Where a request stands.
enum Place {
    Now,
    /// Past those who wait, since they wait for this very session. Who does not want to wait does not even get this.
    Ahead,
    At(usize),
    Never,
}

/// A request that conflicts with nothing held and with nobody in the line is granted. Else it goes to the end, unless
/// its session holds this lock already in a way that somebody in the line waits for: it goes before that one.
fn place(object: &Object, session: SessionId, mode: Mode) -> Place {
    if object.held.iter().any(|h| h.session == session && h.mode == mode) {
        return Place::Now;
    }
    let hindered = object.hinders(session, mode);
    if !hindered && !object.line.iter().any(|w| w.mode.conflicts(mode)) {
        return Place::Now;
    }
    let mine: Vec<Mode> = object.held.iter().filter(|h| h.session == session).map(|h| h.mode).collect();
    let mut ahead: Vec<Mode> = Vec::new();
    for (at, waiter) in object.line.iter().enumerate() {
        if mine.iter().any(|m| m.conflicts(waiter.mode)) {
            if object.held.iter().any(|h| h.session == waiter.session && h.mode.conflicts(mode)) {
                return Place::Never;
            }
            if !hindered && !ahead.iter().any(|m| m.conflicts(mode)) {
                return Place::Ahead;
            }
            return Place::At(at);
        }
        ahead.push(waiter.mode);
    }
    Place::At(object.line.len())
}

/// The lines of some locks in another order.
type Lines = BTreeMap<Tag, Vec<Waiter>>;

/// How deep the search for an order without a circle goes.
const DEEPEST: usize = 8;

impl Locks {
    /// Looks whether `session` waits in a circle. If another order of the lines breaks it, they are put in that order;
    /// who is granted what it waited for then. `None` if nothing breaks it: `session` is the victim.
    pub fn resolve_deadlock(&mut self, session: SessionId) -> Option<Vec<SessionId>> {
        let lines = self.without_circle(Lines::new(), &[session], 0)?;
        let mut woken = Vec::new();
        for (tag, line) in lines {
            self.objects.get_mut(&tag).expect("somebody waits for it").line = line;
            woken.extend(self.wake(tag));
        }
        Some(woken)
    }

    fn without_circle(&self, lines: Lines, tests: &[SessionId], depth: usize) -> Option<Lines> {
        let Some(soft) = tests.iter().find_map(|s| self.circle(*s, &lines)) else { return Some(lines) };
        if depth >= DEEPEST {
            return None;
        }
        soft.into_iter().find_map(|(tag, behind, before)| {
            let mut line = self.line(tag, &lines).to_vec();
            let from = line.iter().position(|w| w.session == behind)?;
            let to = line.iter().position(|w| w.session == before)?;
            if to > from {
                return None;
            }
            let waiter = line.remove(from);
            line.insert(to, waiter);
            let mut lines = lines.clone();
            lines.insert(tag, line);
            let mut tests = tests.to_vec();
            tests.extend([behind, before]);
            self.without_circle(lines, &tests, depth + 1)
        })
    }

    fn line<'a>(&'a self, tag: Tag, lines: &'a Lines) -> &'a [Waiter] {
        lines.get(&tag).map_or_else(|| self.objects[&tag].line.as_slice(), Vec::as_slice)
    }

    /// A circle through `start`: those of its edges that only the order of a line makes (who is behind whom).
    fn circle(&self, start: SessionId, lines: &Lines) -> Option<Vec<(Tag, SessionId, SessionId)>> {
        let mut visited = BTreeSet::new();
        let mut soft = Vec::new();
        self.search(start, start, lines, &mut visited, &mut soft).then_some(soft)
    }

    fn search(
        &self,
        at: SessionId,
        start: SessionId,
        lines: &Lines,
        visited: &mut BTreeSet<SessionId>,
        soft: &mut Vec<(Tag, SessionId, SessionId)>,
    ) -> bool {
        if !visited.insert(at) {
            return at == start;
        }
        let Some(tag) = self.waiting.get(&at).copied() else { return false };
        let line = self.line(tag, lines);
        let place = line.iter().position(|w| w.session == at).expect("who waits stands in the line");
        let mode = line[place].mode;
        for held in self.objects[&tag].held.iter().filter(|h| h.session != at && h.mode.conflicts(mode)) {
            if self.search(held.session, start, lines, visited, soft) {
                return true;
            }
        }
        for waiter in line[..place].iter().filter(|w| w.mode.conflicts(mode)) {
            if self.search(waiter.session, start, lines, visited, soft) {
                soft.push((tag, at, waiter.session));
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const C: SessionId = SessionId(3);
    const LOCK: Tag = Tag::Advisory(7);

    fn ask(locks: &mut Locks, session: SessionId, mode: Mode) -> Request {
        locks.ask(session, LOCK, mode, Scope::Session, true)
    }

    #[test]
    fn a_sharer_waits_behind_one_who_waits_for_the_whole_and_both_are_served_in_order() {
        let mut locks = Locks::default();
        assert_eq!(ask(&mut locks, A, Mode::Share), Request::Granted);
        assert_eq!(ask(&mut locks, B, Mode::Exclusive), Request::Queued);
        assert_eq!(ask(&mut locks, C, Mode::Share), Request::Queued);
        assert_eq!((locks.blockers(B), locks.blockers(C)), (vec![A], vec![B]));
        assert_eq!(locks.release(A, LOCK, Mode::Share, Scope::Session), Some(vec![B]));
        assert_eq!(locks.release(B, LOCK, Mode::Exclusive, Scope::Session), Some(vec![C]));
        assert_eq!(locks.release(B, LOCK, Mode::Exclusive, Scope::Session), None, "it is not held any more");
    }

    #[test]
    fn who_holds_a_lock_gets_more_of_it_before_those_who_wait_for_it() {
        let mut locks = Locks::default();
        ask(&mut locks, A, Mode::Exclusive);
        ask(&mut locks, B, Mode::Exclusive);
        assert_eq!(ask(&mut locks, A, Mode::Share), Request::Granted);
        assert_eq!(ask(&mut locks, A, Mode::Exclusive), Request::Granted);
    }

    #[test]
    fn two_sharers_who_both_want_the_whole_are_a_deadlock_at_once() {
        let mut locks = Locks::default();
        ask(&mut locks, A, Mode::Share);
        ask(&mut locks, B, Mode::Share);
        assert_eq!(ask(&mut locks, A, Mode::Exclusive), Request::Queued);
        assert_eq!(ask(&mut locks, B, Mode::Exclusive), Request::Deadlock);
    }

    #[test]
    fn a_circle_that_only_the_order_of_a_line_makes_is_broken_by_another_order() {
        let mut locks = Locks::default();
        let other = Tag::Advisory(8);
        ask(&mut locks, A, Mode::Share);
        locks.ask(C, other, Mode::Exclusive, Scope::Session, true);
        assert_eq!(ask(&mut locks, B, Mode::Exclusive), Request::Queued);
        assert_eq!(ask(&mut locks, C, Mode::Share), Request::Queued);
        assert_eq!(locks.ask(A, other, Mode::Exclusive, Scope::Session, true), Request::Queued);
        assert_eq!(locks.resolve_deadlock(A), Some(vec![C]), "C goes before B");
        assert_eq!(locks.blockers(A), [C]);
    }

    #[test]
    fn a_circle_of_holders_has_a_victim() {
        let mut locks = Locks::default();
        let other = Tag::Advisory(8);
        ask(&mut locks, A, Mode::Exclusive);
        locks.ask(B, other, Mode::Exclusive, Scope::Session, true);
        ask(&mut locks, B, Mode::Exclusive);
        locks.ask(A, other, Mode::Exclusive, Scope::Session, true);
        assert_eq!(locks.resolve_deadlock(A), None);
    }
}
