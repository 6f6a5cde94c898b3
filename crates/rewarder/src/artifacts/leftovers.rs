//! What a crash left of a run in its folder, told from files of other people by the names and hashes that a run gives
//! its files: they may be called `policy.json` too.

use std::io;

use ron_log::Disk;

use super::{ALL, COMMITMENT, INPUT_NAMES, MANIFEST, TEMPORARY};
use crate::hashing::b3;
use crate::manifest::{InputFacts, MANIFEST_BYTES_MAX, Manifest, commitment};
use crate::sealed::read_file;
use crate::verify::hash_file;

/// A file of the folder that is not what a crash left of a run; none if there is nothing else.
pub fn foreign_file(disk: &dyn Disk) -> io::Result<Option<String>> {
    let mut names = disk.list()?;
    names.sort_unstable();
    let own = own_files(disk, &names);
    Ok(names.into_iter().find(|name| !own.contains(name)))
}

/// Removes what a crash left half written, and nothing else; the number of files removed.
pub fn remove_leftovers(disk: &dyn Disk) -> io::Result<usize> {
    let own = own_files(disk, &disk.list()?);
    own.iter().try_for_each(|name| disk.remove(name))?;
    if !own.is_empty() {
        disk.sync_dir()?;
    }
    Ok(own.len())
}

/// The files among these that a crash left, the unfinished manifest last: it is what shows whose the others are.
fn own_files(disk: &dyn Disk, names: &[String]) -> Vec<String> {
    let is_temporary = |name: &&String| name.strip_prefix(TEMPORARY).is_some_and(|name| ALL.contains(&name));
    let unfinished = format!("{TEMPORARY}{MANIFEST}");
    let mut own: Vec<String> = names.iter().filter(is_temporary).filter(|name| **name != unfinished).cloned().collect();
    if !names.contains(&unfinished) || names.iter().any(|name| name == MANIFEST) {
        return own.into_iter().chain(names.contains(&unfinished).then_some(unfinished)).collect();
    }
    // Files get their names only once the manifest that names them is on the disk.
    let bytes = read_file(disk, &unfinished, MANIFEST_BYTES_MAX).unwrap_or_default();
    if let Ok(manifest) = serde_json::from_slice::<Manifest>(&bytes) {
        let is_named = |name: &&String| match name.as_str() {
            COMMITMENT => read_file(disk, name, 128).is_ok_and(|text| text == commitment_text(&bytes)),
            INPUT_NAMES => names_inputs_of(&manifest, disk),
            _ => manifest
                .artifacts
                .get(*name)
                .is_some_and(|hash| hash_file(disk, name).is_ok_and(|found| found == *hash)),
        };
        own.extend(names.iter().filter(is_named).cloned());
    }
    own.push(unfinished);
    own
}

/// Whether the file of names, which no manifest names, is about inputs of this run.
fn names_inputs_of(manifest: &Manifest, disk: &dyn Disk) -> bool {
    let bytes = read_file(disk, INPUT_NAMES, MANIFEST_BYTES_MAX).unwrap_or_default();
    let named: Vec<InputFacts> = serde_json::from_slice(&bytes).unwrap_or_default();
    !named.is_empty() && named.iter().all(|facts| manifest.inputs.contains(&facts.nameless()))
}

/// What the file of a commitment holds.
pub(super) fn commitment_text(manifest: &[u8]) -> Vec<u8> {
    format!("{}\n", b3(&commitment(manifest))).into_bytes()
}
