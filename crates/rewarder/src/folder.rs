//! The folder of one run on the file system.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ron_log::{Disk, DiskFile, Durability};

/// A folder of plain files. It has no lock and no reserve of descriptors, unlike the folder of a log: it is written
/// once, then copied, published and read by anybody, perhaps from a medium that cannot be written.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens a folder that is there.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Folder> {
        let path = path.into();
        if fs::metadata(&path)?.is_dir() {
            return Ok(Folder { path });
        }
        Err(io::Error::new(io::ErrorKind::NotADirectory, "not a folder"))
    }

    /// Makes the folder if needed, with an entry that survives a loss of power.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<Folder> {
        let path = path.into();
        let absolute = std::path::absolute(&path)?;
        let missing: Vec<&Path> = absolute.ancestors().take_while(|folder| !folder.exists()).collect();
        fs::create_dir_all(&path)?;
        for parent in missing.iter().filter_map(|folder| folder.parent()) {
            File::open(parent)?.sync_all()?;
        }
        Folder::open(path)
    }
}

impl Disk for Folder {
    fn durability(&self) -> Durability {
        Durability::Fsynced
    }

    fn secret(&self) -> u32 {
        // Only a log asks for a secret, and no log lives here.
        0
    }

    fn claim(&self) -> bool {
        true
    }

    fn unclaim(&self) {}

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(self.path.join(name))?;
        Ok(Arc::new(PlainFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        open_plain(&self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

/// Opens a file that is there to be read.
pub(crate) fn open_plain(path: &Path) -> io::Result<Arc<dyn DiskFile>> {
    // To open a pipe or a device of a stranger's folder could wait for ever.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file"));
    }
    Ok(Arc::new(PlainFile(File::open(path)?)))
}

struct PlainFile(File);

impl DiskFile for PlainFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}
