//! The peers: found or installed, started on loopback with their data beside ours, each behind its own client.

mod beanstalk;
pub mod install;
mod nats;
mod postgres;
mod rabbit;
mod redis_streams;

use std::path::PathBuf;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::scratch::Scratch;
use super::target::System;

/// A peer that could not be measured, and why.
pub struct Absent {
    /// Name of the peer.
    pub name: &'static str,
    /// Reason: what was missing or failed.
    pub reason: String,
}

/// Starts a peer in a folder, with a maximum number of connections.
type Start = fn(PathBuf, usize) -> BoxFuture<'static, anyhow::Result<Vec<System>>>;

/// Starts every peer that can be had.
pub async fn start(
    scratch: &Scratch,
    connections_max: usize,
    wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<(Vec<System>, Vec<Absent>)> {
    let starts: [(&'static str, Start); 5] = [
        ("nats", |folder, connections_max| nats::start(folder, connections_max).boxed()),
        ("redis", |folder, connections_max| redis_streams::start(folder, connections_max).boxed()),
        ("rabbitmq", |folder, connections_max| rabbit::start(folder, connections_max).boxed()),
        ("beanstalkd", |folder, _| beanstalk::start(folder).boxed()),
        ("postgresql", |folder, connections_max| async move { postgres::start(folder, connections_max) }.boxed()),
    ];
    let (mut systems, mut absent) = (Vec::new(), Vec::new());
    for (name, start) in starts.into_iter().filter(|(name, _)| wanted(name)) {
        eprintln!("starting {name}");
        match start(scratch.folder(name)?, connections_max).await {
            Ok(started) => systems.extend(started),
            Err(error) => {
                eprintln!("*** {name} is NOT measured: {error:#}");
                absent.push(Absent { name, reason: format!("{error:#}") });
            }
        }
    }
    Ok((systems, absent))
}

/// Hands out the members of a small set in turn.
fn in_turn<T: Clone>(set: &[T], count: usize) -> Vec<T> {
    set.iter().cycle().take(count).cloned().collect()
}
