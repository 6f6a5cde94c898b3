//! A run as tables: for the terminal, and as a page of its own.

use std::fmt::Write as _;

use super::drive::Figures;
use super::systems::{PEERS, SystemId};
use super::{CELLS, Cell, Outcome};
use crate::machine::Machine;
use crate::report;
use crate::stats::Spread;

/// Explanation of the rows, one line each.
const NOTES: &str = "\
- A client publishes at a node and other clients hear at the same node, each over a TLS session of its own; clients and \
node share the cores. NATS is nats-server with TLS as it comes and async-nats, in the same shape. Our node \
was started with `overlay.peer_inflight_frames = 16384` (512 by default), so that the window below fits.
- gossipsub is rust-libp2p's over TCP, noise and yamux, iroh-gossip is n0's over QUIC without relays and discovery. Both are \
libraries without a server: publisher and subscribers are endpoints in one process. With gossipsub each subscriber is connected with \
the publisher, so that a message takes one hop where ours takes two; with iroh-gossip each has the neighbours it chooses, five at \
most. Settings are the defaults, with limits raised so that 64 KiB and the window fit; gossipsub signs each message by \
default, the others do not.
- A rate counts messages that every subscriber has heard. A window keeps the publisher at most 4,096 messages or 2 MiB \
ahead of the slowest subscriber, for all systems: without one, a run measures how much each lets wait before it drops.
- Latency is from a publication to its last subscriber with nothing else on the way.
- macronode's messages have an origin and a number and are kept in a ring for those who missed them; those of NATS core \
have neither.
- Loopback is bare TCP between threads of one process, 64 KiB at a time and four of them in a write; relayed means that \
a thread in between reads and writes everything once more, which is what a node does besides TLS.
- A handshake is a whole session: TCP, TLS with the node's pinned key, HELLO on both sides, both sides in one process.
- The mailbox over OAP/1 is one session of the Rust client that 64 tasks share, over TLS and with each body's hash; HTTP is 64 \
keep-alive connections without TLS, as on the page about the mailbox. The engine runs in the process of the bench.
- The stopped peer is one of four nodes around a hub, each a process with a subscriber. A round first hears a thousand \
messages of 4 KiB a second with everybody running, then the process is stopped (SIGSTOP), its way is filled until the hub \
says busy, and the same is heard again; then it goes on (SIGCONT) and catches up before the next round.
- Idle sessions are those of another process that holds a token and says nothing but PING; the limits of connections were \
raised for them. Memory is what is resident and belongs to no file: pages of a binary come and go.
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
        if self.peers {
            let _ = writeln!(text, "{}", super::iroh::BUILD);
        }
        let _ = writeln!(text, "target/release/macronode-bench overlay{peers}{quick} --write\n```\n");
        if self.quick {
            let _ = writeln!(text, "This was a short run: the numbers are noisy.\n");
        }
        let _ = writeln!(
            text,
            "Medians over {} rounds in which the systems take turns, {:.1} s for each cell after a warm-up; ratios are \
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

    fn cells(&self) -> Vec<Vec<String>> {
        let systems = || std::iter::once(SystemId::Macronode).chain(PEERS);
        let all = |figures: &Figures| match figures.rates.is_empty() {
            true => missing(),
            false => {
                let (p50, p99) = (millis(&figures.p50s_ms), millis(&figures.p99s_ms));
                format!("{}, p50 {p50}, p99 {p99}", rate(&figures.rates))
            }
        };
        let mut heading = vec!["subscribers".to_owned(), "payload".to_owned()];
        heading.extend(systems().map(|id| self.full_name(id).to_owned()));
        let mut lines = vec![heading];
        for cell in CELLS {
            let mut line = vec![cell.subscribers.to_string(), size(cell.payload_bytes)];
            line.extend(systems().map(|id| all(self.figures(id, cell))));
            lines.push(line);
        }
        lines
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "1 to {}, {}", self.subscribers, size(self.payload_bytes))
    }
}

pub(super) fn missing() -> String {
    "not measured".to_owned()
}

fn size(bytes: usize) -> String {
    if bytes < 1024 { format!("{bytes} B") } else { format!("{} KiB", bytes / 1024) }
}

pub(super) fn rate(values: &[f64]) -> String {
    Spread::of(values).map_or_else(missing, |spread| format!("{:.0}/s", spread.median))
}

pub(super) fn millis(values: &[f64]) -> String {
    Spread::of(values).map_or_else(missing, |spread| format!("{:.3} ms", spread.median))
}

pub(super) fn bytes(values: &[f64]) -> String {
    Spread::of(values).map_or_else(missing, |spread| format!("{:.0} MB/s", spread.median / 1e6))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::idle::IdleFigures;
    use super::super::mailbox::MailboxFigures;
    use super::super::stopped::StoppedFigures;
    use super::super::systems::LaneFigures;
    use super::*;

    fn figures(rate: f64, p50_ms: f64) -> Figures {
        Figures { rates: vec![rate], p50s_ms: vec![p50_ms], p99s_ms: vec![2.0 * p50_ms] }
    }

    fn lanes(id: SystemId, cells: Vec<(Cell, Figures)>) -> LaneFigures {
        LaneFigures { id, name: format!("{} 1", id.name()), cells }
    }

    pub fn outcome() -> Outcome {
        let [ours, nats, gossipsub] = [
            vec![(CELLS[0], figures(300.0, 0.1)), (CELLS[2], figures(100.0, 0.2)), (CELLS[3], figures(50.0, 0.1))],
            vec![(CELLS[0], figures(150.0, 0.2))],
            vec![(CELLS[3], figures(10.0, 1.0))],
        ];
        Outcome {
            lanes: vec![
                lanes(SystemId::Macronode, ours),
                lanes(SystemId::Nats, nats),
                lanes(SystemId::Gossipsub, gossipsub),
            ],
            session: vec![6e8],
            raw_batched: vec![1e9],
            raw_single: vec![5e8],
            raw_relayed: vec![1e9],
            hybrid: vec![60.0],
            classical: vec![100.0],
            mailbox: MailboxFigures {
                oap: vec![120.0],
                gathered: vec![200.0],
                http: vec![100.0],
                batches: vec![79.0],
                engine: vec![100.0],
                lone_oap_ms: vec![0.19],
                lone_http_ms: vec![0.3],
                lone_sync_ms: vec![0.1],
            },
            stopped: StoppedFigures {
                running_ms: vec![1.0],
                stopped_ms: vec![1.05],
                busy_p50_ms: vec![0.2],
                busy_p99_ms: vec![1.2],
                grown_bytes: vec![1e6],
                formula_bytes: 1e8,
            },
            idle: Some(IdleFigures { sessions: 10_000, bytes_each: 20.0 * 1024.0 }),
            absent: vec![("iroh-gossip".to_owned(), "not\ninstalled".to_owned())],
            peers: true,
            rounds: 1,
            ..Outcome::default()
        }
    }

    #[test]
    fn the_page_says_who_is_missing_and_how_to_measure_again() {
        let text = outcome().markdown(&Machine::for_tests());
        for part in [
            "# Benchmarks: overlay\n",
            "overlay --peers --write",
            "| 1 | 64 B | 300/s, p50 0.100 ms, p99 0.200 ms | 150/s, p50 0.200 ms, p99 0.400 ms | not measured |",
            "| 8 | 1 KiB | not measured | not measured |",
            "- **Not measured: iroh-gossip**: not installed",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(outcome().plain().contains("NOT MEASURED: iroh-gossip"));
    }
}
