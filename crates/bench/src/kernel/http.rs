//! The layers of the public plane, and the way through the work queue, beside bare axum.

use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use testkit::Node;
use tokio::runtime::Runtime;

use super::Size;
use crate::load::{self, Shape};
use crate::process::{Server, cpu_time, node_binary};
use crate::report::{Row, Target};
use crate::servers::{ECHO, PING};
use crate::stats::{self, Spread};

const CONNECTIONS: usize = 64;

/// One side of a row over all its rounds.
struct Side<'a> {
    runtime: &'a Runtime,
    address: SocketAddr,
    pid: u32,
    shape: Shape,
    time: Duration,
    micros: Option<Histogram<u64>>,
    /// Core time of the server for each request, in microseconds.
    cpu_micros: Vec<f64>,
}

impl<'a> Side<'a> {
    fn new(runtime: &'a Runtime, address: SocketAddr, pid: u32, shape: Shape, size: Size) -> Self {
        let time = size.pick(Duration::from_millis(300), Duration::from_secs(2));
        Side { runtime, address, pid, shape, time, micros: None, cpu_micros: Vec::new() }
    }

    fn round(&mut self) -> anyhow::Result<f64> {
        let cpu = cpu_time(self.pid)?;
        let measured = self.runtime.block_on(load::run(self.address, CONNECTIONS, &self.shape, self.time))?;
        let cpu = cpu_time(self.pid)?.saturating_sub(cpu);
        self.cpu_micros.push(cpu.as_secs_f64() * 1e6 / measured.requests.max(1) as f64);
        match &mut self.micros {
            Some(all) => all.add(measured.micros)?,
            none => *none = Some(measured.micros),
        }
        Ok(measured.requests_per_second)
    }

    fn cell(&self, per_second: &[f64]) -> String {
        let per_second = Spread::of(per_second).map_or(0.0, |spread| spread.median);
        let p99 = self.micros.as_ref().map_or(0, |micros| micros.value_at_quantile(0.99));
        format!("{per_second:.0}/s, p99 {:.1} ms, {:.1} us of core", p99 as f64 / 1e3, self.core_micros())
    }

    fn core_micros(&self) -> f64 {
        Spread::of(&self.cpu_micros).map_or(0.0, |spread| spread.median)
    }
}

/// Measures both rows; the two servers of a row run side by side, and only one is loaded at a time.
pub fn measure(runtime: &Runtime, size: Size) -> anyhow::Result<Vec<Row>> {
    let bare = Server::start("serve-bare")?;
    let layers = Server::start("serve-layers")?;
    let layered = row(
        size,
        "http: all layers, no work queue",
        Side::new(runtime, layers.address, layers.pid(), Shape::get(PING), size),
        Side::new(runtime, bare.address, bare.pid(), Shape::get(PING), size),
        Target::RatioAtLeast(0.8),
        "One handler with a small JSON answer behind correlation id, deadline, admission, bounds, panic and latency \
         layers, against the same handler on bare axum",
    )?;
    drop(layers);
    let node = runtime.block_on(Node::options_for(node_binary()?).dev().start())?;
    let shape = Shape::post(ECHO, r#"{"message":"sixteen letters."}"#);
    let echoed = row(
        size,
        "http: echo through the work queue",
        Side::new(runtime, node.api, node.pid, shape.clone(), size),
        Side::new(runtime, bare.address, bare.pid(), shape, size),
        Target::None,
        "The whole way of a job in the node (layers, checked JSON, byte-bounded queue, worker with deadline and \
         telemetry, reply), against a handler on bare axum that answers at once",
    )?;
    Ok(vec![layered, echoed])
}

fn row(
    size: Size,
    name: &str,
    mut ours: Side<'_>,
    mut peer: Side<'_>,
    target: Target,
    meaning: &str,
) -> anyhow::Result<Row> {
    let (our_rates, peer_rates) = stats::alternate(size.pick(3, 7), || ours.round(), || peer.round())?;
    let core = peer.core_micros() / ours.core_micros().max(f64::MIN_POSITIVE);
    let meaning = format!(
        "{meaning}; {CONNECTIONS} keep-alive connections from a generator that shares the cores, so the ratio of core \
         time for each request, {core:.2}, is the stricter one."
    );
    Ok(Row {
        name: name.to_owned(),
        ours: ours.cell(&our_rates),
        value: None,
        peer: format!("{} (axum)", peer.cell(&peer_rates)),
        ratio: stats::ratios(&our_rates, &peer_rates),
        target,
        meaning,
    })
}
