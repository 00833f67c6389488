//! Whoever sees what each statement of a store's transactions gave, and not the verdict alone: the suite that holds the
//! stores to the simulator's models.

use orbit_core::store::statement::Rows;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The rows of the statements of a store's transactions, in the order in which they ran; of no store's, where nobody asks.
#[derive(Clone, Default)]
pub struct Witness(Option<Arc<Mutex<Vec<Rows>>>>);

impl Witness {
    /// One that keeps what it sees until it is taken.
    pub fn keeping() -> Witness {
        Witness(Some(Arc::default()))
    }

    /// What was seen since this was last asked.
    pub fn take(&self) -> Vec<Rows> {
        let seen =
            self.0.as_ref().map(|seen| std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner)));
        seen.unwrap_or_default()
    }

    /// Statements gave these.
    pub(crate) fn sees<E>(&self, got: &Result<Vec<Rows>, E>) {
        if let (Some(seen), Ok(rows)) = (&self.0, got) {
            seen.lock().unwrap_or_else(PoisonError::into_inner).extend(rows.iter().cloned());
        }
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Witness(keeping)" } else { "Witness(none)" })
    }
}
