//! The words of a ledger, and what every ledger does.

use crate::book::Book;
use crate::redact::redacted;
use std::future::Future;

/// Key of a reward run.
pub type RunKey = [u8; 32];

/// Payouts of one asset of one run that are booked in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The run they belong to.
    pub run: RunKey,
    /// Asset of all entries.
    pub asset: String,
    /// Account on the other side of all entries: the pot. One run pays from it.
    pub pot: String,
    /// Key of the run that this one corrects, if it corrects one. A run is corrected by one other.
    pub follows: Option<RunKey>,
    /// The payouts.
    pub entries: Vec<Entry>,
}

impl Batch {
    /// Hash of everything but the key: the same key with the same fingerprint is the same payout.
    pub fn fingerprint(&self, entry: &Entry) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("ron-ledger 2026-11 fingerprint of a transfer");
        for name in [&self.asset, &self.pot, &entry.account] {
            hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
        }
        hasher.update(&self.run).update(&entry.amount.to_le_bytes());
        hasher.update(&[u8::from(entry.direction == Direction::TakeBack)]);
        *hasher.finalize().as_bytes()
    }
}

/// One payout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Identity of the payout; the amount is not part of it.
    pub key: [u8; 32],
    /// Account of the payee.
    pub account: String,
    /// Units.
    pub amount: u128,
    /// Which way they go.
    pub direction: Direction,
}

/// Way of a payout between pot and payee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the pot to the payee.
    Pay,
    /// From the payee back to the pot: a correction.
    TakeBack,
}

/// What became of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Booked now.
    Accepted,
    /// Booked before, with the same content.
    Duplicate,
    /// Its key was used with other content; not booked.
    Conflict,
}

/// Sums of one asset of a run in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The asset.
    pub asset: String,
    /// Entries booked.
    pub count: u64,
    /// Units from the pot to payees.
    pub paid: u128,
    /// Units from payees back to the pot.
    pub taken_back: u128,
}

/// Why a ledger did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// It may answer later: the network, a full disk, a restart. Trying again is safe.
    #[error("the ledger is not available: {0}")]
    Unavailable(String),
    /// It will never take this: trying again does not help.
    #[error("the ledger refused: {0}")]
    Refused(String),
}

impl LedgerError {
    /// The same in words that hold no secret: not this one of ours, and none that is called one.
    pub(crate) fn redacted(self, own: Option<&[u8]>) -> LedgerError {
        match self {
            LedgerError::Unavailable(why) => LedgerError::Unavailable(redacted(&why, own)),
            LedgerError::Refused(why) => LedgerError::Refused(redacted(&why, own)),
        }
    }
}

/// A place that payouts go to.
pub trait Ledger: Send + Sync {
    /// Books a batch durably; one outcome for each entry, in order. Entries without a conflict are booked.
    fn submit(&self, batch: &Batch) -> impl Future<Output = Result<Vec<Outcome>, LedgerError>> + Send;

    /// What the ledger holds of a run, by asset.
    fn tally(&self, run: &RunKey) -> impl Future<Output = Result<Vec<Tally>, LedgerError>> + Send;

    /// Whether the ledger itself refuses a second run that would pay from a pot, or correct a run. Where it does not,
    /// the node that asks has only its own memory of what it paid.
    fn one_run_per_pot(&self) -> impl Future<Output = Result<bool, LedgerError>> + Send {
        std::future::ready(Ok(false))
    }

    /// What it is, in words for people.
    fn kind(&self) -> &'static str {
        "a ledger that is elsewhere"
    }

    /// The embedded book, if it is that: only it can be read account by account.
    fn book(&self) -> Option<&Book> {
        None
    }
}
