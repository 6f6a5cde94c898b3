//! Times as signatures write them: `20260102T030405Z`, in UTC, with no leap seconds.

use std::time::UNIX_EPOCH;

const DAY_S: u64 = 24 * 60 * 60;

/// Seconds since 1970, if the text is such a time.
pub(super) fn read(text: &str) -> Option<u64> {
    let bytes: &[u8; 16] = text.as_bytes().try_into().ok()?;
    let number = |from: usize, to: usize| {
        let digits = bytes[from..to].iter().map(|byte| char::from(*byte).to_digit(10).map(u64::from));
        digits.reduce(|sum, digit| Some(sum? * 10 + digit?)).flatten()
    };
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(9, 11)?, number(11, 13)?, number(13, 15)?);
    let is_time = bytes[8] == b'T' && bytes[15] == b'Z' && hour < 24 && minute < 60 && second < 60;
    let is_date = year >= 1970 && (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    let seconds = || (days_before(year, month) + day - 1) * DAY_S + hour * 3600 + minute * 60 + second;
    (is_time && is_date).then(seconds)
}

/// Seconds since 1970 of a time as HTTP writes it, or mail with its name for the same zone.
pub(super) fn read_http(text: &str) -> Option<u64> {
    let in_utc = text.strip_suffix("-0000").or_else(|| text.strip_suffix("+0000"));
    let text = in_utc.map_or_else(|| text.to_owned(), |start| format!("{start}GMT"));
    let time = httpdate::parse_http_date(&text).ok()?;
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// Seconds since 1970 as `20260102T030405Z`.
pub(super) fn write(seconds: u64) -> String {
    let (days, rest) = (seconds / DAY_S, seconds % DAY_S);
    // No year is longer than 366 days, so the guess is never too late and at most a few years too early.
    let mut year = 1970 + days / 366;
    while days_before(year + 1, 1) <= days {
        year += 1;
    }
    let month = (1..=12).rev().find(|month| days_before(year, *month) <= days).unwrap_or(1);
    let day = days - days_before(year, month) + 1;
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970 to the first of a month.
fn days_before(year: u64, month: u64) -> u64 {
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    years + (1..month).map(|month| days_of(year, month)).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written_alike() {
        for (text, seconds) in [
            ("19700101T000000Z", 0),
            ("20000229T235959Z", 951_868_799),
            ("20000301T000000Z", 951_868_800),
            ("20150830T123600Z", 1_440_938_160),
            ("20241231T235959Z", 1_735_689_599),
            ("20260102T030405Z", 1_767_323_045),
            ("21000228T000000Z", 4_107_456_000),
        ] {
            assert_eq!(read(text), Some(seconds), "{text}");
            assert_eq!(write(seconds), text);
        }
        for seconds in (0..8_000_000_000).step_by(86_399 * 13) {
            assert_eq!(read(&write(seconds)), Some(seconds));
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "20260102",
            "20260102T030405",
            "20260102t030405Z",
            "20260132T030405Z",
            "20261302T030405Z",
            "20260002T030405Z",
            "21000229T000000Z",
            "20260102T240000Z",
            "20260102T036005Z",
            "19691231T235959Z",
            "2026-01-02T03:04",
            "+0260102T030405Z",
            "２０２６0102T030405Z",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
        for zone in ["GMT", "-0000", "+0000"] {
            assert_eq!(read_http(&format!("Fri, 02 Jan 2026 03:04:05 {zone}")), Some(1_767_323_045));
        }
        assert_eq!((read_http("yesterday"), read_http("Fri, 02 Jan 2026 03:04:05 +0100")), (None, None));
    }
}
