//! The restart law: how long to wait before the next start, and when restarts are a crash loop.

use serde::Serialize;

use crate::{Millis, State, TaskId};

/// Consequence of a crash loop for the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Escalation {
    /// Keep trying and say so; clears itself when the window empties.
    Degraded,
    /// The same, and the service counts as unready: a node that requires it is not ready meanwhile.
    Unready,
    /// Stop trying until an operator restarts the service: the restart that would be one too many is not made.
    Fatal,
}

/// How a task that ended is started again. With `n` restarts of that task inside the window, the delay is uniform in
/// `[min(lo * 2^n, cap / 2), min(hi * 2^n, cap)]`; the lower bound is capped lower than the upper one, so that
/// restarts of many tasks never fall into step. A restart counts from the moment the task is started again; one that
/// an operator asked for does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct RestartLaw {
    /// The window of the first delay, (lo, hi).
    pub jitter_ms: (u64, u64),
    /// Maximum delay in milliseconds.
    pub cap_ms: u64,
    /// More restarts than this inside the window are a crash loop.
    pub more_than: u32,
    /// Length of the window in milliseconds.
    pub window_ms: u64,
    /// Consequence of a crash loop.
    pub then: Escalation,
}

impl RestartLaw {
    /// The law of the node's own tasks.
    pub const MACRONODE: RestartLaw = RestartLaw {
        jitter_ms: (100, 500),
        cap_ms: 5_000,
        more_than: 5,
        window_ms: 60_000,
        then: Escalation::Degraded,
    };

    /// State of a service that is in a crash loop and goes on trying.
    pub(crate) fn looping_state(&self) -> State {
        match self.then {
            Escalation::Unready => State::Unready,
            Escalation::Degraded | Escalation::Fatal => State::Degraded,
        }
    }

    /// The bounds of the delay after `n` restarts inside the window, both included.
    pub fn delay_window(&self, n: u32) -> (u64, u64) {
        let factor = 1_u64.checked_shl(n).unwrap_or(u64::MAX);
        let (lo, hi) = self.jitter_ms;
        let low = lo.saturating_mul(factor).min(self.cap_ms / 2);
        let high = hi.saturating_mul(factor).min(self.cap_ms);
        (low.min(high), high)
    }

    /// The delay itself: uniform in the window, and a function of its arguments only.
    pub fn delay(&self, n: u32, seed: u64, task: TaskId, now: Millis) -> u64 {
        let (low, high) = self.delay_window(n);
        let place = (u64::from(task.service) << 32) | (u64::from(task.task) << 16) | u64::from(task.instance);
        let drawn = mix(mix(mix(seed) ^ place) ^ now);
        // The high half of a 128-bit product maps the draw onto the window without the bias of a remainder.
        low + ((u128::from(drawn) * (u128::from(high - low) + 1)) >> 64) as u64
    }
}

/// The finalizer of splitmix64: every bit of the input moves every bit of the output.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: TaskId = TaskId { service: 1, task: 2, instance: 3 };

    #[test]
    fn windows_of_the_macronode_law() {
        let expected =
            [(100, 500), (200, 1_000), (400, 2_000), (800, 4_000), (1_600, 5_000), (2_500, 5_000), (2_500, 5_000)];
        for (n, window) in expected.into_iter().enumerate() {
            assert_eq!(RestartLaw::MACRONODE.delay_window(n as u32), window, "n = {n}");
        }
    }

    #[test]
    fn windows_saturate() {
        for n in [63, 64, 200, u32::MAX] {
            assert_eq!(RestartLaw::MACRONODE.delay_window(n), (2_500, 5_000), "n = {n}");
        }
        let odd = RestartLaw { jitter_ms: (9, 3), cap_ms: 100, ..RestartLaw::MACRONODE };
        assert_eq!(odd.delay_window(0), (3, 3), "a window turned around is closed at its upper bound");
        let none = RestartLaw { jitter_ms: (0, 0), cap_ms: 0, ..RestartLaw::MACRONODE };
        assert_eq!(none.delay_window(7), (0, 0));
    }

    #[test]
    fn delays_fill_their_window_and_nothing_else() {
        for n in 0..8 {
            let (low, high) = RestartLaw::MACRONODE.delay_window(n);
            let drawn: Vec<u64> = (0..4_000).map(|now| RestartLaw::MACRONODE.delay(n, 7, TASK, now)).collect();
            let width = high - low;
            assert!(drawn.iter().all(|d| (low..=high).contains(d)), "n = {n}");
            assert!(drawn.iter().any(|d| *d < low + width / 20), "n = {n}: the low end is drawn");
            assert!(drawn.iter().any(|d| *d > high - width / 20), "n = {n}: the high end is drawn");
            let mean = drawn.iter().sum::<u64>() / drawn.len() as u64;
            let middle = low + width / 2;
            assert!(mean.abs_diff(middle) < width / 20, "n = {n}: mean {mean}, middle {middle}");
        }
    }

    #[test]
    fn delay_is_a_function_of_seed_task_and_time() {
        let law = RestartLaw::MACRONODE;
        let base = law.delay(6, 1, TASK, 1_000);
        assert_eq!(base, law.delay(6, 1, TASK, 1_000));
        let other_task = TaskId { instance: 4, ..TASK };
        let others = [law.delay(6, 2, TASK, 1_000), law.delay(6, 1, other_task, 1_000), law.delay(6, 1, TASK, 1_001)];
        assert!(others.iter().all(|other| *other != base), "{base} against {others:?}");
    }
}
