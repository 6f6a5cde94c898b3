//! A tree of BLAKE3 hashes whose nodes also carry the sum below them: every provable payout is counted in the root.

use serde::{Deserialize, Serialize};

use crate::totals::Roster;
use crate::units::Units;

/// Hash and sum of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumNode {
    /// Hash over both children with their sums, each by itself.
    pub hash: [u8; 32],
    /// Units below this node.
    pub sum: u128,
}

/// A tree over all amounts of one asset above zero, in the order of the roster.
#[derive(Clone, Debug)]
pub struct SumTree {
    levels: Vec<Vec<SumNode>>,
}

/// That an actor is paid so much, or that it is not paid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SumProof {
    /// The actor has a leaf.
    Paid {
        /// Its leaf and the way to the root.
        leaf: SumPath,
    },
    /// The neighbours of the place where its leaf would be.
    Unpaid {
        /// The last leaf before it.
        before: Option<SumPath>,
        /// The first leaf after it.
        after: Option<SumPath>,
    },
}

/// A leaf and the way from it to the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SumPath {
    /// The actor of the leaf.
    pub actor: String,
    /// The amount of the leaf.
    pub amount: Units,
    /// Place of the leaf among all leaves.
    pub index: u64,
    /// Number of leaves of the tree.
    pub leaves: u64,
    /// Hash (hex) and sum of the sibling on each level that has one, lowest first.
    pub siblings: Vec<(String, Units)>,
}

impl SumTree {
    /// Builds the tree.
    pub fn build(_asset: &str, _roster: &Roster, _amounts: &[u128], _threads: usize) -> SumTree {
        unimplemented!()
    }

    /// The root: what is published, with the sum of all payouts.
    pub fn root(&self) -> SumNode {
        unimplemented!()
    }

    /// Proof for any actor, paid or not.
    pub fn prove(&self, _roster: &Roster, _amounts: &[u128], _actor: &str) -> SumProof {
        let _ = &self.levels;
        unimplemented!()
    }
}

/// The amount that the proof shows for the actor (zero if it shows that there is no leaf); none if it shows nothing.
pub fn verify(_root: &SumNode, _asset: &str, _actor: &str, _proof: &SumProof) -> Option<u128> {
    unimplemented!()
}
