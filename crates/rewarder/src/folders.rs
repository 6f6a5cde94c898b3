//! Folders of artifacts, one for each epoch: on the file system or in memory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ron_log::{Disk, RamDisk};

use crate::folder::Folder;

/// Where the artifacts of epochs lie. Names are epoch ids, which are checked before they come here.
pub trait Folders: Send + Sync {
    /// The folder of an epoch, made if it is not there; the entry of a new one is durable.
    fn make(&self, name: &str) -> io::Result<Arc<dyn Disk>>;
    /// The folder of an epoch; `NotFound` if it is not there.
    fn open(&self, name: &str) -> io::Result<Arc<dyn Disk>>;
    /// Names of all folders, in no order.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Removes a folder with all its files; fine if it is not there.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Bytes of all files of a folder.
    fn bytes(&self, name: &str) -> io::Result<u64> {
        let disk = self.open(name)?;
        disk.list()?.iter().map(|file| disk.open(file)?.len()).sum()
    }
    /// Bytes of memory that they take; 0 for those on a file system.
    fn memory_bytes(&self) -> u64 {
        0
    }
}

/// Folders below one folder of the file system.
#[derive(Clone, Debug)]
pub struct RealFolders {
    path: PathBuf,
}

impl RealFolders {
    /// Makes the folder that holds them.
    pub fn open(path: PathBuf) -> io::Result<RealFolders> {
        make_folder(&path)?;
        if let Some(parent) = path.parent() {
            File::open(parent)?.sync_all()?;
        }
        Ok(RealFolders { path })
    }
}

impl Folders for RealFolders {
    fn make(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        let path = self.path.join(name);
        make_folder(&path)?;
        File::open(&self.path)?.sync_all()?;
        Ok(Arc::new(Folder::open(path)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        Ok(Arc::new(Folder::open(self.path.join(name))?))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        names_in(&self.path)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_dir_all(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => File::open(&self.path)?.sync_all(),
        }
    }
}

/// Makes a folder that only its owner can look into.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn names_in(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.extend(entry?.file_name().into_string().ok());
    }
    Ok(names)
}

/// Folders in memory, gone with the process.
#[derive(Default)]
pub struct RamFolders {
    folders: Mutex<BTreeMap<String, Arc<RamDisk>>>,
}

impl RamFolders {
    fn folders(&self) -> MutexGuard<'_, BTreeMap<String, Arc<RamDisk>>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Folders for RamFolders {
    fn make(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        let disk = Arc::clone(self.folders().entry(name.to_owned()).or_insert_with(|| Arc::new(RamDisk::new())));
        Ok(disk)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        let disk = self.folders().get(name).cloned();
        disk.map(|disk| disk as Arc<dyn Disk>).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.folders().keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.folders().remove(name);
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.folders().values().map(|disk| disk.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(folders: &dyn Folders) {
        assert_eq!(folders.open("e1").err().map(|error| error.kind()), Some(io::ErrorKind::NotFound));
        let disk = folders.make("e1").expect("made");
        let file = disk.create("run.json.new").expect("made");
        file.write_at(0, b"{}").expect("written");
        file.sync().expect("synced");
        disk.rename("run.json.new", "run.json").expect("renamed");
        disk.sync_dir().expect("synced");
        let again = folders.open("e1").expect("there").open("run.json").expect("there");
        let mut bytes = [0; 2];
        again.read_at(0, &mut bytes).expect("read");
        assert_eq!((&bytes, folders.names().expect("listed")), (b"{}", vec!["e1".to_owned()]));
        folders.remove("e1").expect("removed");
        folders.remove("e1").expect("removed before");
        assert!(folders.names().expect("listed").is_empty());
    }

    #[test]
    fn folders_are_made_opened_and_removed_alike_on_disk_and_in_memory() {
        let scratch = tempfile::tempdir().expect("a folder");
        check(&RealFolders::open(scratch.path().join("epochs")).expect("made"));
        check(&RamFolders::default());
    }
}
