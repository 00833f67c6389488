//! A transaction elsewhere that stays open, under the rows that live shortest: `scripts/long old-snapshot` at full length.

use crate::kind::{self, Place};
use crate::support::*;
use ::postgres::{Client, IsolationLevel};
use orbit_core::store::append::*;
use orbit_support::Postgres;
use std::time::{Duration, Instant};

/// Executions of one round.
const EXECUTIONS: usize = 10;

/// For how long it is open, and how many tasks a second there are meanwhile.
fn length() -> (Duration, u32) {
    let seconds = std::env::var("OLD_SNAPSHOT_SECONDS").ok().and_then(|text| text.parse().ok());
    (Duration::from_secs(seconds.unwrap_or(4)), 500)
}

/// Executions of one task each: started, queued, claimed, ended.
struct Work {
    store: Running,
    fence: Fence,
    admin: Client,
    /// Executions so far.
    count: usize,
}

impl Work {
    fn round(&mut self) {
        let ids: Vec<String> = (self.count..self.count + EXECUTIONS).map(|n| format!("e-{n:09}")).collect();
        let number = u128::try_from(self.count).expect("few");
        self.count += EXECUTIONS;
        let begin = ids.iter().zip(0..).map(|(id, n)| {
            let mut begin = group(1_000_000_000 + number + n, vec![start(id, 2)]);
            begin.tasks = vec![TaskChange::Insert(task(id, id, "pay", i64::try_from(number + n).expect("few")))];
            begin
        });
        self.store.written(self.fence, begin.collect());
        let tokens: Vec<u128> = (0..10).map(|n| 2_000_000_000 + number + n).collect();
        let claimed = self.store.claim(self.fence, 3_000_000_000 + number, vec![want(&["pay"], &tokens)]);
        assert_eq!(claimed.len(), EXECUTIONS, "every task is found");
        let finish = claimed.iter().zip(0..).map(|(claimed, n)| {
            let mut finish = group(4_000_000_000 + number + n, vec![end(claimed.execution.as_str(), 2)]);
            let expect = TaskState::Claimed { token: claimed.token };
            finish.tasks = vec![TaskChange::Delete { task: claimed.task.clone(), expect }];
            finish
        });
        self.store.written(self.fence, finish.collect());
    }

    /// Pages of tables and indexes that the database has looked at since it was made. Sessions tell what they have
    /// counted once a second.
    fn pages(&mut self) -> i64 {
        std::thread::sleep(Duration::from_millis(1050));
        self.round();
        let sql = "SELECT (sum(heap_blks_hit + heap_blks_read) + sum(idx_blks_hit + idx_blks_read))::bigint
            FROM pg_statio_user_tables";
        self.admin.query_one(sql, &[]).unwrap().get(0)
    }

    /// Works for so long at this rate; how many pages were looked at for each task.
    fn go_on(&mut self, time: Duration, rate: u32) -> i64 {
        let (before, count) = (self.pages(), self.count);
        let begun = Instant::now();
        let mut due = Duration::ZERO;
        while begun.elapsed() < time {
            self.round();
            due += Duration::from_secs(1) * u32::try_from(EXECUTIONS).expect("few") / rate;
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
        let pages = self.pages() - before;
        pages / i64::try_from(self.count - count).expect("few")
    }

    fn dead(&mut self, table: &str) -> i64 {
        let sql = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = $1";
        self.admin.query_one(sql, &[&table]).unwrap().get(0)
    }
}

#[test]
fn under_an_old_snapshot_work_goes_on_and_is_as_cheap_again_once_it_is_gone() {
    let (time, rate) = length();
    let database = Postgres::shared().fresh();
    let mut admin = database.connect();
    // What is measured is what is looked at, not how fast this disk is.
    admin.batch_execute(&format!("ALTER DATABASE {} SET synchronous_commit = off", database.name)).unwrap();
    let place = Place { database: database.clone() };
    let mut store = Running { attached: kind::open(&place), calls: 0, place };
    let fence = store.campaign(1);
    let mut work = Work { store, fence, admin, count: 0 };
    let before = work.go_on(time / 4, rate);
    let mut old = database.connect();
    let open = old.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    let mut snapshot = open.start().unwrap();
    let seen: i64 = snapshot.query_one("SELECT count(*) FROM execution_events", &[]).unwrap().get(0);
    let (begun, counted) = (Instant::now(), work.count);
    let first = work.go_on(time / 4, rate);
    work.go_on(time / 2, rate);
    let last = work.go_on(time / 4, rate);
    let (tasks, took) = (work.count - counted, begun.elapsed());
    let (owners, queued) = (work.dead("orbit_owners"), work.dead("orbit_tasks"));
    let again: i64 = snapshot.query_one("SELECT count(*) FROM execution_events", &[]).unwrap().get(0);
    assert_eq!(again, seen, "it sees what it saw");
    snapshot.commit().unwrap();
    work.admin.execute("VACUUM orbit_owners", &[]).unwrap();
    work.admin.execute("VACUUM orbit_tasks", &[]).unwrap();
    let after = work.go_on(time / 4, rate);
    println!(
        "{tasks} tasks in {took:.1?} under one snapshot ({:.0} a second); pages for a task: {before} before, {first} at \
         first, {last} at last, {after} afterwards; dead rows: {owners} owners, {queued} tasks",
        tasks as f64 / took.as_secs_f64()
    );
    let tasks = i64::try_from(tasks).expect("few");
    // Nothing is dead but what was replaced: an owner row, and a task row that was queued and one that was claimed.
    assert!(owners <= 2 * tasks && queued <= 3 * tasks, "{owners} and {queued} dead rows of {tasks} tasks");
    // A claim passes over what is dead at the head of the queue: ten tasks share that.
    let bound = before * 3 + tasks / 2;
    assert!(last <= bound, "a task costs {last} pages after {tasks} others; the bound is {bound}");
    assert!(after <= before * 3, "a task costs {after} pages, and did cost {before} before");
}
