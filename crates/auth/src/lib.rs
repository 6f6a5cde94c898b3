//! Capabilities: who may do what to which resource, as tokens that are minted, narrowed, verified and revoked.
//!
//! A right is a verb of a service on a resource, `service:verb:resource`. This crate knows no service and no verb: each
//! service declares its own as [`Capabilities`].
//!
//! A token is a biscuit: signed by the node's [`RootKey`], narrowed by its holder without any key, and verified by
//! [`Authority`], the one place every surface asks. Of the language of biscuits only what this crate writes is taken,
//! and it is compared, never run: a token cannot cost more than its size. Verified tokens are remembered for a
//! short while, so that a busy client pays for the signatures once.

#![forbid(unsafe_code)]

mod asked;
mod authority;
mod block;
mod cache;
mod capabilities;
mod envelope;
pub mod file;
mod inspect;
mod key;
mod proof;
mod revocations;
mod right;
#[cfg(test)]
mod testing;
mod token;
mod types;
mod verified;

pub use asked::{Asked, AskedError};
pub use authority::{Authority, Identified};
pub use capabilities::{Action, Capabilities, LimitSpec, VerbSpec};
pub use inspect::{BlockText, Inspection, inspect, inspect_with};
pub use key::{PublicKey, RootKey};
pub use proof::{is_proof, prove};
pub use revocations::{Revocations, RevocationsFile};
pub use right::{ResourceScope, Right};
pub use token::attenuate;
pub use types::{AuthError, Grant, Narrowing, Subject};

/// Name of the file with the signing key in a data directory.
pub const KEY_FILE: &str = "auth.key";
/// Name of the file with the revoked tokens in a data directory.
pub const REVOKED_FILE: &str = "revoked";
