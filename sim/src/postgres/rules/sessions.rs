//! R21 to R29: sessions that die with or without their client, and the death of the server.

use super::*;

pub fn r21_an_idle_backend_notices_at_once_that_its_client_is_gone() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(2),
        Do(2, set(1, 5), rows(&[(1, 5)])),
        Do(1, set(1, 6), waits(&[2])),
        Vanish(2),
        Ends(1, rows(&[(1, 6)])),
        Gone(2),
    ]
}

pub fn r21_a_waiting_backend_notices_when_it_is_to_look() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        settings(2, |s| s.client_check_interval = 200),
        begin(1),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        Do(2, set(1, 6), waits(&[1])),
        Vanish(2),
        Pause(600),
        Gone(2),
        commit(1),
        Holds(A, vec![(1, 5)]),
    ]
}

pub fn r22_a_lone_statement_that_waits_commits_after_its_client_is_gone() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(1),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        Do(2, Op::Update(A, ONE, Change::Add(1)), waits(&[1])),
        Vanish(2),
        Pause(300),
        commit(1),
        Gone(2),
        Holds(A, vec![(1, 6)]),
    ]
}

pub fn r22_an_open_transaction_whose_client_is_gone_rolls_back_after_its_statement() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        put(A, 2, 0),
        begin(2),
        Do(2, set(2, 5), rows(&[(2, 5)])),
        begin(1),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        Do(2, set(1, 6), waits(&[1])),
        Vanish(2),
        // It holds what it holds meanwhile.
        Do(3, set(2, 7), waits(&[2])),
        commit(1),
        Ends(3, rows(&[(2, 7)])),
        Gone(2),
        Holds(A, vec![(1, 5), (2, 7)]),
    ]
}

pub fn r23_a_commit_that_a_frozen_backend_has_received_is_done_long_after() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(2),
        Do(2, set(1, 5), rows(&[(1, 5)])),
        Freeze(2),
        Do(2, Op::Commit, Busy),
        Vanish(2),
        Pause(300),
        // Neither committed nor rolled back: in progress.
        read(1, ONE, &[(1, 0)]),
        Do(1, set(1, 6), waits(&[2])),
        Thaw(2),
        Ends(1, rows(&[(1, 6)])),
        Gone(2),
        Do(1, Op::Update(A, ONE.with_v(5), Change::V(9)), rows(&[])),
    ]
}

pub fn r23_a_lone_statement_that_a_frozen_backend_has_received_is_done_long_after() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        read(2, ONE, &[(1, 0)]),
        Freeze(2),
        Do(2, Op::Update(A, ONE, Change::Add(1)), Busy),
        Vanish(2),
        Pause(300),
        // Not even a lock tells of it.
        Do(1, Op::lock_or(A, ONE, Strength::Update, Policy::Fail), rows(&[(1, 0)])),
        Thaw(2),
        Gone(2),
        Holds(A, vec![(1, 1)]),
    ]
}

pub fn r29_a_crash_keeps_what_is_committed_and_nothing_else() -> Vec<Step> {
    vec![
        put(A, 1, 0),
        begin(1),
        Do(1, set(1, 5), rows(&[(1, 5)])),
        Do(1, Op::advisory(1), Done),
        Do(2, set(1, 6), waits(&[1])),
        Crash,
        Ends(2, Closed),
        Do(1, Op::Commit, Closed),
        Do(3, set(1, 7), rows(&[(1, 7)])),
        Do(3, Op::advisory(1), Done),
        Holds(A, vec![(1, 7)]),
    ]
}
