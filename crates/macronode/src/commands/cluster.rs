//! `macronode cluster dev`: several nodes on this machine that know each other, until Ctrl-C.

mod nodes;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ron_kernel::clock;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::table::{row, table};
use super::{Report, print};
use crate::client::configured;
use crate::errors::{Code, Exit, Failure};
pub use nodes::end_with_parent;
use nodes::{DevNode, is_ready, start};

/// Pause between two looks at the nodes.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time in which all nodes are to be ready and joined.
const START_TIME: Duration = Duration::from_secs(60);
/// Time a node has to leave beyond its own deadline before it is killed.
const LEAVE_MARGIN: Duration = Duration::from_secs(2);

/// What to do with nodes on this machine.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Start nodes with ports and data directories of their own, joined, and end them with Ctrl-C.
    Dev(ClusterDevArgs),
}

/// How many nodes, and where.
#[derive(Args, Debug)]
pub struct ClusterDevArgs {
    /// Nodes to start
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub nodes: u16,
    /// The folder for their data directories, node-1 and so on; kept [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print the nodes as one JSON object, once they are ready
    #[arg(long)]
    pub json: bool,
}

/// Starts the nodes, says where they are, and ends them when asked to.
pub async fn dev(args: &ClusterDevArgs) -> Result<Report, Failure> {
    let unheard = |error| Failure::new(Code::CannotStart, format!("signals cannot be heard: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unheard)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(unheard)?;
    let stop = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let (folder, _removed) = folder_of(args)?;
    let mut cluster = Cluster { folder, nodes: Vec::new() };
    let lived = tokio::select! {
        lived = cluster.live(args) => lived,
        () = stop => Ok(()),
    };
    let again = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let exit = tokio::select! {
        exit = cluster.end() => exit,
        () = again => cluster.kill(),
    };
    lived.map(|()| Report { text: String::new(), exit })
}

/// The folder of the nodes, and what removes it at the end if nobody named it.
fn folder_of(args: &ClusterDevArgs) -> Result<(PathBuf, Option<RemovedAtEnd>), Failure> {
    let named = args.dir.clone();
    let temporary = || std::env::temp_dir().join(format!("macronode-cluster-{}", std::process::id()));
    let folder = named.clone().unwrap_or_else(temporary);
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let unusable = |error| Failure::new(Code::DataDirUnusable, format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(unusable)?;
    let removed = named.is_none().then(|| RemovedAtEnd(folder.clone()));
    Ok((folder, removed))
}

/// A folder that goes with the process.
struct RemovedAtEnd(PathBuf);

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        // What cannot be removed is in a folder for such things.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The nodes that run.
struct Cluster {
    folder: PathBuf,
    nodes: Vec<DevNode>,
}

impl Cluster {
    /// Starts the nodes and watches them; returns only if there is nothing left to watch.
    async fn live(&mut self, args: &ClusterDevArgs) -> Result<(), Failure> {
        let deadline = clock::now() + START_TIME;
        for number in 1..=usize::from(args.nodes) {
            // A node is told of nodes that listen already: sessions have no direction once they stand.
            let known = peers_of(number, args.nodes.into()).map(|peer| self.nodes[peer - 1].peer_address());
            let node = start(&self.folder, number, &known.collect::<Vec<_>>(), deadline).await?;
            self.nodes.push(node);
        }
        for node in &mut self.nodes {
            while !is_ready(node).await {
                node.check_alive()?;
                if clock::now() >= deadline {
                    let log = node.log.display();
                    return Err(Failure::new(Code::CannotStart, format!("{} is not ready; see {log}", node.name)));
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        let text = if args.json { self.json() } else { self.text() };
        if print(&text).is_err() {
            return Ok(());
        }
        self.watch().await
    }

    async fn watch(&mut self) -> Result<(), Failure> {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            for node in self.nodes.iter_mut().filter(|node| node.ended.is_none()) {
                if let Err(failure) = node.check_alive() {
                    super::complain(&failure);
                }
            }
            if self.nodes.iter().all(|node| node.ended.is_some()) {
                return Err(Failure::new(Code::CannotStart, "no node is left"));
            }
        }
    }

    /// Asks every node to leave, the last one first, and kills what has not left after its own deadline.
    async fn end(&mut self) -> Exit {
        for node in self.nodes.iter_mut().rev() {
            node.ask_to_leave();
        }
        let config = configured();
        let patience = config.io.drain_deadline.duration() + ron_types::limits::DRAIN_OVERRUN_MAX + LEAVE_MARGIN;
        let deadline = clock::now() + patience;
        while self.nodes.iter_mut().any(|node| node.is_running()) && clock::now() < deadline {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.kill()
    }

    /// Ends at once what still runs.
    fn kill(&mut self) -> Exit {
        let mut exit = Exit::Clean;
        for node in &mut self.nodes {
            if node.is_running() {
                node.kill();
                eprintln!("{} did not leave in time and was killed", node.name);
                exit = Exit::Aborted;
            } else if !node.has_left_cleanly() {
                exit = Exit::Aborted;
            }
        }
        exit
    }

    fn json(&self) -> String {
        let nodes: Vec<serde_json::Value> = self.nodes.iter().map(DevNode::json).collect();
        format!("{}\n", json!({"dir": self.folder, "nodes": nodes}))
    }

    fn text(&self) -> String {
        let mut rows = vec![row(["node", "api", "oap", "data directory", "id"])];
        rows.extend(self.nodes.iter().map(|node| {
            let folder = node.data_dir.display().to_string();
            row([&node.name, &node.addresses.api, &node.addresses.oap, &folder, &node.node_id])
        }));
        let first = self.nodes.first().map(|node| node.data_dir.display().to_string()).unwrap_or_default();
        table(0, &rows)
            + &format!("try next\n  macronode status --data-dir {first}\n  macronode top --data-dir {first}\n")
            + "Ctrl-C ends them all\n"
    }
}

/// The nodes before this one that it is told of: all of them in a small cluster; in a larger one its neighbour in a
/// ring, and a node half as far, so that no way is long.
fn peers_of(number: usize, count: usize) -> impl Iterator<Item = usize> {
    const MESH_MAX: usize = 5;
    let is_peer = move |peer: usize| {
        let closes_ring = number == count && peer == 1;
        count <= MESH_MAX || peer + 1 == number || peer == number / 2 || closes_ring
    };
    (1..number).filter(move |peer| is_peer(*peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_clusters_are_meshes_and_large_ones_rings_with_short_cuts() {
        assert_eq!(peers_of(1, 1).count(), 0);
        assert_eq!(peers_of(5, 5).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(peers_of(6, 8).collect::<Vec<_>>(), [3, 5]);
        assert_eq!(peers_of(8, 8).collect::<Vec<_>>(), [1, 4, 7]);
    }

    #[test]
    fn every_node_is_near_every_other() {
        for count in 1..=64 {
            let links: Vec<(usize, usize)> =
                (1..=count).flat_map(|number| peers_of(number, count).map(move |peer| (number, peer))).collect();
            let mut reached = vec![count];
            for _ in 0..8 {
                let more: Vec<usize> = links
                    .iter()
                    .flat_map(|(a, b)| [(*a, *b), (*b, *a)])
                    .filter(|(from, to)| reached.contains(from) && !reached.contains(to))
                    .map(|(_, to)| to)
                    .collect();
                reached.extend(more);
                reached.sort_unstable();
                reached.dedup();
            }
            assert_eq!(reached.len(), count, "within eight links of each other");
        }
    }
}
