//! The exceptions to the rules, each with its reason; an entry that is no longer needed is itself a finding.

/// A function that may be longer than the limit.
#[derive(Clone, Copy)]
pub struct LongFunction {
    /// Path from the root.
    pub path: &'static str,
    /// Name of the function.
    pub name: &'static str,
    /// Why splitting it would make it harder to read; shown to whoever wonders.
    pub reason: &'static str,
}

/// Every function past the limit.
pub const LONG_FUNCTIONS: &[LongFunction] = &[];
