//! Whose the leases of the node are, so that nobody holds so many that none are left for the next.

use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use ron_auth::Subject;
use ron_cells::Budget;
use ron_kernel::share::{Bound, Fill};
use ron_types::Error;

use crate::stepped::SteppedMap;
use crate::types::Seq;

/// The leases of the node.
pub(crate) const LEASES: Bound = Bound {
    what: "leases (`mailbox.global_inflight`)",
    help: "acknowledge messages, give some back or take them for a shorter time",
};
/// Subjects that are remembered before those without leases are looked for.
const TIDY_MIN: usize = 64;

/// A subject that has leases or asks for some.
#[derive(Debug)]
pub struct LeaseHolder {
    subject: Arc<str>,
    /// Only counts: how many there may be depends on what others hold.
    leases: Budget,
}

/// Every subject that has leases. The operator is none of them: no share bounds him.
#[derive(Debug, Default)]
pub(crate) struct LeaseHolders {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_subject: HashMap<Arc<str>, Arc<LeaseHolder>>,
    tidy_at: usize,
}

impl LeaseHolder {
    fn new(subject: &Arc<str>) -> Arc<Self> {
        Arc::new(LeaseHolder { subject: Arc::clone(subject), leases: Budget::new(usize::MAX) })
    }

    /// Leases it has.
    pub fn leases(&self) -> u64 {
        self.leases.used() as u64
    }

    fn add(&self) {
        if let Some(one) = self.leases.try_take(1) {
            one.keep();
        }
    }
}

impl LeaseHolders {
    /// The holder that a subject's leases are counted to; none for the operator.
    pub fn of(&self, by: &Subject) -> Option<Arc<LeaseHolder>> {
        if by.is_operator {
            return None;
        }
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = table.by_subject.get(&by.name) {
            return Some(Arc::clone(known));
        }
        // Paid for by as many subjects that came since the last look.
        if table.by_subject.len() >= table.tidy_at.max(TIDY_MIN) {
            // Whoever has a lease, or waits for one, has the holder in hand.
            table.by_subject.retain(|_, holder| Arc::strong_count(holder) > 1);
            table.tidy_at = 2 * table.by_subject.len();
        }
        let holder = LeaseHolder::new(&by.name);
        table.by_subject.insert(Arc::clone(&by.name), Arc::clone(&holder));
        Some(holder)
    }
}

/// Leases that a holder may be given, of a node with so many of which so many are given; Busy if none.
pub(crate) fn room(holder: Option<&LeaseHolder>, total: u64, capacity: u64) -> Result<usize, Error> {
    let own = holder.map_or(0, LeaseHolder::leases);
    let room = LEASES.room(holder.map(|holder| &*holder.subject), Fill { own, total, capacity })?;
    Ok(usize::try_from(room).unwrap_or(usize::MAX))
}

/// Who has the leases of a partition's messages. Kept in memory only: after a restart leases are counted to nobody
/// until their messages are leased again.
#[derive(Debug, Default)]
pub(crate) struct MessageHolders {
    by_seq: SteppedMap<Seq, Held>,
}

/// A message that a holder has, or had last.
#[derive(Debug)]
struct Held {
    holder: Arc<LeaseHolder>,
    /// Its lease has not ended.
    counts: bool,
}

impl MessageHolders {
    /// A message was leased, to a holder or to somebody who is not counted.
    pub fn begin(&mut self, seq: Seq, holder: Option<&Arc<LeaseHolder>>) {
        let Some(holder) = holder else { return self.forget(seq) };
        holder.add();
        self.by_seq.insert(seq, Held { holder: Arc::clone(holder), counts: true });
    }

    /// A message is under a lease again, or no longer: who has an old receipt can hide it anew, and then holds it.
    pub fn set_leased(&mut self, seq: Seq, is_leased: bool) {
        if self.by_seq.len() == 0 {
            return;
        }
        if let Some(held) = self.by_seq.get_mut(&seq) {
            held.count(is_leased);
        }
    }

    /// A message is gone.
    pub fn forget(&mut self, seq: Seq) {
        if self.by_seq.len() > 0 {
            self.by_seq.remove(&seq);
        }
    }

    /// Messages whose holder is known.
    pub fn len(&self) -> usize {
        self.by_seq.len()
    }

    /// Bytes of one of them.
    pub const CONTENT_BYTES: usize = size_of::<(Seq, Held)>();
}

impl Held {
    fn count(&mut self, counts: bool) {
        match (std::mem::replace(&mut self.counts, counts), counts) {
            (false, true) => self.holder.add(),
            (true, false) => self.holder.leases.give_back(1),
            _ => {}
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.count(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_counted_while_they_hold() {
        let holders = LeaseHolders::default();
        let (tenant, operator) = (Subject::named("tenant"), Subject::operator("operator"));
        assert!(holders.of(&operator).is_none());
        let holder = holders.of(&tenant).expect("it is counted");
        let mut messages = MessageHolders::default();
        for seq in 1..=3 {
            messages.begin(seq, Some(&holder));
        }
        messages.set_leased(1, true);
        messages.set_leased(2, false);
        messages.set_leased(2, false);
        assert_eq!(holders.of(&tenant).expect("the same").leases(), 2);
        messages.set_leased(2, true);
        messages.begin(3, None);
        messages.begin(1, Some(&holder));
        assert_eq!((holder.leases(), messages.len()), (2, 2));
        messages.forget(1);
        drop(messages);
        assert_eq!(holder.leases(), 0);
    }

    #[test]
    fn subjects_without_leases_are_forgotten() {
        let holders = LeaseHolders::default();
        let kept = holders.of(&Subject::named("kept"));
        for number in 0..1_000 {
            holders.of(&Subject::named(format!("tenant{number}").as_str()));
        }
        let table = holders.table.lock().unwrap();
        assert!(table.by_subject.len() <= TIDY_MIN && kept.is_some() && table.by_subject.contains_key("kept"));
    }

    #[test]
    fn a_holder_is_given_no_more_than_leaves_as_much_free() {
        let holder = LeaseHolder::new(&"tenant".into());
        assert_eq!((room(Some(&holder), 0, 10), room(Some(&holder), 7, 10)), (Ok(5), Ok(2)));
        (0..5).for_each(|_| holder.add());
        let error = room(Some(&holder), 5, 10).expect_err("half of it is its own");
        assert!(error.detail.starts_with("tenant has 5 of the 10 leases (`mailbox.global_inflight`)"), "{error}");
        assert_eq!(room(None, 5, 10), Ok(5), "the operator has what is left");
        assert!(room(None, 10, 10).is_err());
    }
}
