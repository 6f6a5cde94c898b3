//! The page about growth.

use std::fmt::Write as _;

use super::{Outcome, SHORTER};
use crate::machine::Machine;
use crate::report::{markdown_lines, markdown_table, meanings, plain_table};

const HEADINGS: [&str; 8] = [
    "messages waiting",
    "first tenth",
    "last tenth",
    "p99 of a send beside it",
    "refused",
    "memory",
    "disk at most",
    "restart",
];

const CROWD_HEADINGS: [&str; 5] = ["work", "took", "p99 of a send beside it", "longest send", "refused"];

/// The page about growth.
pub struct GrowthPage<'a> {
    /// Machine of the run.
    pub machine: &'a Machine,
    /// Whether the run was a quick one.
    pub quick: bool,
    /// Seconds of the load beside which no message waits.
    pub seconds: f64,
    /// Findings of the whole run.
    pub outcome: &'a Outcome,
}

impl Outcome {
    fn curve(&self) -> Vec<Vec<String>> {
        let headings = HEADINGS.map(str::to_owned).to_vec();
        std::iter::once(headings).chain(self.curve.iter().map(super::Steady::cells)).collect()
    }

    fn crowds(&self) -> Vec<Vec<String>> {
        let headings = CROWD_HEADINGS.map(str::to_owned).to_vec();
        std::iter::once(headings).chain(self.crowds.iter().map(super::Crowd::cells)).collect()
    }

    /// The whole outcome as text.
    pub fn plain(&self) -> String {
        let (curve, crowds) = (markdown_lines(&self.curve()), markdown_lines(&self.crowds()));
        format!("{}\n{curve}\n{crowds}", plain_table(&self.rows))
    }
}

impl GrowthPage<'_> {
    /// The page as Markdown, with its title.
    pub fn markdown(&self) -> String {
        let mut text = format!("# Benchmarks: Growth\n\n{}\n\n", self.machine.markdown());
        let quick = if self.quick { " --quick" } else { "" };
        let _ = writeln!(text, "```sh");
        let _ = writeln!(text, "cargo build --release -p macronode -p macronode-bench");
        let seconds = self.seconds;
        let _ = writeln!(text, "target/release/macronode-bench growth{quick} --seconds {seconds:.0} --write");
        let _ = writeln!(text, "```\n");
        let (long, short) = (self.seconds, self.seconds / SHORTER);
        let _ = writeln!(text, "The load lasts {long:.0} s; its first and its last tenth are compared.\n");
        text.push_str(&markdown_table(&self.outcome.rows));
        text.push_str(&meanings(&self.outcome.rows));
        let _ = writeln!(text, "\nThe same load while messages of another topic wait, then for {short:.0} s:\n");
        text.push_str(&markdown_lines(&self.outcome.curve()));
        text.push_str(
            "\nWork that touches much at once, each on a node of its own, and what a caller beside it notices:\n\n",
        );
        text.push_str(&markdown_lines(&self.outcome.crowds()));
        text
    }
}
