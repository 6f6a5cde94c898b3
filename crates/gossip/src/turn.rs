//! What the lanes of an engine share, and one turn of it: a moment, and the world.

use hashbrown::HashMap;

use crate::config::{CoreConfig, Signatures};
use crate::core::Counts;
use crate::lane::PARTIAL_OVERHEAD_BYTES;
use crate::names::{Micros, Origin, Peer};
use crate::peers::{Peers, Session};
use crate::recall::Recall;
use crate::rng::Rng;
use crate::seal::{Batch, Leaf, Seal, Verified};
use crate::shell::{DisconnectReason, Misbehaviour, Shell};

const HOUR_MS: u64 = 3600 * 1000;
/// A life that began later than this after the own clock is refused.
const EPOCH_TAKEN_AHEAD_MS: u64 = 24 * HOUR_MS;
/// A life that began later than this is neither passed on nor announced: what is at the edge here is beyond it for a
/// neighbour whose clock is behind, and would only be refused there.
const EPOCH_RELAYED_AHEAD_MS: u64 = 23 * HOUR_MS;
/// No own life is begun later than this, whatever peers say they know: others have to pass it on.
const EPOCH_OWN_AHEAD_MS: u64 = 22 * HOUR_MS;
const _: () = assert!(EPOCH_OWN_AHEAD_MS < EPOCH_RELAYED_AHEAD_MS && EPOCH_RELAYED_AHEAD_MS < EPOCH_TAKEN_AHEAD_MS);
/// Strikes for what no honest peer sends.
const STRIKES_INVALID: u32 = 16;

/// One peer may have this part of the room for messages that are not whole: what it never completes keeps nobody out.
const PARTIAL_SHARES: usize = 4;

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
    /// What the wall clock showed in milliseconds, and when; first when the core was made, however late its first event
    /// is.
    pub(crate) wall_clock: (u64, Micros),
    /// The latest life that a lane of this node began with; the next one is later, also where the clock went back.
    pub(crate) own_latest: u64,
    pub(crate) peers: Peers,
    pub(crate) totals: Totals,
    /// Announced bytes of the messages in chunks that are not whole, by who sent the head: by peer and not by session,
    /// so that a new session is no new share.
    pub(crate) partial_shares: HashMap<Peer, usize>,
    pub(crate) counts: Counts,
    pub(crate) rng: Rng,
    pub(crate) recall: Recall,
    pub(crate) verified: Verified,
    /// Arrivals that forgotten lanes had got to: a lane that comes back goes on above them.
    pub(crate) arrivals: u64,
    /// Peers to be disconnected when the turn is over.
    pub(crate) doomed: Vec<(Peer, DisconnectReason)>,
}

impl Shared {
    /// The wall clock in milliseconds, carried on by the monotonic clock from when it was last read.
    pub(crate) fn wall_ms(&self, now: Micros) -> u64 {
        let (shown, at) = self.wall_clock;
        shown.saturating_add(now.saturating_sub(at) / 1000)
    }

    /// The life that a lane of this node begins with now: later than any before it.
    pub(crate) fn next_own_epoch(&mut self, now: Micros) -> u64 {
        self.own_latest = self.wall_ms(now).max(self.own_latest.saturating_add(1));
        self.own_latest
    }

    /// Refuses an epoch that no clock shows yet: one such would make every true message of its origin stale. Who sends
    /// it may only have relayed it, with a clock that is ahead of this one. It is held against the peer where that
    /// cannot be: about the peer itself, about this node, whose past no honest clock saw that far ahead, or zero, which
    /// nobody takes.
    pub(crate) fn check_epoch(
        &mut self,
        now: Micros,
        session: Session,
        origin: &Origin,
        epoch: u64,
    ) -> Result<(), Misbehaviour> {
        if epoch > 0 && self.is_ahead_by_at_most(now, epoch, EPOCH_TAKEN_AHEAD_MS) {
            return Ok(());
        }
        let is_itself = self.peers.id(session).is_some_and(|peer| peer.0 == origin.0);
        if is_itself || *origin == self.me || epoch == 0 {
            self.offence(now, session, Misbehaviour::EpochAhead);
        }
        Err(Misbehaviour::EpochAhead)
    }

    /// Whether messages of a life are passed on.
    pub(crate) fn is_relayed(&self, now: Micros, epoch: u64) -> bool {
        self.is_ahead_by_at_most(now, epoch, EPOCH_RELAYED_AHEAD_MS)
    }

    /// Whether this node may begin a life after this one, of which peers say that it was its own.
    pub(crate) fn may_be_own_past(&self, now: Micros, epoch: u64) -> bool {
        self.is_ahead_by_at_most(now, epoch, EPOCH_OWN_AHEAD_MS)
    }

    fn is_ahead_by_at_most(&self, now: Micros, epoch: u64, bound_ms: u64) -> bool {
        epoch <= self.wall_ms(now).saturating_add(bound_ms)
    }

    /// Whether a peer may begin a message of this size in chunks. One at a time it always may, if there is room.
    pub(crate) fn has_partial_room(&self, peer: &Peer, size: usize) -> bool {
        let share = self.partial_shares.get(peer).copied().unwrap_or(0);
        let fits_share = share == 0 || share + size <= self.config.partial_bytes_max / PARTIAL_SHARES;
        fits_share && self.totals.partial_bytes + size + PARTIAL_OVERHEAD_BYTES <= self.config.partial_bytes_max
    }

    /// Takes room for a message in chunks; false if there is none for this peer.
    pub(crate) fn reserve_partial(&mut self, peer: Peer, size: usize) -> bool {
        if !self.has_partial_room(&peer, size) {
            return false;
        }
        self.totals.partial_bytes += size + PARTIAL_OVERHEAD_BYTES;
        *self.partial_shares.entry(peer).or_default() += size;
        true
    }

    /// Gives the room back.
    pub(crate) fn release_partial(&mut self, peer: &Peer, size: usize) {
        self.totals.partial_bytes -= size + PARTIAL_OVERHEAD_BYTES;
        if let Some(share) = self.partial_shares.get_mut(peer) {
            *share -= size;
            if *share == 0 {
                self.partial_shares.remove(peer);
            }
        }
    }

    /// Counts an offence against a peer.
    pub(crate) fn offence(&mut self, now: Micros, session: Session, offence: Misbehaviour) -> Misbehaviour {
        let strikes = match offence {
            Misbehaviour::EpochAhead | Misbehaviour::WrongChunk | Misbehaviour::Forged => STRIKES_INVALID,
            // An honest peer passes on what others made up, so a refusal is all there is.
            Misbehaviour::UnknownPeer | Misbehaviour::TooManyOpenings | Misbehaviour::Unsigned => 0,
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

impl<S: Shell> Turn<'_, S> {
    /// Refuses a message that is not proven to be its origin's, where this node looks at signatures. `leaf` is only
    /// computed where there is one to check.
    pub(crate) fn check_seal(
        &mut self,
        session: Session,
        origin: &Origin,
        seal: Option<&Seal>,
        leaf: impl FnOnce() -> Leaf,
    ) -> Result<(), Misbehaviour> {
        let Some(seal) = seal else {
            return match self.shared.config.signatures {
                Signatures::Require => Err(self.shared.offence(self.now, session, Misbehaviour::Unsigned)),
                Signatures::Off | Signatures::Sign => Ok(()),
            };
        };
        let text = seal.text(&leaf());
        let shell = &mut *self.shell;
        if self.shared.verified.holds(origin, &text, seal, || shell.verify(origin, &text, seal.signature())) {
            return Ok(());
        }
        Err(self.shared.offence(self.now, session, Misbehaviour::Forged))
    }

    /// Seals for messages that are published now; none where this node does not sign.
    pub(crate) fn seal(&mut self, leaves: impl Iterator<Item = Leaf>) -> Option<Vec<Seal>> {
        if self.shared.config.signatures == Signatures::Off {
            return None;
        }
        let batch = Batch::new(leaves.collect());
        let signature = self.shell.sign(&batch.text())?;
        Some(batch.seals(&signature).collect())
    }
}
