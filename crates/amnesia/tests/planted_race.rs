//! A race on purpose: `cargo xtask ci --only sanitizers` must see it, or its sanitizer sees nothing.
//!
//! It stands here because no other crate may have unsafe code, without which nothing races.
#![allow(unsafe_code, reason = "the race is planted")]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

struct Shared(UnsafeCell<u64>);

// SAFETY: none; that is the point.
unsafe impl Sync for Shared {}

#[test]
#[ignore = "it races: run by the step `sanitizers`, which must see it fail"]
fn two_threads_write_one_number() {
    let shared = Shared(UnsafeCell::new(0));
    let running = AtomicU32::new(0);
    let add = || {
        let shared = &shared;
        // One that ends before the other begins is ordered before it by what starting and ending a thread locks. A
        // relaxed count orders nothing.
        running.fetch_add(1, Ordering::Relaxed);
        while running.load(Ordering::Relaxed) < 2 {
            thread::yield_now();
        }
        for _ in 0..1_000 {
            // SAFETY: none; another thread does the same.
            unsafe { *shared.0.get() += 1 };
        }
    };
    thread::scope(|scope| {
        scope.spawn(add);
        scope.spawn(add);
    });
    // SAFETY: both threads have ended.
    println!("counted {}", unsafe { *shared.0.get() });
}
