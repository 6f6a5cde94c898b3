//! A tree of BLAKE3 hashes whose nodes also carry the sum below them: every provable payout is counted in the root.
//!
//! The sums of both children enter a node's hash separately; were it their sum alone, leaves could be proven that
//! together exceed the root. Leaves stand in byte order of the actors, so two neighbours prove that nobody between them
//! is paid. A node without a sibling moves up as it is. The root binds the asset and the number of leaves, which fix
//! the shape: a proof has no freedom of its own.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::allocate::Breach;
use crate::parallel;
use crate::totals::Roster;
use crate::units::Units;

mod path;

pub use path::verify;

/// All four are 24 bytes, so that a node with its domain fills two blocks of the hash function exactly.
const LEAF: &[u8; 24] = b"svc-rewarder|sum|leaf|v1";
const NODE: &[u8; 24] = b"svc-rewarder|sum|node|v1";
const ROOT: &[u8; 24] = b"svc-rewarder|sum|root|v1";

/// Leaves below one kept node. The levels under it are computed again for a proof: that costs 32 leaves and saves 95 of
/// the 96 bytes that a leaf would take in memory.
const BLOCK: usize = 32;

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
    asset: String,
    leaves: u64,
    /// Place in the roster of the first leaf of each block.
    starts: Vec<u64>,
    /// From the nodes over one block each up to the top.
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
    /// Builds the tree; amounts that add up to more than 128 bits are a breach.
    pub fn build(asset: &str, roster: &Roster, amounts: &[u128], threads: usize) -> Result<SumTree, Breach> {
        if roster.len() != amounts.len() {
            return Err(Breach::Schema(format!("{} amounts for {} actors", amounts.len(), roster.len())));
        }
        // Every sum in the tree is part of this one.
        if crate::allocate::scores::sum(amounts).is_none() {
            return Err(Breach::Overflow(format!("asset `{asset}`: the amounts add up to more than 128 bits")));
        }
        Ok(parallel::with_threads(threads, || {
            let (starts, leaves) = starts(amounts);
            let base = base(asset, roster, amounts, &starts);
            let mut levels = vec![base];
            while let Some(level) = levels.last().filter(|level| level.len() > 1) {
                levels.push(level_above(level));
            }
            SumTree { asset: asset.to_owned(), leaves, starts, levels }
        }))
    }

    /// The root: what is published, with the sum of all payouts.
    pub fn root(&self) -> SumNode {
        let top = self.levels.last().and_then(|level| level.first());
        root(&self.asset, self.leaves, top.copied())
    }

    /// Number of leaves: actors that are paid.
    pub fn leaves(&self) -> u64 {
        self.leaves
    }

    /// Proof for any actor, paid or not. The roster and the amounts are those the tree was built from.
    pub fn prove(&self, roster: &Roster, amounts: &[u128], actor: &str) -> SumProof {
        let is_paid = |place: &usize| amounts[*place] > 0;
        let place = roster.find(actor);
        if let Some(place) = place.filter(is_paid) {
            return SumProof::Paid { leaf: self.path(roster, amounts, place) };
        }
        let split = place.unwrap_or_else(|| roster.place_for(actor));
        let before = (0..split).rev().find(is_paid).map(|place| self.path(roster, amounts, place));
        let after = (split..roster.len()).find(is_paid).map(|place| self.path(roster, amounts, place));
        SumProof::Unpaid { before, after }
    }

    fn path(&self, roster: &Roster, amounts: &[u128], place: usize) -> SumPath {
        // The last block that starts at or before this place.
        let block = self.starts.partition_point(|start| *start <= place as u64) - 1;
        let places = block_places(amounts, self.starts[block]);
        let index_in_block = places.iter().take_while(|other| **other < place).count();
        let mut level: Vec<SumNode> =
            places.iter().map(|place| leaf(&self.asset, roster.get(*place), amounts[*place])).collect();
        let mut siblings = Vec::new();
        let mut index = index_in_block;
        // A last block that is not full has fewer levels; the missing ones only move its top up.
        while level.len() > 1 {
            siblings.extend(level.get(index ^ 1).map(shown));
            level = level_above(&level);
            index /= 2;
        }
        let mut index = block;
        for level in &self.levels {
            siblings.extend(level.get(index ^ 1).map(shown));
            index /= 2;
        }
        SumPath {
            actor: roster.get(place).to_owned(),
            amount: Units(amounts[place]),
            index: (block * BLOCK + index_in_block) as u64,
            leaves: self.leaves,
            siblings,
        }
    }
}

fn shown(node: &SumNode) -> (String, Units) {
    (blake3::Hash::from_bytes(node.hash).to_hex().to_string(), Units(node.sum))
}

/// Place of the first leaf of each block, and the number of leaves.
fn starts(amounts: &[u128]) -> (Vec<u64>, u64) {
    let mut starts = Vec::new();
    let mut leaves = 0_u64;
    for (place, _) in amounts.iter().enumerate().filter(|(_, amount)| **amount > 0) {
        if leaves.is_multiple_of(BLOCK as u64) {
            starts.push(place as u64);
        }
        leaves += 1;
    }
    (starts, leaves)
}

/// Places of the leaves of the block that starts here.
fn block_places(amounts: &[u128], start: u64) -> Vec<usize> {
    (start as usize..amounts.len()).filter(|place| amounts[*place] > 0).take(BLOCK).collect()
}

/// The nodes over one block each.
fn base(asset: &str, roster: &Roster, amounts: &[u128], starts: &[u64]) -> Vec<SumNode> {
    let over_block = |start: &u64| {
        let places = block_places(amounts, *start);
        let mut level: Vec<SumNode> =
            places.iter().map(|place| leaf(asset, roster.get(*place), amounts[*place])).collect();
        while level.len() > 1 {
            level = level_above(&level);
        }
        level[0]
    };
    starts.par_iter().map(over_block).collect()
}

fn level_above(level: &[SumNode]) -> Vec<SumNode> {
    let above = |pair: &[SumNode]| match pair {
        [left, right] => node(left, right),
        // A node without a sibling moves up.
        rest => rest[0],
    };
    // A block's own levels are too small to be worth a thread.
    if level.len() <= BLOCK { level.chunks(2).map(above).collect() } else { level.par_chunks(2).map(above).collect() }
}

fn leaf(asset: &str, actor: &str, amount: u128) -> SumNode {
    let mut hasher = blake3::Hasher::new();
    for part in [LEAF, asset.as_bytes(), actor.as_bytes()] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.update(&amount.to_le_bytes());
    SumNode { hash: *hasher.finalize().as_bytes(), sum: amount }
}

/// The sums of a tree fit; [`path::verify`] checks those of others before it comes here.
fn node(left: &SumNode, right: &SumNode) -> SumNode {
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(&(NODE.len() as u64).to_le_bytes());
    bytes[8..32].copy_from_slice(NODE);
    for (child, bytes) in [left, right].into_iter().zip(bytes[32..].chunks_exact_mut(48)) {
        bytes[..16].copy_from_slice(&child.sum.to_le_bytes());
        bytes[16..].copy_from_slice(&child.hash);
    }
    SumNode { hash: *blake3::hash(&bytes).as_bytes(), sum: left.sum.wrapping_add(right.sum) }
}

/// The root over the topmost node; none if there is no leaf.
fn root(asset: &str, leaves: u64, top: Option<SumNode>) -> SumNode {
    let top = top.unwrap_or(SumNode { hash: [0; 32], sum: 0 });
    let mut hasher = blake3::Hasher::new();
    for part in [ROOT.as_slice(), asset.as_bytes()] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.update(&leaves.to_le_bytes()).update(&top.sum.to_le_bytes()).update(&top.hash);
    SumNode { hash: *hasher.finalize().as_bytes(), sum: top.sum }
}
