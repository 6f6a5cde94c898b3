//! The manifest of a log: which segments there are, so that a lost or cut file is told and never taken for the end.
//!
//! Two files take turns: an update overwrites the older one in place and syncs it, so the other stays whole whatever
//! happens meanwhile. In place, because giving a segment back must work on a full disk too.
//!
//! The order of steps decides that no crash gives a false alarm or hides a loss. A segment is made, then listed, then
//! written to: what is listed was there. It is taken off the list, then removed: what is not listed may be there, blank
//! or as the remains of an unfinished removal.

use crate::core::Core;
use crate::disk::{Disk, DiskFile, Durability, read_up_to};
use crate::error::LogError;
use crate::frame::{u32_at, u64_at};
use crate::table::Table;
use crate::upkeep::is_full;
use crc32c::crc32c;
use std::io;
use std::sync::Arc;

/// Names of the two files.
pub const NAMES: [&str; 2] = ["manifest.0", "manifest.1"];

const MAGIC: [u8; 8] = *b"RONMANIF";
const VERSION: u32 = 1;
const PREFIX_LEN: usize = 40;
const ENTRY_LEN: usize = 16;
/// A file grows by whole blocks and one more, so that later updates find their room on a disk that has filled up.
const BLOCK_BYTES: usize = 4096;
/// Maximum bytes of a manifest that is read: far more segments than a log may have.
pub const BYTES_MAX: u64 = 64 << 20;

/// A segment that is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    pub number: u32,
    /// Bytes its file has had from the start; 0 if it grows.
    pub whole_bytes: u32,
    /// Number of its first record; 0 if it had none yet.
    pub first_lsn: u64,
}

/// Contents of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Rises with every update, given by [`ManifestFiles::write`]; the higher of two is believed.
    pub sequence: u64,
    pub seed: u32,
    /// Every record up to here was durable when this was written.
    pub durable: u64,
    /// In the order of their numbers, without a hole.
    pub segments: Vec<Listed>,
}

impl Manifest {
    /// What is to be listed: every segment that has its file, and those made ahead. Numbers of records that are not
    /// durable yet are left out, because after a crash other records get them.
    pub fn of(seed: u32, table: &Table, ahead_bytes: u32, durable: u64, durable_segment: u32) -> Manifest {
        let made = table.iter().filter(|segment| segment.is_made).map(|segment| Listed {
            number: segment.number,
            whole_bytes: segment.whole_bytes,
            first_lsn: if segment.number <= durable_segment { segment.first_lsn } else { 0 },
        });
        let ahead = table.prepared.iter();
        let ahead = ahead.map(|(number, _)| Listed { number: *number, whole_bytes: ahead_bytes, first_lsn: 0 });
        Manifest { sequence: 0, seed, durable, segments: made.chain(ahead).collect() }
    }

    pub fn get(&self, number: u32) -> Option<&Listed> {
        self.segments.iter().find(|listed| listed.number == number)
    }

    pub fn oldest(&self) -> Option<u32> {
        self.segments.first().map(|listed| listed.number)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PREFIX_LEN + self.segments.len() * ENTRY_LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.durable.to_le_bytes());
        out.extend_from_slice(&self.seed.to_le_bytes());
        out.extend_from_slice(&u32::try_from(self.segments.len()).unwrap_or(u32::MAX).to_le_bytes());
        for listed in &self.segments {
            out.extend_from_slice(&listed.number.to_le_bytes());
            out.extend_from_slice(&listed.whole_bytes.to_le_bytes());
            out.extend_from_slice(&listed.first_lsn.to_le_bytes());
        }
        let crc = crc32c(&out[12..]);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None` if it is not whole: an update of it was cut off, or it is damaged.
    fn decode(bytes: &[u8]) -> Result<Option<Manifest>, LogError> {
        let Some(prefix) = bytes.get(..PREFIX_LEN).filter(|prefix| prefix[..8] == MAGIC) else { return Ok(None) };
        let version = u32_at(prefix, 12);
        let end = PREFIX_LEN.saturating_add((u32_at(prefix, 36) as usize).saturating_mul(ENTRY_LEN));
        let covered = bytes.get(12..end).filter(|covered| crc32c(covered) == u32_at(prefix, 8));
        // Another version may have another checksum; a flipped bit in the number alone is damage.
        if version != VERSION && (covered.is_some() || (version ^ VERSION).count_ones() > 1) {
            return Err(LogError::UnknownVersion { what: format!("the manifest (version {version})") });
        }
        let Some(covered) = covered else { return Ok(None) };
        let entries = covered[PREFIX_LEN - 12..].chunks_exact(ENTRY_LEN).map(|entry| Listed {
            number: u32_at(entry, 0),
            whole_bytes: u32_at(entry, 4),
            first_lsn: u64_at(entry, 8),
        });
        Ok(Some(Manifest {
            sequence: u64_at(prefix, 16),
            durable: u64_at(prefix, 24),
            seed: u32_at(prefix, 32),
            segments: entries.collect(),
        }))
    }
}

/// The newest whole manifest of the two, and which of the files holds it.
pub fn newest(files: [Option<Vec<u8>>; 2]) -> Result<Option<(usize, Manifest)>, LogError> {
    let mut found: Option<(usize, Manifest)> = None;
    for (slot, bytes) in files.iter().enumerate() {
        let manifest = bytes.as_ref().map_or(Ok(None), |bytes| Manifest::decode(bytes))?;
        let is_newer = |manifest: &Manifest| found.as_ref().is_none_or(|(_, old)| old.sequence < manifest.sequence);
        if let Some(manifest) = manifest.filter(is_newer) {
            found = Some((slot, manifest));
        }
    }
    Ok(found)
}

/// Bytes of the two files; `None` for one that is not there.
pub fn read(disk: &dyn Disk) -> io::Result<[Option<Vec<u8>>; 2]> {
    let read_one = |name: &str| match disk.open(name) {
        Ok(file) => read_up_to(file.as_ref(), BYTES_MAX).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    Ok([read_one(NAMES[0])?, read_one(NAMES[1])?])
}

/// The two files, open for updates.
pub struct ManifestFiles {
    files: [Arc<dyn DiskFile>; 2],
    /// The file that the next update overwrites.
    next: usize,
    sequence: u64,
}

impl ManifestFiles {
    /// Opens the files, making them if needed. What was read is written again where it was read: after a failed sync
    /// it may be in the memory of the machine only, and the other file is about to be overwritten.
    pub fn open(disk: &dyn Disk, found: Option<&(usize, Manifest)>) -> io::Result<ManifestFiles> {
        let open_one = |name: &str| match disk.open(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(name),
            opened => opened,
        };
        let files = [open_one(NAMES[0])?, open_one(NAMES[1])?];
        disk.sync_dir()?;
        let (mut next, mut sequence) = (0, 0);
        if let Some((slot, manifest)) = found {
            (next, sequence) = (1 - slot, manifest.sequence);
            files[*slot].write_at(0, &manifest.encode())?;
            files[*slot].sync()?;
        }
        Ok(ManifestFiles { files, next, sequence })
    }

    /// The first of a life: both files have contents after it, so that updates find room in both on a full device.
    pub fn begin(&mut self, manifest: &Manifest) -> io::Result<()> {
        self.write(manifest)?;
        if self.files[self.next].is_empty()? { self.write(manifest) } else { Ok(()) }
    }

    /// Writes and syncs a manifest. After an error the other file still has the one before, and the next update tries
    /// the same file again.
    pub fn write(&mut self, manifest: &Manifest) -> io::Result<()> {
        let file = self.files[self.next].as_ref();
        let sequence = self.sequence + 1;
        let mut bytes = Manifest { sequence, ..manifest.clone() }.encode();
        if file.len()? < bytes.len() as u64 {
            bytes.resize((bytes.len() / BLOCK_BYTES + 2) * BLOCK_BYTES, 0);
        }
        file.write_at(0, &bytes)?;
        file.sync()?;
        (self.sequence, self.next) = (sequence, 1 - self.next);
        Ok(())
    }
}

impl Core {
    /// Writes down which segments there are now. The caller holds `files`, and hands in what that guards; a log in
    /// memory has no manifest, and one that was opened on a full device has none until there is room.
    pub fn write_manifest(&self, files: &mut Option<ManifestFiles>) -> io::Result<()> {
        if self.disk.durability() == Durability::Ram {
            return Ok(());
        }
        let (durable, durable_segment) = {
            let gather = self.gather();
            (gather.durable(), gather.durable_segment())
        };
        let ahead_bytes = self.options.segment_bytes;
        let manifest = Manifest::of(self.seed, &self.table(), ahead_bytes, durable, durable_segment);
        match files {
            Some(files) => files.write(&manifest),
            // The start found a full device and no room for it. Its names may find some sooner than its bytes.
            None => match self.begin_manifest(&manifest) {
                Err(error) if is_full(&error) => Ok(()),
                begun => begun.map(|begun| *files = Some(begun)),
            },
        }
    }

    fn begin_manifest(&self, manifest: &Manifest) -> io::Result<ManifestFiles> {
        let found = newest(read(self.disk.as_ref())?).map_err(io::Error::other)?;
        let mut files = ManifestFiles::open(self.disk.as_ref(), found.as_ref())?;
        files.begin(manifest)?;
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimDisk;

    fn manifest(segments: u32) -> Manifest {
        let listed = |number| Listed { number, whole_bytes: 4096, first_lsn: u64::from(number) * 10 };
        Manifest { sequence: 0, seed: 7, durable: 99, segments: (1..=segments).map(listed).collect() }
    }

    #[test]
    fn the_newest_whole_one_is_believed() {
        let disk = SimDisk::new(1);
        let mut files = ManifestFiles::open(&disk, None).unwrap();
        assert_eq!(newest(read(&disk).unwrap()).unwrap(), None, "empty files");
        for count in 1..5 {
            files.write(&manifest(count)).unwrap();
            let (_, found) = newest(read(&disk).unwrap()).unwrap().expect("written");
            assert_eq!(found.segments, manifest(count).segments);
        }
        let (slot, newest_found) = newest(read(&disk).unwrap()).unwrap().expect("written");
        // Whatever happens to the one, the other says what it said before.
        for at in 0..newest_found.encode().len() {
            let damaged = disk.crash(1);
            damaged.flip_bit(NAMES[slot], at, (at % 8) as u8);
            let found = newest(read(&damaged).unwrap()).unwrap().expect("the other one");
            assert_eq!((found.0, found.1.segments.len()), (1 - slot, 3), "byte {at}");
        }
    }

    #[test]
    fn an_update_that_is_cut_off_leaves_the_one_before() {
        let disk = SimDisk::new(1);
        let mut files = ManifestFiles::open(&disk, None).unwrap();
        files.write(&manifest(300)).unwrap();
        files.write(&manifest(299)).unwrap();
        files.write(&manifest(298)).unwrap_or_default();
        disk.crash_at(disk.operations() + 1);
        files.write(&manifest(297)).unwrap_err();
        for seed in 0..40 {
            let (_, found) = newest(read(&disk.crash(seed)).unwrap()).unwrap().expect("one is whole");
            assert!([297, 298].contains(&found.segments.len()), "{}", found.segments.len());
        }
    }

    #[test]
    fn another_version_is_refused_and_a_flipped_bit_is_not_taken_for_one() {
        let good = manifest(3).encode();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Manifest::decode(&bytes), Ok(None), "bit {bit}");
        }
        let mut newer = good.clone();
        newer[12] = 2;
        assert!(matches!(Manifest::decode(&newer), Err(LogError::UnknownVersion { .. })), "with another checksum");
        newer[12] = 3;
        let crc = crc32c(&newer[12..]);
        newer[8..12].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(Manifest::decode(&newer), Err(LogError::UnknownVersion { .. })), "with its checksum");
        for len in 0..good.len() {
            assert_eq!(Manifest::decode(&good[..len]), Ok(None), "cut to {len}");
        }
    }

    #[test]
    fn a_full_disk_takes_a_list_that_got_shorter() {
        let disk = SimDisk::new(1);
        let mut files = ManifestFiles::open(&disk, None).unwrap();
        for count in 1..600 {
            files.write(&manifest(count)).unwrap();
        }
        disk.limit_bytes(Some(0));
        for count in (1..599).rev() {
            files.write(&manifest(count)).unwrap();
        }
    }
}
