//! Trees over the amounts, so that a payee can check one leaf against a published root.

pub mod oz;
pub mod sum;
