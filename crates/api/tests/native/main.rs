//! The native surface on a real listener with a real mailbox, asked in JSON.

mod breaker;
mod harness;
mod stalls;
mod topics;
