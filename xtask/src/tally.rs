//! Test counts and build times, read from the lines that nextest, libtest and cargo print.

use std::fmt;
use std::ops::{AddAssign, Sub};
use std::time::Duration;

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Ran and held.
    pub passed: u64,
    /// Ran and did not hold, ran too long, or could not run.
    pub failed: u64,
    /// Known but not run.
    pub skipped: u64,
    /// Bounds of time that tests left open, because others used the machine.
    pub left_open: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.left_open += other.left_open;
    }
}

impl Sub for Tally {
    type Output = Tally;

    fn sub(self, earlier: Tally) -> Tally {
        Tally {
            passed: self.passed - earlier.passed,
            failed: self.failed - earlier.failed,
            skipped: self.skipped - earlier.skipped,
            left_open: self.left_open - earlier.left_open,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Ends the line in which a test says that a bound was left open (`testkit::Alone`).
const LEFT_OPEN: &str = "only what does not depend on time was asserted";

/// The counts of a summary line; `None` for every other line.
pub fn parse_line(line: &str) -> Option<Tally> {
    if line.trim_start().starts_with("NOT ALONE: ") && line.trim_end().ends_with(LEFT_OPEN) {
        return Some(Tally { left_open: 1, ..Tally::default() });
    }
    let counts = if let Some(rest) = line.trim_start().strip_prefix("Summary [") {
        rest.split_once(" run: ")?.1
    } else {
        // nextest shows a failed test's own output indented; that one is counted in its summary already.
        line.strip_prefix("test result: ")?.split_once(". ")?.1
    };
    let mut tally = Tally::default();
    for part in without_parentheses(counts).split([',', ';']) {
        let Some((number, word)) = part.trim().split_once(' ') else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        match word.trim() {
            "passed" => tally.passed += number,
            "failed" | "timed out" | "exec failed" => tally.failed += number,
            "skipped" | "ignored" => tally.skipped += number,
            _ => {}
        }
    }
    Some(tally)
}

/// How long a build took, as cargo says at its end: "Finished `dev` profile \[unoptimized\] target(s) in 1m 02s".
pub fn parse_build_time(line: &str) -> Option<Duration> {
    let (_, time) = line.trim_start().strip_prefix("Finished `")?.split_once(" target(s) in ")?;
    let mut seconds = 0.0;
    for part in time.split_whitespace() {
        seconds += match part.strip_suffix('m') {
            Some(minutes) => minutes.parse::<f64>().ok()? * 60.0,
            None => part.strip_suffix('s')?.parse::<f64>().ok()?,
        };
    }
    Duration::try_from_secs_f64(seconds).ok()
}

/// nextest puts details that are already counted into parentheses: `7 passed (1 slow, 1 leaky)`.
fn without_parentheses(text: &str) -> String {
    let mut depth = 0_usize;
    let keep = |c: &char| {
        match c {
            '(' => depth += 1,
            ')' => {
                depth = depth.saturating_sub(1);
                return false;
            }
            _ => {}
        }
        depth == 0
    };
    text.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_times_are_read() {
        for (line, expected) in [
            ("    Finished `dev` profile [unoptimized + debuginfo] target(s) in 0.33s", Some(330)),
            ("    Finished `dev` profile [unoptimized] target(s) in 3m 02s", Some(182_000)),
            ("    Finished `release` profile [optimized] target(s) in 1m 0.5s", Some(60_500)),
            ("    Finished `dev` profile [unoptimized] target(s) in a moment", None),
            ("     Running tests/it.rs", None),
        ] {
            assert_eq!(parse_build_time(line).map(|time| time.as_millis()), expected, "{line}");
        }
    }

    #[test]
    fn bounds_that_were_left_open_are_counted() {
        let line = "    NOT ALONE: drain: only what does not depend on time was asserted";
        assert_eq!(parse_line(line), Some(Tally { left_open: 1, ..Tally::default() }));
        assert_eq!(parse_line("NOT ALONE: drain: took 9 s; others used 40 % of the machine (1 of 3)"), None);
        let kit = std::fs::read_to_string(crate::tree::root().join("crates/testkit/src/alone.rs")).expect("the kit");
        assert!(kit.contains(LEFT_OPEN), "the kit says it in other words");
    }

    #[test]
    fn summary_lines_are_counted() {
        for (line, expected) in [
            ("     Summary [   0.012s] 3 tests run: 3 passed, 0 skipped", Some((3, 0, 0))),
            ("     Summary [   1.5s] 1 test run: 1 passed (1 slow, 1 leaky), 2 skipped", Some((1, 0, 2))),
            ("Summary [ 9s] 4/9 tests run: 1 passed, 1 failed, 1 timed out, 1 exec failed, 0 skipped", Some((1, 3, 0))),
            (
                "test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 9 filtered out; finished in 0.1s",
                Some((5, 0, 2)),
            ),
            ("test result: FAILED. 5 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out", Some((5, 1, 0))),
            ("    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out", None),
            ("test tests::one ... ok", None),
            ("3 passed, 4 failed", None),
        ] {
            let expected = expected.map(|(passed, failed, skipped)| Tally { passed, failed, skipped, left_open: 0 });
            assert_eq!(parse_line(line), expected, "{line}");
        }
    }
}
