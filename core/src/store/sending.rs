//! How an append gets one outcome for each of its groups: sent whole, then in halves where the database refuses data,
//! then looked for where the fence has moved.
//!
//! A batch that is refused for its data is halved down to the group, which then fails alone (protocols, 6). Groups of a
//! writer whose fence has moved may have been written by an earlier sending: that is read behind a lock on the fence,
//! after which no sending of theirs can commit any more (protocols, 4).

use crate::store::append::{
    Append, Appended, Expect, Fence, Group, GroupFacts, GroupOutcome, Member, MemberFacts, Rejection, already_written,
    judge,
};
use crate::store::executor::{Ask, Frame};
use crate::store::outcome::{self, Cause, Fact, Failure, FailureKind, Reply};
use crate::store::sqlstate::HALF_MET;
use crate::store::statement::{LockFence, LookForGroups, MemberKey, Rows, TypedStatement};
use crate::store::transaction::Verdict;
use std::ops::Range;

/// An append on its way to its outcomes.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    append: Append,
    /// Parts of the batch without an outcome; the first of them is the last here.
    parts: Vec<(Range<usize>, Way)>,
    /// Of the groups before those parts.
    outcomes: Vec<GroupOutcome>,
}

/// What is done with a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Write,
    Look,
}

impl Sending {
    pub fn new(append: Append) -> Sending {
        let all = 0..append.groups.len();
        Sending { append, parts: vec![(all, Way::Write)], outcomes: Vec::new() }
    }

    /// What to do next.
    pub fn ask(&mut self) -> Ask {
        let (part, way) = self.parts.last().expect("an append with outcomes asks for nothing");
        let groups = &self.append.groups[part.clone()];
        match way {
            Way::Write => {
                let Append { fence, owner, .. } = self.append;
                let append = Append { fence, owner, groups: groups.to_vec() };
                Ask::Send(vec![append.into()], Frame::Auto)
            }
            Way::Look => Ask::Send(vec![LockFence.into(), look_for(groups).into()], Frame::Whole),
        }
    }

    /// Takes what that gave; the reply, once every group has its outcome.
    pub fn tell(&mut self, got: Result<Vec<Rows>, Fact>) -> Option<Reply<Verdict>> {
        let (part, way) = self.parts.pop().expect("an append with outcomes is told nothing");
        match got {
            Ok(rows) if way == Way::Write => match Append::of(rows.last().expect("an append gives rows")) {
                Appended::Judged(outcomes) => {
                    assert_eq!(outcomes.len(), part.len(), "an append gives one outcome for each group");
                    self.outcomes.extend_from_slice(outcomes);
                }
                Appended::FenceMoved => self.parts.push((part, Way::Look)),
            },
            Ok(rows) => {
                let [fence, found] = rows.as_slice() else { panic!("a look gives a fence and facts") };
                self.looked(part, *LockFence::of(fence), LookForGroups::of(found));
            }
            Err(fact) => match outcome::judge(fact.clone()) {
                Reply::Failed(Failure { kind: FailureKind::Data, .. }) if way == Way::Write => self.refused(part, fact),
                // A part of it is there: what is known of the whole is that it is not known.
                _ if self.outcomes.contains(&GroupOutcome::Written) => return Some(Reply::Unknown),
                reply => return Some(reply),
            },
        }
        self.parts.is_empty().then(|| Reply::Done(Verdict::Append(std::mem::take(&mut self.outcomes))))
    }

    fn refused(&mut self, part: Range<usize>, fact: Fact) {
        if part.len() > 1 {
            let middle = part.start + part.len() / 2;
            self.parts.push((middle..part.end, Way::Write));
            self.parts.push((part.start..middle, Way::Write));
            return;
        }
        self.outcomes.push(match fact.cause {
            // Its new rows met those of a transaction that was not visible yet: tried again, it sees them.
            Cause::SqlState(code) if code == HALF_MET => GroupOutcome::Busy,
            _ => GroupOutcome::Rejected(Rejection::Refused { message: fact.message }),
        });
    }

    fn looked(&mut self, part: Range<usize>, current: Fence, found: &[MemberFacts]) {
        let mut found = found.iter().cloned();
        for group in &self.append.groups[part] {
            let members: Vec<_> = found.by_ref().take(group.members.len()).collect();
            let facts = GroupFacts { fence: current, members, tasks: vec![None; group.tasks.len()] };
            let is_there = already_written(group, &facts);
            // No fence comes back. Should one, nothing was written under it, and nothing is claimed of it.
            let outcome = if current == self.append.fence && !is_there {
                GroupOutcome::Busy
            } else {
                judge(self.append.writer(), group, &facts)
            };
            self.outcomes.push(outcome);
        }
    }
}

fn look_for(groups: &[Group]) -> LookForGroups {
    let key = |member: &Member| {
        let (Expect::New { run, .. } | Expect::After { run, .. }) = &member.expect;
        let first = member.events.first().map(|event| event.seq);
        MemberKey { execution: member.execution.clone(), run: *run, first }
    };
    LookForGroups { members: groups.iter().flat_map(|group| &group.members).map(key).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{GroupId, Incarnation, Run, Term};
    use crate::store::append::OwnerChange;
    use crate::store::outcome::{Phase, Severity};
    use uuid::Uuid;

    const MINE: Fence = Fence { term: Term(3), incarnation: Incarnation(Uuid::from_u128(3)) };
    const THEIRS: Fence = Fence { term: Term(4), incarnation: Incarnation(Uuid::from_u128(4)) };

    fn group(number: u128) -> Group {
        let execution = format!("e-{number}");
        let member = Member {
            execution: execution.as_str().into(),
            expect: Expect::New { run: Run(1), root: execution.as_str().into() },
            events: Vec::new(),
            summary: None,
            owner: OwnerChange::Keep,
        };
        Group { id: GroupId(Uuid::from_u128(number)), members: vec![member], tasks: Vec::new() }
    }

    fn sending(groups: u128) -> Sending {
        Sending::new(Append::under(MINE, (1..=groups).map(group).collect()))
    }

    /// The groups that are sent next.
    fn sent(sending: &mut Sending) -> Vec<u128> {
        let Ask::Send(statements, Frame::Auto) = sending.ask() else { panic!("a sending") };
        let [crate::store::statement::Statement::Append(append)] = statements.as_slice() else { panic!("an append") };
        append.groups.iter().map(|group| group.id.0.as_u128()).collect()
    }

    fn written(groups: usize) -> Result<Vec<Rows>, Fact> {
        Ok(vec![Rows::Append(Appended::Judged(vec![GroupOutcome::Written; groups]))])
    }

    fn error(code: &str) -> Result<Vec<Rows>, Fact> {
        let cause = Cause::SqlState(code.into());
        Err(Fact { phase: Phase::CommitSent, severity: Some(Severity::Error), cause, message: code.into() })
    }

    fn refused() -> GroupOutcome {
        GroupOutcome::Rejected(Rejection::Refused { message: "22003".into() })
    }

    #[test]
    fn a_batch_whose_data_is_refused_is_halved_until_the_group_fails_alone() {
        let mut sending = sending(5);
        assert_eq!(sent(&mut sending), [1, 2, 3, 4, 5]);
        assert_eq!(sending.tell(error("22003")), None);
        assert_eq!(sent(&mut sending), [1, 2]);
        assert_eq!(sending.tell(written(2)), None);
        assert_eq!(sent(&mut sending), [3, 4, 5]);
        assert_eq!(sending.tell(error("22003")), None);
        assert_eq!(sent(&mut sending), [3]);
        assert_eq!(sending.tell(error("22003")), None);
        assert_eq!(sent(&mut sending), [4, 5]);
        let there = GroupOutcome::Written;
        let outcomes = vec![there.clone(), there.clone(), refused(), there.clone(), there];
        assert_eq!(sending.tell(written(2)), Some(Reply::Done(Verdict::Append(outcomes))));
    }

    #[test]
    fn a_group_that_met_anothers_row_half_way_is_busy() {
        let mut sending = sending(1);
        let busy = Reply::Done(Verdict::Append(vec![GroupOutcome::Busy]));
        assert_eq!(sending.tell(error(HALF_MET)), Some(busy));
    }

    #[test]
    fn a_failure_after_one_half_was_written_leaves_the_whole_unknown() {
        let mut sending = sending(2);
        assert_eq!(sending.tell(error("22003")), None);
        assert_eq!(sending.tell(written(1)), None);
        assert_eq!(sending.tell(error("40P01")), Some(Reply::Unknown));
    }

    #[test]
    fn a_failure_before_anything_was_written_is_certain() {
        let mut sending = sending(2);
        assert_eq!(sending.tell(error("22003")), None);
        let reply = sending.tell(error("40P01"));
        assert!(matches!(reply, Some(Reply::Failed(Failure { kind: FailureKind::Retry, .. }))), "{reply:?}");
    }

    #[test]
    fn under_a_fence_that_has_moved_what_is_there_counts_as_written_and_the_rest_as_fenced() {
        let mut sending = sending(2);
        assert_eq!(sending.tell(Ok(vec![Rows::Append(Appended::FenceMoved)])), None);
        let Ask::Send(statements, Frame::Whole) = sending.ask() else { panic!("a transaction of its own") };
        assert_eq!(statements.iter().map(|s| s.name()).collect::<Vec<_>>(), ["LockFence", "LookForGroups"]);
        let absent = MemberFacts { owner: None, known: false, first_event_by: None, root: None };
        let there = MemberFacts { first_event_by: Some(group(1).id), known: true, ..absent.clone() };
        let rows = vec![Rows::LockFence(THEIRS), Rows::LookForGroups(vec![there, absent])];
        let fenced = GroupOutcome::Rejected(Rejection::Fenced { held: MINE.term, current: THEIRS.term });
        let outcomes = vec![GroupOutcome::Written, fenced];
        assert_eq!(sending.tell(Ok(rows)), Some(Reply::Done(Verdict::Append(outcomes))));
    }
}
