//! What can be asked of `macronode token`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ron_auth::{Op, TopicScope};

use crate::config::TimeSpan;

/// What to do with a token.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token; the first one makes the signing key as well.
    Mint(MintArgs),
    /// Make a token that allows less than another; needs no key and no node.
    Attenuate(AttenuateArgs),
    /// Say what a token allows, until when, and whether it is one of this node.
    Inspect(InspectArgs),
    /// Take a token back, with every token made from it; a running node follows within 30 s.
    Revoke(RevokeArgs),
}

/// What the new token allows.
#[derive(Args, Debug)]
pub struct MintArgs {
    /// For whom it is: letters, digits and any of -_.:@/
    #[arg(long, value_name = "NAME")]
    pub subject: String,
    /// What it allows: send, recv, ack, nack, admin, or all of them; may be repeated
    #[arg(long = "op", value_name = "OP", required = true, value_parser = operations)]
    pub ops: Vec<Ops>,
    /// A topic, or all that begin alike, as in 'jobs.*'; may be repeated
    #[arg(long = "topic", value_name = "TOPIC", required = true)]
    pub topics: Vec<TopicScope>,
    /// How long it is good, as in 90s, 15m, 1h or 30d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub expires: Option<TimeSpan>,
    /// Messages it may send in a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub sends_per_second: Option<u32>,
    /// Largest payload it may send
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    pub payload_bytes_max: Option<u32>,
    /// Which node.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// What is left of the token.
#[derive(Args, Debug)]
pub struct AttenuateArgs {
    /// The token to begin with.
    #[command(flatten)]
    pub given: GivenToken,
    /// Only this of what it allows: send, recv, ack, nack, admin, or all of them; may be repeated
    #[arg(long = "op", value_name = "OP", value_parser = operations)]
    pub ops: Vec<Ops>,
    /// Only this topic, or those that begin alike, as in 'jobs.*'; may be repeated
    #[arg(long = "topic", value_name = "TOPIC")]
    pub topics: Vec<TopicScope>,
    /// How much longer it is good at most, as in 90s, 15m, 1h or 30d
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub expires: Option<TimeSpan>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Which token to read.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// The token.
    #[command(flatten)]
    pub given: GivenToken,
    /// Which node.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// Which token to take back.
#[derive(Args, Debug)]
pub struct RevokeArgs {
    /// The token.
    #[command(flatten)]
    pub given: GivenToken,
    /// A revocation id, as `macronode token inspect` shows it
    #[arg(long, value_name = "HEX", conflicts_with = "token")]
    pub id: Option<String>,
    /// Which node.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// A token somebody has.
#[derive(Args, Debug)]
pub struct GivenToken {
    /// The token [default: read from standard input, where no list of processes shows it]
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
}

/// The node a token is for.
#[derive(Args, Debug)]
pub struct NodeArgs {
    /// The data directory of the node [default: ./macronode-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What one `--op` stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ops(pub Vec<Op>);

/// Each operation once, in the order of their declaration.
pub fn merged(given: &[Ops]) -> Vec<Op> {
    Op::ALL.into_iter().filter(|op| given.iter().any(|ops| ops.0.contains(op))).collect()
}

/// Reads an `--op`.
pub fn operations(text: &str) -> Result<Ops, String> {
    match text {
        "all" => Ok(Ops(Op::ALL.to_vec())),
        text => text.parse().map(|op| Ops(vec![op])).map_err(|error| format!("{error}, or all")),
    }
}

/// A time as in the configuration, or in days.
pub fn lifetime(text: &str) -> Result<TimeSpan, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok()?.checked_mul(24 * 3_600_000));
    let malformed = "expected a time such as \"90s\", \"15m\", \"1h\" or \"30d\"";
    match days.map_or_else(|| text.parse().map_err(|_| malformed), |days| Ok(TimeSpan(days)))? {
        TimeSpan(0) => Err("a token must be good for some time".to_owned()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_read_as_people_write_them() {
        let hour = 3_600_000;
        for (text, expected) in
            [("1h", Some(hour)), ("30d", Some(720 * hour)), ("5ms", Some(5)), ("0s", None), ("0d", None)]
        {
            assert_eq!(lifetime(text).ok(), expected.map(TimeSpan), "{text}");
        }
        for text in ["", "d", "1", "soon", "-1h", "99999999999999999999d", "18446744073709551615d"] {
            assert!(lifetime(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn operations_are_merged_and_unknown_ones_name_the_known() {
        let ops =
            |texts: &[&str]| merged(&texts.iter().map(|text| operations(text).expect("known")).collect::<Vec<_>>());
        assert_eq!(ops(&["recv", "send", "recv"]), [Op::Send, Op::Recv]);
        assert_eq!(ops(&["send", "all"]), Op::ALL);
        let error = operations("write").expect_err("unknown");
        assert!(["send", "recv", "ack", "nack", "admin", "all"].iter().all(|op| error.contains(op)), "{error}");
    }
}
