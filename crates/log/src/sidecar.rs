//! The sidecar of a sealed segment: its heads and positions, so that a restart need not read the bodies. Derived data.

use crate::frame::{u32_at, u64_at};
use crate::scan::{Contents, Cursor, Entry, Gap, Scan};
use crc32c::crc32c;

const MAGIC: [u8; 8] = *b"RONIDX\x00\x01";
const PREFIX_LEN: usize = 56;
const GAP_LEN: usize = 24;
const ENTRY_LEN: usize = 18;

/// Writes down what a scan of a whole segment found.
pub fn encode(seed: u32, segment: u32, contents: &Contents) -> Vec<u8> {
    let scan = &contents.scan;
    let heads: usize = scan.entries.iter().map(|entry| ENTRY_LEN + usize::from(entry.head_len)).sum();
    let mut out = Vec::with_capacity(PREFIX_LEN + scan.gaps.len() * GAP_LEN + heads);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&seed.to_le_bytes());
    out.extend_from_slice(&segment.to_le_bytes());
    out.extend_from_slice(&scan.end.to_le_bytes());
    out.extend_from_slice(&scan.cursor.next.unwrap_or(0).to_le_bytes());
    out.extend_from_slice(&scan.synced.to_le_bytes());
    out.extend_from_slice(&scan.cursor.chain.unwrap_or(0).to_le_bytes());
    out.extend_from_slice(&u32::from(scan.cursor.chain.is_some()).to_le_bytes());
    out.extend_from_slice(&count(scan.gaps.len()).to_le_bytes());
    out.extend_from_slice(&count(scan.entries.len()).to_le_bytes());
    for gap in &scan.gaps {
        out.extend_from_slice(&gap.offset.to_le_bytes());
        out.extend_from_slice(&gap.end.to_le_bytes());
        out.extend_from_slice(&gap.first.to_le_bytes());
        out.extend_from_slice(&gap.lost.to_le_bytes());
    }
    for entry in &scan.entries {
        out.extend_from_slice(&entry.lsn.to_le_bytes());
        out.extend_from_slice(&entry.offset.to_le_bytes());
        out.extend_from_slice(&entry.body_len.to_le_bytes());
        out.extend_from_slice(&entry.head_len.to_le_bytes());
        out.extend_from_slice(contents.replayed(segment, entry).head);
    }
    let crc = crc32c(&out[12..]);
    out[8..12].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The version of a sidecar that another version of this program wrote. A single flipped bit in the number is damage:
/// a sidecar can be made again.
pub fn unknown_version(bytes: &[u8]) -> Option<u8> {
    let (known, found) = (MAGIC[7], *bytes.get(7)?);
    (bytes[..6] == MAGIC[..6] && (found ^ known).count_ones() > 1).then_some(found)
}

/// Reads it back; `None` if it is not whole or not of this segment.
pub fn decode(seed: u32, segment: u32, bytes: Vec<u8>) -> Option<Contents> {
    let good = bytes.len() >= PREFIX_LEN
        && bytes[..8] == MAGIC
        && u32_at(&bytes, 8) == crc32c(&bytes[12..])
        && u32_at(&bytes, 12) == seed
        && u32_at(&bytes, 16) == segment;
    if !good {
        return None;
    }
    let next = u64_at(&bytes, 24);
    let mut scan = Scan {
        end: u32_at(&bytes, 20),
        synced: u64_at(&bytes, 32),
        cursor: Cursor {
            next: (next > 0).then_some(next),
            chain: (u32_at(&bytes, 44) > 0).then(|| u32_at(&bytes, 40)),
        },
        ..Scan::default()
    };
    let mut at = PREFIX_LEN;
    for _ in 0..u32_at(&bytes, 48) {
        let gap = bytes.get(at..at + GAP_LEN)?;
        let (offset, end) = (u32_at(gap, 0), u32_at(gap, 4));
        let (first, lost) = (u64_at(gap, 8), u64_at(gap, 16));
        scan.gaps.push(Gap { offset, end, first, lost, chain: None, is_tail: false });
        at += GAP_LEN;
    }
    let entries = u32_at(&bytes, 52) as usize;
    scan.entries.reserve_exact(entries.min(bytes.len() / ENTRY_LEN));
    for _ in 0..entries {
        let fixed = bytes.get(at..at + ENTRY_LEN)?;
        let head_len = u16::from_le_bytes([fixed[16], fixed[17]]);
        at += ENTRY_LEN;
        bytes.get(at..at + usize::from(head_len))?;
        scan.entries.push(Entry {
            lsn: u64_at(fixed, 0),
            offset: u32_at(fixed, 8),
            body_len: u32_at(fixed, 12),
            head_len,
            head_at: count(at),
        });
        at += usize::from(head_len);
    }
    Some(Contents { scan, bytes })
}

fn count(value: usize) -> u32 {
    u32::try_from(value).expect("a sidecar is smaller than its segment")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameAddress, SEGMENT_HEADER_LEN, put_record};
    use crate::scan::scan;

    fn contents() -> Contents {
        let mut bytes = vec![0; SEGMENT_HEADER_LEN as usize];
        let mut chain = 0;
        for lsn in 1..20_u64 {
            let place = FrameAddress { seed: 4, segment: 2, offset: u32::try_from(bytes.len()).unwrap() };
            let head = vec![7; usize::try_from(lsn).unwrap()];
            chain = put_record(&mut bytes, place, lsn, chain, 0, &head, &[1; 100]);
        }
        bytes[700] ^= 1;
        let scan = scan(4, 2, &bytes, Cursor::default());
        assert_eq!((scan.gaps.len(), scan.entries.len()), (1, 18));
        Contents { scan, bytes }
    }

    #[test]
    fn a_sidecar_says_what_the_scan_said() {
        let original = contents();
        let back = decode(4, 2, encode(4, 2, &original)).expect("whole");
        assert_eq!((back.scan.end, back.scan.cursor), (original.scan.end, original.scan.cursor));
        assert_eq!(back.scan.gaps[0].damage(2), original.scan.gaps[0].damage(2));
        assert_eq!(back.scan.entries.len(), original.scan.entries.len());
        for (left, right) in back.scan.entries.iter().zip(&original.scan.entries) {
            let (left, right) = (back.replayed(2, left), original.replayed(2, right));
            assert_eq!(
                (left.lsn, left.position, left.head, left.body_len),
                (right.lsn, right.position, right.head, right.body_len)
            );
        }
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut newer = encode(4, 2, &contents());
        newer[7] = 2;
        assert_eq!(unknown_version(&newer), Some(2));
        assert_eq!(unknown_version(&newer[..7]), None);
    }

    #[test]
    fn a_damaged_or_foreign_sidecar_is_refused() {
        let good = encode(4, 2, &contents());
        assert!(decode(5, 2, good.clone()).is_none(), "of another log");
        assert!(decode(4, 3, good.clone()).is_none(), "of another segment");
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            assert_eq!(unknown_version(&bytes), None, "byte {at}");
            assert!(decode(4, 2, bytes).is_none(), "byte {at}");
            assert!(decode(4, 2, good[..at].to_vec()).is_none(), "cut to {at}");
        }
    }
}
