//! Who is joined to whom.

use crate::rng::Rng;
use std::collections::BTreeSet;

/// Shapes of networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each to the next.
    Line,
    /// A line whose ends are joined.
    Ring,
    /// All to the first.
    Star,
    /// All to all.
    Mesh,
    /// Everybody to about so many others, by chance, and all reachable.
    Random(usize),
}

impl Topology {
    /// Pairs of nodes that are joined, the lower number first.
    pub fn links(self, nodes: usize, seed: u64) -> BTreeSet<(usize, usize)> {
        let chain = (1..nodes).map(|node| (node - 1, node));
        match self {
            Topology::Line => chain.collect(),
            Topology::Ring => chain.chain((nodes > 2).then_some((0, nodes - 1))).collect(),
            Topology::Star => (1..nodes).map(|node| (0, node)).collect(),
            Topology::Mesh => (0..nodes).flat_map(|low| (low + 1..nodes).map(move |high| (low, high))).collect(),
            Topology::Random(degree) => random_cycles(nodes, degree.div_ceil(2), seed),
        }
    }
}

/// Random closed walks through all nodes, laid over each other: every node has two neighbours in each, and any one of
/// them holds the network together.
fn random_cycles(nodes: usize, cycles: usize, seed: u64) -> BTreeSet<(usize, usize)> {
    let mut rng = Rng::new(seed);
    let mut links = BTreeSet::new();
    for _ in 0..cycles {
        let mut walk: Vec<usize> = (0..nodes).collect();
        for at in (1..nodes).rev() {
            walk.swap(at, rng.between(0, at as u64) as usize);
        }
        for at in 0..nodes {
            let (one, other) = (walk[at], walk[(at + 1) % nodes]);
            if one != other {
                links.insert((one.min(other), one.max(other)));
            }
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_their_links() {
        for (shape, links) in [(Topology::Line, 4), (Topology::Ring, 5), (Topology::Star, 4), (Topology::Mesh, 10)] {
            assert_eq!(shape.links(5, 1).len(), links, "{shape:?}");
        }
        let links = Topology::Random(8).links(100, 1);
        assert!((370..=400).contains(&links.len()), "{}", links.len());
        assert_eq!(links, Topology::Random(8).links(100, 1), "a function of the seed");
    }
}
