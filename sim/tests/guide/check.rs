//! Terms follow each other without a gap: nobody campaigns and keeps silent about it.

use orbit_core::id::Term;
use orbit_sim::check::{Checked, Committed, Violation};
use orbit_sim::store::Change;

/// What the check calls itself.
const CHECK: &str = "terms";

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct TermsCheck {
    newest: Term,
}

impl TermsCheck {
    /// After every commit.
    pub fn on_commit(&mut self, committed: &Committed<'_>) -> Checked {
        for change in &committed.commit.changes {
            if let Change::FenceRaised { after, .. } = change {
                if after.term.0 != self.newest.0 + 1 {
                    let message = format!("term {} begins after term {}", after.term, self.newest);
                    return Err(Violation::safety(CHECK, message));
                }
                self.newest = after.term;
            }
        }
        Ok(())
    }
}
