//! What messages and caches take in memory is counted and bounded.
