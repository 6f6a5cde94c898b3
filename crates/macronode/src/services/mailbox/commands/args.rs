//! What can be asked of `macronode mailbox`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use crate::cli::ApiArgs;
use crate::config::TimeSpan;

/// What to do with the mailbox.
#[derive(Debug, Subcommand)]
pub enum MailboxCommand {
    /// Send one message, or each line of standard input.
    Send(SendArgs),
    /// Receive messages under a lease.
    Recv(RecvArgs),
    /// Follow a topic, one line for each message, until Ctrl-C.
    Tail(TailArgs),
    /// Say that messages are done with.
    Ack(AckArgs),
    /// Say that messages failed, so that they are delivered again or become dead letters.
    Nack(NackArgs),
    /// List, make, look at, change and remove topics.
    Topics(TopicsArgs),
    /// Show the numbers of the mailbox, or of one topic.
    Stats(StatsArgs),
    /// Look at messages without receiving them.
    Browse(BrowseArgs),
    /// Say why a message is not being delivered, or who has it.
    Explain(ExplainArgs),
    /// Move dead letters back to where they were for.
    Redrive(RedriveArgs),
    /// Show what happened to messages and topics, and with --follow what happens until Ctrl-C.
    Events(EventsArgs),
    /// Check every record of the log on the disk, or with --online of a running node. Changes nothing.
    Verify(VerifyArgs),
    /// Show the mailbox's clock, or confirm it after a jump: what it makes too old then expires.
    Clock(ClockArgs),
}

/// What to send.
#[derive(Args, Debug)]
pub struct SendArgs {
    /// The topic
    pub topic: String,
    /// The payload [default or -: standard input]
    pub payload: Option<String>,
    /// Take the payload from this file
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    pub file: Option<PathBuf>,
    /// The idempotency key: the same key is taken once within the topic's window
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// The group it belongs to
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// When it may be received at the earliest, from now
    #[arg(long, value_name = "TIME")]
    pub delay: Option<TimeSpan>,
    /// An attribute; may be repeated
    #[arg(long = "attr", value_name = "NAME=VALUE", value_parser = pair)]
    pub attrs: Vec<(String, String)>,
    /// Send each line of standard input as a message, a hundred at a time
    #[arg(long, conflicts_with_all = ["payload", "file", "key"])]
    pub lines: bool,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to receive.
#[derive(Args, Debug)]
pub struct RecvArgs {
    /// The topic
    pub topic: String,
    /// Messages at most
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub max: u16,
    /// How long to wait for the first one, up to 20s
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub wait: TimeSpan,
    /// How long they are ours [default: as the topic says]
    #[arg(long, value_name = "TIME")]
    pub visibility: Option<TimeSpan>,
    /// Acknowledge them once they are printed
    #[arg(long)]
    pub ack: bool,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to follow.
#[derive(Args, Debug)]
pub struct TailArgs {
    /// The topic
    pub topic: String,
    /// Receive and acknowledge; without it new messages are only looked at
    #[arg(long)]
    pub ack: bool,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What is done with.
#[derive(Args, Debug)]
pub struct AckArgs {
    /// Receipts, or ids of messages that are leased now
    #[arg(required = true, value_name = "RECEIPT|MSG_ID")]
    pub targets: Vec<String>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What failed.
#[derive(Args, Debug)]
pub struct NackArgs {
    /// Receipts, or ids of messages that are leased now
    #[arg(required = true, value_name = "RECEIPT|MSG_ID")]
    pub targets: Vec<String>,
    /// What went wrong; kept with the message
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// When it may be received again, from now [default: the topic's backoff]
    #[arg(long, value_name = "TIME")]
    pub delay: Option<TimeSpan>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to do with topics.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct TopicsArgs {
    /// What to do; they are listed if nothing is said.
    #[command(subcommand)]
    pub command: Option<TopicsCommand>,
    /// How to list.
    #[command(flatten)]
    pub list: ListArgs,
}

/// What to do with topics.
#[derive(Debug, Subcommand)]
pub enum TopicsCommand {
    /// List topics.
    List(ListArgs),
    /// Make a topic.
    Create {
        /// Name of the topic
        name: String,
        /// A setting, such as visibility_ms=30s or groups=fifo; may be repeated
        #[arg(long = "set", value_name = "KEY=VALUE", value_parser = pair)]
        settings: Vec<(String, String)>,
        /// Which node.
        #[command(flatten)]
        node: ApiArgs,
    },
    /// Show the settings of a topic.
    Show {
        /// Name of the topic
        name: String,
        /// Which node.
        #[command(flatten)]
        node: ApiArgs,
    },
    /// Change settings of a topic; the others stay as they are.
    Set {
        /// Name of the topic
        name: String,
        /// Settings, such as max_attempts=3 or paused=true
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = pair)]
        settings: Vec<(String, String)>,
        /// Which node.
        #[command(flatten)]
        node: ApiArgs,
    },
    /// Remove a topic with all its messages and dead letters.
    Delete {
        /// Name of the topic
        name: String,
        /// Which node.
        #[command(flatten)]
        node: ApiArgs,
    },
    /// Remove all messages of a topic.
    Purge {
        /// Name of the topic
        name: String,
        /// Which node.
        #[command(flatten)]
        node: ApiArgs,
    },
}

/// Which topics to list.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Only those whose names begin like this
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<String>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Whose numbers to show.
#[derive(Args, Debug)]
pub struct StatsArgs {
    /// The topic [default: the whole mailbox]
    pub topic: Option<String>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to look at.
#[derive(Args, Debug)]
pub struct BrowseArgs {
    /// The topic
    pub topic: String,
    /// Messages at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub limit: u16,
    /// Only those that stand like this
    #[arg(long, value_name = "STATE")]
    pub state: Option<StateName>,
    /// Only those of this group
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Only those with this text in the payload
    #[arg(long, value_name = "TEXT")]
    pub contains: Option<String>,
    /// Only those with this attribute; may be repeated
    #[arg(long = "attr", value_name = "NAME=VALUE", value_parser = pair)]
    pub attrs: Vec<(String, String)>,
    /// Where to go on, as the page before said
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    /// May be delivered.
    Ready,
    /// Waits for its time.
    Delayed,
    /// Is with a consumer.
    Leased,
}

/// Which message to explain.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// Its id, a ULID, or the UUID that clients of SQS see
    pub msg_id: String,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to move back, or what to do with such an order.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct RedriveArgs {
    /// What to do with orders given before.
    #[command(subcommand)]
    pub command: Option<RedriveCommand>,
    /// The topic whose dead letters are moved, or the topic that holds them
    #[arg(required = true)]
    pub topic: Option<String>,
    /// Move them all to this topic [default: each to the topic it was for]
    #[arg(long, value_name = "TOPIC")]
    pub to: Option<String>,
    /// Only those whose last error has this text
    #[arg(long, value_name = "TEXT")]
    pub contains_error: Option<String>,
    /// So many in a second [default: as fast as it goes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: Option<u32>,
    /// So many at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Only say how many there are
    #[arg(long, conflicts_with = "follow")]
    pub dry_run: bool,
    /// Show how it goes until it is done
    #[arg(long)]
    pub follow: bool,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to do with orders.
#[derive(Debug, Subcommand)]
pub enum RedriveCommand {
    /// List them, the newest first.
    List(RedriveNode),
    /// Stop one for now.
    Pause(RedriveTarget),
    /// Let one go on.
    Resume(RedriveTarget),
    /// Stop one for good; what was moved stays moved.
    Cancel(RedriveTarget),
}

/// Whose orders.
#[derive(Args, Debug)]
pub struct RedriveNode {
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Which order.
#[derive(Args, Debug)]
pub struct RedriveTarget {
    /// Its number
    pub id: u64,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Which log to check.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// Have the running node check its log; without it no node may have the log open
    #[arg(long)]
    pub online: bool,
    /// Which node, or whose data directory.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to do about the clock.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ClockArgs {
    /// What to do; it is shown if nothing is said.
    #[command(subcommand)]
    pub command: Option<ClockCommand>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to do about the clock.
#[derive(Debug, Subcommand)]
pub enum ClockCommand {
    /// Say that the clock is right.
    Confirm {
        /// Which node.
        #[command(flatten)]
        node: ApiArgs,
    },
}

/// Which events to show.
#[derive(Args, Debug)]
pub struct EventsArgs {
    /// Only events of this topic, or with orders.* of topics that begin so; may be repeated
    #[arg(long = "topic", value_name = "TOPIC")]
    pub topics: Vec<String>,
    /// Go on until Ctrl-C; a lost connection is opened again, and what was missed is said
    #[arg(long)]
    pub follow: bool,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// Two words around the first equals sign.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}
