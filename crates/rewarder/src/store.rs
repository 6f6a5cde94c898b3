//! The seal log: which runs are sealed, released, settled or quarantined. A run exists from the moment its row is
//! durable here; everything else follows from the row and the artifacts it names.

mod bounds;
mod forget;
mod row;
mod settled;
pub(crate) mod time;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ron_kernel::clock;
use ron_log::{Class, Disk, Log, LogError, LogOptions, Lsn, Position, Recovery, VerifyReport};

use bounds::GROWTH_BYTES_MAX;
use forget::{Forgotten, StoreLimits};
pub use row::{AssetTotal, EpochRow, EpochStatus, Quarantine, QuarantineReason, SealRecord};
use time::{SEEN_EVERY, WitnessedTime};

/// Bytes of one segment: small, because a node seals few epochs and old segments are given back as a whole.
const SEGMENT_BYTES: u32 = 4 << 20;
/// Segments a log may have beside twice those that its rows fill; beyond, the oldest is given back.
const SEGMENTS_SPARE: u64 = 4;
/// Largest record: what the head of a log record holds.
const RECORD_BYTES_MAX: usize = u16::MAX as usize;

/// Failure of the seal log.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The log did not take the record.
    #[error("the seal log: {0}")]
    Log(#[from] LogError),
    /// A record that is too large to be written.
    #[error("the row of epoch {epoch} takes {bytes} bytes; a record holds {RECORD_BYTES_MAX}")]
    TooLarge {
        /// Id of the epoch.
        epoch: String,
        /// Bytes it would take.
        bytes: usize,
    },
    /// A correction that would pay what another one pays.
    #[error("epoch {corrected} is corrected by {by} already; what is wrong still is mended by a correction of {by}")]
    Corrected {
        /// Id of the epoch that both correct.
        corrected: String,
        /// Id of the correction that came first.
        by: String,
    },
    /// Leftovers that were spent before.
    #[error("what epoch {from} left over went into {into} already")]
    LeftOverSpent {
        /// Id of the epoch that left units over.
        from: String,
        /// Id of the epoch or the correction that has them.
        into: String,
    },
    /// Units of a run that pays nobody.
    #[error("epoch {0} pays nobody, and nothing of it can be carried in")]
    Dead(String),
    /// A run that was let go or ended, or is sealed under this name.
    #[error("epoch {epoch} is {}; only what is held can be rejected or computed anew", status.as_str())]
    NotHeld {
        /// Id of the epoch.
        epoch: String,
        /// How it stands.
        status: EpochStatus,
    },
    /// Artifacts that something may still be paid from.
    #[error("epoch {0} is not over: its payouts follow from its artifacts")]
    Needed(String),
    /// A record about an epoch that was never sealed.
    #[error("epoch {0} is not sealed")]
    Unknown(String),
    /// The table is full.
    #[error(
        "this node keeps as many epochs as it can; remove the artifacts of settled ones (`macronode reward prune`)"
    )]
    TooMany,
    /// Records that this version does not understand.
    #[error(
        "{0} records of the seal log are of a kind that this version does not know; start the version that wrote them"
    )]
    Strange(u64),
}

/// The seal log and the rows it adds up to. Every write is durable when it returns; callers are threads that may block.
pub struct Store {
    log: Log,
    rows: Mutex<Rows>,
    /// Held from a record to its row, so that rows change in the order of the log.
    writing: Mutex<()>,
    recovery: Recovery,
    segment_bytes: u32,
    time: WitnessedTime,
    limits: StoreLimits,
}

#[derive(Default)]
struct Rows {
    by_epoch: BTreeMap<String, Arc<EpochRow>>,
    /// Where the newest full row of each epoch lies.
    places: BTreeMap<String, RowPlace>,
    /// Bytes of these rows.
    bytes: u64,
    /// Rows whose artifacts are removed.
    removed: usize,
    settled: u64,
    /// Newest time of a record, in milliseconds since 1970.
    newest_ms: u64,
    forgotten: Forgotten,
}

#[derive(Clone, Copy)]
struct RowPlace {
    segment: u32,
    bytes: u32,
}

impl Rows {
    fn is_removed(&self, epoch: &str) -> bool {
        self.by_epoch.get(epoch).is_some_and(|row| row.removed_by.is_some())
    }

    fn put_place(&mut self, epoch: &str, place: RowPlace) {
        let before = self.places.insert(epoch.to_owned(), place);
        self.bytes += u64::from(place.bytes);
        self.bytes -= before.map_or(0, |before| u64::from(before.bytes));
    }

    fn take(&mut self, record: &SealRecord, place: RowPlace) {
        self.newest_ms = self.newest_ms.max(EpochRow::seen_ms(record));
        if let SealRecord::Forgotten { names } = record {
            return self.forgotten.take(names, place.segment);
        }
        let epoch = record.epoch();
        let was_removed = self.is_removed(epoch);
        match (self.by_epoch.get_mut(epoch), record) {
            (Some(row), record) => Arc::make_mut(row).apply(record),
            (None, SealRecord::Row(row)) => drop(self.by_epoch.insert(epoch.to_owned(), Arc::new((**row).clone()))),
            // Its row went with an old segment and follows as a copy, which knows of this record.
            (None, _) => return,
        }
        if matches!(record, SealRecord::Row(_)) {
            self.put_place(epoch, place);
            // A run in the place of one that was rejected, whose row went before this one came.
            self.forgotten.forget(epoch);
        }
        // A run in the place of one that was rejected has artifacts again.
        let is_removed = self.is_removed(epoch);
        self.removed = self.removed + usize::from(is_removed && !was_removed) - usize::from(was_removed && !is_removed);
        let settled_as = self.by_epoch.get(epoch).and_then(|row| row.settled_as).unwrap_or(0);
        self.settled = self.settled.max(settled_as);
    }
}

impl Rows {
    /// The correction of an epoch, other than this one, whose payouts have left or may have.
    fn corrected_by(&self, corrected: &str, except: &str) -> Option<String> {
        let is_it = |row: &&Arc<EpochRow>| row.corrects.as_deref() == Some(corrected) && row.epoch != except;
        self.by_epoch.values().filter(is_it).find(|row| row.is_paying()).map(|row| row.epoch.clone())
    }

    /// The epoch that has carried in what this one left over.
    fn carried_into(&self, from: &str) -> Option<String> {
        let carries = |row: &&Arc<EpochRow>| row.carried_from.as_deref() == Some(from) && !row.is_dead();
        self.by_epoch.values().find(carries).map(|row| row.epoch.clone())
    }

    /// The correction whose payouts have left, or may have, and that has what this epoch left over.
    fn taken_up_by(&self, from: &str) -> Option<String> {
        let takes = |row: &&Arc<EpochRow>| row.takes_left_over && row.corrects.as_deref() == Some(from);
        self.by_epoch.values().filter(takes).find(|row| row.is_paying()).map(|row| row.epoch.clone())
    }

    /// Leftovers are spent once. Asked while no other row changes, because a run that carries them and a correction
    /// that takes them up may both have been let in before either was sealed.
    fn check_left_over(&self, row: &EpochRow) -> Result<(), StoreError> {
        let spent = |from: &String, into: Option<String>| match into {
            Some(into) => Err(StoreError::LeftOverSpent { from: from.clone(), into }),
            None => Ok(()),
        };
        if let Some(from) = row.carried_from.as_ref().filter(|_| !row.is_dead()) {
            if self.by_epoch.get(from).is_some_and(|from| from.is_dead()) {
                return Err(StoreError::Dead(from.clone()));
            }
            spent(from, self.carried_into(from).or_else(|| self.taken_up_by(from)))?;
        }
        match row.corrects.as_ref().filter(|_| row.takes_left_over) {
            Some(from) => spent(from, self.carried_into(from)),
            None => Ok(()),
        }
    }
}

impl Store {
    /// Opens the log on this disk and replays it.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Store, StoreError> {
        let options = LogOptions {
            segment_bytes: SEGMENT_BYTES,
            quota_bytes: 4 << 30,
            reserve_bytes: 16 << 20,
            gather_bytes_max: 4 << 20,
            zero_ahead: false,
            sidecars: false,
        };
        Store::open_with(disk, options)
    }

    /// As [`Store::open`], with a log of this layout.
    pub(crate) fn open_with(disk: Arc<dyn Disk>, options: LogOptions) -> Result<Store, StoreError> {
        let (mut rows, mut strange, segment_bytes) = (Rows::default(), 0, options.segment_bytes.max(1));
        let (log, recovery) = Log::open(
            disk,
            options,
            &mut |replayed, _live| match serde_json::from_slice::<SealRecord>(replayed.head) {
                Ok(record) => rows.take(&record, RowPlace::of(replayed.position)),
                Err(_) => strange += 1,
            },
        )?;
        if strange > 0 {
            // Going on could pay what a record that is not understood forbids.
            return Err(StoreError::Strange(strange));
        }
        rows.drop_forgotten();
        let limits = StoreLimits::default();
        let time = WitnessedTime::begin(rows.newest_ms, clock::unix_millis(), clock::now());
        Ok(Store { log, rows: Mutex::new(rows), writing: Mutex::default(), recovery, segment_bytes, time, limits })
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since 1970, as far as they were seen to pass.
    pub fn now_ms(&self) -> u64 {
        self.time.at(clock::unix_millis(), clock::now())
    }

    /// Writes down how late it is, if that was not done for a while: a start counts only time that was seen to pass.
    pub fn see_time(&self) -> Result<(), StoreError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let at_ms = self.now_ms();
        if u128::from(at_ms.saturating_sub(self.rows().newest_ms)) < SEEN_EVERY.as_millis() {
            return Ok(());
        }
        self.append(Class::Settle, &SealRecord::Seen { at_ms })?;
        self.log.flush()?;
        self.rows().newest_ms = at_ms;
        Ok(())
    }

    /// What opening the log found.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The error that ended the log as a place to write.
    pub fn failed(&self) -> Option<LogError> {
        self.log.failed()
    }

    /// Row of an epoch.
    pub fn get(&self, epoch: &str) -> Option<Arc<EpochRow>> {
        self.rows().by_epoch.get(epoch).cloned()
    }

    /// Whether another epoch would find room: among those with artifacts, and among all that are remembered.
    pub fn has_room(&self) -> bool {
        self.rows().has_room(&self.limits)
    }

    /// Epochs whose artifacts may go at this time: settled long enough ago, and not the last of their policy, with
    /// which the release gate compares the next.
    pub fn settled_before(&self, settled_ms: u64) -> Vec<String> {
        let rows = self.rows();
        let last: BTreeSet<&str> = rows.last_of_policies().collect();
        let is_old =
            |row: &&Arc<EpochRow>| row.settled_ms > 0 && row.settled_ms < settled_ms && row.removed_by.is_none();
        let settled = rows.by_epoch.values().filter(|row| row.status == EpochStatus::Settled).filter(is_old);
        settled.map(|row| &row.epoch).filter(|epoch| !last.contains(epoch.as_str())).cloned().collect()
    }

    /// Rows in the order of their ids, from behind this one on.
    pub fn list(&self, after: Option<&str>, limit: usize) -> Vec<Arc<EpochRow>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.rows().by_epoch.range::<str, _>((from, Bound::Unbounded)).take(limit).map(|(_, row)| row.clone()).collect()
    }

    /// Rows against the order of their ids, from before this one on.
    pub fn list_back(&self, before: Option<&str>, limit: usize) -> Vec<Arc<EpochRow>> {
        let to = before.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self.rows();
        let back = rows.by_epoch.range::<str, _>((Bound::Unbounded, to)).rev();
        back.take(limit).map(|(_, row)| row.clone()).collect()
    }

    /// Ids of all epochs with this status.
    pub fn with_status(&self, status: EpochStatus) -> Vec<String> {
        let rows = self.rows();
        rows.by_epoch.values().filter(|row| row.status == status).map(|row| row.epoch.clone()).collect()
    }

    /// Epochs by status, in the order of [`EpochStatus::ALL`].
    pub fn counts(&self) -> [u64; EpochStatus::ALL.len()] {
        let rows = self.rows();
        EpochStatus::ALL.map(|status| rows.by_epoch.values().filter(|row| row.status == status).count() as u64)
    }

    /// The epoch that has taken up the leftovers of this one.
    pub fn carried_into(&self, from: &str) -> Option<String> {
        self.rows().carried_into(from)
    }

    /// The correction that has taken up the leftovers of this epoch.
    pub fn taken_up_by(&self, from: &str) -> Option<String> {
        self.rows().taken_up_by(from)
    }

    /// The epoch of this policy that was settled last.
    pub fn last_settled(&self, policy: &str) -> Option<Arc<EpochRow>> {
        let rows = self.rows();
        // A correction pays differences, with which no epoch is compared.
        let is_whole = |row: &&Arc<EpochRow>| row.policy == policy && row.corrects.is_none();
        let settled = rows.by_epoch.values().filter(|row| row.settled_as.is_some()).filter(is_whole);
        settled.max_by_key(|row| row.settled_as).cloned()
    }

    /// The correction of this epoch whose payouts have left, or may have.
    pub fn corrected_by(&self, corrected: &str) -> Option<String> {
        self.rows().corrected_by(corrected, "")
    }

    /// Seals a run. Nothing of it is believed before this, and nothing of it is doubted after.
    pub fn seal(&self, row: EpochRow) -> Result<Arc<EpochRow>, StoreError> {
        if !self.has_room() {
            return Err(StoreError::TooMany);
        }
        let record = SealRecord::Row(Box::new(row.clone())).bounded();
        // A row that could not take what is known of it later would keep its epoch from ever being over.
        let bytes = encoded(&record)?.len();
        if bytes > RECORD_BYTES_MAX - GROWTH_BYTES_MAX {
            return Err(StoreError::TooLarge { epoch: row.epoch, bytes });
        }
        self.write_if(Class::Data, &record, |rows| {
            let known = rows.by_epoch.get(&row.epoch).filter(|known| !known.is_rejected());
            known.map_or(Ok(()), |known| Err(not_held(known)))?;
            rows.check_left_over(&row)
        })
    }

    /// Writes down that payouts may leave. An epoch has one correction: two would each pay the same difference.
    pub fn release(&self, epoch: &str, by: &str) -> Result<Arc<EpochRow>, StoreError> {
        let record = SealRecord::Released { epoch: epoch.to_owned(), by: by.to_owned() };
        self.write_if(Class::Settle, &record, |rows| {
            let Some(row) = rows.by_epoch.get(epoch) else { return Ok(()) };
            let Some(corrected) = row.corrects.clone() else { return Ok(()) };
            if let Some(by) = rows.corrected_by(&corrected, epoch) {
                return Err(StoreError::Corrected { corrected, by });
            }
            rows.check_left_over(row)
        })
    }

    /// Writes down that a held epoch is never paid. What it carried in is there for another; what it left over must not
    /// have been carried in by one that is alive.
    pub fn reject(&self, epoch: &str, detail: String) -> Result<Arc<EpochRow>, StoreError> {
        let quarantine = Quarantine { reason: QuarantineReason::Rejected, detail };
        let record = SealRecord::Quarantined { epoch: epoch.to_owned(), quarantine, reconciliation: None };
        self.write_if(Class::Settle, &record, |rows| {
            let row = rows.by_epoch.get(epoch).ok_or_else(|| StoreError::Unknown(epoch.to_owned()))?;
            match rows.carried_into(epoch) {
                _ if row.status != EpochStatus::Held => Err(not_held(row)),
                Some(into) => Err(StoreError::LeftOverSpent { from: epoch.to_owned(), into }),
                None => Ok(()),
            }
        })
    }

    /// Writes down that a person has lifted a quarantine; changes nothing if the epoch is in none that can be lifted.
    pub fn lift(&self, epoch: &str, by: &str) -> Result<Arc<EpochRow>, StoreError> {
        self.write(Class::Settle, &SealRecord::Lifted { epoch: epoch.to_owned(), by: by.to_owned() })
    }

    /// Writes down how many payouts are answered for. Losing it costs duplicates, which the ledger finds.
    pub fn sent(&self, epoch: &str, place: u64, intents: u64) -> Result<Arc<EpochRow>, StoreError> {
        self.write(Class::Settle, &SealRecord::Sent { epoch: epoch.to_owned(), place, intents })
    }

    /// Writes down that an epoch is paid.
    pub fn settle(&self, epoch: &str, reconciliation: serde_json::Value) -> Result<Arc<EpochRow>, StoreError> {
        let settled_as = self.rows().settled + 1;
        let epoch = epoch.to_owned();
        let at_ms = self.now_ms();
        self.write(Class::Settle, &SealRecord::Settled { epoch, settled_as, at_ms, reconciliation })
    }

    /// Writes down that the artifacts of an epoch are removed; they go after this.
    pub fn remove(&self, epoch: &str, by: &str) -> Result<Arc<EpochRow>, StoreError> {
        let record = SealRecord::Removed { epoch: epoch.to_owned(), by: by.to_owned() };
        self.write_if(Class::Settle, &record, |rows| {
            let is_over = rows.by_epoch.get(epoch).is_some_and(|row| row.is_over());
            if is_over { Ok(()) } else { Err(StoreError::Needed(epoch.to_owned())) }
        })
    }

    /// Writes down that nothing more of an epoch leaves.
    pub fn quarantine(
        &self,
        epoch: &str,
        quarantine: Quarantine,
        reconciliation: Option<serde_json::Value>,
    ) -> Result<Arc<EpochRow>, StoreError> {
        let epoch = epoch.to_owned();
        self.write(Class::Settle, &SealRecord::Quarantined { epoch, quarantine, reconciliation })
    }

    /// Writes one record, waits for the disk, then changes the row: memory is never ahead of the disk.
    fn write(&self, class: Class, record: &SealRecord) -> Result<Arc<EpochRow>, StoreError> {
        self.write_if(class, record, |_| Ok(()))
    }

    /// [`Store::write`], unless the rows that no other write changes meanwhile object. An error says that the record is
    /// not there, or that the log has failed: what is durable is told as written, whatever upkeep finds afterwards.
    fn write_if(
        &self,
        class: Class,
        record: &SealRecord,
        check: impl FnOnce(&Rows) -> Result<(), StoreError>,
    ) -> Result<Arc<EpochRow>, StoreError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        check(&self.rows())?;
        if let SealRecord::Row(row) = record {
            self.forget_oldest(row)?;
        }
        let record = record.clone().bounded();
        let (place, lsn) = self.append(class, &record)?;
        if let Err(error) = self.log.flush() {
            if self.log.durable() < lsn {
                return Err(error.into());
            }
            tracing::warn!(%error, "upkeep of the seal log failed; what was written is there");
        }
        let row = {
            let mut rows = self.rows();
            rows.take(&record, place);
            rows.by_epoch.get(record.epoch()).cloned()
        };
        if let Err(error) = self.make_room() {
            tracing::warn!(%error, "an old segment of the seal log cannot be given back yet");
        }
        // A record about an epoch without a row changes nothing, now and when it is read back.
        row.ok_or_else(|| StoreError::Unknown(record.epoch().to_owned()))
    }

    fn append(&self, class: Class, record: &SealRecord) -> Result<(RowPlace, Lsn), StoreError> {
        let head = encoded(record)?;
        let mut appender = self.log.appender();
        let position = appender.append(class, &head, &[])?;
        Ok((RowPlace::of(position), appender.lsn()))
    }

    /// Gives the oldest segment back once there are many: rows that only it holds are written again before. One segment
    /// for each write is enough, because a write never fills one.
    fn make_room(&self) -> Result<(), StoreError> {
        let segments_max = SEGMENTS_SPARE + 2 * self.rows().weight() / u64::from(self.segment_bytes);
        if u64::from(self.log.usage().segments) <= segments_max {
            return Ok(());
        }
        let Some(oldest) = self.log.oldest_segment() else { return Ok(()) };
        let needed: Vec<Arc<EpochRow>> = {
            let rows = self.rows();
            let here = rows.places.iter().filter(|(_, place)| place.segment <= oldest);
            here.filter_map(|(epoch, _)| rows.by_epoch.get(epoch).cloned()).collect()
        };
        for row in needed {
            let (place, _) = self.append(Class::Copy, &SealRecord::Row(Box::new((*row).clone())).bounded())?;
            self.rows().put_place(&row.epoch, place);
        }
        self.copy_forgotten(oldest)?;
        Ok(self.log.retire(oldest)?)
    }
}

fn not_held(row: &EpochRow) -> StoreError {
    StoreError::NotHeld { epoch: row.epoch.clone(), status: row.status }
}

/// A record as it is written; an error if no record holds it.
fn encoded(record: &SealRecord) -> Result<Vec<u8>, StoreError> {
    let head = serde_json::to_vec(record).unwrap_or_default();
    if head.is_empty() || head.len() > RECORD_BYTES_MAX {
        return Err(StoreError::TooLarge { epoch: record.epoch().to_owned(), bytes: head.len() });
    }
    Ok(head)
}

/// Rows of a seal log that nobody has open, read without changing a byte, and the state of its files.
/// [`LogError::InUse`] if a node has it open.
pub fn inspect(directory: &Path) -> Result<(Vec<Arc<EpochRow>>, VerifyReport), StoreError> {
    let (mut rows, mut strange) = (Rows::default(), 0);
    let report =
        ron_log::walk(directory, &mut |replayed, _body| match serde_json::from_slice::<SealRecord>(replayed.head) {
            Ok(record) => rows.take(&record, RowPlace::of(replayed.position)),
            Err(_) => strange += 1,
        })?;
    if strange > 0 {
        return Err(StoreError::Strange(strange));
    }
    rows.drop_forgotten();
    Ok((rows.by_epoch.into_values().collect(), report))
}

impl RowPlace {
    fn of(position: Position) -> RowPlace {
        RowPlace { segment: position.segment, bytes: position.len }
    }
}

#[cfg(test)]
mod tests;
