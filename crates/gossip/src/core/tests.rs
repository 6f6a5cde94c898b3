//! Cores joined in memory.
