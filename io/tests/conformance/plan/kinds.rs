//! What plans come to.

use orbit_core::store::append::{GroupOutcome, Rejection};
use orbit_core::store::mode::ModeVerdict;
use orbit_core::store::outcome::Reply;
use orbit_core::store::ownership::{JoinVerdict, Seen, TakeReason};
use orbit_core::store::statement::PutResult;
use orbit_core::store::transaction::{CampaignVerdict, Verdict};
use orbit_sim::store::{Change, Commit};

/// What plans have to come to, between them.
pub const KINDS: &[&str] = &[
    "appended",
    "repeated",
    "fenced",
    "other epoch",
    "other sequence",
    "ended",
    "exists",
    "task moved",
    "claimed",
    "claimed again",
    "requeued",
    "swept",
    "fence raised",
    "holder cleared",
    "created",
    "unchanged",
    "conflict",
    "deploy fenced",
    "due",
    "due later",
    "list",
    "history page with more",
    "loaded",
    "loaded after its end",
    "workers",
    "workers seen",
    "workers forgotten",
    "queued contracts",
    "lease taken",
    "lease renewed",
    "lease freed",
    "lease seized",
    "lease held",
    "renewal refused",
    "mode set",
    "mode refused",
    "node beat",
    "node replaced",
    "node left",
    "name held",
    "joined",
    "other mode",
    "found dead",
    "marked dead",
    "not marked",
    "other owner",
    "tree taken",
    "tree handed over",
    "members taken",
    "nothing taken",
    "orphans",
];

/// Which of them a reply is.
pub fn kinds(reply: &Reply<Verdict>, commit: &Commit) -> Vec<&'static str> {
    let mut kinds: Vec<_> = commit
        .changes
        .iter()
        .map(|change| match change {
            Change::Group { repeated: false, .. } => "appended",
            Change::Group { repeated: true, .. } => "repeated",
            Change::Claimed { repeated: false, .. } => "claimed",
            Change::Claimed { repeated: true, .. } => "claimed again",
            Change::Requeued { .. } => "requeued",
            Change::Swept { .. } => "swept",
            Change::FenceRaised { .. } => "fence raised",
            Change::ModeSet { .. } => "mode set",
            Change::HolderCleared { .. } => "holder cleared",
            Change::LeaseTaken { .. } => "lease taken",
            Change::LeaseRenewed { .. } => "lease renewed",
            Change::LeaseFreed { .. } => "lease freed",
            Change::LeaseSeized { .. } => "lease seized",
            Change::Defined { .. } | Change::WorkerSaved => "saved",
            Change::WorkersSeen { .. } => "workers seen",
            Change::WorkersForgotten { .. } => "workers forgotten",
            Change::NodeBeat { replaced: None, .. } => "node beat",
            Change::NodeBeat { .. } => "node replaced",
            Change::NodeLeft { .. } => "node left",
            Change::MarkedDead { .. } => "marked dead",
            Change::TreeTaken { reason: TakeReason::Orphaned, .. } => "tree taken",
            Change::TreeTaken { reason: TakeReason::HandedOver, .. } => "tree handed over",
            Change::MembersTaken { .. } => "members taken",
        })
        .collect();
    let Reply::Done(verdict) = reply else { panic!("the model does not fail: {reply:?}") };
    match verdict {
        Verdict::Append(outcomes) => kinds.extend(outcomes.iter().filter_map(|outcome| match outcome {
            GroupOutcome::Rejected(Rejection::Fenced { .. }) => Some("fenced"),
            GroupOutcome::Rejected(Rejection::OtherOwner { .. }) => Some("other owner"),
            GroupOutcome::Rejected(Rejection::OtherEpoch { .. }) => Some("other epoch"),
            GroupOutcome::Rejected(Rejection::OtherSequence { .. }) => Some("other sequence"),
            GroupOutcome::Rejected(Rejection::Ended { .. }) => Some("ended"),
            GroupOutcome::Rejected(Rejection::Exists { .. }) => Some("exists"),
            GroupOutcome::Rejected(Rejection::TaskMoved { .. }) => Some("task moved"),
            _ => None,
        })),
        Verdict::Deploy(PutResult::Created) => kinds.push("created"),
        Verdict::Deploy(PutResult::Unchanged) => kinds.push("unchanged"),
        Verdict::Deploy(PutResult::Conflict(_)) => kinds.push("conflict"),
        Verdict::Deploy(PutResult::Fenced(_)) => kinds.push("deploy fenced"),
        Verdict::Due(rows) => {
            kinds.extend((!rows.due.is_empty()).then_some("due"));
            kinds.extend(rows.next.is_some().then_some("due later"));
        }
        Verdict::Summaries(rows) => kinds.extend((rows.len() > 1).then_some("list")),
        Verdict::History(page) => kinds.extend(page.more.then_some("history page with more")),
        Verdict::Load(loaded) => kinds.extend(
            loaded
                .iter()
                .filter(|one| !one.events.is_empty())
                .map(|one| if one.owner.is_some() { "loaded" } else { "loaded after its end" }),
        ),
        Verdict::Campaign(CampaignVerdict::Leased { .. }) => kinds.push("lease held"),
        Verdict::Renew(false) => kinds.push("renewal refused"),
        Verdict::SetMode(ModeVerdict::Lives(_)) => kinds.push("mode refused"),
        Verdict::Join(JoinVerdict::Joined { .. }) => kinds.push("joined"),
        Verdict::Join(JoinVerdict::OtherMode { .. }) => kinds.push("other mode"),
        Verdict::Pulse(Seen { instead: Some(row), .. }) => kinds.extend(row.dead.then_some("found dead")),
        Verdict::MarkDead(false) => kinds.push("not marked"),
        Verdict::Take(trees) if trees.is_empty() => kinds.push("nothing taken"),
        Verdict::Orphans(trees) => kinds.extend((trees.len() > 1).then_some("orphans")),
        Verdict::Beat(Some(_)) => kinds.push("name held"),
        Verdict::Workers(rows) => kinds.extend((rows.len() > 1).then_some("workers")),
        Verdict::Recover(recovery) => kinds.extend((recovery.totals.queued.len() > 1).then_some("queued contracts")),
        _ => {}
    }
    kinds
}
