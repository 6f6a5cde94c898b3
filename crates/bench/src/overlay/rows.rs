//! What was measured as rows, each held against its target.

use super::drive::Figures;
use super::mailbox::{BATCH_MESSAGES, BATCHES};
use super::page::{bytes, millis, missing, rate};
use super::systems::{LaneFigures, SystemId};
use super::{CELLS, Cell, Outcome};
use crate::report::{Row, Target};
use crate::stats::{Spread, ratios};

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;
/// Bytes of a node's memory for a session that says nothing.
const IDLE_KIB_MAX: f64 = 25.0;

static NOTHING: Figures = Figures { rates: Vec::new(), p50s_ms: Vec::new(), p99s_ms: Vec::new() };

impl Outcome {
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = self.lane_rows();
        rows.extend(self.session_rows());
        rows.extend(self.handshake_row());
        rows.extend(self.mailbox_rows());
        rows.extend(self.stopped_rows());
        rows.extend(self.idle_row());
        rows
    }

    fn system(&self, id: SystemId) -> Option<&LaneFigures> {
        self.lanes.iter().find(|lanes| lanes.id == id)
    }

    /// Name with its version, where it took part.
    pub(super) fn full_name(&self, id: SystemId) -> &str {
        self.system(id).map_or_else(|| id.name(), |lanes| &lanes.name)
    }

    pub(super) fn figures(&self, id: SystemId, cell: Cell) -> &Figures {
        let cells = self.system(id).map_or(&[][..], |lanes| &lanes.cells);
        cells.iter().find(|(other, _)| *other == cell).map_or(&NOTHING, |(_, figures)| figures)
    }

    /// Against each peer what is promised against it; what did not run is missed.
    fn lane_rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let measured = |cell: &Cell| !self.figures(SystemId::Macronode, *cell).rates.is_empty();
        for cell in CELLS.into_iter().filter(measured) {
            // At 64 KiB and with eight subscribers both are near what the kernel allows: being ahead is the target.
            let least = if cell.subscribers == 1 && cell.payload_bytes <= 1024 { 1.5 } else { 1.0 };
            rows.push(self.rate_row(cell, SystemId::Nats, least));
            if cell.subscribers == 1 {
                rows.push(self.latency_row(cell));
            } else if self.peers {
                rows.push(self.rate_row(cell, SystemId::Gossipsub, 5.0));
                rows.push(self.rate_row(cell, SystemId::Iroh, 5.0));
            }
        }
        rows
    }

    fn rate_row(&self, cell: Cell, peer: SystemId, least: f64) -> Row {
        let (ours, theirs) = (self.figures(SystemId::Macronode, cell), self.figures(peer, cell));
        Row {
            name: format!("messages, {cell}, against {}", peer.name()),
            ours: rate(&ours.rates),
            value: None,
            peer: if theirs.rates.is_empty() {
                missing()
            } else {
                format!("{} ({})", rate(&theirs.rates), peer.name())
            },
            ratio: ratios(&ours.rates, &theirs.rates),
            target: Target::RatioAtLeast(least),
            meaning: format!("Messages a second that everybody heard, encrypted, against {}.", self.full_name(peer)),
        }
    }

    fn latency_row(&self, cell: Cell) -> Row {
        let of = |id| &self.figures(id, cell).p50s_ms[..];
        let (ours, theirs) = (of(SystemId::Macronode), of(SystemId::Nats));
        Row {
            name: format!("p50 latency, {cell}"),
            ours: millis(ours),
            value: None,
            peer: if theirs.is_empty() { missing() } else { format!("{} (NATS)", millis(theirs)) },
            // Of times the smaller one is better, so the ratio is the other way round.
            ratio: ratios(theirs, ours),
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
        let through = &self.figures(SystemId::Macronode, Cell { subscribers: 1, payload_bytes: 64 * 1024 }).rates;
        let through: Vec<f64> = through.iter().map(|rate| rate * 64.0 * KIB).collect();
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

    fn mailbox_rows(&self) -> Vec<Row> {
        let figures = &self.mailbox;
        if figures.oap.is_empty() {
            return Vec::new();
        }
        let rate_row = |name: String, ours: &[f64], peer: (&[f64], &str), least, meaning: &str| Row {
            name,
            ours: rate(ours),
            value: None,
            peer: format!("{} ({})", rate(peer.0), peer.1),
            ratio: ratios(ours, peer.0),
            target: Target::RatioAtLeast(least),
            meaning: meaning.to_owned(),
        };
        let lone = |name: &str, ours: &[f64], target: fn(f64) -> Target, meaning: &str| {
            let ratio = ratios(ours, &figures.lone_sync_ms);
            Row {
                name: name.to_owned(),
                ours: format!("p50 {}", millis(ours)),
                value: ratio.map(|ratio| ratio.median),
                peer: format!("p50 {} (one write and fdatasync)", millis(&figures.lone_sync_ms)),
                ratio,
                target: target(2.0),
                meaning: meaning.to_owned(),
            }
        };
        vec![
            rate_row(
                "durable send over OAP/1, 64 in flight".to_owned(),
                &figures.gathered,
                (&figures.http, "HTTP"),
                2.0,
                "Messages of 256 B a second that 64 tasks send one by one over a session they share, which gathers what they \
                 send at once, against 64 connections of HTTP with a request for each message.",
            ),
            rate_row(
                "durable send over OAP/1, 64 in flight, one request a message".to_owned(),
                &figures.oap,
                (&figures.http, "HTTP"),
                2.0,
                "The same with a request for each message here, too.",
            ),
            rate_row(
                format!("durable send over OAP/1, {BATCHES} batches of {BATCH_MESSAGES} in flight"),
                &figures.batches,
                (&figures.engine, "engine in process"),
                0.8,
                "The same in batches, against the engine alone with as many messages on their way.",
            ),
            lone(
                "durable send over OAP/1, one client",
                &figures.lone_oap_ms,
                |most| Target::Below(most, "times"),
                "A send that nobody else shares the disk with, against a write and fdatasync of the same record by a \
                 bare loop.",
            ),
            lone("durable send over HTTP, one client", &figures.lone_http_ms, |_| Target::None, "The same over HTTP."),
        ]
    }

    fn stopped_rows(&self) -> Vec<Row> {
        let figures = &self.stopped;
        let Some(ratio) = ratios(&figures.stopped_ms, &figures.running_ms) else { return Vec::new() };
        let (busy, grown) = (Spread::of(&figures.busy_p99_ms), Spread::of(&figures.grown_bytes));
        let formula = figures.formula_bytes / MIB;
        vec![
            Row {
                name: "p99 to other nodes while a peer is stopped".to_owned(),
                ours: millis(&figures.stopped_ms),
                value: Some(ratio.median),
                peer: format!("{} (all run)", millis(&figures.running_ms)),
                ratio: Some(ratio),
                target: Target::Below(1.1, "times"),
                meaning:
                    "From a publication at the hub of a star to the subscribers at the other nodes, while one node \
                          is stopped (SIGSTOP) and its queue is full, against the same with all of them running."
                        .to_owned(),
            },
            Row {
                name: "publication answered busy".to_owned(),
                ours: format!("p50 {}, p99 {}", millis(&figures.busy_p50_ms), millis(&figures.busy_p99_ms)),
                value: busy.map(|spread| spread.median),
                peer: String::new(),
                ratio: None,
                target: Target::Below(1.0, "ms"),
                meaning:
                    "From the call of a client to the answer that says busy for the stopped peer; held to it at p99."
                        .to_owned(),
            },
            Row {
                name: "memory with a stopped peer".to_owned(),
                ours: grown.map_or_else(missing, |spread| format!("{:.1} MiB", spread.max / MIB)),
                value: grown.map(|spread| spread.max / MIB),
                peer: String::new(),
                ratio: None,
                target: Target::Below(formula, "MiB"),
                meaning: "Growth of the hub's resident memory at most, against the formula of docs/overlay.md."
                    .to_owned(),
            },
        ]
    }

    fn idle_row(&self) -> Option<Row> {
        let idle = self.idle?;
        let kib = idle.bytes_each / KIB;
        Some(Row {
            name: format!("memory of an idle session, {} of them", idle.sessions),
            ours: format!("{kib:.1} KiB"),
            value: Some(kib),
            peer: String::new(),
            ratio: None,
            target: Target::Below(IDLE_KIB_MAX, "KiB"),
            meaning:
                "Growth of the node's resident memory by sessions of clients that stand and say nothing, for each."
                    .to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::outcome;

    #[test]
    fn each_target_is_held_against_its_own_peer() {
        let met: Vec<(String, Option<bool>)> =
            outcome().rows().into_iter().map(|row| (row.name.clone(), row.is_met())).collect();
        let expected = [
            ("messages, 1 to 1, 64 B, against NATS", Some(true)),
            ("p50 latency, 1 to 1, 64 B", Some(true)),
            ("messages, 1 to 1, 64 KiB, against NATS", Some(false)),
            ("p50 latency, 1 to 1, 64 KiB", Some(false)),
            ("messages, 1 to 8, 64 B, against NATS", Some(false)),
            ("messages, 1 to 8, 64 B, against gossipsub", Some(true)),
            ("messages, 1 to 8, 64 B, against iroh-gossip", Some(false)),
            ("one session, 64 KiB", Some(true)),
            ("loopback in batches, 64 KiB", None),
            ("through a node, 64 KiB", Some(false)),
            ("sessions begun, hybrid post-quantum", Some(false)),
            ("durable send over OAP/1, 64 in flight", Some(true)),
            ("durable send over OAP/1, 64 in flight, one request a message", Some(false)),
            ("durable send over OAP/1, 8 batches of 64 in flight", Some(false)),
            ("durable send over OAP/1, one client", Some(true)),
            ("durable send over HTTP, one client", None),
            ("p99 to other nodes while a peer is stopped", Some(true)),
            ("publication answered busy", Some(false)),
            ("memory with a stopped peer", Some(true)),
            ("memory of an idle session, 10000 of them", Some(true)),
        ];
        assert_eq!(met, expected.map(|(name, met)| (name.to_owned(), met)), "what did not run is missed");
    }

    #[test]
    fn what_was_not_asked_for_has_no_rows() {
        assert!(super::Outcome::default().rows().is_empty());
    }
}
