//! Who takes which tree: rendezvous hashing by the tree's root (Thaler and Ravishankar, 1998; design, section 9).
//!
//! Every server ranks all that live for each root, and all rank alike. So the trees of one that died are spread over the
//! others without a word between them, and a server that joins or leaves moves no tree but its own share.

use crate::id::{ExecutionId, Incarnation, NodeId};
use sha2::{Digest, Sha256};

/// Of those that live, the one that a tree of this root belongs to; none where nobody lives.
pub fn heir<'a>(
    root: &ExecutionId,
    living: impl IntoIterator<Item = &'a (NodeId, Incarnation)>,
) -> Option<&'a (NodeId, Incarnation)> {
    living.into_iter().max_by_key(|(name, incarnation)| (weight(root, name), *incarnation))
}

/// By the name, so that a server that comes back under it has the share that it had.
fn weight(root: &ExecutionId, name: &NodeId) -> [u8; 8] {
    let mut hash = Sha256::new();
    hash.update(name.as_str().as_bytes());
    // No name holds a NUL.
    hash.update([0]);
    hash.update(root.as_str().as_bytes());
    let digest = hash.finalize();
    let mut weight = [0; 8];
    weight.copy_from_slice(&digest[..8]);
    weight
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use uuid::Uuid;

    fn servers(count: u128) -> Vec<(NodeId, Incarnation)> {
        (0..count).map(|n| (NodeId::new(format!("node-{n}")), Incarnation(Uuid::from_u128(n)))).collect()
    }

    fn roots() -> impl Iterator<Item = ExecutionId> {
        (0..3_000).map(|n| ExecutionId::new(format!("order-{n}")))
    }

    #[test]
    fn trees_are_spread_evenly_over_those_that_live() {
        let living = servers(3);
        let mut shares: BTreeMap<&NodeId, u32> = BTreeMap::new();
        let all: Vec<ExecutionId> = roots().collect();
        for root in &all {
            *shares.entry(&heir(root, &living).expect("some live").0).or_default() += 1;
        }
        assert!(shares.len() == 3 && shares.values().all(|share| (850..1_150).contains(share)), "{shares:?}");
    }

    #[test]
    fn one_that_goes_leaves_the_trees_of_the_others_where_they_are() {
        let (before, after) = (servers(4), servers(3));
        for root in roots() {
            let first = heir(&root, &before).expect("some live");
            if first.0.as_str() != "node-3" {
                assert_eq!(heir(&root, &after), Some(first));
            }
        }
    }

    #[test]
    fn all_rank_alike_in_whatever_order_they_know_each_other() {
        let living = servers(5);
        let backwards: Vec<_> = living.iter().rev().cloned().collect();
        assert!(roots().all(|root| heir(&root, &living) == heir(&root, &backwards)));
        assert_eq!(heir(&"x".into(), &[]), None);
    }
}
