//! Models of hand-written atomics, which loom runs under every interleaving.

#[cfg(test)]
mod cells;
