//! A run as tables: for the terminal, and as a page of its own.

use std::fmt::Write as _;

use super::{CELLS, Outcome};
use crate::machine::Machine;
use crate::mailbox::cell::{Cell, Workload};
use crate::mailbox::page::{aligned, capital, table};
use crate::mailbox::target::Id;
use crate::report;

/// Explanation of the rows, one line each.
const NOTES: &str = "\
- Every server runs alone on loopback, is driven from one process that shares the cores with it, and keeps one queue. \
Clients wait for each answer; a rate is operations completed in a second, of batches the messages.
- macronode over SQS: JSON 1.0, HTTP/1.1, one keep-alive connection for each client, every request signed with \
Signature Version 4 and checked by the node. Requests of equal bytes are signed once a minute, deletes each. A new node \
for each cell, with its data on the disk.
- macronode over HTTP/JSON: the native surface of the same binary, as on the page about the mailbox.
- The other servers get the same requests as ours, check no signature and keep everything in memory. moto closes the \
connection after each answer, so that each request opens one.
- Receiving asks for one message and waits for at most a second; the queue of \u{201c}receive, acknowledge\u{201d} was \
filled before.
";

impl Outcome {
    /// The page as text for the terminal.
    pub fn plain(&self) -> String {
        let mut text = String::new();
        for (title, cells) in self.tables() {
            let _ = writeln!(text, "{title}\n{}", aligned(&table(&self.results, &cells, Id::Sqs)));
        }
        let _ = writeln!(text, "{}", report::plain_table(&self.rows));
        let _ = writeln!(text, "{} requests were refused as busy and sent again", self.refusals);
        for (name, reason) in &self.absent {
            let _ = writeln!(text, "NOT MEASURED: {name}: {reason}");
        }
        for failure in self.results.failures() {
            let _ = writeln!(text, "FAILED: {failure}");
        }
        text
    }

    /// The page as Markdown, with its title.
    pub fn markdown(&self, machine: &Machine) -> String {
        let mut text = format!("# Benchmarks: SQS\n\n{}\n\n", machine.markdown());
        let (peers, quick) = (if self.peers { " --peers" } else { "" }, self.plan.size.pick(" --quick", ""));
        let _ = writeln!(text, "```sh\ncargo build --release -p macronode -p macronode-bench");
        let _ = writeln!(text, "target/release/macronode-bench sqs{peers}{quick} --write\n```\n");
        if self.plan.size.pick(true, false) {
            let _ = writeln!(text, "This was a short run: the numbers are noisy.\n");
        }
        let _ = writeln!(
            text,
            "Medians over {} rounds in which all servers take turns, {:.1} s for each cell after a warm-up; ratios are \
             taken round by round.\n",
            self.plan.rounds,
            self.plan.times.counted.as_secs_f64()
        );
        let _ = write!(text, "## Targets\n\n{}", report::markdown_table(&self.rows));
        text.push_str(&report::meanings(&self.rows));
        for (title, cells) in self.tables() {
            let _ = writeln!(text, "\n## {title}\n");
            text.push_str(&report::markdown_lines(&table(&self.results, &cells, Id::Sqs)));
        }
        let _ = write!(text, "\n## How\n\n{NOTES}");
        let _ = writeln!(text, "- {} requests were refused as busy and sent again.", self.refusals);
        for (name, reason) in &self.absent {
            let _ = writeln!(text, "- **Not measured: {name}**: {}", reason.replace('\n', " "));
        }
        for failure in self.results.failures() {
            let _ = writeln!(text, "- **Failed**: {}", failure.replace('\n', " "));
        }
        text
    }

    /// Tables of the page: title and cells of each workload.
    fn tables(&self) -> Vec<(String, Vec<Cell>)> {
        let of = |workload| -> Vec<Cell> { CELLS.into_iter().filter(|cell| cell.workload == workload).collect() };
        let measured = |cells: &[Cell]| {
            self.results.labels().any(|label| cells.iter().any(|&cell| self.results.rate(label.id, cell).is_some()))
        };
        [Workload::Send, Workload::Cycle, Workload::Settle, Workload::Batch]
            .into_iter()
            .map(|workload| (format!("{}, 256 B", capital(&workload.to_string())), of(workload)))
            .filter(|(_, cells)| measured(cells))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BATCH_64, SEND_64};
    use super::*;
    use crate::kernel::Size;
    use crate::mailbox::Plan;
    use crate::mailbox::results::Results;
    use crate::mailbox::results::tests::{label, sample};

    #[test]
    fn the_page_says_who_is_missing_and_how_to_measure_again() {
        let mut results = Results::default();
        for (id, name) in [(Id::Durable, "native"), (Id::Sqs, "ours"), (Id::Moto, "moto")] {
            results.announce(&label(id, name));
        }
        for (id, cell, operations) in [(Id::Sqs, SEND_64, 3000), (Id::Moto, SEND_64, 30), (Id::Sqs, BATCH_64, 9000)] {
            results.record(id, cell, 0, sample(operations));
        }
        results.fail("it broke\nbadly".to_owned());
        let absent = vec![("ElasticMQ".to_owned(), "no jar".to_owned())];
        let plan = Plan::new(Size::Quick, None, None, 64);
        let outcome = Outcome { results, rows: Vec::new(), absent, refusals: 3, plan, peers: true };
        let text = outcome.markdown(&Machine::for_tests());
        for part in [
            "# Benchmarks: SQS\n",
            "sqs --peers --quick --write",
            "## Send, 256 B",
            "| moto, as it is | synced to disk | - | 30/s, p50 1.00 ms, p99 1.0 ms, ours 100x (100x to 100x) |",
            "## Send ten at once, 256 B",
            "- **Not measured: ElasticMQ**: no jar",
            "- **Failed**: it broke badly",
            "short run",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("## Receive"), "nobody received: {text}");
        assert!(outcome.plain().contains("NOT MEASURED: ElasticMQ: no jar"));
    }
}
