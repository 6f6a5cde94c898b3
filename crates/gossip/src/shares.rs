//! Who gives way where a table is full: whoever brought most of it.

use hashbrown::HashMap;

use crate::names::Peer;

/// Who brought an entry of a table: a peer, by its id and not by its session, so that a new session is no new share; or
/// this node itself.
pub(crate) type Opener = Option<Peer>;

/// The opener with the most entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Largest {
    pub(crate) opener: Opener,
    pub(crate) entries: usize,
    /// Number of openers that have an entry.
    pub(crate) openers: usize,
}

/// Whose entry goes for one of the newcomer's. Nobody loses one to somebody who has as many: then the newcomer replaces
/// its own. So no opener can be pressed below an equal share by another, and none can close the table.
pub(crate) fn largest(entries: impl Iterator<Item = Opener>, newcomer: Opener) -> Option<Largest> {
    let mut counts: HashMap<Opener, usize> = HashMap::new();
    entries.for_each(|opener| *counts.entry(opener).or_default() += 1);
    let openers = counts.len();
    // By name at last, so that what happens does not hang on the order of a table of hashes.
    let rank = |(opener, entries): &(Opener, usize)| (*entries, *opener == newcomer, *opener);
    let (opener, entries) = counts.into_iter().max_by_key(rank)?;
    Some(Largest { opener, entries, openers })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(openers: &[u8], newcomer: u8) -> Option<Opener> {
        let opener = |number: u8| (number > 0).then_some(Peer([number; 32]));
        largest(openers.iter().map(|number| opener(*number)), opener(newcomer)).map(|largest| largest.opener)
    }

    #[test]
    fn whoever_has_most_gives_way_and_nobody_to_an_equal() {
        let peer = |number| Some(Some(Peer([number; 32])));
        assert_eq!(of(&[], 1), None);
        assert_eq!(of(&[1, 1, 2], 2), peer(1));
        assert_eq!(of(&[1, 1, 2], 1), peer(1), "its own");
        assert_eq!(of(&[1, 1, 2, 2], 1), peer(1));
        assert_eq!(of(&[1, 1, 2, 2], 2), peer(2));
        assert_eq!(of(&[0, 0, 2], 2), Some(None), "this node is one of them");
    }
}
