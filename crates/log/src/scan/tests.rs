//! What a walk over a segment finds, whatever was done to its bytes.

use super::*;
use crate::frame::{mark, put_record};

const SEED: u32 = 5;
const SEGMENT: u32 = 9;

/// A segment under construction.
struct Builder {
    bytes: Vec<u8>,
    lsn: u64,
    chain: u32,
    /// Where each frame starts.
    starts: Vec<usize>,
}

impl Builder {
    fn new() -> Builder {
        Builder { bytes: vec![0; SEGMENT_HEADER_LEN as usize], lsn: 0, chain: 0, starts: Vec::new() }
    }

    fn place(&mut self) -> FrameAddress {
        self.starts.push(self.bytes.len());
        FrameAddress { seed: SEED, segment: SEGMENT, offset: as_u32(self.bytes.len()) }
    }

    /// A mark and as many records; all before it are durable.
    fn group(mut self, records: u64) -> Builder {
        let synced = self.lsn;
        let place = self.place();
        self.bytes.extend_from_slice(&mark(place, self.lsn + 1, self.chain, synced));
        for _ in 0..records {
            self.lsn += 1;
            let place = self.place();
            self.chain = put_record(&mut self.bytes, place, self.lsn, self.chain, synced, b"head", &[7; 50]);
        }
        self
    }

    fn zeros(mut self, count: usize) -> Builder {
        self.bytes.resize(self.bytes.len() + count, 0);
        self
    }

    fn scan(&self) -> Scan {
        scan(SEED, SEGMENT, &self.bytes, Cursor { next: Some(1), chain: Some(0) })
    }

    fn lsns(&self) -> Vec<u64> {
        self.scan().entries.iter().map(|entry| entry.lsn).collect()
    }
}

#[test]
fn a_whole_segment_has_no_gaps() {
    let built = Builder::new().group(2).group(3).zeros(500);
    let found = built.scan();
    assert_eq!(built.lsns(), [1, 2, 3, 4, 5]);
    assert_eq!((found.gaps.len(), found.synced, found.chain_breaks), (0, 2, 0));
    assert_eq!(found.end as usize, built.bytes.len() - 500);
    assert_eq!(found.cursor, Cursor { next: Some(6), chain: Some(built.chain) });
    assert!(Builder::new().zeros(100).scan().is_blank && !found.is_blank);
}

#[test]
fn any_flipped_bit_costs_at_most_its_own_record() {
    let good = Builder::new().group(2).group(3).group(0).zeros(300);
    let end = good.bytes.len() - 300;
    for bit in SEGMENT_HEADER_LEN as usize * 8..end * 8 {
        let mut built = Builder { bytes: good.bytes.clone(), starts: good.starts.clone(), ..Builder::new() };
        built.bytes[bit / 8] ^= 1 << (bit % 8);
        let frame = built.starts.iter().rposition(|start| *start <= bit / 8).unwrap();
        let found = built.scan();
        // Frames are: mark 1 2 mark 3 4 5 mark.
        let lost: Vec<u64> = [0, 1, 2, 0, 3, 4, 5, 0][frame..=frame].iter().copied().filter(|lsn| *lsn > 0).collect();
        let expected: Vec<u64> = (1..=5).filter(|lsn| !lost.contains(lsn)).collect();
        assert_eq!(built.lsns(), expected, "bit {bit}");
        if frame == 7 {
            // The last mark is the only witness of the last group; without it the tail counts as torn, and nothing is
            // lost.
            assert_eq!(found.torn_gap(), Some(0), "bit {bit}");
            continue;
        }
        assert_eq!((found.gaps.len(), found.lost_records()), (1, lost.len() as u64), "bit {bit}: {found:?}");
        assert_eq!(found.gaps[0].offset as usize, built.starts[frame], "bit {bit}");
        assert_eq!(found.torn_gap(), None, "bit {bit}: all of it had been durable");
    }
}

#[test]
fn a_tail_that_no_later_frame_vouches_for_is_torn() {
    let mut built = Builder::new().group(2).group(3).zeros(300);
    let third = built.starts[4];
    built.bytes[third + 40] ^= 1;
    let mut found = built.scan();
    assert_eq!(found.torn_gap(), Some(0));
    assert_eq!(found.cut(0) as usize, third);
    assert_eq!(found.entries.iter().map(|entry| entry.lsn).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((found.end as usize, found.cursor.next), (third, Some(3)));
}

#[test]
fn a_torn_mark_before_whole_records_is_no_damage() {
    for groups in [1, 2] {
        let built = if groups == 1 { Builder::new() } else { Builder::new().group(2) };
        let first = built.lsn + 1;
        let mut built = built.group(3).zeros(300);
        let mark = built.starts[built.starts.len() - 4];
        built.bytes[mark + 4] ^= 0xFF;
        for cursor in [Cursor { next: Some(1), chain: Some(0) }, Cursor::default()] {
            let mut found = scan(SEED, SEGMENT, &built.bytes, cursor);
            assert_eq!((found.torn_gap(), found.entries.len() as u64), (None, built.lsn));
            let marks = found.take_torn_marks();
            assert_eq!((marks.len(), marks[0].first, marks[0].offset as usize), (1, first, mark));
            assert!(found.gaps.is_empty() && marks[0].chain.is_some());
        }
    }
}

#[test]
fn numbers_that_go_back_are_not_believed() {
    let mut built = Builder::new().group(3);
    built.lsn = 1;
    let stale = built.bytes.len();
    let built = built.group(2);
    assert_eq!(built.lsns(), [1, 2, 3]);
    assert_eq!(built.scan().gaps[0].offset as usize, stale);
}

#[test]
fn damage_is_told_from_the_tear_behind_it() {
    let mut built = Builder::new().group(2).group(3).group(2).zeros(300);
    let (first, last) = (built.starts[1], built.starts[9]);
    built.bytes[first + 40] ^= 1;
    built.bytes[last + 40] ^= 1;
    let found = built.scan();
    assert_eq!(found.gaps.len(), 2);
    assert_eq!(found.torn_gap(), Some(1), "1 is damaged, 7 is torn");
}

#[test]
fn records_missing_without_a_trace_are_counted_from_the_numbers() {
    let built = Builder::new().group(3);
    let found = scan(SEED, SEGMENT, &built.bytes, Cursor { next: Some(1), chain: None });
    assert_eq!(found.lost_records(), 0);
    let late = Builder { lsn: 10, ..Builder::new() }.group(1);
    let found = scan(SEED, SEGMENT, &late.bytes, Cursor { next: Some(4), chain: Some(1) });
    assert_eq!((found.lost_records(), found.lost_bytes(), found.torn_gap()), (7, 0, None));
}

#[test]
fn a_body_that_imitates_a_record_is_not_believed() {
    // The forger knows segment, offset and number, but not the secret.
    let mut forged = Vec::new();
    let place = FrameAddress { seed: SEED + 1, segment: SEGMENT, offset: SEGMENT_HEADER_LEN + 32 + 32 };
    put_record(&mut forged, place, 2, 0, 0, b"", b"gotcha");
    let mut built = Builder::new().group(0);
    let place = built.place();
    built.chain = put_record(&mut built.bytes, place, 1, 0, 0, b"", &forged);
    built.lsn = 1;
    let mut built = built.group(1);
    let record = built.starts[1];
    built.bytes[record + 8] ^= 1;
    assert_eq!(built.lsns(), [2]);
    assert_eq!(built.scan().entries[0].body_len, 50, "the real one");
}

#[test]
fn trailing_zeros_are_counted_across_blocks() {
    for (len, ones) in [(0, 0), (10, 3), (4096, 0), (4097, 1), (9000, 5000), (8192, 8192)] {
        let mut bytes = vec![0; len];
        bytes[..ones].fill(1);
        assert_eq!(trailing_zeros(&bytes), len - ones, "{ones} of {len}");
    }
}
