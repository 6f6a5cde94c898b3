//! A run as tables: for the terminal, and as a page of its own.

use std::fmt::Write as _;

use super::drive::Figures;
use super::{CELLS, Cell, Outcome};
use crate::machine::Machine;
use crate::report::{self, Row, Target};
use crate::stats::{Spread, ratios};

/// Explanation of the rows, one line each.
const NOTES: &str = "\
- A client publishes at a node and other clients hear at the same node, each over a TLS session of its own; clients and \
node share the cores. NATS is nats-server with TLS as it comes and async-nats, in the same shape. Our node \
was started with `overlay.peer_inflight_frames = 16384` (512 by default), so that the window below fits.
- A rate counts messages that every subscriber has heard. A window keeps the publisher at most 4,096 messages or 2 MiB \
ahead of the slowest subscriber, for both systems: without one, a run measures how much each lets wait before it drops.
- Latency is from a publication to its last subscriber with nothing else on the way.
- macronode's messages have an origin and a number and are kept in a ring for those who missed them; those of NATS core \
have neither.
- Loopback is bare TCP between threads of one process, 64 KiB at a time and four of them in a write; relayed means that \
a thread in between reads and writes everything once more, which is what a node does besides TLS.
- A handshake is a whole session: TCP, TLS with the node's pinned key, HELLO on both sides, both sides in one process.
- The stuck reader keeps its session and never reads; the others hear 2,000 messages of 4 KiB a second.
";

impl Outcome {
    /// The page as text for the terminal.
    pub fn plain(&self) -> String {
        let mut text = report::plain_table(&self.rows());
        for (name, reason) in &self.absent {
            let _ = writeln!(text, "NOT MEASURED: {name}: {reason}");
        }
        text
    }

    /// The page as Markdown, with its title.
    pub fn markdown(&self, machine: &Machine) -> String {
        let rows = self.rows();
        let mut text = format!("# Benchmarks: overlay\n\n{}\n\n", machine.markdown());
        let (peers, quick) = (if self.peers { " --peers" } else { "" }, if self.quick { " --quick" } else { "" });
        let features = if self.peers { " --features macronode-bench/peers" } else { "" };
        let _ = writeln!(text, "```sh\ncargo build --release -p macronode -p macronode-bench{features}");
        let _ = writeln!(text, "target/release/macronode-bench overlay{peers}{quick} --write\n```\n");
        if self.quick {
            let _ = writeln!(text, "This was a short run: the numbers are noisy.\n");
        }
        let _ = writeln!(
            text,
            "Medians over {} rounds in which both systems take turns, {:.1} s for each cell after a warm-up; ratios are \
             taken round by round.\n",
            self.rounds,
            self.time.as_secs_f64()
        );
        let _ = write!(text, "## Targets\n\n{}", report::markdown_table(&rows));
        text.push_str(&report::meanings(&rows));
        let _ = write!(text, "\n## Latency and rates\n\n{}", report::markdown_lines(&self.cells()));
        let _ = write!(text, "\n## How\n\n{NOTES}");
        for (name, reason) in &self.absent {
            let _ = writeln!(text, "- **Not measured: {name}**: {}", reason.replace('\n', " "));
        }
        text
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (cell, ours) in &self.ours {
            let theirs = self.of_nats(*cell);
            rows.push(self.rate_row(*cell, ours, theirs));
            if cell.subscribers == 1 {
                rows.push(self.latency_row(*cell, ours, theirs));
            }
        }
        rows.extend(self.session_rows());
        rows.extend(self.handshake_row());
        rows.extend(self.stuck_row());
        rows
    }

    fn of_nats(&self, cell: Cell) -> &Figures {
        static NONE: Figures = Figures { rates: Vec::new(), p50s_ms: Vec::new(), p99s_ms: Vec::new() };
        self.nats.iter().find(|(other, _)| *other == cell).map_or(&NONE, |(_, figures)| figures)
    }

    fn rate_row(&self, cell: Cell, ours: &Figures, theirs: &Figures) -> Row {
        // At 64 KiB and with eight subscribers both are near what the kernel allows: being ahead is the target.
        let least = if cell.subscribers == 1 && cell.payload_bytes <= 1024 { 1.5 } else { 1.0 };
        Row {
            name: format!("messages, {cell}"),
            ours: rate(&ours.rates),
            value: None,
            peer: if theirs.rates.is_empty() { missing() } else { format!("{} (NATS)", rate(&theirs.rates)) },
            ratio: ratios(&ours.rates, &theirs.rates),
            target: Target::RatioAtLeast(least),
            meaning: format!("Messages a second that everybody heard, over TLS, against {}.", self.nats_name()),
        }
    }

    fn latency_row(&self, cell: Cell, ours: &Figures, theirs: &Figures) -> Row {
        Row {
            name: format!("p50 latency, {cell}"),
            ours: millis(&ours.p50s_ms),
            value: None,
            peer: if theirs.p50s_ms.is_empty() { missing() } else { format!("{} (NATS)", millis(&theirs.p50s_ms)) },
            // Of times the smaller one is better, so the ratio is the other way round.
            ratio: ratios(&theirs.p50s_ms, &ours.p50s_ms),
            target: Target::RatioAtLeast(1.0),
            meaning: "From a publication to its subscriber, one at a time; the ratio is theirs to ours.".to_owned(),
        }
    }

    fn session_rows(&self) -> Vec<Row> {
        if self.session.is_empty() {
            return Vec::new();
        }
        let row = |name: &str, ours: &[f64], peer: (&[f64], &str), target, meaning: &str| Row {
            name: name.to_owned(),
            ours: bytes(ours),
            value: None,
            peer: format!("{} ({})", bytes(peer.0), peer.1),
            ratio: ratios(ours, peer.0),
            target,
            meaning: meaning.to_owned(),
        };
        let half = Target::RatioAtLeast(0.5);
        let through: Vec<f64> = self.through_node().iter().map(|rate| rate * 64.0 * 1024.0).collect();
        let mut rows = vec![
            row(
                "one session, 64 KiB",
                &self.session,
                (&self.raw_batched, "loopback in batches"),
                half,
                "Bytes a second of frames over one TLS session, against bare loopback in batches.",
            ),
            row(
                "loopback in batches, 64 KiB",
                &self.raw_batched,
                (&self.raw_single, "a write for each frame"),
                Target::None,
                "What batching gains on bare loopback.",
            ),
        ];
        if !through.is_empty() {
            rows.push(row(
                "through a node, 64 KiB",
                &through,
                (&self.raw_relayed, "loopback relayed"),
                half,
                "Bytes a second from a client through a node to a client, against bare loopback that is relayed once.",
            ));
        }
        rows
    }

    fn through_node(&self) -> &[f64] {
        let cell = Cell { subscribers: 1, payload_bytes: 64 * 1024 };
        self.ours.iter().find(|(other, _)| *other == cell).map_or(&[], |(_, figures)| &figures.rates)
    }

    fn handshake_row(&self) -> Option<Row> {
        let ratio = ratios(&self.hybrid, &self.classical)?;
        Some(Row {
            name: "sessions begun, hybrid post-quantum".to_owned(),
            ours: rate(&self.hybrid),
            value: None,
            peer: format!("{} (classical)", rate(&self.classical)),
            ratio: Some(ratio),
            // Thirty percent more time for each.
            target: Target::RatioAtLeast(1.0 / 1.3),
            meaning: "Sessions a second, one after the other, with X25519MLKEM768 against X25519 alone.".to_owned(),
        })
    }

    fn stuck_row(&self) -> Option<Row> {
        let ratio = ratios(&self.one_stuck, &self.all_read)?;
        Some(Row {
            name: "p99 with one of eight subscribers stuck".to_owned(),
            ours: millis(&self.one_stuck),
            value: Some(ratio.median),
            peer: format!("{} (all read)", millis(&self.all_read)),
            ratio: Some(ratio),
            target: Target::Below(1.1, "times"),
            meaning: "From a publication to those who read, while one keeps its session and never reads.".to_owned(),
        })
    }

    fn cells(&self) -> Vec<Vec<String>> {
        let mut lines = vec![["subscribers", "payload", "macronode", "NATS"].map(str::to_owned).to_vec()];
        let all = |figures: &Figures| match figures.rates.is_empty() {
            true => missing(),
            false => {
                let (p50, p99) = (millis(&figures.p50s_ms), millis(&figures.p99s_ms));
                format!("{}, p50 {p50}, p99 {p99}", rate(&figures.rates))
            }
        };
        for cell in CELLS {
            let ours = self.ours.iter().find(|(other, _)| *other == cell);
            let ours = ours.map_or_else(missing, |(_, figures)| all(figures));
            let theirs = all(self.of_nats(cell));
            lines.push(vec![cell.subscribers.to_string(), size(cell.payload_bytes), ours, theirs]);
        }
        lines
    }

    fn nats_name(&self) -> &str {
        if self.nats_name.is_empty() { "NATS" } else { &self.nats_name }
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "1 to {}, {}", self.subscribers, size(self.payload_bytes))
    }
}

fn missing() -> String {
    "not measured".to_owned()
}

fn size(bytes: usize) -> String {
    if bytes < 1024 { format!("{bytes} B") } else { format!("{} KiB", bytes / 1024) }
}

fn rate(values: &[f64]) -> String {
    Spread::of(values).map_or_else(missing, |spread| format!("{:.0}/s", spread.median))
}

fn millis(values: &[f64]) -> String {
    Spread::of(values).map_or_else(missing, |spread| format!("{:.3} ms", spread.median))
}

fn bytes(values: &[f64]) -> String {
    Spread::of(values).map_or_else(missing, |spread| format!("{:.0} MB/s", spread.median / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(rate: f64, p50_ms: f64) -> Figures {
        Figures { rates: vec![rate], p50s_ms: vec![p50_ms], p99s_ms: vec![2.0 * p50_ms] }
    }

    fn outcome() -> Outcome {
        Outcome {
            ours: vec![(CELLS[0], figures(300.0, 0.1)), (CELLS[2], figures(100.0, 0.2))],
            nats: vec![(CELLS[0], figures(150.0, 0.2))],
            session: vec![6e8],
            raw_batched: vec![1e9],
            raw_single: vec![5e8],
            raw_relayed: vec![1e9],
            hybrid: vec![60.0],
            classical: vec![100.0],
            all_read: vec![1.0],
            one_stuck: vec![1.05],
            absent: vec![("NATS".to_owned(), "not\ninstalled".to_owned())],
            peers: true,
            rounds: 1,
            ..Outcome::default()
        }
    }

    #[test]
    fn each_target_is_held_against_its_own_peer() {
        let met: Vec<(String, Option<bool>)> =
            outcome().rows().into_iter().map(|row| (row.name.clone(), row.is_met())).collect();
        let expected = [
            ("messages, 1 to 1, 64 B", Some(true)),
            ("p50 latency, 1 to 1, 64 B", Some(true)),
            ("messages, 1 to 1, 64 KiB", Some(false)),
            ("p50 latency, 1 to 1, 64 KiB", Some(false)),
            ("one session, 64 KiB", Some(true)),
            ("loopback in batches, 64 KiB", None),
            ("through a node, 64 KiB", Some(false)),
            ("sessions begun, hybrid post-quantum", Some(false)),
            ("p99 with one of eight subscribers stuck", Some(true)),
        ];
        assert_eq!(met, expected.map(|(name, met)| (name.to_owned(), met)), "what did not run is missed");
    }

    #[test]
    fn the_page_says_who_is_missing_and_how_to_measure_again() {
        let text = outcome().markdown(&Machine::for_tests());
        for part in [
            "# Benchmarks: overlay\n",
            "overlay --peers --write",
            "| 1 | 64 B | 300/s, p50 0.100 ms, p99 0.200 ms | 150/s, p50 0.200 ms, p99 0.400 ms |",
            "| 8 | 64 B | not measured | not measured |",
            "- **Not measured: NATS**: not installed",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(outcome().plain().contains("NOT MEASURED: NATS"));
    }
}
