//! Random numbers that only spread things out: jitter of waits, the first partition asked, partitions of messages.

/// A random number. Nothing secret depends on it.
pub(crate) fn draw() -> u64 {
    let mut bytes = [0; 8];
    // Without entropy a wait is merely less spread, so the failure is not worth an error in every caller.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
