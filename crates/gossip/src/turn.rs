//! What the lanes of an engine share, and one turn of it: a moment, and the world.

use crate::config::CoreConfig;
use crate::core::Counts;
use crate::names::{Micros, Origin, Peer};
use crate::peers::{Peers, Session};
use crate::recall::Recall;
use crate::rng::Rng;
use crate::shell::{DisconnectReason, Misbehaviour};

/// Clocks of nodes may differ by this much.
const EPOCH_AHEAD_MAX_MS: u64 = 24 * 3600 * 1000;
/// Strikes for what no honest peer sends.
const STRIKES_INVALID: u32 = 16;

/// Sums over all lanes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) ring_bytes: usize,
    pub(crate) waiting_bytes: usize,
    pub(crate) partial_bytes: usize,
    pub(crate) origins: usize,
    pub(crate) serves: usize,
}

/// What the lanes share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: CoreConfig,
    pub(crate) me: Origin,
    pub(crate) epoch: u64,
    /// Time of the first event: the wall clock stood at `epoch` then.
    pub(crate) started_at: Option<Micros>,
    pub(crate) peers: Peers,
    pub(crate) totals: Totals,
    pub(crate) counts: Counts,
    pub(crate) rng: Rng,
    pub(crate) recall: Recall,
    /// Arrivals that forgotten lanes had got to: a lane that comes back goes on above them.
    pub(crate) arrivals: u64,
    /// Peers to be disconnected when the turn is over.
    pub(crate) doomed: Vec<(Peer, DisconnectReason)>,
}

impl Shared {
    /// The wall clock in milliseconds, carried on from the start by the monotonic clock.
    pub(crate) fn wall_ms(&self, now: Micros) -> u64 {
        self.epoch.saturating_add(now.saturating_sub(self.started_at.unwrap_or(now)) / 1000)
    }

    /// Refuses an epoch that no clock shows yet: one such would make every true message of its origin stale.
    pub(crate) fn check_epoch(&self, now: Micros, epoch: u64) -> Result<(), Misbehaviour> {
        let latest = self.wall_ms(now).saturating_add(EPOCH_AHEAD_MAX_MS);
        if epoch == 0 || epoch > latest { Err(Misbehaviour::EpochAhead) } else { Ok(()) }
    }

    /// Counts an offence against a peer.
    pub(crate) fn offence(&mut self, now: Micros, session: Session, offence: Misbehaviour) -> Misbehaviour {
        let strikes = match offence {
            Misbehaviour::EpochAhead | Misbehaviour::WrongChunk => STRIKES_INVALID,
            // An honest peer passes on what others made up, so a refusal is all there is.
            Misbehaviour::UnknownPeer | Misbehaviour::TooManyOpenings => 0,
        };
        self.counts.strikes += u64::from(strikes);
        let now_struck = self.peers.get_mut(session).map(|peer| peer.strike(now, strikes));
        self.judge(session, now_struck);
        offence
    }

    /// An answer did not come, or was not true.
    pub(crate) fn was_silent(&mut self, now: Micros, session: Session) {
        let struck = self.peers.get_mut(session).and_then(|peer| peer.was_silent(now));
        self.counts.strikes += u64::from(struck.is_some());
        self.judge(session, struck);
    }

    fn judge(&mut self, session: Session, strikes: Option<u32>) {
        if strikes.is_some_and(|strikes| strikes >= self.config.strikes_disconnect) {
            self.doom(session, DisconnectReason::Misbehaved);
        }
    }

    /// Ends a session when the turn is over.
    pub(crate) fn doom(&mut self, session: Session, why: DisconnectReason) {
        if let Some(peer) = self.peers.id(session)
            && !self.doomed.iter().any(|(doomed, _)| *doomed == peer)
        {
            self.doomed.push((peer, why));
        }
    }

    /// Whether a peer is trusted to be pushed to and asked first.
    pub(crate) fn is_in_good_standing(&self, now: Micros, session: Session) -> bool {
        self.peers.strikes(session, now) < self.config.strikes_lazy
    }
}

/// One event at one moment.
pub(crate) struct Turn<'a, S> {
    pub(crate) now: Micros,
    pub(crate) shared: &'a mut Shared,
    pub(crate) shell: &'a mut S,
}
