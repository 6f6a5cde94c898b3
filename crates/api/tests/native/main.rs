//! The native surface on a real listener with a real mailbox, asked in JSON.

#[path = "../common/served.rs"]
mod served;

mod breaker;
mod events;
mod frames;
mod harness;
mod messages;
mod scrub;
mod stalls;
mod topics;
