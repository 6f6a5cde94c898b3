//! Which ledger payouts go to, and how it is opened.

use std::path::Path;
use std::sync::Arc;

use ron_ledger::{Book, BookOptions, LedgerError};
use ron_log::LogOptions;
use svc_rewarder::config::{LedgerKind, Options};
use svc_rewarder::service::{LedgerOpener, PayoutLedger};

use super::disk_opener;
use crate::errors::{Code, Failure};

/// Name of the folder of the embedded book.
const BOOK_FOLDER: &str = "ledger";

/// Opens the ledger that the configuration names; opened when payouts first need it, because it may wait.
pub fn opener(options: &Options, folder: Option<&Path>) -> Result<LedgerOpener, Failure> {
    match options.ledger {
        LedgerKind::Embedded => Ok(embedded(folder)),
        LedgerKind::Postgres | LedgerKind::Http => {
            let detail = "rewarder.ledger: this build has the embedded ledger only";
            Err(Failure::new(Code::CannotStart, detail))
        }
    }
}

fn embedded(folder: Option<&Path>) -> LedgerOpener {
    let open_disk = Arc::new(disk_opener(folder, BOOK_FOLDER));
    let is_memory = folder.is_none();
    Arc::new(move || {
        let open_disk = Arc::clone(&open_disk);
        let opening = tokio::task::spawn_blocking(move || {
            let disk = open_disk().map_err(|error| LedgerError::Unavailable(error.to_string()))?;
            let mut options = BookOptions::default();
            if is_memory {
                // A segment in memory is taken whole, so it is small.
                options.log = LogOptions { segment_bytes: 4 << 20, quota_bytes: 1 << 30, ..options.log };
            }
            let (book, opened) =
                Book::open(disk, options).map_err(|error| LedgerError::Unavailable(error.to_string()))?;
            tracing::info!(transfers = opened.transfers, accounts = opened.accounts, "the book is read");
            if let Some(damage) = &opened.damage {
                tracing::error!(damage, "the book has lost something: it only tells, and books nothing");
            }
            Ok(Arc::new(book) as Arc<dyn PayoutLedger>)
        });
        Box::pin(async move {
            opening.await.map_err(|_| LedgerError::Unavailable("opening the book broke off".to_owned()))?
        })
    })
}
