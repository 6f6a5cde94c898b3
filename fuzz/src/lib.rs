//! Fuzz targets of everything that reads bytes of others: a function for each, and the one table that names them.
//!
//! `fuzz_targets/` wraps each for cargo-fuzz, `tests/` runs each over its seeds and over inputs made from them.

pub mod calculus;
pub mod gossip;
pub mod index;
pub mod mailbox;
pub mod oap;
pub mod rewarder;
pub mod store;
pub mod transport;
pub mod usage;

/// A committed input, by the name of its file.
pub type Seed = (&'static str, Vec<u8>);

/// A body that holds for any bytes, and inputs to begin with.
pub struct Target {
    /// `<crate>_<what>`: name of its program, of its test and of the folder of its seeds.
    pub name: &'static str,
    /// Panics where the bytes break what the target promises.
    pub body: fn(&[u8]),
    /// Whether bytes get past the first check, so that what lies behind it is tried. Every seed does.
    pub is_read: fn(&[u8]) -> bool,
    /// Valid inputs, made by the encoders of this project.
    pub seeds: fn() -> Vec<Seed>,
}

/// All targets.
pub fn targets() -> impl Iterator<Item = &'static Target> {
    let tables: [&[Target]; 9] = [
        &calculus::TARGETS,
        &gossip::TARGETS,
        &index::TARGETS,
        &mailbox::TARGETS,
        &oap::TARGETS,
        &rewarder::TARGETS,
        &store::TARGETS,
        &transport::TARGETS,
        &usage::TARGETS,
    ];
    tables.into_iter().flatten()
}
