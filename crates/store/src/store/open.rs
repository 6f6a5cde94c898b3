//! Opening of the file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use arc_swap::ArcSwap;
use redb::backends::InMemoryBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableTable as _, ReadableTableMetadata as _, TableHandle as _,
    WriteTransaction,
};

use super::bad_rows::BadRows;
use super::batch::Draws;
use super::damage::FileIdentity;
use super::record_bytes::RecordBytes;
use super::reopen::Writer;
use super::signed::Signed;
use super::snapshot::Snapshot;
use super::{Bounds, Inner, Store, StoreError, StoreOpened, guarded, rescue, tables};

/// A store in memory needs few pages twice.
const CACHE_BYTES_IN_MEMORY: usize = 1024 * 1024;

pub(super) fn open(path: &Path, bounds: Bounds) -> Result<StoreOpened, StoreError> {
    let why = match rescue::resume(path)? {
        Some(why) => why,
        None => match guarded(|| open_file(path, bounds)) {
            Ok(store) => return Ok(StoreOpened { store, lost: None }),
            Err(StoreError::Damaged(why)) => why,
            Err(error) => return Err(error),
        },
    };
    let rescued = rescue::replace(path, bounds, &why, &mut || Ok(()))?;
    let store = guarded(|| open_file(path, bounds))?;
    Ok(StoreOpened { store, lost: Some(format!("{} was damaged ({why}): {rescued}", path.display())) })
}

pub(super) fn in_memory(bounds: Bounds) -> Result<Store, StoreError> {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES_IN_MEMORY.min(bounds.cache_bytes));
    store_of(builder.create_with_backend(InMemoryBackend::new())?, None, bounds)
}

/// Makes the tables that are always there, and writes down how they are laid out and how many bytes are in them.
pub(super) fn make_tables(transaction: &WriteTransaction) -> Result<(), StoreError> {
    transaction.open_table(tables::META)?.insert(tables::META_LAYOUT, tables::LAYOUT)?;
    transaction.open_table(tables::OTHERS)?;
    transaction.open_table(tables::EXPIRING)?;
    transaction.open_table(tables::LABELS)?;
    transaction.open_table(tables::PROVIDED)?;
    transaction.open_table(tables::NAMED)?;
    transaction.open_table(tables::MANIFESTS)?;
    transaction.open_table(tables::DOCUMENT_ENDS)?;
    transaction.open_table(tables::PEER_PLACES)?;
    transaction.open_table(tables::PINS)?;
    transaction.open_table(tables::REMEMBERED)?;
    RecordBytes::write_missing(transaction)?;
    Ok(())
}

fn open_file(path: &Path, bounds: Bounds) -> Result<Store, StoreError> {
    store_of(open_database(path, bounds)?, Some(path.to_owned()), bounds)
}

/// The database of a file, which is begun if there is none.
pub(super) fn open_database(path: &Path, bounds: Bounds) -> Result<Database, StoreError> {
    let mut builder = Builder::new();
    builder.set_cache_size(bounds.cache_bytes);
    builder.create(path).map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse(path.to_owned()),
        other => other.into(),
    })
}

pub(super) fn store_of(database: Database, path: Option<PathBuf>, bounds: Bounds) -> Result<Store, StoreError> {
    prepare(&database)?;
    let bad_rows = Arc::new(BadRows::default());
    let snapshot = ArcSwap::from_pointee(Snapshot::take(&database, None, Arc::clone(&bad_rows))?);
    let identity = Mutex::new(path.as_deref().and_then(FileIdentity::of));
    let (owner, draws, writer) = (OnceLock::new(), Draws::default(), Mutex::new(Writer::of(database)));
    let (damage, refused) = (OnceLock::new(), Mutex::default());
    let signed = Signed::default();
    let inner = Inner { path, bounds, owner, draws, writer, snapshot, bad_rows, signed, damage, refused, identity };
    Ok(Store { inner: Arc::new(inner) })
}

/// Looks whether a database is laid out as this version has it, and makes the tables of a new one.
pub(super) fn prepare(database: &Database) -> Result<(), StoreError> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    let layout = transaction.open_table(tables::META)?.get(tables::META_LAYOUT)?.map(|layout| layout.value());
    match layout {
        Some(tables::LAYOUT) => {
            // Files from before names were kept standing, documents had an end, or peers were noted lack a table.
            let mut is_older = false;
            for table in [tables::NAMED.name(), tables::DOCUMENT_ENDS.name(), tables::PEER_PLACES.name()] {
                is_older |= !has_table(&transaction, table)?;
            }
            if is_older {
                make_tables(&transaction)?;
            }
            // In a file from before bytes of records were counted, every row is looked at once.
            let is_counted = RecordBytes::write_missing(&transaction)?;
            let is_dated = date_documents(&transaction)?;
            if is_older || is_counted || is_dated { transaction.commit()? } else { transaction.abort()? }
        }
        Some(other) => return Err(StoreError::Damaged(format!("its layout is {other}, not {}", tables::LAYOUT))),
        None if transaction.list_tables()?.count() > 1 => {
            return Err(StoreError::Damaged("it has tables and no layout".to_owned()));
        }
        None => {
            make_tables(&transaction)?;
            transaction.commit()?;
        }
    }
    Ok(())
}

/// Has documents without an end looked at, which an earlier version wrote: they get one then. Says whether there are
/// any.
fn date_documents(transaction: &WriteTransaction) -> Result<bool, StoreError> {
    let (documents, ends) =
        (transaction.open_table(tables::MANIFESTS)?, transaction.open_table(tables::DOCUMENT_ENDS)?);
    if ends.len()? >= documents.len()? {
        return Ok(false);
    }
    let mut expiring = transaction.open_table(tables::EXPIRING)?;
    for row in documents.iter()? {
        let (row, _) = row?;
        if let Some(kind_row) = tables::document_kind_row(row.value())
            && ends.get(row.value())?.is_none()
        {
            expiring.insert(&tables::expiring_row(0, &kind_row), ())?;
        }
    }
    Ok(true)
}

fn has_table(transaction: &WriteTransaction, name: &str) -> Result<bool, StoreError> {
    Ok(transaction.list_tables()?.any(|table| table.name() == name))
}
