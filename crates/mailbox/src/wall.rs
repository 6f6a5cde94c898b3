//! The wall clock beside the steady one: writes down what time it is, says when the two do not agree, and sets the
//! steady one where the wall clock was ahead and has been set right.

use std::time::Duration;

use ron_kernel::clock;
use ron_types::Error;

use crate::clock::{Hold, JUMP_MAX, Steady};
use crate::engine::{self, Engine, Opened, lock};
use crate::events::Event;
use crate::job::Wake;
use crate::record::Record;
use crate::shard::Shard;
use crate::types::Millis;

/// Time between two looks at the wall clock.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// Looks in a row that must show the same before the clock is set: one that is being set shows many times.
const LOOKS_AGREE: u32 = 3;
/// Difference between two looks that show the same.
const AGREE_WITHIN: Duration = Duration::from_secs(60);
/// Looks between two records of the time. They let a node that is idle for days be restarted without the suspicion that
/// its clock has jumped: less than half of the jump that is believed unasked, so that one record may fail.
const LOOKS_PER_MARK: u64 = 80;

const _: () = assert!(LOOKS_PER_MARK * LOOK_EVERY.as_secs() < JUMP_MAX.as_secs() / 2);
const _: () = assert!(LOOKS_AGREE as u64 * LOOK_EVERY.as_secs() < 60, "messages are dated right within a minute");

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
    let mut looks = Looks::default();
    for look in 1.. {
        tokio::time::sleep(LOOK_EVERY).await;
        let (now_ms, wall_ms) = (opened.clock.now(), clock::unix_millis());
        if looks.take(now_ms, wall_ms) && is_believed(now_ms, wall_ms, opened.clock.unset_now()) {
            set(engine, now_ms, wall_ms);
        }
        let ahead = ahead_of(opened.clock.now(), wall_ms);
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

/// How far the wall clock was from the steady one in the last looks.
#[derive(Default)]
struct Looks {
    /// Milliseconds it was ahead at the last look.
    ahead_ms: i64,
    /// Looks in a row that showed the same.
    agreeing: u32,
}

impl Looks {
    /// Takes in a look; whether enough in a row have shown the same.
    fn take(&mut self, now_ms: Millis, wall_ms: Millis) -> bool {
        let ahead_ms = wall_ms.cast_signed().saturating_sub(now_ms.cast_signed());
        let before_ms = std::mem::replace(&mut self.ahead_ms, ahead_ms);
        let agrees = u128::from(before_ms.abs_diff(ahead_ms)) <= AGREE_WITHIN.as_millis();
        self.agreeing = if agrees { self.agreeing.saturating_add(1) } else { 1 };
        self.agreeing >= LOOKS_AGREE
    }
}

/// Whether the steady clock is to be set by the wall clock: that was set back by hours, so it was ahead; or it is
/// forward again to where this run has been already. Any other jump ahead is as likely wrong as right, and one that has
/// lost its time says nothing.
fn is_believed(now_ms: Millis, wall_ms: Millis, unset_now_ms: Millis) -> bool {
    let is_forward_again = ahead_of(now_ms, wall_ms) > JUMP_MAX && ahead_of(unset_now_ms, wall_ms) <= JUMP_MAX;
    !Steady::is_lost(wall_ms) && (ahead_of(wall_ms, now_ms) > JUMP_MAX || is_forward_again)
}

fn set(engine: &Engine, now_ms: Millis, wall_ms: Millis) {
    match engine.set_clock(wall_ms) {
        Ok(()) => tracing::warn!(
            from_ms = now_ms,
            to_ms = wall_ms,
            "the wall clock was set by hours: the mailbox dates by it from now on; leases and delays last as long as before"
        ),
        Err(error) => tracing::debug!(%error, "the clock was not set"),
    }
}

impl Engine {
    /// Sets the steady clock to what the wall clock shows.
    ///
    /// The log is held meanwhile: every turn holds it too, and makes its shard's times agree with the clock before it
    /// does anything else. What is dated by the old time is in the log before what is dated by the new one.
    pub fn set_clock(&self, wall_ms: Millis) -> Result<(), Error> {
        let opened = self.opened()?;
        {
            let mut appender = opened.log.appender();
            let (before_ms, held) = (opened.clock.now(), opened.hold());
            opened.clock.set(wall_ms);
            let now_ms = opened.clock.now();
            let hold = match before_ms.checked_sub(now_ms) {
                Some(back_ms) => held.set_back(now_ms, back_ms),
                None => Hold::at_start(now_ms, before_ms, 0, held),
            };
            *lock(&opened.hold) = hold;
            let record = Record::Held { now_ms, hold };
            if hold != held
                && let Err(error) = engine::append(&mut appender, record.class(), &record)
            {
                // It holds in this run, and is written again with the next record of the time.
                tracing::warn!(%error, "what the clock holds back could not be written down");
            }
        }
        // Counted by times that are no more; as after a restart they count for nobody.
        self.key_shares.forget_all();
        mark(self);
        for handle in &self.shards {
            // A full queue already holds a wake-up.
            let _ = handle.wakes.offer(Wake);
        }
        Ok(())
    }
}

impl Opened {
    /// Makes a shard's times agree with the clock, if that was set since they last did; what it shows now.
    pub fn bring_up_to_date(&self, shard: &mut Shard) -> Millis {
        let clock = self.clock.read();
        if shard.follow_clock(clock) {
            shard.hold_back(self.hold());
        }
        clock.now_ms
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

#[cfg(test)]
mod tests;
