//! The checks by their names, as failures call them: each with the promise that it stands for, and with the rare events
//! without which it would have nothing to look at. Every "always" has its "sometimes": a set of usual seeds in which one of
//! those never happened fails (`coverage`).

use crate::coverage::Mark;

/// A check.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What a failure calls it.
    pub check: &'static str,
    /// What it stands for.
    pub promise: &'static str,
    /// What has to have happened, for it to mean something.
    pub sometimes: &'static [Mark],
}

/// All of them, by their names.
pub const CHECKS: &[Entry] = &[
    Entry {
        check: "answer",
        promise: "A request is answered once, by the server that it reached.",
        sometimes: &[Mark::AnswerLost, Mark::RequestGone],
    },
    Entry {
        check: "course",
        promise: "Items, handlers, winding down, compensation and the end follow from the definition and the history.",
        sometimes: &[Mark::ItemsInParallel, Mark::CompensationCompleted, Mark::EventHandled, Mark::FailureHandled],
    },
    Entry {
        check: "custody",
        promise: "An attempt is taken from no worker that was heard of within its session's time.",
        sometimes: &[Mark::SessionLost, Mark::Uncertain, Mark::LateResultAccepted],
    },
    Entry {
        check: "deadlock",
        promise: "Rows are locked in one order: no statement of Orbit is ever a deadlock's victim.",
        sometimes: &[Mark::Busy, Mark::StatementTimedOut],
    },
    Entry {
        check: "delivery",
        promise: "A task that is handed out is recorded before, and a repeat says that it is one.",
        sometimes: &[Mark::Redelivery, Mark::TokenAnsweredAgain, Mark::LateResultAccepted, Mark::StaleResult],
    },
    Entry {
        check: "exit",
        promise: "A server ends by itself only where a fault explains it.",
        sometimes: &[Mark::CleanStop, Mark::CleanStopWithWork, Mark::Usurped],
    },
    Entry {
        check: "family",
        promise: "Children begin and end in the transactions in which their parents say so, and outlive none of them.",
        sometimes: &[Mark::ChildBegun, Mark::ChildResultApplied, Mark::ChildThreeDeep, Mark::ChildHeldOverCrash],
    },
    Entry {
        check: "fence",
        promise: "There is one writer a term, and in the order of commits none of an older term after a newer one.",
        sometimes: &[Mark::FencedAppend, Mark::Usurped, Mark::Failover],
    },
    Entry {
        check: "history",
        promise: "A history has no gap, ends once, has one success a step, and says only what workers said.",
        sometimes: &[Mark::UnknownWritten, Mark::UnknownNotWritten, Mark::GroupRejected, Mark::DuplicateResult],
    },
    Entry {
        check: "hold",
        promise: "A server that is to hold holds what has an attempt out before it records anything else of it.",
        sometimes: &[Mark::HeldAtTakeover, Mark::HeldOverTakeover, Mark::Recovered],
    },
    Entry {
        check: "interpreter",
        promise: "Every execution ends as a second way to run its definition says, which knows nothing of `decide`.",
        sometimes: &[
            Mark::ExecutionCompleted,
            Mark::ExecutionFailed,
            Mark::ExecutionCancelled,
            Mark::ExecutionTimedOut,
        ],
    },
    Entry {
        check: "lease",
        promise: "The lease has one holder at a time by the database's clock, and nothing is written after it is given back.",
        sometimes: &[Mark::LeaseRanOut, Mark::LeaseGivenBack, Mark::LeaseHeld, Mark::RenewalRefused],
    },
    Entry {
        check: "liveness",
        promise: "Once the world is healed, every execution ends, every queue drains, everybody is answered, a leader serves.",
        sometimes: &[Mark::Parked, Mark::Woken, Mark::SessionLost, Mark::DatabaseCrash],
    },
    Entry {
        check: "log",
        promise: "No line of level ERROR is written that no injected fault explains.",
        sometimes: &[Mark::SteppedDown, Mark::Usurped],
    },
    Entry {
        check: "nodes",
        promise: "A server's name is taken over only once that server has been silent for long; one that never led writes its row alone.",
        sometimes: &[Mark::NameTakenOver, Mark::NameRefused, Mark::NodeLeft],
    },
    Entry {
        check: "pace",
        promise: "Nothing spins, whatever fails.",
        sometimes: &[Mark::CallFailed, Mark::DiskFull, Mark::ConnectionRefused],
    },
    Entry {
        check: "patience",
        promise: "Long polls and waits end early only with something to say, and do end.",
        sometimes: &[Mark::WaitEnded, Mark::OutcomeUnknown],
    },
    Entry {
        check: "progress",
        promise: "A leader whose appends hang while the database takes other writes lets others lead.",
        sometimes: &[Mark::RowLocked, Mark::AppendHung],
    },
    Entry {
        check: "promise",
        promise: "What is acknowledged is durable, and what is refused is absent.",
        sometimes: &[Mark::StartRepeated, Mark::StartConflict, Mark::StartRefused, Mark::OutcomeUnknown],
    },
    Entry {
        check: "queue",
        promise: "A task that waits in the queue is claimed for a poll that waits beside it.",
        sometimes: &[Mark::Queued, Mark::ClaimedFromQueue],
    },
    Entry {
        check: "read",
        promise: "Nothing is shown that is not committed, and nothing older than what was shown before.",
        sometimes: &[Mark::ReadOnStandby, Mark::EarlierRunRead, Mark::Loaded],
    },
    Entry {
        check: "replay",
        promise: "Histories are exactly what `decide` yields.",
        sometimes: &[Mark::ExecutionCompleted, Mark::ContinuedAsNew],
    },
    Entry {
        check: "rows",
        promise: "The rows beside a history say the same of it: tasks, owner, wake-up.",
        sometimes: &[Mark::Queued, Mark::ClaimedFromQueue, Mark::Requeued, Mark::Parked],
    },
    Entry {
        check: "runs",
        promise: "The runs of an execution follow each other without a gap, each from what the one before left to it.",
        sometimes: &[Mark::ContinuedAsNew, Mark::SignalCarried, Mark::SignalCarriedTwice],
    },
    Entry {
        check: "signal",
        promise: "What is sent to an execution and acknowledged is recorded once, and taken once and in order, or left over.",
        sometimes: &[Mark::SignalRepeated, Mark::SignalRacedCompletion, Mark::SignalLeftOver, Mark::UpdateAnswered],
    },
    Entry {
        check: "standby",
        promise: "A server that does not lead sends nothing that changes anything, but its own row and its campaigns.",
        sometimes: &[Mark::Failover, Mark::SteppedDown, Mark::ReadOnStandby],
    },
    Entry {
        check: "stop",
        promise: "A server that is told to stop is gone within a minute.",
        sometimes: &[Mark::CleanStop, Mark::CleanStopWithWork],
    },
    Entry {
        check: "timeline",
        promise: "A server that has seen a promotion sends nothing to the primary of before.",
        sometimes: &[Mark::PromotionNoticed, Mark::LedAstray, Mark::OldPrimaryWrote],
    },
    Entry {
        check: "validity",
        promise: "Nothing is served as leader past the last good check.",
        sometimes: &[Mark::SteppedDown, Mark::PausedServer, Mark::SentToLeader],
    },
    Entry {
        check: "verdict",
        promise: "A server is told of no call that it failed where it changed something, and of each group what became of it.",
        sometimes: &[Mark::CommittedFatal, Mark::FencedAppend, Mark::UnknownWritten, Mark::UnknownNotWritten],
    },
];

/// A check of runs of another kind, which count by themselves what has happened.
#[derive(Clone, Copy, Debug)]
pub struct Elsewhere {
    /// What a failure calls it.
    pub check: &'static str,
    /// What it stands for.
    pub promise: &'static str,
    /// The test that runs it, and fails where what it is about never happened.
    pub test: &'static str,
}

/// All of those.
pub const ELSEWHERE: &[Elsewhere] = &[Elsewhere {
    check: "owners",
    promise: "In shared mode every tree has one owner at a time, who alone writes to it, and nobody is declared dead who beats.",
    test: "sim/tests/owners.rs",
}];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// What comes between one text and the next quotation mark behind it, wherever it stands.
    fn named(source: &str, before: &str, found: &mut BTreeSet<String>) {
        for rest in source.split(before).skip(1) {
            if let Some((name, _)) = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"')) {
                found.insert(name.to_owned());
            }
        }
    }

    fn sources(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                sources(&path, found);
            } else if !path.ends_with("check/catalogue.rs") {
                let source = std::fs::read_to_string(&path).expect("a source");
                for before in ["const CHECK: &str =", "Violation::safety(", "Violation::liveness("] {
                    named(&source, before, found);
                }
            }
        }
    }

    #[test]
    fn every_check_that_a_failure_can_name_has_its_promise_and_its_sometimes() {
        let mut found = BTreeSet::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        let elsewhere = ELSEWHERE.iter().map(|entry| entry.check.to_owned());
        let listed: BTreeSet<String> = CHECKS.iter().map(|entry| entry.check.to_owned()).chain(elsewhere).collect();
        assert_eq!(listed, found);
        assert!(CHECKS.is_sorted_by_key(|entry| entry.check), "by their names");
        for entry in CHECKS {
            assert!(entry.promise.ends_with('.') && !entry.sometimes.is_empty(), "{entry:?}");
        }
    }
}
