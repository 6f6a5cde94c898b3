//! A witness of the machine: tests that measure time are not to blame a node for a host that stood still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const BEAT: Duration = Duration::from_millis(2);

/// A thread that only sleeps, and knows how late it was woken.
#[derive(Debug)]
pub struct Pulse {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Pulse {
    /// Begins to watch.
    pub fn start() -> Pulse {
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut latest = Duration::ZERO;
            while !told.load(Ordering::Relaxed) {
                let began = Instant::now();
                thread::sleep(BEAT);
                latest = latest.max(began.elapsed().saturating_sub(BEAT));
            }
            latest
        });
        Pulse { is_over, thread }
    }

    /// The longest time the machine stood still since the start.
    pub fn stop(self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("sleeping does not panic")
    }
}
