//! The statements of the language on the model.

use super::{Change, Clock, Filter, Got, OnConflict, Op, Order, Table};
use crate::postgres::context::{Context, Found, Inserted, Locked, Policy};
use crate::postgres::engine::{Domain, SessionId};
use crate::postgres::error::{Code, Stop};
use crate::postgres::lock::RowId;
use crate::postgres::table::Strength;

/// The tables of the language.
#[derive(Clone, Debug, Default)]
pub struct Small;

type Key = (Table, i32);
type Rows = Vec<(i32, i32)>;

/// The columns beside the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    pub v: i32,
    pub at_ms: i64,
}

/// A statement under way.
#[derive(Clone, Debug)]
pub struct Program {
    op: Op,
    /// What the snapshot saw and the condition let through; none before the scan.
    candidates: Option<Vec<Found<Key, Cells>>>,
    at: usize,
    /// The row that is locked and about to be written, with what it holds.
    writes: Option<(RowId, i32, Cells)>,
    /// The row that an insert met.
    met: Option<RowId>,
    rows: Rows,
}

impl Program {
    pub fn new(op: Op) -> Program {
        assert!(!op.is_control(), "{op:?} is a command, not a statement");
        Program { op, candidates: None, at: 0, writes: None, met: None, rows: Rows::new() }
    }
}

impl Domain for Small {
    type Key = Key;
    type Row = Cells;
    type Program = Program;
    type Rows = Got;
    type Note = ();

    fn resume(&mut self, program: &mut Program, context: &mut Context<'_, Self>) -> Result<Got, Stop> {
        program.resume(context)
    }

    fn committed(&mut self, _: SessionId, _: Vec<(Key, Option<Cells>)>, _: Vec<()>) {}
}

impl Program {
    fn resume(&mut self, cx: &mut Context<'_, Small>) -> Result<Got, Stop> {
        match self.op.clone() {
            Op::Read(table, filter) => {
                let rows = scan(cx, table, &filter);
                Ok(Got::Rows(rows.iter().map(|f| (f.key.1, f.value.v)).collect()))
            }
            Op::Lock { table, filter, strength, policy, order, limit } => {
                self.find(cx, table, &filter, order);
                self.lock(cx, &filter, strength, policy, limit)?;
                Ok(Got::Rows(std::mem::take(&mut self.rows)))
            }
            Op::Update(table, filter, change) => {
                cx.may_write()?;
                self.find(cx, table, &filter, Order::Id);
                self.write(cx, &filter, Some(change))?;
                Ok(Got::Rows(std::mem::take(&mut self.rows)))
            }
            Op::Delete(table, filter) => {
                cx.may_write()?;
                self.find(cx, table, &filter, Order::Id);
                self.write(cx, &filter, None)?;
                Ok(Got::Rows(std::mem::take(&mut self.rows)))
            }
            Op::Insert(table, id, v, conflict) => self.insert(cx, (table, id), v, conflict),
            Op::Advisory { key, shared, scope, wait: true } => {
                cx.advisory_lock(key.into(), shared, scope).map(|()| Got::Done)
            }
            Op::Advisory { key, shared, scope, wait: false } => {
                Ok(Got::Flag(cx.try_advisory_lock(key.into(), shared, scope)))
            }
            Op::Unlock { key, shared } => Ok(Got::Flag(cx.advisory_unlock(key.into(), shared))),
            Op::Sleep(ms) => cx.sleep(ms.into()).map(|()| Got::Done),
            Op::Fail => Err(Stop::error(Code::DivisionByZero)),
            Op::Begin | Op::Commit | Op::Rollback | Op::Set(_) => unreachable!("a command, not a statement"),
        }
    }

    fn find(&mut self, cx: &mut Context<'_, Small>, table: Table, filter: &Filter, order: Order) {
        if self.candidates.is_none() {
            let mut found = scan(cx, table, filter);
            if order == Order::V {
                found.sort_by_key(|f| (f.value.v, f.key.1));
            }
            self.candidates = Some(found);
        }
    }

    fn next(&self) -> Option<Found<Key, Cells>> {
        self.candidates.as_ref().expect("scanned").get(self.at).cloned()
    }

    fn lock(
        &mut self,
        cx: &mut Context<'_, Small>,
        filter: &Filter,
        strength: Strength,
        policy: Policy,
        limit: Option<u32>,
    ) -> Result<(), Stop> {
        while let Some(found) = self.next() {
            if limit.is_some_and(|limit| self.rows.len() >= limit as usize) {
                break;
            }
            let locked = cx.lock(&found, strength, policy)?;
            self.at += 1;
            if let Some(value) = current(cx, filter, &found, locked) {
                self.rows.push((found.key.1, value.v));
            }
        }
        Ok(())
    }

    fn write(&mut self, cx: &mut Context<'_, Small>, filter: &Filter, change: Option<Change>) -> Result<(), Stop> {
        let strength = if change.is_some() { Strength::NoKeyUpdate } else { Strength::Update };
        loop {
            if let Some((row, id, mut value)) = self.writes {
                cx.before_it_writes()?;
                self.writes = None;
                match change {
                    Some(Change::V(v)) => value.v = v,
                    Some(Change::Add(by)) => value.v += by,
                    Some(Change::Lease(ms)) => value.at_ms = cx.clock_ms() + i64::from(ms),
                    None => {}
                }
                if change.is_some() {
                    cx.update(row, value)?;
                } else {
                    cx.delete(row)?;
                }
                self.rows.push((id, value.v));
            }
            let Some(found) = self.next() else { return Ok(()) };
            // It has a number from the first row on that it finds, changed or not.
            cx.writes()?;
            let locked = cx.lock_to_write(&found, strength)?;
            self.at += 1;
            self.writes = current(cx, filter, &found, locked).map(|value| (found.row, found.key.1, value));
        }
    }

    fn insert(&mut self, cx: &mut Context<'_, Small>, key: Key, v: i32, conflict: OnConflict) -> Result<Got, Stop> {
        if conflict == OnConflict::Fail {
            cx.writes()?;
        }
        loop {
            let met = match self.met {
                Some(row) => row,
                None => {
                    cx.before_it_inserts(&key)?;
                    match cx.insert(&key, || Cells { v, at_ms: 0 })? {
                        Inserted::Done => return Ok(Got::Rows(vec![(key.1, v)])),
                        Inserted::Exists(row) => row,
                    }
                }
            };
            let only_if = match conflict {
                OnConflict::Fail => return Err(Context::<Small>::unique_violation()),
                OnConflict::Nothing => return Ok(Got::Rows(Rows::new())),
                OnConflict::Add { only_if } => only_if,
            };
            self.met = Some(met);
            let locked = cx.lock_conflicting(met, Strength::NoKeyUpdate)?;
            self.met = None;
            if locked == Locked::Gone {
                continue;
            }
            let mut value = *cx.newest(met);
            if only_if.is_some_and(|v| v != value.v) {
                return Ok(Got::Rows(Rows::new()));
            }
            value.v += v;
            cx.update(met, value)?;
            return Ok(Got::Rows(vec![(key.1, value.v)]));
        }
    }
}

/// The value to go on with; none where the row is left out.
fn current(
    cx: &mut Context<'_, Small>,
    filter: &Filter,
    found: &Found<Key, Cells>,
    locked: Locked<Cells>,
) -> Option<Cells> {
    match locked {
        Locked::Same => Some(found.value),
        Locked::Newer(value) => holds(cx, filter, found.key.1, &value).then_some(value),
        Locked::Gone | Locked::Skipped => None,
    }
}

fn scan(cx: &mut Context<'_, Small>, table: Table, filter: &Filter) -> Vec<Found<Key, Cells>> {
    let found = cx.scan((table, filter.ids.0)..=(table, filter.ids.1));
    found.into_iter().filter(|f| holds(cx, filter, f.key.1, &f.value)).collect()
}

fn holds(cx: &mut Context<'_, Small>, filter: &Filter, id: i32, cells: &Cells) -> bool {
    let live = match filter.live {
        None => true,
        Some(Clock::Transaction) => cells.at_ms > cx.now_ms(),
        Some(Clock::Wall) => cells.at_ms > cx.clock_ms(),
    };
    // Another table is looked at as the statement's snapshot saw it, also when a row is looked at again (R3).
    let other = filter.other.is_none_or(|(id, v)| cx.get(&(Table::B, id)).is_some_and(|f| f.value.v == v));
    (filter.ids.0..=filter.ids.1).contains(&id) && filter.v.is_none_or(|v| v == cells.v) && live && other
}
