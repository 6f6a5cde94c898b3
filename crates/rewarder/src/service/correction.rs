//! Corrections that were made, looked at and signed elsewhere: taken in by their commitment, computed again, and paid
//! as any other run.
//!
//! The files of a correction are uploaded like usage. Its commitment is the hash of its manifest, and the manifest
//! names the hashes of all others, so that nothing else has to be said.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use ron_log::{Disk, DiskFile, Durability};
use ron_types::{Error, Kind};

use super::engine::{Engine, Flight};
use super::reads::open_run;
use super::request::{Grounds, Prepared, bad_policy};
use crate::artifacts::{ALLOCATIONS_NDJSON, ALLOCATIONS_PARQUET, MANIFEST};
use crate::correct::Correction;
use crate::correction_statement::CorrectionStatement;
use crate::epoch::EpochId;
use crate::folder::open_plain;
use crate::hashing::{b3, hash_parts, parse_b3};
use crate::inputs::InputPin;
use crate::job::{Computed, Divide, RunError, Watch, settle};
use crate::manifest::{MANIFEST_BYTES_MAX, Manifest, RunStatus};
use crate::policy_document::{PolicyDocument, PolicyDocumentError};
use crate::sealed::{SealedError, SealedRun, read_file};
use crate::store::{EpochRow, EpochStatus, Store};

/// Files that follow from the others, and are written again here.
const DERIVED: [&str; 2] = [ALLOCATIONS_NDJSON, ALLOCATIONS_PARQUET];

/// A request to take in a correction whose files were uploaded.
#[derive(Clone, Debug)]
pub struct CorrectionRequest {
    /// Its epoch.
    pub epoch: EpochId,
    /// The epoch that it corrects.
    pub corrects: EpochId,
    /// Its commitment: the hash of its manifest.
    pub commitment: [u8; 32],
    /// The envelope with the signatures under it.
    pub signatures: Option<Vec<u8>>,
    /// A correction that nobody signed will do, if the node takes any.
    pub unsigned: bool,
}

impl CorrectionRequest {
    /// Checks everything that can be checked without computing. Blocks on the file system.
    pub(crate) fn prepare(self, grounds: &Grounds<'_>) -> Result<Prepared, Error> {
        let (files, bytes) = UploadedFiles::find(grounds, &self.commitment)?;
        let kept = files.files.values().map(Arc::clone).collect();
        let run = SealedRun::named(Arc::new(files), bytes, grounds.memory_bytes, grounds.threads).map_err(bad)?;
        let statement = CorrectionStatement::of(&run).ok_or_else(|| bad("the run corrects none"))?;
        if statement.epoch != self.epoch {
            return Err(bad(format!("its epoch is {}", statement.epoch)));
        }
        if let Some(facts) = run.manifest().corrects.as_ref().filter(|facts| facts.epoch != self.corrects) {
            return Err(bad(format!("it corrects {}, not {}", facts.epoch, self.corrects)));
        }
        if run.manifest().status != RunStatus::Computed {
            return Err(bad("it is in quarantine, and pays nobody"));
        }
        let document = run.policy_document().map_err(bad)?;
        self.believe(&run, &document, &statement, grounds)?;
        let (epoch, commitment) = (self.epoch.as_str().as_bytes(), &self.commitment);
        let hash = hash_parts(&[b"svc-rewarder|correction request|v1", epoch, commitment]);
        Ok(Prepared {
            epoch: self.epoch,
            files: Vec::new(),
            pins: Vec::new(),
            kept,
            share: None,
            document,
            pools: run.manifest().policy.pools_overridden.clone(),
            correction: Some(Arc::new(run)),
            signatures: self.signatures,
            carry_from: None,
            deadline: None,
            hash,
            is_payable: true,
        })
    }

    /// Both the policy and the correction must be signed as this node asks for. A pool in place of a signed one is part
    /// of the correction, so that this must be signed then.
    fn believe(
        &self,
        run: &SealedRun,
        document: &PolicyDocument,
        statement: &CorrectionStatement,
        grounds: &Grounds<'_>,
    ) -> Result<(), Error> {
        let allows_unsigned = grounds.allows_unsigned && self.unsigned;
        let unsigned = || if allows_unsigned { Ok(()) } else { Err(bad_policy(&PolicyDocumentError::Unsigned)) };
        let no_keys = || bad_policy(&PolicyDocumentError::NoKeys);
        match run.manifest().policy.signed {
            true => run.check_signatures(grounds.trusted.ok_or_else(no_keys)?).map_err(bad)?,
            false => unsigned()?,
        }
        match &self.signatures {
            Some(signed) => statement.check(signed, grounds.trusted.ok_or_else(no_keys)?).map_err(bad),
            None if allows_unsigned => document.check_pools(&run.manifest().policy.pools_overridden).map_err(bad),
            None => Err(bad("nobody has signed it; sign it with `macronode reward sign`, or say `unsigned`")),
        }
    }
}

/// Whether a correction may be computed here: the run it corrects is paid, by this node, and no other correction pays
/// the same difference.
pub(crate) fn admit(engine: &Engine, store: &Store, run: &SealedRun) -> Result<(), Error> {
    let Some(facts) = &run.manifest().corrects else { return Err(bad("the run corrects none")) };
    let corrected = facts.epoch.as_str();
    let row = store.get(corrected);
    let row =
        row.ok_or_else(|| Error::new(Kind::NotFound, format!("the correction: there is no epoch {corrected}")))?;
    let conflict = |detail: String| Error::new(Kind::Conflict, detail);
    if row.commitment != facts.commitment {
        return Err(conflict(format!("the correction: the run of {corrected} here has {}", row.commitment)));
    }
    if row.status != EpochStatus::Settled {
        let detail =
            format!("the correction: {corrected} is {}; what is settled can be corrected", row.status.as_str());
        return Err(conflict(detail));
    }
    if facts.takes_left_over
        && let Some(into) = engine.carried_into(store, corrected)
    {
        let detail = format!("what {corrected} left over was carried into {into}, and cannot be taken up");
        return Err(conflict(format!("the correction: {detail}")));
    }
    let other = store.corrected_by(corrected).filter(|by| *by != run.manifest().epoch.as_str());
    other.map_or(Ok(()), |by| {
        Err(conflict(format!("epoch {corrected} is corrected by {by} already; correct {by} instead")))
    })
}

/// Computes a correction again from its files. What it says was paid before must be what this node has paid.
pub(crate) fn compute(
    engine: &Engine,
    run: &SealedRun,
    watch: &dyn Watch,
    divide: Divide,
) -> Result<Computed, RunError> {
    let basis = run.basis().map_err(unreadable)?;
    let refused = |why: &str| RunError::Order(format!("the correction: {why}"));
    let claimed = basis.correction.as_ref().ok_or_else(|| refused("the run corrects none"))?;
    let store = engine.store().map_err(|error| refused(&error.to_string()))?;
    let row = store.get(claimed.epoch.as_str()).ok_or_else(|| refused("the epoch that it corrects is gone"))?;
    let before = expected(engine, &row, claimed).map_err(unreadable)?;
    if !claimed.begins_as(&before) {
        let what = "have paid and left over";
        return Err(refused(&format!("it does not begin from what {} and those before it {what}", row.epoch)));
    }
    settle(basis, engine.options.run_threads, watch, divide)
}

/// The correction that would begin from what this node has paid.
fn expected(engine: &Engine, row: &EpochRow, claimed: &Correction) -> Result<Correction, SealedError> {
    let run = open_run(engine, row)?;
    let loaded = run.load()?;
    Correction::of(&loaded.computed, run.commitment(), claimed.bounds)
        .map_err(|breach| SealedError::Run(RunError::Order(breach.to_string())))
}

/// Computed again, a correction must be the very one that was signed.
pub(crate) fn check_commitment(flight: &Flight, found: &[u8; 32]) -> Result<(), RunError> {
    let Some(run) = &flight.correction else { return Ok(()) };
    let asked = run.commitment();
    if asked == *found {
        return Ok(());
    }
    let (asked, found) = (b3(&asked), b3(found));
    Err(RunError::Order(format!("the correction: computed again, its commitment is {found}, not {asked}")))
}

fn unreadable(error: SealedError) -> RunError {
    match error {
        SealedError::Io(error) => RunError::Io(error),
        SealedError::Run(error) => error,
        error => RunError::Order(format!("the correction: {error}")),
    }
}

fn bad(reason: impl ToString) -> Error {
    Error::schema(format!("the correction: {}", reason.to_string()))
}

/// The uploaded files of a run under the names of its manifest: a folder that is only read.
struct UploadedFiles {
    files: BTreeMap<String, Arc<InputPin>>,
}

impl UploadedFiles {
    /// Finds all files of the run with this commitment; gives the bytes of its manifest too.
    fn find(grounds: &Grounds<'_>, commitment: &[u8; 32]) -> Result<(UploadedFiles, Vec<u8>), Error> {
        let pin = |name: &str, hash: &[u8; 32]| {
            let missing =
                || Error::new(Kind::NotFound, format!("the correction: {name} ({}) was not uploaded", b3(hash)));
            grounds.inputs.pin(hash).map(Arc::new).ok_or_else(missing)
        };
        let mut files = UploadedFiles { files: BTreeMap::from([(MANIFEST.to_owned(), pin(MANIFEST, commitment)?)]) };
        let bytes = read_file(&files, MANIFEST, MANIFEST_BYTES_MAX).map_err(bad)?;
        if crate::manifest::commitment(&bytes) != *commitment {
            return Err(bad("the manifest on the disk is not what was uploaded"));
        }
        let manifest: Manifest = serde_json::from_slice(&bytes).map_err(bad)?;
        for (name, hash) in manifest.artifacts.iter().filter(|(name, _)| !DERIVED.contains(&name.as_str())) {
            let hash = parse_b3(hash).ok_or_else(|| bad(format!("{name}: `{hash}` is no hash")))?;
            files.files.insert(name.clone(), pin(name, &hash)?);
        }
        Ok((files, bytes))
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "uploaded files are only read"))
}

impl Disk for UploadedFiles {
    fn durability(&self) -> Durability {
        Durability::Fsynced
    }
    fn secret(&self) -> u32 {
        0
    }
    fn claim(&self) -> bool {
        true
    }
    fn unclaim(&self) {}
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files.keys().cloned().collect())
    }
    fn create(&self, _name: &str) -> io::Result<Arc<dyn DiskFile>> {
        read_only()
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        open_plain(self.files.get(name).ok_or(io::ErrorKind::NotFound)?.path())
    }
    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        read_only()
    }
    fn remove(&self, _name: &str) -> io::Result<()> {
        read_only()
    }
    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
}
