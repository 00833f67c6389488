//! Every transaction that exists: a list of statements whose next step is a pure function of the rows seen so far
//! (protocols, 1).

use crate::cluster::{Elected, Mode};
use crate::id::{ClusterId, ContractVersion, Incarnation, TaskName, Term};
use crate::store::append::{Append, Fence, GroupOutcome};
use crate::store::lease::{self, ForceVerdict, LeaseCampaign, ReleaseByForce};
use crate::store::mode::{ModeVerdict, SetMode};
use crate::store::ownership::{
    self, Join, JoinVerdict, MarkDead, OwnedTree, Pulse, ReadOrphans, Seen, TakeTrees, TakenTree,
};
use crate::store::statement::*;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version of the tables that this Orbit reads and writes.
pub const SCHEMA_VERSION: u32 = 5;

/// A transaction, as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Transaction {
    /// Becomes the writer: raises the term for this incarnation.
    Campaign(Campaign),
    /// Looks whether the election lock is this session's still, and takes it where it is nobody's.
    Hold,
    /// Waits in line for the election lock, for a slice of time.
    Line(StandInLine),
    /// Gives the election lock back.
    Unlock,
    /// Reads the fence and the database's clock.
    Check,
    /// Gives the fence up at a clean stop.
    Release(Fence),
    /// Becomes the writer by the lease: takes it, and raises the term to its epoch.
    TakeLease(Box<LeaseCampaign>),
    /// Keeps the lease.
    RenewLease(RenewLease),
    /// Gives the lease back at a clean stop, and the fence with it.
    FreeLease(Fence),
    /// Takes the lease away from whoever holds it, for the operator.
    ForceLease(ReleaseByForce),
    /// Changes the mode, or the election, while no server lives, for the operator.
    SetMode(SetMode),
    /// Reads the lease, for people.
    Lease,
    /// Records decisions.
    Append(Append),
    /// Takes queued tasks for waiting workers.
    Claim(ClaimTasks),
    /// Puts back claims that came to light after they were given up.
    Sweep(RequeueStrays),
    /// Stores a definition.
    Deploy(Box<PutDefinition>),
    /// Reads definitions.
    Definitions,
    /// Reads definitions and totals: what a server that starts needs first.
    Recover,
    /// Reads whole executions.
    Load(ReadHistories),
    /// Reads which executions want to be loaded.
    Due(ReadDue),
    /// Reads one summary.
    Summary(ReadSummary),
    /// Reads a page of summaries.
    Summaries(ListSummaries),
    /// Reads a page of a history.
    History(ReadHistory),
    /// Writes the registry row of a worker.
    SaveWorker(PutWorker),
    /// Writes when workers were seen, and forgets those that have been gone for long.
    KeepWorkers(KeepWorkers),
    /// Reads the registry of workers.
    Workers,
    /// A server of a cluster says that it lives.
    Beat(Box<BeatNode>),
    /// A server of a cluster leaves it.
    Leave(LeaveNode),
    /// Reads the servers of the cluster.
    Nodes,
    /// A server of shared mode takes part from now on.
    Join(Box<Join>),
    /// A server of shared mode says that it lives, and sees who else does.
    Pulse(Box<Pulse>),
    /// Records that a server is no more.
    MarkDead(MarkDead),
    /// Reads which trees are owned by nobody who lives.
    Orphans(ReadOrphans),
    /// Makes trees another server's.
    Take(TakeTrees),
}

/// Who wants to become the writer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Campaign {
    pub mode: Mode,
    pub incarnation: Incarnation,
    pub holder: Holder,
    /// The newest version of the tables that it knows.
    pub schema: u32,
    pub rule: CampaignRule,
}

impl Campaign {
    /// Of a server of this version.
    pub fn new(mode: Mode, incarnation: Incarnation, holder: Holder) -> Campaign {
        Campaign { mode, incarnation, holder, schema: SCHEMA_VERSION, rule: CampaignRule::Sound }
    }
}

/// See [`Transaction::KeepWorkers`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeepWorkers {
    pub see: SeeWorkers,
    /// None where only that is to be written.
    pub forget: Option<ForgetWorkers>,
}

/// What a transaction gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    Campaign(CampaignVerdict),
    Hold(LockState),
    Line(LockState),
    /// Whether this session held it.
    Unlock(bool),
    /// The fence row as it is.
    Check(FenceRow),
    /// Whether the fence was still this one.
    Release(bool),
    /// Whether the lease was this holder's, and not over.
    Renew(bool),
    Force(ForceVerdict),
    SetMode(ModeVerdict),
    Lease(LeaseSeen),
    /// One outcome for each group, in order.
    Append(Vec<GroupOutcome>),
    Claim(Vec<ClaimedTask>),
    Sweep(Vec<(TaskName, ContractVersion)>),
    Deploy(PutResult),
    Definitions(Vec<DefinitionRow>),
    Recover(Recovery),
    Load(Vec<LoadedExecution>),
    Due(DueRows),
    Summary(Option<SummaryRow>),
    Summaries(Vec<SummaryRow>),
    History(HistoryPage),
    SaveWorker,
    /// How many workers are forgotten.
    KeepWorkers(u64),
    Workers(Vec<WorkerRow>),
    /// Whose row it is instead, where another process has the name.
    Beat(Option<Box<NodeRow>>),
    /// Whether the row was this process's.
    Leave(bool),
    Nodes(NodeRows),
    Join(JoinVerdict),
    Pulse(Seen),
    /// Whether it is marked.
    MarkDead(bool),
    Orphans(Vec<OwnedTree>),
    /// Those that are the taker's, by root.
    Take(Vec<TakenTree>),
}

/// What a campaign gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CampaignVerdict {
    /// Won: the term, and the fence row as it was before.
    Won { term: Term, cluster_id: ClusterId, before: FenceRow },
    /// Another session holds the election lock: the server that the fence row names, or one that is just starting.
    Held { holder: Option<Holder> },
    /// A pooler in transaction mode stands in between: no lock can be held.
    Pooled,
    /// The tables are of a newer version than this server knows.
    NewerSchema { found: u32 },
    /// Another server holds the lease, for so long still; for no time where it was faster just now.
    Leased { left: Duration },
    /// The database belongs to servers of another mode.
    OtherMode { found: String },
    /// The servers of the database elect their leader otherwise.
    OtherElection { found: String },
    /// Somebody else raised the term meanwhile.
    Lost,
}

/// What a server that starts reads first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    pub definitions: Vec<DefinitionRow>,
    pub totals: Totals,
}

/// What a transaction does next.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // one at a time, and looked at on the spot
pub enum Step {
    /// Send these together; no decision lies between them.
    Send(Vec<Statement>),
    /// The same, with COMMIT behind them. Alone and first it is one autocommit statement.
    Last(Vec<Statement>),
    /// Roll back: the condition for going on does not hold.
    Stop(Verdict),
}

impl Transaction {
    /// Its name, for logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Transaction::Campaign(_) => "campaign",
            Transaction::Hold => "hold",
            Transaction::Line(_) => "line",
            Transaction::Unlock => "unlock",
            Transaction::Check => "check",
            Transaction::Release(_) => "release",
            Transaction::TakeLease(_) => "take_lease",
            Transaction::RenewLease(_) => "renew_lease",
            Transaction::FreeLease(_) => "free_lease",
            Transaction::ForceLease(_) => "force_lease",
            Transaction::SetMode(_) => "set_mode",
            Transaction::Lease => "lease",
            Transaction::Append(_) => "append",
            Transaction::Claim(_) => "claim",
            Transaction::Sweep(_) => "sweep",
            Transaction::Deploy(_) => "deploy",
            Transaction::Definitions => "definitions",
            Transaction::Recover => "recover",
            Transaction::Load(_) => "load",
            Transaction::Due(_) => "due",
            Transaction::Summary(_) => "summary",
            Transaction::Summaries(_) => "summaries",
            Transaction::History(_) => "history",
            Transaction::SaveWorker(_) => "save_worker",
            Transaction::KeepWorkers(_) => "keep_workers",
            Transaction::Workers => "workers",
            Transaction::Beat(_) => "beat",
            Transaction::Leave(_) => "leave",
            Transaction::Nodes => "nodes",
            Transaction::Join(_) => "join",
            Transaction::Pulse(_) => "pulse",
            Transaction::MarkDead(_) => "mark_dead",
            Transaction::Orphans(_) => "orphans",
            Transaction::Take(_) => "take",
        }
    }

    /// How long it may wait on purpose, beside the time that an answer takes.
    pub fn patience(&self) -> Duration {
        match self {
            Transaction::Line(wait) => wait.slice,
            _ => Duration::ZERO,
        }
    }

    /// Whether it may change something.
    pub fn writes(&self) -> bool {
        matches!(
            self,
            Transaction::Campaign(_)
                | Transaction::Release(_)
                | Transaction::TakeLease(_)
                | Transaction::RenewLease(_)
                | Transaction::FreeLease(_)
                | Transaction::ForceLease(_)
                | Transaction::SetMode(_)
                | Transaction::Append(_)
                | Transaction::Claim(_)
                | Transaction::Sweep(_)
                | Transaction::Deploy(_)
                | Transaction::SaveWorker(_)
                | Transaction::KeepWorkers(_)
                | Transaction::Beat(_)
                | Transaction::Leave(_)
                | Transaction::Join(_)
                | Transaction::Pulse(_)
                | Transaction::MarkDead(_)
                | Transaction::Take(_)
        )
    }

    /// The next step, given the rows of the statements so far.
    pub(super) fn step(&self, seen: &[Rows]) -> Step {
        match self {
            Transaction::Campaign(campaign) => campaign.step(seen),
            Transaction::Hold => Step::Last(vec![TakeLock.into()]),
            Transaction::Line(wait) => stand_in_line(wait, seen),
            Transaction::Unlock => Step::Last(vec![FreeLock.into()]),
            Transaction::Check => Step::Last(vec![ReadFence.into()]),
            Transaction::Release(fence) => Step::Last(vec![ClearHolder { fence: *fence }.into()]),
            Transaction::TakeLease(campaign) => campaign.step(seen),
            Transaction::RenewLease(renew) => Step::Last(vec![renew.clone().into()]),
            Transaction::FreeLease(fence) => lease::free(*fence),
            Transaction::ForceLease(force) => force.step(seen),
            Transaction::SetMode(set) => set.step(seen),
            Transaction::Lease => Step::Last(vec![ReadLease.into()]),
            Transaction::Append(_) => unreachable!("an append has a course of its own: `sending`"),
            Transaction::Claim(claim) => Step::Last(vec![claim.clone().into()]),
            Transaction::Sweep(sweep) => Step::Last(vec![sweep.clone().into()]),
            Transaction::Deploy(put) => Step::Last(vec![(**put).clone().into()]),
            Transaction::Definitions => Step::Last(vec![ReadDefinitions.into()]),
            Transaction::Recover => Step::Last(vec![ReadDefinitions.into(), ReadTotals.into()]),
            Transaction::Load(read) => Step::Last(vec![read.clone().into()]),
            Transaction::Due(read) => Step::Last(vec![read.clone().into()]),
            Transaction::Summary(read) => Step::Last(vec![read.clone().into()]),
            Transaction::Summaries(read) => Step::Last(vec![read.clone().into()]),
            Transaction::History(read) => Step::Last(vec![read.clone().into()]),
            Transaction::SaveWorker(put) => Step::Last(vec![put.clone().into()]),
            Transaction::KeepWorkers(keep) => {
                let see = Statement::from(keep.see.clone());
                Step::Last(std::iter::once(see).chain(keep.forget.clone().map(Statement::from)).collect())
            }
            Transaction::Workers => Step::Last(vec![ReadWorkers.into()]),
            Transaction::Beat(beat) => Step::Last(vec![(**beat).clone().into()]),
            Transaction::Leave(leave) => Step::Last(vec![leave.clone().into()]),
            Transaction::Nodes => Step::Last(vec![ReadNodes.into()]),
            Transaction::Join(join) => join.step(seen),
            Transaction::Pulse(pulse) => pulse.step(),
            Transaction::MarkDead(mark) => Step::Last(vec![mark.clone().into()]),
            Transaction::Orphans(read) => Step::Last(vec![read.clone().into()]),
            Transaction::Take(trees) => ownership::take(trees, seen),
        }
    }

    /// What it gave, once the last step is done.
    pub(super) fn verdict(&self, seen: &[Rows]) -> Verdict {
        let last = || seen.last().expect("a finished transaction has rows");
        match self {
            Transaction::Campaign(campaign) => campaign.verdict(seen),
            Transaction::Hold => Verdict::Hold(*TakeLock::of(last())),
            Transaction::Line(_) => Verdict::Line(*TakeLock::of(last())),
            Transaction::Unlock => Verdict::Unlock(*FreeLock::of(last())),
            Transaction::Check => Verdict::Check(ReadFence::of(last()).clone()),
            Transaction::Release(_) => Verdict::Release(*ClearHolder::of(last())),
            Transaction::TakeLease(campaign) => campaign.verdict(seen),
            Transaction::RenewLease(_) => Verdict::Renew(*RenewLease::of(last())),
            Transaction::FreeLease(_) => Verdict::Release(*ClearHolder::of(last())),
            Transaction::ForceLease(force) => force.verdict(seen),
            Transaction::SetMode(set) => set.verdict(seen),
            Transaction::Lease => Verdict::Lease(ReadLease::of(last()).clone()),
            Transaction::Append(_) => unreachable!("an append has a course of its own: `sending`"),
            Transaction::Claim(_) => Verdict::Claim(ClaimTasks::of(last()).clone()),
            Transaction::Sweep(_) => {
                let mut back = RequeueStrays::of(last()).clone();
                back.sort();
                Verdict::Sweep(back)
            }
            Transaction::Deploy(_) => Verdict::Deploy(PutDefinition::of(last()).clone()),
            Transaction::Definitions => Verdict::Definitions(ReadDefinitions::of(last()).clone()),
            Transaction::Recover => Verdict::Recover(Recovery {
                definitions: ReadDefinitions::of(&seen[0]).clone(),
                totals: ReadTotals::of(&seen[1]).clone(),
            }),
            Transaction::Load(_) => Verdict::Load(ReadHistories::of(last()).clone()),
            Transaction::Due(_) => Verdict::Due(ReadDue::of(last()).clone()),
            Transaction::Summary(_) => Verdict::Summary(ReadSummary::of(last()).clone()),
            Transaction::Summaries(_) => Verdict::Summaries(ListSummaries::of(last()).clone()),
            Transaction::History(_) => Verdict::History(ReadHistory::of(last()).clone()),
            Transaction::SaveWorker(_) => Verdict::SaveWorker,
            Transaction::KeepWorkers(keep) => {
                Verdict::KeepWorkers(keep.forget.as_ref().map_or(0, |_| *ForgetWorkers::of(last())))
            }
            Transaction::Workers => Verdict::Workers(ReadWorkers::of(last()).clone()),
            Transaction::Beat(_) => Verdict::Beat(BeatNode::of(last()).clone().map(Box::new)),
            Transaction::Leave(_) => Verdict::Leave(*LeaveNode::of(last())),
            Transaction::Nodes => Verdict::Nodes(ReadNodes::of(last()).clone()),
            Transaction::Join(join) => join.verdict(seen),
            Transaction::Pulse(_) => Pulse::verdict(seen),
            Transaction::MarkDead(_) => Verdict::MarkDead(*MarkDead::of(last())),
            Transaction::Orphans(_) => Verdict::Orphans(ReadOrphans::of(last()).clone()),
            Transaction::Take(_) => {
                let mut taken = TakeTrees::of(&seen[0]).clone();
                taken.sort();
                Verdict::Take(taken)
            }
        }
    }
}

/// The lock, if it is free; else a place in line, and the lock as it is after that. Through a pooler in transaction mode
/// nobody waits: the lock would be the backend's, which is somebody else's by then.
fn stand_in_line(wait: &StandInLine, seen: &[Rows]) -> Step {
    let [lock] = seen else { return Step::Send(vec![TakeLock.into()]) };
    match TakeLock::of(lock) {
        LockState::Others => Step::Last(vec![wait.clone().into(), TakeLock.into()]),
        known => Step::Stop(Verdict::Line(*known)),
    }
}

/// How a database records the election by lock in `orbit_cluster`.
pub const LOCK: &str = Elected::Lock.as_str();

/// Why a server that is elected like this is not for this database: of another mode it would not know what the others rely
/// on, and two elections at once elect two leaders. A database that nobody has written yet is of whatever mode comes first.
pub fn unfit(row: &FenceRow, mode: Mode, elected: Elected) -> Option<CampaignVerdict> {
    if row.fence.term == Term(0) {
        return None;
    }
    if row.mode != mode.as_str() {
        return Some(CampaignVerdict::OtherMode { found: row.mode.clone() });
    }
    let other = mode == Mode::Standby && row.election != elected.as_str();
    other.then(|| CampaignVerdict::OtherElection { found: row.election.clone() })
}

/// Whether the database is another timeline's than when the fence was raised last.
pub(super) fn was_promoted(row: &FenceRow) -> bool {
    let now = row.origin.map(|origin| origin.timeline);
    row.raised_on.is_some() && now.is_some() && row.raised_on != now
}

impl Campaign {
    /// Why its server must not lead this database.
    pub(super) fn unfit(&self, row: &FenceRow, elected: Elected) -> Option<CampaignVerdict> {
        self.too_old(row).or_else(|| unfit(row, self.mode, elected))
    }

    /// Tables that it does not know. It is looked at once more when the fence is raised and nobody changes the tables any
    /// more: whoever does share-locks the fence first.
    pub(super) fn too_old(&self, row: &FenceRow) -> Option<CampaignVerdict> {
        let too_old = row.schema_version > self.schema && self.rule != CampaignRule::AnySchema;
        too_old.then_some(CampaignVerdict::NewerSchema { found: row.schema_version })
    }

    /// The lock and the fence row first; then, if the lock is ours and so are mode and schema version, the raise; then back
    /// with every claim of an incarnation that is no more (protocols, 8, 11 and 21).
    fn step(&self, seen: &[Rows]) -> Step {
        let stop = |verdict| Step::Stop(Verdict::Campaign(verdict));
        let elsewhere = self.rule == CampaignRule::ElsewhereThanLocked;
        let (lock, row, later) = match seen {
            [lock, fence, later @ ..] => (lock, ReadFence::of(fence), later),
            _ if elsewhere => return Step::Send(vec![ReadFence.into(), ReadFence.into()]),
            _ => return Step::Send(vec![TakeLock.into(), ReadFence.into()]),
        };
        match later {
            [] => {
                match if elsewhere { LockState::Mine } else { *TakeLock::of(lock) } {
                    LockState::Mine => {}
                    LockState::Others => return stop(CampaignVerdict::Held { holder: row.holder.clone() }),
                    LockState::Pooled => return stop(CampaignVerdict::Pooled),
                }
                if let Some(verdict) = self.unfit(row, Elected::Lock) {
                    return stop(verdict);
                }
                // A repetition of a campaign whose outcome was unknown, and which was won.
                if row.fence.incarnation == self.incarnation {
                    return Step::Stop(self.won(row.fence.term, row));
                }
                let raise = RaiseFence {
                    expected: row.fence,
                    mode: self.mode,
                    incarnation: self.incarnation,
                    holder: self.holder.clone(),
                    timeline: row.origin.map(|origin| origin.timeline),
                    rule: self.rule,
                };
                Step::Send(vec![raise.into(), ReadFence.into()])
            }
            [raised, again] => match self.too_old(ReadFence::of(again)) {
                _ if RaiseFence::of(raised).is_none() => stop(CampaignVerdict::Lost),
                Some(verdict) => stop(verdict),
                None => {
                    let promoted = was_promoted(row);
                    Step::Last(vec![RequeueClaims { incarnation: self.incarnation, promoted }.into()])
                }
            },
            _ => unreachable!("a campaign has three steps"),
        }
    }

    fn verdict(&self, seen: &[Rows]) -> Verdict {
        let term = RaiseFence::of(&seen[2]).expect("whoever goes on has raised the fence");
        self.won(term, ReadFence::of(&seen[1]))
    }

    fn won(&self, term: Term, before: &FenceRow) -> Verdict {
        Verdict::Campaign(CampaignVerdict::Won { term, cluster_id: before.cluster_id, before: before.clone() })
    }
}
