//! A store that remembers what it was given to write, so that the same can be written again without a server.

use crate::driver::backend::{Attached, Backend};
use orbit_core::node::{CallId, Connection};
use orbit_core::store::origin::Origin;
use orbit_core::store::transaction::Transaction;
use std::sync::{Arc, Mutex, PoisonError};

/// What was written through a [`Recorded`] store, in the order in which it was given.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Vec<Transaction>>>);

impl Recorder {
    /// The same store, recorded here.
    pub fn on<B: Backend>(&self, store: Attached<B>) -> Attached<Recorded<B>> {
        let Attached { backend, replies } = store;
        Attached { backend: Recorded { backend, recorder: self.clone() }, replies }
    }

    /// The transactions that may write, since this was last asked.
    pub fn take(&self) -> Vec<Transaction> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A store whose writing transactions are remembered.
#[derive(Debug)]
pub struct Recorded<B> {
    backend: B,
    recorder: Recorder,
}

impl<B: Backend> Backend for Recorded<B> {
    fn run(&self, connection: Connection, call: CallId, transaction: Transaction, origin: Option<Origin>) {
        if transaction.writes() {
            self.recorder.0.lock().unwrap_or_else(PoisonError::into_inner).push(transaction.clone());
        }
        self.backend.run(connection, call, transaction, origin);
    }

    fn write_off(&self, connection: Connection, call: CallId) {
        self.backend.write_off(connection, call);
    }
}
