//! Random interleavings of the real transactions: two to four nodes run them through `io`'s own stores, each behind a
//! proxy that stops it at every message, on a real PostgreSQL, and on the model: replies, who waits for whom, and the
//! tables in the end.
//!
//! `CONFORMANCE_TRANSACTIONS=a..b` (half open) runs others than the usual seeds. As with the primitive operations, the
//! server is left to come to rest after each step, and the model goes on in every order.

mod model;
mod real;

use crate::histogram::{Hits, Runs};
use crate::plan::{self, About, Planned};
use crate::real::rest::Telling;
use crate::without_clock;
use model::Model;
use orbit_core::cluster::{Elected, Mode};
use orbit_core::id::{Incarnation, Term};
use orbit_core::store::append::{Fence, GroupOutcome, Rejection};
use orbit_core::store::outcome::{Failure, Reply};
use orbit_core::store::statement::Rows;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_sim::rng::{Dice, Ratio, Stream};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use real::{Change, Circumstances, Nodes};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use uuid::Uuid;

/// The share that every test run looks at.
const SEEDS: Range<u64> = 0..96;
/// So many seeds in a row run on the same database.
const BLOCK: u64 = 48;
/// The lock time-out of a hasty node, in milliseconds.
const HASTY_MS: u64 = 100;
/// How many servers the model may be at once.
const MODELS: usize = 500;

/// The writer that everybody is, but for those who come from the past.
const WRITER: Fence = Fence { term: Term(1), incarnation: Incarnation(Uuid::from_u128(1 << 64 | 1)) };

/// What a node is about to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Statement,
    /// COMMIT, or what ends a statement that stands alone.
    Commit,
    Rollback,
}

/// How a node stands when all have come to rest.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // a few at a time
enum Stands {
    /// It is held before this message.
    Before(Next),
    /// It waits for these nodes.
    Waits(Vec<u32>),
    /// It has its reply, and its statements have given this.
    Replied(Reply<Verdict>, Vec<Rows>),
}

/// A reply without what may differ: clocks, and the database's own words.
fn normal(reply: Reply<Verdict>) -> Reply<Verdict> {
    match without_clock(reply) {
        Reply::Failed(Failure { kind, .. }) => Reply::Failed(Failure { kind, message: String::new() }),
        Reply::Done(Verdict::Append(mut outcomes)) => {
            for outcome in &mut outcomes {
                if let GroupOutcome::Rejected(Rejection::Refused { message }) = outcome {
                    message.clear();
                }
            }
            Reply::Done(Verdict::Append(outcomes))
        }
        other => other,
    }
}

#[derive(Clone, Debug)]
enum Move {
    Begin(u32, Box<Transaction>),
    Step(u32),
    Terminate(u32),
}

/// A run of one seed on both.
struct Run<'a, 'b> {
    dice: Dice,
    /// What is begun yet, the last one first.
    steps: Vec<plan::Step>,
    planned: Planned,
    /// What the real server may be.
    models: Vec<Model>,
    real: &'a mut Nodes<'b>,
    nodes: u32,
    stands: BTreeMap<u32, Stands>,
    hits: Hits,
    log: Vec<String>,
}

/// Why the two are not the same.
type Same = Result<(), String>;

impl<'a, 'b> Run<'a, 'b> {
    fn new(seed: u64, real: &'a mut Nodes<'b>) -> Run<'a, 'b> {
        let mut dice = Dice::new(seed, Stream::Plan);
        let nodes = dice.between([2, 4]) as u32;
        let hasty = dice.chance(Ratio::new(1, 6)).then(|| dice.between([1, u64::from(nodes)]) as u32);
        let about = [About::Lock, About::Lease, About::Mode, About::Owners][usize::try_from(seed % 4).expect("small")];
        let (mode, election) = match about {
            About::Lock | About::Mode => (Mode::Single, Elected::Lock),
            About::Lease => (Mode::Standby, Elected::Lease),
            About::Owners => (Mode::Shared, Elected::Lock),
        };
        real.begin_again(nodes, hasty, WRITER, (mode, election));
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let count = dice.between([6, 14]);
        let meeting = plan::meeting(about);
        let steps = (0..count).map(|_| meeting.new_tree(&mut runner).expect("a step").current());
        let steps = steps.chain([plan::beginning(about)]).collect();
        let models = vec![Model::new(real.cluster_id(), WRITER, (mode, election), hasty)];
        let log = vec![format!("{nodes} nodes, about the {about:?}, hasty: {hasty:?}")];
        let (planned, stands, hits) = (Planned::default(), BTreeMap::new(), Hits::default());
        Run { dice, steps, planned, models, real, nodes, stands, hits, log }
    }

    fn play(mut self) -> (Same, Hits) {
        let same = self.play_all().map_err(|d| format!("{d}\n  {}", self.log.join("\n  ")));
        // What the models did that is left: they are what was seen.
        let counts = self.models.first().map(Model::counts).unwrap_or_default();
        self.hits.deadlock |= counts.deadlocks > 0;
        self.hits.recheck |= counts.rechecks > 0;
        self.hits.skip |= counts.skips > 0;
        self.hits.unique_wait |= counts.unique_waits > 0;
        self.hits.time_out |= counts.timeouts > 0;
        (same, self.hits)
    }

    fn play_all(&mut self) -> Same {
        // Alone, so that there is something to meet at.
        let beginning = self.steps.pop().expect("a beginning");
        let beginning = self.planned.resolve(beginning, self.models[0].store()).expect("a transaction");
        self.takes(Move::Begin(1, Box::new(beginning)))?;
        while let Some(Stands::Before(_)) = self.stands.get(&1) {
            self.takes(Move::Step(1))?;
        }
        while let Some(next) = self.draw() {
            self.takes(next)?;
        }
        let real = self.real.dump();
        if self.models.iter().all(|model| model.store().dump() != real) {
            let model = self.models[0].store().dump();
            return Err(format!("the tables are {real:#} on PostgreSQL, and on the model {model:#}"));
        }
        Ok(())
    }

    fn draw(&mut self) -> Option<Move> {
        let stand = |fits: fn(Option<&Stands>) -> bool| -> Vec<u32> {
            (1..=self.nodes).filter(|node| fits(self.stands.get(node))).collect()
        };
        let idle = stand(|stands| matches!(stands, None | Some(Stands::Replied(..))));
        let paused = stand(|stands| matches!(stands, Some(Stands::Before(_))));
        let busy = stand(|stands| matches!(stands, Some(Stands::Before(_) | Stands::Waits(_))));
        if !busy.is_empty() && self.dice.chance(Ratio::new(1, 60)) {
            self.hits.death = true;
            return Some(Move::Terminate(*self.dice.pick(&busy)));
        }
        while !idle.is_empty() && (paused.is_empty() || self.dice.chance(Ratio::new(1, 2))) {
            let Some(step) = self.steps.pop() else { break };
            let Some(transaction) = self.planned.resolve(step, self.models[0].store()) else { continue };
            // Mostly by the one that has the election lock.
            let again = matches!(transaction, Transaction::Campaign(_) | Transaction::SetMode(_))
                && self.dice.chance(Ratio::new(2, 3));
            let node = if again && idle.contains(&1) { 1 } else { *self.dice.pick(&idle) };
            return Some(Move::Begin(node, Box::new(transaction)));
        }
        if paused.is_empty() { None } else { Some(Move::Step(*self.dice.pick(&paused))) }
    }

    fn takes(&mut self, next: Move) -> Same {
        self.log.push(match &next {
            Move::Begin(node, transaction) => format!("Begin({node}, {transaction:?})"),
            other => format!("{other:?}"),
        });
        for model in &mut self.models {
            match &next {
                Move::Begin(node, transaction) => model.begin(*node, (**transaction).clone()),
                Move::Step(node) => model.step(*node),
                Move::Terminate(node) => model.terminate(*node),
            }
        }
        match next {
            Move::Begin(node, transaction) => self.real.begin(node, *transaction),
            Move::Step(node) => self.real.step(node),
            Move::Terminate(node) => self.real.terminate(node),
        }
        let mut models = Model::at_rest(std::mem::take(&mut self.models))?;
        let before = std::mem::replace(&mut self.stands, self.real.rest()?);
        let changed = self.stands.iter().filter(|(node, stands)| before.get(node) != Some(stands));
        self.log.extend(changed.map(|(node, stands)| format!("    {node}: {stands:?}")));
        self.hits.blocked |= self.stands.values().any(|stands| matches!(stands, Stands::Waits(_)));
        let could: Vec<_> = models.iter().map(Model::stands).collect();
        let (real, mut at) = (&self.stands, could.iter());
        models.retain(|_| at.next() == Some(real));
        if models.is_empty() {
            let could: BTreeSet<String> = could.iter().map(|stands| format!("{stands:?}")).collect();
            let could: Vec<String> = could.into_iter().take(8).collect();
            return Err(format!("PostgreSQL says {:?}\n  the model could say\n  {}", self.stands, could.join("\n  ")));
        }
        if models.len() > MODELS {
            return Err(format!("the model could be {} servers", models.len()));
        }
        self.models = models;
        Ok(())
    }
}

/// Runs seeds, those of a block on one database.
fn of_seeds<'a>(telling: &'a Telling, change: Option<Change>) -> impl FnMut(u64) -> (Same, Hits) + 'a {
    let mut nodes: Option<(u64, Nodes<'_>)> = None;
    move |seed| {
        let block = seed / BLOCK;
        nodes = nodes.take().filter(|(of, _)| *of == block);
        let circumstances = Circumstances::of(block);
        let (_, on) = nodes.get_or_insert_with(|| (block, Nodes::new(telling, circumstances, change)));
        let (same, hits) = Run::new(seed, on).play();
        if same.is_err() {
            // They stand wherever they were.
            nodes = None;
        }
        (same.map_err(|difference| format!("{circumstances:?}: {difference}")), hits)
    }
}

#[test]
fn interleavings_of_the_real_transactions_are_the_same_on_the_model_and_on_postgresql() {
    let telling = Telling::start();
    let (what, variable) = ("real transactions", "CONFORMANCE_TRANSACTIONS");
    let histogram = Runs { what, variable, usual: SEEDS, in_a_row: BLOCK }.run(|| of_seeds(&telling, None));
    // Rows are locked in one order everywhere (protocols, 5).
    histogram.hold_to(Some(Hits::DEADLOCK));
}

/// What must not become of `io`'s statements, as the proxy changes them on their way.
const CHANGES: [(&str, Change); 5] = [
    ("the fence is no lock that a takeover waits for", ("WHERE id = 1 FOR SHARE", "WHERE id = 1 FOR KEY SHARE")),
    ("the fence is only read", ("FROM orbit_cluster WHERE id = 1 FOR SHARE", "FROM orbit_cluster WHERE id = 1")),
    ("an append waits for rows", ("x.execution_id = w.id FOR UPDATE SKIP LOCKED", "x.execution_id = w.id FOR UPDATE")),
    ("a claim waits for rows", ("LIMIT k.room FOR UPDATE SKIP LOCKED", "LIMIT k.room FOR UPDATE")),
    (
        "one that is there fails its neighbours",
        ("ON CONFLICT DO NOTHING RETURNING execution_id", "RETURNING execution_id"),
    ),
];

#[test]
fn each_deliberate_change_of_a_real_transaction_is_caught() {
    let telling = Telling::start();
    let mut missed = Vec::new();
    for (what, change) in CHANGES {
        let mut play = of_seeds(&telling, Some(change));
        match (0..SEEDS.end).find_map(|seed| play(seed).0.err().map(|difference| (seed, difference))) {
            Some((seed, difference)) => {
                drop(play);
                of_seeds(&telling, None)(seed).0.expect("without the change, that seed is the same on both");
                println!("{what}: caught by seed {seed}: {}", difference.lines().next().unwrap_or_default());
            }
            None => missed.push(what),
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
