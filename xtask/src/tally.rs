//! Test counts, read from the summary lines that nextest and libtest print.

use std::fmt;
use std::ops::AddAssign;

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Ran and held.
    pub passed: u64,
    /// Ran and did not hold, ran too long, or could not run.
    pub failed: u64,
    /// Known but not run.
    pub skipped: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The counts of a summary line; `None` for every other line.
pub fn parse_line(line: &str) -> Option<Tally> {
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
            let expected = expected.map(|(passed, failed, skipped)| Tally { passed, failed, skipped });
            assert_eq!(parse_line(line), expected, "{line}");
        }
    }
}
