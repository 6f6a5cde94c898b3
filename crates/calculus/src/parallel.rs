//! Threads of one piece of work, apart from those of anything else in the process.

/// More threads than any machine has cores only cost memory.
const THREADS_MAX: usize = 256;

/// Does the work on so many threads.
pub fn with_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    match rayon::ThreadPoolBuilder::new().num_threads(threads.clamp(1, THREADS_MAX)).build() {
        Ok(pool) => pool.install(work),
        // A system that gives no more threads may still have those of the whole process; the answer is the same.
        Err(_) => work(),
    }
}
