//! A turn for tests that measure time, and the measure of whether the machine was theirs.

use std::fs::File;
use std::path::Path;

use crate::machine::Ticks;

/// Share of the machine that others may use while a test counts as alone: what an idle system does by itself.
const OTHERS_MAX: f64 = 0.1;
/// Measurements on a machine that others use, after which its bound is left open.
const TRIES_MAX: usize = 3;

/// What was missed of a bound that is one of time; nothing if it was kept.
pub type BoundResult = Result<(), String>;

/// A bound of time as the result of a measurement.
pub fn bound(is_kept: bool, missed: impl FnOnce() -> String) -> BoundResult {
    if is_kept { Ok(()) } else { Err(missed()) }
}

/// The turn; dropping it lets the next one begin.
#[derive(Debug)]
pub struct Alone {
    /// Closing the file gives the lock back.
    _lock: File,
}

/// Waits for the turn: only one test that measures loads the machine at once, also across processes. The folder is
/// `env!("CARGO_TARGET_TMPDIR")`, which all tests of a package share.
pub async fn alone(folder: impl AsRef<Path>) -> Alone {
    let path = folder.as_ref().join("alone.lock");
    let locked = tokio::task::spawn_blocking(move || -> std::io::Result<File> {
        let file = File::create(path)?;
        file.lock()?;
        Ok(file)
    });
    let lock = locked.await.expect("locking does not panic").expect("the folder of the lock can be written");
    Alone { _lock: lock }
}

impl Alone {
    /// Measures until the bound is kept. One that is missed fails the test if the machine was its own meanwhile; if
    /// others used the machine, it is measured again, and left open with a loud word once that was so every time.
    ///
    /// What does not depend on time is asserted inside `measure`: that holds on any machine.
    pub async fn measure(&self, what: &str, measure: impl AsyncFnMut() -> BoundResult) {
        let mut before = Ticks::now();
        let others = || {
            let now = Ticks::now();
            std::mem::replace(&mut before, now).share_of_others_until(now)
        };
        if let Outcome::Open = judge(what, measure, others).await {
            println!("NOT ALONE: {what}: only what does not depend on time was asserted");
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Kept,
    /// Nothing is known of the bound.
    Open,
}

/// `others` gives the share of the machine that others used since it was asked last.
async fn judge(what: &str, mut measure: impl AsyncFnMut() -> BoundResult, mut others: impl FnMut() -> f64) -> Outcome {
    for attempt in 1..=TRIES_MAX {
        let measured = measure().await;
        let others = others();
        let Err(missed) = measured else { return Outcome::Kept };
        assert!(others > OTHERS_MAX, "{what}: {missed}; others used {:.0} % of the machine", others * 100.0);
        let used = others * 100.0;
        println!("NOT ALONE: {what}: {missed}; others used {used:.0} % of the machine ({attempt} of {TRIES_MAX})");
    }
    Outcome::Open
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges a bound that is kept or missed like this while others use this much; gives the outcome and the tries.
    async fn judged(runs: &[(bool, f64)]) -> (Outcome, usize) {
        let (mut measured, mut asked) = (0, 0);
        let measure = async || {
            measured += 1;
            bound(runs[measured - 1].0, || "too late".to_owned())
        };
        let others = || {
            asked += 1;
            runs[asked - 1].1
        };
        let outcome = judge("a gate", measure, others).await;
        (outcome, measured)
    }

    #[tokio::test]
    async fn a_bound_that_is_kept_needs_one_measurement_on_any_machine() {
        assert_eq!(judged(&[(true, 0.0)]).await, (Outcome::Kept, 1));
        assert_eq!(judged(&[(true, 0.9)]).await, (Outcome::Kept, 1));
        assert_eq!(judged(&[(false, 0.5), (true, 0.5)]).await, (Outcome::Kept, 2));
    }

    #[tokio::test]
    async fn a_bound_missed_on_a_busy_machine_each_time_is_left_open() {
        assert_eq!(judged(&[(false, 0.5); 3]).await, (Outcome::Open, 3));
    }

    #[tokio::test]
    #[should_panic(expected = "a gate: too late; others used 10 % of the machine")]
    async fn a_bound_missed_alone_fails() {
        judged(&[(false, 0.1)]).await;
    }

    #[tokio::test]
    #[should_panic(expected = "others used 0 % of the machine")]
    async fn a_busy_machine_at_first_excuses_no_miss_after_it() {
        judged(&[(false, 0.5), (false, 0.0)]).await;
    }
}
