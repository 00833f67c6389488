//! A small world in which nothing goes wrong by itself: what scenarios that are written by hand begin with.

use super::{ClusterPlan, DatabasePlan, DiskPlan, Faults, Habits, NetworkPlan, Plan, ServerPlan, StoreKind, off};
use crate::rng::Ratio;

impl ClusterPlan {
    /// Two servers that elect by the lock.
    pub fn quiet() -> ClusterPlan {
        ClusterPlan {
            servers: 2,
            validity_ms: 1_500,
            slice_ms: 2_000,
            exits: false,
            session_timeout_ms: 5_000,
            lease_ms: None,
            skew_ms: 0,
        }
    }
}

impl Plan {
    /// See the module's documentation. Beside the seed nothing in it is drawn.
    pub fn quiet(seed: u64) -> Plan {
        let never = Ratio::NEVER;
        Plan {
            seed,
            chaos_ms: 20_000,
            heal_ms: 240_000,
            clients: 1,
            think_ms: [50, 400],
            starts: 10,
            workflows: 2,
            workers: 1,
            server: ServerPlan {
                session_timeout_ms: 4_000,
                heartbeat_ms: 1_000,
                check_ms: 500,
                call_deadline_ms: 2_000,
                request_deadline_ms: 5_000,
                max_resident: 10_000,
                max_active: 100_000,
                max_history: 50_000,
                max_queued: 10_000,
                max_payload: 1 << 20,
                max_fan_out: 10_000,
                max_pending: 1_000,
                max_children: 10_000,
                max_child_depth: 8,
                max_append_groups: 256,
                max_append_bytes: 1 << 20,
                drift_ppm: [0, 0],
            },
            cluster: None,
            network: NetworkPlan {
                latency_us: [200, 2_000],
                lose_request: never,
                lose_response: never,
                notice: Ratio::new(1, 1),
                false_notice: never,
            },
            store: StoreKind::Postgres,
            disk: DiskPlan {
                latency_us: [100, 2_000],
                fail: never,
                unknown: never,
                slow: never,
                slow_ms: [100, 3_000],
            },
            database: DatabasePlan {
                latency_us: [100, 1_000],
                cut: never,
                cut_answer: never,
                slow_answer: never,
                slow_ms: [50, 2_500],
                silent_death: never,
                statement_timeout_ms: 5_000,
                lock_timeout_ms: 1_000,
                idle_in_transaction_ms: 5_000,
                client_check_ms: 1_000,
                stands_still: never,
                still_us: [10, 2_000],
                waits_for_replica: never,
                replica_us: [100, 5_000],
                session_killed: off(),
                session_frozen: off(),
                takeover: off(),
                restart: off(),
                crash: off(),
                read_only: off(),
                refuses: off(),
                promotion: off(),
                synchronous: never,
                promotion_after_takeover: never,
                old_primary_ms: [0, 0],
            },
            habits: Habits {
                task_ms: [1, 100],
                long_task: never,
                long_task_ms: [1_000, 9_000],
                task_fails: never,
                task_fails_for_good: never,
                silent_worker: never,
                direct_reports: never,
                report_twice: never,
                ignore_cancel: never,
                two_polls: never,
                nonsense: never,
                cancel: never,
                terminate: never,
                message: never,
                talk: never,
                repeat_message: never,
                own_id: Ratio::new(1, 1),
                bad_input: never,
                repeat_start: never,
                impatient: never,
            },
            faults: Faults {
                crash: off(),
                crash_in_step: never,
                crash_after_commit: never,
                stop: off(),
                pause: off(),
                usurp: off(),
                disk_full: off(),
                disk_stall: off(),
                network_down: off(),
                clock_back: off(),
                clock_forward: off(),
                worker_death: off(),
                worker_pause: off(),
                worker_leaves: off(),
                early_wake: never,
            },
        }
    }
}
