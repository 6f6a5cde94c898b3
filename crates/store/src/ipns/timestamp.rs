//! Times in RFC 3339, as IPNS records have them.

/// Unix milliseconds of a text such as `2033-05-18T03:33:20.000000000Z`; `None` if it is none, or before 1970.
pub(super) fn unix_millis(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once('T')?;
    let [year, month, day] = parts(date, '-', [4, 2, 2])?;
    let (clock, offset_minutes) = split_offset(rest)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [hour, minute, second] = parts(clock, ':', [2, 2, 2])?;
    let in_range = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    let millis = (seconds - offset_minutes * 60) * 1_000 + millis_of(fraction)?;
    u64::try_from(millis).ok()
}

/// The clock without its zone, and how many minutes the zone is ahead.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    if let Some(clock) = text.strip_suffix('Z') {
        return Some((clock, 0));
    }
    let at = text.rfind(['+', '-'])?;
    let [hours, minutes] = parts(&text[at + 1..], ':', [2, 2])?;
    if hours > 23 || minutes > 59 {
        return None;
    }
    let sign = if text[at..].starts_with('-') { -1 } else { 1 };
    Some((&text[..at], sign * (hours * 60 + minutes)))
}

/// Numbers of exactly so many digits with a mark between them.
fn parts<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut numbers = [0; N];
    let mut fields = text.split(between);
    for (number, count) in numbers.iter_mut().zip(digits) {
        let field = fields.next().filter(|field| field.len() == count)?;
        *number = digits_of(field)?;
    }
    fields.next().is_none().then_some(numbers)
}

fn digits_of(text: &str) -> Option<i64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Milliseconds of a fraction of a second, whose further digits are cut off.
fn millis_of(fraction: &str) -> Option<i64> {
    if fraction.len() > 18 {
        return None;
    }
    digits_of(fraction)?;
    let first = fraction.bytes().chain(std::iter::repeat(b'0')).take(3);
    Some(first.fold(0, |millis, digit| millis * 10 + i64::from(digit - b'0')))
}

fn days_in(year: i64, month: i64) -> i64 {
    let is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the Gregorian calendar: years begin in March, so that the leap day is their last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}
