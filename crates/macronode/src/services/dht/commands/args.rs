//! What can be asked of `macronode dht`.

use clap::{Args, Subcommand};

use crate::cli::ApiArgs;
use crate::config::TimeSpan;

/// What to do with the DHT.
#[derive(Debug, Subcommand)]
pub enum DhtCommand {
    /// List the nodes that this one knows, nearest first, and how it stands with them.
    Peers(ApiArgs),
    /// Look for the records of an id in the network.
    Get(RecordArgs),
    /// Place a record that this node has some content.
    Provide(ProvideArgs),
    /// Join the network anew: dial the bootstrap list, or a node.
    Bootstrap(BootstrapArgs),
    /// Follow the way through the network to an id: whom it leads past, and what they say.
    Trace(RecordArgs),
}

/// Which records.
#[derive(Args, Debug)]
pub struct RecordArgs {
    /// The id: b3:…, a CID, name:LABEL@KEY, peer:…, or ipns:…
    #[arg(value_name = "ID")]
    pub id: String,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to provide.
#[derive(Args, Debug)]
pub struct ProvideArgs {
    /// The content: b3:… or a CID
    #[arg(value_name = "ID")]
    pub id: String,
    /// Where it can be fetched; may be repeated [default: where the node listens]
    #[arg(long, value_name = "MULTIADDR")]
    pub addr: Vec<String>,
    /// Time after which the record ends [default: 24h]
    #[arg(long, value_name = "TIME")]
    pub ttl: Option<TimeSpan>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Whom to dial.
#[derive(Args, Debug)]
pub struct BootstrapArgs {
    /// The peer id of a node, with its address
    #[arg(value_name = "PEER_ID", requires = "addr")]
    pub peer: Option<String>,
    /// An address of the node; may be repeated
    #[arg(long, value_name = "MULTIADDR", requires = "peer")]
    pub addr: Vec<String>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}
