//! The page about reward runs: ratios first, then every figure.

use std::fmt::Write as _;

use super::{Job, MEMORY_BYTES, Outcome, ROUNDS_ROWS_MAX, Sample, Series};
use crate::machine::Machine;
use crate::report::{self, Row, Target};
use crate::stats::{Spread, ratios};

const NOTES: &str = "\
- Usage is one Parquet file of actor and quantity, the same for all: ids of 42 bytes, half of the rows by Zipf's law, \
half spread evenly, in row groups of 122880 rows, packed with Snappy.
- Every measurement is a new process on all cores; the time is that of the job, without the start of the process or of \
the interpreter. Of the whole job it is all of `macronode reward run`, and after it all payouts booked in an embedded ledger, batch after batch, each \
synced.
- PostgreSQL has the rows in an unlogged table before it begins: it reads no file, and its memory is not told, because its processes \
share it.
- All engines must find the same number of actors, the same total and the same payout, else nothing is written here.
- Aggregation of macronode includes the BLAKE3 of the file's bytes and the sorting of actors, which peers do not do.
- The pool is divided to the unit: by peers in SQL over HUGEINT or NUMERIC, or over Python's integers, by largest remainders.
";

/// Rows with a target or a peer.
pub fn rows(series: &[Series]) -> Vec<Row> {
    let ours = |series: &&Series| series.engine == "macronode";
    let mut rows = Vec::new();
    for own in series.iter().filter(ours) {
        // The whole job has no peer that does it; it is held against the aggregation alone of the quickest peer.
        let job = if own.job == Job::Run { Job::Aggregate } else { own.job };
        let peers = series.iter().filter(|peer| !ours(peer) && peer.epoch == own.epoch && peer.job == job);
        rows.extend(peers.filter(|peer| own.job != Job::Run || peer.engine.starts_with("DuckDB")).map(|peer| {
            let of_duckdb = peer.engine.starts_with("DuckDB") && own.epoch.rows == 10_000_000;
            let target = match own.job {
                _ if !of_duckdb => Target::None,
                // Nobody is paid by aggregation alone, and ours hashes the file and sorts the actors besides.
                Job::Aggregate => Target::None,
                Job::Allocate => Target::RatioAtLeast(1.0),
                Job::Run => Target::RatioAtLeast(0.2),
            };
            Row {
                name: format!("{}, {}, against {}", words(own.job), own.epoch, peer.engine),
                ours: rate(own),
                value: None,
                peer: rate(peer),
                ratio: ratios(&own.rates(), &peer.rates()),
                target,
                meaning: "Rows a second, as a ratio round by round; above one is quicker than the peer.".to_owned(),
            }
        }));
        let cap = Target::Below((MEMORY_BYTES >> 20) as f64, "MiB");
        let meaning = "Peak resident memory of the whole process; the cap was 2 GiB.";
        rows.extend(memory(words(own.job), own, own.peak(|sample| sample.peak_mib), cap, meaning));
        let meaning = "Peak resident memory of the process that books: the sealed run and a book of all payees.";
        let booking = own.peak(|sample| sample.booking_peak_mib);
        rows.extend(memory("booking the payouts", own, booking, Target::None, meaning));
    }
    rows
}

/// A row about memory; none where nothing was measured.
fn memory(what: &str, own: &Series, peak: f64, target: Target, meaning: &str) -> Option<Row> {
    (peak > 0.0).then(|| Row {
        name: format!("memory, {what}, {}", own.epoch),
        ours: format!("{peak:.0} MiB"),
        value: Some(peak),
        peer: String::new(),
        ratio: None,
        target,
        meaning: meaning.to_owned(),
    })
}

fn words(job: Job) -> &'static str {
    match job {
        Job::Aggregate => "aggregation",
        Job::Allocate => "aggregation and exact division",
        Job::Run => "the whole job",
    }
}

fn rate(series: &Series) -> String {
    let median = Spread::of(&series.rates()).map_or(0.0, |spread| spread.median);
    format!("{:.2} million rows/s", median / 1e6)
}

impl Series {
    /// Rows a second of each round.
    fn rates(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| self.epoch.rows as f64 / sample.seconds).collect()
    }

    fn peak(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        self.samples.iter().map(of).fold(0.0, f64::max)
    }

    fn cells(&self) -> Vec<String> {
        let seconds: Vec<f64> = self.samples.iter().map(|sample| sample.seconds).collect();
        let spread = Spread::of(&seconds);
        let seconds = spread.map(|s| format!("{:.2} s ({:.2} to {:.2})", s.median, s.min, s.max));
        let peak = self.peak(|sample| sample.peak_mib);
        vec![
            self.epoch.to_string(),
            words(self.job).to_owned(),
            self.engine.clone(),
            seconds.unwrap_or_default(),
            if peak > 0.0 { format!("{peak:.0} MiB") } else { "-".to_owned() },
        ]
    }
}

impl Outcome {
    fn lines(&self) -> Vec<Vec<String>> {
        let heading = ["epoch", "job", "engine", "time (min to max)", "peak memory"].map(str::to_owned).to_vec();
        std::iter::once(heading).chain(self.series.iter().map(Series::cells)).collect()
    }

    /// The page as text for the terminal.
    pub fn plain(&self) -> String {
        let mut text = report::plain_table(&self.rows);
        for line in self.lines() {
            let _ = writeln!(text, "{}", line.join("  "));
        }
        for (name, reason) in &self.absent {
            let _ = writeln!(text, "NOT MEASURED: {name}: {reason}");
        }
        text
    }

    /// The page as Markdown, with its title.
    pub fn markdown(&self, machine: &Machine) -> String {
        let mut text = format!("# Benchmarks: Reward runs\n\n{}\n\n", machine.markdown());
        let (peers, quick) = (if self.peers { " --peers" } else { "" }, self.size.pick(" --quick", ""));
        let _ = writeln!(text, "```sh\ncargo build --release -p macronode -p macronode-bench");
        let _ = writeln!(text, "target/release/macronode-bench rewarder{peers}{quick} --write\n```\n");
        if self.size.pick(true, false) {
            let _ = writeln!(text, "This was a short run: the numbers are noisy.\n");
        }
        let (rounds, large) = (self.rounds, ROUNDS_ROWS_MAX / 1_000_000);
        let _ = writeln!(
            text,
            "Medians over {rounds} rounds in which all engines take turns; epochs of more than {large} million rows once.\n"
        );
        let _ = write!(text, "## Targets\n\n{}", report::markdown_table(&self.rows));
        text.push_str(&report::meanings(&self.rows));
        let _ = write!(text, "\n## Figures\n\n{}", report::markdown_lines(&self.lines()));
        let _ = write!(text, "\n## How\n\n{NOTES}");
        for (name, reason) in &self.absent {
            let _ = writeln!(text, "- **Not measured: {name}**: {}", reason.replace('\n', " "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sample;
    use super::super::data::Epoch;
    use super::*;
    use crate::kernel::Size;

    #[test]
    fn the_page_has_ratios_memory_and_who_is_missing() {
        let epoch = Epoch { rows: 10_000_000, actors: 1_000_000 };
        let series = |job, engine: &str, seconds| {
            let sample = Sample { seconds, actors: 1, sum: "1".to_owned(), peak_mib: 300.0, booking_peak_mib: 0.0 };
            Series { epoch, job, engine: engine.to_owned(), samples: vec![sample] }
        };
        let series = vec![
            series(Job::Aggregate, "macronode", 1.0),
            series(Job::Aggregate, "DuckDB 2.0.0", 2.0),
            series(Job::Run, "macronode", 4.0),
        ];
        let rows = rows(&series);
        let absent = vec![("Polars".to_owned(), "no\nnetwork".to_owned())];
        let outcome = Outcome { size: Size::Quick, rounds: 1, peers: true, series, absent, rows };
        let text = outcome.markdown(&Machine::for_tests());
        for part in [
            "| aggregation, 10000000 rows, 1000000 actors, against DuckDB 2.0.0 | 10.00 million rows/s | 5.00 million rows/s | 2.00 (2.00 to 2.00) | none | - |",
            "| the whole job, 10000000 rows, 1000000 actors, against DuckDB 2.0.0 | 2.50 million rows/s | 5.00 million rows/s | 0.50",
            "| memory, aggregation, 10000000 rows, 1000000 actors | 300 MiB | - | - | below 2048 MiB | yes |",
            "- **Not measured: Polars**: no network",
            "rewarder --peers --quick --write",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(outcome.plain().contains("NOT MEASURED: Polars"));
    }
}
