//! A run as tables: for the terminal, and as a page of its own.

use std::fmt::Write as _;

use super::Outcome;
use super::cell::{Cell, IN_FLIGHT, MAIN_CYCLE, MAIN_SEND, Plan, Workload};
use super::chart::{self, Bar, Group};
use super::results::Results;
use super::target::{Id, Label};
use crate::machine::Machine;
use crate::report;

/// Explanation of the rows, one line each.
const NOTES: &str = "\
- Every system runs alone on loopback with its data on the same disk, is driven from one process that shares the cores \
with it, and keeps one queue. Clients wait for each answer; a rate is operations completed in a second.
- macronode: HTTP/1.1, JSON and base64, a new node for each cell. By its Rust client: tasks share four connections, and \
what waits when one of them is free goes into one request; one of them at a time receives up to 64 messages for all. \
Otherwise one request a message and one keep-alive connection \
for each client (the limit of connections from one address is raised for 512).
- beanstalkd: one connection for each client, and a new server for each cell.
- NATS: work-queue stream in files; a publish waits for its acknowledgement; one pull consumer that fetches ahead; an \
acknowledgement is answered by the server before it counts. A client that shares few connections gets more out of its \
default than one connection for each client, so both are shown.
- Redis: XADD, XREADGROUP COUNT 1, XACK and XDEL in one trip; no rewrite of the log in between. Shared connections get \
more out of it, too, so both are shown.
- RabbitMQ: publisher confirms, persistent messages, consumers with a prefetch, manual acknowledgements, which AMQP \
never answers: its full cycle promises less than the others'.
- PostgreSQL: a lease is an UPDATE with SKIP LOCKED over an index, an acknowledgement a DELETE; each is a commit.
- The bare loop writes as many records as are in flight into a file already filled with zeros and calls fdatasync; its \
latency with one in flight is the price of one sync. The bare group commit does the same for tasks that append and wait, \
with whatever has gathered when the disk is free.
";

impl Outcome {
    /// The page as text for the terminal.
    pub fn plain(&self) -> String {
        let mut text = String::new();
        for (title, cells) in self.tables() {
            let _ = writeln!(text, "{title}\n{}", aligned(&table(&self.results, &cells, Id::Durable)));
        }
        let _ = writeln!(text, "{}", report::plain_table(&self.rows));
        let _ = writeln!(text, "{} requests to the node were refused as busy and sent again", self.refusals);
        for (name, reason) in &self.absent {
            let _ = writeln!(text, "NOT MEASURED: {name}: {reason}");
        }
        for failure in self.results.failures() {
            let _ = writeln!(text, "FAILED: {failure}");
        }
        text
    }

    /// The page as Markdown, with its title.
    pub fn markdown(&self, machine: &Machine, chart_file: &str) -> String {
        let mut text = format!("# Benchmarks: Mailbox\n\n{}\n\n", machine.markdown());
        let _ = writeln!(text, "```sh\n{}\n```\n", self.commands());
        if self.plan.size.pick(true, false) {
            let _ = writeln!(text, "This was a short run: the numbers are noisy.\n");
        }
        let _ = writeln!(
            text,
            "Medians over {} rounds in which all systems take turns, {:.1} s for each cell after a warm-up; ratios are \
             taken round by round.\n",
            self.plan.rounds,
            self.plan.times.counted.as_secs_f64()
        );
        let _ = writeln!(text, "![Messages a second, 64 in flight, 256 B]({chart_file})\n");
        let _ = write!(text, "## Targets\n\n{}", report::markdown_table(&self.rows));
        text.push_str(&report::meanings(&self.rows));
        for (title, cells) in self.tables() {
            let _ = writeln!(text, "\n## {title}\n");
            text.push_str(&report::markdown_lines(&table(&self.results, &cells, Id::Durable)));
        }
        let _ = write!(text, "\n## How\n\n{NOTES}");
        let _ = writeln!(
            text,
            "- NATS, Redis, RabbitMQ and PostgreSQL: one connection for each client up to {}, shared beyond that.",
            self.plan.connections_max
        );
        let _ = writeln!(text, "- {} requests to macronode were refused as busy and sent again.", self.refusals);
        for (name, reason) in &self.absent {
            let _ = writeln!(text, "- **Not measured: {name}**: {}", reason.replace('\n', " "));
        }
        for failure in self.results.failures() {
            let _ = writeln!(text, "- **Failed**: {}", failure.replace('\n', " "));
        }
        text
    }

    fn commands(&self) -> String {
        let (feature, peers) = if self.peers { (" --features macronode-bench/peers", " --peers") } else { ("", "") };
        let quick = self.plan.size.pick(" --quick", "");
        let usual = Plan::new(self.plan.size, None, None, self.plan.connections_max);
        let mut asked = String::new();
        if self.plan.rounds != usual.rounds {
            let _ = write!(asked, " --rounds {}", self.plan.rounds);
        }
        if self.plan.times.counted != usual.times.counted {
            let _ = write!(asked, " --seconds {}", self.plan.times.counted.as_secs_f64());
        }
        format!(
            "cargo build --release -p macronode -p macronode-bench{feature}\n\
             target/release/macronode-bench mailbox{peers}{quick}{asked} --write"
        )
    }

    fn tables(&self) -> Vec<(String, Vec<Cell>)> {
        let sizes = self.plan.payload_sizes();
        let all = [Workload::Send, Workload::Cycle]
            .into_iter()
            .flat_map(|workload| sizes.iter().map(move |&b| (workload, b)));
        let tables = all.map(|(workload, payload_bytes)| {
            let cells = IN_FLIGHT.map(|in_flight| Cell { workload, in_flight, payload_bytes });
            (capital(&format!("{workload}: {payload_bytes} B")), cells.to_vec())
        });
        let measured = |cells: &[Cell]| {
            self.results.labels().any(|label| cells.iter().any(|&cell| self.results.rate(label.id, cell).is_some()))
        };
        tables.filter(|(_, cells)| measured(cells)).collect()
    }

    /// Chart of the main cells, as SVG.
    pub fn chart(&self) -> String {
        let group = |title: &str, cell| Group {
            title: title.to_owned(),
            bars: self.results.labels().filter_map(|label| bar(&self.results, label, cell)).collect(),
        };
        let groups = [group("send", MAIN_SEND), group("send, receive, acknowledge", MAIN_CYCLE)];
        chart::svg("Messages a second, 64 in flight, 256 B (logarithmic)", &groups)
    }
}

fn bar(results: &Results, label: &Label, cell: Cell) -> Option<Bar> {
    let rate = results.rate(label.id, cell)?;
    let is_ours = matches!(label.id, Id::Native | Id::Durable | Id::Amnesia | Id::Engine);
    Some(Bar { label: label.full(), value: rate.median, is_ours, promise: label.promise })
}

/// A line for each system, a column for each number in flight; all are held against ours.
pub fn table(results: &Results, cells: &[Cell], ours: Id) -> Vec<Vec<String>> {
    let mut heading = vec!["system".to_owned(), "an answer means".to_owned()];
    heading.extend(cells.iter().map(|cell| format!("{} in flight", cell.in_flight)));
    let mut lines = vec![heading];
    for label in results.labels() {
        if cells.iter().all(|&cell| results.rate(label.id, cell).is_none()) {
            continue;
        }
        let mut line = vec![label.full(), label.promise.words().to_owned()];
        line.extend(cells.iter().map(|&cell| square(results, label.id, cell, ours).unwrap_or_else(|| "-".to_owned())));
        lines.push(line);
    }
    lines
}

fn square(results: &Results, id: Id, cell: Cell, ours: Id) -> Option<String> {
    let (rate, micros) = (results.rate(id, cell)?, results.micros(id, cell)?);
    let ms = |quantile| micros.value_at_quantile(quantile) as f64 / 1e3;
    let mut text = format!("{:.0}/s, p50 {:.2} ms, p99 {:.1} ms", rate.median, ms(0.5), ms(0.99));
    if id != ours
        && let Some(ratio) = results.ratio(ours, id, cell)
    {
        let _ = write!(text, ", ours {} ({} to {})", times(ratio.median), times(ratio.min), times(ratio.max));
    }
    Some(text)
}

/// A ratio with as many digits as it deserves.
fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.2}x") } else { format!("{ratio:.0}x") }
}

/// With a capital letter at its beginning.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Lines of cells with their columns aligned.
pub fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for line in lines {
        let padded: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", padded.join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::{label, sample};
    use super::*;
    use crate::kernel::Size;
    use crate::mailbox::Plan;

    fn outcome() -> Outcome {
        let mut results = Results::default();
        for (id, name, operations) in [(Id::Durable, "ours", 3000), (Id::RedisAlways, "a|b", 100)] {
            results.announce(&label(id, name));
            results.record(id, MAIN_SEND, 0, sample(operations));
        }
        results.announce(&label(Id::PostgresOn, "idle"));
        results.fail("it broke\nbadly".to_owned());
        let (absent, plan) =
            (vec![("nats".to_owned(), "not installed".to_owned())], Plan::new(Size::Quick, None, None, 64));
        Outcome { results, rows: Vec::new(), absent, refusals: 3, plan, peers: true }
    }

    #[test]
    fn a_system_without_numbers_has_no_line_and_ratios_are_ours_to_theirs() {
        let outcome = outcome();
        let tables = outcome.tables();
        assert_eq!(tables.len(), 1, "nothing was measured for the other workload");
        assert_eq!(tables[0].0, "Send: 256 B");
        let lines = table(&outcome.results, &tables[0].1, Id::Durable);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(lines[1][2..], ["-", "3000/s, p50 1.00 ms, p99 1.0 ms", "-"]);
        assert!(lines[2][3].ends_with("ours 30x (30x to 30x)"), "{lines:?}");
        assert_eq!(times(2.345), "2.35x");
    }

    #[test]
    fn the_page_says_who_is_missing_and_how_to_measure_again() {
        let text = outcome().markdown(&Machine::for_tests(), "picture.svg");
        for part in [
            "# Benchmarks: Mailbox\n",
            "mailbox --peers --quick --write",
            "](picture.svg)",
            "- **Not measured: nats**: not installed",
            "- **Failed**: it broke badly",
            "a\\|b, as it is",
            "short run",
            "- 3 requests to macronode were refused",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(outcome().plain().contains("NOT MEASURED: nats: not installed"));
    }

    #[test]
    fn the_picture_shows_who_was_measured() {
        let picture = outcome().chart();
        assert!(picture.contains("ours, as it is") && !picture.contains("idle"), "{picture}");
    }
}
