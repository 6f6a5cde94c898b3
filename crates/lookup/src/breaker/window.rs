//! Calls and failures of the latest stretch of time, in slices that expire one by one.

use crate::Millis;

/// Slices of a window: the newest and the nine before it.
pub(super) const SLICES: usize = 10;

/// Counts by slice; a slice is a tenth of the window of the clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    newest: u64,
    slices: [Slice; SLICES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    calls: u32,
    failures: u32,
}

/// Number of the slice a time lies in.
pub(super) fn slice_of(at_ms: Millis, window_ms: Millis) -> u64 {
    at_ms / (window_ms / SLICES as u64).max(1)
}

impl Window {
    /// Counts one call.
    pub(super) fn count(&mut self, ok: bool, now_ms: Millis, window_ms: Millis) {
        let current = slice_of(now_ms, window_ms);
        if current > self.newest {
            let passed = (current - self.newest).min(SLICES as u64);
            (0..passed).for_each(|back| self.slices[((current - back) % SLICES as u64) as usize] = Slice::default());
            self.newest = current;
        }
        let slice = &mut self.slices[(self.newest % SLICES as u64) as usize];
        slice.calls = slice.calls.saturating_add(1);
        slice.failures = slice.failures.saturating_add(u32::from(!ok));
    }

    /// Calls and failures that are not too old.
    pub(super) fn totals(&self, now_ms: Millis, window_ms: Millis) -> (u32, u32) {
        let expired = slice_of(now_ms, window_ms).saturating_sub(self.newest).min(SLICES as u64);
        let live = SLICES as u64 - expired;
        let add = |(calls, failures), back| {
            // The first slices of all time have nothing before them.
            let Some(number) = self.newest.checked_sub(back) else { return (calls, failures) };
            let slice = self.slices[(number % SLICES as u64) as usize];
            (calls + slice.calls, failures + slice.failures)
        };
        (0..live).fold((0, 0), add)
    }
}
