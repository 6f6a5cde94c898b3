//! The mailbox over OAP/1: beside the same node over HTTP, beside its engine in this process, beside one bare sync.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use oap_client::{Mailbox, OutgoingMessage};

use super::node::{CROWD, LaneNode, LaneNodeOptions};
use crate::mailbox::ceiling::RawLog;
use crate::mailbox::cell::{Cell, MAIN_SEND, Payload, SINGLE_SEND, Times};
use crate::mailbox::drive::{Client, Sample};
use crate::mailbox::engine;
use crate::mailbox::node::{FreshNode, NodeOptions, TOPIC};
use crate::mailbox::scratch::{Scratch, settle_disk};
use crate::mailbox::target::{Measurable, Target};

/// Messages of one request in batches.
pub const BATCH_MESSAGES: usize = 64;
/// Requests in batches that are on their way at once.
pub const BATCHES: usize = 8;
const WARM_UP: Duration = Duration::from_millis(500);

/// One thing that is measured in each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Oap,
    Gathered,
    Http,
    Batches,
    Engine,
    LoneOap,
    LoneHttp,
    LoneSync,
}

const STEPS: [Step; 8] =
    [Step::Oap, Step::Gathered, Step::Http, Step::Batches, Step::Engine, Step::LoneOap, Step::LoneHttp, Step::LoneSync];

/// How the client puts messages into requests.
#[derive(Clone, Copy)]
enum Requests {
    /// Each send is a request with so many messages.
    Of(usize),
    /// Each send is one message, and the client gathers those of all tasks.
    Gathered,
}

/// Measurements of the mailbox, one for each round.
#[derive(Clone, Debug, Default)]
pub struct MailboxFigures {
    /// Messages a second over OAP/1 at 64 in flight, one request a message.
    pub oap: Vec<f64>,
    /// The same where the client gathers what its tasks send.
    pub gathered: Vec<f64>,
    /// The same over HTTP, one request a message.
    pub http: Vec<f64>,
    /// Messages a second over OAP/1 in batches.
    pub batches: Vec<f64>,
    /// Messages a second of the engine with as many messages on their way as in those batches.
    pub engine: Vec<f64>,
    /// Median milliseconds of a lone client's send over OAP/1.
    pub lone_oap_ms: Vec<f64>,
    /// The same over HTTP.
    pub lone_http_ms: Vec<f64>,
    /// Median milliseconds of one write and fdatasync of the same record.
    pub lone_sync_ms: Vec<f64>,
}

impl MailboxFigures {
    fn push(&mut self, step: Step, sample: &Sample) {
        let p50_ms = sample.micros.value_at_quantile(0.5) as f64 / 1e3;
        match step {
            Step::Oap => self.oap.push(sample.per_second),
            Step::Gathered => self.gathered.push(sample.per_second),
            Step::Http => self.http.push(sample.per_second),
            Step::Batches => self.batches.push(sample.per_second * BATCH_MESSAGES as f64),
            Step::Engine => self.engine.push(sample.per_second),
            Step::LoneOap => self.lone_oap_ms.push(p50_ms),
            Step::LoneHttp => self.lone_http_ms.push(p50_ms),
            Step::LoneSync => self.lone_sync_ms.push(p50_ms),
        }
    }
}

/// Measures all rounds; what was measured before a failure stays.
pub async fn measure(
    binary: &Path,
    scratch: &Scratch,
    (rounds, time): (usize, Duration),
    figures: &mut MailboxFigures,
) -> anyhow::Result<()> {
    let mut systems = Systems::new(binary, scratch)?;
    let times = Times { warm_up: WARM_UP, counted: time };
    for round in 0..rounds {
        let mut steps = STEPS;
        if round % 2 == 1 {
            steps.reverse();
        }
        for step in steps {
            eprintln!("mailbox: round {} of {rounds}: {step:?}", round + 1);
            settle_disk();
            let sample = systems.measure(step, times).await.with_context(|| format!("{step:?}"))?;
            figures.push(step, &sample);
        }
    }
    Ok(())
}

struct Systems {
    oap: OapNode,
    gathered: OapNode,
    batches: OapNode,
    http: FreshNode,
    engine: Box<dyn Measurable>,
    sync: RawLog,
}

impl Systems {
    fn new(binary: &Path, scratch: &Scratch) -> anyhow::Result<Systems> {
        let node = |name, requests| {
            let folder = scratch.folder(name)?;
            anyhow::Ok(OapNode { binary: binary.to_owned(), folder, requests, node: None })
        };
        let http = NodeOptions {
            binary: binary.to_owned(),
            folder: scratch.folder("http")?,
            amnesia: false,
            settings: String::new(),
        };
        Ok(Systems {
            oap: node("oap", Requests::Of(1))?,
            gathered: node("oap-gathered", Requests::Gathered)?,
            batches: node("oap-batches", Requests::Of(BATCH_MESSAGES))?,
            http: FreshNode::new(http),
            engine: engine::start(&scratch.folder("engine")?).measures,
            sync: RawLog::new(&scratch.folder("sync")?.join("log"))?,
        })
    }

    async fn measure(&mut self, step: Step, times: Times) -> anyhow::Result<Sample> {
        let of = |in_flight| Cell { in_flight, ..MAIN_SEND };
        let (system, cell): (&mut dyn Measurable, Cell) = match step {
            Step::Oap => (&mut self.oap, MAIN_SEND),
            Step::Gathered => (&mut self.gathered, MAIN_SEND),
            Step::Http => (&mut self.http, MAIN_SEND),
            Step::Batches => (&mut self.batches, of(BATCHES)),
            Step::Engine => (&mut *self.engine, of(BATCHES * BATCH_MESSAGES)),
            Step::LoneOap => (&mut self.oap, SINGLE_SEND),
            Step::LoneHttp => (&mut self.http, SINGLE_SEND),
            Step::LoneSync => (&mut self.sync, SINGLE_SEND),
        };
        system.measure(cell, times).await?.context("it cannot send")
    }
}

/// A node that is started anew for each sample; its clients share one session, as requests of one program would.
struct OapNode {
    binary: PathBuf,
    folder: PathBuf,
    requests: Requests,
    node: Option<LaneNode>,
}

#[derive(Clone)]
struct OapClient {
    mailbox: Mailbox,
    requests: Requests,
    messages: Vec<OutgoingMessage>,
}

impl Target for OapNode {
    type Client = OapClient;

    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.finish().await?;
        let (binary, folder) = (&self.binary, self.folder.clone());
        self.node = Some(LaneNodeOptions { binary, folder, config: CROWD.to_owned(), peer: None }.start().await?);
        Ok(())
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<OapClient>> {
        let mailbox = self.node.as_ref().context("prepared before")?.client().await?.mailbox();
        let message = OutgoingMessage { body: payload.bytes.clone(), ..OutgoingMessage::default() };
        let messages_each = match self.requests {
            Requests::Of(count) => count,
            Requests::Gathered => 1,
        };
        Ok(vec![OapClient { mailbox, requests: self.requests, messages: vec![message; messages_each] }; count])
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        self.node = None;
        match std::fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Client for OapClient {
    async fn send(&mut self) -> anyhow::Result<()> {
        if matches!(self.requests, Requests::Gathered) {
            self.mailbox.send(TOPIC, self.messages[0].clone()).await?;
            return Ok(());
        }
        let sent = self.mailbox.send_batch(TOPIC, &self.messages).await?;
        anyhow::ensure!(sent.len() == self.messages.len(), "{} outcomes", sent.len());
        for outcome in sent {
            outcome.map_err(|refusal| anyhow::anyhow!("refused: {refusal:?}"))?;
        }
        Ok(())
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        anyhow::bail!("only sending is measured over OAP/1")
    }
}
