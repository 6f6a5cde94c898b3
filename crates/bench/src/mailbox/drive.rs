//! The load: as many tasks as are in flight, each doing one thing after the other until time is up.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use ron_kernel::clock;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::cell::{Times, Workload};

const LATENCY_MICROS_MAX: u64 = 60_000_000;

/// One task's way to a system; several may share a connection.
pub trait Client: Send + 'static {
    /// Sends one message and waits until the system has acknowledged it.
    fn send(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Takes one message of any sender and acknowledges it.
    fn settle(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Sends ten messages in one request.
    fn send_ten(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send {
        std::future::ready(Err(anyhow::anyhow!("it cannot send ten at once")))
    }
}

/// Result of one load of one cell.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Operations completed in a second; of those that carry several messages, the messages.
    pub per_second: f64,
    /// Times of the operations, in microseconds.
    pub micros: Histogram<u64>,
}

impl Sample {
    /// Sample of operations that completed within `counted`.
    pub fn of(micros: Histogram<u64>, counted: Duration) -> Sample {
        Sample { per_second: micros.len() as f64 / counted.as_secs_f64(), micros }
    }
}

/// An empty histogram of latencies.
pub fn new_histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(LATENCY_MICROS_MAX, 3)?)
}

/// Loads the system with all clients at once. What is unfinished when time is up is cut off and not counted.
pub async fn drive<C: Client>(clients: Vec<C>, workload: Workload, times: Times) -> anyhow::Result<Sample> {
    let barrier = Arc::new(Barrier::new(clients.len()));
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn(one(client, workload, times, Arc::clone(&barrier)));
    }
    let mut micros = new_histogram()?;
    while let Some(ended) = tasks.join_next().await {
        for one in ended.context("a load task panicked")?? {
            micros.saturating_record(u64::from(one));
        }
    }
    anyhow::ensure!(!micros.is_empty(), "nothing was completed in time");
    let mut sample = Sample::of(micros, times.counted);
    sample.per_second *= f64::from(workload.messages_each());
    Ok(sample)
}

async fn one<C: Client>(
    mut client: C,
    workload: Workload,
    times: Times,
    barrier: Arc<Barrier>,
) -> anyhow::Result<Vec<u32>> {
    let mut micros = Vec::with_capacity(1 << 14);
    barrier.wait().await;
    let counted_from = clock::now() + times.warm_up;
    let end = counted_from + times.counted;
    tokio::select! {
        biased;
        ended = again_and_again(&mut client, workload, counted_from, end, &mut micros) => ended?,
        () = tokio::time::sleep_until(end) => {}
    }
    Ok(micros)
}

async fn again_and_again<C: Client>(
    client: &mut C,
    workload: Workload,
    counted_from: Instant,
    end: Instant,
    micros: &mut Vec<u32>,
) -> anyhow::Result<()> {
    let mut began = clock::now();
    loop {
        match workload {
            Workload::Send => client.send().await?,
            Workload::Settle => client.settle().await?,
            Workload::Batch => client.send_ten().await?,
            Workload::Cycle => {
                client.send().await?;
                client.settle().await?;
            }
        }
        let ended = clock::now();
        if ended >= end {
            return Ok(());
        }
        if ended >= counted_from {
            micros.push(u32::try_from((ended - began).as_micros()).unwrap_or(u32::MAX));
        }
        began = ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client whose every step takes a fixed time.
    struct Steady {
        send: Duration,
        settle: Duration,
    }

    impl Client for Steady {
        async fn send(&mut self) -> anyhow::Result<()> {
            anyhow::ensure!(!self.send.is_zero(), "refused");
            tokio::time::sleep(self.send).await;
            Ok(())
        }

        async fn settle(&mut self) -> anyhow::Result<()> {
            tokio::time::sleep(self.settle).await;
            Ok(())
        }
    }

    async fn measured(workload: Workload, send_ms: u64, clients: usize) -> anyhow::Result<Sample> {
        let client = || Steady { send: Duration::from_millis(send_ms), settle: Duration::from_millis(30) };
        let times = Times { warm_up: Duration::from_millis(500), counted: Duration::from_secs(2) };
        drive((0..clients).map(|_| client()).collect(), workload, times).await
    }

    #[tokio::test(start_paused = true)]
    async fn rates_and_latencies_are_those_of_the_counted_time() {
        for (workload, clients, per_second, p50_ms) in
            [(Workload::Send, 1, 100.0, 10), (Workload::Send, 8, 800.0, 10), (Workload::Cycle, 4, 100.0, 40)]
        {
            let sample = measured(workload, 10, clients).await.expect("steady");
            assert!((sample.per_second / per_second - 1.0).abs() < 0.05, "{workload:?} {}", sample.per_second);
            assert_eq!(sample.micros.value_at_quantile(0.5) / 1000, p50_ms, "{workload:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn errors_and_silence_are_no_numbers() {
        assert!(measured(Workload::Send, 0, 2).await.is_err(), "a client's error ends the cell");
        assert!(measured(Workload::Send, 60_000, 2).await.is_err(), "nothing completed");
    }
}
