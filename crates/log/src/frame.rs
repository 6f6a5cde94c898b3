//! What lies on the disk: the segment header, records and marks, each verifiable alone.
//!
//! A record is a header of 32 bytes, head, body and a checksum. The header has a checksum of its own, so that the
//! extent of a record with a damaged body is still known. Both start from the log's secret seed, the segment and the
//! offset: what a client puts into a body, a stale record or one written to a wrong place never passes.
//!
//! A mark opens what one group commit writes into a segment. It is filled in when the group goes to the disk and says
//! which records were durable by then: with it a later recovery tells a torn tail from damage.

use crc32c::{crc32c, crc32c_append};

/// Bytes kept for the header of a segment: two copies.
pub const SEGMENT_HEADER_LEN: u32 = 128;
/// Bytes of a mark, and of the header of a record.
pub const HEADER_LEN: u32 = 32;
/// Bytes of a mark, which is a header alone.
pub const MARK_LEN: u32 = HEADER_LEN;
/// Bytes a record has beyond its head and body.
pub const RECORD_OVERHEAD: u32 = HEADER_LEN + CHECKSUM_LEN;

const CHECKSUM_LEN: u32 = 4;
const HEADER_COPY_AT: usize = 64;
const HEADER_COPY_LEN: usize = 32;
const SEGMENT_MAGIC: [u8; 8] = *b"RONLOG\x00\x01";
const SEGMENT_VERSION: u32 = 1;
/// Stands behind the checksum of a header copy: logs of before there were manifests have zeros there.
const LISTED: [u8; 4] = *b"mani";
const FRAME_MAGIC: [u8; 2] = *b"rl";
const KIND_RECORD: u8 = 1;
const KIND_MARK: u8 = 2;

/// Contents of the header of a segment. It is durable before the segment gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub segment: u32,
    /// The log's secret; the same in all its segments.
    pub seed: u32,
    pub segment_bytes: u32,
    /// Whether its log keeps a manifest; a directory that has such a segment and no manifest has lost it.
    pub is_listed: bool,
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_LEN as usize] {
        let mut one = [0_u8; HEADER_COPY_LEN];
        one[..8].copy_from_slice(&SEGMENT_MAGIC);
        one[8..12].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
        one[12..16].copy_from_slice(&self.segment.to_le_bytes());
        one[16..20].copy_from_slice(&self.seed.to_le_bytes());
        one[20..24].copy_from_slice(&self.segment_bytes.to_le_bytes());
        let crc = crc32c(&one[..24]);
        one[24..28].copy_from_slice(&crc.to_le_bytes());
        if self.is_listed {
            one[28..].copy_from_slice(&LISTED);
        }
        let mut both = [0_u8; SEGMENT_HEADER_LEN as usize];
        both[..HEADER_COPY_LEN].copy_from_slice(&one);
        both[HEADER_COPY_AT..HEADER_COPY_AT + HEADER_COPY_LEN].copy_from_slice(&one);
        both
    }

    /// The header, and whether both copies of it are good.
    pub fn decode(bytes: &[u8], segment: u32) -> Option<(SegmentHeader, bool)> {
        let [first, second] = Self::copies(bytes).map(|copy| Self::decode_copy(copy?, segment));
        let both = first.is_some() && first == second;
        let is_listed = first.is_some_and(|one| one.is_listed) || second.is_some_and(|one| one.is_listed);
        first.or(second).map(|header| (SegmentHeader { is_listed, ..header }, both))
    }

    /// The version of a header that another version of this program wrote. Damage is told from it by the checksum, or
    /// by the two copies, which damage does not change alike.
    pub fn unknown_version(bytes: &[u8]) -> Option<u32> {
        let versions = Self::copies(bytes).map(|copy| {
            let copy = copy.filter(|copy| copy[..6] == SEGMENT_MAGIC[..6])?;
            let is_known = copy[..8] == SEGMENT_MAGIC && u32_at(copy, 8) == SEGMENT_VERSION;
            let is_whole = u32_at(copy, 24) == crc32c(&copy[..24]);
            (!is_known).then(|| (u32_at(copy, 8), is_whole))
        });
        match versions {
            [Some((version, true)), _] | [_, Some((version, true))] => Some(version),
            [Some((first, _)), Some((second, _))] if first == second => Some(first),
            _ => None,
        }
    }

    fn copies(bytes: &[u8]) -> [Option<&[u8]>; 2] {
        [0, HEADER_COPY_AT].map(|at| bytes.get(at..at + HEADER_COPY_LEN))
    }

    fn decode_copy(one: &[u8], segment: u32) -> Option<SegmentHeader> {
        let good = one[..8] == SEGMENT_MAGIC
            && u32_at(one, 8) == SEGMENT_VERSION
            && u32_at(one, 12) == segment
            && u32_at(one, 24) == crc32c(&one[..24]);
        let is_listed = one[28..] == LISTED;
        good.then(|| SegmentHeader { segment, seed: u32_at(one, 16), segment_bytes: u32_at(one, 20), is_listed })
    }
}

/// The header of a record or a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub is_mark: bool,
    /// Of a record: its own number. Of a mark: the number of the record that comes next.
    pub lsn: u64,
    /// Checksum of the record before this frame; chains the records of a log.
    pub prev: u32,
    /// Every record up to here was durable when this was written.
    pub synced: u64,
    pub head_len: u16,
    pub body_len: u32,
}

impl Frame {
    /// Bytes of the whole frame; no overflow can hide in it.
    pub fn len(&self) -> u64 {
        if self.is_mark {
            u64::from(MARK_LEN)
        } else {
            u64::from(RECORD_OVERHEAD) + u64::from(self.head_len) + u64::from(self.body_len)
        }
    }

    /// The fields of a header whose checksum and kind were found good.
    fn decode(header: &[u8]) -> Frame {
        let lsn = u64_at(header, 8);
        Frame {
            is_mark: header[2] == KIND_MARK,
            lsn,
            prev: u32_at(header, 16),
            synced: lsn.saturating_sub(u64::from(u32_at(header, 20))),
            body_len: u32_at(header, 24),
            head_len: u16::from_le_bytes([header[28], header[29]]),
        }
    }

    fn encode(&self, place: FrameAddress) -> [u8; HEADER_LEN as usize] {
        let mut header = [0_u8; HEADER_LEN as usize];
        header[..2].copy_from_slice(&FRAME_MAGIC);
        header[2] = if self.is_mark { KIND_MARK } else { KIND_RECORD };
        let behind = u32::try_from(self.lsn - self.synced).unwrap_or(u32::MAX);
        header[8..16].copy_from_slice(&self.lsn.to_le_bytes());
        header[16..20].copy_from_slice(&self.prev.to_le_bytes());
        header[20..24].copy_from_slice(&behind.to_le_bytes());
        header[24..28].copy_from_slice(&self.body_len.to_le_bytes());
        header[28..30].copy_from_slice(&self.head_len.to_le_bytes());
        let crc = place.header_checksum(&header);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
        header
    }
}

/// Address of a frame, which its checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameAddress {
    pub seed: u32,
    pub segment: u32,
    pub offset: u32,
}

impl FrameAddress {
    /// Checksum of the header of a frame that stands here.
    pub fn header_checksum(self, header: &[u8]) -> u32 {
        let mut covered = [0_u8; 36];
        covered[..4].copy_from_slice(&self.seed.to_le_bytes());
        covered[4..8].copy_from_slice(&self.segment.to_le_bytes());
        covered[8..12].copy_from_slice(&self.offset.to_le_bytes());
        covered[12..].copy_from_slice(&header[8..HEADER_LEN as usize]);
        crc32c_append(u32::from_le_bytes([header[0], header[1], header[2], header[3]]), &covered)
    }
}

/// Appends a record to `out` and returns its checksum, which the next record carries on.
pub fn put_record(
    out: &mut Vec<u8>,
    place: FrameAddress,
    lsn: u64,
    prev: u32,
    synced: u64,
    head: &[u8],
    body: &[u8],
) -> u32 {
    let head_len = u16::try_from(head.len()).expect("the length of a head was checked");
    let body_len = u32::try_from(body.len()).expect("the length of a body was checked");
    let header = Frame { is_mark: false, lsn, prev, synced, head_len, body_len }.encode(place);
    let crc = crc32c_append(crc32c_append(u32_at(&header, 4), head), body);
    out.extend_from_slice(&header);
    out.extend_from_slice(head);
    out.extend_from_slice(body);
    out.extend_from_slice(&crc.to_le_bytes());
    crc
}

/// The bytes of a mark.
pub fn mark(place: FrameAddress, next_lsn: u64, prev: u32, synced: u64) -> [u8; MARK_LEN as usize] {
    Frame { is_mark: true, lsn: next_lsn, prev, synced, head_len: 0, body_len: 0 }.encode(place)
}

/// Result of a look at the start of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A mark, or a whole record with its checksum.
    Whole(Frame, u32),
    /// The header of a record whose rest is damaged or cut off.
    Broken(Frame),
    /// A whole header of a kind that only another version of this program writes: kind, and the byte behind it.
    Unknown([u8; 2]),
    /// No frame of this log: zeros, foreign bytes, or a damaged header.
    Nothing,
}

/// Decodes the frame at the start of `bytes` and checks it whole.
pub fn look(place: FrameAddress, bytes: &[u8]) -> Found {
    let Some(header) = bytes.get(..HEADER_LEN as usize).filter(|header| header[..2] == FRAME_MAGIC) else {
        return Found::Nothing;
    };
    let header_crc = u32_at(header, 4);
    if header_crc != place.header_checksum(header) {
        return Found::Nothing;
    }
    // Only now: a damaged kind does not pass the checksum, so one that does was written on purpose.
    if header[3] != 0 || !matches!(header[2], KIND_RECORD | KIND_MARK) {
        return Found::Unknown([header[2], header[3]]);
    }
    let frame = Frame::decode(header);
    if frame.is_mark {
        return Found::Whole(frame, header_crc);
    }
    let whole = usize::try_from(frame.len()).ok().and_then(|len| bytes.get(..len));
    let Some(whole) = whole else { return Found::Broken(frame) };
    let (content, stored) = whole.split_at(whole.len() - CHECKSUM_LEN as usize);
    let crc = crc32c_append(header_crc, &content[HEADER_LEN as usize..]);
    if crc == u32_at(stored, 0) { Found::Whole(frame, crc) } else { Found::Broken(frame) }
}

/// Reads a little-endian number; the caller knows that it is there.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Reads a little-endian number; the caller knows that it is there.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: FrameAddress = FrameAddress { seed: 7, segment: 3, offset: 4096 };

    fn record() -> Vec<u8> {
        let mut out = Vec::new();
        put_record(&mut out, PLACE, 9, 0xABCD, 5, b"head", b"the body");
        out
    }

    #[test]
    fn a_record_comes_back() {
        let bytes = record();
        let Found::Whole(frame, crc) = look(PLACE, &bytes) else { panic!("not whole") };
        assert_eq!((frame.lsn, frame.prev, frame.synced, frame.head_len, frame.body_len), (9, 0xABCD, 5, 4, 8));
        assert_eq!(frame.len(), bytes.len() as u64);
        assert_eq!(crc, u32_at(&bytes, bytes.len() - 4));
    }

    #[test]
    fn every_bit_counts() {
        let good = record();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = look(PLACE, &bytes);
            assert!(!matches!(found, Found::Whole(..)), "bit {bit}: {found:?}");
            assert_eq!(matches!(found, Found::Broken(_)), bit >= HEADER_LEN as usize * 8, "bit {bit}: {found:?}");
        }
        for len in 0..good.len() {
            assert!(!matches!(look(PLACE, &good[..len]), Found::Whole(..)), "{len} bytes");
        }
    }

    #[test]
    fn a_record_is_good_in_its_place_only() {
        let bytes = record();
        for place in [
            FrameAddress { seed: 8, ..PLACE },
            FrameAddress { segment: 4, ..PLACE },
            FrameAddress { offset: 4097, ..PLACE },
        ] {
            assert_eq!(look(place, &bytes), Found::Nothing);
        }
    }

    #[test]
    fn a_segment_header_survives_the_loss_of_one_copy() {
        let header = SegmentHeader { segment: 12, seed: 99, segment_bytes: 4096, is_listed: true };
        let good = header.encode();
        assert_eq!(SegmentHeader::decode(&good, 12), Some((header, true)));
        assert_eq!(SegmentHeader::decode(&good, 13), None);
        for at in [0, 12, 17, 27, 64, 80, 91] {
            let mut bytes = good;
            bytes[at] ^= 4;
            assert_eq!(SegmentHeader::decode(&bytes, 12), Some((header, false)), "byte {at}");
        }
        assert_eq!(SegmentHeader::decode(&[0; 128], 12), None);
    }

    #[test]
    fn a_header_of_another_version_is_told_from_a_damaged_one() {
        let good = SegmentHeader { segment: 12, seed: 99, segment_bytes: 4096, is_listed: true }.encode();
        assert_eq!(SegmentHeader::unknown_version(&good), None);
        for bit in 0..good.len() * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::unknown_version(&bytes), None, "bit {bit}: one copy is as it was");
        }
        let mut newer = good;
        newer[8] = 7;
        let crc = crc32c(&newer[..24]);
        newer[24..28].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::unknown_version(&newer), Some(7), "one copy, with its checksum");
        let mut reshaped = good;
        (reshaped[8], reshaped[HEADER_COPY_AT + 8]) = (9, 9);
        assert_eq!(SegmentHeader::unknown_version(&reshaped), Some(9), "both copies, with a checksum of another kind");
        assert_eq!(SegmentHeader::unknown_version(&[0; 128]), None);
    }

    #[test]
    fn a_frame_of_another_kind_is_told_from_a_damaged_one() {
        for (at, byte, kind) in [(2, 9, [9, 0]), (3, 1, [KIND_RECORD, 1])] {
            let mut bytes = record();
            bytes[at] = byte;
            assert_eq!(look(PLACE, &bytes), Found::Nothing, "the checksum is that of another kind");
            let crc = PLACE.header_checksum(&bytes);
            bytes[4..8].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(look(PLACE, &bytes), Found::Unknown(kind));
        }
    }
}
