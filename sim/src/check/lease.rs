//! The lease has one holder at a time, by the database's clock; only whoever takes it raises the term; and giving it back is
//! the last thing that its holder does.

use super::{Checked, Committed, ensure};
use crate::store::Change;
use orbit_core::id::Term;
use orbit_core::store::append::Fence;
use orbit_core::store::lease::LeaseRow;
use orbit_core::time::ClusterMs;
use std::time::Duration;

const CHECK: &str = "lease";

/// See the module's documentation. Without a time to live nobody is elected by lease, and nobody asks for one.
#[derive(Clone, Debug, Default)]
pub struct LeaseCheck {
    ttl: Option<Duration>,
    held: Option<Held>,
    highest: Term,
    given_back: Option<Fence>,
}

/// Who has it, and until when.
#[derive(Clone, Copy, Debug)]
struct Held {
    by: Fence,
    until: ClusterMs,
}

impl LeaseCheck {
    pub fn new(ttl: Option<Duration>) -> LeaseCheck {
        LeaseCheck { ttl, ..LeaseCheck::default() }
    }

    /// A server gives its lease back; whether it waits for the answer to an append then.
    pub fn on_giving_back(appending: bool) -> Checked {
        ensure!(!appending, CHECK, "a server gave its lease back while an append of its own was under way");
        Ok(())
    }

    pub fn on_commit(&mut self, committed: &Committed<'_>) -> Checked {
        let Some(ttl) = self.ttl else { return Ok(()) };
        let changes = &committed.commit.changes;
        for change in changes {
            match change {
                Change::LeaseTaken { after, clock, .. } => {
                    let by = holder(after);
                    if let Some(held) = self.held {
                        ensure!(
                            held.until <= *clock,
                            CHECK,
                            "the lease was taken in epoch {}, {} ms before that of epoch {} was over by the database's clock",
                            after.epoch,
                            held.until.0 - clock.0,
                            held.by.term
                        );
                    }
                    ensure!(
                        after.epoch > self.highest,
                        CHECK,
                        "the lease was taken in epoch {}, after epoch {}",
                        after.epoch,
                        self.highest
                    );
                    self.highest = after.epoch;
                    let raises = |c: &Change| matches!(c, Change::FenceRaised { after, .. } if Some(*after) == by);
                    ensure!(changes.iter().any(raises), CHECK, "{by:?} took the lease, and the fence is another's");
                    self.hold(after, *clock, ttl)?;
                }
                Change::LeaseRenewed { by, after, clock, .. } => {
                    let held = self.held.filter(|held| held.by.incarnation == by.incarnation);
                    ensure!(
                        held.is_some_and(|held| held.until > *clock),
                        CHECK,
                        "{by:?} renewed the lease at {clock:?}, when it was {:?}",
                        self.held
                    );
                    self.hold(after, *clock, ttl)?;
                }
                Change::LeaseFreed { fence } => {
                    let whose = self.held.map(|held| held.by);
                    ensure!(whose == Some(*fence), CHECK, "{fence:?} gave back the lease of {whose:?}");
                    (self.held, self.given_back) = (None, Some(*fence));
                }
                Change::LeaseSeized { .. } => self.held = None,
                Change::FenceRaised { after, .. } => {
                    let by_lease = |c: &Change| matches!(c, Change::LeaseTaken { .. } | Change::LeaseSeized { .. });
                    ensure!(changes.iter().any(by_lease), CHECK, "{after:?} raised the term without the lease");
                }
                Change::Group { fence, repeated: false, .. } => {
                    let over = self.given_back == Some(*fence);
                    ensure!(!over, CHECK, "{fence:?} wrote after it had given the lease back");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn hold(&mut self, row: &LeaseRow, clock: ClusterMs, ttl: Duration) -> Checked {
        let by = holder(row).expect("what is held has a holder");
        let until = row.expires_ms;
        let granted = until <= clock + ttl + Duration::from_millis(1);
        ensure!(granted, CHECK, "{by:?} was granted the lease at {clock:?} until {until:?}, for more than {ttl:?}");
        self.held = Some(Held { by, until });
        Ok(())
    }
}

fn holder(row: &LeaseRow) -> Option<Fence> {
    let incarnation = row.holder.as_ref()?.incarnation;
    Some(Fence { term: row.epoch, incarnation })
}
