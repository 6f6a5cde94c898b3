//! The peers of an engine: who is connected, and what was counted against whom.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::budget::{Bucket, Rate};
use crate::config::CoreConfig;
use crate::names::{Micros, Peer};

/// One session to a peer: its place, and how often that place was given out before. What names a session never means
/// the next one in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    slot: u16,
    generation: u16,
}

impl Session {
    /// This node itself, or nobody.
    pub(crate) const NONE: Session = Session { slot: u16::MAX, generation: 0 };

    pub(crate) fn slot(self) -> usize {
        usize::from(self.slot)
    }
}

/// A strike fades after this time.
const STRIKE_FADES: Micros = 2_000_000;
/// A peer that does not answer gets one strike in this time, however many answers it owes.
const SILENCE_EVERY: Micros = 1_000_000;

#[derive(Debug)]
pub(crate) struct PeerState {
    pub(crate) id: Peer,
    pub(crate) session: Session,
    strikes: u32,
    struck_at: Micros,
    silent_at: Option<Micros>,
    openings: Bucket,
}

/// The peers by place and by name.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    slots: Vec<Option<PeerState>>,
    generations: Vec<u16>,
    by_id: HashMap<Peer, u16>,
    /// What peers that left had left of their openings, those that left last at the end: coming back gives none.
    left: VecDeque<(Peer, Bucket)>,
}

/// Bytes of memory of one peer, tables included; there may be as many that have left.
pub(crate) const PEER_BYTES: usize =
    std::mem::size_of::<Option<PeerState>>() + 2 + 3 * 40 + 2 * std::mem::size_of::<(Peer, Bucket)>();

impl Peers {
    /// Takes a peer in; nothing if it is here or there is no room.
    pub(crate) fn join(&mut self, now: Micros, id: Peer, config: &CoreConfig) -> Option<Session> {
        if self.by_id.contains_key(&id) || self.by_id.len() >= config.peers_max {
            return None;
        }
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
            self.generations.push(0);
        }
        self.generations[slot] = self.generations[slot].wrapping_add(1);
        let session = Session { slot: slot as u16, generation: self.generations[slot] };
        let before = self.left.iter().position(|(left, _)| *left == id).and_then(|at| self.left.remove(at));
        let openings = before.map_or_else(|| Bucket::full(config.openings, now), |(_, openings)| openings);
        let (strikes, struck_at, silent_at) = (0, now, None);
        self.slots[slot] = Some(PeerState { id, session, strikes, struck_at, silent_at, openings });
        self.by_id.insert(id, slot as u16);
        Some(session)
    }

    pub(crate) fn leave(&mut self, id: &Peer) -> Option<Session> {
        let slot = self.by_id.remove(id)?;
        let peer = self.slots[usize::from(slot)].take()?;
        // As many as there were places at once; who left first has got most of its openings back meanwhile.
        if self.left.len() >= self.slots.len() {
            self.left.pop_front();
        }
        self.left.push_back((peer.id, peer.openings));
        Some(peer.session)
    }

    pub(crate) fn session(&self, id: &Peer) -> Option<Session> {
        let slot = *self.by_id.get(id)?;
        self.slots[usize::from(slot)].as_ref().map(|peer| peer.session)
    }

    /// The peer behind a session that is still up.
    pub(crate) fn get(&self, session: Session) -> Option<&PeerState> {
        self.slots.get(session.slot())?.as_ref().filter(|peer| peer.session == session)
    }

    pub(crate) fn get_mut(&mut self, session: Session) -> Option<&mut PeerState> {
        self.slots.get_mut(session.slot())?.as_mut().filter(|peer| peer.session == session)
    }

    pub(crate) fn id(&self, session: Session) -> Option<Peer> {
        self.get(session).map(|peer| peer.id)
    }

    /// Takes one of a peer's openings; the peer if it has one left.
    pub(crate) fn pay_opening(&mut self, session: Session, rate: Rate, now: Micros) -> Option<Peer> {
        let peer = self.get_mut(session)?;
        peer.openings.take(rate, now, 1).is_ok().then_some(peer.id)
    }

    /// Sessions that are up, by place.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = Session> + '_ {
        self.slots.iter().flatten().map(|peer| peer.session)
    }

    /// Number of places, taken or not.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn strikes(&self, session: Session, now: Micros) -> u32 {
        self.get(session).map_or(0, |peer| peer.strikes_at(now))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.len() * PEER_BYTES
    }
}

impl PeerState {
    fn strikes_at(&self, now: Micros) -> u32 {
        let faded = now.saturating_sub(self.struck_at) / STRIKE_FADES;
        self.strikes.saturating_sub(faded.min(u64::from(u32::MAX)) as u32)
    }

    /// Counts against the peer; the answer is what is counted now.
    pub(crate) fn strike(&mut self, now: Micros, strikes: u32) -> u32 {
        self.strikes = self.strikes_at(now).saturating_add(strikes);
        self.struck_at = now;
        self.strikes
    }

    /// An answer did not come. One that owes many answers, as over a slow link, is struck once a second.
    pub(crate) fn was_silent(&mut self, now: Micros) -> Option<u32> {
        if self.silent_at.is_some_and(|at| now.saturating_sub(at) < SILENCE_EVERY) {
            return None;
        }
        self.silent_at = Some(now);
        Some(self.strike(now, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_out_again_under_another_session() {
        let config = CoreConfig { peers_max: 2, ..CoreConfig::default() };
        let mut peers = Peers::default();
        let first = peers.join(0, Peer([1; 32]), &config).unwrap();
        assert_eq!(peers.join(0, Peer([1; 32]), &config), None, "already here");
        peers.join(0, Peer([2; 32]), &config).unwrap();
        assert_eq!(peers.join(0, Peer([3; 32]), &config), None, "no room");
        assert_eq!(peers.leave(&Peer([1; 32])), Some(first));
        let third = peers.join(0, Peer([3; 32]), &config).unwrap();
        assert_eq!(third.slot(), first.slot());
        assert_eq!((peers.id(first), peers.id(third)), (None, Some(Peer([3; 32]))));
    }

    #[test]
    fn coming_back_gives_no_openings() {
        let config = CoreConfig { openings: Rate { per_second: 1, burst: 2 }, ..CoreConfig::default() };
        let mut peers = Peers::default();
        let open = |peers: &mut Peers, now, session| peers.pay_opening(session, config.openings, now);
        let session = peers.join(0, Peer([1; 32]), &config).unwrap();
        assert!(open(&mut peers, 0, session).is_some() && open(&mut peers, 0, session).is_some());
        peers.leave(&Peer([1; 32]));
        let session = peers.join(0, Peer([1; 32]), &config).unwrap();
        assert!(open(&mut peers, 0, session).is_none());
        assert!(open(&mut peers, 1_000_000, session).is_some(), "time does");
        for number in 2..10 {
            peers.join(0, Peer([number; 32]), &config).unwrap();
            peers.leave(&Peer([number; 32]));
        }
        assert!(peers.left.len() <= 2, "bounded by the places");
    }

    #[test]
    fn strikes_fade_and_silence_counts_once_a_second() {
        let config = CoreConfig::default();
        let mut peers = Peers::default();
        let session = peers.join(0, Peer([1; 32]), &config).unwrap();
        let peer = peers.get_mut(session).unwrap();
        assert_eq!(peer.strike(0, 8), 8);
        assert_eq!(peer.was_silent(0), Some(9));
        assert_eq!(peer.was_silent(999_999), None);
        assert_eq!(peer.was_silent(1_000_000), Some(10));
        assert_eq!(peers.strikes(session, 1_000_000 + 4 * STRIKE_FADES), 6);
        assert_eq!(peers.strikes(session, u64::MAX), 0);
    }
}
