//! Opening of the file, and what becomes of one that is damaged.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use arc_swap::ArcSwap;
use redb::backends::InMemoryBackend;
use redb::{Builder, Database, DatabaseError, ReadableTable as _, TableHandle as _, WriteTransaction};

use super::batch::Draws;
use super::record_bytes::RecordBytes;
use super::reopen::Writer;
use super::snapshot::Snapshot;
use super::{Bounds, Inner, Store, StoreError, StoreOpened, guarded, tables};

/// A store in memory needs few pages twice.
const CACHE_BYTES_IN_MEMORY: usize = 1024 * 1024;
/// Damaged files that are kept beside the store; who has so many has a disk to replace.
const SET_ASIDE_MAX: u32 = 1_000;

pub(super) fn open(path: &Path, bounds: Bounds) -> Result<StoreOpened, StoreError> {
    let why = match std::fs::read_to_string(mark_of(path)) {
        Ok(why) if path.exists() => why,
        _ => match guarded(|| open_file(path, bounds)) {
            Ok(store) => return Ok(StoreOpened { store, lost: None }),
            Err(StoreError::Damaged(why)) => why,
            Err(error) => return Err(error),
        },
    };
    let aside = set_aside(path)?;
    let store = guarded(|| open_file(path, bounds))?;
    Ok(StoreOpened {
        store,
        lost: Some(format!("{} was damaged and lies at {}: {why}", path.display(), aside.display())),
    })
}

pub(super) fn in_memory(bounds: Bounds) -> Result<Store, StoreError> {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES_IN_MEMORY.min(bounds.cache_bytes));
    store_of(builder.create_with_backend(InMemoryBackend::new())?, None, bounds)
}

/// Makes a note that the file is damaged. A disk that takes no note is told of by whoever writes to it next.
pub(super) fn mark_damaged(path: &Path, why: &str) {
    let _ = std::fs::write(mark_of(path), why);
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
    let snapshot = ArcSwap::from_pointee(Snapshot::take(&database, None)?);
    let (owner, draws, writer) = (OnceLock::new(), Draws::default(), Mutex::new(Writer::of(database)));
    Ok(Store { inner: Arc::new(Inner { path, bounds, owner, draws, writer, snapshot }) })
}

/// Looks whether a database is laid out as this version has it, and makes the tables of a new one.
pub(super) fn prepare(database: &Database) -> Result<(), StoreError> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    let layout = transaction.open_table(tables::META)?.get(tables::META_LAYOUT)?.map(|layout| layout.value());
    match layout {
        Some(tables::LAYOUT) if has_table(&transaction, tables::NAMED.name())? => {
            // In a file from before bytes of records were counted, every row is looked at once.
            match RecordBytes::write_missing(&transaction)? {
                true => transaction.commit()?,
                false => transaction.abort()?,
            }
        }
        // A file from before names were kept standing has all tables but one.
        Some(tables::LAYOUT) => {
            make_tables(&transaction)?;
            transaction.commit()?;
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

fn has_table(transaction: &WriteTransaction, name: &str) -> Result<bool, StoreError> {
    Ok(transaction.list_tables()?.any(|table| table.name() == name))
}

/// Renames the file to the first name with a number that is free, and drops the note about it.
fn set_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let names = (1..=SET_ASIDE_MAX).map(|number| with_suffix(path, &format!(".damaged-{number}")));
    let aside = names.into_iter().find(|name| !name.exists());
    let aside = aside.ok_or_else(|| std::io::Error::other("there are a thousand damaged files beside the store"))?;
    std::fs::rename(path, &aside)?;
    match std::fs::remove_file(mark_of(path)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(aside),
    }
}

fn mark_of(path: &Path) -> PathBuf {
    with_suffix(path, ".is-damaged")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
