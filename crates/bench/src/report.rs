//! The rows of a run as a table for the terminal and as a page of its own.

use std::fmt::Write as _;

use crate::machine::Machine;
use crate::stats::Spread;

const HEADINGS: [&str; 6] = ["measure", "macronode", "peer", "ratio (min to max)", "target", "met"];

/// Goal of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// The ratio to the peer is at least this.
    RatioAtLeast(f64),
    /// The number is below this, in this unit.
    Below(f64, &'static str),
    /// The number is at least this, in this unit.
    AtLeast(f64, &'static str),
    /// No goal: reported without a promise.
    None,
}

/// Comparison of one measured thing with a peer.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the measured thing.
    pub name: String,
    /// Our number, with its unit.
    pub ours: String,
    /// The number a `Below` or `AtLeast` target is held against.
    pub value: Option<f64>,
    /// The peer's number, with its unit.
    pub peer: String,
    /// Ratio of our number to the peer's.
    pub ratio: Option<Spread>,
    /// Goal of the ratio.
    pub target: Target,
    /// One sentence on what the number means.
    pub meaning: String,
}

/// The page about the kernel.
pub struct KernelPage<'a> {
    /// Machine of the run.
    pub machine: &'a Machine,
    /// Whether the run was a quick one.
    pub quick: bool,
    /// Measured rows.
    pub rows: &'a [Row],
}

impl Row {
    /// Whether the target is reached; none where there is none.
    pub fn is_met(&self) -> Option<bool> {
        match self.target {
            Target::RatioAtLeast(least) => Some(self.ratio.is_some_and(|ratio| ratio.median >= least)),
            Target::Below(most, _) => Some(self.value.is_some_and(|value| value < most)),
            Target::AtLeast(least, _) => Some(self.value.is_some_and(|value| value >= least)),
            Target::None => None,
        }
    }

    fn cells(&self) -> [String; 6] {
        let ratio = self.ratio.map(|r| format!("{:.2} ({:.2} to {:.2})", r.median, r.min, r.max));
        let target = match self.target {
            Target::RatioAtLeast(least) => format!("at least {least:.1}"),
            Target::Below(most, unit) if most < 10.0 => format!("below {most:.2} {unit}"),
            Target::Below(most, unit) => format!("below {most:.0} {unit}"),
            Target::AtLeast(least, unit) => format!("at least {least:.0} {unit}"),
            Target::None => "none".to_owned(),
        };
        let dash = || "-".to_owned();
        let peer = if self.peer.is_empty() { dash() } else { self.peer.clone() };
        [self.name.clone(), self.ours.clone(), peer, ratio.unwrap_or_else(dash), target, self.verdict().to_owned()]
    }

    fn verdict(&self) -> &'static str {
        match self.is_met() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        }
    }
}

impl KernelPage<'_> {
    /// The page as Markdown, with its title.
    pub fn markdown(&self) -> String {
        let mut text = format!("# Benchmarks: Kernel\n\n{}\n\n", self.machine.markdown());
        let quick = if self.quick { " --quick" } else { "" };
        let _ = writeln!(text, "```sh");
        let _ = writeln!(text, "cargo build --release -p macronode -p macronode-bench");
        let _ = writeln!(text, "target/release/macronode-bench kernel{quick} --write");
        let _ = writeln!(text, "```\n");
        if self.quick {
            let _ = writeln!(text, "This was a short run: the numbers are noisy.\n");
        }
        let _ = writeln!(text, "A ratio is the median over alternating rounds of both sides in one run.\n");
        text.push_str(&markdown_table(self.rows));
        text.push_str(&meanings(self.rows));
        text
    }
}

/// A line for each row: whether its target is met, and what it means.
pub fn meanings(rows: &[Row]) -> String {
    let mut text = String::from("\n");
    for row in rows {
        let verdict = match row.is_met() {
            Some(true) => "target met",
            Some(false) => "target missed",
            None => "no target",
        };
        let _ = writeln!(text, "- **{}** ({verdict}): {}", row.name, row.meaning);
    }
    text
}

/// The rows as text with aligned columns.
pub fn plain_table(rows: &[Row]) -> String {
    let mut lines: Vec<[String; 6]> = vec![HEADINGS.map(str::to_owned)];
    lines.extend(rows.iter().map(Row::cells));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &lines {
        let padded: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", padded.join("  ").trim_end());
    }
    text
}

/// The rows as a Markdown table.
pub fn markdown_table(rows: &[Row]) -> String {
    let mut lines = vec![HEADINGS.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(|row| row.cells().to_vec()));
    markdown_lines(&lines)
}

/// Any table as Markdown; its first line is the heading.
pub fn markdown_lines(lines: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if number == 0 {
            let _ = writeln!(text, "{}|", "|---".repeat(line.len()));
        }
    }
    text
}

#[cfg(test)]
mod tests;
