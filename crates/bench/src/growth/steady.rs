//! Sending, receiving and acknowledging as fast as the Rust client does, for a long time, with a small log.

use std::path::Path;
use std::time::Duration;

use macronode_client::{Consumer, Mailbox, Message, Receive};
use ron_kernel::clock;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::innocent::{self, Noticed};
use crate::mailbox::cell::Payload;
use crate::mailbox::node::{Node, NodeOptions};
use crate::report::{Row, Target};
use crate::stats::Spread;

/// Disk that the log may take, in bytes.
pub const LOG_BYTES: u64 = 512 << 20;
/// Segments and reserve of a log of that size: what it may take beside what is needed.
const SPARE_BYTES: u64 = 4 * (16 << 20) + (48 << 20);
/// Tasks that share the client.
const TASKS: usize = 256;
const TAKEN_AHEAD_MAX: usize = 64;
const HOLD: Duration = Duration::from_mins(2);
/// Parts of the time that are compared.
const SLICES: usize = 10;
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Pause of a task that was refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);
/// Folder of the log in the data directory.
const LOG_FOLDER: &str = "mailbox";
/// Topic of the load; the messages that wait are in another.
const TOPIC: &str = "steady";
const MIB: f64 = 1_048_576.0;

/// One load and what it came to.
#[derive(Clone, Debug)]
pub struct Steady {
    /// Messages that waited all the time.
    pub waiting: u64,
    /// Messages a second that were sent, received and acknowledged, in each tenth of the time.
    pub per_second: Vec<f64>,
    /// Sends that were refused.
    pub refused: u64,
    /// What a caller beside the load noticed.
    pub innocent: Noticed,
    /// Most bytes that the log took.
    pub disk_bytes: u64,
    /// Resident bytes of the node at the end.
    pub rss_bytes: u64,
    /// Time from the spawn of the next process until it is ready.
    pub restart: Duration,
    /// Resident bytes of that process.
    pub restart_bytes: u64,
}

/// What one task of the load did.
#[derive(Default)]
struct Done {
    slices: [u64; SLICES],
    refused: u64,
}

/// A stretch of time, from its beginning.
#[derive(Clone, Copy)]
struct Span {
    began: Instant,
    time: Duration,
}

impl Span {
    fn slice(&self) -> Option<usize> {
        let part = self.began.elapsed().as_secs_f64() / self.time.as_secs_f64();
        (part < 1.0).then_some((part * SLICES as f64) as usize)
    }
}

/// Loads the node, with a caller beside the load who asks for little.
pub async fn load(
    node: &Node,
    options: &NodeOptions,
    payload: &Payload,
    waiting: u64,
    seconds: f64,
) -> anyhow::Result<Steady> {
    let connect = || {
        let url = format!("http://{}", node.node.address);
        Mailbox::connect(macronode_client::Options::new(url, node.node.token.clone()))
    };
    let (mailbox, beside) = (connect().await?, connect().await?);
    let span = Span { began: clock::now(), time: Duration::from_secs_f64(seconds) };
    let message = Message::new(payload.bytes.clone());
    let consumer = mailbox.consumer(TOPIC, Receive::up_to(TAKEN_AHEAD_MAX).holding(HOLD));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        tasks.spawn(cycle(mailbox.clone(), consumer.clone(), message.clone(), span));
    }
    let log = options.data().join(LOG_FOLDER);
    let watched = watch_disk(&log, span);
    let innocent = innocent::beside(&beside, &message, || span.slice().is_none());
    let (done, disk_bytes, innocent) = futures_util::join!(tasks.join_all(), watched, innocent);
    let slice_seconds = seconds / SLICES as f64;
    let of_slice = |slice: usize| done.iter().map(|done| done.slices[slice]).sum::<u64>() as f64 / slice_seconds;
    Ok(Steady {
        waiting,
        per_second: (0..SLICES).map(of_slice).collect(),
        refused: done.iter().map(|done| done.refused).sum(),
        innocent: innocent?,
        disk_bytes,
        rss_bytes: node.rss_bytes()?,
        restart: Duration::ZERO,
        restart_bytes: 0,
    })
}

async fn cycle(mailbox: Mailbox, consumer: Consumer, message: Message, span: Span) -> Done {
    let mut done = Done::default();
    while span.slice().is_some() {
        if mailbox.send(TOPIC, message.clone()).await.is_err() {
            done.refused += 1;
            tokio::time::sleep(REFUSED_PAUSE).await;
            continue;
        }
        let Ok(received) = consumer.next().await else { continue };
        if mailbox.ack(&received.receipt).await.is_ok()
            && let Some(slice) = span.slice()
        {
            done.slices[slice] += 1;
        }
    }
    done
}

/// Most bytes that the folder took.
async fn watch_disk(folder: &Path, span: Span) -> u64 {
    let mut most = 0;
    while span.slice().is_some() {
        most = most.max(bytes_in(folder));
        tokio::time::sleep(LOOK_EVERY).await;
    }
    most
}

/// Bytes of all files in a folder; one that vanishes meanwhile counts nothing.
fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_in(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

impl Steady {
    fn first_and_last(&self) -> (f64, f64) {
        let at = |slice: Option<&f64>| slice.copied().unwrap_or(0.0);
        (at(self.per_second.first()), at(self.per_second.last()))
    }

    /// The rows that have targets.
    pub fn rows(&self) -> Vec<Row> {
        let (first, last) = self.first_and_last();
        let log = LOG_BYTES >> 20;
        let row = |name: String, ours: String, value: Option<f64>, target: Target, meaning: String| Row {
            name,
            ours,
            value,
            peer: String::new(),
            ratio: None,
            target,
            meaning,
        };
        let refused = self.refused + self.innocent.refused;
        let disk = self.disk_bytes as f64 / MIB;
        vec![
            Row {
                peer: format!("{first:.0}/s (first tenth)"),
                ratio: Spread::of(&[if first > 0.0 { last / first } else { 0.0 }]),
                ..row(
                    format!("the last tenth of a steady load, log of {log} MiB"),
                    format!("{last:.0}/s"),
                    None,
                    Target::RatioAtLeast(0.9),
                    format!("{TASKS} tasks that share the Rust client send, receive and acknowledge all the time."),
                )
            },
            row(
                format!("sends refused by then, log of {log} MiB"),
                refused.to_string(),
                Some(refused as f64),
                Target::Below(1.0, "sends"),
                "Refusals of the load and of a caller beside it.".to_owned(),
            ),
            row(
                format!("disk at most, log of {log} MiB"),
                format!("{disk:.0} MiB"),
                Some(disk),
                Target::Below(SPARE_BYTES as f64 / MIB, "MiB"),
                "The folder of the log; nothing waits, so that the target is four segments and the reserve.".to_owned(),
            ),
        ]
    }

    /// Its line of the curve.
    pub fn cells(&self) -> Vec<String> {
        let (first, last) = self.first_and_last();
        vec![
            self.waiting.to_string(),
            format!("{first:.0}/s"),
            format!("{last:.0}/s"),
            format!("{:.1} ms", self.innocent.p99 as f64 / 1e3),
            (self.refused + self.innocent.refused).to_string(),
            format!("{:.0} MiB", self.rss_bytes as f64 / MIB),
            format!("{:.0} MiB", self.disk_bytes as f64 / MIB),
            format!("{:.2} s, {:.0} MiB", self.restart.as_secs_f64(), self.restart_bytes as f64 / MIB),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_slows_down_misses_its_target() {
        let steady = |last| Steady {
            waiting: 0,
            per_second: vec![100.0, 50.0, last],
            refused: 0,
            innocent: Noticed { p99: 900, longest: 1_900, refused: 2 },
            disk_bytes: 100 << 20,
            rss_bytes: 50 << 20,
            restart: Duration::from_millis(120),
            restart_bytes: 30 << 20,
        };
        let met = |last| steady(last).rows().iter().map(|row| row.is_met() == Some(true)).collect::<Vec<_>>();
        assert_eq!(met(95.0), [true, false, true]);
        assert_eq!(met(80.0), [false, false, true]);
        assert_eq!(
            steady(95.0).cells(),
            ["0", "100/s", "95/s", "0.9 ms", "2", "50 MiB", "100 MiB", "0.12 s, 30 MiB"].map(str::to_owned)
        );
    }
}
