//! A disk made of faults: it counts its operations, fails or stops at any of them, and shows what a power cut leaves.
//!
//! Everything follows from seeds. Public, because the tests of whoever stores something in a log need it too.

use crate::disk::{Claim, Disk, DiskFile, Durability};
use state::{NameChange, State};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod state;

/// Part of the unsynced writes that survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Only what was synced.
    Nothing,
    /// All of it, as if only the process had died.
    Everything,
    /// Any subset of the unsynced 512-byte sectors and of the unsynced changes of names.
    Sectors(u64),
    /// As `Sectors`, in pages of 4 KiB.
    Pages(u64),
}

impl Survival {
    /// 0 is nothing, 1 is everything; after that sectors and pages take turns.
    pub fn from_seed(seed: u64) -> Survival {
        match seed {
            0 => Survival::Nothing,
            1 => Survival::Everything,
            _ if seed.is_multiple_of(2) => Survival::Sectors(seed),
            _ => Survival::Pages(seed),
        }
    }
}

/// A simulated disk. Clones are the same disk; [`SimDisk::crash`] gives another one.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    claim: Arc<Claim>,
}

impl SimDisk {
    /// A disk without files.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::from_state(State::new(seed))
    }

    fn from_state(state: State) -> SimDisk {
        SimDisk { state: Arc::new(Mutex::new(state)), claim: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk as it is found when the power comes back; see [`Survival::from_seed`].
    pub fn crash(&self, seed: u64) -> SimDisk {
        self.crash_with(Survival::from_seed(seed))
    }

    /// The disk as it is found when the power comes back.
    pub fn crash_with(&self, survival: Survival) -> SimDisk {
        SimDisk::from_state(self.state().after_crash(survival))
    }

    /// The disk as the next process finds it: the machine goes on, so everything written is seen, synced or not. What a
    /// failed sync dropped is seen too, until the power goes.
    pub fn restart(&self) -> SimDisk {
        SimDisk::from_state(self.state().after_restart())
    }

    /// Operations so far: creations, writes, syncs, renames, removals. Reading does not count.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// What operation `number` was, for a message.
    pub fn operation(&self, number: u64) -> String {
        let state = self.state();
        usize::try_from(number).ok().and_then(|index| state.trace.get(index).cloned()).unwrap_or_default()
    }

    /// The power goes at operation `number` (the first is 0): it has no certain effect, and no later one happens.
    pub fn crash_at(&self, number: u64) {
        self.state().crash_at = Some(number);
    }

    /// Whether the power was cut.
    pub fn has_crashed(&self) -> bool {
        self.state().has_crashed
    }

    /// Number of writes since the disk was made.
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    /// Syncs so far, of files and of the directory.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Write `number` (the first is 0) is half done and gives EIO.
    pub fn fail_write(&self, number: u64) {
        self.state().fail_write = Some(number);
    }

    /// Sync `number` (the first is 0) gives EIO; what it should have written counts as clean, and is lost.
    pub fn fail_sync(&self, number: u64) {
        self.state().fail_sync = Some(number);
    }

    /// All files together may have this many bytes; `None` for no bound.
    pub fn limit_bytes(&self, bytes_max: Option<u64>) {
        self.state().bytes_max = bytes_max;
    }

    /// There may be this many files; `None` for no bound.
    pub fn limit_names(&self, names_max: Option<usize>) {
        self.state().names_max = names_max;
    }

    /// This many files may be open at once; `None` for no bound.
    pub fn limit_open(&self, open_max: Option<usize>) {
        self.state().open_max = open_max;
    }

    /// Reading this stretch of a file gives EIO from now on, as a bad sector does.
    pub fn fail_reads(&self, name: &str, stretch: Range<usize>) {
        let mut state = self.state();
        let inode = state.names.get(name).copied().expect("a test names a file that exists");
        state.unreadable = Some((inode, stretch));
    }

    /// Most files that were open at once since the disk was made.
    pub fn opened_at_once(&self) -> usize {
        self.state().opened_at_once
    }

    /// Cuts a file to this length, as a careless copy or a repaired file system does.
    pub fn cut(&self, name: &str, len: usize) {
        self.state().change(name, |content| content.truncate(len));
    }

    /// Writes over a stretch of a file behind everybody's back.
    pub fn overwrite(&self, name: &str, offset: usize, bytes: &[u8]) {
        self.state().change(name, |content| content[offset..offset + bytes.len()].copy_from_slice(bytes));
    }

    /// Flips one bit of a file.
    pub fn flip_bit(&self, name: &str, offset: usize, bit: u8) {
        self.state().change(name, |content| content[offset] ^= 1 << bit);
    }

    /// Fills a stretch of a file with zeros, as a lost write does.
    pub fn zero(&self, name: &str, offset: usize, len: usize) {
        self.state().change(name, |content| content[offset..offset + len].fill(0));
    }

    /// The bytes of a file, if there is one of this name.
    pub fn bytes_of(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(name).map(|inode| state.inodes[*inode].content.clone())
    }

    /// Names of all files, sorted.
    pub fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }
}

impl Disk for SimDisk {
    fn durability(&self) -> Durability {
        Durability::Fsynced
    }

    fn secret(&self) -> u32 {
        state::mix(self.state().seed) as u32
    }

    fn claim(&self) -> bool {
        self.claim.take()
    }

    fn unclaim(&self) {
        self.claim.give_back();
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.state();
        Ok(state.bytes_max.map_or(u64::MAX, |bytes_max| bytes_max.saturating_sub(state.bytes())))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.state().alive()?;
        Ok(self.names())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        state.take_name(name)?;
        let inode = state.new_inode();
        state.take_descriptor()?;
        let file = SimFile { state: Arc::clone(&self.state), inode, name: name.to_owned() };
        let changed = state.change_name(NameChange::Link { name: name.to_owned(), inode });
        // The file locks the state when it goes.
        drop(state);
        changed.map(|()| Arc::new(file) as Arc<dyn DiskFile>)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        state.alive()?;
        let inode = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        state.take_descriptor()?;
        Ok(Arc::new(SimFile { state: Arc::clone(&self.state), inode, name: name.to_owned() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        let inode = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.change_name(NameChange::Rename { from: from.to_owned(), to: to.to_owned(), inode })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change_name(NameChange::Unlink { name: name.to_owned() })
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.state().sync_names()
    }
}

struct SimFile {
    state: Arc<Mutex<State>>,
    inode: usize,
    name: String,
}

impl SimFile {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        let state = self.state();
        state.alive()?;
        Ok(state.inodes[self.inode].content.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        state.alive()?;
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        state.readable(self.inode, start..start + buffer.len())?;
        let content = state.inodes[self.inode].content.get(start..start + buffer.len());
        buffer.copy_from_slice(content.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        self.state().write(self.inode, &self.name, start, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.state().sync(self.inode, &self.name)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.state().open -= 1;
    }
}

#[cfg(test)]
mod tests;
