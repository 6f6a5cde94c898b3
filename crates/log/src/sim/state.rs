//! What the simulated disk holds: contents with the old image of every unsynced sector, names with every unsynced
//! change.

use super::Survival;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

const SECTOR_BYTES: usize = 512;
const SECTORS_OF_PAGE: usize = 8;

#[derive(Clone, Debug)]
pub enum NameChange {
    Link { name: String, inode: usize },
    Rename { from: String, to: String, inode: usize },
    Unlink { name: String },
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Link { name, inode } => drop(names.insert(name.clone(), *inode)),
            NameChange::Rename { from, to, inode } => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
            NameChange::Unlink { name } => drop(names.remove(name)),
        }
    }
}

/// A file without its name.
#[derive(Clone, Debug, Default)]
pub struct Inode {
    /// Bytes that a reader sees now, synced or not.
    pub content: Vec<u8>,
    /// Contents of the medium for each sector that was written since the last sync.
    dirty: BTreeMap<usize, [u8; SECTOR_BYTES]>,
    /// Contents of the medium for sectors whose sync failed: clean to the kernel, old on the medium.
    lost: BTreeMap<usize, [u8; SECTOR_BYTES]>,
    synced_len: usize,
}

impl Inode {
    fn sector(&self, sector: usize) -> [u8; SECTOR_BYTES] {
        let mut image = [0; SECTOR_BYTES];
        let start = (sector * SECTOR_BYTES).min(self.content.len());
        let end = (start + SECTOR_BYTES).min(self.content.len());
        image[..end - start].copy_from_slice(&self.content[start..end]);
        image
    }

    fn restore(&mut self, sector: usize, image: &[u8; SECTOR_BYTES]) {
        let start = (sector * SECTOR_BYTES).min(self.content.len());
        let end = (start + SECTOR_BYTES).min(self.content.len());
        self.content[start..end].copy_from_slice(&image[..end - start]);
    }

    fn write(&mut self, start: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = start + bytes.len();
        for sector in start / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES {
            if !self.dirty.contains_key(&sector) {
                let image = self.lost.remove(&sector).unwrap_or_else(|| self.sector(sector));
                self.dirty.insert(sector, image);
            }
        }
        if self.content.len() < end {
            self.content.resize(end, 0);
        }
        self.content[start..end].copy_from_slice(bytes);
    }

    fn after_crash(&self, survives: &mut Draw) -> Inode {
        let mut left = self.clone();
        for (sector, image) in &self.lost {
            left.restore(*sector, image);
        }
        for (sector, image) in &self.dirty {
            if !survives.sector(*sector) {
                left.restore(*sector, image);
            }
        }
        if self.content.len() > self.synced_len && !survives.change() {
            left.content.truncate(self.synced_len);
        }
        Inode { synced_len: left.content.len(), content: left.content, ..Inode::default() }
    }
}

/// Random choice of the unsynced parts that survive a power cut.
struct Draw {
    survival: Survival,
    random: u64,
    /// Chance to survive, in 256ths.
    chance: u64,
    file: u64,
}

impl Draw {
    fn new(survival: Survival) -> Draw {
        let seed = match survival {
            Survival::Nothing | Survival::Everything => 0,
            Survival::Sectors(seed) | Survival::Pages(seed) => mix(seed),
        };
        Draw { survival, random: seed, chance: [32, 128, 224][(seed % 3) as usize], file: 0 }
    }

    /// The sectors of a page share its fate, so it must not depend on which of them is asked first.
    fn sector(&self, sector: usize) -> bool {
        let place = |unit: usize| mix(self.random ^ mix(self.file << 32 | unit as u64)) % 256 < self.chance;
        match self.survival {
            Survival::Nothing => false,
            Survival::Everything => true,
            Survival::Sectors(_) => place(sector),
            Survival::Pages(_) => place(sector / SECTORS_OF_PAGE),
        }
    }

    fn change(&mut self) -> bool {
        self.random = mix(self.random);
        match self.survival {
            Survival::Nothing => false,
            Survival::Everything => true,
            Survival::Sectors(_) | Survival::Pages(_) => self.random % 256 < self.chance,
        }
    }
}

#[derive(Clone)]
pub struct State {
    pub seed: u64,
    pub inodes: Vec<Inode>,
    pub names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    unsynced: Vec<NameChange>,
    pub operations: u64,
    pub trace: Vec<String>,
    pub crash_at: Option<u64>,
    pub has_crashed: bool,
    pub writes: u64,
    pub fail_write: Option<u64>,
    pub syncs: u64,
    pub fail_sync: Option<u64>,
    pub bytes_max: Option<u64>,
    pub names_max: Option<usize>,
    /// A stretch of a file that the medium does not give.
    pub unreadable: Option<(usize, Range<usize>)>,
    /// Files open now.
    pub open: usize,
    pub open_max: Option<usize>,
    pub opened_at_once: usize,
}

impl State {
    pub fn new(seed: u64) -> State {
        State {
            seed,
            inodes: Vec::new(),
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
            unsynced: Vec::new(),
            operations: 0,
            trace: Vec::new(),
            crash_at: None,
            has_crashed: false,
            writes: 0,
            fail_write: None,
            syncs: 0,
            fail_sync: None,
            bytes_max: None,
            names_max: None,
            unreadable: None,
            open: 0,
            open_max: None,
            opened_at_once: 0,
        }
    }

    pub fn alive(&self) -> io::Result<()> {
        if self.has_crashed { Err(io::Error::other("the power is gone")) } else { Ok(()) }
    }

    /// Counts a file that is being opened; an error if too many are open.
    pub fn take_descriptor(&mut self) -> io::Result<()> {
        const EMFILE: i32 = 24;
        if self.open_max.is_some_and(|open_max| self.open >= open_max) {
            return Err(io::Error::from_raw_os_error(EMFILE));
        }
        self.open += 1;
        self.opened_at_once = self.opened_at_once.max(self.open);
        Ok(())
    }

    /// An error if the medium does not give this stretch of a file.
    pub fn readable(&self, inode: usize, wanted: Range<usize>) -> io::Result<()> {
        const EIO: i32 = 5;
        let meets = |lost: &Range<usize>| lost.start < wanted.end && wanted.start < lost.end;
        let is_lost = self.unreadable.as_ref().is_some_and(|(of, lost)| *of == inode && meets(lost));
        if is_lost { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(()) }
    }

    /// Counts an operation; true if the power goes during it.
    fn begin(&mut self, what: String) -> io::Result<bool> {
        self.alive()?;
        self.trace.push(what);
        self.has_crashed = self.crash_at == Some(self.operations);
        self.operations += 1;
        Ok(self.has_crashed)
    }

    /// Bytes of all named files.
    pub fn bytes(&self) -> u64 {
        self.names.values().map(|inode| self.inodes[*inode].content.len() as u64).sum()
    }

    /// An error if there is no room for another name.
    pub fn take_name(&self, name: &str) -> io::Result<()> {
        let is_full = self.names_max.is_some_and(|names_max| self.names.len() >= names_max);
        if is_full && !self.names.contains_key(name) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    pub fn new_inode(&mut self) -> usize {
        self.inodes.push(Inode::default());
        self.inodes.len() - 1
    }

    pub fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        self.begin(format!("{change:?}"))?;
        change.apply(&mut self.names);
        self.unsynced.push(change);
        self.alive()
    }

    pub fn sync_names(&mut self) -> io::Result<()> {
        if self.begin("sync the directory".to_owned())? {
            return self.alive();
        }
        if self.fails_sync() {
            self.unsynced.clear();
            return Err(io::Error::other("simulated EIO of a sync"));
        }
        self.unsynced.clear();
        self.synced_names = self.names.clone();
        Ok(())
    }

    pub fn write(&mut self, inode: usize, name: &str, start: usize, bytes: &[u8]) -> io::Result<()> {
        self.begin(format!("write {name} at {start}, {} bytes", bytes.len()))?;
        let number = self.writes;
        self.writes += 1;
        let growth = (start + bytes.len()).saturating_sub(self.inodes[inode].content.len()) as u64;
        if self.bytes_max.is_some_and(|bytes_max| growth > 0 && self.bytes() + growth > bytes_max) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if self.fail_write == Some(number) {
            self.inodes[inode].write(start, &bytes[..bytes.len() / 2]);
            return Err(io::Error::other("simulated EIO of a write"));
        }
        self.inodes[inode].write(start, bytes);
        self.alive()
    }

    pub fn sync(&mut self, inode: usize, name: &str) -> io::Result<()> {
        if self.begin(format!("sync {name}"))? {
            return self.alive();
        }
        let fails = self.fails_sync();
        let inode = &mut self.inodes[inode];
        let dirty = std::mem::take(&mut inode.dirty);
        if fails {
            inode.lost.extend(dirty);
            return Err(io::Error::other("simulated EIO of a sync"));
        }
        inode.synced_len = inode.content.len();
        Ok(())
    }

    fn fails_sync(&mut self) -> bool {
        self.syncs += 1;
        self.fail_sync == Some(self.syncs - 1)
    }

    /// Changes the medium behind everybody's back.
    pub fn change(&mut self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let inode = self.names.get(name).copied().expect("a test names a file that exists");
        change(&mut self.inodes[inode].content);
    }

    /// As another process finds it, on a machine that goes on.
    pub fn after_restart(&self) -> State {
        State { open: 0, crash_at: None, fail_write: None, fail_sync: None, ..self.clone() }
    }

    pub fn after_crash(&self, survival: Survival) -> State {
        let mut draw = Draw::new(survival);
        let mut names = self.synced_names.clone();
        for change in &self.unsynced {
            if draw.change() {
                change.apply(&mut names);
            }
        }
        let mut inodes = Vec::with_capacity(self.inodes.len());
        for (number, inode) in self.inodes.iter().enumerate() {
            draw.file = number as u64;
            inodes.push(if names.values().any(|used| *used == number) {
                inode.after_crash(&mut draw)
            } else {
                Inode::default()
            });
        }
        let (bytes_max, open_max) = (self.bytes_max, self.open_max);
        State { inodes, synced_names: names.clone(), names, bytes_max, open_max, ..State::new(self.seed) }
    }
}

/// One step of a good enough generator.
pub fn mix(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
