//! The tables that a run writes and reads again: totals and allocations as Parquet, always the same bytes.

use std::io;

use ron_calculus::{AssetAllocation, Roster, Totals};

/// Writes totals as Parquet: actor, metric, group, asset, quantity (decimal text), in canonical order.
pub fn write_totals(_totals: &Totals, _to: &mut (dyn io::Write + Send)) -> io::Result<()> {
    unimplemented!()
}

/// Reads what [`write_totals`] wrote, under a bound on memory in bytes.
pub fn read_totals(_from: bytes::Bytes, _memory_bytes: u64) -> io::Result<Totals> {
    unimplemented!()
}

/// Writes allocations as Parquet: actor, asset, amount (decimal text), by actor, then by asset in the policy's order.
pub fn write_allocations(
    _roster: &Roster,
    _allocations: &[AssetAllocation],
    _to: &mut (dyn io::Write + Send),
) -> io::Result<()> {
    unimplemented!()
}
