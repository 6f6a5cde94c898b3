//! The one text of a request that both sides hash.

use aws_lc_rs::digest;
use http::request::Parts;

use super::HOST;

/// A SHA-256 in small hex digits.
pub(super) type Hash = [u8; 64];

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Decoded pairs of a query string.
pub(super) struct Query(Vec<(Vec<u8>, Vec<u8>)>);

impl Query {
    pub(super) fn of(parts: &Parts) -> Self {
        let text = parts.uri.query().unwrap_or_default();
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        };
        Query(pairs.map(pair).collect())
    }

    /// The value of a parameter that must be text.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(found, _)| found == name.as_bytes())?;
        std::str::from_utf8(value).ok()
    }

    /// Encoded again, in the order of the encoded names and values, without the signature itself.
    fn write(&self, out: &mut Vec<u8>) {
        let encoded = |text: &[u8]| {
            let mut out = Vec::with_capacity(text.len());
            encode(text, &mut out);
            out
        };
        let signed = self.0.iter().filter(|(name, _)| name != b"X-Amz-Signature");
        let mut pairs: Vec<_> = signed.map(|(name, value)| (encoded(name), encoded(value))).collect();
        pairs.sort_unstable();
        for (index, (name, value)) in pairs.iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"" } else { b"&" });
            out.extend_from_slice(name);
            out.push(b'=');
            out.extend_from_slice(value);
        }
    }
}

/// The text of a request. `signed_headers` is in small letters, with semicolons between.
pub(super) fn request(parts: &Parts, query: &Query, signed_headers: &str, payload: &Hash) -> Vec<u8> {
    let mut out = Vec::with_capacity(768);
    out.extend_from_slice(parts.method.as_str().as_bytes());
    out.push(b'\n');
    write_path(parts.uri.path(), &mut out);
    out.push(b'\n');
    query.write(&mut out);
    out.push(b'\n');
    for name in signed_headers.split(';') {
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        write_values(parts, name, &mut out);
        out.push(b'\n');
    }
    out.push(b'\n');
    out.extend_from_slice(signed_headers.as_bytes());
    out.push(b'\n');
    out.extend_from_slice(payload);
    out
}

/// The path without dots and doubled slashes, each segment encoded once more than on the wire.
fn write_path(path: &str, out: &mut Vec<u8>) {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    for segment in &segments {
        out.push(b'/');
        encode(segment.as_bytes(), out);
    }
    if segments.is_empty() || path.ends_with('/') {
        out.push(b'/');
    }
}

/// All values of a header, commas between, each without the space around it and with single spaces inside.
fn write_values(parts: &Parts, name: &str, out: &mut Vec<u8>) {
    let mut is_first = true;
    for value in parts.headers.get_all(name) {
        out.extend_from_slice(if is_first { b"" } else { b"," });
        write_folded(value.as_bytes(), out);
        is_first = false;
    }
    // In HTTP/2 the host is not a header.
    if is_first && name == HOST {
        let authority = parts.uri.authority().map_or("", |authority| authority.as_str());
        out.extend_from_slice(authority.as_bytes());
    }
}

fn write_folded(value: &[u8], out: &mut Vec<u8>) {
    let words = value.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    for (index, word) in words.enumerate() {
        out.extend_from_slice(if index == 0 { b"" } else { b" " });
        out.extend_from_slice(word);
    }
}

/// Everything but letters, digits, `-_.~` as `%XX`.
fn encode(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(byte) {
            out.push(*byte);
        } else {
            let digit = |value: u8| DIGITS[usize::from(value)].to_ascii_uppercase();
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

/// The bytes behind `%XX` and `+`; what is no such pair of digits stays as it is.
fn decode(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut out = Vec::with_capacity(rest.len());
    while let [first, tail @ ..] = rest {
        let pair = if *first == b'%' { tail.first_chunk::<2>() } else { None };
        match pair.and_then(|[high, low]| Some((hex_value(*high)? << 4) | hex_value(*low)?)) {
            Some(byte) => {
                out.push(byte);
                rest = &tail[2..];
            }
            None => {
                out.push(if *first == b'+' { b' ' } else { *first });
                rest = tail;
            }
        }
    }
    out
}

/// SHA-256 of `bytes` in hex digits.
pub(super) fn hash(bytes: &[u8]) -> Hash {
    let digest = digest::digest(&digest::SHA256, bytes);
    let mut text = [0; 64];
    for (pair, byte) in text.chunks_exact_mut(2).zip(digest.as_ref()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    text
}

/// The bytes of a signature, if it is one: 64 hex digits in small letters.
pub(super) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let is_small = pair.iter().all(|digit| !digit.is_ascii_uppercase());
        *byte = (hex_value(pair[0]).filter(|_| is_small)? << 4) | hex_value(pair[1])?;
    }
    Some(bytes)
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_and_encoded_once_more() {
        for (path, expected) in [
            ("/", "/"),
            ("//", "/"),
            ("/a/b", "/a/b"),
            ("/a//b/", "/a/b/"),
            ("/a/./b/../c", "/a/c"),
            ("/../x", "/x"),
            ("/a%20b", "/a%2520b"),
            ("/0/q.fifo~-_", "/0/q.fifo~-_"),
            ("/a:b@c", "/a%3Ab%40c"),
        ] {
            let mut out = Vec::new();
            write_path(path, &mut out);
            assert_eq!(String::from_utf8(out).expect("ascii"), expected, "{path}");
        }
    }

    #[test]
    fn queries_are_sorted_and_encoded_the_one_way() {
        for (query, expected) in [
            ("", ""),
            ("b=2&a=1", "a=1&b=2"),
            ("a=2&a=1&a", "a=&a=1&a=2"),
            ("a=%7E%2d%20+%C3%BC", "a=~-%20%20%C3%BC"),
            ("A=1&a=1&%41=0", "A=0&A=1&a=1"),
            ("a=%zz%2&&", "a=%25zz%252"),
            ("a=b=c", "a=b%3Dc"),
            ("x=1&X-Amz-Signature=00", "x=1"),
            ("a-=1&a=2", "a=2&a-=1"),
        ] {
            let (parts, ()) = http::Request::get(format!("/?{query}")).body(()).expect("valid").into_parts();
            let mut out = Vec::new();
            Query::of(&parts).write(&mut out);
            assert_eq!(String::from_utf8(out).expect("ascii"), expected, "{query}");
        }
    }

    #[test]
    fn header_values_are_folded_and_joined() {
        let request = http::Request::get("http://in.uri/").header("x", "  a  b \t c ").header("x", "\"d  e\"");
        let (parts, ()) = request.body(()).expect("valid").into_parts();
        for (name, expected) in [("x", "a b c,\"d e\""), ("host", "in.uri"), ("none", "")] {
            let mut out = Vec::new();
            write_values(&parts, name, &mut out);
            assert_eq!(String::from_utf8(out).expect("ascii"), expected, "{name}");
        }
    }

    #[test]
    fn only_small_digits_are_a_signature() {
        assert_eq!(from_hex(&"0f".repeat(32)), Some([15; 32]));
        for bad in ["", "0f", &"0F".repeat(32), &"0g".repeat(32), &"0f".repeat(33)] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
        assert_eq!(&hash(b"")[..8], b"e3b0c442");
    }
}
