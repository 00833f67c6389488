//! The rules of PostgreSQL that the model follows, as scripts: the tests of `sim` play them on the model, those of `io`
//! on a real server. [`crate::postgres_rules`] makes a test of each.

mod rows;
mod sessions;
mod waits;

pub use rows::*;
pub use sessions::*;
pub use waits::*;

use super::error::Code;
use super::script::{Change, Clock, Expect, Filter, OnConflict, Op, Order, Step, Table};
use super::session::Settings;
use super::table::Strength;
use super::{Policy, Scope};

/// A test for each rule: `run` is given its script.
#[macro_export]
macro_rules! postgres_rules {
    ($run:ident) => {
        $crate::postgres_rules!(@ $run:
            r1_every_statement_takes_a_new_snapshot_and_a_read_never_waits,
            r2_an_update_that_waited_for_one_who_rolls_back_goes_on_with_the_old_version,
            r2_an_update_that_waited_looks_at_its_condition_again_on_the_new_version,
            r2_an_update_that_waited_for_a_deletion_finds_nothing,
            r3_only_the_row_that_is_locked_is_refreshed,
            r4_rows_that_became_eligible_after_the_snapshot_are_not_found,
            r5_a_row_that_was_only_locked_is_not_looked_at_again,
            r6_now_is_when_the_transaction_began_and_the_clock_goes_on,
            r7_a_lock_returns_the_new_version_and_the_next_statement_sees_it,
            r8_the_four_strengths_conflict_as_their_table_says,
            r8_an_update_lets_key_sharers_pass_and_a_deletion_does_not,
            r9_locks_are_held_to_the_end_and_sharers_do_not_block_each_other,
            r9_two_sharers_who_both_want_to_write_are_a_deadlock,
            r10_a_sharer_overtakes_an_update_that_waits,
            r10_updates_that_wait_are_served_in_the_order_of_their_arrival,
            r12_locked_rows_are_skipped_and_the_limit_is_filled_from_the_others,
            r12_sharers_do_not_skip_what_is_shared,
            r13_rows_are_put_in_order_before_they_are_locked,
            r14_an_insert_waits_for_one_of_the_same_key_and_then_fails_or_goes_on,
            r14_an_insert_waits_for_those_who_change_or_delete_the_row_that_is_there,
            r14_an_insert_that_may_do_nothing_waits_and_then_does_nothing,
            r14_an_insert_that_updates_looks_at_the_newest_row,
            r15_who_closes_a_circle_late_is_its_victim,
            r15_who_looks_first_is_the_victim,
            r16_a_failed_transaction_takes_nothing_and_its_commit_rolls_back_without_an_error,
            r17_a_fence_that_finds_nothing_does_not_stop_a_commit,
            r18_a_statement_timeout_covers_waits_for_locks,
            r18_a_lock_timeout_counts_each_wait,
            r19_an_idle_transaction_is_killed_and_its_locks_are_free_at_once,
            r19_an_idle_session_is_killed_only_outside_of_transactions,
            r20_a_session_lock_is_counted_and_survives_a_rollback,
            r20_the_line_for_an_advisory_lock_is_first_come_first_served,
            r20_a_transactions_advisory_lock_ends_with_it,
            r20_a_sessions_locks_are_free_when_it_ends,
            r21_an_idle_backend_notices_at_once_that_its_client_is_gone,
            r21_a_waiting_backend_notices_when_it_is_to_look,
            r22_a_lone_statement_that_waits_commits_after_its_client_is_gone,
            r22_an_open_transaction_whose_client_is_gone_rolls_back_after_its_statement,
            r23_a_commit_that_a_frozen_backend_has_received_is_done_long_after,
            r23_a_lone_statement_that_a_frozen_backend_has_received_is_done_long_after,
            r29_a_crash_keeps_what_is_committed_and_nothing_else,
        );
    };
    (@ $run:ident: $($name:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            $run(&$crate::postgres::rules::$name());
        })+
    };
}

use Expect::{Busy, Closed, Done, Fails, Flag, RolledBack, Rows, Waits};
use Step::{Crash, Do, Ends, Freeze, Gone, Holds, Pause, Terminate, Thaw, Vanish};
use Table::{A, B};

const ONE: Filter = Filter::id(1);

fn rows(rows: &[(i32, i32)]) -> Expect {
    Rows(rows.to_vec())
}

fn waits(on: &[u32]) -> Expect {
    Waits(on.to_vec())
}

fn begin(session: u32) -> Step {
    Do(session, Op::Begin, Done)
}

fn commit(session: u32) -> Step {
    Do(session, Op::Commit, Done)
}

fn rollback(session: u32) -> Step {
    Do(session, Op::Rollback, RolledBack)
}

/// Session 1 puts a row there.
fn put(table: Table, id: i32, v: i32) -> Step {
    Do(1, Op::Insert(table, id, v, OnConflict::Fail), rows(&[(id, v)]))
}

fn set(id: i32, v: i32) -> Op {
    Op::Update(A, Filter::id(id), Change::V(v))
}

fn read(session: u32, filter: Filter, found: &[(i32, i32)]) -> Step {
    Do(session, Op::Read(A, filter), rows(found))
}

fn settings(session: u32, change: impl FnOnce(&mut Settings)) -> Step {
    let mut settings = Settings::default();
    change(&mut settings);
    Do(session, Op::Set(settings), Done)
}
