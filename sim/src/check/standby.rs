//! A server that does not lead changes nothing but its own row (scenarios, 8 and B13).

use super::{Checked, ensure};
use orbit_core::store::transaction::Transaction;

const CHECK: &str = "standby";

/// A server of a cluster sends this; `leads` from its election until it says that it leads no more.
pub fn on_call(transaction: &Transaction, leads: bool) -> Checked {
    let campaigns = matches!(
        transaction,
        Transaction::Campaign(_)
            | Transaction::TakeLease(_)
            | Transaction::RenewLease(_)
            | Transaction::FreeLease(_)
            | Transaction::ForceLease(_)
    );
    let says_that_it_lives = matches!(transaction, Transaction::Beat(_) | Transaction::Leave(_));
    let asks_for_nothing = campaigns || says_that_it_lives || !transaction.writes();
    let name = transaction.name();
    ensure!(leads || asks_for_nothing, CHECK, "a server that does not lead sent `{name}`, which changes something");
    Ok(())
}
