//! The committed seeds: read, compared with what the encoders make, and written anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use fuzz::Target;

/// Largest seed: small ones leave more of the inputs to what is in them.
const SEED_BYTES_MAX: usize = 4096;
/// What to do about seeds that do not fit any more.
pub const WRITE_ANEW: &str =
    "cargo nextest run --workspace -E 'package(fuzz) & test(write_seeds)' --run-ignored only writes the seeds anew";

/// The folder of the package; asked at run time, so that a shared target folder cannot point elsewhere.
pub fn package() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()))
}

fn folder(target: &str) -> PathBuf {
    package().join("seeds").join(target)
}

/// The seeds of a target, by the names of their files.
pub fn committed(target: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = folder(target);
    let Ok(files) = fs::read_dir(&folder) else { return BTreeMap::new() };
    let read = |file: fs::DirEntry| {
        let bytes = fs::read(file.path()).expect("a seed is read");
        (file.file_name().into_string().expect("a name of letters"), bytes)
    };
    files.map(|file| read(file.expect("the folder is listed"))).collect()
}

/// Encodings may change in their details, such as the name of a library's version, without a seed being rotten: what
/// counts is that the files are those that the table names, and that each is read, which the target's test checks.
#[test]
fn the_files_are_those_that_the_table_names() {
    for target in fuzz::targets() {
        let made = (target.seeds)();
        let names: BTreeSet<String> = made.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(names.len(), made.len(), "{}: two seeds have one name", target.name);
        let files: BTreeSet<String> = committed(target.name).into_keys().collect();
        assert_eq!(files, names, "{}: {WRITE_ANEW}", target.name);
    }
}

#[test]
fn what_the_encoders_make_is_read_and_small() {
    for target in fuzz::targets() {
        for (name, bytes) in (target.seeds)() {
            assert!((target.is_read)(&bytes), "{}: {name} is refused at once", target.name);
            assert!(bytes.len() <= SEED_BYTES_MAX, "{}: {name} has {} bytes", target.name, bytes.len());
        }
    }
}

#[test]
fn nothing_and_noise_are_refused_at_once() {
    for target in fuzz::targets() {
        for noise in [[].as_slice(), &[0xff; 64]] {
            assert!(!(target.is_read)(noise), "{}: the check of seeds must be able to fail", target.name);
        }
    }
}

#[test]
#[ignore = "no check: writes the committed seeds anew"]
fn write_seeds() {
    fuzz::targets().for_each(write);
}

fn write(target: &Target) {
    let folder = folder(target.name);
    remove(&folder);
    fs::create_dir_all(&folder).expect("a folder for seeds");
    for (name, bytes) in (target.seeds)() {
        fs::write(folder.join(name), bytes).expect("a seed is written");
    }
}

fn remove(folder: &Path) {
    if folder.exists() {
        fs::remove_dir_all(folder).expect("the old seeds are removed");
    }
}
