//! A bounded amount of something, of which nobody can take so much that nothing is left for the next caller.
//!
//! A holder is given more only while it holds less than what is still free. Alone it can have half of everything; two
//! can have a third each, and so on: whoever comes new finds as much free as each of the others has. Nobody needs to
//! be counted or told for that, and a share that is given back is everybody's at once.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use prometheus_client::metrics::gauge::Gauge;

/// An address may hold this many times what is free, which is seven eighths when it is alone. More than one holder may,
/// because many of them share an address behind a proxy; not all of it, because addresses cost nothing to attack from.
const ADDRESS_WEIGHT: usize = 7;

/// Whose share something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sharer {
    /// What its credential says of it.
    pub claim: Claim,
    /// Address of the peer, of IPv6 its network of 64 bits.
    pub address: IpAddr,
}

/// What a caller's credential says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Nothing: it is known by its address alone.
    Nobody,
    /// It names this key and has not proven it yet. What it takes is its own at that address, so that neither does it
    /// use up the share of the key's owner elsewhere, nor do all those behind one proxy have one share together.
    Named(Arc<str>),
    /// It has proven to be this subject.
    Proven(Arc<str>),
}

/// The amount and who holds it. The capacity is given with each call, because a reload may change it.
#[derive(Debug, Default)]
pub(crate) struct FairShare {
    held: Mutex<Held>,
    /// Shows the sum to the operator.
    gauge: Gauge,
}

#[derive(Debug, Default)]
struct Held {
    total: usize,
    by_holder: HashMap<Holder, usize>,
    by_address: HashMap<IpAddr, usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Holder {
    Subject(Arc<str>),
    Claim(IpAddr, Arc<str>),
    Address(IpAddr),
}

/// A part that somebody holds; given back when dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    share: Arc<FairShare>,
    sharer: Sharer,
    amount: usize,
    /// Capacity when it was taken; what it grows by is measured by the same.
    capacity: usize,
}

impl FairShare {
    pub(crate) fn new(gauge: Gauge) -> Arc<Self> {
        Arc::new(FairShare { held: Mutex::default(), gauge })
    }

    /// Takes the amount if it is left, and within what this sharer may hold.
    pub(crate) fn take(self: &Arc<Self>, sharer: Sharer, amount: usize, capacity: usize) -> Option<Taken> {
        self.add(&sharer, amount, capacity).then(|| Taken { share: Arc::clone(self), sharer, amount, capacity })
    }

    /// Whether this sharer could take the amount now. Costs next to nothing while little is taken of the whole.
    pub(crate) fn has_room(&self, sharer: &Sharer, amount: usize, capacity: usize) -> bool {
        let total = usize::try_from(self.gauge.get()).unwrap_or(0);
        total < capacity / 8 || self.held().fits(sharer, &sharer.holder(), amount, capacity)
    }

    fn add(&self, sharer: &Sharer, amount: usize, capacity: usize) -> bool {
        let holder = sharer.holder();
        let mut held = self.held();
        if !held.fits(sharer, &holder, amount, capacity) {
            return false;
        }
        held.total += amount;
        *held.by_holder.entry(holder).or_default() += amount;
        *held.by_address.entry(sharer.address).or_default() += amount;
        self.gauge.set(held.total as i64);
        true
    }

    fn give_back(&self, sharer: &Sharer, amount: usize) {
        let holder = sharer.holder();
        let mut held = self.held();
        held.total -= amount;
        subtract(&mut held.by_holder, &holder, amount);
        subtract(&mut held.by_address, &sharer.address, amount);
        self.gauge.set(held.total as i64);
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn fits(&self, sharer: &Sharer, holder: &Holder, amount: usize, capacity: usize) -> bool {
        let free = capacity.saturating_sub(self.total);
        let of_holder = self.by_holder.get(holder).copied().unwrap_or(0);
        let of_address = self.by_address.get(&sharer.address).copied().unwrap_or(0);
        let (by_holder, by_address) = (of_holder.saturating_add(amount), of_address.saturating_add(amount));
        by_holder <= free && by_address <= free.saturating_mul(ADDRESS_WEIGHT)
    }
}

fn subtract<K: std::hash::Hash + Eq>(held: &mut HashMap<K, usize>, key: &K, amount: usize) {
    if let Some(count) = held.get_mut(key) {
        *count -= amount;
        if *count == 0 {
            held.remove(key);
        }
    }
}

impl Sharer {
    fn holder(&self) -> Holder {
        match &self.claim {
            Claim::Proven(subject) => Holder::Subject(Arc::clone(subject)),
            Claim::Named(key) => Holder::Claim(self.address, Arc::clone(key)),
            Claim::Nobody => Holder::Address(self.address),
        }
    }
}

impl Taken {
    /// Takes more of the same.
    pub(crate) fn grow(&mut self, more: usize) -> bool {
        // What is held already is kept, however little is free by now.
        let fits = more == 0 || self.share.add(&self.sharer, more, self.capacity);
        if fits {
            self.amount += more;
        }
        fits
    }

    /// The same amount as a part of another's share, if that one may hold it.
    pub(crate) fn moved_to(&self, sharer: &Sharer) -> Option<Taken> {
        self.share.take(sharer.clone(), self.amount, self.capacity)
    }

    pub(crate) fn amount(&self) -> usize {
        self.amount
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.share.give_back(&self.sharer, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn sharer(subject: Option<&str>, address: u8) -> Sharer {
        let claim = subject.map_or(Claim::Nobody, |subject| Claim::Proven(subject.into()));
        Sharer { claim, address: Ipv4Addr::new(192, 0, 2, address).into() }
    }

    /// Takes one at a time until there is no more.
    fn fill(share: &Arc<FairShare>, sharer: &Sharer, capacity: usize) -> Vec<Taken> {
        std::iter::from_fn(|| share.take(sharer.clone(), 1, capacity)).collect()
    }

    #[test]
    fn each_newcomer_finds_as_much_free_as_the_others_hold() {
        let share = FairShare::new(Gauge::default());
        let first = fill(&share, &sharer(Some("a"), 1), 1024);
        assert_eq!(first.len(), 512, "alone it has half");
        let second = fill(&share, &sharer(Some("b"), 1), 1024);
        assert_eq!(second.len(), 256, "half of what is free, at the same address");
        let third = fill(&share, &sharer(None, 2), 1024);
        assert_eq!(third.len(), 128, "known by its address alone");
        drop(first);
        let more = fill(&share, &sharer(Some("b"), 1), 1024);
        assert!(more.len() > 64, "what is given back is everybody's: {}", more.len());
        drop((second, third, more));
        let held = share.held();
        assert_eq!((held.total, held.by_holder.len(), held.by_address.len()), (0, 0, 0));
        assert_eq!(share.gauge.get(), 0);
    }

    #[test]
    fn keys_that_are_only_named_have_shares_of_their_own_below_that_of_the_address() {
        let share = FairShare::new(Gauge::default());
        let named = |key: &str| Sharer { claim: Claim::Named(key.into()), ..sharer(None, 1) };
        let flood = fill(&share, &named("abuser"), 1024);
        assert_eq!(flood.len(), 512);
        assert_eq!(fill(&share, &named("honest"), 1024).len(), 256, "as much as if the other had proven its name");
        assert_eq!(fill(&share, &sharer(Some("abuser"), 2), 1024).len(), 256, "the key's owner is not who names it");
        let all: Vec<Taken> = (0..1000).flat_map(|key| fill(&share, &named(&key.to_string()), 1024)).collect();
        assert!(flood.len() + all.len() <= 896, "the address is bounded: {}", all.len());
    }

    #[test]
    fn one_address_with_many_names_leaves_an_eighth_to_the_others() {
        let share = FairShare::new(Gauge::default());
        let held: Vec<Taken> =
            (0..1000).flat_map(|name| fill(&share, &sharer(Some(&name.to_string()), 1), 1024)).collect();
        assert!((800..=896).contains(&held.len()), "{}", held.len());
        assert!(share.take(sharer(Some("1001"), 2), 1, 1024).is_some());
    }

    #[test]
    fn small_capacities_let_one_in_and_never_more_than_they_are() {
        for capacity in 1..6 {
            let share = FairShare::new(Gauge::default());
            let held: Vec<Taken> =
                (0..50_u8).flat_map(|name| fill(&share, &sharer(Some(&name.to_string()), name), capacity)).collect();
            assert!((1..=capacity).contains(&held.len()), "{} of {capacity}", held.len());
        }
        assert!(FairShare::new(Gauge::default()).take(sharer(None, 1), 1, 0).is_none());
    }

    #[test]
    fn a_share_grows_while_it_is_below_what_is_free() {
        let share = FairShare::new(Gauge::default());
        let mut body = share.take(sharer(Some("a"), 1), 30, 100).expect("room");
        assert!(body.grow(5) && body.amount() == 35);
        assert!(!body.grow(40), "75 of 65 that are free");
        let other = share.take(sharer(Some("b"), 1), 60, 100).expect("another may");
        assert!(body.grow(0), "it has what it has, with 5 free");
        drop(other);
        assert_eq!(share.gauge.get(), 35);
        let moved = body.moved_to(&sharer(Some("b"), 1)).expect("another may");
        drop(body);
        assert_eq!((share.gauge.get(), share.held().by_holder.len()), (35, 1));
        drop(moved);
        assert!(share.take(sharer(Some("a"), 1), 101, 100).is_none());
    }
}
