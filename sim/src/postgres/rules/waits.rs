//! R15 to R20: deadlocks, failed transactions, time-outs, advisory locks.

use super::*;

fn circle(first: u64, second: u64) -> Vec<Step> {
    vec![
        put(A, 1, 0),
        put(A, 2, 0),
        settings(1, |s| s.deadlock_timeout = first),
        settings(2, |s| s.deadlock_timeout = second),
        begin(1),
        begin(2),
        Do(1, set(1, 1), rows(&[(1, 1)])),
        Do(2, set(2, 2), rows(&[(2, 2)])),
        Do(1, set(2, 1), waits(&[2])),
    ]
}

pub fn r15_who_closes_a_circle_late_is_its_victim() -> Vec<Step> {
    let mut steps = circle(100, 1_000);
    steps.extend([
        // Session 1 has looked, found nothing, and will not look again.
        Pause(400),
        Do(2, set(1, 2), waits(&[1])),
        Pause(1_400),
        Ends(2, Fails(Code::Deadlock)),
        Ends(1, rows(&[(2, 1)])),
        Do(2, Op::Read(A, Filter::ALL), Fails(Code::FailedTransaction)),
        commit(1),
        rollback(2),
        Holds(A, vec![(1, 1), (2, 1)]),
    ]);
    steps
}

pub fn r15_who_looks_first_is_the_victim() -> Vec<Step> {
    let mut steps = circle(800, 60_000);
    steps.extend([
        Do(2, set(1, 2), waits(&[1])),
        Pause(1_200),
        Ends(1, Fails(Code::Deadlock)),
        Ends(2, rows(&[(1, 2)])),
        commit(2),
        rollback(1),
        Holds(A, vec![(1, 2), (2, 2)]),
    ]);
    steps
}

pub fn r16_a_failed_transaction_takes_nothing_and_its_commit_rolls_back_without_an_error() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(1),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        Do(1, Op::Fail, Fails(Code::DivisionByZero)),
        // Its locks are free already.
        Do(2, set(1, 6), rows(&[(1, 6)])),
        Do(1, Op::Read(A, ONE), Fails(Code::FailedTransaction)),
        Do(1, Op::Commit, RolledBack),
        Holds(A, vec![(1, 6)]),
        read(1, ONE, &[(1, 6)]),
    ]
}

pub fn r17_a_fence_that_finds_nothing_does_not_stop_a_commit() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        put(B, 1, 8),
        begin(1),
        Do(1, Op::lock(B, ONE.with_v(7), Strength::Share), rows(&[])),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        commit(1),
        Holds(A, vec![(1, 5)]),
    ]
}

pub fn r18_a_statement_timeout_covers_waits_for_locks() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        settings(2, |s| s.statement_timeout = 1_000),
        begin(1),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        Do(2, set(1, 6), waits(&[1])),
        Pause(1_500),
        Ends(2, Fails(Code::QueryCanceled)),
        commit(1),
        Do(2, Op::Sleep(5_000), Busy),
        Pause(1_500),
        Ends(2, Fails(Code::QueryCanceled)),
        Do(2, set(1, 6), rows(&[(1, 6)])),
    ]
}

pub fn r18_a_lock_timeout_counts_each_wait() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        settings(2, |s| s.lock_timeout = 4_000),
        begin(1),
        Do(1, Op::lock(A, ONE, Strength::Share), rows(&[(1, 0)])),
        Do(2, set(1, 6), waits(&[1])),
        begin(3),
        Do(3, Op::lock(A, ONE, Strength::Share), rows(&[(1, 0)])),
        Pause(2_600),
        commit(1),
        // Now it waits for another, from the beginning.
        Step::Waits(2, vec![3]),
        Pause(2_600),
        Step::Waits(2, vec![3]),
        Pause(2_600),
        Ends(2, Fails(Code::LockNotAvailable)),
        commit(3),
    ]
}

pub fn r19_an_idle_transaction_is_killed_and_its_locks_are_free_at_once() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        settings(2, |s| s.idle_in_transaction_timeout = 1_000),
        begin(2),
        Do(2, set(1, 5), rows(&[(1, 5)])),
        Do(1, set(1, 6), waits(&[2])),
        Pause(1_500),
        Ends(1, rows(&[(1, 6)])),
        Gone(2),
        Do(2, Op::Read(A, ONE), Closed),
    ]
}

pub fn r19_an_idle_session_is_killed_only_outside_of_transactions() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        settings(2, |s| s.idle_session_timeout = 1_000),
        settings(3, |s| s.idle_session_timeout = 1_000),
        Do(2, Op::advisory(1), Done),
        begin(3),
        Do(1, Op::advisory(1), waits(&[2])),
        Pause(1_500),
        Ends(1, Done),
        Gone(2),
        read(3, ONE, &[(1, 0)]),
    ]
}

pub fn r20_a_session_lock_is_counted_and_survives_a_rollback() -> Vec<Step> {
    let attempt = Op::Advisory { key: 1, shared: false, scope: Scope::Session, wait: false };
    let unlock = Op::Unlock { key: 1, shared: false };
    vec![
        begin(1),
        Do(1, Op::advisory(1), Done),
        Do(1, Op::advisory(1), Done),
        rollback(1),
        Do(2, attempt.clone(), Flag(false)),
        Do(1, unlock.clone(), Flag(true)),
        Do(2, attempt.clone(), Flag(false)),
        Do(2, Op::advisory(1), waits(&[1])),
        Do(1, unlock.clone(), Flag(true)),
        Ends(2, Done),
        Do(1, unlock, Flag(false)),
        Do(1, attempt, Flag(false)),
    ]
}

pub fn r20_the_line_for_an_advisory_lock_is_first_come_first_served() -> Vec<Step> {
    let share = |wait| Op::Advisory { key: 1, shared: true, scope: Scope::Session, wait };
    vec![
        Do(1, share(true), Done),
        Do(2, Op::advisory(1), waits(&[1])),
        Do(3, share(false), Flag(false)),
        Do(3, share(true), waits(&[2])),
        Do(4, Op::Advisory { key: 2, shared: false, scope: Scope::Session, wait: true }, Done),
        Do(5, Op::Advisory { key: 2, shared: false, scope: Scope::Session, wait: true }, waits(&[4])),
        // Who has it gets it in another way past those who wait for it; but not who would not wait.
        Do(4, Op::Advisory { key: 2, shared: true, scope: Scope::Session, wait: false }, Flag(false)),
        Do(4, Op::Advisory { key: 2, shared: true, scope: Scope::Session, wait: true }, Done),
        // Who has it already may have it once more.
        Do(1, share(true), Done),
        Do(1, Op::Unlock { key: 1, shared: true }, Flag(true)),
        Do(1, Op::Unlock { key: 1, shared: true }, Flag(true)),
        Ends(2, Done),
        Step::Waits(3, vec![2]),
        Do(2, Op::Unlock { key: 1, shared: false }, Flag(true)),
        Ends(3, Done),
    ]
}

pub fn r20_a_transactions_advisory_lock_ends_with_it() -> Vec<Step> {
    let lock = Op::Advisory { key: 1, shared: false, scope: Scope::Transaction, wait: true };
    vec![
        begin(1),
        Do(1, lock.clone(), Done),
        Do(2, Op::advisory(1), waits(&[1])),
        Do(1, Op::Unlock { key: 1, shared: false }, Flag(false)),
        commit(1),
        Ends(2, Done),
        // Alone, it is free again when the statement has ended.
        Do(2, Op::Unlock { key: 1, shared: false }, Flag(true)),
        Do(1, lock, Done),
        Do(2, Op::advisory(1), Done),
    ]
}

pub fn r20_a_sessions_locks_are_free_when_it_ends() -> Vec<Step> {
    vec![
        Do(1, Op::advisory(1), Done),
        Do(2, Op::advisory(1), waits(&[1])),
        Do(3, Op::advisory(1), waits(&[1, 2])),
        Terminate(1),
        Ends(2, Done),
        Vanish(2),
        Ends(3, Done),
    ]
}
