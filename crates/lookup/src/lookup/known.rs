//! The targets one lookup knows, nearest first, and the front: the nearest that must answer.
//!
//! A peer that lies can name any number of its own. So each target remembers from which of the first candidates the
//! chain that named it came, and those named by a single chain fill at most half of the front while there are others.

use super::{Candidate, LookupTarget};
use crate::Millis;
use crate::space::{Distance, Position, distance};

/// Chains that are told apart; more first candidates than this share one.
const LINEAGES: usize = 64;

/// What became of a target so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not asked, or to be asked again, from this time on.
    Fresh {
        not_before_ms: Millis,
    },
    InFlight {
        started_ms: Millis,
        hedge: bool,
        ask: usize,
    },
    Answered,
    Failed,
    /// Not asked: its breaker is open.
    Skipped,
}

#[derive(Clone, Debug)]
pub(super) struct Known<T> {
    target: T,
    distance: Distance,
    standing: Standing,
    hop: u32,
    /// One bit for each first candidate from which a chain leads here.
    lineage: u64,
    is_first: bool,
}

/// All known targets of one lookup, nearest first.
#[derive(Clone, Debug)]
pub(super) struct KnownSet<T> {
    key: Position,
    nearest: usize,
    known_max: usize,
    known: Vec<Known<T>>,
}

impl<T> Known<T> {
    fn is_lost(&self) -> bool {
        matches!(self.standing, Standing::Failed | Standing::Skipped)
    }

    fn is_fresh(&self, now_ms: Millis) -> bool {
        matches!(self.standing, Standing::Fresh { not_before_ms } if now_ms >= not_before_ms)
    }
}

impl<T: LookupTarget> KnownSet<T> {
    pub(super) fn new(key: Position, nearest: usize, known_max: usize) -> Self {
        KnownSet { key, nearest: nearest.max(1), known_max: known_max.max(1), known: Vec::new() }
    }

    pub(super) fn add_first(&mut self, candidates: Vec<Candidate<T>>) {
        for (index, candidate) in candidates.into_iter().enumerate() {
            self.add(candidate, 1, 1 << (index % LINEAGES), true);
        }
    }

    pub(super) fn add_closer(&mut self, candidate: Candidate<T>, hop: u32, lineage: u64) {
        self.add(candidate, hop, lineage, false);
    }

    fn add(&mut self, candidate: Candidate<T>, hop: u32, lineage: u64, is_first: bool) {
        let Candidate { target, position } = candidate;
        let distance = distance(&self.key, &position);
        let place = self.known.binary_search_by(|known| (known.distance, &known.target).cmp(&(distance, &target)));
        match place {
            Ok(index) => self.known[index].lineage |= lineage,
            Err(index) => {
                if self.known.len() >= self.known_max {
                    // What is in flight has an ask to end; everything else is forgotten for something nearer. Kept, the
                    // answers of the far would leave no place for the near, and a record would be called absent.
                    let is_spare = |known: &Known<T>| !matches!(known.standing, Standing::InFlight { .. });
                    let Some(furthest) = self.known.iter().rposition(is_spare) else { return };
                    if furthest < index {
                        return;
                    }
                    self.known.remove(furthest);
                }
                let standing = Standing::Fresh { not_before_ms: 0 };
                self.known.insert(index, Known { target, distance, standing, hop, lineage, is_first });
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// When the ask in flight to `target` began, and its number in the course.
    pub(super) fn in_flight_of(&self, target: &T) -> Option<(Millis, usize)> {
        self.known.iter().find_map(|known| match known.standing {
            Standing::InFlight { started_ms, ask, .. } if known.target == *target => Some((started_ms, ask)),
            _ => None,
        })
    }

    /// Every ask in flight: target, start, number in the course.
    pub(super) fn in_flight(&self) -> Vec<(T, Millis, usize)> {
        let ask = |known: &Known<T>| match known.standing {
            Standing::InFlight { started_ms, ask, .. } => Some((known.target.clone(), started_ms, ask)),
            _ => None,
        };
        self.known.iter().filter_map(ask).collect()
    }

    pub(super) fn in_flight_count(&self, hedges: bool) -> usize {
        let counts = |known: &&Known<T>| matches!(known.standing, Standing::InFlight { hedge, .. } if hedge == hedges);
        self.known.iter().filter(counts).count()
    }

    /// Times at which retries are due.
    pub(super) fn retries_at(&self) -> impl Iterator<Item = Millis> {
        self.known.iter().filter_map(|known| match known.standing {
            Standing::Fresh { not_before_ms } => Some(not_before_ms),
            _ => None,
        })
    }

    pub(super) fn hop_of(&self, target: &T) -> u32 {
        self.known.iter().find(|known| known.target == *target).map_or(0, |known| known.hop)
    }

    /// Changes the standing of a target; gives its hop and lineage.
    pub(super) fn settle(&mut self, target: &T, standing: Standing) -> (u32, u64) {
        let Some(known) = self.known.iter_mut().find(|known| known.target == *target) else { return (0, 0) };
        known.standing = standing;
        (known.hop, known.lineage)
    }

    /// The nearest target of the front that can be asked now.
    pub(super) fn next_in_front(&self, now_ms: Millis) -> Option<T> {
        let front = self.front();
        front.into_iter().map(|index| &self.known[index]).find(|known| known.is_fresh(now_ms)).map(|k| k.target.clone())
    }

    /// The nearest target at all that can be asked now and passes `may`: the one that would follow if a late one of
    /// the front failed.
    pub(super) fn next_for_hedge(&self, now_ms: Millis, may: impl Fn(&T) -> bool) -> Option<T> {
        self.known.iter().find(|known| known.is_fresh(now_ms) && may(&known.target)).map(|known| known.target.clone())
    }

    /// Whether nobody in the front is still to be asked or awaited.
    pub(super) fn is_settled(&self) -> bool {
        self.front().into_iter().all(|index| self.known[index].standing == Standing::Answered)
    }

    /// Whether the answers of the front are enough to call a record absent: a quarter of those that should have
    /// answered may be lost, for a record has as many copies as the front has places.
    pub(super) fn has_converged(&self) -> bool {
        let front = self.front();
        let Some(last) = front.last() else { return false };
        // A front with free places has used up all that is known.
        let reach = if front.len() < self.nearest { self.known.len() } else { *last };
        let lost = self.known[..reach].iter().filter(|known| known.is_lost()).count();
        self.is_settled() && lost * 3 <= front.len()
    }

    /// The nearest targets that are not lost, with those of a single chain held to half of them.
    fn front(&self) -> Vec<usize> {
        let share_max = (self.nearest / 2).max(1);
        let mut of_lineage = [0usize; LINEAGES];
        let mut front = Vec::with_capacity(self.nearest);
        let mut passed_over = Vec::new();
        for (index, known) in self.known.iter().enumerate().filter(|(_, known)| !known.is_lost()) {
            if front.len() == self.nearest {
                break;
            }
            if !known.is_first && known.lineage.is_power_of_two() {
                let count = &mut of_lineage[known.lineage.trailing_zeros() as usize];
                if *count == share_max {
                    passed_over.push(index);
                    continue;
                }
                *count += 1;
            }
            front.push(index);
        }
        let free = self.nearest - front.len();
        front.extend(passed_over.into_iter().take(free));
        front.sort_unstable();
        front
    }
}
