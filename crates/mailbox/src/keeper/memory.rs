//! Says when the memory for messages is used up, so that a node that refuses sends looks like one.

use ron_policy::{PressureLimits, PressureMeter};

use super::LOOK_EVERY;
use crate::engine::Engine;
use crate::specs::SERVICE;

/// Sends are refused from the first byte over the limit on; a little room must be there before it is said that they are
/// not, or a crowd at the limit would have it said many times a second.
const USED_UP: PressureLimits = PressureLimits { on_fill: 1.0, off_fill: 0.95, hold_ms: 0 };

/// Watches the memory for messages; never ends by itself.
pub(super) async fn watch_memory(engine: &Engine) {
    let mut meter = PressureMeter::new(USED_UP);
    // A former life of the keeper may have said something else.
    let mut told = None;
    loop {
        meter.sample(engine.kernel.now_ms(), engine.memory_share());
        let is_on = meter.is_on();
        if told != Some(is_on) && engine.kernel.pressure(SERVICE, "memory", is_on).await.is_ok() {
            if is_on {
                tracing::warn!("the memory for messages is used up: sends are refused");
            }
            told = Some(is_on);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
