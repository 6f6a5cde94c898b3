//! Correlation ids: the caller's own if it is sane, a new UUIDv7 otherwise.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};

use http::{HeaderMap, HeaderName, HeaderValue};
use ron_kernel::clock;

use crate::call::seldom;

/// The header in which the id comes and goes.
pub(crate) const CORR_ID_HEADER: HeaderName = HeaderName::from_static("x-corr-id");

const CORR_ID_BYTES_MAX: usize = 64;

/// The id under which one request is found in logs, answers and the work it causes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CorrId {
    text: [u8; CORR_ID_BYTES_MAX],
    length: u8,
}

impl CorrId {
    /// A new random id, a UUIDv7.
    pub fn fresh() -> Self {
        let id = uuid::Builder::from_unix_timestamp_millis(clock::unix_millis(), &random_bytes()).into_uuid();
        let mut text = [0; CORR_ID_BYTES_MAX];
        let length = id.hyphenated().encode_lower(&mut text).len() as u8;
        CorrId { text, length }
    }

    /// The id as a caller wrote it: 1 to 64 letters, digits, dots, underscores and hyphens.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > CORR_ID_BYTES_MAX || !text.iter().all(allowed) {
            return None;
        }
        let mut id = CorrId { text: [0; CORR_ID_BYTES_MAX], length: text.len() as u8 };
        id.text[..text.len()].copy_from_slice(text);
        Some(id)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes()).expect("only ASCII gets in")
    }

    /// The id a request carries, or a new one.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let given = seldom(headers, &CORR_ID_HEADER);
        given.and_then(|value| CorrId::parse(value.as_bytes())).unwrap_or_else(CorrId::fresh)
    }

    pub(crate) fn header_value(&self) -> HeaderValue {
        HeaderValue::from_bytes(self.bytes()).expect("only visible ASCII gets in")
    }

    fn bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }
}

impl fmt::Display for CorrId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for CorrId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Random enough to tell requests apart, and without a system call: each thread mixes its own counter, which starts
/// at the random key the system gave the thread.
fn random_bytes() -> [u8; 10] {
    thread_local! {
        static COUNTER: Cell<u64> = Cell::new(RandomState::new().hash_one(0_u8));
    }
    let base = COUNTER.with(|counter| {
        let next = counter.get().wrapping_add(2);
        counter.set(next);
        next
    });
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&mix(base).to_le_bytes());
    bytes[8..].copy_from_slice(&mix(base.wrapping_add(1)).to_le_bytes()[..2]);
    bytes
}

/// The finalizer of SplitMix64: a bijection, so no two counts of one thread give the same value.
fn mix(count: u64) -> u64 {
    let mut value = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_new_id_is_a_version_7_uuid_and_no_two_are_alike() {
        let ids: Vec<CorrId> = (0..10_000).map(|_| CorrId::fresh()).collect();
        let id = uuid::Uuid::parse_str(ids[0].as_str()).expect("a uuid");
        assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
        let distinct: HashSet<&str> = ids.iter().map(CorrId::as_str).collect();
        assert_eq!(distinct.len(), ids.len());
    }

    #[test]
    fn only_short_plain_ids_are_taken_from_callers() {
        let longest = "x".repeat(64);
        for good in ["a", "A-1.b_2", longest.as_str()] {
            assert_eq!(CorrId::parse(good.as_bytes()).expect(good).as_str(), good);
        }
        let too_long = "x".repeat(65);
        for bad in ["", "a b", "a\n", "ä", "a\"b", too_long.as_str()] {
            assert_eq!(CorrId::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
