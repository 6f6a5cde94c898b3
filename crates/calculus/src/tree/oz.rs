//! The tree of OpenZeppelin's `standard-v1`, which wallets and contracts can check.

use crate::allocate::Breach;
use crate::totals::Roster;

/// A hash of keccak-256.
pub type Hash = [u8; 32];

/// A tree over all amounts above zero.
#[derive(Clone, Debug)]
pub struct OzTree {
    nodes: Vec<Hash>,
}

impl OzTree {
    /// Builds the tree; ids that are EVM addresses have another leaf encoding than others. Two spellings of one address
    /// are a breach of schema.
    pub fn build(_roster: &Roster, _amounts: &[u128], _threads: usize) -> Result<OzTree, Breach> {
        unimplemented!()
    }

    /// Root; none if nobody is paid.
    pub fn root(&self) -> Option<Hash> {
        self.nodes.first().copied()
    }

    /// Siblings from the leaf of this actor to the root; none if it is not paid.
    pub fn proof(&self, _actor: &str, _amount: u128) -> Option<Vec<Hash>> {
        unimplemented!()
    }
}

/// Whether the siblings lead from this payout to the root.
pub fn verify(_root: &Hash, _actor: &str, _amount: u128, _proof: &[Hash]) -> bool {
    unimplemented!()
}

/// Types of the leaf's two values.
pub fn leaf_encoding(_actor: &str) -> [&'static str; 2] {
    unimplemented!()
}
