//! The rewarder: exact, reproducible, provable epoch payouts.
//!
//! The offline half is a run without a node. Read in this order: `policy_document` and `envelope` (whose rules), `job`
//! (from files to amounts), `manifest` and `artifacts` (what is written, and its one hash), `sealed` (reading it
//! again), `verify`, `proofs`, `intents`, `diff`, `correct`, `correction_statement`. The live half is `service`, with
//! `store`, `folders` and `inputs`.

#![forbid(unsafe_code)]

// a run without a node
pub mod artifacts;
pub mod canonical;
pub mod correct;
pub mod correction_statement;
pub mod diff;
pub mod distribution;
pub mod envelope;
pub mod epoch;
pub mod folder;
pub mod hashing;
pub mod intents;
pub mod job;
pub mod keys;
pub mod manifest;
mod payable;
pub mod plot;
pub mod policy_document;
pub mod proofs;
pub mod sealed;
pub mod verify;

// what the service declares
pub mod capabilities;
pub mod config;
mod metrics;
pub mod specs;

// what the node itself did, as usage
pub mod usage_meter;

// what it keeps, and the service itself
pub mod folders;
pub mod inputs;
pub mod service;
pub mod store;

pub use artifacts::Seal;
pub use epoch::EpochId;
pub use folder::Folder;
pub use intents::Intents;
pub use job::{Computed, Cost, Job, RunError, Stage, Unwatched, Watch, compute};
pub use keys::{PublicKey, SigningKey, TrustedKeys};
pub use manifest::{Manifest, RunStatus};
pub use metrics::METRICS;
pub use policy_document::{PolicyDocument, PolicyDocumentError, Trust};
pub use proofs::ProofFormat;
pub use sealed::{SealedError, SealedRun};
pub use service::{Rewarder, install};
