//! The wall clock beside the steady one: writes down what time it is, and says when the two do not agree.

use std::time::Duration;

use ron_kernel::clock;

use crate::clock::{Hold, JUMP_MAX};
use crate::engine::{Engine, Opened};
use crate::events::Event;
use crate::types::Millis;

/// Time between two looks at the wall clock.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Looks between two records of the time. They let a node that is idle for days be restarted without the suspicion that
/// its clock has jumped: less than half of the jump that is believed unasked, so that one record may fail.
const LOOKS_PER_MARK: u64 = 40;

const _: () = assert!(LOOKS_PER_MARK * LOOK_EVERY.as_secs() < JUMP_MAX.as_secs() / 2);

/// Watches the wall clock until the node drains; never ends by itself.
pub(crate) async fn watch_clock(engine: &Engine, opened: &Opened) {
    tokio::select! {
        () = engine.draining() => {}
        () = watch(engine, opened) => {}
    }
    mark(engine);
    std::future::pending().await
}

async fn watch(engine: &Engine, opened: &Opened) {
    tell_of_hold(engine, opened);
    let (mut was_ahead, mut was_held) = (false, opened.hold() != Hold::NONE);
    for look in 1.. {
        tokio::time::sleep(LOOK_EVERY).await;
        let ahead = ahead_of(opened.clock.now(), clock::unix_millis());
        let is_ahead = ahead > JUMP_MAX;
        if is_ahead && !was_ahead {
            tracing::warn!(
                ahead_seconds = ahead.as_secs(),
                "the wall clock is ahead of the mailbox's, which goes on as before: nothing expires because of it"
            );
        }
        let is_held = opened.hold() != Hold::NONE;
        if was_held && !is_held {
            tracing::info!("the jump of the wall clock is believed: messages expire by it again");
        }
        (was_ahead, was_held) = (is_ahead, is_held);
        if look % LOOKS_PER_MARK == 0 {
            mark(engine);
        }
    }
}

/// Says that something is held back; the start has written it down.
fn tell_of_hold(engine: &Engine, opened: &Opened) {
    let hold = opened.hold();
    if hold == Hold::NONE {
        return;
    }
    tracing::error!(
        jump_seconds = hold.jump_ms / 1000,
        before_ms = hold.before_ms,
        "the wall clock is hours ahead of the newest record: nothing expires because of it for a day; if the clock is \
         right, say so with `macronode mailbox clock confirm`"
    );
    engine.events.publish(Event::ClockHeld { jump_ms: hold.jump_ms, until_ms: hold.until_ms });
}

/// Writes down what time it is. A record that is missing costs nothing but a needless hold after the next start.
fn mark(engine: &Engine) {
    if let Err(error) = engine.write_mark() {
        tracing::debug!(%error, "the time was not written down");
    }
}

/// How far the wall clock is ahead of the steady one.
pub(crate) fn ahead_of(now_ms: Millis, wall_ms: Millis) -> Duration {
    Duration::from_millis(wall_ms.saturating_sub(now_ms))
}
