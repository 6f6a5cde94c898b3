//! A batch as it lies in the log: one record, which is whole or absent.
//!
//! Every record names its accounts in full, so that a damaged one costs only its own transfers. Each carries the hash
//! of the one before it: a book that was changed by anything but this program does not verify.

use crate::model::{Direction, RunKey};

/// Version of a batch of a run that corrects none.
const VERSION: u8 = 1;
/// Version of a batch of a correction: the run that it corrects stands before the names.
const VERSION_FOLLOWING: u8 = 2;
const KEY_BYTES: usize = 32;
const HASH_BYTES: usize = 32;
/// Key, and the length of the account with the direction in its highest bit; the amount and the account follow.
const ROW_FIXED_BYTES: usize = KEY_BYTES + 2;
const TAKE_BACK_BIT: u16 = 1 << 15;
const CHAIN_CONTEXT: &str = "ron-ledger 2026-11 hash chain of the batches of a book";

/// Hash of a batch and of all batches before it.
pub(super) type Chain = [u8; HASH_BYTES];

/// What all transfers of a batch share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Wall clock when the batch was booked, in milliseconds since 1970.
    pub booked_at_ms: u64,
    pub run: RunKey,
    pub asset: String,
    pub pot: String,
    /// The run that this one corrects.
    pub follows: Option<RunKey>,
    /// Transfers in the batch.
    pub count: u32,
    /// Bytes of each amount: as many as the largest one needs.
    pub amount_bytes: u8,
}

/// One transfer of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<'a> {
    pub key: [u8; KEY_BYTES],
    pub account: &'a str,
    pub amount: u128,
    pub direction: Direction,
}

/// Why a record is not taken for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// A newer version of this program wrote it.
    Version(u8),
    /// It is not what this program writes.
    Malformed,
    /// Its hash is not that of its content.
    Changed,
}

/// A batch read back from the log.
#[derive(Clone, Debug)]
pub(super) struct Record<'a> {
    pub head: Head,
    /// Hash of the batch before it.
    pub previous: Chain,
    pub chain: Chain,
    body: &'a [u8],
}

/// A batch ready for the log.
pub(super) struct Encoded {
    pub head: Vec<u8>,
    pub body: Vec<u8>,
    pub chain: Chain,
}

/// Bytes that hold the largest of these amounts.
pub(super) fn amount_bytes(largest: u128) -> u8 {
    let bits = u128::BITS - largest.leading_zeros();
    u8::try_from(bits.div_ceil(8)).expect("at most 16 bytes").max(1)
}

/// Writes a batch. The head's count and width must fit the rows.
pub(super) fn encode<'a>(head: &Head, previous: &Chain, rows: impl Iterator<Item = Row<'a>>) -> Encoded {
    let width = usize::from(head.amount_bytes);
    let mut body = Vec::with_capacity(head.count as usize * (ROW_FIXED_BYTES + width + 24));
    for row in rows {
        let name_len = u16::try_from(row.account.len()).expect("the length of a name was checked");
        let direction = if row.direction == Direction::TakeBack { TAKE_BACK_BIT } else { 0 };
        body.extend_from_slice(&row.key);
        body.extend_from_slice(&(name_len | direction).to_le_bytes());
        body.extend_from_slice(&row.amount.to_le_bytes()[..width]);
        body.extend_from_slice(row.account.as_bytes());
    }
    let version = if head.follows.is_some() { VERSION_FOLLOWING } else { VERSION };
    let mut bytes = vec![version, head.amount_bytes];
    bytes.extend_from_slice(&head.count.to_le_bytes());
    bytes.extend_from_slice(&head.booked_at_ms.to_le_bytes());
    bytes.extend_from_slice(&head.run);
    bytes.extend_from_slice(previous);
    bytes.extend(head.follows.iter().flatten());
    for name in [&head.asset, &head.pot] {
        let len = u16::try_from(name.len()).expect("the length of a name was checked");
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
    }
    let chain = hash(&bytes, &body);
    bytes.extend_from_slice(&chain);
    Encoded { head: bytes, body, chain }
}

/// The head holds the hash before, so that this one covers it.
fn hash(head: &[u8], body: &[u8]) -> Chain {
    let mut hasher = blake3::Hasher::new_derive_key(CHAIN_CONTEXT);
    hasher.update(&(head.len() as u64).to_le_bytes());
    hasher.update(head).update(body);
    *hasher.finalize().as_bytes()
}

impl<'a> Record<'a> {
    /// Reads a batch and checks every byte of it.
    pub fn decode(head: &[u8], body: &'a [u8]) -> Result<Record<'a>, Unreadable> {
        match head.first() {
            Some(&(VERSION | VERSION_FOLLOWING)) => {}
            Some(&other) if other > VERSION_FOLLOWING => return Err(Unreadable::Version(other)),
            _ => return Err(Unreadable::Malformed),
        }
        let record = Self::read(head, body).ok_or(Unreadable::Malformed)?;
        let covered = &head[..head.len() - HASH_BYTES];
        if hash(covered, body) != record.chain {
            return Err(Unreadable::Changed);
        }
        let mut rows = record.rows();
        let is_whole = rows.by_ref().count() == record.head.count as usize && rows.rest.is_empty();
        if is_whole { Ok(record) } else { Err(Unreadable::Malformed) }
    }

    fn read(head: &[u8], body: &'a [u8]) -> Option<Record<'a>> {
        let (version, mut rest) = head.split_first()?;
        let amount_bytes = take::<1>(&mut rest)?[0];
        let count = u32::from_le_bytes(take(&mut rest)?);
        let booked_at_ms = u64::from_le_bytes(take(&mut rest)?);
        let run = take(&mut rest)?;
        let previous = take(&mut rest)?;
        let follows = if *version == VERSION_FOLLOWING { Some(take(&mut rest)?) } else { None };
        let asset = take_name(&mut rest)?.to_owned();
        let pot = take_name(&mut rest)?.to_owned();
        let chain = take(&mut rest)?;
        let is_sane = rest.is_empty() && (1..=16).contains(&amount_bytes);
        let head = Head { booked_at_ms, run, asset, pot, follows, count, amount_bytes };
        is_sane.then_some(Record { head, previous, chain, body })
    }

    /// The transfers, in the order in which they were booked.
    pub fn rows(&self) -> Rows<'a> {
        Rows { rest: self.body, left: self.head.count, width: usize::from(self.head.amount_bytes) }
    }
}

/// Walks the transfers of a batch; ends early where they cannot be read.
pub(super) struct Rows<'a> {
    rest: &'a [u8],
    left: u32,
    width: usize,
}

impl<'a> Rows<'a> {
    fn read(&mut self) -> Option<Row<'a>> {
        let key = take(&mut self.rest)?;
        let name = u16::from_le_bytes(take(&mut self.rest)?);
        let (amount, rest) = self.rest.split_at_checked(self.width)?;
        let (account, rest) = rest.split_at_checked(usize::from(name & !TAKE_BACK_BIT))?;
        self.rest = rest;
        let mut wide = [0; 16];
        wide.get_mut(..self.width)?.copy_from_slice(amount);
        let direction = if name & TAKE_BACK_BIT == 0 { Direction::Pay } else { Direction::TakeBack };
        Some(Row { key, account: str::from_utf8(account).ok()?, amount: u128::from_le_bytes(wide), direction })
    }
}

impl<'a> Iterator for Rows<'a> {
    type Item = Row<'a>;

    fn next(&mut self) -> Option<Row<'a>> {
        self.left = self.left.checked_sub(1)?;
        let row = self.read();
        if row.is_none() {
            self.left = 0;
        }
        row
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

fn take_name<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let len = u16::from_le_bytes(take(rest)?);
    let (name, after) = rest.split_at_checked(usize::from(len))?;
    *rest = after;
    str::from_utf8(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(count: u32, largest: u128) -> Head {
        let amount_bytes = amount_bytes(largest);
        let (asset, pot, follows) = ("RON".into(), "epoch/1".into(), None);
        Head { booked_at_ms: 7, run: [3; 32], asset, pot, follows, count, amount_bytes }
    }

    fn rows() -> Vec<Row<'static>> {
        vec![
            Row { key: [1; 32], account: "alice", amount: 300, direction: Direction::Pay },
            Row { key: [2; 32], account: "bøb", amount: 0, direction: Direction::TakeBack },
        ]
    }

    #[test]
    fn what_was_written_is_read() {
        for largest in [300, u128::from(u64::MAX), u128::MAX] {
            for (follows, version) in [(None, VERSION), (Some([5; 32]), VERSION_FOLLOWING)] {
                let head = Head { follows, ..head(2, largest) };
                let encoded = encode(&head, &[9; 32], rows().into_iter());
                assert_eq!(encoded.head[0], version);
                let record = Record::decode(&encoded.head, &encoded.body).expect("whole");
                assert_eq!((&record.head, record.previous, record.chain), (&head, [9; 32], encoded.chain));
                assert_eq!(record.rows().collect::<Vec<_>>(), rows());
            }
        }
    }

    #[test]
    fn amounts_take_the_bytes_they_need() {
        for (largest, expected) in [(0, 1), (255, 1), (256, 2), (u128::from(u64::MAX), 8), (u128::MAX, 16)] {
            assert_eq!(amount_bytes(largest), expected, "{largest}");
        }
    }

    #[test]
    fn a_changed_byte_or_a_missing_one_is_found() {
        let encoded = encode(&head(2, 300), &[9; 32], rows().into_iter());
        let decode = |head: &[u8], body: &[u8]| Record::decode(head, body).map(drop);
        for at in 0..encoded.head.len() {
            let mut changed = encoded.head.clone();
            changed[at] ^= 0x40;
            assert!(decode(&changed, &encoded.body).is_err(), "byte {at} of the head");
            assert!(decode(&encoded.head[..at], &encoded.body).is_err(), "head cut to {at}");
        }
        for at in 0..encoded.body.len() {
            let mut changed = encoded.body.clone();
            changed[at] ^= 1;
            assert_eq!(decode(&encoded.head, &changed), Err(Unreadable::Changed), "byte {at} of the body");
            assert!(decode(&encoded.head, &encoded.body[..at]).is_err(), "body cut to {at}");
        }
        let mut newer = encoded.head.clone();
        newer[0] = 3;
        assert_eq!(decode(&newer, &encoded.body), Err(Unreadable::Version(3)));
    }
}
