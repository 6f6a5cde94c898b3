//! The systems that carry lanes: this node, and with `--peers` the others, each absent loudly where it cannot be had.

use std::time::Duration;

use futures_util::future::BoxFuture;

use super::drive::{self, Connect, Figure, Figures};
use super::iroh::Iroh;
use super::node::LaneNode;
use super::{Cell, Options, Outcome};
use crate::mailbox::scratch::Scratch;

/// Which system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemId {
    Macronode,
    Nats,
    Gossipsub,
    Iroh,
}

/// The systems that are measured beside this node, in the order of the tables.
pub const PEERS: [SystemId; 3] = [SystemId::Nats, SystemId::Gossipsub, SystemId::Iroh];

impl SystemId {
    /// Name without a version.
    pub fn name(self) -> &'static str {
        match self {
            SystemId::Macronode => "macronode",
            SystemId::Nats => "NATS",
            SystemId::Gossipsub => "gossipsub",
            SystemId::Iroh => "iroh-gossip",
        }
    }
}

/// Measurements of one system.
#[derive(Clone, Debug)]
pub struct LaneFigures {
    pub id: SystemId,
    /// Name with its version.
    pub name: String,
    pub cells: Vec<(Cell, Figures)>,
}

impl LaneFigures {
    pub fn push(&mut self, cell: Cell, figure: Figure) {
        match self.cells.iter_mut().find(|(other, _)| *other == cell) {
            Some((_, figures)) => figures.push(figure),
            None => {
                let mut figures = Figures::default();
                figures.push(figure);
                self.cells.push((cell, figures));
            }
        }
    }
}

/// A system behind a pointer, so that they can take turns.
pub trait Measured {
    fn measure(&self, cell: Cell, time: Duration) -> BoxFuture<'_, anyhow::Result<Figure>>;
}

impl<T: Connect + Sync> Measured for T {
    fn measure(&self, cell: Cell, time: Duration) -> BoxFuture<'_, anyhow::Result<Figure>> {
        Box::pin(drive::measure(self, cell, time))
    }
}

/// A system that runs, with its name and version.
pub type Started = (String, Box<dyn Measured + Send + Sync>);

/// Those that could be started.
pub struct Systems(Vec<(SystemId, Started)>);

impl Systems {
    pub async fn start(options: &Options, scratch: &Scratch, outcome: &mut Outcome) -> anyhow::Result<Systems> {
        let node = LaneNode::start(&options.node, scratch.folder("lanes")?).await?;
        let ours: Started = ("macronode".to_owned(), Box::new(node));
        let mut systems = vec![(SystemId::Macronode, ours)];
        for peer in PEERS.into_iter().filter(|_| options.peers) {
            match start_peer(peer, scratch).await {
                Ok(started) => systems.push((peer, started)),
                Err(error) => outcome.miss(peer.name(), &error),
            }
        }
        Ok(Systems(systems))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Each with its place; who goes first changes from round to round.
    pub fn in_order_of(&self, round: usize) -> Vec<(usize, &(dyn Measured + Send + Sync))> {
        let mut systems: Vec<_> = self.0.iter().map(|(_, (_, system))| &**system).enumerate().collect();
        if round % 2 == 1 {
            systems.reverse();
        }
        systems
    }

    /// A place for the figures of each.
    pub fn names(&self) -> Vec<LaneFigures> {
        let empty = |(id, (name, _)): &(SystemId, Started)| LaneFigures { id: *id, name: name.clone(), cells: vec![] };
        self.0.iter().map(empty).collect()
    }
}

async fn start_peer(peer: SystemId, scratch: &Scratch) -> anyhow::Result<Started> {
    match peer {
        SystemId::Iroh => {
            let (name, iroh) = Iroh::find().await?;
            Ok((name, Box::new(iroh)))
        }
        other => start_linked(other, scratch).await,
    }
}

#[cfg(feature = "peers")]
async fn start_linked(peer: SystemId, scratch: &Scratch) -> anyhow::Result<Started> {
    match peer {
        SystemId::Nats => {
            let nats = super::nats::Nats::start(scratch.folder("nats")?).await?;
            Ok((nats.name.clone(), Box::new(nats)))
        }
        SystemId::Gossipsub => Ok((super::gossipsub::NAME.to_owned(), Box::new(super::gossipsub::Gossipsub))),
        SystemId::Macronode | SystemId::Iroh => anyhow::bail!("it is no part of this binary"),
    }
}

#[cfg(not(feature = "peers"))]
#[expect(clippy::unused_async, reason = "the other one waits for servers")]
async fn start_linked(_peer: SystemId, _scratch: &Scratch) -> anyhow::Result<Started> {
    anyhow::bail!("this binary was built without the feature `peers`")
}
