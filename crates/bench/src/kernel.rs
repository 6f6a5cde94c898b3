//! The rows about the kernel, and how long each is measured.

mod http;
mod memory;
mod queue;
mod restart;
mod runtimes;
mod start;

use clap::ValueEnum as _;

use crate::report::Row;

/// What can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum KernelPart {
    /// Queues against raw channels.
    Queue,
    /// The HTTP layers against bare axum.
    Http,
    /// The one-thread runtime beside the multi-thread one.
    Runtimes,
    /// A killed worker's way back.
    Restart,
    /// From spawn to ready.
    Start,
    /// Resident memory.
    Memory,
}

/// Length of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A few seconds, to see that it works.
    Quick,
    /// Minutes; for numbers that are kept.
    Full,
}

impl Size {
    /// The first value for a quick run, the second for a full one.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Size::Quick => quick,
            Size::Full => full,
        }
    }
}

/// Measures the parts in order, one after the other.
pub fn measure(size: Size, only: Option<KernelPart>) -> anyhow::Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut rows = Vec::new();
    for part in KernelPart::value_variants().iter().copied().filter(|part| only.is_none_or(|only| only == *part)) {
        eprintln!("measuring {part:?}");
        rows.extend(match part {
            KernelPart::Queue => queue::measure(&runtime, size)?,
            KernelPart::Http => http::measure(&runtime, size)?,
            KernelPart::Runtimes => runtimes::measure(&runtime, size)?,
            KernelPart::Restart => runtime.block_on(restart::measure(size))?,
            KernelPart::Start => start::measure(size)?,
            KernelPart::Memory => runtime.block_on(memory::measure(size))?,
        });
    }
    Ok(rows)
}
