//! Capabilities: who may do what on which topic, as tokens that are minted, narrowed, verified and revoked.
//!
//! A token is a biscuit: signed by the node's [`RootKey`], narrowed by its holder without any key, and verified by
//! [`Authority`], the one place every surface asks. Verdicts are remembered for a short while, so that a busy client
//! pays for the signature and the rules once.

#![forbid(unsafe_code)]

mod authority;
mod cache;
pub mod file;
mod inspect;
mod key;
mod revocations;
mod token;
mod types;
mod verified;

pub use authority::Authority;
pub use inspect::{BlockText, Inspection, inspect, inspect_with};
pub use key::{PublicKey, RootKey};
pub use revocations::Revocations;
pub use token::attenuate;
pub use types::{AuthError, Grant, Narrowing, Op, Subject, TopicScope};

/// Name of the file with the signing key in a data directory.
pub const KEY_FILE: &str = "auth.key";
/// Name of the file with the revoked tokens in a data directory.
pub const REVOKED_FILE: &str = "revoked";
