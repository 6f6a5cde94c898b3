//! The lines of a partition by their numbers, in small pieces that come and go.
//!
//! One long list would have to be moved whole to grow, and to give back the room of groups that are gone, while
//! everybody who wants something of the shard waits. Here neither a new group nor the end of many moves another line.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

use super::UNGROUPED;
use super::line::Line;

/// Lines in one piece.
const PIECE: usize = 16;
/// Places that the first piece keeps when no groups are left: they may come back at once.
const FIRST_MAX: usize = 4;
/// A number among those of pieces with a free place, in a tree whose nodes may be half empty.
const OPEN_BYTES: usize = 3 * size_of::<u32>();

const _: () = assert!(PIECE == u16::BITS as usize);

/// Lines by their numbers, beginning with that of the messages without a group.
#[derive(Debug)]
pub(super) struct LineTable {
    /// None where no line of a piece is in use.
    pieces: Vec<Option<Box<Piece>>>,
    /// Pieces in which a place is free.
    open: BTreeSet<u32>,
    /// Pieces that have lines.
    filled: usize,
    /// Lines in use.
    len: usize,
    /// Places for lines in all pieces.
    places: usize,
}

#[derive(Debug, Default)]
struct Piece {
    lines: Vec<Line>,
    /// A bit for each place that is in use.
    used: u16,
}

impl LineTable {
    /// Only the line of the messages without a group.
    pub fn new() -> Self {
        let mut table = LineTable { pieces: Vec::new(), open: BTreeSet::new(), filled: 0, len: 0, places: 0 };
        let first = table.add();
        debug_assert_eq!(first, UNGROUPED);
        table
    }

    /// Lines in use.
    pub fn len(&self) -> usize {
        self.len
    }

    /// A new line; its number is the lowest that is free, so that pieces with high ones become empty.
    pub fn add(&mut self) -> u32 {
        let number = self.open.first().copied().unwrap_or_else(|| {
            self.pieces.push(None);
            let number = self.pieces.len() as u32 - 1;
            self.open.insert(number);
            number
        });
        let piece = &mut self.pieces[number as usize];
        self.filled += usize::from(piece.is_none());
        let piece = piece.get_or_insert_default();
        let place = piece.used.trailing_ones() as usize;
        if place == piece.lines.len() {
            // The first piece grows as it fills: a node may have very many partitions with a few groups.
            let room = if number == 0 { piece.lines.len().max(1) } else { PIECE };
            let before = piece.lines.capacity();
            if place == before {
                piece.lines.reserve_exact(room.min(PIECE - place));
            }
            self.places += piece.lines.capacity() - before;
            piece.lines.push(Line::default());
        }
        piece.used |= 1 << place;
        if piece.used == u16::MAX {
            self.open.remove(&number);
        }
        self.len += 1;
        number * PIECE as u32 + place as u32
    }

    /// Takes a line out, whose number is free from then on.
    pub fn remove(&mut self, id: u32) -> Line {
        let (number, place) = (id as usize / PIECE, id as usize % PIECE);
        let piece = piece_at_mut(&mut self.pieces, number);
        let line = std::mem::take(&mut piece.lines[place]);
        piece.used &= !(1 << place);
        self.len -= 1;
        self.open.insert(number as u32);
        if piece.used == 0 {
            self.places -= piece.lines.capacity();
            self.filled -= 1;
            self.pieces[number] = None;
            self.forget_last();
        } else if number == 0 && piece.used == 1 && piece.lines.capacity() > FIRST_MAX {
            // No groups are left.
            self.places -= piece.lines.capacity();
            piece.lines.truncate(1);
            piece.lines.shrink_to_fit();
            self.places += piece.lines.capacity();
        }
        line
    }

    /// Numbers of all lines in use.
    pub fn ids(&self) -> impl Iterator<Item = u32> + use<> {
        let used: Vec<u16> = self.pieces.iter().map(|piece| piece.as_ref().map_or(0, |piece| piece.used)).collect();
        (0_u32..).zip(used).flat_map(|(number, used)| {
            let is_used = move |place: &u32| used & 1 << place != 0;
            (0..PIECE as u32).filter(is_used).map(move |place| number * PIECE as u32 + place)
        })
    }

    /// Bytes of memory that it takes beside what the lines in use take.
    pub fn spare_bytes(&self) -> usize {
        let list = self.pieces.capacity() * size_of::<Option<Box<Piece>>>() + self.open.len() * OPEN_BYTES;
        (self.places - self.len) * size_of::<Line>() + self.filled * size_of::<Piece>() + list
    }

    /// Bytes of the places of lines, in use or not.
    #[cfg(test)]
    pub fn capacity_bytes(&self) -> usize {
        let bytes_of = |piece: &Piece| size_of::<Piece>() + piece.lines.capacity() * size_of::<Line>();
        let list = self.pieces.capacity() * size_of::<Option<Box<Piece>>>() + self.open.len() * 2 * size_of::<u32>();
        list + self.pieces.iter().flatten().map(Box::as_ref).map(bytes_of).sum::<usize>()
    }

    /// Gives back pieces at the end of which nothing is left.
    fn forget_last(&mut self) {
        while self.pieces.last().is_some_and(Option::is_none) {
            self.pieces.pop();
            self.open.remove(&(self.pieces.len() as u32));
        }
        if self.pieces.capacity() > 64 && self.pieces.len() < self.pieces.capacity() / 4 {
            self.pieces.shrink_to(self.pieces.len() * 2);
        }
    }
}

impl Index<u32> for LineTable {
    type Output = Line;

    fn index(&self, id: u32) -> &Line {
        let piece = self.pieces[id as usize / PIECE].as_ref().expect("only lines in use are asked for");
        &piece.lines[id as usize % PIECE]
    }
}

impl IndexMut<u32> for LineTable {
    fn index_mut(&mut self, id: u32) -> &mut Line {
        &mut piece_at_mut(&mut self.pieces, id as usize / PIECE).lines[id as usize % PIECE]
    }
}

fn piece_at_mut(pieces: &mut [Option<Box<Piece>>], number: usize) -> &mut Piece {
    pieces[number].as_mut().expect("only lines in use are asked for")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pieces_without_lines_are_given_back_whichever_go_first() {
        for rising in [true, false] {
            let mut table = LineTable::new();
            let empty = table.capacity_bytes();
            let mut ids: Vec<u32> = (0..10_000).map(|_| table.add()).collect();
            assert_eq!((ids.first(), ids.last(), table.len()), (Some(&1), Some(&10_000), 10_001));
            let full = table.capacity_bytes();
            if !rising {
                ids.reverse();
            }
            ids.drain(..9_000).for_each(|id| drop(table.remove(id)));
            assert!(table.capacity_bytes() * 5 < full, "{} of {full} bytes", table.capacity_bytes());
            ids.into_iter().for_each(|id| drop(table.remove(id)));
            assert!(table.capacity_bytes() < empty + 4096, "{} bytes for none", table.capacity_bytes());
            assert_eq!((table.len(), table.add()), (1, 1));
        }
    }

    proptest! {
        #[test]
        fn a_number_is_of_one_line_at_a_time(ops in prop::collection::vec((any::<bool>(), 0usize..400), 1..2000)) {
            let (mut table, mut used) = (LineTable::new(), BTreeSet::from([UNGROUPED]));
            for (adds, nth) in ops {
                if adds || used.len() == 1 {
                    let id = table.add();
                    prop_assert!(used.insert(id) && table[id].members == 0);
                    table[id].members = id;
                } else {
                    let id = *used.iter().nth(1 + nth % (used.len() - 1)).expect("one of them");
                    used.remove(&id);
                    prop_assert_eq!(table.remove(id).members, id);
                }
                prop_assert_eq!(table.len(), used.len());
            }
            prop_assert_eq!(table.ids().collect::<BTreeSet<_>>(), used);
            let places: usize = table.pieces.iter().flatten().map(|piece| piece.lines.capacity()).sum();
            prop_assert_eq!(table.places, places);
        }
    }
}
