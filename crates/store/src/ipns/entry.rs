//! The protobuf `IpnsEntry`, read where it lies.

use super::IpnsError;
use super::data::Data;
use crate::bytes_io::{Malformed, Reader};

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

/// Fields of the entry; of a field that stands there twice the last counts, as protobuf has it.
#[derive(Default)]
pub(super) struct Entry<'a> {
    value: Option<&'a [u8]>,
    has_signature_v1: bool,
    validity_kind: Option<u64>,
    validity: Option<&'a [u8]>,
    sequence: Option<u64>,
    ttl_ns: Option<u64>,
    pub(super) public_key: Option<&'a [u8]>,
    pub(super) signature_v2: &'a [u8],
    pub(super) data: &'a [u8],
}

impl<'a> Entry<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, IpnsError> {
        let mut entry = Entry::default();
        for field in Fields::new(bytes) {
            match field.map_err(|Malformed| IpnsError::Malformed)? {
                (1, Field::Bytes(value)) => entry.value = Some(value),
                (2, Field::Bytes(signature)) => entry.has_signature_v1 = !signature.is_empty(),
                (3, Field::Number(kind)) => entry.validity_kind = Some(kind),
                (4, Field::Bytes(validity)) => entry.validity = Some(validity),
                (5, Field::Number(sequence)) => entry.sequence = Some(sequence),
                (6, Field::Number(ttl_ns)) => entry.ttl_ns = Some(ttl_ns),
                (7, Field::Bytes(key)) => entry.public_key = (!key.is_empty()).then_some(key),
                (8, Field::Bytes(signature)) => entry.signature_v2 = signature,
                (9, Field::Bytes(data)) => entry.data = data,
                (1..=9, _) => return Err(IpnsError::Malformed),
                _ => {}
            }
        }
        Ok(entry)
    }

    /// Whether the fields that older readers go by say what is signed. A record for readers of version 2 alone has
    /// none of them; one with a signature of version 1, or with a value, must have them all, since a missing field of
    /// protobuf is a zero to those who read it.
    pub(super) fn agrees_with(&self, data: &Data) -> bool {
        let fits = self.value.is_none_or(|value| value == data.value)
            && self.validity_kind.is_none_or(|kind| kind == data.validity_kind)
            && self.validity.is_none_or(|validity| validity == data.validity)
            && self.sequence.is_none_or(|sequence| sequence == data.sequence)
            && self.ttl_ns.is_none_or(|ttl_ns| ttl_ns == data.ttl_ns.unwrap_or(0));
        let is_for_older = self.has_signature_v1 || self.value.is_some_and(|value| !value.is_empty());
        let is_whole = self.value.unwrap_or_default() == data.value
            && self.validity.unwrap_or_default() == data.validity
            && self.validity_kind.unwrap_or(0) == data.validity_kind
            && self.sequence.unwrap_or(0) == data.sequence
            && self.ttl_ns.unwrap_or(0) == data.ttl_ns.unwrap_or(0);
        fits && (!is_for_older || is_whole)
    }
}

/// A field of a protobuf message.
pub(super) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a fixed width, which no field read here has.
    Other,
}

/// The fields of a protobuf message with their numbers, to the end or the first mistake.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Fields { rest: bytes }
    }

    fn take(&mut self) -> Result<(u64, Field<'a>), Malformed> {
        let mut reader = Reader::new(self.rest);
        let tag = reader.number()?;
        let field = match tag & 7 {
            VARINT => Field::Number(reader.number()?),
            FIXED_64 => reader.array::<8>().map(|_| Field::Other)?,
            BYTES => Field::Bytes(reader.bytes(usize::MAX)?),
            FIXED_32 => reader.array::<4>().map(|_| Field::Other)?,
            _ => return Err(Malformed),
        };
        self.rest = reader.rest();
        Ok((tag >> 3, field))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Field<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.rest = &[];
        }
        Some(taken)
    }
}
