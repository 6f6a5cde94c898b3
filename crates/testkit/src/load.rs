//! Steady load from keep-alive connections, and what became of every request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{CallError, Client, Reply};

/// A connection that is refused is tried again after this time.
const RECONNECT_AFTER: Duration = Duration::from_millis(10);

/// Number of connections and the request that each repeats.
#[derive(Clone, Debug)]
pub struct LoadShape {
    /// Connections, each with one request in flight at most.
    pub connections: usize,
    /// The method of every request.
    pub method: Method,
    /// The path of every request, with its query.
    pub path: String,
    /// The body of every request.
    pub body: Bytes,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// Each connection begins a request this often; without it, as soon as the last one is answered.
    pub every: Option<Duration>,
}

impl LoadShape {
    /// The shape of this many connections that get `path`.
    pub fn get(connections: usize, path: &str) -> Self {
        LoadShape {
            connections,
            method: Method::GET,
            path: path.to_owned(),
            body: Bytes::new(),
            headers: Vec::new(),
            every: None,
        }
    }

    /// Connections that post this JSON to this path.
    pub fn post(connections: usize, path: &str, json: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        LoadShape { method: Method::POST, body: json.into(), headers, ..LoadShape::get(connections, path) }
    }

    /// With a request from each connection this often.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = Some(every);
        self
    }
}

/// Counts and latencies of all requests.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Requests written to an established connection.
    pub sent: u64,
    /// Complete answers by status.
    pub by_status: BTreeMap<u16, u64>,
    /// Connections that ended after a request was sent and before its answer began.
    pub broken: u64,
    /// Those of them that were the first request of their connection: accepted by the system, not by the node.
    pub broken_fresh: u64,
    /// Answers that began and did not end.
    pub truncated: u64,
    /// Connections that could not be made.
    pub refused: u64,
    /// Answers 429 and 503 that did not say when to come back.
    pub without_retry_after: u64,
    /// Times from request to complete answer.
    pub latencies_ms: Vec<f64>,
    /// Latencies in milliseconds, by status.
    pub latencies_ms_by_status: BTreeMap<u16, Vec<f64>>,
    /// One whole answer for each status, the first of its connection.
    pub samples: BTreeMap<u16, Reply>,
}

impl LoadReport {
    /// Number of complete answers.
    pub fn answered(&self) -> u64 {
        self.by_status.values().sum()
    }

    /// Number of complete answers with this status.
    pub fn with_status(&self, status: u16) -> u64 {
        self.by_status.get(&status).copied().unwrap_or(0)
    }

    /// Answers with a status from 500 on.
    pub fn server_errors(&self) -> u64 {
        self.by_status.range(500..).map(|(_, count)| count).sum()
    }

    fn record(&mut self, reply: Reply, took: Duration) {
        *self.by_status.entry(reply.status).or_default() += 1;
        let milliseconds = took.as_secs_f64() * 1e3;
        self.latencies_ms.push(milliseconds);
        self.latencies_ms_by_status.entry(reply.status).or_default().push(milliseconds);
        if matches!(reply.status, 429 | 503) && !reply.headers.contains_key(http::header::RETRY_AFTER) {
            self.without_retry_after += 1;
        }
        self.samples.entry(reply.status).or_insert(reply);
    }

    fn add(&mut self, other: LoadReport) {
        self.sent += other.sent;
        self.broken += other.broken;
        self.broken_fresh += other.broken_fresh;
        self.truncated += other.truncated;
        self.refused += other.refused;
        self.without_retry_after += other.without_retry_after;
        self.latencies_ms.extend(other.latencies_ms);
        for (status, count) in other.by_status {
            *self.by_status.entry(status).or_default() += count;
        }
        for (status, latencies) in other.latencies_ms_by_status {
            self.latencies_ms_by_status.entry(status).or_default().extend(latencies);
        }
        for (status, reply) in other.samples {
            self.samples.entry(status).or_insert(reply);
        }
    }
}

/// Load that goes on until it is stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    loops: JoinSet<LoadReport>,
}

impl Load {
    /// Starts load as fast as it is answered.
    pub fn start(
        address: SocketAddr,
        connections: usize,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
        headers: &[(&str, &str)],
    ) -> Load {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let shape = LoadShape { connections, method, path: path.to_owned(), body: body.into(), headers, every: None };
        Load::shaped(address, shape)
    }

    /// Starts load of this shape.
    pub fn shaped(address: SocketAddr, shape: LoadShape) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let shape = Arc::new(shape);
        let mut loops = JoinSet::new();
        for number in 0..shape.connections {
            loops.spawn(keep_asking(address, Arc::clone(&shape), number, Arc::clone(&stop)));
        }
        Load { stop, loops }
    }

    /// Lets every request in flight be answered, and adds everything up.
    pub async fn stop(mut self) -> LoadReport {
        self.stop.store(true, Ordering::Relaxed);
        let mut total = LoadReport::default();
        while let Some(report) = self.loops.join_next().await {
            total.add(report.expect("a load loop does not panic"));
        }
        total
    }
}

async fn keep_asking(address: SocketAddr, shape: Arc<LoadShape>, number: usize, stop: Arc<AtomicBool>) -> LoadReport {
    let mut report = LoadReport::default();
    let headers: Vec<(&str, &str)> = shape.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    let mut pace = shape.every.map(|every| {
        // Spread over the period, or every connection would ask in the same instant.
        let offset = every.mul_f64(number as f64 / shape.connections as f64);
        let mut pace = tokio::time::interval_at(Instant::now() + offset, every);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        pace
    });
    let mut client: Option<Client> = None;
    let mut is_fresh = true;
    loop {
        if let Some(pace) = &mut pace {
            pace.tick().await;
        }
        if stop.load(Ordering::Relaxed) {
            return report;
        }
        let connected = match client.as_mut().filter(|client| !client.is_closed()) {
            Some(connected) => connected,
            None => match Client::connect(address).await {
                Ok(new) => {
                    is_fresh = true;
                    client.insert(new)
                }
                Err(_) => {
                    report.refused += 1;
                    tokio::time::sleep(RECONNECT_AFTER).await;
                    continue;
                }
            },
        };
        let began = Instant::now();
        match connected.request(shape.method.clone(), &shape.path, &headers, shape.body.clone()).await {
            Ok(reply) => {
                is_fresh = false;
                report.sent += 1;
                report.record(reply, began.elapsed());
            }
            Err(error) => {
                client = None;
                match error {
                    CallError::NotSent => continue,
                    CallError::Truncated(_) => report.truncated += 1,
                    CallError::Unanswered(_) | CallError::TimedOut => {
                        report.broken += 1;
                        report.broken_fresh += u64::from(is_fresh);
                    }
                }
                report.sent += 1;
            }
        }
    }
}

/// The value below which this share (0 to 1) of the values lies; sorts them. Not a number if there are none.
pub fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (share, expected) in [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (0.991, 100.0), (1.0, 100.0)] {
            assert_eq!(percentile(&mut values, share), expected, "{share}");
        }
        assert_eq!(percentile(&mut [7.0], 0.99), 7.0);
        assert!(percentile(&mut [], 0.99).is_nan());
    }
}
