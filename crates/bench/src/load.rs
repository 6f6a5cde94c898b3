//! The load generator: keep-alive connections, each with one request in flight, for a fixed time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use hdrhistogram::Histogram;
use http::{HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use ron_kernel::clock;
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Latencies are kept up to this long.
const LATENCY_MICROS_MAX: u64 = 60_000_000;

/// Shortest wait between two requests of a connection: the runtime's timer has steps of a millisecond.
const PACE_MIN: Duration = Duration::from_millis(4);
/// Bounds of the connections of a paced load.
const PACED_CONNECTIONS: (usize, usize) = (4, 200);

/// The request every connection repeats.
#[derive(Clone, Debug)]
pub struct Shape {
    method: Method,
    path: Uri,
    body: Bytes,
}

/// Result of one load.
pub struct Measured {
    /// Number of answers, all of them with status 200.
    pub requests: u64,
    /// Answers per second.
    pub requests_per_second: f64,
    /// Times from request to complete answer, in microseconds.
    pub micros: Histogram<u64>,
    /// Answers of the connection that got the fewest, as a share of the mean.
    pub least_share: f64,
}

impl Shape {
    /// A load that sends GET requests for this path.
    pub fn get(path: &'static str) -> Shape {
        Shape { method: Method::GET, path: Uri::from_static(path), body: Bytes::new() }
    }

    /// A load that sends GET requests for a path that is known only now.
    pub fn get_made(path: &str) -> anyhow::Result<Shape> {
        Ok(Shape { method: Method::GET, path: path.parse()?, body: Bytes::new() })
    }

    /// A load that posts this JSON to this path.
    pub fn post(path: &'static str, json: &'static str) -> Shape {
        Shape { method: Method::POST, path: Uri::from_static(path), body: Bytes::from_static(json.as_bytes()) }
    }

    fn request(&self, host: &HeaderValue) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.path.clone();
        request.headers_mut().insert(header::HOST, host.clone());
        if !self.body.is_empty() {
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        request
    }
}

/// Runs the load for `time`, after every connection has been answered once.
pub async fn run(address: SocketAddr, connections: usize, shape: &Shape, time: Duration) -> anyhow::Result<Measured> {
    let barrier = Arc::new(Barrier::new(connections));
    let mut loops = JoinSet::new();
    for _ in 0..connections {
        loops.spawn(one_connection(address, shape.clone(), time, Arc::clone(&barrier)));
    }
    let mut micros = new_histogram()?;
    let mut fewest = u64::MAX;
    while let Some(ended) = loops.join_next().await {
        let of_one = ended.context("a load loop panicked")??;
        fewest = fewest.min(of_one.len());
        micros.add(of_one)?;
    }
    let requests = micros.len();
    let least_share = fewest as f64 * connections as f64 / requests.max(1) as f64;
    Ok(Measured { requests, requests_per_second: requests as f64 / time.as_secs_f64(), micros, least_share })
}

/// Runs a load of so many requests a second for `time`, over as many connections as that needs.
pub async fn run_paced(
    address: SocketAddr,
    shape: &Shape,
    per_second: f64,
    time: Duration,
) -> anyhow::Result<Histogram<u64>> {
    anyhow::ensure!(per_second > 0.0, "a load of nothing");
    let wanted = (per_second * PACE_MIN.as_secs_f64()).ceil() as usize;
    let connections = wanted.clamp(PACED_CONNECTIONS.0, PACED_CONNECTIONS.1);
    let interval = Duration::from_secs_f64(connections as f64 / per_second);
    let barrier = Arc::new(Barrier::new(connections));
    let mut loops = JoinSet::new();
    for number in 0..connections {
        // Spread over one interval, so that requests do not come all at once.
        let offset = interval.mul_f64(number as f64 / connections as f64);
        let (shape, barrier) = (shape.clone(), Arc::clone(&barrier));
        loops.spawn(one_paced(address, shape, (offset, interval), time, barrier));
    }
    let mut micros = new_histogram()?;
    while let Some(ended) = loops.join_next().await {
        micros.add(ended.context("a load loop panicked")??)?;
    }
    Ok(micros)
}

/// A histogram of times in microseconds.
pub fn new_histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(LATENCY_MICROS_MAX, 3)?)
}

async fn one_connection(
    address: SocketAddr,
    shape: Shape,
    time: Duration,
    barrier: Arc<Barrier>,
) -> anyhow::Result<Histogram<u64>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let host = HeaderValue::from_str(&address.to_string())?;
    let asking = async {
        exchange(&mut sender, shape.request(&host)).await?;
        barrier.wait().await;
        let mut micros = new_histogram()?;
        let mut began = clock::now();
        let end = began + time;
        while began < end {
            exchange(&mut sender, shape.request(&host)).await?;
            let ended = clock::now();
            micros.saturating_record((ended - began).as_micros() as u64);
            began = ended;
        }
        Ok(micros)
    };
    // Driven by the same task: a second one would only add wake-ups between the cores.
    tokio::select! {
        biased;
        asked = asking => asked,
        closed = connection => Err(anyhow::anyhow!("the server closed a connection: {closed:?}")),
    }
}

async fn one_paced(
    address: SocketAddr,
    shape: Shape,
    (offset, interval): (Duration, Duration),
    time: Duration,
    barrier: Arc<Barrier>,
) -> anyhow::Result<Histogram<u64>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let host = HeaderValue::from_str(&address.to_string())?;
    let asking = async {
        exchange(&mut sender, shape.request(&host)).await?;
        barrier.wait().await;
        let mut micros = new_histogram()?;
        let mut due = clock::now() + offset;
        let end = due + time;
        while due < end {
            // One that waited for the answer before it counts from when it was due; one that the timer woke late does
            // not.
            let is_late = clock::now() > due;
            tokio::time::sleep_until(due).await;
            let since = if is_late { due } else { clock::now() };
            exchange(&mut sender, shape.request(&host)).await?;
            let ended = clock::now();
            micros.saturating_record((ended - since).as_micros() as u64);
            due += interval;
        }
        Ok(micros)
    };
    tokio::select! {
        biased;
        asked = asking => asked,
        closed = connection => Err(anyhow::anyhow!("the server closed a connection: {closed:?}")),
    }
}

async fn exchange(sender: &mut SendRequest<Full<Bytes>>, request: Request<Full<Bytes>>) -> anyhow::Result<()> {
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    anyhow::ensure!(status == 200, "status {status}: {}", String::from_utf8_lossy(&body));
    Ok(())
}
