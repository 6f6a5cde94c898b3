//! A run that was written: opened by its manifest, loaded when something is asked of it, checked as far as it is used.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use ron_calculus::explain::{AssetExplanation, CorrectedAmount};
use ron_calculus::tree::oz::OzTree;
use ron_calculus::tree::sum::SumTree;
use ron_calculus::{AssetAllocation, Explanation, Policy, Question, Units, explain};
use ron_log::Disk;

use crate::artifacts::{ALL, COMMITMENT, CORRECTED, ENVELOPE, INPUT_NAMES, MANIFEST, PAID, POLICY, USAGE};
use crate::correct::{Bounds, Corrected, Correction, read_paid};
use crate::envelope::{ENVELOPE_BYTES_MAX, Envelope};
use crate::hashing::{b3, hex0x, parse_b3};
use crate::job::{Basis, Computed, RunError, Unwatched, settle_without_roots};
use crate::keys::TrustedKeys;
use crate::manifest::{AssetFacts, MANIFEST_BYTES_MAX, Manifest, RunStatus, commitment};
use crate::policy_document::{PolicyDocument, Trust};

/// Files that name the others or stand beside them, and are not named themselves.
const NOT_ARTIFACTS: [&str; 3] = [MANIFEST, COMMITMENT, INPUT_NAMES];
/// Bytes of a commitment file at most.
const COMMITMENT_BYTES_MAX: u64 = 128;
/// Bytes of a policy file at most.
const POLICY_BYTES_MAX: u64 = 2 << 20;

/// Times the memory of a run that its totals may take while they are read back: their file, and tables that double as
/// they grow. What was computed with some memory is then paid with the same.
const READ_BACK_FACTOR: u64 = 3;

/// Why a written run is not believed.
#[derive(Debug, thiserror::Error)]
pub enum SealedError {
    /// There is no run.
    #[error("there is no run here: {MANIFEST} is missing")]
    Missing,
    /// The files were removed to make room.
    #[error("its artifacts were removed by {0}; what it paid is in the ledger")]
    Removed(String),
    /// A file is not what the run says it is.
    #[error("{file}: {reason}")]
    Damaged {
        /// Name of the file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The run is in quarantine, and has no amounts.
    #[error("the run is in quarantine: {0}")]
    Quarantined(String),
    /// The policy does not pay this asset.
    #[error("the run does not pay {0}")]
    UnknownAsset(String),
    /// The disk failed, or memory does not suffice.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It cannot be computed again.
    #[error("{0}")]
    Run(#[from] RunError),
}

pub(crate) fn damaged(file: &str, reason: impl ToString) -> SealedError {
    SealedError::Damaged { file: file.to_owned(), reason: reason.to_string() }
}

/// What is not there, or does not hold what it should, is damaged. A disk that fails now may answer later, and want of
/// memory says nothing about the file.
fn not_read(file: &str, error: io::Error) -> SealedError {
    use io::ErrorKind::{FileTooLarge, InvalidData, InvalidInput, NotFound, OutOfMemory, UnexpectedEof};
    match error.kind() {
        NotFound | UnexpectedEof | InvalidData | InvalidInput => damaged(file, error),
        FileTooLarge if ![USAGE, PAID].contains(&file) => damaged(file, error),
        FileTooLarge => SealedError::Io(io::Error::new(OutOfMemory, format!("{file}: {error} for the memory allowed"))),
        kind => SealedError::Io(io::Error::new(kind, format!("{file}: {error}"))),
    }
}

/// A run in a folder.
pub struct SealedRun {
    disk: Arc<dyn Disk>,
    manifest: Manifest,
    bytes: Vec<u8>,
    commitment: [u8; 32],
    memory_bytes: u64,
    threads: usize,
    /// Manifest of the run that it corrects, where the caller has it and the folder has not.
    corrected: Option<Vec<u8>>,
    loaded: Mutex<Option<Arc<Loaded>>>,
}

/// A run in memory, with the trees that were asked for.
pub struct Loaded {
    /// The run, computed again from its artifacts.
    pub computed: Computed,
    threads: usize,
    oz: Vec<OnceLock<Result<OzTree, String>>>,
    sum: Vec<OnceLock<Result<SumTree, String>>>,
}

impl SealedRun {
    /// Opens a run: the manifest must be the one that the commitment names. Nothing else is read yet.
    pub fn open(disk: Arc<dyn Disk>, memory_bytes: u64, threads: usize) -> Result<SealedRun, SealedError> {
        let bytes = match read_file(&*disk, MANIFEST, MANIFEST_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(SealedError::Missing),
            read => read?,
        };
        let written = read_file(&*disk, COMMITMENT, COMMITMENT_BYTES_MAX)?;
        let written = std::str::from_utf8(&written).ok().and_then(|text| parse_b3(text.trim_end()));
        let commitment = commitment(&bytes);
        if written != Some(commitment) {
            return Err(damaged(MANIFEST, format!("its hash is {}, not the commitment", b3(&commitment))));
        }
        SealedRun::named(disk, bytes, memory_bytes, threads)
    }

    /// Opens the run of this manifest, whose other files are in the folder: the caller knows its commitment.
    pub fn named(
        disk: Arc<dyn Disk>,
        bytes: Vec<u8>,
        memory_bytes: u64,
        threads: usize,
    ) -> Result<SealedRun, SealedError> {
        let commitment = commitment(&bytes);
        let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|error| damaged(MANIFEST, error))?;
        let is_canonical = manifest.to_bytes().is_ok_and(|canonical| canonical == bytes);
        if !manifest.is_readable() || !is_canonical {
            return Err(damaged(MANIFEST, "it is not canonical, or of another version"));
        }
        // A manifest may come from anybody: it must not lead out of its folder.
        let is_ours = |name: &&String| ALL.contains(&name.as_str()) && !NOT_ARTIFACTS.contains(&name.as_str());
        if let Some(stranger) = manifest.artifacts.keys().find(|name| !is_ours(name)) {
            return Err(damaged(MANIFEST, format!("it names the file {stranger:?}, which no run has")));
        }
        let (corrected, loaded) = (None, Mutex::new(None));
        Ok(SealedRun { disk, manifest, bytes, commitment, memory_bytes, threads, corrected, loaded })
    }

    /// The same correction, looked at beside the manifest of the run that it corrects: for corrections of versions that
    /// did not keep it in their folder.
    #[must_use]
    pub fn beside(self, corrected: &[u8]) -> SealedRun {
        SealedRun { corrected: Some(corrected.to_vec()), ..self }
    }

    /// Whether the manifest of the run that it corrects is at hand, so that what was carried in can be looked up.
    pub fn shows_corrected(&self) -> bool {
        self.corrected.is_some() || self.manifest.artifacts.contains_key(CORRECTED)
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Bytes of `run.json`.
    pub fn manifest_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Hash of the manifest.
    pub fn commitment(&self) -> [u8; 32] {
        self.commitment
    }

    /// The folder.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The run in memory: totals and policy are read and checked against the manifest, and the pools divided again.
    ///
    /// Dividing is faster than reading the amounts back, and gives what an explanation needs beside them.
    pub fn load(&self) -> Result<Arc<Loaded>, SealedError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = &*loaded {
            return Ok(Arc::clone(loaded));
        }
        let computed = self.recompute()?;
        let assets = computed.paying().1.len();
        let oz = (0..assets).map(|_| OnceLock::new()).collect();
        let sum = (0..assets).map(|_| OnceLock::new()).collect();
        let fresh = Arc::new(Loaded { computed, threads: self.threads, oz, sum });
        *loaded = Some(Arc::clone(&fresh));
        Ok(fresh)
    }

    /// Forgets what is in memory.
    pub fn unload(&self) {
        *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn recompute(&self) -> Result<Computed, SealedError> {
        if self.manifest.status == RunStatus::Quarantined {
            return Err(SealedError::Quarantined(self.manifest.reason.clone().unwrap_or_default()));
        }
        let mut computed = settle_without_roots(self.basis()?, self.threads, &Unwatched, ron_calculus::allocate)?;
        let is_same_run = b3(&computed.run_key) == self.manifest.run_key && self.has_amounts_of(&computed);
        if let (Ok(payouts), true) = (&mut computed.outcome, is_same_run) {
            payouts.facts.clone_from(&self.manifest.assets);
            return Ok(computed);
        }
        Err(damaged(MANIFEST, "computed again, the run comes to another result"))
    }

    /// Whether the sums of the manifest are those of the run. Roots are compared when a tree is asked for.
    fn has_amounts_of(&self, computed: &Computed) -> bool {
        let is_same = |(facts, allocation): (&AssetFacts, &AssetAllocation)| {
            let payees = allocation.amounts.iter().filter(|amount| **amount > 0).count() as u64;
            let found = (&allocation.asset, allocation.pool, allocation.paid, payees);
            found == (&facts.asset, facts.pool.0, facts.paid.0, facts.payees)
        };
        let (facts, (_, paying)) = (&self.manifest.assets, computed.paying());
        facts.len() == paying.len() && facts.iter().zip(paying).all(is_same)
    }

    /// The policy in force.
    fn policy(&self) -> Result<Policy, SealedError> {
        let policy = self.artifact(POLICY, POLICY_BYTES_MAX)?;
        Policy::parse(&policy).map_err(|error| damaged(POLICY, error))
    }

    /// The policy as it came, with who stands behind it.
    pub fn policy_document(&self) -> Result<PolicyDocument, SealedError> {
        self.document(&self.policy()?)
    }

    /// Everything that the run follows from, read from its folder.
    pub fn basis(&self) -> Result<Basis, SealedError> {
        let (manifest, policy) = (&self.manifest, self.policy()?);
        let memory_bytes = self.memory_bytes.saturating_mul(READ_BACK_FACTOR);
        let usage = self.artifact(USAGE, memory_bytes)?;
        let totals = ron_usage::read_totals(Bytes::from(usage), memory_bytes);
        let totals = totals.map_err(|error| not_read(USAGE, error))?;
        if b3(totals.content_hash().as_bytes()) != manifest.content {
            return Err(damaged(USAGE, "it does not hold the usage that the manifest names"));
        }
        Ok(Basis {
            format: manifest.format,
            epoch: manifest.epoch.clone(),
            document: self.document(&policy)?,
            policy,
            pools: manifest.policy.pools_overridden.clone(),
            carry: manifest.carry.clone(),
            carry_from: manifest.carry_from.clone(),
            inputs: manifest.inputs.clone(),
            rows: manifest.rows,
            totals,
            correction: self.correction()?,
        })
    }

    /// The policy as it was signed: the envelope must hold the policy in force, by the keys that the manifest names.
    fn document(&self, in_force: &Policy) -> Result<PolicyDocument, SealedError> {
        let facts = &self.manifest.policy;
        if !facts.signed {
            return Ok(PolicyDocument::unsigned(in_force.clone()));
        }
        let envelope = self.artifact(ENVELOPE, ENVELOPE_BYTES_MAX as u64)?;
        let threshold = u32::try_from(facts.signers.len()).unwrap_or(u32::MAX);
        let keys = TrustedKeys { threshold, keys: facts.signers.clone() };
        let trust = Trust { keys: Some(&keys), allows_unsigned: false };
        let document = PolicyDocument::read(&envelope, trust).map_err(|error| damaged(ENVELOPE, error))?;
        let signed = document.in_force(&facts.pools_overridden).map_err(|error| damaged(ENVELOPE, error))?;
        if signed != *in_force {
            return Err(damaged(ENVELOPE, "the policy in force is not the one that was signed"));
        }
        Ok(document)
    }

    fn correction(&self) -> Result<Option<Correction>, SealedError> {
        let Some(facts) = &self.manifest.corrects else { return Ok(None) };
        let paid = self.artifact(PAID, self.memory_bytes.saturating_mul(READ_BACK_FACTOR))?;
        let (roster, paid) = read_paid(&paid).map_err(|error| damaged(PAID, error))?;
        let hash = |text: &str| parse_b3(text).ok_or_else(|| damaged(MANIFEST, format!("`{text}` is no hash")));
        let kept = match self.manifest.artifacts.contains_key(CORRECTED) {
            true => Some(self.artifact(CORRECTED, MANIFEST_BYTES_MAX)?),
            false => None,
        };
        let correction = Correction {
            epoch: facts.epoch.clone(),
            run_key: hash(&facts.run_key)?,
            commitment: hash(&facts.commitment)?,
            bounds: Bounds { clawback_max: facts.clawback_max, takes_left_over: facts.takes_left_over },
            reserved: facts.reserved.clone(),
            carry: self.manifest.carry.clone(),
            carry_from: self.manifest.carry_from.clone(),
            manifest: kept.as_deref().map(Arc::from),
            roster,
            paid,
        };
        let mut shown = kept.iter().chain(&self.corrected);
        let objection = shown.find_map(|manifest| correction.objection(manifest, self.threads));
        objection.map_or(Ok(Some(correction)), |why| Err(damaged(MANIFEST, why)))
    }

    /// Checks the signatures on the policy against keys that the caller trusts, not those that the manifest names.
    pub fn check_signatures(&self, trusted: &TrustedKeys) -> Result<(), SealedError> {
        if !self.manifest.policy.signed {
            return Err(damaged(MANIFEST, "the policy was not signed"));
        }
        let envelope = self.artifact(ENVELOPE, ENVELOPE_BYTES_MAX as u64)?;
        let verified = Envelope::parse(&envelope).and_then(|envelope| envelope.verify(trusted));
        verified.map(drop).map_err(|error| damaged(ENVELOPE, error))
    }

    /// Bytes of an artifact, which must be those that the manifest names.
    pub fn artifact(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>, SealedError> {
        let expected = self.manifest.artifacts.get(name);
        let expected = expected.ok_or_else(|| damaged(name, "the manifest does not name it"))?;
        let bytes = read_file(&*self.disk, name, bytes_max).map_err(|error| not_read(name, error))?;
        if b3(blake3::hash(&bytes).as_bytes()) != *expected {
            return Err(damaged(name, format!("its hash is not {expected}")));
        }
        Ok(bytes)
    }

    /// Units left over, for the next epoch to carry in.
    pub fn left_over(&self) -> BTreeMap<String, Units> {
        self.manifest.left_over()
    }

    /// Every integer of one actor's amounts.
    pub fn explain(&self, actor: &str) -> Result<Explanation, SealedError> {
        self.load()?.explain(actor)
    }
}

impl Loaded {
    /// Every integer of one actor's amounts; in a correction also what it had before and what is taken back.
    pub fn explain(&self, actor: &str) -> Result<Explanation, SealedError> {
        let explained = self.explain_entitled(actor)?;
        let corrected = self.computed.outcome.as_ref().ok().and_then(|payouts| payouts.corrected.as_ref());
        let Some((before, corrected)) = self.computed.basis.correction.as_ref().zip(corrected) else {
            return Ok(explained);
        };
        let assets = explained.assets.into_iter().map(|asset| correct_explained(asset, actor, before, corrected));
        Ok(Explanation { assets: assets.collect(), ..explained })
    }

    /// Every integer of what one actor is entitled to.
    fn explain_entitled(&self, actor: &str) -> Result<Explanation, SealedError> {
        let computed = &self.computed;
        let (basis, carry) = (&computed.basis, computed.basis.carry_units());
        let (policy, totals, threads) = (&basis.policy, &basis.totals, self.threads);
        let question = Question { policy, totals, run_key: computed.order_key(), carry: &carry, threads };
        let entitled = computed.outcome.as_ref().map_or(&[][..], |payouts| &payouts.entitled);
        explain(&question, entitled, actor).map_err(|breach| damaged(USAGE, breach))
    }

    /// The OpenZeppelin tree of an asset, built when first asked for; its root must be the published one.
    pub fn oz_tree(&self, asset_index: usize) -> Result<&OzTree, SealedError> {
        let (roster, paying) = self.computed.paying();
        let build = || {
            let tree = OzTree::build(roster, &paying[asset_index].amounts, self.threads);
            let tree = tree.map_err(|breach| breach.to_string())?;
            let root = tree.root().map(|root| hex0x(&root));
            self.checked(asset_index, tree, |facts| facts.roots.oz == root)
        };
        self.oz[asset_index].get_or_init(build).as_ref().map_err(|reason| damaged(MANIFEST, reason))
    }

    /// The sum tree of an asset, built when first asked for; its root must be the published one.
    pub fn sum_tree(&self, asset_index: usize) -> Result<&SumTree, SealedError> {
        let (roster, paying) = self.computed.paying();
        let allocation = &paying[asset_index];
        let build = || {
            let tree = SumTree::build(&allocation.asset, roster, &allocation.amounts, self.threads);
            let tree = tree.map_err(|breach| breach.to_string())?;
            let root = tree.root();
            let is_published = |facts: &AssetFacts| facts.roots.sum == b3(&root.hash) && facts.provable.0 == root.sum;
            self.checked(asset_index, tree, is_published)
        };
        self.sum[asset_index].get_or_init(build).as_ref().map_err(|reason| damaged(MANIFEST, reason))
    }

    fn checked<T>(&self, index: usize, tree: T, is_published: impl Fn(&AssetFacts) -> bool) -> Result<T, String> {
        let facts = self.computed.outcome.as_ref().ok().and_then(|payouts| payouts.facts.get(index));
        let reason = || "the root of a tree is not the one that the amounts have".to_owned();
        if facts.is_some_and(is_published) { Ok(tree) } else { Err(reason()) }
    }
}

/// One asset of a correction, with what is paid, and proven, and taken back of what the actor should have.
fn correct_explained(
    asset: AssetExplanation,
    actor: &str,
    before: &Correction,
    corrected: &Corrected,
) -> AssetExplanation {
    let Some(index) = corrected.pay.iter().position(|pay| pay.asset == asset.asset) else { return asset };
    let at = |amounts: &[u128]| corrected.roster.find(actor).map_or(0, |place| amounts[place]);
    let (pay, take_back) = (at(&corrected.pay[index].amounts), at(&corrected.take_back[index]));
    let paid = before.paid.iter().find(|(paid, _)| *paid == asset.asset).zip(before.roster.find(actor));
    let paid_before = paid.map_or(0, |((_, amounts), place)| amounts[place]);
    let carried = paid_before.saturating_sub(take_back).saturating_sub(asset.amount.0);
    let correction = CorrectedAmount {
        paid_before: Units(paid_before),
        pay: Units(pay),
        take_back: Units(take_back),
        carried: Units(carried),
    };
    AssetExplanation { correction: Some(correction), ..asset }
}

/// The whole of a small file; an error if it is longer than allowed.
pub(crate) fn read_file(disk: &dyn Disk, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(name)?;
    let len = file.len()?;
    if len > bytes_max {
        let reason = format!("it has {len} bytes; the bound is {bytes_max}");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}
