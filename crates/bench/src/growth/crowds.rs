//! Work that touches very much at once, and what a caller beside it notices.

use std::cell::Cell;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use macronode_client::{Mailbox, Message, Receive};
use ron_kernel::clock;
use rustix::process::Signal;
use tokio::task::JoinSet;

use super::innocent::{self, Noticed};
use crate::kernel::Size;
use crate::mailbox::cell::Payload;
use crate::mailbox::http::{Connection, NodeAccess};
use crate::mailbox::node::{Node, NodeOptions, TOPIC};
use crate::report::{Row, Target};

/// Room for the keys of a run; the default would refuse the last of them.
const SETTINGS: &str = "[mailbox]\nkey_bytes_max = \"2GiB\"\nmemory_bytes_max = \"4GiB\"\n";
/// Tasks that share a client.
const TASKS: u64 = 256;
const HOLD: Duration = Duration::from_mins(20);
const TAKEN_MAX: usize = 100;
const DELETING: u64 = 16;
/// What a caller beside it may wait: 99th percentile and longest, in milliseconds.
const P99_MS_MAX: f64 = 5.0;
const LONGEST_MS_MAX: f64 = 25.0;

/// One work that touches very much at once.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// What was done, and to how much.
    pub work: String,
    /// Time that it took.
    pub took: Duration,
    /// What a caller beside it noticed.
    pub noticed: Noticed,
    /// Whether the goals for what is noticed are held against it.
    has_target: bool,
}

/// Does each work on a node of its own.
pub async fn measure(options: &NodeOptions, size: Size, payload: &Payload) -> anyhow::Result<Vec<Crowd>> {
    let options = NodeOptions { settings: SETTINGS.to_owned(), ..options.clone() };
    let message = Message::new(payload.bytes.clone());
    let mut crowds = Vec::new();
    for (keys, purged) in size.pick(vec![(2_000, 3_000)], vec![(200_000, 300_000), (2_000_000, 3_000_000)]) {
        let node = options.start().await?;
        node.fill(payload, purged).await?;
        let mailbox = connect(&node.node).await?;
        let work = format!("{keys} sends with a key each, and a purge of {purged} meanwhile");
        let acts = async {
            keyed(&mailbox, &message, 0..keys / 2).await?;
            let ((), ()) = futures_util::try_join!(keyed(&mailbox, &message, keys / 2..keys), purge(&node.node))?;
            Ok(())
        };
        crowds.push(Crowd { has_target: true, ..beside(&node, &message, work, acts).await? });
        end(node, &options)?;
    }
    for topics in size.pick(vec![100], vec![2_000, 20_000]) {
        let node = options.start().await?;
        let mailbox = connect(&node.node).await?;
        let work = |does: &str| format!("{topics} topics {does}");
        crowds.push(beside(&node, &message, work("made"), one_in_each(&mailbox, &message, topics)).await?);
        crowds.push(beside(&node, &message, work("listed"), list(&options)).await?);
        crowds.push(beside(&node, &message, work("deleted"), delete(&node.node, topics)).await?);
        end(node, &options)?;
    }
    for waiting in size.pick(vec![1_000], vec![100_000, 1_000_000]) {
        let node = options.start().await?;
        node.fill(payload, waiting).await?;
        let greedy = connect(&NodeAccess { token: mint(&options)?, ..node.node.clone() }).await?;
        let taken = Cell::new(0);
        let crowd = beside(&node, &message, String::new(), Box::pin(take_all(&greedy, &taken))).await?;
        let work = format!("{} of {waiting} messages leased to one tenant who keeps them", taken.get());
        crowds.push(Crowd { work, ..crowd });
        end(node, &options)?;
    }
    Ok(crowds)
}

async fn connect(access: &NodeAccess) -> anyhow::Result<Mailbox> {
    let url = format!("http://{}", access.address);
    Ok(Mailbox::connect(macronode_client::Options::new(url, access.token.clone())).await?)
}

fn end(node: Node, options: &NodeOptions) -> anyhow::Result<()> {
    node.end(Signal::KILL)?;
    options.clear()
}

async fn beside(
    node: &Node,
    message: &Message,
    work: String,
    acts: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Crowd> {
    let mailbox = connect(&node.node).await?;
    let (is_over, began) = (Cell::new(false), clock::now());
    let acts = async {
        let outcome = acts.await;
        is_over.set(true);
        outcome.map(|()| began.elapsed())
    };
    let noticed = Box::pin(innocent::beside(&mailbox, message, || is_over.get()));
    let (took, noticed) = futures_util::join!(acts, noticed);
    let crowd = Crowd { work, took: took?, noticed: noticed?, has_target: false };
    eprintln!("  {crowd:?}");
    Ok(crowd)
}

/// Sends with a key each, from many tasks.
async fn keyed(mailbox: &Mailbox, message: &Message, keys: std::ops::Range<u64>) -> anyhow::Result<()> {
    let next = Arc::new(AtomicU64::new(keys.start));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (mailbox, message, next) = (mailbox.clone(), message.clone(), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= keys.end {
                    return anyhow::Ok(());
                }
                let message = Message { idem_key: Some(format!("key-{number}")), ..message.clone() };
                mailbox.send("keyed", message).await?;
            }
        });
    }
    tasks.join_all().await.into_iter().collect()
}

async fn purge(access: &NodeAccess) -> anyhow::Result<()> {
    let mut connection = Connection::open(access.address).await?;
    connection.ask(&access.post(&format!("/v1/topics/{TOPIC}/purge"), "")).await?;
    Ok(())
}

fn topic(number: u64) -> String {
    format!("t{number}")
}

/// The first send to a topic makes it.
async fn one_in_each(mailbox: &Mailbox, message: &Message, topics: u64) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    for first in 0..DELETING {
        let (mailbox, message) = (mailbox.clone(), message.clone());
        tasks.spawn(async move {
            for number in (first..topics).step_by(DELETING as usize) {
                mailbox.send(&topic(number), message.clone()).await?;
            }
            anyhow::Ok(())
        });
    }
    tasks.join_all().await.into_iter().collect()
}

/// As a person lists them, with the command.
async fn list(options: &NodeOptions) -> anyhow::Result<()> {
    let mut command = Command::new(&options.binary);
    command.args(["mailbox", "topics", "list", "--data-dir"]).arg(options.data());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    anyhow::ensure!(output.status.success(), "topics list: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

async fn delete(access: &NodeAccess, topics: u64) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    for first in 0..DELETING {
        let access = access.clone();
        tasks.spawn(async move {
            let mut connection = Connection::open(access.address).await?;
            for number in (first..topics).step_by(DELETING as usize) {
                connection.ask(&access.delete(&format!("/v1/topics/{}", topic(number)))).await?;
            }
            anyhow::Ok(())
        });
    }
    tasks.join_all().await.into_iter().collect()
}

/// Takes messages and keeps them until the node gives no more.
async fn take_all(mailbox: &Mailbox, taken: &Cell<usize>) -> anyhow::Result<()> {
    while let Ok(messages) = mailbox.receive(TOPIC, Receive::up_to(TAKEN_MAX).holding(HOLD)).await {
        if messages.is_empty() {
            break;
        }
        taken.set(taken.get() + messages.len());
    }
    Ok(())
}

/// A token of somebody who is not the operator.
fn mint(options: &NodeOptions) -> anyhow::Result<String> {
    let mut command = Command::new(&options.binary);
    command.args(["token", "mint", "--subject", "greedy", "--allow", "mailbox:*:*", "--data-dir"]);
    let output = command.arg(options.data()).output()?;
    anyhow::ensure!(output.status.success(), "token mint: {}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout)?;
    Ok(said.lines().last().context("the command prints the token")?.trim().to_owned())
}

impl Crowd {
    /// Its line of the table.
    pub fn cells(&self) -> Vec<String> {
        vec![
            self.work.clone(),
            format!("{:.2} s", self.took.as_secs_f64()),
            format!("{:.1} ms", milliseconds(self.noticed.p99)),
            format!("{:.1} ms", milliseconds(self.noticed.longest)),
            self.noticed.refused.to_string(),
        ]
    }

    /// The rows that have targets.
    pub fn rows(&self) -> Vec<Row> {
        if !self.has_target {
            return Vec::new();
        }
        let row = |which: &str, micros: u64, most: f64| Row {
            name: format!("{which} beside {}", self.work),
            ours: format!("{:.1} ms", milliseconds(micros)),
            value: Some(milliseconds(micros)),
            peer: String::new(),
            ratio: None,
            target: Target::Below(most, "ms"),
            meaning: "A caller who sends a message every ten milliseconds on a connection of its own.".to_owned(),
        };
        vec![
            row("p99 of a send", self.noticed.p99, P99_MS_MAX),
            row("longest send", self.noticed.longest, LONGEST_MS_MAX),
        ]
    }
}

fn milliseconds(micros: u64) -> f64 {
    micros as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_is_too_long_misses_its_target() {
        let noticed = Noticed { p99: 4_900, longest: 25_100, refused: 0 };
        let crowd = Crowd { work: "a purge".to_owned(), took: Duration::from_secs(2), noticed, has_target: true };
        let met: Vec<_> = crowd.rows().iter().map(Row::is_met).collect();
        assert_eq!(met, [Some(true), Some(false)]);
        assert_eq!(crowd.cells(), ["a purge", "2.00 s", "4.9 ms", "25.1 ms", "0"].map(str::to_owned));
        assert!(Crowd { has_target: false, ..crowd }.rows().is_empty());
    }
}
