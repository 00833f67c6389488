//! Ownership in shared mode as far as the store knows it (design, section 9; protocols, 16 and 17): writers that begin trees,
//! append to them and end them, hand them over, die, stand still, come back under their names, are declared dead while they
//! live, and take what the dead owned. All transactions are those of `core`; they run on the model of PostgreSQL statement
//! by statement, in an order that the seed draws, with backends that stand still or live on after their clients are gone.
//!
//! After every commit, [`OwnersCheck`] says whether each tree had one writer. At the end, when the faults are over, nothing
//! may be left that nobody who lives owns.

mod lane;
mod writer;

use crate::check::owners::{OwnersCheck, SilenceCheck};
use crate::check::{Checked, Violation};
use crate::postgres::engine::Engine;
use crate::postgres::store::{Orbit, Pace, database};
use crate::rng::{Dice, Ratio, Stream};
use crate::store::Change;
use orbit_core::cluster::detector::{SilenceRule, Watching};
use orbit_core::id::{ClusterId, Incarnation, NodeId};
use orbit_core::store::ownership::TakeRule;
use std::collections::BTreeMap;
use std::time::Duration;
use writer::{How, Writer};

/// How a run goes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub writers: usize,
    /// So many steps with faults, and as many at most without.
    pub steps: u32,
    /// How trees are taken: but for the first rule, a planted mistake.
    pub rule: TakeRule,
    pub suspicion: Suspicion,
}

/// Whom a writer declares dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// Anybody, whenever it likes: it may be wrong, and nothing bad comes of it.
    Wild,
    /// Those whom the failure detector finds silent, which is never wrong while the database answers. But for the first
    /// rule, a planted mistake.
    Detector(SilenceRule),
}

/// How the detector watches here: time is short.
const WATCHING: Watching =
    Watching { interval: Duration::from_millis(100), node_timeout: Duration::from_secs(1), rule: SilenceRule::Sound };

impl Default for Plan {
    fn default() -> Plan {
        Plan { writers: 3, steps: 6_000, rule: TakeRule::Sound, suspicion: Suspicion::Wild }
    }
}

/// What happened in a run, by name.
pub type Figures = BTreeMap<&'static str, u64>;

/// Runs one seed.
///
/// # Errors
///
/// What a check found, and when.
pub fn run(seed: u64, plan: Plan) -> Result<Figures, Violation> {
    let mut run = Run::new(seed, plan);
    run.go().map_err(|violation| {
        let message = format!("step {}: {}", run.step, violation.message);
        Violation { message, ..violation }
    })?;
    Ok(run.figures)
}

struct Run {
    plan: Plan,
    engine: Engine<Orbit>,
    dice: Dice,
    writers: Vec<Writer>,
    check: OwnersCheck,
    silence: SilenceCheck,
    /// When the database is up again.
    down_until: Option<u64>,
    figures: Figures,
    step: u32,
}

impl Run {
    fn new(seed: u64, plan: Plan) -> Run {
        let mut dice = Dice::new(seed, Stream::Database);
        let pace = Pace { stands_still: Ratio::new(1, 3), us: [10, 30_000], ..Pace::NONE };
        let mut engine = database(ClusterId(dice.uuid()), pace, Dice::new(seed, Stream::Disk)).by_hand();
        engine.set_clock_ms(1_775_000_000_000);
        let name = |place: usize| NodeId::new(format!("node-{place}"));
        let mut writer = |place| {
            let skew_ms = dice.below(6_000) as i64 - 3_000;
            Writer::new(name(place), Incarnation(dice.uuid()), skew_ms)
        };
        let writers = (0..plan.writers).map(&mut writer).collect();
        let (check, silence, figures) = (OwnersCheck::default(), SilenceCheck::default(), Figures::new());
        Run { plan, engine, dice, writers, check, silence, down_until: None, figures, step: 0 }
    }

    fn go(&mut self) -> Checked {
        while self.step < self.plan.steps {
            self.step += 1;
            match self.dice.weighted(&[60, 30, 8, 1]) {
                0 => self.runs()?,
                1 => self.acts(true)?,
                2 => {
                    let us = 1 + self.dice.below(20_000);
                    self.passes(us)?;
                }
                _ => self.breaks()?,
            }
        }
        self.heals()
    }

    /// One backend goes on.
    fn runs(&mut self) -> Checked {
        let runnable = self.engine.runnable();
        if runnable == 0 {
            return self.passes(1_000);
        }
        let at = usize::try_from(self.dice.below(runnable as u64)).expect("few");
        self.engine.step_of(at);
        self.settles()
    }

    fn passes(&mut self, us: u64) -> Checked {
        self.engine.advance(self.engine.now_us() + us);
        if self.down_until.is_some_and(|until| until <= self.engine.now_us()) {
            self.down_until = None;
            self.engine.open();
        }
        self.silence.passes(us, self.engine.is_up());
        self.settles()
    }

    /// One writer does something, if it is free to.
    fn acts(&mut self, wild: bool) -> Checked {
        let at = usize::try_from(self.dice.below(self.writers.len() as u64)).expect("few");
        let others: Vec<_> = self.writers.iter().filter_map(Writer::identity).collect();
        let suspicion = match self.plan.suspicion {
            // When the faults are over it is known who is gone.
            Suspicion::Wild if !wild => None,
            suspicion => Some(suspicion),
        };
        let how = How { rule: self.plan.rule, suspicion, others: &others };
        self.writers[at].acts(&mut self.engine, &mut self.dice, how, &mut self.figures);
        self.settles()
    }

    /// A fault: a process dies or stands still, a session is ended, a backend stands still.
    fn breaks(&mut self) -> Checked {
        let at = usize::try_from(self.dice.below(self.writers.len() as u64)).expect("few");
        let writer = &mut self.writers[at];
        match self.dice.below(6) {
            0 => {
                *self.figures.entry("crash").or_default() += 1;
                writer.crash(&mut self.engine, Incarnation(self.dice.uuid()));
            }
            1 | 2 => {
                *self.figures.entry("standstill").or_default() += 1;
                let until = self.engine.now_us() + self.dice.between([1_000, 3_000_000]);
                writer.stand_still(until);
            }
            3 => {
                *self.figures.entry("session ended").or_default() += 1;
                writer.end_a_session(&mut self.engine, &mut self.dice);
            }
            4 => {
                if self.engine.is_up() {
                    *self.figures.entry("database away").or_default() += 1;
                    self.engine.crash();
                    self.down_until = Some(self.engine.now_us() + self.dice.between([10_000, 1_500_000]));
                }
            }
            _ => {
                *self.figures.entry("backend stood still").or_default() += 1;
                writer.freeze_or_thaw(&mut self.engine, &mut self.dice);
            }
        }
        self.settles()
    }

    /// Takes what was committed to the check, and what was answered to the writers.
    fn settles(&mut self) -> Checked {
        let done = std::mem::take(&mut self.engine.domain.done);
        for commit in &done {
            for change in &commit.changes {
                let name = match change {
                    Change::TreeTaken { reason, .. } => match reason {
                        orbit_core::store::ownership::TakeReason::Orphaned => "tree taken over",
                        orbit_core::store::ownership::TakeReason::HandedOver => "tree handed over",
                    },
                    Change::MembersTaken { .. } => "members followed",
                    Change::MarkedDead { .. } => "marked dead",
                    Change::Group { .. } => "group",
                    _ => continue,
                };
                *self.figures.entry(name).or_default() += 1;
            }
            self.check.on_commit(&commit.changes)?;
            let by_detector = self.plan.suspicion != Suspicion::Wild;
            self.silence.on_commit(&commit.changes, by_detector.then_some(WATCHING.node_timeout))?;
        }
        if !done.is_empty() {
            self.check.on_rows(&self.engine.domain.store)?;
        }
        for (session, outcome) in self.engine.take_answers() {
            let writer = self.writers.iter_mut().find(|writer| writer.has(session));
            if let Some(writer) = writer {
                writer.answered(&mut self.engine, session, outcome, &mut self.figures);
            }
        }
        Ok(())
    }

    /// The faults are over, and the first writer stays dead: what it owned is owned by those who live, before long.
    fn heals(&mut self) -> Checked {
        for writer in &mut self.writers {
            writer.heal(&mut self.engine);
        }
        self.down_until = None;
        self.engine.open();
        let last = Incarnation(self.dice.uuid());
        self.writers[0].crash(&mut self.engine, last);
        self.writers[0].stand_still(u64::MAX);
        for _ in 0..self.plan.steps * 4 {
            self.step += 1;
            match self.dice.weighted(&[60, 30, 10]) {
                0 => self.runs()?,
                1 => self.acts(false)?,
                _ => self.passes(10_000)?,
            }
            if self.all_is_owned() {
                return Ok(());
            }
        }
        let orphans = self.engine.domain.store.owners().iter().find(|(_, row)| !self.lives(row.incarnation));
        Err(Violation::liveness("owners", format!("nobody takes what the dead owned: {orphans:?}")))
    }

    fn lives(&self, incarnation: Incarnation) -> bool {
        self.writers.iter().skip(1).any(|writer| writer.identity().is_some_and(|(_, mine)| mine == incarnation))
    }

    fn all_is_owned(&self) -> bool {
        self.engine.domain.store.owners().values().all(|row| self.lives(row.incarnation))
    }
}
