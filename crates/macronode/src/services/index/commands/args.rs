//! What can be asked of `macronode index`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ron_store::{Multiaddr, Name};
use ron_types::limits::index::PROVIDERS_MAX;
use ron_types::limits::records::{ADDR_BYTES_MAX, PROTOCOL_BYTES_MAX, TTL_MAX};

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
    /// List what the node keeps: pins, content that it says it has, or its own names.
    Kept(KeptArgs),
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
    Remove(NameRemoveArgs),
}

/// Providers that can be asked for.
const MAX: i64 = PROVIDERS_MAX as i64;

/// How to look something up, and what to show of it.
#[derive(Args, Clone, Copy, Debug)]
pub struct LookArgs {
    /// Draw the lookup: whom the node asked, when, and how that ended
    #[arg(long)]
    pub trace: bool,
    /// Ask the network even if the node knows an answer
    #[arg(long)]
    pub fresh: bool,
}

/// What to resolve.
#[derive(Args, Debug)]
pub struct ResolveArgs {
    /// The id: b3:…, a CID, or name:…
    #[arg(value_name = "ID")]
    pub id: String,
    /// How to look.
    #[command(flatten)]
    pub look: LookArgs,
    /// Maximum providers
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=MAX))]
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
    /// How to look.
    #[command(flatten)]
    pub look: LookArgs,
    /// Maximum providers
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=MAX))]
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
    /// A name of the node that is to stand for it
    #[arg(long, value_name = "NAME", value_parser = own_name)]
    pub name: Option<String>,
    /// Where it can be fetched; may be repeated [default: the addresses of the node, if it keeps the file: up to 1 MiB]
    #[arg(long, value_name = "MULTIADDR", value_parser = address)]
    pub addr: Vec<Multiaddr>,
    /// A protocol by which it can be fetched; may be repeated
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol)]
    pub protocol: Vec<String>,
    /// Time after which the record ends, 48h at most [default: the node renews it until `index unprovide`]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
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

/// What to list.
#[derive(Args, Debug)]
pub struct KeptArgs {
    /// Which list
    #[arg(value_name = "WHAT", value_enum)]
    pub what: KeptWhat,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Lists of what the node keeps.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum KeptWhat {
    /// What is pinned.
    Pins,
    /// Content that the node says it has, until it is withdrawn.
    Provided,
    /// Names of the node's own that it renews, until they are removed.
    Names,
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

/// Which name to remove.
#[derive(Args, Debug)]
pub struct NameRemoveArgs {
    /// The name, with or without name: before it
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Which name to see.
#[derive(Args, Debug)]
pub struct NameGetArgs {
    /// The name, with or without name: before it
    #[arg(value_name = "NAME")]
    pub name: String,
    /// How to look.
    #[command(flatten)]
    pub look: LookArgs,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// A name that the node itself can set, with or without its word. Looked at here, so that nothing is published under a
/// name that will be refused.
fn own_name(text: &str) -> Result<String, String> {
    let label = text.strip_prefix("name:").unwrap_or(text);
    let name: Name = format!("name:{label}").parse().map_err(|error| format!("{error}"))?;
    match name.owner() {
        None => Ok(text.to_owned()),
        Some(_) => Err("the node sets names of its own only: leave out @ and the key".to_owned()),
    }
}

fn address(text: &str) -> Result<Multiaddr, String> {
    let addr: Multiaddr = text.parse().map_err(|error| format!("no multiaddress: {error}"))?;
    match addr.len() {
        0 => Err("no multiaddress: it is empty".to_owned()),
        1..=ADDR_BYTES_MAX => Ok(addr),
        _ => Err(format!("longer than {ADDR_BYTES_MAX} bytes")),
    }
}

fn protocol(text: &str) -> Result<String, String> {
    let is_allowed = (1..=PROTOCOL_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_allowed.then(|| text.to_owned()).ok_or_else(|| format!("1 to {PROTOCOL_BYTES_MAX} characters without spaces"))
}

fn lifetime(text: &str) -> Result<TimeSpan, String> {
    let ttl: TimeSpan = text.parse().map_err(|error| format!("{error}"))?;
    // The node counts in seconds.
    let is_allowed = ttl.duration().as_secs() >= 1 && ttl.duration() <= TTL_MAX;
    is_allowed.then_some(ttl).ok_or_else(|| "1s to 48h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_looked_at_before() {
        let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        for name in ["site", "name:site", "docs/site.v1"] {
            assert_eq!(own_name(name).as_deref(), Ok(name));
        }
        for wrong in ["", "name:", "Bad Name", "a b", &format!("site@{key}"), "site@abc"] {
            assert!(own_name(wrong).is_err(), "{wrong}");
        }
        assert!(address("/ip4/10.0.0.1/tcp/4001").is_ok());
        for wrong in ["", "10.0.0.1:4001", "/ip4/10.0.0.1/tcp/x", &format!("/dns4/{}", "a".repeat(ADDR_BYTES_MAX))] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
        assert!(protocol("transport-bitswap").is_ok());
        assert!(protocol("").is_err() && protocol("a b").is_err() && protocol(&"a".repeat(65)).is_err());
        assert!(lifetime("1s").is_ok() && lifetime("48h").is_ok());
        assert!(lifetime("0s").is_err() && lifetime("999ms").is_err() && lifetime("49h").is_err());
    }
}
