//! A server that does not lead changes nothing but its own row (scenarios, 8 and B13).

use super::{Checked, ensure};
use orbit_core::store::append::Fence;
use orbit_core::store::transaction::Transaction;

const CHECK: &str = "standby";

/// A process says that its stop was clean. It won this, and has not begun to lead by it; this is whom the database names as the
/// one that writes. What was won in vain is given back: else others wait for it, and people are told that it was killed.
pub fn on_clean_stop(won: Option<Fence>, named: Option<Fence>) -> Checked {
    ensure!(won.is_none() || won != named, "stop", "a server stopped cleanly, and the database says that it leads");
    Ok(())
}

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
    // What it won while it was being told to stop, it gives back.
    let campaigns = campaigns || matches!(transaction, Transaction::Release(_));
    let says_that_it_lives = matches!(transaction, Transaction::Beat(_) | Transaction::Leave(_));
    let asks_for_nothing = campaigns || says_that_it_lives || !transaction.writes();
    let name = transaction.name();
    ensure!(leads || asks_for_nothing, CHECK, "a server that does not lead sent `{name}`, which changes something");
    Ok(())
}
