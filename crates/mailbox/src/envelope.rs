//! What a message's body holds: the sender's key, attributes, correlation id, the payload's hash and the payload.

use bytes::Bytes;
use ron_types::limits::mailbox as limits;
use ron_types::{Error, Kind};

const VERSION: u8 = 1;
const HASH_BYTES: usize = 32;

/// The content of a message; texts and payload stay where the encoded bytes are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The sender's idempotency key.
    pub idem_key: Option<&'a str>,
    /// What ties the message to others, as the sender gave it.
    pub corr_id: Option<&'a str>,
    /// Attributes in the sender's order.
    pub attrs: Vec<(&'a str, &'a str)>,
    /// BLAKE3 of the payload.
    pub payload_hash: [u8; HASH_BYTES],
    /// Payload of the message.
    pub payload: Bytes,
}

impl<'a> Envelope<'a> {
    /// The envelope's bytes: what the log keeps as the message's body.
    pub fn encode(&self) -> Bytes {
        let attrs: usize = self.attrs.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        let texts = self.idem_key.map_or(0, str::len) + self.corr_id.map_or(0, str::len);
        let mut out = Vec::with_capacity(1 + HASH_BYTES + texts + 12 + attrs + self.payload.len());
        out.push(VERSION);
        out.extend_from_slice(&self.payload_hash);
        for text in [self.idem_key, self.corr_id] {
            // An absent text has no length at all, so that it differs from an empty one.
            put_len(&mut out, text.map_or(0, |text| text.len() + 1));
            out.extend_from_slice(text.unwrap_or_default().as_bytes());
        }
        put_len(&mut out, self.attrs.len());
        for (name, value) in &self.attrs {
            for text in [name, value] {
                put_len(&mut out, text.len());
                out.extend_from_slice(text.as_bytes());
            }
        }
        out.extend_from_slice(&self.payload);
        out.into()
    }

    /// Reads an envelope back; any bytes give an envelope or an error. The payload is not copied.
    pub fn decode(body: &'a Bytes) -> Result<Self, Error> {
        let mut from = Reader { rest: body };
        let version = from.take(1)?[0];
        if version != VERSION {
            return Err(Error::schema(format!("envelope: version {version} is not known")));
        }
        let mut payload_hash = [0; HASH_BYTES];
        payload_hash.copy_from_slice(from.take(HASH_BYTES)?);
        let (idem_key, corr_id) = (from.option()?, from.option()?);
        let count = from.len(limits::ATTRIBUTES_MAX)?;
        let mut attrs = Vec::with_capacity(count);
        for _ in 0..count {
            let bytes_max = limits::ENVELOPE_ATTRIBUTE_BYTES_MAX;
            attrs.push((from.text(bytes_max)?, from.text(bytes_max)?));
        }
        Ok(Envelope { idem_key, corr_id, attrs, payload_hash, payload: body.slice(body.len() - from.rest.len()..) })
    }

    /// Reads an envelope back and checks it. Only bytes that are wrong are called so: those of a later version are
    /// right, and whoever can read them will.
    pub fn open(body: &'a Bytes) -> Result<Self, Error> {
        if let Some(version) = body.first().filter(|version| **version != VERSION) {
            let detail = format!("the message was written by a newer version of the node (envelope {version})");
            return Err(Error::new(Kind::Degraded, detail));
        }
        let envelope = Envelope::decode(body).map_err(|error| Error::new(Kind::Integrity, error.detail))?;
        match envelope.is_intact() {
            true => Ok(envelope),
            false => Err(Error::new(Kind::Integrity, "the payload does not match its hash")),
        }
    }

    /// Whether the payload is the one the hash was made of.
    pub fn is_intact(&self) -> bool {
        payload_hash(&self.payload) == self.payload_hash
    }
}

/// BLAKE3 of a payload.
pub fn payload_hash(payload: &[u8]) -> [u8; HASH_BYTES] {
    *blake3::hash(payload).as_bytes()
}

/// BLAKE3 over what makes a message what it is, each field with its length before it.
pub fn hash_chain(
    topic: &str,
    ts: u64,
    idem_key: Option<&str>,
    payload_hash: &[u8; HASH_BYTES],
    attrs: &[(&str, &str)],
) -> [u8; HASH_BYTES] {
    let mut hasher = blake3::Hasher::new();
    let mut field = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    field(topic.as_bytes());
    field(&ts.to_le_bytes());
    field(&[u8::from(idem_key.is_some())]);
    field(idem_key.unwrap_or_default().as_bytes());
    field(payload_hash);
    field(&(attrs.len() as u64).to_le_bytes());
    for (name, value) in attrs {
        field(name.as_bytes());
        field(value.as_bytes());
    }
    *hasher.finalize().as_bytes()
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&(len as u32).to_le_bytes());
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) =
            self.rest.split_at_checked(len).ok_or_else(|| Error::schema("envelope: it ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn len(&mut self, max: usize) -> Result<usize, Error> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.take(4)?);
        let len = u32::from_le_bytes(bytes) as usize;
        if len > max {
            return Err(Error::schema(format!("envelope: {len} is over the limit of {max}")));
        }
        Ok(len)
    }

    fn utf8(&mut self, len: usize) -> Result<&'a str, Error> {
        std::str::from_utf8(self.take(len)?).map_err(|_| Error::schema("envelope: a text is not UTF-8"))
    }

    fn text(&mut self, bytes_max: usize) -> Result<&'a str, Error> {
        let len = self.len(bytes_max)?;
        self.utf8(len)
    }

    fn option(&mut self) -> Result<Option<&'a str>, Error> {
        match self.len(limits::KEY_BYTES_MAX + 1)? {
            0 => Ok(None),
            len => self.utf8(len - 1).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Envelope<'static> {
        let payload = Bytes::from_static(b"hello");
        Envelope {
            idem_key: Some("order-17"),
            corr_id: None,
            attrs: vec![("b", "2"), ("a", ""), ("b", "3")],
            payload_hash: payload_hash(&payload),
            payload,
        }
    }

    #[test]
    fn an_envelope_comes_back_as_it_was_without_copying_the_payload() {
        for envelope in [sample(), Envelope::default(), Envelope { idem_key: Some(""), corr_id: Some("c"), ..sample() }]
        {
            let body = envelope.encode();
            let read = Envelope::decode(&body).unwrap();
            assert_eq!(read, envelope);
            assert!(body.as_ptr_range().contains(&read.payload.as_ptr()) || read.payload.is_empty());
        }
    }

    #[test]
    fn attributes_may_be_larger_than_a_payload() {
        let value = "v".repeat(limits::ENVELOPE_ATTRIBUTE_BYTES_MAX);
        let envelope = Envelope { attrs: vec![("a", &value)], ..sample() };
        assert_eq!(Envelope::decode(&envelope.encode()).unwrap(), envelope);
        let longer = format!("{value}v");
        assert!(Envelope::decode(&Envelope { attrs: vec![("a", &longer)], ..sample() }.encode()).is_err());
    }

    #[test]
    fn a_changed_payload_is_seen() {
        let mut envelope = sample();
        assert!(envelope.is_intact());
        envelope.payload = Bytes::from_static(b"hellp");
        assert!(!envelope.is_intact());
    }

    #[test]
    fn a_cut_head_is_refused() {
        let body = sample().encode();
        for len in 0..body.len() - 5 {
            assert!(Envelope::decode(&body.slice(..len)).is_err(), "cut to {len}");
        }
    }

    #[test]
    fn every_field_changes_the_chain() {
        let hash = [1; 32];
        let whole = hash_chain("t", 1, Some("k"), &hash, &[("a", "b")]);
        for other in [
            hash_chain("u", 1, Some("k"), &hash, &[("a", "b")]),
            hash_chain("t", 2, Some("k"), &hash, &[("a", "b")]),
            hash_chain("t", 1, None, &hash, &[("a", "b")]),
            hash_chain("t", 1, Some("k"), &[2; 32], &[("a", "b")]),
            hash_chain("t", 1, Some("k"), &hash, &[("ab", "")]),
            hash_chain("t", 1, Some("k"), &hash, &[]),
        ] {
            assert_ne!(whole, other);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let body = Bytes::from(bytes);
            if let Ok(envelope) = Envelope::decode(&body) {
                prop_assert_eq!(envelope.encode(), &body);
            }
        }
    }
}
