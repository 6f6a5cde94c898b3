//! What can be asked of `macronode index`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::ApiArgs;
use crate::config::TimeSpan;

/// What to do with the index.
#[derive(Debug, Subcommand)]
pub enum IndexCommand {
    /// Find out what an id stands for and who has it.
    Resolve(ResolveArgs),
    /// List who has some content, best first.
    Providers(ProvidersArgs),
    /// Make a file known: its id, who has it, and perhaps a name for it.
    Publish(PublishArgs),
    /// Take back that this node has some content, and renew it no more.
    Unprovide(UnprovideArgs),
    /// Keep what is known of an id.
    Pin(SubjectArgs),
    /// Let what is known of an id go again.
    Unpin(SubjectArgs),
    /// Show what changes about an id, one line for each change, until Ctrl-C.
    Watch(WatchArgs),
    /// Set or remove a name, or see what it stands for.
    #[command(subcommand)]
    Name(NameCommand),
    /// Compare the resolvers the node has with those it needs.
    Capacity(ApiArgs),
    /// Forget what is cached of an id, and ask the network again.
    Reindex(ReindexArgs),
}

/// What to do with a name.
#[derive(Debug, Subcommand)]
pub enum NameCommand {
    /// Let a name stand for some content.
    Set(NameSetArgs),
    /// See what a name stands for.
    Get(NameGetArgs),
    /// Let a name of the node stand for nothing.
    Remove(NameGetArgs),
}

/// What to resolve.
#[derive(Args, Debug)]
pub struct ResolveArgs {
    /// The id: b3:…, a CID, or name:…
    #[arg(value_name = "ID")]
    pub id: String,
    /// Draw the lookup: whom the node asked, when, and how that ended
    #[arg(long)]
    pub trace: bool,
    /// Ask the network even if the node knows an answer
    #[arg(long)]
    pub fresh: bool,
    /// Maximum providers
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub max: u16,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Whose providers to list.
#[derive(Args, Debug)]
pub struct ProvidersArgs {
    /// The content: b3:… or a CID
    #[arg(value_name = "ID")]
    pub id: String,
    /// Maximum providers
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub max: u16,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to publish.
#[derive(Args, Debug)]
pub struct PublishArgs {
    /// The file; its content is hashed here, and sent to the node only if it is small enough to be a manifest
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A name that is to stand for it
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where it can be fetched; may be repeated [default: the addresses of the node]
    #[arg(long, value_name = "MULTIADDR")]
    pub addr: Vec<String>,
    /// A protocol by which it can be fetched; may be repeated
    #[arg(long, value_name = "PROTOCOL")]
    pub protocol: Vec<String>,
    /// Time after which the record ends [default: the node renews it until `index unprovide`]
    #[arg(long, value_name = "TIME")]
    pub ttl: Option<TimeSpan>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What the node has no more.
#[derive(Args, Debug)]
pub struct UnprovideArgs {
    /// The content: b3:… or a CID
    #[arg(value_name = "ID")]
    pub id: String,
    /// The provider that the node vouched for [default: the node itself]
    #[arg(long, value_name = "PEER")]
    pub peer: Option<String>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Which id to keep or let go.
#[derive(Args, Debug)]
pub struct SubjectArgs {
    /// The id: b3:…, a CID, or name:…
    #[arg(value_name = "ID")]
    pub id: String,
    /// A key under which the node does this once in a day, however often it is asked
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to look up again.
#[derive(Args, Debug)]
pub struct ReindexArgs {
    /// The id: b3:…, a CID, or name:…
    #[arg(value_name = "ID")]
    pub id: String,
    /// A key under which the node does this once in a day, however often it is asked
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to watch.
#[derive(Args, Debug)]
pub struct WatchArgs {
    /// The id: b3:…, a CID, or name:…
    #[arg(value_name = "ID")]
    pub id: String,
    /// End after this many changes
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Which name is to stand for what.
#[derive(Args, Debug)]
pub struct NameSetArgs {
    /// The name, with or without name: before it
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The content: b3:… or a CID
    #[arg(value_name = "ID")]
    pub id: String,
    /// Time after which the name stands for nothing [default: the node renews it until `index name remove`]
    #[arg(long, value_name = "TIME")]
    pub ttl: Option<TimeSpan>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Which name to see or to remove.
#[derive(Args, Debug)]
pub struct NameGetArgs {
    /// The name, with or without name: before it
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}
