//! The republish plan: a walk through the key space, one region after another, in a fixed time.
//!
//! A region is a prefix about as wide as the peers that keep one record, so the records of a region go to the same few
//! peers together: the number of calls grows with the peers, not with the keys.

use std::collections::BTreeMap;

use crate::lookup::LookupTarget;
use crate::space::Position;
use crate::table::PeerTable;
use crate::{Millis, millis};

/// Widest region: an eighth of the key space, so that even two peers are not flooded by everything at once.
const PREFIX_BITS_MIN: u32 = 3;
/// Narrowest region: more are never needed for as many peers as a table holds.
const PREFIX_BITS_MAX: u32 = 24;

/// A part of the key space, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First position.
    pub from: Position,
    /// Last position.
    pub to: Position,
    /// Leading bits that all positions of the region share.
    pub prefix_bits: u32,
}

/// A walk that visits every position once in each period.
#[derive(Clone, Debug)]
pub struct Sweep {
    period_ms: Millis,
    replicas: usize,
    begun_at_ms: Millis,
    /// First 64 bits of the next region; the number of the cycle stands above them.
    cursor: u128,
}

/// One walk is `1 << 64` of the cursor.
const CYCLE: u128 = 1 << 64;

impl Sweep {
    /// A walk that begins at `now_ms`. Each record is kept by `replicas` peers.
    pub fn new(period_ms: Millis, replicas: usize, now_ms: Millis) -> Self {
        Sweep { period_ms: period_ms.max(1), replicas: replicas.max(1), begun_at_ms: now_ms, cursor: 0 }
    }

    /// The next region, if its time has come. With `peers` known at the moment, it is as wide as fits them; a change
    /// of their number in the middle of a walk leaves no gap and visits nothing twice.
    pub fn next(&mut self, now_ms: Millis, peers: usize) -> Option<Region> {
        self.skip_lost_time(now_ms);
        if now_ms < self.due_at_ms() {
            return None;
        }
        let bits = prefix_bits(peers, self.replicas);
        let start = self.cursor % CYCLE;
        // Regions are prefixes: one that does not begin where a wide prefix may begin is narrower.
        let wanted = CYCLE >> bits;
        let width = if start == 0 { wanted } else { wanted.min(1 << start.trailing_zeros()) };
        self.cursor += width;
        Some(region(start, width))
    }

    /// When the next region is due.
    pub fn due_at_ms(&self) -> Millis {
        let offset_ms = (u128::from(self.period_ms) * self.cursor) >> 64;
        self.begun_at_ms.saturating_add(u64::try_from(offset_ms).unwrap_or(Millis::MAX))
    }

    /// Walks completed.
    pub fn cycles(&self) -> u64 {
        (self.cursor / CYCLE) as u64
    }

    /// A node that slept for longer than a period continues from where it was at the usual pace: all regions at once
    /// would be a flood.
    fn skip_lost_time(&mut self, now_ms: Millis) {
        let late_ms = now_ms.saturating_sub(self.due_at_ms());
        if late_ms > self.period_ms {
            self.begun_at_ms += late_ms;
        }
    }
}

impl Default for Sweep {
    fn default() -> Self {
        let limits = (ron_types::limits::lookup::SWEEP_PERIOD, ron_types::limits::lookup::NEAREST);
        Sweep::new(millis(limits.0), limits.1, 0)
    }
}

/// Bits of the prefix that about `replicas` of `peers` share.
fn prefix_bits(peers: usize, replicas: usize) -> u32 {
    let regions = (peers / replicas.max(1)).max(1);
    regions.ilog2().clamp(PREFIX_BITS_MIN, PREFIX_BITS_MAX)
}

fn region(start: u128, width: u128) -> Region {
    let mut from = [0; 32];
    let mut to = [0xff; 32];
    from[..8].copy_from_slice(&(start as u64).to_be_bytes());
    to[..8].copy_from_slice(&((start + width - 1) as u64).to_be_bytes());
    Region { from, to, prefix_bits: 64 - width.trailing_zeros() }
}

/// The records of a region by the peers that shall keep them: one call each, or a few where the records are many.
pub fn batches<T: LookupTarget>(
    table: &PeerTable<T>,
    keys: &[Position],
    replicas: usize,
) -> BTreeMap<T, Vec<Position>> {
    let mut batches: BTreeMap<T, Vec<Position>> = BTreeMap::new();
    for key in keys {
        for candidate in table.nearest(key, replicas) {
            batches.entry(candidate.target).or_default().push(*key);
        }
    }
    batches
}

#[cfg(test)]
mod tests;
