//! The place for planted mistakes.
//!
//! A *mutant* is a known mistake in the production path, switched on by `sim` alone, to show that the simulator finds
//! it (design, section 11.4). Production code is generic over [`Mutants`]; [`NoMutants`] answers a constant `false`,
//! so the branch is compiled away.

use serde::{Deserialize, Serialize};

/// Says whether a mistake is planted in this run.
pub trait Mutants: Clone {
    /// Whether `mutant` is planted.
    fn planted(&self, mutant: Mutant) -> bool;
}

/// Production: nothing is planted.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMutants;

impl Mutants for NoMutants {
    #[inline(always)]
    fn planted(&self, _: Mutant) -> bool {
        false
    }
}

/// The mistakes that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mutant {
    /// A response leaves when its append is sent, not when it is done.
    ResponseBeforeCommit,
    /// Memory changes when an append is sent, not when it is done.
    MemoryBeforeCommit,
    /// A repeated delivery does not say so.
    RedeliveryUnflagged,
    /// A second success of a step is recorded.
    DuplicateSuccess,
    /// An append whose outcome is unknown is taken as failed.
    UnknownTakenAsFailed,
    /// An append whose outcome is unknown is taken as committed.
    UnknownTakenAsCommitted,
    /// A session that fell silent keeps its attempts.
    SilentSessionKeepsAttempts,
    /// A parked execution's wake-up is forgotten when it is parked.
    WakeForgotten,
    /// On PostgreSQL, the fence row is locked FOR KEY SHARE, which a takeover does not mind.
    FenceKeyShared,
    /// On PostgreSQL, the fence row is read by a plain SELECT in the statement that writes.
    FenceUnlocked,
    /// On PostgreSQL, the fence row is locked in a transaction of its own, before the one that writes.
    FenceInAnotherTransaction,
    /// On PostgreSQL, nothing looks at the fence row.
    FenceMissing,
    /// An append whose outcome is unknown is looked for, and taken as failed where it is not there.
    UnknownResolvedByReading,
    /// A FATAL error, once COMMIT is out, is taken as a failure.
    FatalTakenAsFailed,
    /// What was done is undone in the order in which it was done.
    CompensationForwards,
    /// One item more is under way than `parallel` allows.
    ParallelLeaks,
    /// A signal is acknowledged when its append is sent, not when it is done.
    SignalBeforeCommit,
    /// An update is answered when its append is sent, not when it is done.
    UpdateBeforeCommit,
    /// A signal that is repeated under its id is taken in again.
    SignalTakenTwice,
    /// A signal for an execution that is not in memory brings it back, and is forgotten.
    SignalForgottenWhileLoading,
    /// Of what a run leaves to the next one, the newest signal is lost.
    SignalLostBetweenRuns,
    /// A signal that a run leaves comes twice in the next one.
    SignalCarriedTwice,
    /// The next run knows nothing of the keys of those who sent to the ones before.
    KeysForgottenBetweenRuns,
    /// A child's result is recorded a second time.
    ChildResultTwice,
    /// A parent records its child's result in one group, and the child its end in the next.
    ChildEndsApart,
    /// What winds down does not wait for its children.
    ChildOutlivesParent,
    /// What is said not to have been sent, while the database is away, stays in line and takes effect later.
    WithdrawnStaysInLine,
    /// A leader whose last good check is too old goes on serving.
    ServesPastValidity,
    /// A check counts from its answer, not from its sending.
    ValidityFromReply,
    /// The lease is granted and judged by the asking server's own clock.
    LeaseOnWallClock,
    /// A renewal does not look whose the lease is.
    RenewalByWrongHolder,
    /// A renewal does not look whether the lease is over.
    RenewalAfterExpiry,
    /// The lease, or the fence, is given back when a stop begins, not when it is done.
    ReleaseBeforeStopEnded,
    /// Taking the lease does not raise the term.
    LeaseTermNotRaised,
    /// What is in memory is kept when a replica was promoted.
    MemoryKeptOverPromotion,
    /// A writer is told by the number of its term alone, whatever incarnation and timeline it is of.
    NumberWithoutIncarnation,
    /// A server that has seen a promotion goes on with the primary of before, where that answers.
    LowerTimelineBelieved,
    /// On PostgreSQL, whether the writer still may is a condition of an append's inserts, and nothing is locked.
    FenceConditionalInsert,
    /// Whoever wins an election writes its name into the fence and leaves the term as it is.
    TermNotRaised,
    /// What a leader does now and then begins before it is elected.
    LoopsBeforeElection,
    /// Timers fire by the server's own wall clock.
    TimerOnOwnClock,
    /// The election lock is taken of whichever backend a pooler in transaction mode leads to.
    LockThroughPooler,
    /// What is delivered again after a hold does not say so.
    HoldForgetsRepeats,
    /// A leader whose appends hang goes on leading as long as the database answers anything.
    AnyAnswerIsProgress,
    /// The term is raised on another connection than the one that holds the election lock.
    TermRaisedElsewhere,
    /// A campaign does not look at the version of the tables.
    OlderServerLeads,
    /// A change of the mode leaves the fence as it is.
    ModeChangeKeepsFence,
    /// Every pause before a retry is as long as the first one.
    BackOffStandsStill,
    /// A step that waits for a signal for so long waits for ever.
    AwaitForgetsTimeout,
    /// A worker that only sends heartbeats is taken for silent.
    HeartbeatsUncounted,
    /// A failure that is reported of an older delivery counts against the attempt that is out.
    OldFailureCounts,
    /// A parent that is read again does not remind the children that it asked to end.
    ChildrenNotReminded,
    /// On PostgreSQL, whether a group was written is not looked for once the fence has moved.
    MovedFenceUnlooked,
}

impl Mutant {
    /// All of them, in the order of the enum.
    pub const ALL: [Mutant; 53] = [
        Mutant::ResponseBeforeCommit,
        Mutant::MemoryBeforeCommit,
        Mutant::RedeliveryUnflagged,
        Mutant::DuplicateSuccess,
        Mutant::UnknownTakenAsFailed,
        Mutant::UnknownTakenAsCommitted,
        Mutant::SilentSessionKeepsAttempts,
        Mutant::WakeForgotten,
        Mutant::FenceKeyShared,
        Mutant::FenceUnlocked,
        Mutant::FenceInAnotherTransaction,
        Mutant::FenceMissing,
        Mutant::UnknownResolvedByReading,
        Mutant::FatalTakenAsFailed,
        Mutant::CompensationForwards,
        Mutant::ParallelLeaks,
        Mutant::SignalBeforeCommit,
        Mutant::UpdateBeforeCommit,
        Mutant::SignalTakenTwice,
        Mutant::SignalForgottenWhileLoading,
        Mutant::SignalLostBetweenRuns,
        Mutant::SignalCarriedTwice,
        Mutant::KeysForgottenBetweenRuns,
        Mutant::ChildResultTwice,
        Mutant::ChildEndsApart,
        Mutant::ChildOutlivesParent,
        Mutant::WithdrawnStaysInLine,
        Mutant::ServesPastValidity,
        Mutant::ValidityFromReply,
        Mutant::LeaseOnWallClock,
        Mutant::RenewalByWrongHolder,
        Mutant::RenewalAfterExpiry,
        Mutant::ReleaseBeforeStopEnded,
        Mutant::LeaseTermNotRaised,
        Mutant::MemoryKeptOverPromotion,
        Mutant::NumberWithoutIncarnation,
        Mutant::LowerTimelineBelieved,
        Mutant::FenceConditionalInsert,
        Mutant::TermNotRaised,
        Mutant::LoopsBeforeElection,
        Mutant::TimerOnOwnClock,
        Mutant::LockThroughPooler,
        Mutant::HoldForgetsRepeats,
        Mutant::AnyAnswerIsProgress,
        Mutant::TermRaisedElsewhere,
        Mutant::OlderServerLeads,
        Mutant::ModeChangeKeepsFence,
        Mutant::BackOffStandsStill,
        Mutant::AwaitForgetsTimeout,
        Mutant::HeartbeatsUncounted,
        Mutant::OldFailureCounts,
        Mutant::ChildrenNotReminded,
        Mutant::MovedFenceUnlooked,
    ];
}
