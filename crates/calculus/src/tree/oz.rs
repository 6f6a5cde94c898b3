//! The tree of OpenZeppelin's `standard-v1`, which wallets and contracts can check.
//!
//! A leaf is the hash of the hash of its two values in the ABI's encoding; leaves are sorted by hash and stand, from
//! the last place backwards, in an array where the children of place `i` are at `2i + 1` and `2i + 2`; a pair is hashed
//! with its smaller member first, so that a proof needs no sides.

use rayon::prelude::*;
use tiny_keccak::{Hasher, Keccak};

use crate::allocate::Breach;
use crate::parallel;
use crate::totals::Roster;

/// A hash of keccak-256.
pub type Hash = [u8; 32];

/// An EVM address.
type Address = [u8; 20];

/// Longest way from a leaf to the root: no tree with more than 2^64 leaves fits anywhere.
const PROOF_MAX: usize = 64;

/// A tree over all amounts above zero.
#[derive(Clone, Debug)]
pub struct OzTree {
    nodes: Vec<Hash>,
}

impl OzTree {
    /// Builds the tree; ids that are EVM addresses have another leaf encoding than others. Two spellings of one address
    /// are a breach of schema.
    pub fn build(roster: &Roster, amounts: &[u128], threads: usize) -> Result<OzTree, Breach> {
        if roster.len() != amounts.len() {
            return Err(Breach::Schema(format!("{} amounts for {} actors", amounts.len(), roster.len())));
        }
        if amounts.len() > u32::MAX as usize {
            return Err(Breach::Overflow("more than 2^32 actors".to_owned()));
        }
        parallel::with_threads(threads, || {
            check_spellings(roster)?;
            Ok(OzTree { nodes: nodes(roster, amounts) })
        })
    }

    /// Root; none if nobody is paid.
    pub fn root(&self) -> Option<Hash> {
        self.nodes.first().copied()
    }

    /// Number of leaves: actors that are paid.
    pub fn leaves(&self) -> usize {
        self.nodes.len().div_ceil(2)
    }

    /// Siblings from the leaf of this actor to the root; none if it is not paid.
    pub fn proof(&self, actor: &str, amount: u128) -> Option<Vec<Hash>> {
        let wanted = leaf(actor, amount);
        let first = self.nodes.len() / 2;
        // The leaves stand in descending order.
        let mut place = first + self.nodes[first..].binary_search_by(|found| wanted.cmp(found)).ok()?;
        let mut proof = Vec::new();
        while place > 0 {
            let sibling = if place.is_multiple_of(2) { place - 1 } else { place + 1 };
            proof.push(self.nodes[sibling]);
            place = (place - 1) / 2;
        }
        Some(proof)
    }
}

/// Whether the siblings lead from this payout to the root.
pub fn verify(root: &Hash, actor: &str, amount: u128, proof: &[Hash]) -> bool {
    let found = proof.iter().fold(leaf(actor, amount), |hash, sibling| pair(&hash, sibling));
    proof.len() <= PROOF_MAX && found == *root
}

/// Types of the leaf's two values.
pub fn leaf_encoding(actor: &str) -> [&'static str; 2] {
    [if address(actor).is_some() { "address" } else { "string" }, "uint256"]
}

/// The leaf of a payout.
pub fn leaf(actor: &str, amount: u128) -> Hash {
    let inner = match address(actor) {
        Some(address) => {
            let mut values = [0; 64];
            values[12..32].copy_from_slice(&address);
            values[48..].copy_from_slice(&amount.to_be_bytes());
            keccak(&values)
        }
        None => keccak_string(actor, amount),
    };
    keccak(&inner)
}

/// A string is encoded behind the values: where it starts, the amount, its length, its bytes, zeros up to a whole word.
fn keccak_string(actor: &str, amount: u128) -> Hash {
    let mut head = [0; 96];
    head[31] = 64;
    head[48..64].copy_from_slice(&amount.to_be_bytes());
    head[88..].copy_from_slice(&(actor.len() as u64).to_be_bytes());
    let mut keccak = Keccak::v256();
    keccak.update(&head);
    keccak.update(actor.as_bytes());
    keccak.update(&[0; 32][..actor.len().next_multiple_of(32) - actor.len()]);
    let mut hash = Hash::default();
    keccak.finalize(&mut hash);
    hash
}

fn keccak(bytes: &[u8]) -> Hash {
    let mut keccak = Keccak::v256();
    keccak.update(bytes);
    let mut hash = Hash::default();
    keccak.finalize(&mut hash);
    hash
}

fn pair(a: &Hash, b: &Hash) -> Hash {
    let (first, second) = if a <= b { (a, b) } else { (b, a) };
    let mut both = [0; 64];
    both[..32].copy_from_slice(first);
    both[32..].copy_from_slice(second);
    keccak(&both)
}

/// The address that an id is: `0x` and 40 hex digits, large or small.
fn address(actor: &str) -> Option<Address> {
    let digits = actor.strip_prefix("0x").filter(|digits| digits.len() == 40)?.as_bytes();
    let mut address = Address::default();
    for (byte, pair) in address.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(address)
}

/// Refuses an epoch in which one address goes by two spellings: it would have two leaves, and be paid twice.
fn check_spellings(roster: &Roster) -> Result<(), Breach> {
    let places = (0..roster.len()).into_par_iter();
    let is_large = |place: &usize| {
        let actor = roster.get(*place);
        actor.bytes().any(|byte| byte.is_ascii_uppercase()) && address(actor).is_some()
    };
    // Ids differ as bytes, so two spellings differ in large and small letters.
    if !places.clone().any(|place| is_large(&place)) {
        return Ok(());
    }
    let mut addresses: Vec<Address> = places.filter_map(|place| address(roster.get(place))).collect();
    addresses.par_sort_unstable();
    let Some(twice) = addresses.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]) else {
        return Ok(());
    };
    let spellings: Vec<&str> = roster.iter().filter(|actor| address(actor) == Some(twice)).collect();
    Err(Breach::Schema(format!("`{}` are spellings of one address", spellings.join("` and `"))))
}

fn nodes(roster: &Roster, amounts: &[u128]) -> Vec<Hash> {
    // Written straight to their places: threads that collect leaves would hold all of them twice for a while.
    let places: Vec<u32> = (0..amounts.len() as u32).into_par_iter().filter(|at| amounts[*at as usize] > 0).collect();
    let paid = places.len();
    if paid == 0 {
        return Vec::new();
    }
    let mut nodes = vec![Hash::default(); 2 * paid - 1];
    nodes[paid - 1..].par_iter_mut().zip(places).for_each(|(node, place)| {
        *node = leaf(roster.get(place as usize), amounts[place as usize]);
    });
    nodes[paid - 1..].par_sort_unstable_by(|a, b| b.cmp(a));
    // A level of the tree needs only the next: from the last inner level up, each in parallel.
    let mut end = paid - 1;
    while end > 0 {
        // The level of node `end - 1` starts at the largest 2^k - 1 that is not above it.
        let start = (1_usize << end.ilog2()) - 1;
        let (inner, below) = nodes.split_at_mut(end);
        inner[start..].par_iter_mut().with_min_len(256).enumerate().for_each(|(offset, node)| {
            let child = 2 * (start + offset) + 1 - end;
            *node = pair(&below[child], &below[child + 1]);
        });
        end = start;
    }
    nodes
}
