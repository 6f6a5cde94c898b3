//! Usage is paid once: what was paid under one epoch's name waits for a person under another.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::engine::{Engine, lock};
use super::reads::open_run;
use crate::manifest::Manifest;
use crate::store::{EpochRow, Store};

/// Files of usage that a row names; the hash of what all of them say together is in it however many there are.
const FILES_NAMED_MAX: usize = 16;

/// What a run's usage is known by: the hash of what its files say, and the files themselves.
pub(crate) fn names(manifest: &Manifest) -> Vec<String> {
    // Nobody did anything: nothing in it can be paid twice.
    if manifest.rows == 0 {
        return Vec::new();
    }
    let files: BTreeSet<&String> = manifest.inputs.iter().map(|input| &input.b3).collect();
    let files = files.into_iter().take(FILES_NAMED_MAX).cloned();
    std::iter::once(manifest.content.clone()).chain(files).collect()
}

/// Why a person must look at the run before it is paid: an epoch of another name has, or may have, paid the same assets
/// by the same usage. Blocks.
pub(crate) fn objection(engine: &Engine, store: &Store, manifest: &Manifest) -> Option<String> {
    let names: BTreeSet<String> = names(manifest).into_iter().collect();
    let pays = |asset: &str| manifest.assets.iter().any(|facts| facts.asset == asset && facts.paid.0 > 0);
    let is_other = |row: &Arc<EpochRow>| row.epoch != manifest.epoch.as_str() && !row.is_dead();
    let pays_the_same = |row: &Arc<EpochRow>| row.totals.iter().any(|total| total.paid.0 > 0 && pays(&total.asset));
    let row = store.all().into_iter().find(|row| {
        is_other(row) && pays_the_same(row) && usage_of(engine, row).iter().any(|name| names.contains(name))
    })?;
    let (epoch, status) = (&row.epoch, row.status.as_str());
    Some(format!(
        "its usage, or a file of it, is that of epoch {epoch}, which is {status}: nobody is paid twice for it"
    ))
}

/// What the usage of an epoch is known by. Rows of before this rule do not say it: their manifests do, while they are
/// there.
fn usage_of(engine: &Engine, row: &EpochRow) -> Vec<String> {
    if !row.usage.is_empty() || row.rows == 0 {
        return row.usage.clone();
    }
    let mut known = lock(&engine.usage_of_before);
    if let Some(names) = known.get(&row.commitment) {
        return names.clone();
    }
    let read = open_run(engine, row).map(|run| names(run.manifest()));
    // An error that passes is not what the epoch is known by: it is asked again.
    if read.is_ok() || row.removed_by.is_some() {
        known.insert(row.commitment.clone(), read.as_ref().map(Vec::clone).unwrap_or_default());
    }
    read.unwrap_or_default()
}
