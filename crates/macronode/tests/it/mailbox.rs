//! What the mailbox promises, on the real process: nothing acknowledged is lost to kill -9 or a bad disk, and the gates
//! mailbox-once, mailbox-visibility, mailbox-kill, mailbox-order, backpressure and chaos.
//!
//! Each test has its own node on free ports. The runtime of the nodes comes from `MACRO_TEST_RUNTIME`.
#![allow(clippy::disallowed_methods, reason = "a test measures the node with its own clock")]

mod audit;
mod checker;
mod disk;
mod events;
mod faults;
mod gates;
mod kill;
mod old_data;
mod refusals;
mod restart;
mod scrub;

/// Numbers that differ from run to run.
struct Dice(u64);

impl Dice {
    fn new() -> Dice {
        use std::hash::{BuildHasher as _, RandomState};
        Dice(RandomState::new().hash_one("dice") | 1)
    }

    /// From `low` on, below `high`.
    fn roll(&mut self, low: u64, high: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        low + self.0 % (high - low)
    }
}
