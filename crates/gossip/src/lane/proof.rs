//! What may go to others: messages that are proven to be their origin's, or of which nobody asks it.

use crate::lane::Lane;
use crate::origin::OriginState;
use crate::seal::SEAL_BATCH_MAX;
use crate::shell::Shell;
use crate::turn::{Proof, Turn};
use crate::wire::Key;

impl Lane {
    /// Whether a message of the ring may go to others. Where that is not known yet it is found out now, and kept.
    pub(super) fn may_leave<S: Shell>(&mut self, turn: &mut Turn<'_, S>, arrival: u64) -> bool {
        match self.ring.get(arrival).map(|entry| entry.proof) {
            Some(Proof::NotAsked | Proof::Checked) => true,
            Some(Proof::Heard) => self.prove(turn, arrival),
            Some(Proof::Unproven) | None => false,
        }
    }

    fn prove<S: Shell>(&mut self, turn: &mut Turn<'_, S>, arrival: u64) -> bool {
        let Some(entry) = self.ring.get(arrival) else { return false };
        let Some(origin) = self.origins.get(entry.origin) else { return false };
        let (at, key) = (entry.origin, Key { origin: origin.id, epoch: entry.epoch, seq: entry.seq });
        if self.own == Some(at) {
            self.seal_own(turn, &key);
            return true;
        }
        let is_good = entry.stored.seal().is_some_and(|seal| {
            let leaf = entry.stored.leaf(&self.name, &key);
            turn.verify(&key.origin, &seal, &leaf)
        });
        if let Some(entry) = self.ring.get_mut(arrival) {
            entry.proof = if is_good { Proof::Checked } else { Proof::Unproven };
        }
        if !is_good && let Some(origin) = self.origins.get_mut(at) {
            origin.has_unproven = true;
        }
        is_good
    }

    /// Seals own messages that were published when nobody was there, from this one on, as many as share a signature.
    fn seal_own<S: Shell>(&mut self, turn: &mut Turn<'_, S>, first: &Key) {
        let held = self.origins.look_up(&first.origin).and_then(|origin| origin.held_of(first.epoch));
        let Some(held) = held else { return };
        let behind = held.range(held.partition_point(|(seq, _)| *seq < first.seq)..).take(SEAL_BATCH_MAX);
        let is_bare = |arrival: &u64| self.ring.get(*arrival).is_some_and(|entry| entry.proof == Proof::Heard);
        let bare: Vec<(Key, u64)> = behind
            .take_while(|(_, arrival)| is_bare(arrival))
            .map(|(seq, arrival)| (Key { seq: *seq, ..*first }, *arrival))
            .collect();
        let leaf = |(key, arrival): &(Key, u64)| Some(self.ring.get(*arrival)?.stored.leaf(&self.name, key));
        let seals = turn.seal(bare.iter().filter_map(leaf));
        let mut seals = seals.into_iter().flatten();
        for (key, arrival) in bare {
            let sealed = seals.next().and_then(|seal| {
                let entry = self.ring.get(arrival)?;
                Some(entry.stored.sealed(&self.name, &key, seal))
            });
            if let Some(stored) = sealed {
                turn.shared.totals.ring_bytes += self.ring.replace(arrival, stored);
            }
            if let Some(entry) = self.ring.get_mut(arrival) {
                entry.proof = Proof::NotAsked;
            }
        }
    }

    /// First and last number of what the ring holds of an origin's life and others may have.
    pub(super) fn range_for_others(&self, origin: &OriginState) -> Option<(u64, u64)> {
        if !origin.has_unproven {
            return origin.range();
        }
        let may_leave =
            |(_, arrival): &&(u64, u64)| self.ring.get(*arrival).is_some_and(|entry| entry.proof != Proof::Unproven);
        let (first, _) = origin.held.iter().find(may_leave)?;
        let (last, _) = origin.held.iter().rev().find(may_leave)?;
        Some((*first, *last))
    }
}
