//! Hashes as this crate writes and derives them: BLAKE3, `b3:` and hexadecimal digits, parts with their lengths.

/// Prefix of a BLAKE3 hash in text.
const PREFIX: &str = "b3:";

/// A hash as text: `b3:` and 64 hexadecimal digits.
pub fn b3(hash: &[u8; 32]) -> String {
    format!("{PREFIX}{}", blake3::Hash::from_bytes(*hash).to_hex())
}

/// Reads what [`b3`] writes, and nothing else: one hash has one text.
pub fn parse_b3(text: &str) -> Option<[u8; 32]> {
    let digits = text.strip_prefix(PREFIX)?;
    let is_plain = digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_plain.then(|| blake3::Hash::from_hex(digits).ok()).flatten().map(|hash| *hash.as_bytes())
}

/// Bytes as `0x` and hexadecimal digits, as EVM tools write them.
pub fn hex0x(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("0x");
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or_default());
        }
    }
    text
}

/// Hash over parts, each behind its length (64 bits, little endian): no two lists of parts share a preimage.
pub fn hash_parts(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_has_one_text() {
        let text = b3(&[0xab; 32]);
        assert_eq!(parse_b3(&text), Some([0xab; 32]));
        for wrong in [text.to_uppercase(), text.replace("b3:", ""), text.clone() + "0", text.replace('a', "A")] {
            assert_eq!(parse_b3(&wrong), None, "{wrong}");
        }
        assert_eq!(hex0x(&[0, 0xff, 0x1a]), "0x00ff1a");
    }

    #[test]
    fn parts_cannot_be_shifted_into_each_other() {
        assert_ne!(hash_parts(&[b"ab", b"c"]), hash_parts(&[b"a", b"bc"]));
        assert_ne!(hash_parts(&[b"ab"]), hash_parts(&[b"ab", b""]));
    }
}
