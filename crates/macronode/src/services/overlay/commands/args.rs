//! What can be asked of `macronode overlay`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ron_transport::{NodeId, PeerAddress};
use svc_overlay::MsgId;

use crate::cli::ApiArgs;

/// What to do with the overlay.
#[derive(Debug, Subcommand)]
pub enum OverlayCommand {
    /// Print the id of the node; works without a running one, and makes the key at the first time.
    Id(ApiArgs),
    /// List the peers of the node and how it stands with them.
    Peers(ApiArgs),
    /// Keep a session with a node from now on.
    Connect(ConnectArgs),
    /// End the session with a node and no longer dial it.
    Disconnect(DisconnectArgs),
    /// Publish a message on a lane.
    Pub(PubArgs),
    /// Hear a lane, one line for each message, until Ctrl-C.
    Sub(SubArgs),
    /// Show a message's way through the tree: this node's part, or that of several.
    Trace(TraceArgs),
}

/// Whom to connect to.
#[derive(Args, Debug)]
pub struct ConnectArgs {
    /// The node and its OAP port
    #[arg(value_name = "NODEID@HOST:PORT")]
    pub peer: PeerAddress,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Whom to part from.
#[derive(Args, Debug)]
pub struct DisconnectArgs {
    /// The node
    #[arg(value_name = "NODEID")]
    pub peer: NodeId,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to publish.
#[derive(Args, Debug)]
pub struct PubArgs {
    /// The lane
    pub lane: String,
    /// The payload [default or -: standard input]
    pub text: Option<String>,
    /// Take the payload from this file
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub file: Option<PathBuf>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to hear.
#[derive(Args, Debug)]
pub struct SubArgs {
    /// The lane
    pub lane: String,
    /// Begin with this number of that origin, as far as the node still has it; may be repeated for other origins
    #[arg(long, value_name = "ORIGIN:SEQ")]
    pub from: Vec<String>,
    /// Leave out what the node itself publishes
    #[arg(long)]
    pub no_own: bool,
    /// End after this many messages
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Which message, and whom to ask. Several nodes may be asked, so that this is not the usual choice of one.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// The message
    #[arg(value_name = "MSG_ID")]
    pub msg_id: MsgId,
    /// The data directory of a node, or the folder of a cluster; may be repeated
    #[arg(long, value_name = "DIR")]
    pub data_dir: Vec<PathBuf>,
    /// The public plane: HOST:PORT or https://HOST:PORT [default: from the node's data directory, else 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub api: Option<String>,
    /// The token to show [default: $MACRO_TOKEN, else operator.token in the data directory]
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// The file with the token to show
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// The PEM file with the root to trust for https
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Print JSON as the node gave it; of several nodes, a list
    #[arg(long)]
    pub json: bool,
}
