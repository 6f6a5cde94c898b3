//! The folder outside the clone that keeps compiled crates of others between runs, as a hosted CI does.
//!
//! Crates of this repository are always built anew: cargo names their artifacts by the path inside the workspace and
//! trusts times of modification, so a clone that is older than the last build in the folder would pass for built.

use crate::tree;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Where the folder is, if a caller wants to say so.
const PLACE: &str = "MACRONODE_CI_CACHE";
/// The most that stays on disk between two runs.
const BYTES_MAX: u64 = 15 << 30;
/// Locked while a run uses the folder.
const LOCK: &str = "lock";
/// Names the machine's start while a run uses the folder; there after it only if the run did not come to its end.
const IN_USE: &str = "in-use";
const MACHINE_START: &str = "/proc/sys/kernel/random/boot_id";
/// End of the name of a folder that is being removed.
const DROPPED: &str = "dropped";
/// Where cargo notes of which sources an artifact was built.
const FINGERPRINTS: &str = ".fingerprint";
/// How deep below a target folder the notes lie: `models/debug`, `sanitizers/x86_64-unknown-linux-gnu/debug`.
const DEPTH_MAX: usize = 4;

/// A target folder of cargo that holds no artifact of our own crates.
pub struct Cache {
    home: PathBuf,
    folder: PathBuf,
    own: Own,
    /// Held until the run has ended.
    lock: File,
}

/// Names under which artifacts of our own crates are found.
struct Own {
    packages: BTreeSet<String>,
    targets: BTreeSet<String>,
}

impl Cache {
    /// The folder for this compiler and these versions of dependencies, ready for a run. One that cannot be used is
    /// dropped; an error says why there is none.
    pub fn open(root: &Path) -> Result<Cache> {
        let home = home(|name| std::env::var_os(name))
            .context("neither HOME nor XDG_CACHE_HOME nor MACRONODE_CI_CACHE is set")?;
        let is_outside = home.is_absolute() && !home.starts_with(root);
        ensure!(is_outside, "{} is no absolute path outside the checkout", home.display());
        let own = Own::read(root)?;
        Cache::open_in(home, &key(root)?, own)
    }

    fn open_in(home: PathBuf, key: &str, own: Own) -> Result<Cache> {
        fs::create_dir_all(&home).with_context(|| home.display().to_string())?;
        let lock = File::create(home.join(LOCK)).with_context(|| home.display().to_string())?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another run uses {}", home.display()),
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| home.display().to_string()),
        }
        let cache = Cache { folder: home.join(key), home, own, lock };
        cache.remove_dropped()?;
        if let Err(error) = cache.prepare() {
            println!("{} is dropped: {error:#}", cache.folder.display());
            drop_whole(&cache.folder)?;
            cache.prepare()?;
        }
        Ok(cache)
    }

    /// Has every program that is started from now on hold the lock, too.
    pub fn lock_for_programs(&self) -> Result<()> {
        rustix::io::fcntl_setfd(&self.lock, rustix::io::FdFlags::empty()).context("the lock of the folder")
    }

    /// The target folder for cargo.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn prepare(&self) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        let mark = self.folder.join(IN_USE);
        let machine_start = fs::read_to_string(MACHINE_START).unwrap_or_default();
        // Cargo syncs nothing and believes what it finds. A run that was killed left files behind that are as it wrote
        // them; a machine that was reset under a run may have left empty ones.
        let is_whole = fs::read_to_string(&mark).map_or(true, |earlier| earlier == machine_start);
        ensure!(is_whole, "the machine was reset while a run used it");
        forget(&self.folder, &self.own)?;
        // Its time of modification says when it was used last.
        fs::write(self.folder.join("used"), "").context("it cannot be written")?;
        fs::write(&mark, machine_start).context("it cannot be written")?;
        sync(&mark)?;
        sync(&self.folder)
    }

    /// Leaves what the next run can use: no artifact of ours, in all no more than the limit, and all of it on disk.
    pub fn shrink(&self) -> Result<()> {
        self.shrink_to(BYTES_MAX)?;
        if self.folder.is_dir() {
            let folder = File::open(&self.folder).with_context(|| self.folder.display().to_string())?;
            rustix::fs::syncfs(&folder).context("what was compiled cannot be synced")?;
            remove(&self.folder.join(IN_USE))?;
        }
        Ok(())
    }

    /// What an earlier run began to drop.
    fn remove_dropped(&self) -> Result<()> {
        let is_dropped = |folder: &PathBuf| folder.extension().is_some_and(|end| end == DROPPED);
        folders_in(&self.home)?.iter().filter(|folder| is_dropped(folder)).try_for_each(|folder| remove(folder))
    }

    fn shrink_to(&self, bytes_max: u64) -> Result<()> {
        forget(&self.folder, &self.own)?;
        let mut kept = self.kept()?;
        // The newest first, and of equal ones the one that was just used.
        kept.sort_by_key(|(used, folder)| (std::cmp::Reverse(*used), *folder != self.folder));
        let mut bytes = 0;
        for (_, folder) in kept {
            bytes += size(&folder)?;
            if bytes > bytes_max {
                // On the other output: the total of tests is the last line of this one.
                eprintln!("{} is dropped: more than {} MiB in all", folder.display(), bytes_max >> 20);
                drop_whole(&folder)?;
            }
        }
        Ok(())
    }

    fn kept(&self) -> Result<Vec<(SystemTime, PathBuf)>> {
        let mut kept = Vec::new();
        for folder in folders_in(&self.home)?.into_iter().filter(|folder| is_key(folder)) {
            let used = fs::metadata(folder.join("used")).and_then(|file| file.modified());
            kept.push((used.unwrap_or(SystemTime::UNIX_EPOCH), folder));
        }
        Ok(kept)
    }
}

fn home(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let variable = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // What the environment gives a whole session holds only if it is absolute.
    let cache_home = || {
        variable("XDG_CACHE_HOME").filter(|home| home.is_absolute()).or_else(|| Some(variable("HOME")?.join(".cache")))
    };
    variable(PLACE).or_else(|| Some(cache_home()?.join("macronode-ci")))
}

/// Other compilers and other versions of dependencies have a folder of their own, so that none grows for ever.
fn key(root: &Path) -> Result<String> {
    let compiler = Command::new("rustc").arg("-vV").current_dir(root).output().context("rustc -vV")?;
    ensure!(compiler.status.success(), "rustc -vV: {}", compiler.status);
    let mut hasher = DefaultHasher::new();
    compiler.stdout.hash(&mut hasher);
    for lock in super::WORKSPACES.map(|manifest| root.join(manifest).with_extension("lock")) {
        if lock.is_file() {
            fs::read(&lock).with_context(|| lock.display().to_string())?.hash(&mut hasher);
        }
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// Whether a folder is one of ours: the place may be named by a caller who keeps other things there.
fn is_key(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) && folder.join("used").is_file()
}

impl Own {
    fn read(root: &Path) -> Result<Own> {
        let mut own = Own { packages: BTreeSet::new(), targets: BTreeSet::new() };
        let manifests = tree::read(root)?.into_iter().filter(|file| file.path.ends_with("Cargo.toml"));
        for manifest in manifests {
            let text = manifest.text.unwrap_or_default();
            let table: toml::Table = text.parse().with_context(|| manifest.path.clone())?;
            own.add(&table);
        }
        ensure!(!own.packages.is_empty(), "no package in {}", root.display());
        Ok(own)
    }

    fn add(&mut self, manifest: &toml::Table) {
        let name = |table: &toml::Value| table.get("name").and_then(toml::Value::as_str).map(str::to_owned);
        let Some(package) = manifest.get("package").and_then(name) else { return };
        self.targets.insert(package.replace('-', "_"));
        self.packages.insert(package);
        self.targets.extend(manifest.get("lib").and_then(name).map(|lib| lib.replace('-', "_")));
    }

    /// Whether a file among the dependencies is ours: `libron_types-0123.rlib`. Programs are only ever ours; build
    /// scripts of others lie elsewhere.
    fn made(&self, file: &Path) -> bool {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let Some((name, _hash)) = stem.rsplit_once('-') else { return false };
        let name = name.strip_prefix("lib").filter(|_| file.extension().is_some_and(|end| end != "d")).unwrap_or(name);
        file.extension().is_none() || self.targets.contains(name)
    }
}

/// Removes the notes on our own crates below a target folder, and what was built of them.
fn forget(target: &Path, own: &Own) -> Result<()> {
    for profile in profiles(target, DEPTH_MAX)? {
        for note in entries(&profile.join(FINGERPRINTS))? {
            let name = note.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.rsplit_once('-').is_some_and(|(package, _hash)| own.packages.contains(package)) {
                remove(&note)?;
            }
        }
        for file in entries(&profile.join("deps"))? {
            if own.made(&file) {
                remove(&file)?;
            }
        }
        remove(&profile.join("incremental"))?;
        for file in entries(&profile)?.into_iter().filter(|entry| entry.is_file()) {
            remove(&file)?;
        }
    }
    Ok(())
}

/// The folders below with notes of cargo, such as `debug`.
fn profiles(folder: &Path, depth: usize) -> Result<Vec<PathBuf>> {
    if folder.join(FINGERPRINTS).is_dir() {
        return Ok(vec![folder.to_owned()]);
    }
    let mut found = Vec::new();
    if depth > 0 {
        for inner in folders_in(folder)? {
            found.extend(profiles(&inner, depth - 1)?);
        }
    }
    Ok(found)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let listed = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    listed.map(|entry| Ok(entry.with_context(|| folder.display().to_string())?.path())).collect()
}

fn folders_in(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(entries(folder)?.into_iter().filter(|path| path.is_dir() && !path.is_symlink()).collect())
}

fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for path in entries(folder)? {
        let about = fs::symlink_metadata(&path).with_context(|| path.display().to_string())?;
        bytes += if about.is_dir() { size(&path)? } else { about.len() };
    }
    Ok(bytes)
}

/// Removes a target folder under another name: cargo would trust one that is half there.
fn drop_whole(folder: &Path) -> Result<()> {
    let dropped = folder.with_extension(DROPPED);
    remove(&dropped)?;
    if folder.exists() {
        fs::rename(folder, &dropped).with_context(|| folder.display().to_string())?;
    }
    remove(&dropped)
}

fn sync(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.with_context(|| path.display().to_string())
}

fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => return Ok(()),
    };
    removed.with_context(|| format!("removing {}", path.display()))
}

#[cfg(test)]
mod tests;
