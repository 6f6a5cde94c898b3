//! A run as tables: for the terminal, and as a page of its own.

use std::fmt::Write as _;

use super::hits::{Answerer, Side};
use super::lookups::{Figures, Kind, SIZES, SIZES_QUICK, Series, TROUBLES, Trouble};
use super::records::StoreFigures;
use super::thread::Hindrance;
use super::{IndexPart, Outcome};
use crate::machine::Machine;
use crate::report::{self, Row, Target};
use crate::stats::{Spread, ratios};

/// Milliseconds that the slowest of a hundred lookups may take while one of twelve nodes is black-holed.
const BLACK_HOLE_P99_MS: f64 = 400.0;
/// Hedges in a hundred questions, while all answer and always.
const HEDGES_HEALTHY: f64 = 5.0;
const HEDGES_MAX: f64 = 10.0;

const NOTES: &str = "\
- Everything shares the cores of one machine: the load generator and the servers it asks, and all nodes of a network. A \
rate over HTTP is therefore what generator and server reach together, and a ratio of two such rates is nearer to 1 than \
that of the servers alone; the core time of an answer, which is the server's own, tells them apart. Redis has core time \
of its own that is not counted.
- Answers over HTTP: 16 connections with one request each, the same id again and again. Bare axum gives back a copy of \
the node's answer with the same headers. Redis has that copy as a value, and the same axum asks it for each request. Helia's \
server has its one provider in a table in memory, where a Helia node would go and look. The node whose answers come from \
the store has `index.cache_ttl = 0`. Half load is half of the rate of the same server in the same round, sent by the \
clock; a request that waits for the one before counts from when it was due.
- Networks: every node has a thread of its own, ours with the DHT and the index as the binary has them, Kademlia with the \
swarm of libp2p, MemoryStore and default settings over TCP. Both keep a record at the 20 nearest nodes, which in a network of \
12 are all. The nodes of Kademlia are told of all others, ours find each other through the first. In every measurement a \
new node joins that keeps no records and has no answers, and meets its neighbours: ours by ten lookups of something else, \
Kademlia's by a connection with every node. Then nodes are hindered, and then it looks things up, one every 10 ms. Our lookups ask the network although a cache might know (`fresh`).
- A black-holed node takes connections and never answers: its thread, or its process (SIGSTOP), stands still. A slow one \
stands still for 150 ms, works for 5 ms, and so on.
- Our lookup ends with the first verified record. Kademlia's tells of its first provider and goes on until the 20 \
nearest have answered: both times are given, and the first is the one compared. A lookup of Kademlia that has not ended 12 s \
after the last one began is counted with 12 s.
- Processes are the whole binary, asked over HTTP; every lookup is a connection of its own.
- The store's records are not signed, because the store does not look at signatures; memory is that of a process that does \
nothing else, with the pages of the file that redb caches.
";

impl Outcome {
    /// The page as text for the terminal.
    pub fn plain(&self) -> String {
        let mut text = report::plain_table(&self.rows());
        if !self.lookups.is_empty() {
            let _ = write!(text, "\n{}", report::markdown_lines(&self.lookup_lines()));
        }
        for (name, reason) in &self.absent {
            let _ = writeln!(text, "NOT MEASURED: {name}: {reason}");
        }
        text
    }

    /// The page as Markdown, with its title.
    pub fn markdown(&self, machine: &Machine) -> String {
        let rows = self.rows();
        let mut text = format!("# Benchmarks: index\n\n{}\n\n", machine.markdown());
        let (peers, quick) = (if self.peers { " --peers" } else { "" }, if self.quick { " --quick" } else { "" });
        let features = if self.peers { " --features macronode-bench/peers" } else { "" };
        let _ = writeln!(text, "```sh\ncargo build --release -p macronode -p macronode-bench{features}");
        let _ = writeln!(text, "target/release/macronode-bench index{peers}{quick} --write\n```\n");
        if self.quick {
            let _ = writeln!(text, "This was a short run: the numbers are noisy.\n");
        }
        let _ = writeln!(
            text,
            "Medians over {} rounds in which all systems take turns (half as many in the larger network), {:.1} s for each \
             load after a warm-up; ratios are taken round by round.\n",
            self.rounds,
            self.time.as_secs_f64()
        );
        let _ = write!(text, "## Targets\n\n{}", report::markdown_table(&rows));
        text.push_str(&report::meanings(&rows));
        let _ = write!(text, "\n## Answers over HTTP\n\n{}", report::markdown_lines(&self.hit_lines()));
        let _ = write!(text, "\n## Lookups\n\n{}", report::markdown_lines(&self.lookup_lines()));
        let _ = write!(text, "\n## The store\n\n{}", self.store.as_ref().map_or_else(missing, store_words));
        let _ = write!(text, "\n## How\n\n{NOTES}");
        for (name, reason) in &self.absent {
            let _ = writeln!(text, "- **Not measured: {name}**: {}", reason.replace('\n', " "));
        }
        text
    }

    fn has(&self, part: IndexPart) -> bool {
        self.only.is_none_or(|only| only == part)
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        if self.has(IndexPart::Hits) {
            rows.extend(self.hit_rows());
        }
        if self.has(IndexPart::Lookups) {
            rows.extend(self.lookup_rows());
        }
        if self.has(IndexPart::Store) {
            rows.extend(store_rows(self.store.as_ref()));
        }
        rows
    }

    fn side(&self, who: Answerer) -> Option<&Side> {
        self.hits.iter().find(|side| side.who == who)
    }

    fn hit_rows(&self) -> Vec<Row> {
        vec![
            self.rate_row("cache hit over HTTP", (Answerer::Cache, Answerer::Bare), Target::RatioAtLeast(0.8), CACHE),
            self.half_load_row("cache hit, p99 at half load", Answerer::Cache, 1.0),
            self.rate_row("store hit over HTTP", (Answerer::Store, Answerer::Bare), Target::None, STORE),
            self.half_load_row("store hit, p99 at half load", Answerer::Store, 5.0),
            self.rate_row(
                "cache hit against Redis GET",
                (Answerer::Cache, Answerer::Redis),
                Target::RatioAtLeast(1.0),
                REDIS,
            ),
            self.rate_row(
                "delegated routing against Helia",
                (Answerer::Routing, Answerer::Helia),
                Target::RatioAtLeast(1.0),
                HELIA,
            ),
        ]
    }

    fn rate_row(&self, name: &str, (ours, peer): (Answerer, Answerer), target: Target, meaning: &str) -> Row {
        let rates = |who| self.side(who).map_or(&[][..], |side| side.rates.as_slice());
        let peer_name = self.side(peer).map_or("", |side| side.name.as_str());
        let peer_rate = match rates(peer).is_empty() {
            true => missing(),
            false => format!("{} ({peer_name})", rate(rates(peer))),
        };
        Row {
            name: name.to_owned(),
            ours: rate(rates(ours)),
            value: None,
            peer: peer_rate,
            ratio: ratios(rates(ours), rates(peer)),
            target,
            meaning: meaning.to_owned(),
        }
    }

    fn half_load_row(&self, name: &str, who: Answerer, most_ms: f64) -> Row {
        let p99s = |who| self.side(who).map_or(&[][..], |side| side.half_load_p99s.as_slice());
        let bare = p99s(Answerer::Bare);
        Row {
            name: name.to_owned(),
            ours: millis(p99s(who)),
            value: Spread::of(p99s(who)).map(|spread| spread.median),
            peer: if bare.is_empty() { missing() } else { format!("{} (bare axum)", millis(bare)) },
            ratio: None,
            target: Target::Below(most_ms, "ms"),
            meaning: "Milliseconds of the slowest in a hundred while half of what the server can do is asked of it."
                .to_owned(),
        }
    }

    fn series(&self, kind: Kind, nodes: usize, trouble: Trouble) -> Option<&Series> {
        self.lookups.iter().find(|series| (series.kind, series.nodes, series.trouble) == (kind, nodes, trouble))
    }

    fn figures(&self, kind: Kind, nodes: usize, trouble: Trouble, of: impl Fn(&Figures) -> f64) -> Vec<f64> {
        self.series(kind, nodes, trouble).map_or_else(Vec::new, |series| series.rounds.iter().map(of).collect())
    }

    fn sizes(&self) -> [usize; 2] {
        if self.quick { SIZES_QUICK } else { SIZES }
    }

    fn lookup_rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let is_gate =
            |nodes, trouble: Trouble| nodes == SIZES[0] && trouble.nodes == 1 && trouble.how == Some(Hindrance::Still);
        for nodes in self.sizes() {
            for trouble in TROUBLES {
                let target =
                    if is_gate(nodes, trouble) { Target::Below(BLACK_HOLE_P99_MS, "ms") } else { Target::None };
                rows.push(self.p99_row("found", Kind::Hedged, nodes, trouble, target, |round| round.first_p99));
                if is_gate(nodes, trouble) {
                    rows.push(self.p99_row("found", Kind::Processes, nodes, trouble, target, |round| round.first_p99));
                    rows.push(self.p99_row("ended", Kind::Hedged, nodes, trouble, target, |round| round.end_p99));
                    let nobody = |round: &Figures| round.nobody_p99;
                    rows.push(self.p99_row("nobody has it", Kind::Hedged, nodes, trouble, Target::None, nobody));
                }
            }
        }
        rows.extend(
            self.sizes().into_iter().flat_map(|nodes| [self.hedge_row(nodes, true), self.hedge_row(nodes, false)]),
        );
        // A network that was left out is no row; one that failed is.
        rows.retain(|row| row.ours != missing() || row.is_met().is_some());
        rows
    }

    fn p99_row(
        &self,
        what: &str,
        kind: Kind,
        nodes: usize,
        trouble: Trouble,
        target: Target,
        of: impl Fn(&Figures) -> f64,
    ) -> Row {
        let ours = self.figures(kind, nodes, trouble, &of);
        let theirs = self.figures(Kind::Kademlia, nodes, trouble, &of);
        let apart = if kind == Kind::Processes { ", processes" } else { "" };
        Row {
            name: format!("{what}, p99, {nodes} nodes{apart}, {trouble}"),
            ours: millis(&ours),
            value: Spread::of(&ours).map(|spread| spread.median),
            peer: if theirs.is_empty() { missing() } else { format!("{} (libp2p kad)", millis(&theirs)) },
            // Of times the smaller one is better, so the ratio is the other way round.
            ratio: ratios(&theirs, &ours),
            target,
            meaning: format!("Milliseconds of the slowest lookup in a hundred, {}; the ratio is theirs to ours.", {
                match what {
                    "found" => "to the first provider of what somebody has",
                    "ended" => "to its end, of what somebody has",
                    _ => "to its end, of what nobody has",
                }
            }),
        }
    }

    /// The worst share of hedges, while all answer or over all troubles.
    fn hedge_row(&self, nodes: usize, healthy: bool) -> Row {
        let of_ours = |series: &&Series| {
            matches!(series.kind, Kind::Hedged | Kind::Processes)
                && series.nodes == nodes
                && (series.trouble.how.is_none() == healthy)
        };
        let percents: Vec<f64> = self.lookups.iter().filter(of_ours).filter_map(hedge_percent).collect();
        let worst = Spread::of(&percents).map(|spread| spread.max);
        let (most, when) = if healthy { (HEDGES_HEALTHY, "all answer") } else { (HEDGES_MAX, "worst trouble") };
        Row {
            name: format!("hedges, {nodes} nodes, {when}"),
            ours: worst.map_or_else(missing, |worst| format!("{worst:.2} %")),
            value: worst,
            peer: String::new(),
            ratio: None,
            target: Target::Below(most, "%"),
            meaning: "Hedges in a hundred questions of one series of lookups, all rounds together.".to_owned(),
        }
    }

    fn hit_lines(&self) -> Vec<Vec<String>> {
        let mut lines =
            vec![["server", "answers", "core time of an answer", "p99 at half load"].map(str::to_owned).to_vec()];
        for side in &self.hits {
            let core = Spread::of(&side.core_micros).map_or_else(missing, |spread| format!("{:.1} us", spread.median));
            lines.push(vec![side.name.clone(), rate(&side.rates), core, millis(&side.half_load_p99s)]);
        }
        lines
    }

    fn lookup_lines(&self) -> Vec<Vec<String>> {
        let headings = [
            "nodes",
            "trouble",
            "who looks up",
            "found, p50",
            "found, p99",
            "ended, p99",
            "nobody has it, p99",
            "not found",
            "questions a lookup",
            "hedges",
        ];
        let mut lines = vec![headings.map(str::to_owned).to_vec()];
        for series in &self.lookups {
            let of = |figure: fn(&Figures) -> f64| millis(&series.rounds.iter().map(figure).collect::<Vec<_>>());
            let sum = |count: fn(&Figures) -> usize| series.rounds.iter().map(count).sum::<usize>();
            let lookups = sum(|round| round.lookups);
            lines.push(vec![
                series.nodes.to_string(),
                series.trouble.to_string(),
                series.kind.to_string(),
                of(|round| round.first_p50),
                of(|round| round.first_p99),
                of(|round| round.end_p99),
                of(|round| round.nobody_p99),
                sum(|round| round.missed).to_string(),
                format!("{:.1}", sum(|round| round.asks) as f64 / lookups.max(1) as f64),
                hedge_percent(series).map_or_else(|| "-".to_owned(), |percent| format!("{percent:.2} %")),
            ]);
        }
        lines
    }
}

const CACHE: &str =
    "Answers a second out of the node's memory, against a bare axum handler with the same bytes and headers.";
const STORE: &str = "The same where the node reads its store for each answer.";
const REDIS: &str = "The node's answers against those of an axum handler that asks Redis for the same bytes.";
const HELIA: &str = "GET /routing/v1/providers of one CID with one provider, against Helia's server on Node.";

/// Hedges in a hundred questions; none where nobody hedges.
fn hedge_percent(series: &Series) -> Option<f64> {
    let asks: usize = series.rounds.iter().map(|round| round.asks).sum();
    let hedges: usize = series.rounds.iter().map(|round| round.hedges).sum();
    (asks > 0 && series.kind != Kind::Kademlia).then(|| 100.0 * hedges as f64 / asks as f64)
}

fn store_rows(figures: Option<&StoreFigures>) -> Vec<Row> {
    let count = figures.map_or(0, |figures| figures.records);
    let row = |name: &str, of: fn(&StoreFigures) -> f64, most: f64, unit: &'static str, meaning: &str| Row {
        name: format!("{name}, {count} records"),
        ours: figures.map_or_else(missing, |figures| format!("{:.3} {unit}", of(figures))),
        value: figures.map(of),
        peer: String::new(),
        ratio: None,
        target: Target::Below(most, unit),
        meaning: meaning.to_owned(),
    };
    vec![
        row(
            "memory of a record",
            |figures| figures.memory_bytes_each,
            200.0,
            "bytes",
            "All memory of the process over the number of records.",
        ),
        row(
            "resolve from the store, p99",
            |figures| figures.resolve.p99,
            5.0,
            "ms",
            "Milliseconds of the slowest in a hundred reads of a random key, of which half have a record.",
        ),
        row(
            "resolve right after opening, p99",
            |figures| figures.resolve_at_once.p99,
            5.0,
            "ms",
            "The same while the store itself has nothing of the file in memory yet; the system may have it.",
        ),
        row(
            "name from the store, p99",
            |figures| figures.name.p99,
            5.0,
            "ms",
            "The same for a random name; there are a tenth as many names as records.",
        ),
        row(
            "opened again",
            |figures| figures.open_seconds,
            5.0,
            "s",
            "Seconds from a file on disk to a store that answers.",
        ),
    ]
}

fn store_words(figures: &StoreFigures) -> String {
    format!(
        "{} provider records and {} names: loaded {:.0} records a second in batches, {:.0} bytes of file for a record, \
         resolve p50 {:.3} ms and p99 {:.3} ms, names p50 {:.3} ms and p99 {:.3} ms; opened again in {:.3} s, then resolve \
         p50 {:.3} ms and p99 {:.3} ms, and after {:.1} s in the background as before.\n",
        figures.records,
        figures.names,
        figures.loaded_per_second,
        figures.file_bytes_each,
        figures.resolve.p50,
        figures.resolve.p99,
        figures.name.p50,
        figures.name.p99,
        figures.open_seconds,
        figures.resolve_at_once.p50,
        figures.resolve_at_once.p99,
        figures.learn_seconds,
    )
}

fn missing() -> String {
    "not measured".to_owned()
}

fn rate(values: &[f64]) -> String {
    Spread::of(values).map_or_else(missing, |spread| format!("{:.0}/s", spread.median))
}

fn millis(values: &[f64]) -> String {
    let words = |ms: f64| if ms < 100.0 { format!("{ms:.2}") } else { format!("{ms:.0}") };
    Spread::of(values).map_or_else(missing, |spread| format!("{} ms", words(spread.median)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLACK_HOLE: Trouble = Trouble { nodes: 1, how: Some(Hindrance::Still) };

    fn series(kind: Kind, trouble: Trouble, first_p99: f64, hedges: usize) -> Series {
        let figures = Figures { first_p99, end_p99: first_p99, asks: 100, hedges, lookups: 30, ..Figures::default() };
        Series { kind, nodes: 12, trouble, rounds: vec![figures] }
    }

    fn outcome() -> Outcome {
        Outcome {
            lookups: vec![
                series(Kind::Hedged, TROUBLES[0], 2.0, 6),
                series(Kind::Hedged, BLACK_HOLE, 20.0, 9),
                series(Kind::Kademlia, BLACK_HOLE, 10_000.0, 0),
            ],
            store: Some(StoreFigures {
                records: 10,
                memory_bytes_each: 150.0,
                open_seconds: 6.0,
                ..Default::default()
            }),
            absent: vec![("Redis".to_owned(), "not\ninstalled".to_owned())],
            peers: true,
            rounds: 1,
            ..Outcome::default()
        }
    }

    #[test]
    fn every_target_is_judged_and_what_did_not_run_is_missed() {
        let rows = outcome().rows();
        let met = |name: &str| rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("{name}")).is_met();
        assert_eq!(met("cache hit over HTTP"), Some(false), "it did not run");
        assert_eq!(met("found, p99, 12 nodes, 1 black-holed"), Some(true));
        assert_eq!(met("found, p99, 12 nodes, processes, 1 black-holed"), Some(false), "it did not run");
        assert_eq!(met("hedges, 12 nodes, all answer"), Some(false));
        assert_eq!(met("hedges, 12 nodes, worst trouble"), Some(true));
        assert_eq!(met("memory of a record, 10 records"), Some(true));
        assert_eq!(met("opened again, 10 records"), Some(false));
        let row = rows.iter().find(|row| row.name == "found, p99, 12 nodes, 1 black-holed").expect("measured");
        assert_eq!(row.ratio.map(|ratio| ratio.median), Some(500.0), "theirs to ours");
    }

    #[test]
    fn the_page_says_who_is_missing_and_how_to_measure_again() {
        let text = outcome().markdown(&Machine::for_tests());
        for part in [
            "# Benchmarks: index\n",
            "index --peers --write",
            "| 12 | 1 black-holed | libp2p kad | 0.00 ms | 10000 ms |",
            "- **Not measured: Redis**: not installed",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(outcome().plain().contains("NOT MEASURED: Redis"));
    }
}
