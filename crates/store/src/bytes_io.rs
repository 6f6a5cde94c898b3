//! Reading and writing of the small binary forms: fixed fields, minimal varints, and bytes with their length before.

use unsigned_varint::{decode, encode};

/// The bytes end too early, go on too long, or have a length that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads from the front of bytes; whatever was read is a view into them, so no number of a peer reserves memory.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*head)
    }

    /// A number as unsigned varint; other spellings of a number than its shortest are refused. The library does not see
    /// bits beyond the 64th, so what it read is compared with how it would be written.
    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let (value, rest) = decode::u64(self.rest).map_err(|_| Malformed)?;
        if !self.rest.starts_with(encode::u64(value, &mut encode::u64_buffer())) {
            return Err(Malformed);
        }
        self.rest = rest;
        Ok(value)
    }

    /// A count or length that is at most `max`.
    pub(crate) fn count(&mut self, max: usize) -> Result<usize, Malformed> {
        let value = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        if value <= max { Ok(value) } else { Err(Malformed) }
    }

    /// Bytes after their length, which is at most `max`.
    pub(crate) fn bytes(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        let count = self.count(max)?;
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn text(&mut self, max: usize) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes(max)?).map_err(|_| Malformed)
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Whether all bytes were read, which every form demands: what follows a record would be signed by nobody.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

pub(crate) fn put_number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(encode::u64(value, &mut encode::u64_buffer()));
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Bytes of 64 lower-case hex digits. Upper-case ones are refused: two spellings of one id would be two ids to whoever
/// compares texts.
pub(crate) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit_value(pair[0])? << 4 | digit_value(pair[1])?;
    }
    Some(bytes)
}

fn digit_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

pub(crate) fn write_hex(f: &mut std::fmt::Formatter<'_>, bytes: &[u8]) -> std::fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
