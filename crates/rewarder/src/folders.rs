//! Folders of artifacts, one for each epoch: on the file system or in memory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ron_log::{Disk, RamDisk};

use crate::artifacts::{self, MANIFEST, SIGNATURES, TEMPORARY};
use crate::epoch::EpochId;
use crate::folder::Folder;
use crate::manifest::{MANIFEST_BYTES_MAX, Manifest, commitment};
use crate::sealed::read_file;

/// Where the artifacts of epochs lie. Names are epoch ids, which are checked before they come here.
pub trait Folders: Send + Sync {
    /// The folder of an epoch, made if it is not there; the entry of a new one is durable.
    fn make(&self, name: &str) -> io::Result<Arc<dyn Disk>>;
    /// The folder of an epoch; `NotFound` if it is not there.
    fn open(&self, name: &str) -> io::Result<Arc<dyn Disk>>;
    /// Names of all folders that an epoch may have, in no order; what else lies there is somebody else's.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Removes the files that a run may have, and the folder if nothing else is in it; fine if it is not there.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Keeps a whole run under a name that is no epoch's, and gives that name; none where there is no whole run, the
    /// same run is kept already, or nothing outlives the process anyway.
    fn set_aside(&self, _name: &str) -> io::Result<Option<String>> {
        Ok(None)
    }
    /// Bytes of the files that a run may have in a folder.
    fn bytes(&self, name: &str) -> io::Result<u64> {
        let disk = self.open(name)?;
        let len = |file: &String| match disk.open(file).and_then(|file| file.len()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            len => len,
        };
        disk.list()?.iter().filter(|file| is_artifact(file)).map(len).sum()
    }
    /// Whether a folder holds files that no run of this epoch has: somebody put them there, and they stay.
    fn is_foreign(&self, name: &str) -> io::Result<bool> {
        let disk = match self.open(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(true),
            disk => disk?,
        };
        let files = disk.list()?;
        if files.iter().any(|file| !is_artifact(file)) {
            return Ok(true);
        }
        // A copy of another epoch's folder, under a name of its own.
        let manifest = read_file(&*disk, MANIFEST, MANIFEST_BYTES_MAX).ok();
        let manifest = manifest.and_then(|bytes| serde_json::from_slice::<Manifest>(&bytes).ok());
        Ok(manifest.is_some_and(|manifest| manifest.epoch.as_str() != name))
    }
}

/// Whether a file of this name may be one of a run, whole or not.
fn is_artifact(name: &str) -> bool {
    let whole = name.strip_prefix(TEMPORARY).unwrap_or(name);
    artifacts::ALL.contains(&whole) || whole == SIGNATURES
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
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name().into_string().ok().filter(|name| name.parse::<EpochId>().is_ok());
            match name.filter(|_| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
                Some(name) => names.push(name),
                None => tracing::warn!(path = %entry.path().display(), "this is of no epoch, and is passed over"),
            }
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path.join(name);
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        let mut has_others = false;
        for entry in entries {
            let entry = entry?;
            let is_ours = !entry.file_type()?.is_dir() && entry.file_name().to_str().is_some_and(is_artifact);
            if is_ours {
                fs::remove_file(entry.path())?;
            }
            has_others |= !is_ours;
        }
        if has_others {
            tracing::warn!(path = %path.display(), "files that are of no run stay here");
        } else {
            fs::remove_dir(&path)?;
        }
        File::open(&self.path)?.sync_all()
    }

    fn set_aside(&self, name: &str) -> io::Result<Option<String>> {
        let manifest = match read_file(&*self.open(name)?, MANIFEST, MANIFEST_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            manifest => manifest?,
        };
        // By what the run is, so that starts that find it again and again keep it once.
        let hash = blake3::Hash::from(commitment(&manifest)).to_hex();
        let aside = format!(".{name}.{}", &hash[..16]);
        if self.path.join(&aside).exists() {
            return Ok(None);
        }
        fs::rename(self.path.join(name), self.path.join(&aside))?;
        File::open(&self.path)?.sync_all()?;
        Ok(Some(aside))
    }
}

/// Makes a folder that only its owner can look into.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(folders: &dyn Folders) {
        assert_eq!(folders.open("e1").err().map(|error| error.kind()), Some(io::ErrorKind::NotFound));
        let disk = folders.make("e1").expect("made");
        let file = disk.create("tmp-run.json").expect("made");
        file.write_at(0, b"{}").expect("written");
        file.sync().expect("synced");
        disk.rename("tmp-run.json", "run.json").expect("renamed");
        disk.sync_dir().expect("synced");
        let again = folders.open("e1").expect("there").open("run.json").expect("there");
        let mut bytes = [0; 2];
        again.read_at(0, &mut bytes).expect("read");
        assert_eq!((&bytes, folders.names().expect("listed")), (b"{}", vec!["e1".to_owned()]));
        assert_eq!((folders.bytes("e1").expect("measured"), folders.is_foreign("e1").expect("looked")), (2, false));
        disk.create("notes.txt").expect("made").write_at(0, b"mine").expect("written");
        assert_eq!((folders.bytes("e1").expect("measured"), folders.is_foreign("e1").expect("looked")), (2, true));
        assert!(!folders.is_foreign("e2").expect("there is none"));
        disk.remove("notes.txt").expect("removed");
        folders.remove("e1").expect("removed");
        folders.remove("e1").expect("removed before");
        assert!(folders.names().expect("listed").is_empty());
    }

    #[test]
    fn what_is_of_no_epoch_is_passed_over() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folders = RealFolders::open(scratch.path().join("epochs")).expect("made");
        let at = |name: &str| scratch.path().join("epochs").join(name);
        fs::write(at("notes.txt"), "mine").expect("written");
        fs::write(at("2026-11"), "a file with the name of an epoch").expect("written");
        fs::create_dir_all(at("lost+found")).expect("made");
        fs::create_dir_all(at("backup/deep")).expect("made");
        std::os::unix::fs::symlink(scratch.path(), at("link")).expect("linked");
        folders.make("e1").expect("made");
        let mut names = folders.names().expect("listed");
        names.sort();
        assert_eq!(names, ["backup", "e1"]);
        for (name, is_foreign) in [("backup", true), ("2026-11", true), ("e1", false)] {
            assert_eq!(folders.is_foreign(name).expect("looked"), is_foreign, "{name}");
        }
        fs::create_dir_all(at("e1/notes")).expect("made");
        assert_eq!(folders.bytes("e1").expect("a folder inside costs nothing"), 0);
    }

    #[test]
    fn folders_are_made_opened_and_removed_alike_on_disk_and_in_memory() {
        let scratch = tempfile::tempdir().expect("a folder");
        check(&RealFolders::open(scratch.path().join("epochs")).expect("made"));
        check(&RamFolders::default());
    }
}
