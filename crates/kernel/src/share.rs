//! Shares of a bounded number of things, by subject: nobody holds so many that none are left for the next.
//!
//! A subject is given more only while it holds less than is still free. Alone it can have half of everything, two can
//! have a third each, and so on: whoever comes new finds as much free as each of the others has. The operator has no
//! share but the whole, because the load he makes is his own affair.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ron_types::{Error, Kind};

/// A bound of the node that subjects share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What is counted, as refusals name it: `messages in flight`.
    pub what: &'static str,
    /// What makes room, as refusals say it: `acknowledge some of them`.
    pub help: &'static str,
}

/// What is held of a bound now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Number the subject holds.
    pub own: u64,
    /// Number all hold together.
    pub total: u64,
    /// Number all may hold together.
    pub capacity: u64,
}

impl Bound {
    /// How many more a subject may have, at least one: half of what is free beyond what it has, so that it then has no
    /// more than is free. Busy with what helps if it may have none. No subject stands for the operator.
    pub fn room(&self, subject: Option<&str>, fill: Fill) -> Result<u64, Error> {
        let Bound { what, help } = self;
        let Fill { own, total, capacity } = fill;
        let free = capacity.saturating_sub(total);
        let refused = match subject {
            _ if free == 0 => format!("all {capacity} {what} of this node are taken; try again later, or {help}"),
            Some(subject) if own >= free => format!(
                "{subject} has {own} of the {capacity} {what} of this node, which is its share while {free} are free; \
                 {help}"
            ),
            Some(_) => return Ok((free - own).div_ceil(2)),
            None => return Ok(free),
        };
        Err(Error::new(Kind::Busy, refused))
    }
}

/// Things that subjects hold, one by one or many at once, each until it is dropped.
pub struct SubjectShares {
    bound: Bound,
    capacity: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    total: usize,
    by_subject: HashMap<Arc<str>, usize>,
}

/// What a subject has taken at once, given back when dropped.
#[derive(Debug)]
pub struct SubjectShare {
    shares: Arc<SubjectShares>,
    subject: Arc<str>,
    amount: usize,
}

impl SubjectShares {
    /// Nothing is held of the capacity.
    pub fn new(bound: Bound, capacity: usize) -> Arc<Self> {
        Arc::new(SubjectShares { bound, capacity, held: Mutex::default() })
    }

    /// Takes one for a subject if it is left, and within what the subject may hold.
    pub fn take(self: &Arc<Self>, subject: &Arc<str>, is_operator: bool) -> Result<SubjectShare, Error> {
        self.take_many(subject, is_operator, 1)
    }

    /// Takes so many at once, all of them or none.
    pub fn take_many(
        self: &Arc<Self>,
        subject: &Arc<str>,
        is_operator: bool,
        amount: usize,
    ) -> Result<SubjectShare, Error> {
        let mut held = self.lock();
        let own = held.by_subject.get(subject).copied().unwrap_or(0);
        let fill = Fill { own: own as u64, total: held.total as u64, capacity: self.capacity as u64 };
        let room = self.bound.room((!is_operator).then_some(&**subject), fill)?;
        if amount as u64 > room {
            let Bound { what, help } = self.bound;
            let refused =
                format!("{subject} may have {room} more of the {} {what} of this node; {help}", self.capacity);
            return Err(Error::new(Kind::Busy, refused));
        }
        held.total += amount;
        *held.by_subject.entry(Arc::clone(subject)).or_default() += amount;
        Ok(SubjectShare { shares: Arc::clone(self), subject: Arc::clone(subject), amount })
    }

    /// Things held by all subjects.
    pub fn total(&self) -> usize {
        self.lock().total
    }

    /// Nothing that runs under this lock panics, so that a poisoned table is whole.
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SubjectShares {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SubjectShares").field("bound", &self.bound).field("total", &self.total()).finish()
    }
}

impl Drop for SubjectShare {
    fn drop(&mut self) {
        let mut held = self.shares.lock();
        held.total -= self.amount;
        if let Some(own) = held.by_subject.get_mut(&self.subject) {
            *own -= self.amount;
            if *own == 0 {
                held.by_subject.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound = Bound { what: "places", help: "leave some" };

    fn fill(shares: &Arc<SubjectShares>, subject: &str) -> Vec<SubjectShare> {
        let subject = subject.into();
        std::iter::from_fn(|| shares.take(&subject, false).ok()).collect()
    }

    #[test]
    fn each_newcomer_finds_as_much_free_as_the_others_hold() {
        let shares = SubjectShares::new(BOUND, 64);
        let first = fill(&shares, "a");
        let second = fill(&shares, "b");
        assert_eq!((first.len(), second.len(), fill(&shares, "c").len()), (32, 16, 8));
        drop(first);
        assert!(!fill(&shares, "b").is_empty(), "what is given back is everybody's");
        drop(second);
        assert_eq!((shares.total(), shares.lock().by_subject.len()), (0, 0));
    }

    #[test]
    fn many_are_taken_at_once_or_none() {
        let shares = SubjectShares::new(BOUND, 64);
        let subject: Arc<str> = "a".into();
        assert!(shares.take_many(&subject, false, 33).is_err(), "more than its share");
        let many = shares.take_many(&subject, false, 32).expect("its share");
        assert!(shares.take(&subject, false).is_err());
        assert!(shares.take_many(&"b".into(), false, 16).is_ok(), "there is room for the next");
        drop(many);
        assert_eq!((shares.total(), shares.lock().by_subject.len()), (0, 0));
    }

    #[test]
    fn a_refusal_says_which_bound_whose_and_what_helps() {
        let shares = SubjectShares::new(BOUND, 4);
        let tenant = fill(&shares, "tenant");
        let error = shares.take(&"tenant".into(), false).expect_err("it has its share");
        let said = "tenant has 2 of the 4 places of this node, which is its share while 2 are free; leave some";
        assert_eq!((error.kind, &*error.detail), (Kind::Busy, said));
        let operator: Arc<str> = "operator".into();
        let mut left = Vec::new();
        while let Ok(share) = shares.take(&operator, true) {
            left.push(share);
        }
        assert_eq!(left.len(), 2, "the operator takes what is left");
        let error = shares.take(&"other".into(), false).expect_err("nothing is left");
        assert_eq!(error.detail, "all 4 places of this node are taken; try again later, or leave some");
        drop(tenant);
        assert!(shares.take(&"other".into(), false).is_ok());
    }
}
