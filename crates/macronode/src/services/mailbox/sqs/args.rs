//! What can be asked of `macronode sqs`.

use clap::{Args, Subcommand};

use crate::cli::ApiArgs;
use crate::commands::token::args::{lifetime, limit};
use crate::config::TimeSpan;

/// What to do about SQS.
#[derive(Debug, Subcommand)]
pub enum SqsCommand {
    /// Make, list and revoke the access keys that clients of SQS sign with.
    #[command(subcommand)]
    Key(KeyCommand),
}

/// What to do with access keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make a key and print what a client needs in its environment; the secret is not shown again.
    Create(CreateArgs),
    /// List the keys, without their secrets.
    List {
        /// Which node.
        #[command(flatten)]
        node: ApiArgs,
    },
    /// Revoke a key at once.
    Revoke {
        /// Its id, as `macronode sqs key list` shows it
        id: String,
        /// Which node.
        #[command(flatten)]
        node: ApiArgs,
    },
}

/// What the new key allows.
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// What it is for, in your words
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// A right as mailbox:verb:queue, with '*' for every verb or at the end of the queue; may be repeated
    #[arg(long, value_name = "RIGHT")]
    pub allow: Vec<String>,
    /// A limit as name=number; may be repeated
    #[arg(long = "limit", value_name = "NAME=N", value_parser = limit)]
    pub limits: Vec<(String, u64)>,
    /// What it allows: send, recv, ack, nack, admin, or all of them; may be repeated [default: all]
    #[arg(long = "op", visible_alias = "ops", value_name = "OP", value_delimiter = ',')]
    pub ops: Vec<String>,
    /// A queue, or all that begin alike, as in 'jobs-*'; may be repeated [default: all]
    #[arg(long = "topic", visible_alias = "queue", value_name = "QUEUE")]
    pub topics: Vec<String>,
    /// All queues that begin with this; may be repeated
    #[arg(long = "prefix", value_name = "TEXT")]
    pub prefixes: Vec<String>,
    /// How long it is good, as in 90s, 15m, 1h or 30d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub expires: Option<TimeSpan>,
    /// Messages it may send in a second
    #[arg(long, visible_alias = "quota", value_name = "N")]
    pub sends_per_second: Option<u64>,
    /// Largest message it may send
    #[arg(long, value_name = "BYTES")]
    pub payload_bytes_max: Option<u64>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}
