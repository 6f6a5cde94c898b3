//! Threads that work through a list together.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::input::InputError;

/// Locks; a thread that panicked has made the whole call panic already.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the same work on some threads, this one among them, and waits for all; the first error of the lowest thread.
pub fn together(threads: usize, work: impl Fn(usize) -> Result<(), InputError> + Sync) -> Result<(), InputError> {
    std::thread::scope(|scope| {
        let work = &work;
        let mut others = Vec::new();
        for index in 1..threads.max(1) {
            let other = std::thread::Builder::new().name(format!("usage-{index}"));
            others.push(other.spawn_scoped(scope, move || work(index)));
        }
        let mut result = work(0);
        for other in others {
            // A thread that the system refuses is no loss: the others take its share.
            let Ok(handle) = other else { continue };
            let ended = handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(ended);
        }
        result
    })
}

/// Hands each item to one of the threads, in order; stops handing out at the first error.
pub fn each<T: Send>(
    threads: usize,
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(T) -> Result<(), InputError> + Sync,
) -> Result<(), InputError> {
    let items = Mutex::new(Some(items));
    together(threads, |_| {
        loop {
            let next = lock(&items).as_mut().and_then(Iterator::next);
            let Some(item) = next else { return Ok(()) };
            if let Err(error) = work(item) {
                *lock(&items) = None;
                return Err(error);
            }
        }
    })
}
