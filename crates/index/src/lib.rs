//! The index: a name or a hash to a manifest and ranked providers, by hedged lookups.
