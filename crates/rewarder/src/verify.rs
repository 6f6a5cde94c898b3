//! Verification: the whole run is computed again from its folder, and every byte compared.

use std::io;

use ron_log::Disk;
use ron_usage::InputFile;
use serde::Serialize;

use crate::artifacts::{MANIFEST, seal_of};
use crate::hashing::b3;
use crate::job::{Cost, Job, Watch, read, settle};
use crate::manifest::RunStatus;
use crate::sealed::{SealedError, SealedRun, damaged};

/// Bytes of an artifact read at once.
const PIECE_BYTES: usize = 1 << 20;

/// What was compared, and what differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// What held, in words.
    pub held: Vec<String>,
    /// What did not.
    pub differs: Vec<String>,
}

impl Verification {
    /// Whether everything held.
    pub fn is_clean(&self) -> bool {
        self.differs.is_empty()
    }

    fn note(&mut self, held: bool, what: impl Into<String>) {
        if held { &mut self.held } else { &mut self.differs }.push(what.into());
    }
}

/// Computes a run again and compares it bit for bit; from the raw files too, if they are given.
pub fn verify(run: &SealedRun, raw: &[InputFile], cost: &Cost, watch: &dyn Watch) -> Result<Verification, SealedError> {
    let mut found = Verification::default();
    let manifest = run.manifest();
    found.note(true, format!("{MANIFEST} is the one of the commitment {}", b3(&run.commitment())));
    for (name, expected) in &manifest.artifacts {
        let hash = hash_file(&**run.disk(), name);
        let is_same = hash.as_ref().is_ok_and(|hash| hash == expected);
        let what = match hash {
            Ok(hash) if is_same => format!("{name} has the hash {hash}"),
            Ok(hash) => format!("{name} has the hash {hash}, not {expected}"),
            Err(error) => format!("{name} cannot be read: {error}"),
        };
        found.note(is_same, what);
    }
    // What does not have its hash is not worth computing with.
    if !found.is_clean() {
        return Ok(found);
    }
    let mut basis = match run.basis() {
        Err(SealedError::Damaged { file, reason }) => {
            found.note(false, format!("{file}: {reason}"));
            return Ok(found);
        }
        basis => basis?,
    };
    note_carried(run, &basis, &mut found);
    if basis.document.check_pools(&basis.pools).is_err() {
        found.note(true, "a pool was given with the run, in place of the one that was signed");
    }
    if !raw.is_empty() {
        compare_raw(run, raw, cost, watch, &basis, &mut found)?;
    }
    basis.inputs.clone_from(&manifest.inputs);
    let computed = settle(basis, cost.threads, watch, ron_calculus::allocate)?;
    let seal = seal_of(&computed, cost.threads, watch)?;
    for (name, expected) in &manifest.artifacts {
        let is_same = seal.manifest.artifacts.get(name) == Some(expected);
        found.note(is_same, format!("{name}, computed again, is {}", if is_same { "the same" } else { "another" }));
    }
    let is_same = seal.bytes == run.manifest_bytes();
    let whole = "every amount, root and hash of the manifest, computed again, is";
    found.note(is_same, format!("{whole} {}", if is_same { "the same" } else { "NOT the same" }));
    if manifest.status == RunStatus::Computed {
        for facts in &manifest.assets {
            let adds_up = facts.paid.0.checked_add(facts.delta.0) == Some(facts.pool.0) && facts.provable == facts.paid;
            let (asset, paid, delta, pool) = (&facts.asset, facts.paid, facts.delta, facts.pool);
            found.note(adds_up, format!("{asset}: {paid} paid and {delta} left over of {pool}"));
        }
    }
    Ok(found)
}

/// Units that are carried in are there only if the run that they were carried into says so. Of an ordinary run they are
/// those that the run named by `carry_from` left over, which its node has looked up.
fn note_carried(run: &SealedRun, basis: &crate::job::Basis, found: &mut Verification) {
    let from = basis.carry_from.as_deref().unwrap_or("no run");
    let is_shown = basis.correction.is_none() || run.shows_corrected();
    for (asset, units) in &basis.carry {
        let what = format!("{asset}: {units} units are carried in from {from}");
        let how = match &basis.correction {
            None => String::new(),
            Some(correction) if is_shown => format!(", as into {}", correction.epoch),
            Some(correction) => {
                format!("; name the folder of {} (`--corrects`), to see that they were", correction.epoch)
            }
        };
        found.note(is_shown, what + &how);
    }
}

/// Reads the raw files again: their hashes, and what they say.
fn compare_raw(
    run: &SealedRun,
    raw: &[InputFile],
    cost: &Cost,
    watch: &dyn Watch,
    basis: &crate::job::Basis,
    found: &mut Verification,
) -> Result<(), SealedError> {
    let job = Job {
        epoch: basis.epoch.clone(),
        inputs: raw.to_vec(),
        policy: basis.document.clone(),
        pools: basis.pools.clone(),
        carry: basis.carry.clone(),
        carry_from: basis.carry_from.clone(),
        cost: cost.clone(),
    };
    let again = read(&job, watch)?;
    let hashes = |inputs: &[crate::manifest::InputFacts]| -> Vec<String> {
        inputs.iter().map(|facts| facts.b3.clone()).collect()
    };
    let is_same = hashes(&again.inputs) == hashes(&run.manifest().inputs);
    found.note(is_same, format!("the files given ({}) are {}the inputs", raw.len(), if is_same { "" } else { "NOT " }));
    let is_same = again.totals == basis.totals && again.rows == run.manifest().rows;
    found.note(is_same, format!("their rows add up to {} usage", if is_same { "the same" } else { "ANOTHER" }));
    Ok(())
}

pub(crate) fn hash_file(disk: &dyn Disk, name: &str) -> io::Result<String> {
    let file = disk.open(name)?;
    let len = file.len()?;
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = 0;
    while offset < len {
        let wanted = usize::try_from(len - offset).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        file.read_at(offset, &mut piece[..wanted])?;
        hasher.update(&piece[..wanted]);
        offset += wanted as u64;
    }
    Ok(b3(hasher.finalize().as_bytes()))
}

/// Checks that every artifact has the hash that the manifest names, without computing anything.
pub fn check_hashes(run: &SealedRun) -> Result<(), SealedError> {
    for (name, expected) in &run.manifest().artifacts {
        let hash = hash_file(&**run.disk(), name).map_err(|error| damaged(name, error))?;
        if hash != *expected {
            return Err(damaged(name, format!("its hash is {hash}, not {expected}")));
        }
    }
    Ok(())
}
