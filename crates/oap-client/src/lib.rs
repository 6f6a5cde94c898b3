//! A client of a macronode over OAP/1: publish to lanes, subscribe to them, and use the mailbox, over one session.
//!
//! ```no_run
//! # async fn example() -> Result<(), oap_client::Error> {
//! use oap_client::{Client, Options, Since};
//!
//! let node = "64-hex-digits@127.0.0.1:9500".parse().expect("NODEID@HOST:PORT");
//! let client = Client::connect(&node, Options { token: Some("token".into()), ..Options::default() }).await?;
//! let mut news = client.subscribe("news", Since::now()).await?;
//! let publisher = client.publisher("news").await?;
//! publisher.publish("hello").await?;
//! let mut events = Vec::new();
//! news.next_batch(&mut events).await?;
//! # Ok(())
//! # }
//! ```
//!
//! One session carries everything and is shared by clones of the [`Client`]. A subscription that nobody reads stops the
//! session once its inbox is full, and with it every answer: one that may fall behind gets a client of its own. Nothing
//! is dialled again by itself: when [`Error::Closed`] comes, the caller connects anew and says from where to go on.

mod client;
mod error;
mod gather;
mod inbox;
mod lanes;
mod leftovers;
mod mailbox;
mod routes;
#[cfg(test)]
mod tests;

pub use client::{Client, Options};
pub use error::{Error, Refusal};
pub use lanes::{Event, Message, PeerOutcome, Published, Publisher, Since, Subscription};
pub use mailbox::{Mailbox, OutgoingMessage, Received, Sent};
pub use ron_gossip::{LaneName, MsgId};
pub use ron_transport::{ConnectError, NodeId, PeerAddress, PostQuantum, SessionFacts, SessionLimits};
