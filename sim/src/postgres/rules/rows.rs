//! R1 to R14: what is seen, locked, looked at again, skipped and inserted.

use super::*;

pub fn r1_every_statement_takes_a_new_snapshot_and_a_read_never_waits() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(1),
        begin(2),
        read(2, ONE, &[(1, 0)]),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        read(1, ONE, &[(1, 5)]),
        read(2, ONE, &[(1, 0)]),
        commit(1),
        read(2, ONE, &[(1, 5)]),
        commit(2),
    ]
}

pub fn r2_an_update_that_waited_for_one_who_rolls_back_goes_on_with_the_old_version() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(1),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        Do(2, Op::Update(A, ONE.with_v(0), Change::Add(1)), waits(&[1])),
        rollback(1),
        Ends(2, rows(&[(1, 1)])),
        Holds(A, vec![(1, 1)]),
    ]
}

pub fn r2_an_update_that_waited_looks_at_its_condition_again_on_the_new_version() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(1),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        Do(2, Op::Update(A, ONE.with_v(0), Change::Add(1)), waits(&[1])),
        commit(1),
        Ends(2, rows(&[])),
        begin(1),
        Do(1, set(1, 6), rows(&[(1, 6)])),
        Do(2, Op::Update(A, ONE, Change::Add(10)), waits(&[1])),
        commit(1),
        Ends(2, rows(&[(1, 16)])),
        Holds(A, vec![(1, 16)]),
    ]
}

pub fn r2_an_update_that_waited_for_a_deletion_finds_nothing() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(1),
        Do(1, Op::Delete(A, ONE), rows(&[(1, 0)])),
        Do(1, Op::Insert(A, 1, 7, OnConflict::Fail), rows(&[(1, 7)])),
        Do(2, Op::Update(A, ONE, Change::Add(1)), waits(&[1])),
        commit(1),
        Ends(2, rows(&[])),
        Holds(A, vec![(1, 7)]),
    ]
}

pub fn r3_only_the_row_that_is_locked_is_refreshed() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        put(B, 1, 7),
        begin(1),
        Do(1, Op::Update(B, ONE, Change::V(8)), rows(&[(1, 8)])),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        Do(2, Op::Update(A, ONE.if_b_has(1, 7), Change::Add(1)), waits(&[1])),
        commit(1),
        // B has 8 by now.
        Ends(2, rows(&[(1, 6)])),
        Do(2, Op::Update(A, ONE.if_b_has(1, 7), Change::Add(1)), rows(&[])),
    ]
}

pub fn r4_rows_that_became_eligible_after_the_snapshot_are_not_found() -> Vec<Step> {
    vec![
        put(A, 1, 5),
        put(A, 2, 1),
        begin(1),
        Do(1, Op::lock(A, ONE, Strength::Update), rows(&[(1, 5)])),
        Do(2, Op::Update(A, Filter::ALL.with_v(5), Change::Add(10)), waits(&[1])),
        Do(1, set(2, 5), rows(&[(2, 5)])),
        commit(1),
        Ends(2, rows(&[(1, 15)])),
        Holds(A, vec![(1, 15), (2, 5)]),
    ]
}

pub fn r5_a_row_that_was_only_locked_is_not_looked_at_again() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        Do(1, Op::Update(A, ONE, Change::Lease(1_000)), rows(&[(1, 0)])),
        begin(1),
        Do(1, Op::lock(A, ONE, Strength::Share), rows(&[(1, 0)])),
        Do(2, Op::Update(A, ONE.live(Clock::Wall), Change::V(1)), waits(&[1])),
        Pause(1_500),
        commit(1),
        // The lease is over.
        Ends(2, rows(&[(1, 1)])),
        read(2, ONE.live(Clock::Wall), &[]),
    ]
}

pub fn r6_now_is_when_the_transaction_began_and_the_clock_goes_on() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        Do(1, Op::Update(A, ONE, Change::Lease(1_500)), rows(&[(1, 0)])),
        begin(1),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        Do(2, Op::lock(A, ONE.live(Clock::Transaction), Strength::KeyShare), rows(&[(1, 0)])),
        Do(2, Op::Update(A, ONE.live(Clock::Transaction), Change::Add(1)), waits(&[1])),
        Pause(2_000),
        commit(1),
        // The lease is over, and its condition was looked at again.
        Ends(2, rows(&[(1, 6)])),
        Do(1, Op::Update(A, ONE, Change::Lease(1_500)), rows(&[(1, 6)])),
        begin(1),
        Do(1, set(1, 7), rows(&[(1, 7)])),
        Do(2, Op::Update(A, ONE.live(Clock::Wall), Change::Add(1)), waits(&[1])),
        Pause(2_000),
        commit(1),
        Ends(2, rows(&[])),
    ]
}

pub fn r7_a_lock_returns_the_new_version_and_the_next_statement_sees_it() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(1),
        begin(2),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        Do(2, Op::lock(A, ONE, Strength::Share), waits(&[1])),
        commit(1),
        Ends(2, rows(&[(1, 5)])),
        read(2, ONE, &[(1, 5)]),
        commit(2),
    ]
}

pub fn r8_the_four_strengths_conflict_as_their_table_says() -> Vec<Step> {
    use Strength::*;
    let all = [KeyShare, Share, NoKeyUpdate, Update];
    let conflict = |a: Strength, b: Strength| {
        matches!(
            (a, b),
            (KeyShare, Update)
                | (Update, KeyShare)
                | (Share, NoKeyUpdate | Update)
                | (NoKeyUpdate | Update, Share)
                | (NoKeyUpdate | Update, NoKeyUpdate | Update)
        )
    };
    let mut steps = vec![put(A, 1, 0)];
    for held in all {
        for wanted in all {
            let got = if conflict(held, wanted) { Fails(Code::LockNotAvailable) } else { rows(&[(1, 0)]) };
            steps.extend([
                begin(1),
                Do(1, Op::lock(A, ONE, held), rows(&[(1, 0)])),
                Do(2, Op::lock_or(A, ONE, wanted, Policy::Fail), got),
                commit(1),
            ]);
        }
    }
    steps
}

pub fn r8_an_update_lets_key_sharers_pass_and_a_deletion_does_not() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(1),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        // It sees the old version, and has it locked; the new one too, since the lock follows.
        begin(2),
        Do(2, Op::lock(A, ONE, Strength::KeyShare), rows(&[(1, 0)])),
        Do(3, Op::lock(A, ONE, Strength::Share), waits(&[1])),
        commit(1),
        Ends(3, rows(&[(1, 5)])),
        Do(3, Op::Delete(A, ONE), waits(&[2])),
        // An update does not mind who shares the key, and overtakes.
        Do(1, set(1, 6), rows(&[(1, 6)])),
        commit(2),
        Ends(3, rows(&[(1, 6)])),
        put(A, 1, 0),
        begin(1),
        Do(1, Op::Delete(A, ONE), rows(&[(1, 0)])),
        Do(2, Op::lock(A, ONE, Strength::KeyShare), waits(&[1])),
        rollback(1),
        Ends(2, rows(&[(1, 0)])),
    ]
}

pub fn r9_locks_are_held_to_the_end_and_sharers_do_not_block_each_other() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(1),
        begin(2),
        Do(1, Op::lock(A, ONE, Strength::Share), rows(&[(1, 0)])),
        Do(2, Op::lock(A, ONE, Strength::Share), rows(&[(1, 0)])),
        Do(3, set(1, 5), waits(&[1])),
        read(1, ONE, &[(1, 0)]),
        commit(1),
        Step::Waits(3, vec![2]),
        rollback(2),
        Ends(3, rows(&[(1, 5)])),
    ]
}

pub fn r9_two_sharers_who_both_want_to_write_are_a_deadlock() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        settings(1, |s| s.deadlock_timeout = 60_000),
        settings(2, |s| s.deadlock_timeout = 100),
        begin(1),
        begin(2),
        Do(1, Op::lock(A, ONE, Strength::Share), rows(&[(1, 0)])),
        Do(2, Op::lock(A, ONE, Strength::Share), rows(&[(1, 0)])),
        Do(1, set(1, 5), waits(&[2])),
        Do(2, set(1, 6), Waits(vec![1])),
        Pause(300),
        Ends(2, Fails(Code::Deadlock)),
        Ends(1, rows(&[(1, 5)])),
        commit(1),
        rollback(2),
    ]
}

pub fn r10_a_sharer_overtakes_an_update_that_waits() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(1),
        Do(1, Op::lock(A, ONE, Strength::Share), rows(&[(1, 0)])),
        Do(2, set(1, 5), waits(&[1])),
        begin(3),
        Do(3, Op::lock(A, ONE, Strength::Share), rows(&[(1, 0)])),
        commit(1),
        Step::Waits(2, vec![3]),
        begin(1),
        Do(1, Op::lock(A, ONE, Strength::Share), rows(&[(1, 0)])),
        commit(3),
        Step::Waits(2, vec![1]),
        commit(1),
        Ends(2, rows(&[(1, 5)])),
    ]
}

pub fn r10_updates_that_wait_are_served_in_the_order_of_their_arrival() -> Vec<Step> {
    let add = |session, by, on: &[u32]| Do(session, Op::Update(A, ONE, Change::Add(by)), waits(on));
    vec![
        put(A, 1, 0),
        begin(1),
        Do(1, Op::lock(A, ONE, Strength::Update), rows(&[(1, 0)])),
        begin(2),
        add(2, 1, &[1]),
        begin(3),
        add(3, 10, &[2]),
        begin(4),
        add(4, 100, &[2, 3]),
        commit(1),
        Ends(2, rows(&[(1, 1)])),
        Step::Waits(3, vec![2]),
        commit(2),
        Ends(3, rows(&[(1, 11)])),
        commit(3),
        Ends(4, rows(&[(1, 111)])),
        commit(4),
    ]
}

pub fn r12_locked_rows_are_skipped_and_the_limit_is_filled_from_the_others() -> Vec<Step> {
    let claim = |limit| Op::Lock {
        table: A,
        filter: Filter::ALL,
        strength: Strength::Update,
        policy: Policy::Skip,
        order: Order::Id,
        limit: Some(limit),
    };
    vec![
        put(A, 1, 0),
        put(A, 2, 0),
        put(A, 3, 0),
        put(A, 4, 0),
        begin(1),
        Do(1, claim(2), rows(&[(1, 0), (2, 0)])),
        begin(2),
        Do(2, claim(1), rows(&[(3, 0)])),
        Do(3, claim(3), rows(&[(4, 0)])),
        commit(1),
        Do(3, claim(3), rows(&[(1, 0), (2, 0), (4, 0)])),
        commit(2),
    ]
}

pub fn r12_sharers_do_not_skip_what_is_shared() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(1),
        Do(1, Op::lock(A, ONE, Strength::Share), rows(&[(1, 0)])),
        Do(2, Op::lock_or(A, ONE, Strength::Share, Policy::Skip), rows(&[(1, 0)])),
        Do(2, Op::lock_or(A, ONE, Strength::NoKeyUpdate, Policy::Skip), rows(&[])),
        Do(2, Op::lock_or(A, ONE, Strength::Update, Policy::Skip), rows(&[])),
        commit(1),
    ]
}

pub fn r13_rows_are_put_in_order_before_they_are_locked() -> Vec<Step> {
    let lock = Op::Lock {
        table: A,
        filter: Filter::ALL,
        strength: Strength::Update,
        policy: Policy::Wait,
        order: Order::V,
        limit: None,
    };
    vec![
        put(A, 1, 10),
        put(A, 2, 20),
        begin(1),
        Do(1, set(1, 99), rows(&[(1, 99)])),
        Do(2, lock, waits(&[1])),
        commit(1),
        Ends(2, rows(&[(1, 99), (2, 20)])),
    ]
}

fn insert(session: u32, v: i32, conflict: OnConflict, expect: Expect) -> Step {
    Do(session, Op::Insert(A, 1, v, conflict), expect)
}

pub fn r14_an_insert_waits_for_one_of_the_same_key_and_then_fails_or_goes_on() -> Vec<Step> {
    vec![
        begin(1),
        insert(1, 5, OnConflict::Fail, rows(&[(1, 5)])),
        insert(2, 6, OnConflict::Fail, waits(&[1])),
        rollback(1),
        Ends(2, rows(&[(1, 6)])),
        Do(1, Op::Delete(A, ONE), rows(&[(1, 6)])),
        begin(1),
        insert(1, 7, OnConflict::Fail, rows(&[(1, 7)])),
        insert(2, 8, OnConflict::Fail, waits(&[1])),
        commit(1),
        Ends(2, Fails(Code::UniqueViolation)),
        Holds(A, vec![(1, 7)]),
    ]
}

pub fn r14_an_insert_waits_for_those_who_change_or_delete_the_row_that_is_there() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(1),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        insert(2, 6, OnConflict::Fail, waits(&[1])),
        commit(1),
        Ends(2, Fails(Code::UniqueViolation)),
        begin(1),
        Do(1, Op::Delete(A, ONE), rows(&[(1, 5)])),
        insert(2, 6, OnConflict::Fail, waits(&[1])),
        commit(1),
        Ends(2, rows(&[(1, 6)])),
        begin(1),
        Do(1, Op::lock(A, ONE, Strength::Update), rows(&[(1, 6)])),
        insert(2, 7, OnConflict::Fail, Fails(Code::UniqueViolation)),
        commit(1),
    ]
}

pub fn r14_an_insert_that_may_do_nothing_waits_and_then_does_nothing() -> Vec<Step> {
    vec![
        begin(1),
        insert(1, 5, OnConflict::Nothing, rows(&[(1, 5)])),
        insert(2, 6, OnConflict::Nothing, waits(&[1])),
        commit(1),
        Ends(2, rows(&[])),
        begin(1),
        Do(1, Op::Delete(A, ONE), rows(&[(1, 5)])),
        insert(2, 6, OnConflict::Nothing, waits(&[1])),
        commit(1),
        Ends(2, rows(&[(1, 6)])),
    ]
}

pub fn r14_an_insert_that_updates_looks_at_the_newest_row() -> Vec<Step> {
    let add = |only_if| OnConflict::Add { only_if };
    vec![
        put(A, 1, 0),
        begin(1),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        insert(2, 1, add(Some(5)), waits(&[1])),
        commit(1),
        Ends(2, rows(&[(1, 6)])),
        begin(1),
        Do(1, set(1, 7), rows(&[(1, 7)])),
        insert(2, 1, add(Some(6)), waits(&[1])),
        commit(1),
        Ends(2, rows(&[])),
        // A row that is only locked holds it up later: when it is to be locked.
        begin(1),
        Do(1, Op::lock(A, ONE, Strength::Share), rows(&[(1, 7)])),
        insert(2, 1, add(None), waits(&[1])),
        commit(1),
        Ends(2, rows(&[(1, 8)])),
    ]
}
