//! A bounded sum: the byte bound of a queue.

use crate::sync::{AtomicUsize, Ordering};

/// A sum that never passes its limit.
#[derive(Debug)]
pub struct Budget {
    used: Used,
    limit: usize,
}

/// On a cache line of its own: everybody writes it, and what lies beside it is only read.
#[derive(Debug)]
#[repr(align(128))]
struct Used(AtomicUsize);

/// A part of a budget: given back when dropped, unless it is kept.
#[derive(Debug)]
pub struct Share<'a> {
    budget: &'a Budget,
    amount: usize,
}

impl Budget {
    /// Nothing used, at most `limit` to be taken.
    pub fn new(limit: usize) -> Self {
        Budget { used: Used(AtomicUsize::new(0)), limit }
    }

    /// Takes `amount` if it fits. Taking nothing always fits and costs nothing.
    ///
    /// Adding first and looking after takes one instruction where comparing and swapping takes a loop. What does not
    /// fit is taken back, and for that moment something small may be refused that would just have fitted.
    #[inline]
    pub fn try_take(&self, amount: usize) -> Option<Share<'_>> {
        if amount > 0 {
            let fits_before = self.limit.checked_sub(amount)?;
            if self.used.0.fetch_add(amount, Ordering::AcqRel) > fits_before {
                self.give_back(amount);
                return None;
            }
        }
        Some(Share { budget: self, amount })
    }

    /// Gives back what was kept of a share.
    #[inline]
    pub fn give_back(&self, amount: usize) {
        if amount > 0 {
            self.used.0.fetch_sub(amount, Ordering::AcqRel);
        }
    }

    /// Amount taken now.
    pub fn used(&self) -> usize {
        self.used.0.load(Ordering::Acquire).min(self.limit)
    }

    /// Greatest amount that can be taken at once.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl Share<'_> {
    /// Keeps the amount taken beyond this value; it is then owed to [`Budget::give_back`].
    #[inline]
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.budget.give_back(self.amount);
    }
}
