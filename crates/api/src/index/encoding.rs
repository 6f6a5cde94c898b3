//! Bytes as text in bodies: base64 with an end, read strictly.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ron_types::Error;

/// Bytes as base64.
pub(super) fn base64_of(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of a field in base64, which has at most so many of them.
pub(super) fn bytes_of(field: &str, text: &str, bytes_max: usize) -> Result<Vec<u8>, Error> {
    if text.len() > bytes_max.div_ceil(3) * 4 {
        return Err(Error::schema(format!("{field}: at most {bytes_max} bytes")));
    }
    STANDARD.decode(text).map_err(|_| Error::schema(format!("{field}: base64 with padding is expected")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_strictly_and_to_a_bound() {
        assert_eq!(bytes_of("x", &base64_of(b"abcd"), 4), Ok(b"abcd".to_vec()));
        assert!(bytes_of("x", "YWJjZA", 4).is_err(), "no padding");
        assert!(bytes_of("x", "YWJj\nZA==", 9).is_err());
        assert!(bytes_of("x", &base64_of(&[0; 13]), 9).is_err());
    }
}
