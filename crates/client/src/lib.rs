//! A client of macronode's mailbox: what many tasks ask for at the same time shares few requests.
//!
//! A send is answered when the node has it on its disk, and one costs the node nearly as much as many together. So a
//! [`Mailbox`] gathers: while its connections are busy, sends to one topic and acknowledgements wait, and go together
//! when one of them is free. There is no timer: a send that is alone leaves at once. Each call has its own answer.
//!
//! ```no_run
//! use macronode_client::{Mailbox, Options, Receive};
//!
//! # async fn example(token: &str) -> Result<(), macronode_client::Error> {
//! let mailbox = Mailbox::connect(Options::new("http://127.0.0.1:8080", token)).await?;
//! let sent = mailbox.send("orders", "a book").await?;
//! for message in mailbox.receive("orders", Receive::up_to(10)).await? {
//!     println!("{} {:?}", message.msg_id, message.payload);
//!     mailbox.ack(&message.receipt).await?;
//! }
//! # Ok(()) }
//! ```
//!
//! Many tasks that work on one topic share a [`Consumer`], which takes messages ahead:
//!
//! ```no_run
//! # use macronode_client::{Error, Mailbox, Receive};
//! # async fn example(mailbox: Mailbox) -> Result<(), Error> {
//! let consumer = mailbox.consumer("orders", Receive::up_to(32));
//! loop {
//!     let message = consumer.next().await?;
//!     mailbox.ack(&message.receipt).await?;
//! }
//! # }
//! ```

mod batch;
mod consumer;
mod endpoint;
mod error;
mod gather;
mod link;
mod mailbox;
mod node;
mod streaming;
mod types;

pub use consumer::Consumer;
pub use error::Error;
pub use mailbox::Mailbox;
pub use node::Options;
pub use types::{Durability, Message, Receive, Received, Sent};

/// The connections beneath, for programs that ask a node for something else.
pub mod http {
    pub use crate::endpoint::Endpoint;
    pub use crate::error::LinkError;
    pub use crate::link::Link;
    pub use crate::streaming::StreamingAnswer;
}
