//! Forgetting: an allocator that wipes what is freed, and the wiping of stacks, both only once the node asks for it.
//!
//! A message passes through many buffers that other people's code allocates: sockets, parsers, codecs. Wiping types
//! would cover only our own, so in amnesia mode it is the allocator that wipes, which every buffer must pass.

mod allocator;

use std::sync::atomic::{AtomicBool, Ordering};

pub use allocator::WipingAllocator;

/// Bytes of a stack that are overwritten at the end of its thread: below the 2 MiB that a thread has, because the
/// caller's own frames need room, and far above what the runtime's threads have been seen to use.
const STACK_WIPED_BYTES: usize = 1536 << 10;

/// Whether freed memory is wiped. Never goes back to false: a node that forgets does so to its end.
static WIPING: AtomicBool = AtomicBool::new(false);

/// From now on memory is wiped when it is freed. To be called before the first secret is in memory: what was freed
/// earlier is left as it was.
pub fn start_wiping() {
    WIPING.store(true, Ordering::Relaxed);
}

/// Whether memory is wiped when it is freed.
///
/// Relaxed is enough: the flag guards no other data, it is set before the first secret is read, and a thread is started
/// after that and sees it.
pub fn is_wiping() -> bool {
    WIPING.load(Ordering::Relaxed)
}

/// Overwrites what ended calls have left on this thread's stack. To be called as the last thing a thread does, near the
/// top of its stack: the C library keeps stacks of ended threads for the next one. Does nothing unless memory is wiped.
pub fn wipe_stack() {
    if is_wiping() {
        overwrite_stack();
    }
}

/// A function of its own, so that its frame lies where the frames of ended calls have been.
#[inline(never)]
fn overwrite_stack() {
    let zeros = [0_u8; STACK_WIPED_BYTES];
    // Without somebody who might look at them the zeros would never be written.
    std::hint::black_box(&zeros);
}
