//! The failure detector of shared mode (protocols, 19 and 20): who among the others has fallen silent.
//!
//! A server is judged by whether its beats move, by the judge's own monotonic clock; stamps of the database's clock are for
//! people. And a judge that was itself cut off, stood still or saw the database restart knows nothing of the others: what it
//! has watched counts only over a time in which its own beats went through without a gap, on one database. So nobody is
//! declared dead right after an outage, which silenced everybody.

use crate::id::{Incarnation, NodeId};
use crate::store::origin::Origin;
use crate::store::ownership::MarkDead;
use crate::store::statement::{NodeRow, NodeRows};
use crate::time::{ClusterMs, Mono, WallMs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How a server watches the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watching {
    /// How often each server beats (250 ms by default).
    pub interval: Duration,
    /// Whoever has not beaten for so long is gone (`--node-timeout`, 5 s by default, at least eight intervals).
    pub node_timeout: Duration,
    pub rule: SilenceRule,
}

impl Default for Watching {
    fn default() -> Watching {
        Watching {
            interval: Duration::from_millis(250),
            node_timeout: Duration::from_secs(5),
            rule: SilenceRule::Sound,
        }
    }
}

impl Watching {
    /// Beats of one's own that lie further apart than this do not add up: less than the node timeout by what the others may
    /// need to be heard again.
    pub fn gap(&self) -> Duration {
        (self.interval * 4).min(self.node_timeout / 2)
    }
}

/// How silence is judged. All but the first are mistakes, which only simulated servers make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SilenceRule {
    /// By beats that do not move, while one's own go through.
    #[default]
    Sound,
    /// By beats that do not move, whether or not one's own went through meanwhile.
    OverGaps,
    /// By the stamps of the others' beats and the wall clock of the judge's host.
    WallClock,
}

/// What one server has seen of the others. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Detector {
    /// Where its own last beat went through, and when that was sent.
    last: Option<(Option<Origin>, Mono)>,
    watched: BTreeMap<NodeId, Watched>,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    incarnation: Incarnation,
    beats: u64,
    /// Since when it has not moved, as far as was seen.
    since: Mono,
}

impl Detector {
    /// A beat of its own, sent then, went through on this database, and these rows were seen with it. `me` is not watched.
    pub fn beat(
        &mut self,
        watching: &Watching,
        (sent, now): (Mono, Mono),
        origin: Option<Origin>,
        me: Incarnation,
        seen: &NodeRows,
    ) {
        let unbroken = self.last.is_some_and(|(where_, at)| where_ == origin && now.since(at) <= watching.gap());
        if !unbroken && watching.rule != SilenceRule::OverGaps {
            self.watched.clear();
        }
        self.last = Some((origin, sent));
        let mut watched = BTreeMap::new();
        for row in seen.nodes.iter().filter(|row| row.incarnation != me && row.is_there()) {
            let before = self.watched.get(&row.node_id);
            let same = before.filter(|before| (before.incarnation, before.beats) == (row.incarnation, row.beats));
            let fresh = Watched { incarnation: row.incarnation, beats: row.beats, since: now };
            watched.insert(row.node_id.clone(), same.copied().unwrap_or(fresh));
        }
        self.watched = watched;
    }

    /// A beat of its own failed, or nobody knows what became of it, or it had to connect anew, since the database may have been
    /// away: nothing that was watched counts any more.
    pub fn failed(&mut self, watching: &Watching) {
        if watching.rule != SilenceRule::OverGaps {
            self.watched.clear();
            self.last = None;
        }
    }

    /// Those that have fallen silent, by name. The last look at each was sent when it had been silent for that long already.
    pub fn silent(&self, watching: &Watching, wall: WallMs, seen: &NodeRows) -> Vec<MarkDead> {
        if watching.rule == SilenceRule::WallClock {
            return by_wall_clock(watching, wall, seen, &self.watched);
        }
        let Some((_, looked)) = self.last else { return Vec::new() };
        let silent = |(_, watched): &(&NodeId, &Watched)| looked.since(watched.since) >= watching.node_timeout;
        self.watched.iter().filter(silent).map(|(name, watched)| mark(name, watched)).collect()
    }

    /// Until when this server may count on owning what it owns, with its control connection there or gone (protocols, 20).
    /// None before its first beat.
    pub fn own_deadline(&self, watching: &Watching, connected: bool) -> Option<Mono> {
        let (_, sent) = self.last?;
        Some(sent + if connected { watching.node_timeout } else { watching.interval * 2 })
    }
}

fn mark(name: &NodeId, watched: &Watched) -> MarkDead {
    MarkDead { node_id: name.clone(), incarnation: watched.incarnation, beats: watched.beats }
}

fn by_wall_clock(
    watching: &Watching,
    wall: WallMs,
    seen: &NodeRows,
    watched: &BTreeMap<NodeId, Watched>,
) -> Vec<MarkDead> {
    let old = |row: &&NodeRow| ClusterMs(wall.0) - row.heartbeat_ms >= watching.node_timeout;
    let rows = seen.nodes.iter().filter(old);
    rows.filter_map(|row| watched.get(&row.node_id).map(|watched| mark(&row.node_id, watched))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Term;
    use uuid::Uuid;

    const ME: Incarnation = Incarnation(Uuid::from_u128(1));
    const OTHER: Incarnation = Incarnation(Uuid::from_u128(2));
    const HERE: Option<Origin> = Some(Origin { system: 1, timeline: 1 });

    fn row(name: &str, incarnation: Incarnation, beats: u64) -> NodeRow {
        NodeRow {
            node_id: NodeId::new(name),
            incarnation,
            addr: None,
            host: "h".into(),
            pid: 1,
            version: "1".into(),
            role: "shared".into(),
            term: Term(1),
            config_digest: "00".into(),
            clock_offset_ms: 0,
            started_ms: ClusterMs(1),
            beats,
            heartbeat_ms: ClusterMs(1),
            dead: false,
        }
    }

    /// A judge whose beats go through each 250 ms, answered 10 ms after they are sent.
    struct Judge {
        detector: Detector,
        watching: Watching,
        now: Mono,
        seen: NodeRows,
    }

    impl Judge {
        fn new() -> Judge {
            let seen = NodeRows { nodes: vec![row("me", ME, 1)], clock: ClusterMs(1) };
            Judge { detector: Detector::default(), watching: Watching::default(), now: Mono(0), seen }
        }

        fn sees(&mut self, rows: &[NodeRow], origin: Option<Origin>) {
            let sent = self.now;
            self.seen.nodes = rows.to_vec();
            let now = sent + Duration::from_millis(10);
            self.detector.beat(&self.watching, (sent, now), origin, ME, &self.seen);
            self.now = sent + self.watching.interval;
        }

        /// For so long it sees the other at this beat.
        fn watches(&mut self, beats: u64, time: Duration) {
            let until = self.now + time;
            while self.now < until {
                self.sees(&[row("me", ME, 1), row("other", OTHER, beats)], HERE);
            }
        }

        fn silent(&self) -> Vec<MarkDead> {
            self.detector.silent(&self.watching, WallMs(0), &self.seen)
        }
    }

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn whoever_does_not_beat_for_the_node_timeout_is_silent_and_named_by_its_last_beat() {
        let mut judge = Judge::new();
        judge.watches(7, Duration::from_millis(4_900));
        assert_eq!(judge.silent(), []);
        judge.watches(7, Duration::from_millis(600));
        assert_eq!(judge.silent(), [MarkDead { node_id: NodeId::new("other"), incarnation: OTHER, beats: 7 }]);
    }

    #[test]
    fn a_beat_that_moves_begins_it_anew() {
        let mut judge = Judge::new();
        judge.watches(7, Duration::from_millis(4_900));
        judge.watches(8, Duration::from_millis(4_900));
        assert_eq!(judge.silent(), []);
    }

    #[test]
    fn a_judge_whose_own_beats_had_a_gap_or_failed_or_found_another_database_begins_anew() {
        let gap = |judge: &mut Judge| judge.now = judge.now + secs(2);
        let failure = |judge: &mut Judge| judge.detector.failed(&Watching::default());
        let promotion = |judge: &mut Judge| {
            judge.sees(&[row("other", OTHER, 7)], Some(Origin { system: 1, timeline: 2 }));
        };
        let breaks: [&dyn Fn(&mut Judge); 3] = [&gap, &failure, &promotion];
        for (which, breaks) in breaks.into_iter().enumerate() {
            let mut judge = Judge::new();
            judge.watches(7, Duration::from_millis(4_900));
            breaks(&mut judge);
            judge.watches(7, Duration::from_millis(4_900));
            assert_eq!(judge.silent(), [], "{which}");
            judge.watches(7, Duration::from_millis(600));
            assert_eq!(judge.silent().len(), 1, "{which}");
        }
    }

    #[test]
    fn a_slow_answer_shortens_what_was_watched_and_never_lengthens_it() {
        let mut judge = Judge::new();
        judge.watches(7, Duration::from_millis(4_800));
        // Sent before the timeout was over, and answered after.
        let sent = judge.now;
        let rows = NodeRows { nodes: vec![row("other", OTHER, 7)], clock: ClusterMs(1) };
        judge.detector.beat(&judge.watching, (sent, sent + Duration::from_millis(700)), HERE, ME, &rows);
        assert_eq!(judge.silent(), []);
    }

    #[test]
    fn those_that_have_left_or_were_marked_are_not_watched_and_a_stamp_in_the_future_is_no_sign_of_life() {
        let mut judge = Judge::new();
        let left = NodeRow { heartbeat_ms: ClusterMs(0), ..row("left", OTHER, 7) };
        let dead = NodeRow { dead: true, ..row("dead", OTHER, 7) };
        let ahead = NodeRow { heartbeat_ms: ClusterMs(i64::MAX), ..row("ahead", OTHER, 7) };
        while judge.now < Mono(0) + secs(6) {
            judge.sees(&[left.clone(), dead.clone(), ahead.clone()], HERE);
        }
        let names: Vec<String> = judge.silent().iter().map(|mark| mark.node_id.as_str().to_owned()).collect();
        assert_eq!(names, ["ahead"]);
    }

    #[test]
    fn a_server_counts_on_its_trees_from_the_sending_of_its_last_beat_and_for_less_without_its_connection() {
        let mut judge = Judge::new();
        assert_eq!(judge.detector.own_deadline(&judge.watching, true), None);
        judge.sees(&[], HERE);
        let deadline = |connected| judge.detector.own_deadline(&judge.watching, connected);
        assert_eq!(deadline(true), Some(Mono(0) + secs(5)));
        assert_eq!(deadline(false), Some(Mono(0) + Duration::from_millis(500)));
    }
}
