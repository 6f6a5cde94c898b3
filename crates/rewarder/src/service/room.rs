//! Bytes of artifacts: counted while they are written, so that no run takes more room than there is.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use ron_log::{Disk, DiskFile, Durability};

use super::engine::lock;

/// Bytes of the artifacts of every epoch. An epoch's are given back as they were counted, so that however many ask for
/// their removal, nothing is given back twice.
#[derive(Debug, Default)]
pub(crate) struct ArtifactRoom(Mutex<CountedBytes>);

#[derive(Debug, Default)]
struct CountedBytes {
    by_epoch: BTreeMap<String, u64>,
    total: u64,
}

impl ArtifactRoom {
    /// Bytes of all artifacts.
    pub fn bytes(&self) -> u64 {
        lock(&self.0).total
    }

    /// Counts so many bytes more for an epoch, if all together stay within the bound.
    pub fn take(&self, epoch: &str, bytes: u64, bytes_max: u64) -> bool {
        let mut counted = lock(&self.0);
        let after = counted.total.saturating_add(bytes);
        if after > bytes_max {
            return false;
        }
        counted.total = after;
        *counted.by_epoch.entry(epoch.to_owned()).or_default() += bytes;
        true
    }

    /// Whether anything is counted for an epoch: what nobody began to write is not this node's to remove.
    pub fn counts(&self, epoch: &str) -> bool {
        lock(&self.0).by_epoch.contains_key(epoch)
    }

    /// Counts nothing for an epoch any more.
    pub fn forget(&self, epoch: &str) {
        let mut counted = lock(&self.0);
        let bytes = counted.by_epoch.remove(epoch).unwrap_or(0);
        counted.total -= bytes;
    }
}

/// The folder of an epoch while it is written: what does not fit into the room is not written.
pub(crate) struct CountedFolder {
    pub disk: Arc<dyn Disk>,
    pub room: Arc<ArtifactRoom>,
    pub epoch: String,
    /// Bytes that all artifacts together may take.
    pub bytes_max: u64,
}

impl Disk for CountedFolder {
    fn durability(&self) -> Durability {
        self.disk.durability()
    }
    fn secret(&self) -> u32 {
        self.disk.secret()
    }
    fn claim(&self) -> bool {
        self.disk.claim()
    }
    fn unclaim(&self) {
        self.disk.unclaim();
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let (room, epoch, bytes_max) = (Arc::clone(&self.room), self.epoch.clone(), self.bytes_max);
        Ok(Arc::new(CountedFile { file: self.disk.create(name)?, room, epoch, bytes_max, len: Mutex::default() }))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }
}

struct CountedFile {
    file: Arc<dyn DiskFile>,
    room: Arc<ArtifactRoom>,
    epoch: String,
    bytes_max: u64,
    /// Bytes that are counted for this file.
    len: Mutex<u64>,
}

impl DiskFile for CountedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut len = lock(&self.len);
        let more = (offset + bytes.len() as u64).saturating_sub(*len);
        if !self.room.take(&self.epoch, more, self.bytes_max) {
            let reason = format!(
                "the artifacts of epochs would take more than the {} bytes that they may (`rewarder.epochs_bytes_max`; \
                 in amnesia `rewarder.memory_bytes`)",
                self.bytes_max
            );
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, reason));
        }
        *len += more;
        self.file.write_at(offset, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
