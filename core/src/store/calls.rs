//! Store calls under way: the one place that resends (protocols, 4).
//!
//! A call whose outcome is unknown is sent again, the same transaction under the same ids, until the answer is known.
//! A failure of a repetition proves nothing about the sending before it, so after an unknown outcome only `Done`
//! settles a call. Protocols see settled outcomes alone.

use crate::mutant::{Mutant, Mutants};
use crate::node::effect::{CallId, Connection, Effect};
use crate::store::append::{Append, Group, GroupOutcome, Member};
use crate::store::origin::Origin;
use crate::store::outcome::{Failure, FailureKind, Reply};
use crate::store::statement::{LoadedExecution, ReadHistories};
use crate::store::transaction::{Transaction, Verdict};
use crate::time::Mono;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The first pause before a repetition; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause before a repetition.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often a call that certainly failed, and may succeed when repeated, is repeated here.
const RETRIES: u32 = 5;

/// The calls of a node; `P` is what the node wants to do with the outcome.
#[derive(Debug)]
pub struct Calls<P> {
    next: u64,
    deadlines: Deadlines,
    /// Whether what certainly failed, and may succeed when repeated, is repeated here.
    repeats: bool,
    /// Where calls are to be run: none while that is not known, or does not matter.
    origin: Option<Origin>,
    open: BTreeMap<CallId, Call<P>>,
    /// When each open call is written off.
    late: BTreeSet<(Mono, CallId)>,
    /// Calls that wait to be sent again, by time.
    resend: BTreeMap<(Mono, CallId), Call<P>>,
}

/// How long a call may stay without a reply. A frozen database hangs a connection in spite of every socket option, so
/// the deadline is the node's (design, section 5, "Rules").
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// Of calls on [`Connection::Election`] and [`Connection::Control`], which are how a server notices.
    pub checks: Duration,
    /// Of all others.
    pub others: Duration,
}

impl Deadlines {
    fn of(self, connection: Connection) -> Duration {
        match connection {
            Connection::Election | Connection::Control => self.checks,
            Connection::Store | Connection::Requests => self.others,
        }
    }
}

#[derive(Debug)]
struct Call<P> {
    purpose: P,
    connection: Connection,
    transaction: Transaction,
    sent: Mono,
    repeated: u32,
    /// Whether an earlier sending has an unknown outcome.
    in_doubt: bool,
    /// Only by mistake: the append that is looked for instead of being sent again.
    looked_for: Option<Append>,
    /// See [`Calls::forget`].
    forgotten: bool,
}

/// A call that is settled.
#[derive(Debug)]
pub struct SettledCall<P> {
    pub purpose: P,
    pub transaction: Transaction,
    pub outcome: Result<Verdict, Failure>,
    /// When the sending that was answered left.
    pub sent: Mono,
    /// Whether an earlier sending had an unknown outcome: it may commit still.
    pub doubted: bool,
}

/// What a reply did.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // settled is the usual case
pub enum Progress<P> {
    /// It settled its call.
    Settled(SettledCall<P>),
    /// The call will be sent again.
    Again {
        /// The transaction's name.
        name: &'static str,
        /// The failure, or none where the outcome is unknown.
        failure: Option<Failure>,
    },
    /// A reply of a call that was written off, or forgotten: dropped.
    Stray,
}

impl<P> Calls<P> {
    /// No calls yet.
    pub fn new(deadlines: Deadlines) -> Calls<P> {
        Calls {
            next: 1,
            deadlines,
            repeats: true,
            origin: None,
            open: BTreeMap::new(),
            late: BTreeSet::new(),
            resend: BTreeMap::new(),
        }
    }

    /// Whether what certainly failed is repeated here, where that may help. While the database is known to be away it
    /// does not, and those who wait are told at once.
    pub fn repeat_failures(&mut self, repeats: bool) {
        self.repeats = repeats;
    }

    /// Where the database is that the node's memory is of.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// What is sent from now on is for that database.
    pub fn lead_to(&mut self, origin: Origin) {
        self.origin = Some(origin);
    }

    /// Sends a transaction.
    pub fn send(&mut self, now: Mono, connection: Connection, transaction: Transaction, purpose: P) -> Effect {
        self.put(Call {
            purpose,
            connection,
            transaction,
            sent: now,
            repeated: 0,
            in_doubt: false,
            looked_for: None,
            forgotten: false,
        })
    }

    fn put(&mut self, call: Call<P>) -> Effect {
        let id = CallId(self.next);
        self.next += 1;
        let (connection, transaction) = (call.connection, call.transaction.clone());
        self.late.insert((self.late_at(&call), id));
        self.open.insert(id, call);
        Effect::Store { call: id, connection, transaction, origin: self.origin }
    }

    fn late_at(&self, call: &Call<P>) -> Mono {
        call.sent + self.deadlines.of(call.connection) + call.transaction.patience()
    }

    /// Nobody wants to know what becomes of the calls that are under way: their replies are dropped. Where one has none in
    /// time, its connection is given up all the same, since what comes after waits behind it.
    pub fn forget(&mut self) {
        self.resend.clear();
        for call in self.open.values_mut() {
            call.forgotten = true;
        }
    }

    /// The same, and the connection of each call that is under way is given up at once: it leads to where nothing is to be
    /// heard from any more.
    pub fn give_up(&mut self) -> Vec<Effect> {
        self.resend.clear();
        self.late.clear();
        let open = std::mem::take(&mut self.open).into_iter();
        open.map(|(call, of)| Effect::WriteOff { call, connection: of.connection }).collect()
    }

    fn take(&mut self, id: CallId) -> Option<Call<P>> {
        let call = self.open.remove(&id)?;
        let listed = self.late.remove(&(self.late_at(&call), id));
        assert!(listed, "every open call has its deadline");
        Some(call)
    }

    /// What every call that is not settled is for.
    pub fn unsettled(&self) -> impl Iterator<Item = &P> {
        let wanted = self.open.values().filter(|call| !call.forgotten);
        wanted.chain(self.resend.values()).map(|call| &call.purpose)
    }

    /// Whether any call is under way.
    pub fn any(&self) -> bool {
        !self.open.is_empty() || !self.resend.is_empty()
    }

    /// Takes a reply in.
    pub fn reply<M: Mutants>(&mut self, now: Mono, id: CallId, reply: Reply<Verdict>, mutants: &M) -> Progress<P> {
        let Some(mut call) = self.take(id).filter(|call| !call.forgotten) else { return Progress::Stray };
        let reply = plant(reply, &mut call, mutants);
        let failure = match reply {
            // Neither written nor rejected: it may be this very group, sent before, that holds the row (protocols, 4).
            Reply::Done(Verdict::Append(outcomes)) if call.in_doubt && outcomes.contains(&GroupOutcome::Busy) => None,
            Reply::Done(verdict) => return Progress::Settled(call.settled(Ok(verdict))),
            Reply::Failed(failure) => {
                let may_mend = matches!(failure.kind, FailureKind::Retry | FailureKind::Reconnect);
                let repeats = may_mend && self.repeats && call.repeated < RETRIES;
                if !call.in_doubt && !repeats {
                    return Progress::Settled(call.settled(Err(failure)));
                }
                Some(failure)
            }
            Reply::Unknown => {
                call.in_doubt = true;
                None
            }
        };
        let name = call.transaction.name();
        self.again_later(now, id, call);
        Progress::Again { name, failure }
    }

    fn again_later(&mut self, now: Mono, id: CallId, call: Call<P>) {
        let pause = FIRST_PAUSE.saturating_mul(1 << call.repeated.min(10)).min(LONGEST_PAUSE);
        self.resend.insert((now + pause, id), call);
    }

    /// Sends again what is due, and writes off what got no reply in time: its outcome is unknown, and it is sent again
    /// under a new call, on another connection.
    pub fn wake(&mut self, now: Mono) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some((_, id)) = self.late.first().copied().filter(|(at, _)| *at <= now) {
            let mut call = self.take(id).expect("every deadline has its open call");
            call.in_doubt = true;
            effects.push(Effect::WriteOff { call: id, connection: call.connection });
            if !call.forgotten {
                self.again_later(now, id, call);
            }
        }
        while let Some(entry) = self.resend.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let mut call = entry.remove();
            call.repeated += 1;
            call.sent = now;
            effects.push(self.put(call));
        }
        effects
    }

    /// When something is to be sent again.
    pub fn next_resend(&self) -> Option<Mono> {
        self.resend.keys().next().map(|(at, _)| *at)
    }

    /// When a call has had no reply for too long.
    pub fn next_deadline(&self) -> Option<Mono> {
        self.late.first().map(|(at, _)| *at)
    }
}

impl<P> Call<P> {
    fn settled(self, outcome: Result<Verdict, Failure>) -> SettledCall<P> {
        SettledCall {
            purpose: self.purpose,
            transaction: self.transaction,
            outcome,
            sent: self.sent,
            doubted: self.in_doubt,
        }
    }
}

/// The mistakes that guess what is unknown.
fn plant<M: Mutants, P>(reply: Reply<Verdict>, call: &mut Call<P>, mutants: &M) -> Reply<Verdict> {
    if let (Reply::Done(Verdict::Load(found)), Some(append)) = (&reply, call.looked_for.clone()) {
        call.looked_for = None;
        let there = found.iter().all(|loaded| append.groups.iter().any(|group| wrote(group, loaded)));
        let written = vec![GroupOutcome::Written; append.groups.len()];
        call.transaction = Transaction::Append(append);
        return if there { Reply::Done(Verdict::Append(written)) } else { guessed() };
    }
    let (Reply::Unknown, Transaction::Append(append)) = (&reply, &call.transaction) else { return reply };
    if mutants.planted(Mutant::UnknownTakenAsFailed) {
        return guessed();
    }
    if mutants.planted(Mutant::UnknownTakenAsCommitted) {
        return Reply::Done(Verdict::Append(vec![GroupOutcome::Written; append.groups.len()]));
    }
    if mutants.planted(Mutant::UnknownResolvedByReading) {
        let executions = append.groups.iter().flat_map(|g| &g.members).map(|m| m.execution.clone()).collect();
        call.looked_for = Some(append.clone());
        call.transaction = Transaction::Load(ReadHistories { executions });
    }
    reply
}

fn guessed() -> Reply<Verdict> {
    Reply::Failed(Failure { kind: FailureKind::Unwritable, message: "guessed".into() })
}

/// Whether a history that was read goes as far as this group takes it.
fn wrote(group: &Group, loaded: &LoadedExecution) -> bool {
    let last = |m: &Member| m.events.last().map_or(0, |event| event.seq.0);
    group.members.iter().any(|m| m.execution == loaded.execution && loaded.events.len() as u64 >= last(m))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Incarnation, Term};
    use crate::mutant::NoMutants;
    use crate::store::append::Fence;
    use crate::store::statement::StandInLine;
    use uuid::Uuid;

    fn transaction() -> Transaction {
        Transaction::Release(Fence { term: Term(1), incarnation: Incarnation(Uuid::nil()) })
    }

    fn deadlines(seconds: u64) -> Deadlines {
        Deadlines { checks: Duration::from_millis(300), others: Duration::from_secs(seconds) }
    }

    fn call_of(effect: &Effect) -> CallId {
        match effect {
            Effect::Store { call, .. } => *call,
            other => panic!("a store effect, not {other:?}"),
        }
    }

    fn failed(kind: FailureKind) -> Reply<Verdict> {
        Reply::Failed(Failure { kind, message: String::new() })
    }

    fn at(ms: u64) -> Mono {
        Mono(ms * 1000)
    }

    #[test]
    fn a_failure_after_an_unknown_outcome_settles_nothing() {
        let mut calls = Calls::new(deadlines(30));
        let first = call_of(&calls.send(at(0), Connection::Store, transaction(), ()));
        assert!(matches!(calls.reply(at(1), first, Reply::Unknown, &NoMutants), Progress::Again { .. }));
        let second = call_of(&calls.wake(at(1000))[0]);
        assert_ne!(first, second);
        let reply = calls.reply(at(1001), second, failed(FailureKind::Unwritable), &NoMutants);
        assert!(matches!(reply, Progress::Again { failure: Some(_), .. }), "{reply:?}");
        let third = call_of(&calls.wake(at(3000))[0]);
        let reply = calls.reply(at(3001), third, Reply::Done(Verdict::Release(true)), &NoMutants);
        assert!(matches!(reply, Progress::Settled(SettledCall { outcome: Ok(_), .. })), "{reply:?}");
        assert!(!calls.any());
    }

    #[test]
    fn a_group_in_doubt_that_is_busy_is_sent_again_under_its_id() {
        let mut calls = Calls::new(deadlines(30));
        let fence = Fence { term: Term(1), incarnation: Incarnation(Uuid::nil()) };
        let append = Transaction::Append(Append::under(fence, Vec::new()));
        let busy = || Reply::Done(Verdict::Append(vec![GroupOutcome::Busy]));
        let first = call_of(&calls.send(at(0), Connection::Store, append.clone(), ()));
        assert!(matches!(calls.reply(at(1), first, Reply::Unknown, &NoMutants), Progress::Again { .. }));
        let second = call_of(&calls.wake(at(1000))[0]);
        assert!(matches!(calls.reply(at(1001), second, busy(), &NoMutants), Progress::Again { .. }));
        let Effect::Store { call: third, transaction, .. } = calls.wake(at(3000)).remove(0) else { panic!("a call") };
        assert_eq!(transaction, append);
        let written = Reply::Done(Verdict::Append(vec![GroupOutcome::Written]));
        assert!(matches!(calls.reply(at(3001), third, written, &NoMutants), Progress::Settled(_)));
        // Without a doubt, busy is an answer like any other.
        let fourth = call_of(&calls.send(at(4000), Connection::Store, append, ()));
        assert!(matches!(calls.reply(at(4001), fourth, busy(), &NoMutants), Progress::Settled(_)));
    }

    #[test]
    fn a_certain_failure_that_will_not_mend_settles_at_once() {
        let mut calls = Calls::new(deadlines(30));
        let call = call_of(&calls.send(at(0), Connection::Store, transaction(), ()));
        let reply = calls.reply(at(1), call, failed(FailureKind::Unwritable), &NoMutants);
        assert!(matches!(reply, Progress::Settled(SettledCall { outcome: Err(_), .. })), "{reply:?}");
    }

    #[test]
    fn a_call_without_a_reply_is_sent_again_and_its_late_reply_is_dropped() {
        let mut calls = Calls::new(deadlines(1));
        let first = call_of(&calls.send(at(0), Connection::Store, transaction(), ()));
        assert_eq!(calls.next_deadline(), Some(at(1000)));
        assert!(calls.wake(at(999)).is_empty());
        let written_off = Effect::WriteOff { call: first, connection: Connection::Store };
        assert_eq!(calls.wake(at(1000)), vec![written_off]);
        assert_eq!(calls.next_deadline(), None);
        let second = call_of(&calls.wake(calls.next_resend().expect("a repetition is due"))[0]);
        let done = || Reply::Done(Verdict::Release(true));
        assert!(matches!(calls.reply(at(1100), first, done(), &NoMutants), Progress::Stray));
        assert!(matches!(calls.reply(at(1200), second, done(), &NoMutants), Progress::Settled(_)));
    }

    #[test]
    fn what_is_forgotten_is_not_sent_again_but_its_connection_is_given_up_where_it_hangs() {
        let mut calls = Calls::new(deadlines(1));
        let answered = call_of(&calls.send(at(0), Connection::Store, transaction(), ()));
        let hanging = call_of(&calls.send(at(0), Connection::Store, transaction(), ()));
        let failed_before = call_of(&calls.send(at(0), Connection::Store, transaction(), ()));
        assert!(matches!(calls.reply(at(1), failed_before, Reply::Unknown, &NoMutants), Progress::Again { .. }));
        calls.forget();
        assert_eq!(calls.unsettled().count(), 0);
        let done = Reply::Done(Verdict::Release(true));
        assert!(matches!(calls.reply(at(2), answered, done, &NoMutants), Progress::Stray));
        assert_eq!(calls.wake(at(5_000)), vec![Effect::WriteOff { call: hanging, connection: Connection::Store }]);
        assert!(!calls.any());
    }

    #[test]
    fn a_place_in_line_has_its_slice_of_time_on_top() {
        let mut calls = Calls::new(deadlines(1));
        let line = Transaction::Line(StandInLine { slice: Duration::from_secs(10) });
        call_of(&calls.send(at(0), Connection::Election, line, ()));
        assert_eq!(calls.next_deadline(), Some(at(10_300)));
    }

    #[test]
    fn the_connections_that_notice_a_frozen_database_are_given_up_first() {
        let mut calls = Calls::new(deadlines(1));
        call_of(&calls.send(at(0), Connection::Store, transaction(), ()));
        let check = call_of(&calls.send(at(0), Connection::Election, transaction(), ()));
        assert_eq!(calls.next_deadline(), Some(at(300)));
        assert_eq!(calls.wake(at(300)), vec![Effect::WriteOff { call: check, connection: Connection::Election }]);
        assert_eq!(calls.next_deadline(), Some(at(1000)));
    }

    #[test]
    fn while_the_database_is_away_what_failed_settles_at_once_and_what_is_in_doubt_does_not() {
        let mut calls = Calls::new(deadlines(30));
        calls.repeat_failures(false);
        let call = call_of(&calls.send(at(0), Connection::Store, transaction(), ()));
        let reply = calls.reply(at(0), call, failed(FailureKind::Reconnect), &NoMutants);
        assert!(matches!(reply, Progress::Settled(SettledCall { outcome: Err(_), .. })), "{reply:?}");
        let call = call_of(&calls.send(at(0), Connection::Store, transaction(), ()));
        assert!(matches!(calls.reply(at(1), call, Reply::Unknown, &NoMutants), Progress::Again { .. }));
        let again = call_of(&calls.wake(at(1000))[0]);
        let reply = calls.reply(at(1001), again, failed(FailureKind::Reconnect), &NoMutants);
        assert!(matches!(reply, Progress::Again { failure: Some(_), .. }), "{reply:?}");
    }

    #[test]
    fn what_may_mend_is_repeated_a_bounded_number_of_times() {
        let mut calls = Calls::new(deadlines(30));
        let mut call = call_of(&calls.send(at(0), Connection::Store, transaction(), ()));
        for n in 0..RETRIES {
            let reply = calls.reply(at(0), call, failed(FailureKind::Retry), &NoMutants);
            assert!(matches!(reply, Progress::Again { .. }), "repetition {n}");
            call = call_of(&calls.wake(calls.next_resend().expect("a repetition is due"))[0]);
        }
        assert!(matches!(calls.reply(at(0), call, failed(FailureKind::Retry), &NoMutants), Progress::Settled(_)));
    }
}
