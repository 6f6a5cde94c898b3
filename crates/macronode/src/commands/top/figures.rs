//! Numbers short enough for a column.

/// A count in at most five characters.
pub fn count(count: u64) -> String {
    short(count as f64)
}

/// A rate in at most five characters; a dash while it is unknown.
pub fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate > 0.0 && rate < 9.95 => format!("{rate:.1}"),
        Some(rate) => short(rate),
    }
}

/// An age in at most five characters; a dash for none.
pub fn age(millis: Option<u64>) -> String {
    let Some(seconds) = millis.map(|millis| millis / 1_000) else { return "-".to_owned() };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn short(number: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let number = number.round();
    match UNITS.iter().find(|(scale, _)| number >= *scale && number >= 10_000.0) {
        None => format!("{number:.0}"),
        Some((scale, unit)) if number / scale < 99.95 => format!("{:.1}{unit}", number / scale),
        Some((scale, unit)) => format!("{:.0}{unit}", number / scale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stay_short() {
        for (number, expected) in [
            (0, "0"),
            (9_999, "9999"),
            (10_000, "10.0k"),
            (123_456, "123k"),
            (1_000_000, "1.0M"),
            (45_600_000, "45.6M"),
            (7_000_000_000, "7.0G"),
        ] {
            assert_eq!(count(number), expected);
        }
        for (number, expected) in [(None, "-"), (Some(0.0), "0"), (Some(0.25), "0.2"), (Some(120.4), "120")] {
            assert_eq!(rate(number), expected);
        }
        for (millis, expected) in [
            (None, "-"),
            (Some(900), "0s"),
            (Some(119_000), "119s"),
            (Some(7_199_000), "119m"),
            (Some(200_000_000), "2d"),
        ] {
            assert_eq!(age(millis), expected);
        }
    }
}
