//! The targets one lookup knows, nearest first, and the front: the nearest that must answer.
//!
//! A peer that lies can name any number of its own, or of nobody. So each target remembers who named it. While there
//! are others, those that a single peer vouches for fill at most half of the front and hold at most one place in
//! flight, and those whose vouchers named silent ones before are asked after the others. Those of one network of
//! addresses fill at most a quarter of the front.

use super::{Candidate, LookupTarget};
use crate::Millis;
use crate::space::{Distance, Position, distance};
use crate::table::IpGroup;

/// Vouchers that are told apart; those that answer later share the last place.
const VOUCHERS_MAX: usize = 128;
/// Targets of a single voucher that are asked at once while others wait.
const VOUCHED_IN_FLIGHT_MAX: usize = 1;

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
    /// One bit for each peer that named it, in the order of their answers.
    vouchers: u128,
    is_first: bool,
    group: Option<IpGroup>,
}

/// What the targets did that one peer, and no other, vouched for.
#[derive(Clone, Copy, Debug, Default)]
struct Vouched {
    in_flight: usize,
    /// Asks that failed or are late.
    debt: usize,
}

/// All known targets of one lookup, nearest first.
#[derive(Clone, Debug)]
pub(super) struct KnownSet<T> {
    key: Position,
    nearest: usize,
    known_max: usize,
    known: Vec<Known<T>>,
    answers: usize,
}

impl<T> Known<T> {
    fn is_lost(&self) -> bool {
        matches!(self.standing, Standing::Failed | Standing::Skipped)
    }

    fn is_fresh(&self, now_ms: Millis) -> bool {
        matches!(self.standing, Standing::Fresh { not_before_ms } if now_ms >= not_before_ms)
    }

    /// The only one that named it.
    fn single_voucher(&self) -> Option<usize> {
        (!self.is_first && self.vouchers.is_power_of_two()).then(|| self.vouchers.trailing_zeros() as usize)
    }

    /// All that named it.
    fn vouchers(&self) -> impl Iterator<Item = usize> {
        let mut left = self.vouchers;
        std::iter::from_fn(move || {
            let voucher = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (voucher < VOUCHERS_MAX).then_some(voucher)
        })
    }
}

impl<T: LookupTarget> KnownSet<T> {
    pub(super) fn new(key: Position, nearest: usize, known_max: usize) -> Self {
        KnownSet { key, nearest: nearest.max(1), known_max: known_max.max(1), known: Vec::new(), answers: 0 }
    }

    pub(super) fn add_first(&mut self, candidates: Vec<Candidate<T>>) {
        candidates.into_iter().for_each(|candidate| self.add(candidate, 1, 0, true));
    }

    /// Adds what the latest answer named.
    pub(super) fn add_closer(&mut self, closer: impl Iterator<Item = Candidate<T>>, hop: u32) {
        let voucher = 1 << self.answers.min(VOUCHERS_MAX - 1);
        self.answers += 1;
        closer.for_each(|candidate| self.add(candidate, hop, voucher, false));
    }

    fn add(&mut self, candidate: Candidate<T>, hop: u32, vouchers: u128, is_first: bool) {
        let Candidate { target, position, group } = candidate;
        let distance = distance(&self.key, &position);
        let place = self.known.binary_search_by(|known| (known.distance, &known.target).cmp(&(distance, &target)));
        match place {
            Ok(index) => self.known[index].vouchers |= vouchers,
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
                self.known.insert(index, Known { target, distance, standing, hop, vouchers, is_first, group });
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

    /// Changes the standing of a target; gives its hop.
    pub(super) fn settle(&mut self, target: &T, standing: Standing) -> u32 {
        let Some(known) = self.known.iter_mut().find(|known| known.target == *target) else { return 0 };
        known.standing = standing;
        known.hop
    }

    /// The target of the front to be asked next.
    pub(super) fn next_in_front(&self, now_ms: Millis, late_after_ms: Millis) -> Option<T> {
        let front = self.front();
        self.best(front.iter().map(|index| &self.known[*index]), now_ms, late_after_ms)
    }

    /// The target to be asked next that passes `may`, beyond the front as well: whoever would follow if a late one of
    /// the front failed.
    pub(super) fn next_for_hedge(&self, now_ms: Millis, late_after_ms: Millis, may: impl Fn(&T) -> bool) -> Option<T> {
        self.best(self.known.iter().filter(|known| may(&known.target)), now_ms, late_after_ms)
    }

    /// The nearest that can be asked now, of those whose vouchers have kept their word so far.
    fn best<'a>(&self, among: impl Iterator<Item = &'a Known<T>>, now_ms: Millis, late_after_ms: Millis) -> Option<T>
    where
        T: 'a,
    {
        let vouched = self.vouched(now_ms, late_after_ms);
        let preference = |known: &&Known<T>| {
            let is_crowded =
                known.single_voucher().is_some_and(|voucher| vouched[voucher].in_flight >= VOUCHED_IN_FLIGHT_MAX);
            let debt = || known.vouchers().map(|voucher| vouched[voucher].debt).min().unwrap_or(0);
            (is_crowded, if known.is_first { 0 } else { debt() })
        };
        // Of equals the first is taken, and the known are ordered by distance.
        among.filter(|known| known.is_fresh(now_ms)).min_by_key(preference).map(|known| known.target.clone())
    }

    fn vouched(&self, now_ms: Millis, late_after_ms: Millis) -> [Vouched; VOUCHERS_MAX] {
        let mut all = [Vouched::default(); VOUCHERS_MAX];
        for known in &self.known {
            let Some(vouched) = known.single_voucher().and_then(|voucher| all.get_mut(voucher)) else { continue };
            match known.standing {
                Standing::InFlight { started_ms, .. } => {
                    vouched.in_flight += 1;
                    vouched.debt += usize::from(now_ms >= started_ms.saturating_add(late_after_ms));
                }
                Standing::Failed => vouched.debt += 1,
                Standing::Fresh { .. } | Standing::Answered | Standing::Skipped => {}
            }
        }
        all
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

    /// The nearest targets that answered, with the same shares as in the front.
    pub(super) fn nearest_answered(&self, count: usize) -> Vec<T> {
        let answered = self.pick(count, |known| known.standing == Standing::Answered);
        answered.into_iter().map(|index| self.known[index].target.clone()).collect()
    }

    /// The nearest targets that are not lost, with single vouchers and networks of addresses held to their shares.
    fn front(&self) -> Vec<usize> {
        self.pick(self.nearest, |known| !known.is_lost())
    }

    /// The nearest targets that `may` be among them: of a single voucher half of `count`, of a network of addresses a
    /// quarter, and more of them only where places are left.
    fn pick(&self, count: usize, may: impl Fn(&Known<T>) -> bool) -> Vec<usize> {
        let vouched_max = (count / 2).max(1);
        let group_max = (count / 4).max(1);
        let mut of_voucher = [0usize; VOUCHERS_MAX];
        let mut of_group: Vec<(IpGroup, usize)> = Vec::new();
        let mut front = Vec::with_capacity(count);
        let mut passed_over = Vec::new();
        for (index, known) in self.known.iter().enumerate().filter(|(_, known)| may(known)) {
            if front.len() == count {
                break;
            }
            let voucher = known.single_voucher();
            let in_group = |(group, _): &&mut (IpGroup, usize)| Some(*group) == known.group;
            let group = of_group.iter_mut().find(in_group);
            let is_voucher_full = voucher.is_some_and(|voucher| of_voucher[voucher] >= vouched_max);
            if is_voucher_full || group.as_ref().is_some_and(|(_, count)| *count >= group_max) {
                passed_over.push(index);
                continue;
            }
            voucher.into_iter().for_each(|voucher| of_voucher[voucher] += 1);
            match (group, known.group) {
                (Some((_, count)), _) => *count += 1,
                (None, Some(group)) => of_group.push((group, 1)),
                (None, None) => {}
            }
            front.push(index);
        }
        let free = count - front.len();
        front.extend(passed_over.into_iter().take(free));
        front.sort_unstable();
        front
    }
}
