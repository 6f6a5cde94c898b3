//! How far a run is, on a terminal; silence anywhere else.

use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use svc_rewarder::{Stage, Watch};

/// A bar for each stage of a run, one after the other.
pub struct Bars {
    shown: Mutex<Option<(Stage, ProgressBar)>>,
}

impl Bars {
    /// Bars on standard error if a person looks at it; without effect else.
    pub fn new() -> Bars {
        Bars { shown: Mutex::new(None) }
    }
}

impl Watch for Bars {
    fn at(&self, stage: Stage, done: u64, of: u64) -> bool {
        if !std::io::stderr().is_terminal() {
            return true;
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.as_ref().is_none_or(|(current, _)| *current != stage) {
            if let Some((_, bar)) = shown.take() {
                bar.finish_and_clear();
            }
            *shown = Some((stage, bar(stage)));
        }
        if let Some((_, bar)) = &*shown {
            bar.set_length(of);
            bar.set_position(done);
        }
        true
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        if let Some((_, bar)) = self.shown.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
        }
    }
}

fn bar(stage: Stage) -> ProgressBar {
    let template = match stage {
        Stage::Reading => "reading   {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        Stage::Dividing => "dividing  {wide_bar} {pos}/{len} assets",
        Stage::Rooting => "rooting   {wide_bar} {pos}/{len} assets",
        Stage::Writing => "writing   {wide_bar} {pos}/{len} files",
    };
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
