//! The way of a stream to its client, for those who speak on it from elsewhere.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ron_transport::Outbox;

/// Writes under the number of a stream while that is open. An engine may still hold it when the stream has ended, and
/// the client may by then have given the number to another stream.
pub(super) struct StreamWriter {
    corr: u64,
    outbox: Outbox,
    is_open: Mutex<bool>,
}

/// Held by the stream; dropping it ends what the writer may say. The stream is answered after that, so the answer is
/// the last that is said under its number.
pub(super) struct OpenGuard(Arc<StreamWriter>);

impl StreamWriter {
    pub(super) fn new(corr: u64, outbox: Outbox) -> (Arc<StreamWriter>, OpenGuard) {
        let writer = Arc::new(StreamWriter { corr, outbox, is_open: Mutex::new(true) });
        (Arc::clone(&writer), OpenGuard(writer))
    }

    pub(super) fn corr(&self) -> u64 {
        self.corr
    }

    pub(super) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    pub(super) fn is_open(&self) -> bool {
        *self.lock()
    }

    /// Does something that must not happen after the end of the stream; nothing if that is over.
    pub(super) fn while_open<T>(&self, say: impl FnOnce(&Outbox) -> T) -> Option<T> {
        let is_open = self.lock();
        is_open.then(|| say(&self.outbox))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        *self.0.lock() = false;
    }
}
