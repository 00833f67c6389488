//! What a run is made of: drawn from the seed (swarm testing), printed before the run, and changed by `--set`.
//!
//! Each seed switches a random half of the faults off and gives the others very different rates, so that no fault
//! hides behind another. A fault that lasts has a probability and a smallest and largest duration, so that it neither
//! flaps nor lasts for ever. After the chaos comes the healing: all faults end, and everything must come to its end.

mod options;
mod quiet;

pub use options::Setting;

use crate::rng::{Dice, Ratio, Stream};
use serde::{Deserialize, Serialize};

/// The options of one run. Durations are in milliseconds unless the name says otherwise; pairs are bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub seed: u64,
    /// How long faults happen.
    pub chaos_ms: u64,
    /// Within this time after the healing, everything has come to its end.
    pub heal_ms: u64,
    /// The world lasts at least so long: what has come to its end before stands by, and stays as it is.
    pub least_ms: u64,
    /// The chaos lasts until so many transactions are acknowledged, even where `chaos_ms` are over: clients then go on
    /// starting, and executions get what they wait for. None are asked for of what is not written down (scenarios).
    #[serde(default)]
    pub least_commits: u64,
    pub clients: u32,
    /// How long a client thinks before its next request.
    pub think_ms: [u64; 2],
    /// How many executions clients start, together, until `chaos_ms` are over.
    pub starts: u32,
    pub workflows: u32,
    pub workers: u32,
    pub server: ServerPlan,
    /// Several servers, of which one leads; none: one alone.
    pub cluster: Option<ClusterPlan>,
    pub network: NetworkPlan,
    /// Which database the server runs on.
    pub store: StoreKind,
    pub disk: DiskPlan,
    pub database: DatabasePlan,
    pub habits: Habits,
    pub faults: Faults,
}

/// The server's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerPlan {
    pub session_timeout_ms: u64,
    pub heartbeat_ms: u64,
    pub check_ms: u64,
    pub call_deadline_ms: u64,
    pub request_deadline_ms: u64,
    pub max_resident: u64,
    pub max_active: u64,
    pub max_history: u64,
    pub max_queued: u64,
    pub max_payload: u64,
    pub max_fan_out: u64,
    pub max_pending: u64,
    pub max_children: u64,
    pub max_child_depth: u64,
    pub max_append_groups: usize,
    pub max_append_bytes: usize,
    /// A server that takes over holds what has attempts out (`--recovery hold`); clients recover it.
    #[serde(default)]
    pub holds: bool,
    /// How fast the process's monotonic clock runs, in parts per million off the true time.
    pub drift_ppm: [u64; 2],
    /// By how much the wall clock of the host of each server is ahead of the database's, where it is.
    pub wall_ahead_ms: Vec<i64>,
}

/// A standby cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterPlan {
    pub servers: u32,
    pub validity_ms: u64,
    /// How long one statement waits in line for the election lock.
    pub slice_ms: u64,
    /// A server that leads no more ends, and is started anew.
    pub exits: bool,
    /// An election session that nothing is sent to ends.
    pub session_timeout_ms: u64,
    /// A leader of whose appends none has gone through for so long lets others lead, where the database takes other writes.
    #[serde(default = "ClusterPlan::usual_stuck_ms")]
    pub stuck_ms: u64,
    /// The leader is elected by a lease with this time to live; none: by lock.
    pub lease_ms: Option<u64>,
    /// So far the clocks of the servers' hosts are off the database's at most, one way or the other.
    pub skew_ms: u64,
    /// From this time to the healing, new connections lead to a pooler in transaction mode, with so many backends.
    pub pooler_from_ms: Option<u64>,
    pub pooler_backends: usize,
    /// At this time the tables are brought to a version that only the first `newer` servers know.
    pub migrates_at_ms: Option<u64>,
    pub newer: u32,
    /// From this time on the operator changes how the leader is elected, and back after so long.
    pub mode_from_ms: Option<u64>,
    pub mode_for_ms: u64,
}

impl ClusterPlan {
    /// As production has it.
    fn usual_stuck_ms() -> u64 {
        10_000
    }

    /// Half of the plans on PostgreSQL have one.
    fn draw(seed: u64, store: StoreKind, check_ms: u64) -> Option<ClusterPlan> {
        let mut d = Dice::new(seed, Stream::Cluster);
        (d.chance(Ratio::new(1, 2)) && store == StoreKind::Postgres).then(|| ClusterPlan {
            servers: *d.pick(&[2, 2, 3]),
            validity_ms: (*d.pick(&[600, 1_500, 3_000])).max(2 * check_ms),
            slice_ms: *d.pick(&[400, 2_000, 10_000]),
            exits: d.chance(Ratio::new(1, 4)),
            session_timeout_ms: 5_000,
            stuck_ms: *Dice::new(seed, Stream::Hangs).pick(&[1_000, 2_000, 10_000]),
            lease_ms: d.chance(Ratio::new(1, 2)).then(|| *d.pick(&[3_000, 3_000, 4_000, 6_000, 15_000])),
            skew_ms: *d.pick(&[0, 500, 5_000, 60_000]),
            pooler_from_ms: d.chance(Ratio::new(1, 8)).then(|| *d.pick(&[0, 2_000, 6_000])),
            pooler_backends: *d.pick(&[2, 3, 6]),
            migrates_at_ms: d.chance(Ratio::new(1, 4)).then(|| *d.pick(&[1_000, 3_000, 6_000])),
            newer: *d.pick(&[1, 1, 2]),
            mode_from_ms: d.chance(Ratio::new(1, 8)).then(|| *d.pick(&[2_000, 5_000])),
            mode_for_ms: *d.pick(&[200, 3_000]),
        })
    }
}

/// The way between clients, workers and the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkPlan {
    pub latency_us: [u64; 2],
    pub lose_request: Ratio,
    pub lose_response: Ratio,
    /// How often the front notices that an answer was not written, or that the one who asked is gone.
    pub notice: Ratio,
    /// How often the front says so although the answer arrived.
    pub false_notice: Ratio,
}

/// The database's disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskPlan {
    /// From the sending of a call to its commit, and from there to its reply.
    pub latency_us: [u64; 2],
    /// A call fails, certainly.
    pub fail: Ratio,
    /// The outcome of a call stays unknown: half of them committed.
    pub unknown: Ratio,
    /// A call takes this much longer.
    pub slow: Ratio,
    pub slow_ms: [u64; 2],
}

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    Sqlite,
    Postgres,
}

/// A PostgreSQL, the way to it, and the settings of its sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabasePlan {
    /// Of each message, one way.
    pub latency_us: [u64; 2],
    /// A connection breaks when something is sent on it: half of what was sent arrives all the same.
    pub cut: Ratio,
    /// A connection breaks when something is answered on it.
    pub cut_answer: Ratio,
    /// An answer takes so much longer, and what comes after it on its connection too.
    pub slow_answer: Ratio,
    pub slow_ms: [u64; 2],
    /// The connections of a dead server stay open for seconds.
    pub silent_death: Ratio,
    pub statement_timeout_ms: u64,
    pub lock_timeout_ms: u64,
    pub idle_in_transaction_ms: u64,
    pub client_check_ms: u64,
    /// A statement stands still, wherever something of others can come in between.
    pub stands_still: Ratio,
    pub still_us: [u64; 2],
    /// A commit waits for a replica.
    pub waits_for_replica: Ratio,
    pub replica_us: [u64; 2],
    /// Some session is ended (`pg_terminate_backend`).
    pub session_killed: Fault,
    /// Some backend stands still.
    pub session_frozen: Fault,
    /// A second server starts, and the session that holds the first one's election lock is ended.
    pub takeover: Fault,
    /// The database is stopped and started; or killed and started.
    pub restart: Fault,
    pub crash: Fault,
    /// Somebody's session locks the row that appends lock, and nothing else.
    #[serde(default = "off")]
    pub row_locked: Fault,
    /// The backend that runs the leader's appends stands still, and no other.
    #[serde(default = "off")]
    pub append_hangs: Fault,
    /// It takes no writes.
    pub read_only: Fault,
    /// It takes no new connections.
    pub refuses: Fault,
    /// A replica is promoted, which lags by so much.
    pub promotion: Fault,
    /// Of those: the replica is synchronous, and lacks nothing.
    pub synchronous: Ratio,
    /// Of the others: somebody takes over while it lags, and it lacks that, too.
    pub promotion_after_takeover: Ratio,
    /// For so long the old primary answers beside the new one.
    pub old_primary_ms: [u64; 2],
}

impl DatabasePlan {
    fn draw(seed: u64) -> (StoreKind, DatabasePlan) {
        let mut d = Dice::new(seed, Stream::Store);
        let kind = if d.chance(Ratio::new(1, 2)) { StoreKind::Postgres } else { StoreKind::Sqlite };
        let far = d.chance(Ratio::new(1, 5));
        // Some runs are of statements that last, on connections that do not: what was given up happens all the same.
        let late = d.chance(Ratio::new(1, 4));
        let mut plan = DatabasePlan {
            latency_us: if far { [500, 30_000] } else { [50, 1_500] },
            cut: ratio(&mut d, &[400, 100, 25]),
            cut_answer: ratio(&mut d, &[400, 100, 25]),
            slow_answer: ratio(&mut d, &[200, 40, 8]),
            slow_ms: [50, 2_500],
            silent_death: ratio(&mut d, &[4, 2]),
            statement_timeout_ms: *d.pick(&[1_000, 5_000, 20_000]),
            lock_timeout_ms: *d.pick(&[200, 1_000]),
            idle_in_transaction_ms: *d.pick(&[1_000, 5_000]),
            client_check_ms: *d.pick(&[0, 1_000]),
            stands_still: ratio(&mut d, &[40, 10, 4]),
            still_us: [10, *d.pick(&[2_000, 50_000, 600_000])],
            waits_for_replica: ratio(&mut d, &[10, 3, 1]),
            replica_us: [100, *d.pick(&[5_000, 300_000])],
            session_killed: fault(&mut d, &[60, 20, 6], [0, 0]),
            session_frozen: fault(&mut d, &[60, 20, 8], [50, 8_000]),
            takeover: fault(&mut d, &[60, 20], [0, 0]),
            restart: fault(&mut d, &[60, 15], [100, 3_000]),
            crash: fault(&mut d, &[100, 40], [100, 3_000]),
            row_locked: fault(&mut Dice::new(seed, Stream::RowLock), &[60, 20, 8], [500, 20_000]),
            append_hangs: often(&mut Dice::new(seed, Stream::Hangs), &[60, 20], [1_000, 15_000]),
            read_only: fault(&mut d, &[100, 40], [100, 4_000]),
            refuses: fault(&mut d, &[100, 40], [100, 4_000]),
            promotion: Fault { chance: Ratio::NEVER, shortest_ms: 0, longest_ms: 0 },
            synchronous: Ratio::NEVER,
            promotion_after_takeover: Ratio::NEVER,
            old_primary_ms: [0, 0],
        };
        plan.draw_promotions(&mut Dice::new(seed, Stream::Promotion));
        if late {
            (plan.stands_still, plan.still_us) = (Ratio::new(1, 2), [10_000, 900_000]);
            (plan.waits_for_replica, plan.replica_us) = (Ratio::new(1, 2), [10_000, 900_000]);
            plan.cut = Ratio::new(1, 8);
            plan.session_killed.chance = Ratio::new(1, 2);
            plan.restart = Fault { chance: Ratio::new(1, 8), shortest_ms: 800, longest_ms: 3_000 };
        }
        (kind, plan)
    }
}

impl DatabasePlan {
    fn draw_promotions(&mut self, d: &mut Dice) {
        self.promotion = fault(d, &[40, 15], [1, 1_500]);
        self.synchronous = Ratio::new(1, *d.pick(&[2, 4, 4]));
        self.promotion_after_takeover = Ratio::new(1, *d.pick(&[1, 2, 4]));
        self.old_primary_ms = if d.chance(Ratio::new(1, 2)) { [0, 0] } else { [100, *d.pick(&[1_000, 4_000])] };
    }
}

/// How workers and clients behave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Habits {
    pub task_ms: [u64; 2],
    /// A task takes this much longer.
    pub long_task: Ratio,
    pub long_task_ms: [u64; 2],
    pub task_fails: Ratio,
    /// Of the failures: final, whatever the retries.
    pub task_fails_for_good: Ratio,
    /// A worker that never says what it holds.
    pub silent_worker: Ratio,
    /// A worker that reports by complete and fail, not with its polls.
    pub direct_reports: Ratio,
    /// A result is reported once more after it was acknowledged.
    pub report_twice: Ratio,
    /// A token in a cancel list is worked on all the same.
    pub ignore_cancel: Ratio,
    /// A worker that has two polls under way at once.
    pub two_polls: Ratio,
    /// A report of a delivery that never was.
    pub nonsense: Ratio,
    /// A client cancels rather than reads.
    pub cancel: Ratio,
    /// A client ends an execution at once.
    pub terminate: Ratio,
    /// A client sends a signal or an update, or asks a query.
    pub message: Ratio,
    /// A client that sends a message goes on to talk to that execution, with hardly a pause.
    pub talk: Ratio,
    /// Of the messages with an id: one is sent that was sent before.
    pub repeat_message: Ratio,
    /// A start names its own id.
    pub own_id: Ratio,
    /// A start with an input that lacks something.
    pub bad_input: Ratio,
    /// A start repeats an earlier one.
    pub repeat_start: Ratio,
    /// A client stops waiting for an answer early.
    pub impatient: Ratio,
}

/// A fault that lasts: how often it begins, looked at every [`TICK_MS`], and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub chance: Ratio,
    pub shortest_ms: u64,
    pub longest_ms: u64,
}

impl Fault {
    /// Its bounds.
    pub fn bounds(&self) -> [u64; 2] {
        [self.shortest_ms, self.longest_ms]
    }
}

/// How often the world looks whether a lasting fault begins.
pub const TICK_MS: u64 = 250;

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// The server is killed, and started again after so long.
    pub crash: Fault,
    /// It is killed after some of the effects of one input.
    pub crash_in_step: Ratio,
    /// It is killed when a transaction has committed and the reply is still to come.
    pub crash_after_commit: Ratio,
    /// It is stopped cleanly (SIGTERM), and started again after so long.
    pub stop: Fault,
    /// It stands still (SIGSTOP, a suspended host).
    pub pause: Fault,
    /// A second server takes the database over while the first one lives.
    pub usurp: Fault,
    pub disk_full: Fault,
    pub disk_stall: Fault,
    /// Nothing passes between the server and the others.
    pub network_down: Fault,
    /// The host's wall clock steps back, or forward, by so much.
    pub clock_back: Fault,
    pub clock_forward: Fault,
    pub worker_death: Fault,
    pub worker_pause: Fault,
    /// A worker unregisters and comes back.
    pub worker_leaves: Fault,
    /// The server's timer fires although nothing is due.
    pub early_wake: Ratio,
}

impl Plan {
    /// The options of `seed`.
    pub fn draw(seed: u64) -> Plan {
        let mut d = Dice::new(seed, Stream::Plan);
        let (store, database) = DatabasePlan::draw(seed);
        let session_timeout_ms = d.between([2_000, 6_000]);
        let slow_disk = d.chance(Ratio::new(1, 4));
        let slow_network = d.chance(Ratio::new(1, 4));
        let mut plan = Plan {
            seed,
            chaos_ms: d.between([20_000, 45_000]),
            heal_ms: 240_000,
            least_ms: 60_000,
            least_commits: 100,
            clients: u32::try_from(d.between([1, 4])).expect("small"),
            think_ms: [d.between([1, 50]), d.between([60, 1_000])],
            starts: u32::try_from(d.between([8, 40])).expect("small"),
            workflows: u32::try_from(d.between([1, 5])).expect("small"),
            workers: u32::try_from(d.between([3, 5])).expect("small"),
            server: ServerPlan {
                session_timeout_ms,
                heartbeat_ms: session_timeout_ms / 4,
                check_ms: *d.pick(&[250, 500, 1_000]),
                call_deadline_ms: *d.pick(&[500, 2_000, 10_000]),
                request_deadline_ms: *d.pick(&[300, 2_000, 10_000]),
                max_resident: *d.pick(&[0, 1, 2, 5, 10_000]),
                max_active: *d.pick(&[2, 5, 100_000, 100_000, 100_000, 100_000]),
                max_history: *d.pick(&[20, 60, 50_000, 50_000, 50_000, 50_000, 50_000, 50_000]),
                max_queued: *d.pick(&[1, 3, 10_000, 10_000, 10_000, 10_000]),
                max_payload: *d.pick(&[45, 200, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20]),
                max_fan_out: *d.pick(&[3, 10_000, 10_000, 10_000, 10_000]),
                max_pending: *d.pick(&[1, 2, 1_000, 1_000, 1_000]),
                max_children: *d.pick(&[1, 3, 10_000, 10_000, 10_000, 10_000]),
                max_child_depth: *d.pick(&[1, 2, 8, 8, 8, 8, 8, 8]),
                max_append_groups: *d.pick(&[1, 2, 4, 256]),
                max_append_bytes: *d.pick(&[600, 4_000, 1 << 20]),
                holds: Dice::new(seed, Stream::Recovery).chance(Ratio::new(1, 5)),
                drift_ppm: *d.pick(&[[0, 0], [0, 50], [0, 200]]),
                wall_ahead_ms: wall_ahead(seed),
            },
            cluster: None,
            network: NetworkPlan {
                latency_us: if slow_network { [1_000, 200_000] } else { [50, 2_000] },
                lose_request: ratio(&mut d, &[200, 40, 10]),
                lose_response: ratio(&mut d, &[200, 40, 10]),
                notice: Ratio::new(1, *d.pick(&[1, 2, 8])),
                false_notice: ratio(&mut d, &[200, 50]),
            },
            store,
            database,
            disk: DiskPlan {
                latency_us: if slow_disk { [1_000, 60_000] } else { [100, 4_000] },
                fail: ratio(&mut d, &[200, 40, 8]),
                unknown: ratio(&mut d, &[200, 40, 8]),
                slow: ratio(&mut d, &[200, 40]),
                slow_ms: [100, 3_000],
            },
            habits: Habits {
                task_ms: [1, *d.pick(&[20, 300, 1_500])],
                long_task: ratio(&mut d, &[40, 10]),
                long_task_ms: [1_000, 9_000],
                task_fails: ratio(&mut d, &[20, 6, 3]),
                task_fails_for_good: Ratio::new(1, 6),
                silent_worker: Ratio::new(1, 4),
                direct_reports: Ratio::new(1, 2),
                report_twice: ratio(&mut d, &[20, 4]),
                two_polls: Ratio::new(1, 4),
                nonsense: ratio(&mut d, &[40, 10]),
                ignore_cancel: Ratio::new(1, 3),
                cancel: ratio(&mut d, &[40, 12]),
                terminate: ratio(&mut d, &[60, 20]),
                message: Ratio::new(*d.pick(&[1, 4, 7]), 8),
                talk: ratio(&mut Dice::new(seed, Stream::Talk), &[4, 2, 1]),
                repeat_message: Ratio::new(1, *d.pick(&[3, 8])),
                own_id: Ratio::new(4, 5),
                repeat_start: ratio(&mut d, &[10, 4]),
                bad_input: ratio(&mut d, &[20, 5]),
                impatient: ratio(&mut d, &[20, 6]),
            },
            faults: Faults {
                crash: fault(&mut d, &[100, 30, 12], [50, 2_000]),
                crash_in_step: ratio(&mut d, &[2_000, 500, 150]),
                crash_after_commit: ratio(&mut d, &[400, 100, 40]),
                stop: fault(&mut d, &[100, 40], [50, 2_000]),
                pause: fault(&mut d, &[100, 40], [50, 9_000]),
                usurp: if d.chance(Ratio::new(1, 3)) { fault(&mut d, &[40], [0, 0]) } else { off() },
                disk_full: fault(&mut d, &[80, 30], [100, 4_000]),
                disk_stall: fault(&mut d, &[80, 30], [100, 4_000]),
                network_down: fault(&mut d, &[80, 30], [200, 6_000]),
                clock_back: fault(&mut d, &[60], [1, 20_000]),
                clock_forward: fault(&mut d, &[60], [1, 20_000]),
                worker_death: fault(&mut d, &[60, 20], [100, 8_000]),
                worker_pause: fault(&mut d, &[60, 20], [500, 12_000]),
                worker_leaves: fault(&mut d, &[60, 20], [100, 4_000]),
                early_wake: ratio(&mut d, &[50]),
            },
        };
        plan.cluster = ClusterPlan::draw(seed, store, plan.server.check_ms);
        if plan.cluster.as_ref().is_some_and(|cluster| cluster.lease_ms.is_some()) {
            // What a lease is about: that it is given back, and that it is over before its holder thinks so.
            let mut d = Dice::new(seed, Stream::Lease);
            plan.faults.stop = often(&mut d, &[60, 20, 12], [50, 2_000]);
            plan.faults.clock_forward = often(&mut d, &[60, 20], [1, 20_000]);
        }
        plan
    }
}

/// Off in half of the plans, else one of the rates, each given as *one in so many*.
fn ratio(d: &mut Dice, one_in: &[u32]) -> Ratio {
    let (on, rate) = (d.chance(Ratio::new(1, 2)), *d.pick(one_in));
    if on { Ratio::new(1, rate) } else { Ratio::NEVER }
}

fn fault(d: &mut Dice, one_in: &[u32], [shortest_ms, longest_ms]: [u64; 2]) -> Fault {
    Fault { chance: ratio(d, one_in), shortest_ms, longest_ms }
}

/// Off in a quarter of the plans alone.
fn often(d: &mut Dice, one_in: &[u32], [shortest_ms, longest_ms]: [u64; 2]) -> Fault {
    let (on, rate) = (d.chance(Ratio::new(3, 4)), *d.pick(one_in));
    Fault { chance: if on { Ratio::new(1, rate) } else { Ratio::NEVER }, shortest_ms, longest_ms }
}

/// In a third of the plans, what the clock of each host shows beside the database's.
fn wall_ahead(seed: u64) -> Vec<i64> {
    let mut d = Dice::new(seed, Stream::Skew);
    let (off, most) = (d.chance(Ratio::new(2, 3)), *d.pick(&[300, 5_000, 600_000]));
    let each = |d: &mut Dice| {
        i64::try_from(d.between([0, 2 * most])).expect("minutes") - i64::try_from(most).expect("minutes")
    };
    (0..3).map(|_| each(&mut d)).map(|ms| if off { 0 } else { ms }).collect()
}

fn off() -> Fault {
    Fault { chance: Ratio::NEVER, shortest_ms: 0, longest_ms: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_draws_the_same_plan_and_others_draw_others() {
        assert_eq!(Plan::draw(7), Plan::draw(7));
        assert_ne!(Plan::draw(7), Plan { seed: 7, ..Plan::draw(8) });
    }
}
