//! The clock as an operator sees it, and their word that it is right.

use ron_kernel::{Deadline, clock};
use ron_types::Error;
use serde::Serialize;

use super::Mailbox;
use crate::clock::Hold;
use crate::events::Event;
use crate::job::Turn;
use crate::types::Millis;
use crate::wall::ahead_of;

/// The mailbox's clock, as it is shown.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ClockView {
    /// Time of the mailbox's own clock.
    pub now_ms: Millis,
    /// Milliseconds that the wall clock is ahead of it.
    pub wall_ahead_ms: u64,
    /// What is held back because the wall clock jumped.
    pub held: Option<Hold>,
}

impl Mailbox {
    /// The clock, and what it holds back.
    pub fn clock_view(&self) -> Result<ClockView, Error> {
        let opened = self.engine.opened()?;
        let (now_ms, hold) = (opened.clock.now(), opened.hold());
        let wall_ahead_ms = ahead_of(now_ms, clock::unix_millis()).as_millis() as u64;
        Ok(ClockView { now_ms, wall_ahead_ms, held: (hold != Hold::NONE).then_some(hold) })
    }

    /// Takes an operator's word that the clock is right: what it makes too old expires from now on.
    pub async fn confirm_clock(&self, deadline: Deadline) -> Result<ClockView, Error> {
        let opened = self.engine.opened()?;
        if opened.hold() != Hold::NONE {
            let lsn = self.engine.write_hold(Hold::NONE)?;
            self.engine.durable(lsn, deadline).await?;
            tracing::info!("an operator has confirmed the clock: messages expire by it again");
            self.engine.events.publish(Event::ClockConfirmed);
        }
        // Also where nothing is held any more: a shard that did not answer an earlier try hears of it now.
        let asked = (0..self.engine.shards.len()).map(|index| {
            let believe = |turn: &mut Turn<'_>| turn.shard.hold_back(Hold::NONE);
            self.begin_on_shard(index, 0, deadline, believe)
        });
        futures_util::future::try_join_all(asked).await?;
        self.clock_view()
    }
}
