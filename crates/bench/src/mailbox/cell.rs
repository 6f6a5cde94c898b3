//! What is measured: a workload, how many at once, how large, how long.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::kernel::Size;

/// Operation that a client repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Sends a message and waits until it is acknowledged.
    Send,
    /// Sends a message, receives one and acknowledges it.
    Cycle,
    /// Receives a message that waited and acknowledges it.
    Settle,
    /// Sends ten messages in one request.
    Batch,
}

/// One combination of workload, clients in flight and payload size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Operation that is repeated.
    pub workload: Workload,
    /// Clients that each wait for their answer.
    pub in_flight: usize,
    /// Bytes of one payload.
    pub payload_bytes: usize,
}

/// Times of one load.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time at the start that is not counted.
    pub warm_up: Duration,
    /// Time that is counted.
    pub counted: Duration,
}

/// Extent of a run: cells, rounds and times.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Each system measures each cell this often, in turns.
    pub rounds: usize,
    /// Times of each load.
    pub times: Times,
    /// Connections of clients that carry many requests on one; the others have one for each request in flight.
    pub connections_max: usize,
    /// Quick or full.
    pub size: Size,
}

/// The bytes of one message, the same for everybody.
#[derive(Clone, Debug)]
pub struct Payload {
    /// The payload's bytes.
    pub bytes: Bytes,
    /// The payload as base64, for JSON.
    pub base64: String,
}

/// The cell that most targets speak of.
pub const MAIN_SEND: Cell = Cell { workload: Workload::Send, in_flight: 64, payload_bytes: 256 };
/// The main cell with receiving and acknowledging.
pub const MAIN_CYCLE: Cell = Cell { workload: Workload::Cycle, ..MAIN_SEND };
/// A send with one client.
pub const SINGLE_SEND: Cell = Cell { in_flight: 1, ..MAIN_SEND };

/// Numbers of clients at once.
pub const IN_FLIGHT: [usize; 3] = [1, 64, 512];

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Workload::Send => "send",
            Workload::Cycle => "send, receive, acknowledge",
            Workload::Settle => "receive, acknowledge",
            Workload::Batch => "send ten at once",
        })
    }
}

impl Workload {
    /// Number of messages in one operation.
    pub fn messages_each(self) -> u32 {
        if self == Workload::Batch { 10 } else { 1 }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} in flight, {} B", self.workload, self.in_flight, self.payload_bytes)
    }
}

impl Plan {
    /// The usual plan of a size; rounds and seconds may be set.
    pub fn new(size: Size, rounds: Option<usize>, seconds: Option<f64>, connections_max: usize) -> Plan {
        let seconds = seconds.unwrap_or_else(|| size.pick(1.0, 3.0));
        let times = Times { warm_up: Duration::from_millis(500), counted: Duration::from_secs_f64(seconds) };
        Plan { rounds: rounds.unwrap_or_else(|| size.pick(1, 3)).max(1), times, connections_max, size }
    }

    /// Payload sizes of this plan, in bytes.
    pub fn payload_sizes(&self) -> &'static [usize] {
        self.size.pick(&[256], &[256, 4096])
    }

    /// Every cell of a workload.
    pub fn cells(&self, workload: Workload) -> Vec<Cell> {
        let sizes = self.payload_sizes().iter();
        sizes
            .flat_map(|&payload_bytes| IN_FLIGHT.map(|in_flight| Cell { workload, in_flight, payload_bytes }))
            .collect()
    }
}

impl Payload {
    /// Bytes that nobody can compress, always the same.
    pub fn new(length: usize) -> Payload {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let bytes: Bytes = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .take(length)
        .collect();
        let base64 = STANDARD.encode(&bytes);
        Payload { bytes, base64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_covers_every_combination_once() {
        let plan = Plan::new(Size::Full, None, None, 64);
        let mut cells = plan.cells(Workload::Send);
        assert!(cells.contains(&MAIN_SEND) && cells.contains(&SINGLE_SEND));
        cells.extend(plan.cells(Workload::Cycle));
        assert!(cells.contains(&MAIN_CYCLE));
        let count = cells.len();
        cells.sort_unstable();
        cells.dedup();
        assert_eq!((count, cells.len()), (12, 12));
        assert_eq!(Plan::new(Size::Quick, Some(0), Some(0.5), 64).rounds, 1, "nothing measured is no plan");
    }

    #[test]
    fn payloads_are_reproducible_and_uneven() {
        let payload = Payload::new(4096);
        assert_eq!(payload.bytes, Payload::new(4096).bytes);
        assert_eq!((payload.bytes.len(), payload.base64.len()), (4096, 4096_usize.div_ceil(3) * 4));
        let mut seen: Vec<u8> = payload.bytes.to_vec();
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() > 250, "{} different bytes", seen.len());
    }
}
