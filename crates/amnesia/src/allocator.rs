//! The allocator around another one: it hands everything on, and wipes first what is freed.
#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait: its callers promise what its methods rely on")]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{Ordering, compiler_fence};

use crate::is_wiping;

/// Wipes memory before it is given back to the allocator inside, once [`start_wiping`](crate::start_wiping) was called.
/// Until then it costs one read of a flag that nobody writes.
pub struct WipingAllocator<A>(pub A);

// SAFETY: every method keeps the contract of `GlobalAlloc` because it forwards to an allocator that keeps it, with the
// layouts it was given; between a caller's last use and the inner `dealloc` the block belongs to this code alone.
unsafe impl<A: GlobalAlloc> GlobalAlloc for WipingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_wiping() {
            // SAFETY: the block has `layout.size()` bytes and its owner has given it up.
            unsafe { wipe(block, layout.size()) };
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { self.0.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !is_wiping() {
            // SAFETY: the caller's promise, passed on.
            return unsafe { self.0.realloc(block, layout, new_size) };
        }
        // The allocator inside would free the old block, or cut off its end, without wiping. So nothing grows or
        // shrinks in place here: a copy more for each growth is the price, in this mode only.
        // SAFETY: the caller promises that the new size, rounded up to the alignment, does not overflow.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: the caller promises that the new size is not zero.
        let new = unsafe { self.0.alloc(new_layout) };
        if !new.is_null() {
            // SAFETY: two blocks that live, of at least that many bytes, the new one in nobody else's hands.
            unsafe { std::ptr::copy_nonoverlapping(block, new, layout.size().min(new_size)) };
            // SAFETY: the old block is no longer used by the caller when a new one is returned.
            unsafe { self.dealloc(block, layout) };
        }
        new
    }
}

/// Overwrites a block with zeros.
///
/// # Safety
/// The block must have that many bytes, and nobody else may use it.
unsafe fn wipe(block: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { block.write_bytes(0, bytes) };
    // The compiler may not move the zeros past this, nor leave them out for being read by nobody.
    compiler_fence(Ordering::SeqCst);
    std::hint::black_box(block);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Bytes of a block at the moment it reaches the allocator inside.
    static FREED: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

    struct Witness;

    // SAFETY: the system's allocator, with a look at what is freed.
    unsafe impl GlobalAlloc for Witness {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: passed on.
            unsafe { std::alloc::System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: the block still has its bytes.
            let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
            FREED.lock().expect("no panic").push(bytes.to_vec());
            // SAFETY: passed on.
            unsafe { std::alloc::System.dealloc(block, layout) }
        }
    }

    /// A block full of sevens, made larger or smaller, then freed; what it held after the change.
    fn change_and_free(allocator: &WipingAllocator<Witness>, size: usize, new_size: usize) -> Vec<u8> {
        let layout = Layout::from_size_align(size, 16).expect("valid");
        let new_layout = Layout::from_size_align(new_size, 16).expect("valid");
        // SAFETY: sizes are not zero; each block is used with its own layout and only until it is given up.
        unsafe {
            let block = allocator.alloc(layout);
            block.write_bytes(7, size);
            let block = allocator.realloc(block, layout, new_size);
            assert_eq!(block.align_offset(16), 0);
            let kept = std::slice::from_raw_parts(block, size.min(new_size)).to_vec();
            block.write_bytes(7, new_size);
            allocator.dealloc(block, new_layout);
            kept
        }
    }

    #[test]
    fn what_is_freed_or_moved_is_zero_once_wiping_has_begun_and_its_content_arrives_whole() {
        let allocator = WipingAllocator(Witness);
        assert_eq!(change_and_free(&allocator, 64, 100), [7; 64]);
        assert!(FREED.lock().expect("no panic").iter().all(|block| block.contains(&7)), "before, nothing is wiped");
        FREED.lock().expect("no panic").clear();

        crate::start_wiping();
        for (size, new_size) in [(64, 4096), (4096, 16), (1, 1), (100, 100)] {
            assert_eq!(change_and_free(&allocator, size, new_size), vec![7; size.min(new_size)]);
        }
        let freed = FREED.lock().expect("no panic");
        let sizes: Vec<usize> = freed.iter().map(Vec::len).collect();
        assert_eq!(sizes, [64, 4096, 4096, 16, 1, 1, 100, 100], "the old block and the new one, each time");
        assert!(freed.iter().all(|block| block.iter().all(|byte| *byte == 0)), "{freed:?}");
    }
}
