//! Checks proofs, whoever wrote them.

use super::{SumNode, SumPath, SumProof, leaf, node, root};

/// The amount that the proof shows for the actor (zero if it shows that there is no leaf); none if it shows nothing.
pub fn verify(root: &SumNode, asset: &str, actor: &str, proof: &SumProof) -> Option<u128> {
    match proof {
        SumProof::Paid { leaf } => {
            let is_proven = leaf.actor == actor && leads_to(root, asset, leaf);
            is_proven.then_some(leaf.amount.0)
        }
        SumProof::Unpaid { before, after } => {
            let holds = |path: &Option<SumPath>| path.as_ref().is_none_or(|path| leads_to(root, asset, path));
            let is_proven = is_gap(root, asset, actor, before.as_ref(), after.as_ref());
            (is_proven && holds(before) && holds(after)).then_some(0)
        }
    }
}

/// Whether the actor would stand between these two leaves, and nothing else does.
fn is_gap(tree: &SumNode, asset: &str, actor: &str, before: Option<&SumPath>, after: Option<&SumPath>) -> bool {
    let in_order = before.is_none_or(|before| before.actor.as_str() < actor)
        && after.is_none_or(|after| actor < after.actor.as_str());
    let are_neighbours = match (before, after) {
        (Some(before), Some(after)) => {
            before.leaves == after.leaves && before.index.checked_add(1) == Some(after.index)
        }
        (Some(last), None) => last.index.checked_add(1) == Some(last.leaves),
        (None, Some(first)) => first.index == 0,
        (None, None) => root(asset, 0, None) == *tree,
    };
    in_order && are_neighbours
}

/// Whether the way leads from the leaf to this root. The number of leaves, which the root binds, fixes how many
/// siblings there are and on which side each stands.
fn leads_to(tree: &SumNode, asset: &str, path: &SumPath) -> bool {
    climb(asset, path).is_some_and(|found| found == *tree)
}

fn climb(asset: &str, path: &SumPath) -> Option<SumNode> {
    // A leaf of nothing would prove that somebody is paid who is not.
    if path.amount.0 == 0 || path.index >= path.leaves {
        return None;
    }
    let (mut index, mut width) = (path.index, path.leaves);
    let mut found = leaf(asset, &path.actor, path.amount.0);
    let mut siblings = path.siblings.iter();
    while width > 1 {
        let has_sibling = index % 2 == 1 || index + 1 < width;
        if has_sibling {
            let (hash, sum) = siblings.next()?;
            let sibling = SumNode { hash: hex(hash)?, sum: sum.0 };
            // A sum that wraps around would hide leaves.
            found.sum.checked_add(sibling.sum)?;
            found = if index % 2 == 1 { node(&sibling, &found) } else { node(&found, &sibling) };
        }
        (index, width) = (index / 2, width.div_ceil(2));
    }
    siblings.next().is_none().then(|| root(asset, path.leaves, Some(found)))
}

/// Only one text stands for a hash.
fn hex(text: &str) -> Option<[u8; 32]> {
    let is_small = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_small.then(|| blake3::Hash::from_hex(text).ok().map(|hash| *hash.as_bytes())).flatten()
}
