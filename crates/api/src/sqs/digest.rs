//! The digests clients check: MD5 of bodies and attributes, SHA-256 of bodies for deduplication by content.

use aws_lc_rs::digest::{SHA256, digest};
use md5::{Digest as _, Md5};

/// The MD5 of attributes, which must be given in the order of their names.
#[derive(Default)]
pub(super) struct AttributesDigest(Option<Md5>);

/// MD5 of a body, in hex.
pub(super) fn md5_of(bytes: &[u8]) -> String {
    hex(&Md5::digest(bytes))
}

/// SHA-256 of a body, in hex: what deduplication by content knows it by.
pub(super) fn sha256_of(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

impl AttributesDigest {
    pub fn text(&mut self, name: &str, data_type: &str, value: &str) {
        self.add(name, data_type, 1, value.as_bytes());
    }

    pub fn bytes(&mut self, name: &str, data_type: &str, value: &[u8]) {
        self.add(name, data_type, 2, value);
    }

    fn add(&mut self, name: &str, data_type: &str, kind: u8, value: &[u8]) {
        let hasher = self.0.get_or_insert_with(Md5::new);
        update(hasher, name.as_bytes());
        update(hasher, data_type.as_bytes());
        hasher.update([kind]);
        update(hasher, value);
    }

    /// The digest in hex; none if there were no attributes.
    pub fn finish(self) -> Option<String> {
        self.0.map(|hasher| hex(&hasher.finalize()))
    }
}

fn update(hasher: &mut Md5, bytes: &[u8]) {
    hasher.update((bytes.len() as u32).to_be_bytes());
    hasher.update(bytes);
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_service() {
        assert_eq!(md5_of(b"msg"), "6e2baaf3b97dbeef01c0043275f9a0e7");
        assert_eq!(md5_of(b""), "d41d8cd98f00b204e9800998ecf8427e");
        let mut foo = AttributesDigest::default();
        foo.text("Foo", "String", "Bar");
        assert_eq!(foo.finish().as_deref(), Some("ae7155c6026991b6d54b11589678bf9c"));
        assert_eq!(AttributesDigest::default().finish(), None);
        assert_eq!(sha256_of(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn bytes_and_text_of_the_same_value_differ() {
        let (mut text, mut bytes) = (AttributesDigest::default(), AttributesDigest::default());
        text.text("a", "Binary", "x");
        bytes.bytes("a", "Binary", b"x");
        assert_ne!(text.finish(), bytes.finish());
    }
}
