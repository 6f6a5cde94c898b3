//! The gate `runtimes`: the same load on the multi-thread and on the one-thread runtime, so that starvation shows.

use std::time::Duration;

use hdrhistogram::Histogram;
use testkit::Node;
use tokio::runtime::Runtime;

use super::Size;
use crate::load::{self, Shape};
use crate::process::node_binary;
use crate::report::{Row, Target};
use crate::servers::ECHO;
use crate::stats;

const CONNECTIONS: usize = 64;
/// Request of one connection beside the measured ones; it keeps a core busy and is not in the histogram.
const HEAVY: &str = "/v1/work?ms=10&kind=cpu";
/// Percentiles of the answers' times that make a row each.
const PERCENTILES: [(&str, f64); 5] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];
/// Least share of the mean that the connection answered least may have. Turns of a fair runtime differ by a few per
/// cent; a connection that waits for others to end has a small part of the mean.
const LEAST_SHARE_PERCENT: f64 = 50.0;

/// A node on one runtime, over all its rounds.
struct Side {
    node: Node,
    micros: Histogram<u64>,
    /// Share of the mean that the connection answered least got, in the worst round.
    least_share: f64,
}

impl Side {
    async fn start(kind: &str) -> anyhow::Result<Side> {
        let node = Node::options_for(node_binary()?).dev().runtime(kind).start().await?;
        Ok(Side { node, micros: load::new_histogram()?, least_share: f64::INFINITY })
    }

    async fn round(&mut self, time: Duration) -> anyhow::Result<f64> {
        let small = Shape::post(ECHO, r#"{"message":"sixteen letters."}"#);
        let heavy = Shape::get(HEAVY);
        let (measured, heavy) = tokio::join!(
            load::run(self.node.api, CONNECTIONS, &small, time),
            load::run(self.node.api, 1, &heavy, time),
        );
        heavy?;
        let measured = measured?;
        self.micros.add(&measured.micros)?;
        self.least_share = self.least_share.min(measured.least_share);
        Ok(measured.requests_per_second)
    }
}

/// Measures both runtimes in alternating rounds; the two nodes run side by side, and only one is loaded at a time.
pub fn measure(runtime: &Runtime, size: Size) -> anyhow::Result<Vec<Row>> {
    let mut multi = runtime.block_on(Side::start("multi"))?;
    let mut current = runtime.block_on(Side::start("current"))?;
    let time = size.pick(Duration::from_millis(500), Duration::from_secs(3));
    let (multi_rates, current_rates) = stats::alternate(
        size.pick(3, 7),
        || runtime.block_on(multi.round(time)),
        || runtime.block_on(current.round(time)),
    )?;
    let rate = |rates: &[f64]| stats::Spread::of(rates).map_or(0.0, |spread| spread.median);
    let mut rows = vec![Row {
        ratio: stats::ratios(&multi_rates, &current_rates),
        ..row(
            "echoes",
            [format!("{:.0}/s", rate(&multi_rates)), format!("{:.0}/s", rate(&current_rates))],
            format!(
                "{CONNECTIONS} keep-alive connections while one more keeps a core busy, the same load on a node with \
                 `runtime = \"multi\"` and on one with `runtime = \"current\"` (the peer)."
            ),
        )
    }];
    let millis =
        |side: &Side, percentile| format!("{:.2} ms", side.micros.value_at_percentile(percentile) as f64 / 1e3);
    rows.extend(PERCENTILES.iter().map(|(name, percentile)| {
        let meaning = format!("{percentile} % of the echoes were answered within this time, over all rounds.");
        row(name, [millis(&multi, *percentile), millis(&current, *percentile)], meaning)
    }));
    let slowest = "The slowest of all answers: a request that is starved shows here first.".to_owned();
    rows.push(row("slowest", [millis(&multi, 100.0), millis(&current, 100.0)], slowest));
    rows.push(fairness(multi.least_share * 100.0, current.least_share * 100.0));
    Ok(rows)
}

/// The row that says whether a connection was starved, on either runtime.
fn fairness(multi_percent: f64, current_percent: f64) -> Row {
    let cells = [multi_percent, current_percent].map(|percent| format!("{percent:.0} % of the mean"));
    let meaning = "Answers of the connection that got the fewest, as a share of the mean of all, in the worst round; \
                   the target holds for both runtimes.";
    Row {
        value: Some(multi_percent.min(current_percent)),
        target: Target::AtLeast(LEAST_SHARE_PERCENT, "%"),
        ..row("connection answered least", cells, meaning.to_owned())
    }
}

fn row(name: &str, [multi, current]: [String; 2], meaning: String) -> Row {
    Row {
        name: format!("runtimes: {name}"),
        ours: multi,
        value: None,
        peer: format!("{current} (one thread)"),
        ratio: None,
        target: Target::None,
        meaning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_starved_on_either_runtime_misses_the_target() {
        for (multi, current, is_met) in [(95.0, 90.0, true), (95.0, 3.0, false), (3.0, 95.0, false), (50.0, 50.0, true)]
        {
            assert_eq!(fairness(multi, current).is_met(), Some(is_met), "{multi} {current}");
        }
    }
}
