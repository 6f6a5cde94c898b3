//! The lock in use: shuttle's with the feature `shuttle`, the standard one otherwise.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};

/// Locks, also after a panic elsewhere: what the locks of this crate guard is whole after every statement that can
/// panic, and a session must be able to end.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
