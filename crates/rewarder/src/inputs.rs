//! Usage files that callers brought: addressed by the hash of their bytes, under a quota, whole or not at all.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ron_types::limits::rewarder::INPUT_BYTES_COUNTED_MIN as FILE_BYTES_MIN;
use ron_types::{Error, Kind};
use ron_usage::FileIdentity;
use rustix::fs::{Mode, OFlags, openat};

use crate::folders::make_folder;

/// Ending of files that are still being written.
const UNFINISHED: &str = "part";

/// The folder of uploaded inputs.
#[derive(Debug)]
pub struct Inputs {
    /// None in amnesia mode, where nothing is written.
    folder: Option<PathBuf>,
    state: Mutex<InputsState>,
}

#[derive(Debug, Default)]
struct InputsState {
    /// Bytes that finished files and those being written count.
    bytes: u64,
    /// Number of the next unfinished file.
    next: u64,
    /// Runs that were accepted and are not over, by the files that they read.
    pins: BTreeMap<[u8; 32], usize>,
}

impl Inputs {
    /// No inputs are taken: amnesia.
    pub fn nowhere() -> Inputs {
        Inputs { folder: None, state: Mutex::default() }
    }

    /// Opens the folder, removes what was never finished, and adds up the rest.
    pub fn open(folder: PathBuf) -> io::Result<Inputs> {
        make_folder(&folder)?;
        let mut bytes = 0;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let path = entry.path();
            if path.extension().is_some_and(|ending| ending == UNFINISHED) {
                fs::remove_file(path)?;
            } else {
                bytes += counted(entry.metadata()?.len());
            }
        }
        Ok(Inputs { folder: Some(folder), state: Mutex::new(InputsState { bytes, ..InputsState::default() }) })
    }

    fn state(&self) -> MutexGuard<'_, InputsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self) -> Result<&Path, Error> {
        let refused =
            || Error::new(Kind::Degraded, "this node keeps nothing (amnesia): it takes no uploads; name files");
        self.folder.as_deref().ok_or_else(refused)
    }

    /// Bytes that all inputs count, finished or not.
    pub fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// The file with these bytes, if it is here.
    pub fn path(&self, hash: &[u8; 32]) -> Option<PathBuf> {
        let path = self.folder.as_ref()?.join(file_name(hash));
        path.is_file().then_some(path)
    }

    /// The file with these bytes, if it is here, kept from removal as long as the pin lives.
    pub fn pin(self: &Arc<Self>, hash: &[u8; 32]) -> Option<InputPin> {
        let path = self.folder.as_ref()?.join(file_name(hash));
        // Counted before the look, so that a removal either has happened or does not.
        *self.state().pins.entry(*hash).or_default() += 1;
        let pin = InputPin { inputs: Arc::clone(self), hash: *hash, path };
        pin.path.is_file().then_some(pin)
    }

    /// Begins a file that must turn out to have this hash. Blocks.
    pub fn begin(self: &Arc<Self>, hash: [u8; 32], announced: u64, bytes_max: u64) -> Result<Upload, Error> {
        let folder = self.folder()?;
        let number = {
            let mut state = self.state();
            if state.bytes.saturating_add(counted(announced)) > bytes_max {
                return Err(full(bytes_max));
            }
            state.next += 1;
            state.next
        };
        let path = folder.join(format!("{}.{number}.{UNFINISHED}", file_name(&hash)));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path).map_err(|error| disk(&error))?;
        let (inputs, hasher) = (Arc::clone(self), blake3::Hasher::new());
        let mut upload = Upload { inputs, hash, path, file, hasher, bytes: 0, counted: 0, bytes_max };
        upload.count(0)?;
        Ok(upload)
    }

    /// Removes a file; false if it is not here, a conflict if a run that was accepted still needs it. Blocks.
    pub fn remove(&self, hash: &[u8; 32]) -> Result<bool, Error> {
        let path = self.folder()?.join(file_name(hash));
        let mut state = self.state();
        // Looked at under the lock: of two who remove it one has, and it is subtracted once.
        let Ok(found) = fs::metadata(&path) else { return Ok(false) };
        if state.pins.contains_key(hash) {
            let detail = "a run that was accepted reads this input; remove it when the run is sealed";
            return Err(Error::new(Kind::Conflict, detail));
        }
        fs::remove_file(&path).map_err(|error| disk(&error))?;
        state.bytes = state.bytes.saturating_sub(counted(found.len()));
        Ok(true)
    }
}

/// Keeps an input from removal.
#[derive(Debug)]
pub struct InputPin {
    inputs: Arc<Inputs>,
    hash: [u8; 32],
    path: PathBuf,
}

impl InputPin {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for InputPin {
    fn drop(&mut self) {
        let mut state = self.inputs.state();
        if let Some(count) = state.pins.get_mut(&self.hash) {
            *count -= 1;
            if *count == 0 {
                state.pins.remove(&self.hash);
            }
        }
    }
}

/// A file on its way in. Dropped before it is finished, it leaves nothing behind.
#[derive(Debug)]
pub struct Upload {
    inputs: Arc<Inputs>,
    hash: [u8; 32],
    path: PathBuf,
    file: File,
    hasher: blake3::Hasher,
    /// Bytes written.
    bytes: u64,
    /// Bytes that it counts against the quota.
    counted: u64,
    bytes_max: u64,
}

impl Upload {
    /// Writes and hashes the next bytes. Blocks.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let after = self.bytes + bytes.len() as u64;
        self.count(after)?;
        self.bytes = after;
        self.hasher.update(bytes);
        self.file.write_all(bytes).map_err(|error| disk(&error))
    }

    /// Counts so many bytes against the quota, if there is room for them.
    fn count(&mut self, bytes: u64) -> Result<(), Error> {
        let mut state = self.inputs.state();
        let after = state.bytes.saturating_add(counted(bytes) - self.counted);
        if after > self.bytes_max {
            return Err(full(self.bytes_max));
        }
        (state.bytes, self.counted) = (after, counted(bytes));
        Ok(())
    }

    /// Checks the hash, makes the file durable and gives it its name. Blocks.
    pub fn finish(mut self) -> Result<Uploaded, Error> {
        let found = self.hasher.finalize();
        if found.as_bytes() != &self.hash {
            let detail = format!("the {} bytes that came have the BLAKE3 hash {found}; nothing was kept", self.bytes);
            return Err(Error::new(Kind::Integrity, detail));
        }
        let folder = self.inputs.folder()?;
        self.file.sync_all().map_err(|error| disk(&error))?;
        let name = folder.join(file_name(&self.hash));
        let placed = {
            // Under the lock, so that of two who bring the same bytes one gives them their name, and they count once:
            // what the other has brought is given back by its drop.
            let _state = self.inputs.state();
            if name.exists() { Ok(false) } else { fs::rename(&self.path, name).map(|()| true) }
        };
        let is_new = placed.map_err(|error| disk(&error))?;
        if is_new {
            // From here on they are counted for the file, whatever becomes of this call.
            self.counted = 0;
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| disk(&error))?;
        }
        Ok(Uploaded { bytes: self.bytes, is_new })
    }
}

/// What became of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// Length of the file.
    pub bytes: u64,
    /// Whether it was not there before.
    pub is_new: bool,
}

/// Bytes of a file that is here already, brought again: read to their end and compared, written nowhere.
#[derive(Debug)]
pub struct Repeated {
    hash: [u8; 32],
    hasher: blake3::Hasher,
    /// Length of the file; more than that cannot be its bytes.
    length: u64,
    bytes: u64,
}

impl Repeated {
    /// Nothing of the file with this hash and length was read yet.
    pub fn new(hash: [u8; 32], length: u64) -> Repeated {
        Repeated { hash, hasher: blake3::Hasher::new(), length, bytes: 0 }
    }

    /// Hashes the next bytes; refuses those beyond the end of the file.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > self.length {
            let detail = format!("more than the {} bytes that have this BLAKE3 hash; nothing was kept", self.length);
            return Err(Error::new(Kind::Integrity, detail));
        }
        self.hasher.update(bytes);
        Ok(())
    }

    /// Checks that these were the bytes of the file.
    pub fn finish(self) -> Result<Uploaded, Error> {
        let found = self.hasher.finalize();
        if found.as_bytes() != &self.hash {
            let detail = format!("the {} bytes that came have the BLAKE3 hash {found}; nothing was kept", self.bytes);
            return Err(Error::new(Kind::Integrity, detail));
        }
        Ok(Uploaded { bytes: self.bytes, is_new: false })
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Gone already if it was finished.
        let _ = fs::remove_file(&self.path);
        let mut state = self.inputs.state();
        state.bytes = state.bytes.saturating_sub(self.counted);
    }
}

/// Bytes that a file of this length counts.
fn counted(bytes: u64) -> u64 {
    bytes.max(FILE_BYTES_MIN)
}

fn file_name(hash: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}

fn full(bytes_max: u64) -> Error {
    let detail = format!("uploads may take {bytes_max} bytes in all (`rewarder.inputs_bytes_max`); remove some first");
    Error::new(Kind::FrameTooLarge, detail)
}

fn disk(error: &io::Error) -> Error {
    Error::new(Kind::Degraded, format!("the inputs' disk: {error}"))
}

/// The file that a request names, below the folder of inputs, and which one it is: no way out of the folder, neither by
/// its name nor by a link, now or when the file is read.
pub fn below(inputs_dir: Option<&Path>, named: &str) -> Result<(PathBuf, FileIdentity), Error> {
    let refused = |reason: &str| Error::schema(format!("inputs: {named:?}: {reason}"));
    let inputs_dir = inputs_dir.ok_or_else(|| refused("this node has no folder of inputs (`rewarder.inputs_dir`)"))?;
    let path = Path::new(named);
    if named.is_empty() || !path.components().all(|component| matches!(component, Component::Normal(_))) {
        return Err(refused("a path below the folder of inputs is asked for, without `..` and not from the root"));
    }
    let unreadable = |error: io::Error| Error::new(Kind::NotFound, format!("inputs: {named:?}: {error}"));
    let root = inputs_dir.canonicalize().map_err(unreadable)?;
    let found = root.join(path).canonicalize().map_err(unreadable)?;
    let Ok(steps) = found.strip_prefix(&root) else {
        return Err(refused("a link leads out of the folder of inputs"));
    };
    let metadata = open_below(&root, steps).and_then(|file| file.metadata()).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(refused("not a file"));
    }
    Ok((found, FileIdentity::of(&metadata)))
}

/// Opens a file below a folder step by step and follows no link: one that was put in the way after the path was looked
/// at leads nowhere.
fn open_below(root: &Path, steps: &Path) -> io::Result<File> {
    let mut at: OwnedFd = File::open(root)?.into();
    for step in steps {
        // Not waited for: to open a pipe could take for ever.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        at = openat(&at, step, flags, Mode::empty())?;
    }
    Ok(File::from(at))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn hash(bytes: &[u8]) -> [u8; 32] {
        *blake3::hash(bytes).as_bytes()
    }

    #[test]
    fn an_upload_is_kept_only_if_its_bytes_are_what_was_said() {
        let scratch = tempfile::tempdir().expect("a folder");
        let inputs = Arc::new(Inputs::open(scratch.path().to_owned()).expect("opened"));
        const MAX: u64 = 2 * FILE_BYTES_MIN;
        let mut upload = inputs.begin(hash(b"ab"), 2, MAX).expect("begun");
        upload.write(b"a").expect("room");
        upload.write(b"b").expect("room");
        assert_eq!(upload.finish().expect("as said"), Uploaded { bytes: 2, is_new: true });
        assert_eq!(inputs.bytes(), FILE_BYTES_MIN);
        assert_eq!(fs::read(inputs.path(&hash(b"ab")).expect("there")).expect("readable"), b"ab");

        let mut wrong = inputs.begin(hash(b"xy"), 2, MAX).expect("begun");
        wrong.write(b"zz").expect("room");
        assert_eq!(wrong.finish().expect_err("not as said").kind, Kind::Integrity);
        assert!(inputs.path(&hash(b"xy")).is_none());

        let content = vec![b'x'; FILE_BYTES_MIN as usize];
        let mut large = inputs.begin(hash(b"large"), 0, MAX).expect("begun");
        large.write(&content).expect("the last byte of the quota");
        assert_eq!(large.write(b"x").expect_err("over the quota").kind, Kind::FrameTooLarge);
        assert_eq!(inputs.begin(hash(b"1"), 0, MAX).expect_err("an empty file counts too").kind, Kind::FrameTooLarge);
        drop(large);
        let announced = FILE_BYTES_MIN + 1;
        assert_eq!(inputs.begin(hash(b"1"), announced, MAX).expect_err("announced").kind, Kind::FrameTooLarge);
        assert_eq!((inputs.bytes(), fs::read_dir(scratch.path()).expect("there").count()), (FILE_BYTES_MIN, 1));

        let mut twice = inputs.begin(hash(b"ab"), 2, MAX).expect("begun");
        twice.write(b"ab").expect("room");
        assert_eq!(twice.finish().expect("the same"), Uploaded { bytes: 2, is_new: false });
        assert_eq!(inputs.bytes(), FILE_BYTES_MIN);
        assert!(inputs.remove(&hash(b"ab")).expect("removed") && !inputs.remove(&hash(b"ab")).expect("gone"));
        assert_eq!(inputs.bytes(), 0);
    }

    /// Many who bring and remove the same bytes at once: whatever comes out, the count is that of the files.
    #[test]
    fn the_same_bytes_count_once_however_many_bring_them_at_once() {
        let scratch = tempfile::tempdir().expect("a folder");
        let inputs = Arc::new(Inputs::open(scratch.path().to_owned()).expect("opened"));
        for round in 0..50_u32 {
            let content = round.to_le_bytes();
            let (start, news) = (std::sync::Barrier::new(8), AtomicUsize::new(0));
            std::thread::scope(|threads| {
                for _ in 0..8 {
                    threads.spawn(|| {
                        let mut upload = inputs.begin(hash(&content), 4, 1 << 30).expect("begun");
                        upload.write(&content).expect("room");
                        start.wait();
                        let uploaded = upload.finish().expect("as said");
                        news.fetch_add(usize::from(uploaded.is_new), Ordering::Relaxed);
                    });
                }
            });
            assert_eq!((news.into_inner(), inputs.bytes()), (1, FILE_BYTES_MIN));
            let removed = AtomicUsize::new(0);
            std::thread::scope(|threads| {
                for _ in 0..4 {
                    threads.spawn(|| {
                        let has_removed = inputs.remove(&hash(&content)).expect("there or gone");
                        removed.fetch_add(usize::from(has_removed), Ordering::Relaxed);
                    });
                }
            });
            assert_eq!((removed.into_inner(), inputs.bytes()), (1, 0));
        }
    }

    #[test]
    fn bytes_that_are_here_are_compared_to_their_end() {
        let finished = |pieces: &[&[u8]]| {
            let mut repeated = Repeated::new(hash(b"abcd"), 4);
            pieces.iter().try_for_each(|piece| repeated.write(piece)).and_then(|()| repeated.finish())
        };
        assert_eq!(finished(&[b"ab", b"cd"]), Ok(Uploaded { bytes: 4, is_new: false }));
        for wrong in [&[b"abc".as_slice()][..], &[b"abce"], &[], &[b"abcd", b"e"]] {
            assert_eq!(finished(wrong).expect_err("other bytes").kind, Kind::Integrity, "{wrong:?}");
        }
    }

    #[test]
    fn what_a_run_waits_for_is_not_removed() {
        let scratch = tempfile::tempdir().expect("a folder");
        let inputs = Arc::new(Inputs::open(scratch.path().to_owned()).expect("opened"));
        assert!(inputs.pin(&hash(b"ab")).is_none(), "it is not here");
        let mut upload = inputs.begin(hash(b"ab"), 2, 1 << 20).expect("begun");
        upload.write(b"ab").expect("room");
        upload.finish().expect("as said");
        let pins = [inputs.pin(&hash(b"ab")).expect("here"), inputs.pin(&hash(b"ab")).expect("here")];
        for pin in pins {
            assert_eq!(inputs.remove(&hash(b"ab")).expect_err("needed").kind, Kind::Conflict);
            assert_eq!(fs::read(pin.path()).expect("readable"), b"ab");
        }
        assert!(inputs.remove(&hash(b"ab")).expect("removed"));
        assert!(Inputs::nowhere().path(&hash(b"ab")).is_none());
    }

    #[test]
    fn a_start_removes_what_was_never_finished_and_counts_the_rest() {
        let scratch = tempfile::tempdir().expect("a folder");
        let unfinished = scratch.path().join(format!("{}.7.part", file_name(&hash(b"x"))));
        fs::write(&unfinished, "half").expect("written");
        fs::write(scratch.path().join(file_name(&hash(b"ab"))), "ab").expect("written");
        let inputs = Inputs::open(scratch.path().to_owned()).expect("opened");
        assert_eq!((inputs.bytes(), unfinished.exists()), (FILE_BYTES_MIN, false));
    }

    #[test]
    fn no_name_and_no_link_leads_out_of_the_folder() {
        let scratch = tempfile::tempdir().expect("a folder");
        let (inside, outside) = (scratch.path().join("in"), scratch.path().join("secret"));
        fs::create_dir_all(inside.join("deep")).expect("made");
        fs::write(&outside, "x").expect("written");
        fs::write(inside.join("deep/usage.csv"), "x").expect("written");
        std::os::unix::fs::symlink(&outside, inside.join("link")).expect("linked");
        std::os::unix::fs::symlink(inside.join("deep/usage.csv"), inside.join("fine")).expect("linked");
        for (named, is_fine) in [
            ("deep/usage.csv", true),
            ("fine", true),
            ("link", false),
            ("../secret", false),
            ("deep/../../secret", false),
            ("/etc/passwd", false),
            ("", false),
            (".", false),
            ("deep", false),
            ("missing", false),
        ] {
            assert_eq!(below(Some(&inside), named).is_ok(), is_fine, "{named}");
        }
        // As if a link had been put there after the path was looked at.
        assert!(open_below(&inside, Path::new("deep/usage.csv")).is_ok());
        assert!(open_below(&inside, Path::new("fine")).is_err());
        std::os::unix::fs::symlink(inside.join("deep"), inside.join("shallow")).expect("linked");
        assert!(open_below(&inside, Path::new("shallow/usage.csv")).is_err());
        assert!(below(None, "deep/usage.csv").is_err());
    }
}
