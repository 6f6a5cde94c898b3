//! How payloads, times, sizes and counts are shown to people.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ron_kernel::clock;

use crate::commands::table::shortened;

/// The bytes of a payload; one that cannot be read is shown as it came.
pub fn decoded(payload_b64: &str) -> Vec<u8> {
    STANDARD.decode(payload_b64).unwrap_or_else(|_| payload_b64.as_bytes().to_vec())
}

/// Payload as base64, for a request body.
pub fn encoded(payload: &[u8]) -> String {
    STANDARD.encode(payload)
}

/// A payload for the reader of this output: text as it is, anything else in base64. On a terminal, characters that
/// would command it are written out.
pub fn payload_text(payload: &[u8], is_terminal: bool) -> String {
    match std::str::from_utf8(payload) {
        Ok(text) if is_terminal => escaped(text, |letter| matches!(letter, '\n' | '\t')),
        Ok(text) => text.to_owned(),
        Err(_) => encoded(payload),
    }
}

/// A payload in one line of at most `width_max` characters.
pub fn payload_line(payload: &[u8], width_max: usize) -> String {
    let text = match std::str::from_utf8(payload) {
        Ok(text) => one_line(text),
        Err(_) => encoded(payload),
    };
    shortened(&text, width_max)
}

/// Text without line breaks and other characters that command a terminal.
pub fn one_line(text: &str) -> String {
    escaped(text, |_| false)
}

fn escaped(text: &str, is_harmless: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() && !is_harmless(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// A span of time in its largest unit.
pub fn span(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{} s", millis / 1_000),
        60_000..3_600_000 => format!("{} min", millis / 60_000),
        3_600_000..172_800_000 => format!("{} h", millis / 3_600_000),
        _ => format!("{} d", millis / 86_400_000),
    }
}

/// Time since a moment or until it, as in `5 s ago`.
pub fn relative(at_ms: u64) -> String {
    let now = clock::unix_millis();
    if at_ms > now { format!("in {}", span(at_ms - now)) } else { format!("{} ago", span(now - at_ms)) }
}

/// Time of day in UTC, from milliseconds since 1970.
pub fn time_of_day(at_ms: u64) -> String {
    let seconds = at_ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Number of bytes in its largest unit, as in `1.5 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (u64::BITS - count.leading_zeros()).saturating_sub(1) / 10;
    let power = power.min(4);
    match power {
        0 => format!("{count} B"),
        _ => format!("{:.1} {}", count as f64 / (1_u64 << (10 * power)) as f64, UNITS[power as usize]),
    }
}

/// A name as one segment of a path: whatever it is, it stays within its segment.
pub fn segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    // Two dots alone would lead upwards.
    let is_dots = name.bytes().all(|byte| byte == b'.');
    let one = |byte: u8| if plain(byte) && !is_dots { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(one).collect()
}

/// Count with its noun, in singular or plural.
pub fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_text_where_they_can_be() {
        assert_eq!(payload_text(b"hi\nthere\x1b[2J", false), "hi\nthere\x1b[2J");
        assert_eq!(payload_text(b"hi\nthere\x1b[2J", true), "hi\nthere\\u{1b}[2J");
        assert_eq!(payload_text(&[0xff, 0xfe], true), "//4=");
        assert_eq!(payload_line(b"a\nb", 10), "a\\nb");
        assert_eq!(payload_line("äöüäöü".as_bytes(), 4), "äöü…");
        assert_eq!(payload_line("äöüä".as_bytes(), 4), "äöüä");
        assert_eq!(decoded("aGk="), b"hi");
        assert_eq!(decoded("not base64!"), b"not base64!");
    }

    #[test]
    fn times_and_sizes_have_one_unit() {
        for (millis, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (59_999, "59 s"),
            (60_000, "1 min"),
            (7_200_000, "2 h"),
            (200_000_000, "2 d"),
        ] {
            assert_eq!(span(millis), expected);
        }
        for (count, expected) in [
            (0, "0 B"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1 << 20, "1.0 MiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(bytes(count), expected);
        }
        for (name, expected) in [("orders.dlq", "orders.dlq"), ("a/b ?", "a%2Fb%20%3F"), ("..", "%2E%2E")] {
            assert_eq!(segment(name), expected);
        }
        assert_eq!(time_of_day(86_400_000 * 20_000 + 3_723_000), "01:02:03");
        assert_eq!((counted(1, "message"), counted(0, "message")), ("1 message".into(), "0 messages".into()));
    }
}
