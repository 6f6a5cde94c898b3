//! Who comes first among equals.

use std::cmp::Ordering;

use rayon::prelude::*;

use crate::allocate::Question;
use crate::allocate::scores::Actors;
use crate::policy::Ties;
use crate::totals::Roster;

const DOMAIN: &[u8] = b"svc-rewarder|tie|v1";

/// The order of equals in one run.
#[derive(Clone, Copy, Debug)]
pub struct TieOrder<'a> {
    rule: Ties,
    run_key: &'a [u8; 32],
    roster: &'a Roster,
}

/// Hash that orders an actor among equals: the smallest comes first.
pub fn tie_hash(run_key: &[u8; 32], actor: &str) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for part in [DOMAIN, run_key, actor.as_bytes()] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize()
}

impl<'a> TieOrder<'a> {
    /// The order of this run by this rule.
    pub fn new(question: &Question<'a>, rule: Ties) -> TieOrder<'a> {
        TieOrder { rule, run_key: question.run_key, roster: question.totals.roster() }
    }

    /// What to compare first: an eighth of the hash decides almost always, and is computed once for each actor.
    pub fn prefix(&self, place: usize) -> u64 {
        match self.rule {
            Ties::Id => 0,
            Ties::Hash => {
                let [a, b, c, d, e, f, g, h, ..] = *tie_hash(self.run_key, self.roster.get(place)).as_bytes();
                u64::from_be_bytes([a, b, c, d, e, f, g, h])
            }
        }
    }

    /// Which of two actors with equal prefixes comes first. The roster is in byte order, so places are, too.
    pub fn compare_rest(&self, a: usize, b: usize) -> Ordering {
        let hash = |place| *tie_hash(self.run_key, self.roster.get(place)).as_bytes();
        match self.rule {
            Ties::Id => a.cmp(&b),
            Ties::Hash => hash(a).cmp(&hash(b)).then(a.cmp(&b)),
        }
    }

    /// The first so many of these scores, given by index; there must be more of them.
    pub fn first(&self, actors: &Actors, equals: &[u32], count: usize) -> Vec<u32> {
        // By id the order is the one they have; and a selection needs one that stays outside.
        if self.rule == Ties::Id || count >= equals.len() {
            return equals[..count.min(equals.len())].to_vec();
        }
        let key = |index: &u32| (self.prefix(actors.place(*index as usize)), *index);
        let mut keyed: Vec<(u64, u32)> = equals.par_iter().map(key).collect();
        keyed.select_nth_unstable_by(count, |a, b| {
            let places = (actors.place(a.1 as usize), actors.place(b.1 as usize));
            a.0.cmp(&b.0).then_with(|| self.compare_rest(places.0, places.1))
        });
        keyed.truncate(count);
        keyed.into_iter().map(|(_, index)| index).collect()
    }
}
