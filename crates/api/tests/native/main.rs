//! The native surface on a real listener with a real mailbox, asked in JSON.

#[path = "../common/served.rs"]
mod served;

mod breaker;
mod harness;
mod stalls;
mod topics;
