//! Rows and their versions, the locks on them, and what a snapshot sees (postgres-rules, R1, R8).

use super::lock::{Mode, RowId, Xid};
use std::collections::BTreeMap;
use std::ops::RangeBounds;

/// The four strengths of a lock on a row, weakest first (R8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    KeyShare,
    Share,
    /// What an UPDATE that changes no key takes.
    NoKeyUpdate,
    /// What a DELETE takes.
    Update,
}

impl Strength {
    /// Whether two transactions cannot have these at once.
    pub fn conflicts(self, other: Strength) -> bool {
        use Strength::*;
        match (self.min(other), self.max(other)) {
            (KeyShare, with) => with == Update,
            (Share, with) => with >= NoKeyUpdate,
            (NoKeyUpdate | Update, _) => true,
        }
    }

    /// How it stands in the line of those who wait for the row.
    pub fn in_line(self) -> Mode {
        match self {
            Strength::KeyShare => Mode::AccessShare,
            Strength::Share => Mode::RowShare,
            Strength::NoKeyUpdate => Mode::Exclusive,
            Strength::Update => Mode::AccessExclusive,
        }
    }
}

/// The place of a commit in the order of all commits.
pub type Csn = u64;

/// Who made a version, or ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub xid: Xid,
    /// In which statement of its transaction.
    pub command: u32,
    /// None while the transaction is in progress. What an aborted one did is taken back at once.
    pub committed: Option<Csn>,
}

/// One version of a row.
#[derive(Clone, Debug)]
pub struct Version<R> {
    pub id: u32,
    pub value: R,
    pub made: Mark,
    pub ended: Option<Mark>,
    /// What ended it lets key shares pass: an update by one who had not locked the row for more.
    pub keeps_key: bool,
}

/// A row: versions, oldest first, and who has it locked.
#[derive(Clone, Debug)]
pub struct Row<K, R> {
    pub key: K,
    pub versions: Vec<Version<R>>,
    pub locks: Vec<(Xid, Strength)>,
    next_version: u32,
}

impl<K, R> Row<K, R> {
    pub fn newest(&self) -> &Version<R> {
        self.versions.last().expect("a row without versions is removed")
    }

    pub fn version(&self, id: u32) -> &Version<R> {
        self.versions.iter().find(|v| v.id == id).expect("a version that somebody looks at stays")
    }

    /// Those whose lock, or whose writing, keeps `me` from locking it so, by number.
    pub fn holders(&self, me: Option<Xid>, strength: Strength) -> Vec<Xid> {
        let others = self.locks.iter().filter(|(xid, held)| Some(*xid) != me && held.conflicts(strength));
        let mut holders: Vec<Xid> = others.map(|(xid, _)| *xid).collect();
        holders.sort();
        holders.dedup();
        holders
    }

    pub fn is_locked_by(&self, xid: Xid) -> bool {
        self.locks.iter().any(|(x, _)| *x == xid)
    }
}

/// What a statement sees: the commits up to one, and what its own transaction did in earlier statements.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    pub upto: Csn,
    pub own: Option<Xid>,
    pub command: u32,
}

impl Snapshot {
    fn has(&self, mark: &Mark) -> bool {
        match mark.committed {
            Some(csn) => csn <= self.upto,
            None => Some(mark.xid) == self.own && mark.command < self.command,
        }
    }

    /// Whether it sees this version.
    pub fn sees<R>(&self, version: &Version<R>) -> bool {
        self.has(&version.made) && !version.ended.as_ref().is_some_and(|m| self.has(m))
    }
}

/// All tables: a key names its table too.
#[derive(Clone, Debug)]
pub struct Tables<K, R> {
    rows: BTreeMap<RowId, Row<K, R>>,
    /// Several rows where one was deleted and another inserted.
    index: BTreeMap<K, Vec<RowId>>,
    last: u64,
}

impl<K: Ord + Clone, R> Default for Tables<K, R> {
    fn default() -> Self {
        Tables { rows: BTreeMap::new(), index: BTreeMap::new(), last: 0 }
    }
}

impl<K: Ord + Clone, R> Tables<K, R> {
    pub fn row(&self, row: RowId) -> &Row<K, R> {
        &self.rows[&row]
    }

    /// A row, if it is there still.
    pub fn find(&self, row: RowId) -> Option<&Row<K, R>> {
        self.rows.get(&row)
    }

    pub fn row_mut(&mut self, row: RowId) -> &mut Row<K, R> {
        self.rows.get_mut(&row).expect("a row that somebody looks at stays")
    }

    /// The rows of this key, dead ones included.
    pub fn of_key(&self, key: &K) -> &[RowId] {
        self.index.get(key).map_or(&[], Vec::as_slice)
    }

    /// The rows and versions that a snapshot sees, in the order of their keys.
    pub fn scan(&self, range: impl RangeBounds<K>, snapshot: Snapshot) -> impl Iterator<Item = (RowId, &Version<R>)> {
        self.index.range(range).flat_map(|(_, rows)| rows).filter_map(move |id| {
            let version = self.rows[id].versions.iter().rev().find(|v| snapshot.sees(v))?;
            Some((*id, version))
        })
    }

    pub fn insert(&mut self, key: K, value: R, made: Mark) -> RowId {
        self.last += 1;
        let id = RowId(self.last);
        self.index.entry(key.clone()).or_default().push(id);
        let versions = vec![Version { id: 1, value, made, ended: None, keeps_key: false }];
        self.rows.insert(id, Row { key, versions, locks: Vec::new(), next_version: 2 });
        id
    }

    /// A new version in place of the newest one.
    pub fn replace(&mut self, row: RowId, value: R, mark: Mark) {
        let row = self.row_mut(row);
        let id = row.next_version;
        row.next_version += 1;
        let keeps_key = !row.locks.contains(&(mark.xid, Strength::Update));
        let old = row.versions.last_mut().expect("a row has versions");
        (old.ended, old.keeps_key) = (Some(mark), keeps_key);
        row.versions.push(Version { id, value, made: mark, ended: None, keeps_key: false });
    }

    pub fn delete(&mut self, row: RowId, mark: Mark) {
        let old = self.row_mut(row).versions.last_mut().expect("a row has versions");
        (old.ended, old.keeps_key) = (Some(mark), false);
    }

    pub fn lock(&mut self, row: RowId, xid: Xid, strength: Strength) {
        let locks = &mut self.row_mut(row).locks;
        match locks.iter_mut().find(|(x, _)| *x == xid) {
            Some((_, held)) => *held = (*held).max(strength),
            None => locks.push((xid, strength)),
        }
    }

    /// What a transaction did to this row becomes part of the order of commits, or is taken back; its lock goes.
    pub fn settle(&mut self, id: RowId, xid: Xid, committed: Option<Csn>) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        row.locks.retain(|(x, _)| *x != xid);
        match committed {
            Some(csn) => {
                for version in &mut row.versions {
                    for mark in [Some(&mut version.made), version.ended.as_mut()].into_iter().flatten() {
                        if mark.xid == xid {
                            mark.committed = Some(csn);
                        }
                    }
                }
            }
            None => {
                row.versions.retain(|v| v.made.xid != xid);
                for version in &mut row.versions {
                    if version.ended.is_some_and(|m| m.xid == xid) {
                        version.ended = None;
                    }
                }
            }
        }
        if row.versions.is_empty() {
            self.remove(id);
        }
    }

    /// Forgets the versions that no snapshot from `oldest` on can see.
    pub fn prune(&mut self, id: RowId, oldest: Csn) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        row.versions.retain(|v| v.ended.is_none_or(|m| m.committed.is_none_or(|csn| csn > oldest)));
        if row.versions.is_empty() && row.locks.is_empty() {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: RowId) {
        let row = self.rows.remove(&id).expect("it is there");
        let of_key = self.index.get_mut(&row.key).expect("every row is in the index");
        of_key.retain(|r| *r != id);
        if of_key.is_empty() {
            self.index.remove(&row.key);
        }
    }

    /// How many versions there are, of all rows.
    pub fn versions(&self) -> usize {
        self.rows.values().map(|r| r.versions.len()).sum()
    }
}
