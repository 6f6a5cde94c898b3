//! The book on its log: totals that survive a restart, and sealed files.
//!
//! A usage file is the body of its seal record. So the seal is one record: after a crash either the file is there and
//! its rows begin anew, or neither; no row is in two files, and none in no file.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use ron_kernel::Meter;
use ron_log::{Class, Disk, Live, Log, LogError, LogOptions, Position, Recovery, Replayed};
use ron_types::names;

use super::book::{Book, FILE_BYTES_MAX, UsageRow};
use super::file::{self, UsageFile};
use super::record::{self, Record, SealKind, UsageSeal};
use crate::epoch::{EpochId, is_payable};

/// Bytes of one segment: a file of the maximum size and its head fit.
const SEGMENT_BYTES: u32 = 12 << 20;
/// Segments that the log may take. Reclaiming keeps it far below: at about twice the files kept, the rows, and one.
const SEGMENTS_MAX: u64 = 64;
/// Segments that only copies and seals may use.
const SEGMENTS_RESERVED: u64 = 8;
/// Bytes of all sealed files together; the oldest are let go before that is passed.
const FILES_BYTES_MAX: u64 = 256 << 20;
/// Epochs whose file is gone and whose name is still known, so that no name is sealed twice.
const FORGOTTEN_MAX: usize = 4096;
/// Sealed files of single tenants that are kept: each holds a handful of rows.
const TENANT_FILES_MAX: usize = 4096;
/// Segments reclaimed in one go, so that the log is not held for long.
const RECLAIM_MAX: usize = 4;

const _: () = assert!(FILE_BYTES_MAX + (64 << 10) < SEGMENT_BYTES as u64);

/// The book, the sealed files and their log. All of it waits for the disk: not for a thread of the runtime.
pub struct Store {
    log: Log,
    book: Book,
    /// By number, oldest first.
    seals: VecDeque<Seal>,
    files_kept: usize,
}

struct Seal {
    sealed: UsageSeal,
    /// Where the file is; none if it is no longer kept.
    position: Option<Position>,
}

/// Refusal to seal or to show a file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UsageError {
    /// The actor that is to have all rows is not one.
    #[error("as: 1 to 256 bytes without control characters, no name of the node itself, no account of a pot")]
    BadActor,
    /// The tenant that asks for its own rows bears a name of the node itself.
    #[error("{0:?} is a name of the node itself, and has no usage of its own")]
    Reserved(String),
    /// The epoch holds the usage of somebody else.
    #[error("epoch {0} is sealed already, with usage that is not yours alone")]
    SealedForOthers(String),
    /// The epoch is sealed for another actor.
    #[error("epoch {epoch} is sealed already, as {}", .sealed_as.as_deref().unwrap_or("each actor by itself"))]
    SealedOtherwise {
        /// The epoch.
        epoch: String,
        /// The actor it was sealed as.
        sealed_as: Option<String>,
    },
    /// No such epoch was sealed.
    #[error("no usage is sealed for epoch {0}")]
    Unknown(String),
    /// The file is no longer kept.
    #[error("the usage of epoch {0} was sealed, and its file is no longer kept")]
    Forgotten(String),
    /// The node has not read its log yet, or is leaving.
    #[error("the usage meter is not ready")]
    NotReady,
    /// The log refuses.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Store {
    /// Reads the log. `files_kept` sealed files are kept, at least one.
    pub fn open(disk: Arc<dyn Disk>, files_kept: usize) -> Result<(Store, Recovery), LogError> {
        Store::open_with(disk, files_kept, SEGMENT_BYTES)
    }

    /// Reads the log, whose new segments have this many bytes.
    pub fn open_with(
        disk: Arc<dyn Disk>,
        files_kept: usize,
        segment_bytes: u32,
    ) -> Result<(Store, Recovery), LogError> {
        let mut replayed = Replay { book: Book::new(), seals: BTreeMap::new(), strange: 0 };
        let options = LogOptions {
            segment_bytes,
            quota_bytes: SEGMENTS_MAX * u64::from(segment_bytes),
            reserve_bytes: SEGMENTS_RESERVED * u64::from(segment_bytes),
            gather_bytes_max: 2 * segment_bytes as usize,
            // Not for speed: a segment that has its room cannot fail for want of it, so that a full device only waits.
            zero_ahead: true,
            sidecars: false,
        };
        let (log, recovery) = Log::open(disk, options, &mut |record, live| replayed.visit(record, live))?;
        if replayed.strange > 0 {
            let what = format!("{} records of the usage log", replayed.strange);
            return Err(LogError::UnknownVersion { what });
        }
        let Replay { book, seals, .. } = replayed;
        let seals = seals.into_values().collect();
        let mut store = Store { log, book, seals, files_kept: files_kept.max(1) };
        // Fewer may be kept than before.
        store.let_go()?;
        Ok((store, recovery))
    }

    /// Takes what was counted since the last time.
    pub fn collect(&mut self, meter: &Meter) {
        meter.take(&mut |tenant, metric, amount| self.book.add(tenant, metric, amount));
    }

    /// Adds to one row.
    #[cfg(test)]
    pub fn add(&mut self, actor: &str, metric: &str, amount: u64) {
        self.book.add(actor, metric, amount);
    }

    /// The rows since the last seal.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// Rows after this actor, and the actor after whom the next page begins.
    pub fn page(&mut self, after: Option<&str>, rows: usize) -> (Vec<UsageRow<'_>>, Option<&str>) {
        self.book.after(after, rows)
    }

    /// Log that holds everything.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Makes the rows durable that changed, and gives back segments that nothing needs. Rows that a full log refuses
    /// stay in memory, and are written the next time.
    pub fn save(&mut self) -> Result<(), LogError> {
        if self.book.has_changed() {
            self.append_rows(Class::Data, false)?;
            self.log.flush()?;
            self.book.written();
            // Not left to the seal, which somebody waits for.
            self.book.put_in_order();
        }
        self.reclaim()
    }

    fn append_rows(&self, class: Class, all: bool) -> Result<(), LogError> {
        let mut appender = self.log.appender();
        record::rows(self.book.to_write(all)).iter().try_for_each(|head| appender.append(class, head, &[]).map(drop))
    }

    /// Seals everything since the last seal as the usage of this epoch. The same epoch again is the same file.
    pub fn seal(&mut self, epoch: &EpochId, as_actor: Option<&str>) -> Result<UsageSeal, UsageError> {
        self.seal_rows(epoch, None, as_actor)
    }

    /// Seals what was counted for one tenant since its rows were last sealed; the rows of others stay open.
    pub fn seal_own(&mut self, epoch: &EpochId, tenant: &str, as_actor: Option<&str>) -> Result<UsageSeal, UsageError> {
        // A token of before may have such a name, and would take what was done for others.
        if names::is_reserved(tenant) {
            return Err(UsageError::Reserved(tenant.to_owned()));
        }
        self.seal_rows(epoch, Some(tenant), as_actor)
    }

    fn seal_rows(
        &mut self,
        epoch: &EpochId,
        tenant: Option<&str>,
        as_actor: Option<&str>,
    ) -> Result<UsageSeal, UsageError> {
        let epoch = epoch.as_str();
        if let Some(seal) = self.find(epoch) {
            return if seal.sealed.tenant.as_deref() != tenant {
                Err(UsageError::SealedForOthers(epoch.to_owned()))
            } else if seal.sealed.as_actor.as_deref() == as_actor {
                Ok(seal.sealed.clone())
            } else {
                Err(UsageError::SealedOtherwise { epoch: epoch.to_owned(), sealed_as: seal.sealed.as_actor.clone() })
            };
        }
        check_actor(as_actor.or(tenant))?;
        let UsageFile { text, rows, hash } = file::write(&mut self.book, tenant, as_actor);
        let sealed = UsageSeal {
            epoch: epoch.to_owned(),
            tenant: tenant.map(str::to_owned),
            as_actor: as_actor.map(str::to_owned),
            rows,
            bytes: text.len() as u64,
            hash,
            number: self.seals.back().map_or(1, |last| last.sealed.number + 1),
        };
        let head = record::seal(SealKind::Sealed, &sealed);
        // The reserve is for the seals of all: a tenant may seal as often as it likes.
        let class = if tenant.is_some() { Class::Data } else { Class::Settle };
        let position = self.log.appender().append(class, &head, &text)?;
        // From here on memory is ahead of the disk. A flush that fails ends the log for good: nothing is told then, and
        // the next start finds either the record or the rows.
        self.seals.push_back(Seal { sealed: sealed.clone(), position: Some(position) });
        self.book.begin_anew_for(tenant);
        self.log.flush()?;
        self.let_go()?;
        Ok(sealed)
    }

    /// Lets the oldest files go that are beyond the bounds; what a full log does not take now goes with the next seal.
    fn let_go(&mut self) -> Result<(), LogError> {
        match self.forget_oldest() {
            Ok(()) | Err(LogError::Full { .. } | LogError::Busy) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn forget_oldest(&mut self) -> Result<(), LogError> {
        while let Some(place) = self.file_beyond() {
            let oldest = &mut self.seals[place];
            let head = record::seal(SealKind::Forgotten, &oldest.sealed);
            // Said before the file may go; until then a restart just keeps one file more.
            self.log.appender().append(Class::Settle, &head, &[])?;
            oldest.position.take().into_iter().for_each(|position| self.log.release(position));
        }
        while let Some(place) = self.name_beyond() {
            self.seals.remove(place);
        }
        Ok(())
    }

    /// Place of the file that goes next, if more are kept than may be. Files of everybody's usage and those of single
    /// tenants have bounds of their own, so that no tenant pushes out the files of others by sealing often.
    fn file_beyond(&self) -> Option<usize> {
        let files = || self.seals.iter().enumerate().filter(|(_, seal)| seal.position.is_some());
        let whole = || files().filter(|(_, seal)| seal.sealed.tenant.is_none());
        let (count, bytes) = whole().fold((0, 0), |(count, bytes), (_, seal)| (count + 1, bytes + seal.sealed.bytes));
        if count > self.files_kept || count > 1 && bytes > FILES_BYTES_MAX {
            return whole().map(|(place, _)| place).next();
        }
        let own = files().filter(|(_, seal)| seal.sealed.tenant.is_some());
        oldest_of_most(own, self.files_kept, TENANT_FILES_MAX)
    }

    /// Place of the epoch without a file whose name goes next, if more are known than may be.
    fn name_beyond(&self) -> Option<usize> {
        let names = || self.seals.iter().enumerate().filter(|(_, seal)| seal.position.is_none());
        let whole = names().filter(|(_, seal)| seal.sealed.tenant.is_none());
        let own = names().filter(|(_, seal)| seal.sealed.tenant.is_some());
        oldest_of_most(whole, FORGOTTEN_MAX, FORGOTTEN_MAX)
            .or_else(|| oldest_of_most(own, FORGOTTEN_MAX, FORGOTTEN_MAX))
    }

    /// The sealed epochs that are still known, newest first.
    pub fn sealed(&self) -> impl Iterator<Item = &UsageSeal> {
        self.seals.iter().rev().map(|seal| &seal.sealed)
    }

    /// A sealed file, its hash checked.
    pub fn file(&self, epoch: &str) -> Result<(UsageSeal, Bytes), UsageError> {
        let seal = self.find(epoch).ok_or_else(|| UsageError::Unknown(epoch.to_owned()))?;
        let position = seal.position.ok_or_else(|| UsageError::Forgotten(epoch.to_owned()))?;
        let file = self.log.read(position)?.body;
        if *blake3::hash(&file).as_bytes() != seal.sealed.hash {
            return Err(LogError::Corrupt { position }.into());
        }
        Ok((seal.sealed.clone(), file))
    }

    fn find(&self, epoch: &str) -> Option<&Seal> {
        // The newest are asked for most.
        self.seals.iter().rev().find(|seal| seal.sealed.epoch == epoch)
    }

    /// Gives the oldest segments back: what is still needed of them is written again first.
    fn reclaim(&mut self) -> Result<(), LogError> {
        self.log.set_kept_bytes(self.kept_bytes());
        for _ in 0..RECLAIM_MAX {
            let Some(segment) = self.log.reclaimable() else { break };
            self.copy_forward(segment)?;
            self.log.retire(segment)?;
        }
        Ok(())
    }

    /// Bytes of records without a body that are needed, about: the rows, and the names of forgotten epochs.
    fn kept_bytes(&self) -> u64 {
        let forgotten = self.seals.iter().filter(|seal| seal.position.is_none()).count() as u64;
        self.book.file_bytes() + forgotten * 256
    }

    /// All rows are written again, not only those of the segment: nobody remembers where each was written last, and
    /// they are fewer than a segment.
    fn copy_forward(&mut self, segment: u32) -> Result<(), LogError> {
        self.append_rows(Class::Copy, true)?;
        for seal in &mut self.seals {
            match seal.position {
                None => {
                    let head = record::seal(SealKind::Forgotten, &seal.sealed);
                    self.log.appender().append(Class::Copy, &head, &[])?;
                }
                Some(old) if old.segment == segment => {
                    seal.position = copy_file(&self.log, old, &seal.sealed)?;
                    self.log.release(old);
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// Place of the oldest seal of the tenant that has most of them, if it has more than its own bound or all together
/// have more than theirs.
fn oldest_of_most<'a>(seals: impl Iterator<Item = (usize, &'a Seal)>, own_max: usize, all_max: usize) -> Option<usize> {
    let (mut count, mut by_tenant) = (0, BTreeMap::new());
    for (place, seal) in seals {
        count += 1;
        by_tenant.entry(seal.sealed.tenant.as_deref()).or_insert((0, place)).0 += 1;
    }
    let (own, oldest) = by_tenant.into_values().max_by_key(|(own, oldest)| (*own, std::cmp::Reverse(*oldest)))?;
    (own > own_max || count > all_max).then_some(oldest)
}

/// Writes a file again; one that is damaged is lost, and said to be.
fn copy_file(log: &Log, old: Position, sealed: &UsageSeal) -> Result<Option<Position>, LogError> {
    let (kind, body) = match log.read(old) {
        Ok(record) => (SealKind::Copied, record.body),
        Err(error @ LogError::Corrupt { .. }) => {
            tracing::error!(%error, epoch = sealed.epoch, "a sealed usage file is damaged on the disk, and lost");
            (SealKind::Forgotten, Bytes::new())
        }
        Err(error) => return Err(error),
    };
    let position = log.appender().append(Class::Copy, &record::seal(kind, sealed), &body)?;
    Ok((kind == SealKind::Copied).then_some(position))
}

/// State while the log is read.
struct Replay {
    book: Book,
    seals: BTreeMap<u64, Seal>,
    strange: u64,
}

impl Replay {
    fn visit(&mut self, replayed: Replayed<'_>, live: &mut Live) {
        match record::read(replayed.head) {
            Some(Record::Rows(rows)) => {
                rows.iter().for_each(|(actor, metric, total)| self.book.restore(actor, metric, *total));
            }
            Some(Record::Sealed(sealed)) => {
                self.book.begin_anew_for(sealed.tenant.as_deref());
                self.put(sealed, Some(replayed.position), live);
            }
            Some(Record::Copied(sealed)) => self.put(sealed, Some(replayed.position), live),
            Some(Record::Forgotten(sealed)) => self.put(sealed, None, live),
            None => self.strange += 1,
        }
    }

    fn put(&mut self, sealed: UsageSeal, position: Option<Position>, live: &mut Live) {
        let before = self.seals.insert(sealed.number, Seal { sealed, position });
        before.and_then(|seal| seal.position).into_iter().for_each(|old| live.release(old));
    }
}

fn check_actor(actor: Option<&str>) -> Result<(), UsageError> {
    let is_actor = |actor: &str| {
        let is_name = (1..=256).contains(&actor.len()) && !actor.chars().any(char::is_control);
        is_name && is_payable(actor) && !names::is_reserved(actor)
    };
    if actor.is_none_or(is_actor) { Ok(()) } else { Err(UsageError::BadActor) }
}
