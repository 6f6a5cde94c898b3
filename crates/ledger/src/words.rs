//! Names that every ledger takes: what one takes, all take, so that a payout can be judged before there is a ledger.

use crate::limits::{ACCOUNT_BYTES_MAX, ASSET_BYTES_MAX, BATCH_ENTRIES_MAX};
use crate::model::{Batch, LedgerError};

/// Whether a payee of this name can be paid, or why not.
pub fn check_account(name: &str) -> Result<(), LedgerError> {
    check_name("account", name, ACCOUNT_BYTES_MAX)
}

/// Whether an asset of this name can be paid, or why not.
pub fn check_asset(name: &str) -> Result<(), LedgerError> {
    check_name("asset", name, ASSET_BYTES_MAX)
}

/// Refuses what could not be written, or could not be told apart later.
pub(crate) fn check_words(batch: &Batch) -> Result<(), LedgerError> {
    if batch.entries.len() > BATCH_ENTRIES_MAX {
        let count = batch.entries.len();
        return Err(refused(format!("a batch of {count} entries is over the limit of {BATCH_ENTRIES_MAX}")));
    }
    check_asset(&batch.asset)?;
    check_name("pot", &batch.pot, ACCOUNT_BYTES_MAX)?;
    for entry in &batch.entries {
        check_account(&entry.account)?;
        if entry.account == batch.pot {
            return Err(refused(format!("{} is both pot and payee of one transfer", batch.pot)));
        }
    }
    Ok(())
}

fn check_name(what: &str, name: &str, bytes_max: usize) -> Result<(), LedgerError> {
    // PostgreSQL keeps no zero byte in a text: what one book takes, all take.
    if name.is_empty() || name.len() > bytes_max || name.contains('\0') {
        let len = name.len();
        return Err(refused(format!("the name of the {what} has 1 to {bytes_max} bytes and no zero byte, not {len}")));
    }
    Ok(())
}

fn refused(why: impl Into<String>) -> LedgerError {
    LedgerError::Refused(why.into())
}
