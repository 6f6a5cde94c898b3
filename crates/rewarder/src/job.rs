//! One run, from files to amounts: read, divide, check, root. Pure but for reading the files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ron_calculus::tree::oz::OzTree;
use ron_calculus::tree::sum::SumTree;
use ron_calculus::{AssetAllocation, Breach, Policy, Question, Roster, Totals, Units};
use ron_ledger::RunKey;
use ron_usage::{InputError, InputFile, Limits};

use crate::canonical::{CanonicalError, to_canonical};
use crate::correct::{Corrected, Correction};
use crate::epoch::{EpochId, POT_PREFIX};
use crate::hashing::{b3, hash_parts, hex0x};
use crate::manifest::{AssetFacts, FORMAT, InputFacts, Roots};
use crate::payable;
use crate::policy_document::{PolicyDocument, PolicyDocumentError, canonical_policy};

/// Bytes that a compressed file may always unpack to, however small it is.
const UNPACKED_BYTES_FREE: u64 = 1 << 30;
/// Times its own length that a compressed file may unpack to beyond that. Rows of usage pack tenfold or twentyfold.
const UNPACKED_RATIO_MAX: u64 = 256;

/// An order for a run.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name of the epoch.
    pub epoch: EpochId,
    /// Files of usage.
    pub inputs: Vec<InputFile>,
    /// The policy.
    pub policy: PolicyDocument,
    /// Pools of this epoch, in place of those in the policy.
    pub pools: BTreeMap<String, Units>,
    /// Units left over by an earlier epoch, added to the pools.
    pub carry: BTreeMap<String, Units>,
    /// Commitment of the run that they come from.
    pub carry_from: Option<String>,
    /// What it may cost.
    pub cost: Cost,
}

/// What a run may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Threads; the result does not depend on it.
    pub threads: usize,
    /// Memory for reading and adding up, in bytes.
    pub memory_bytes: u64,
    /// Folder for what does not fit into memory; none: nothing is written.
    pub spill: Option<PathBuf>,
}

/// Part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Files are read and added up; progress in bytes.
    Reading,
    /// Pools are divided; progress in assets.
    Dividing,
    /// Trees are built; progress in trees.
    Rooting,
    /// Artifacts are written; progress in artifacts.
    Writing,
}

/// Hears how far a run is, and says whether it goes on: a deadline, a drain, a person.
pub trait Watch: Sync {
    /// Progress within a stage; false stops the run with [`RunError::Stopped`].
    fn at(&self, stage: Stage, done: u64, of: u64) -> bool;
}

/// Lets every run go on to its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn at(&self, _stage: Stage, _done: u64, _of: u64) -> bool {
        true
    }
}

/// Why there is no run. An invariant that does not hold is none of these: such a run exists, in quarantine.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The files cannot be counted.
    #[error("{0}")]
    Input(InputError),
    /// The policy cannot be run.
    #[error("{0}")]
    Policy(#[from] PolicyDocumentError),
    /// The order contradicts itself, or names a payee that cannot be paid.
    #[error("{0}")]
    Order(String),
    /// [`Watch`] said so.
    #[error("stopped before the end")]
    Stopped,
    /// The disk failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl RunError {
    /// Whether the same order will be refused again: what came in is bad, not the machine.
    pub fn is_refusal(&self) -> bool {
        match self {
            RunError::Input(InputError::Io { .. }) | RunError::Stopped | RunError::Io(_) => false,
            RunError::Input(_) | RunError::Policy(_) | RunError::Order(_) => true,
        }
    }
}

impl From<InputError> for RunError {
    fn from(error: InputError) -> RunError {
        if matches!(error, InputError::Stopped) { RunError::Stopped } else { RunError::Input(error) }
    }
}

impl From<CanonicalError> for RunError {
    fn from(error: CanonicalError) -> RunError {
        RunError::Policy(PolicyDocumentError::Canonical(error))
    }
}

/// Everything that a run follows from, read and checked.
#[derive(Clone, Debug)]
pub struct Basis {
    /// Version of the manifest's format.
    pub format: u32,
    /// Name of the epoch.
    pub epoch: EpochId,
    /// The policy as it came.
    pub document: PolicyDocument,
    /// The policy in force, with every pool filled in.
    pub policy: Policy,
    /// Pools given with the run.
    pub pools: BTreeMap<String, Units>,
    /// Units left over by an earlier epoch.
    pub carry: BTreeMap<String, Units>,
    /// Commitment of the run that they come from.
    pub carry_from: Option<String>,
    /// The files of usage, sorted, with the names that are known.
    pub inputs: Vec<InputFacts>,
    /// Rows in all files.
    pub rows: u64,
    /// The rows, added up.
    pub totals: Totals,
    /// The run to correct, and what it paid.
    pub correction: Option<Correction>,
}

/// A run that was computed, and is not written yet.
#[derive(Clone, Debug)]
pub struct Computed {
    /// What it follows from.
    pub basis: Basis,
    /// Canonical JSON of the policy in force.
    pub policy_bytes: Vec<u8>,
    /// Hash of it.
    pub policy_hash: [u8; 32],
    /// Hash of what the files say.
    pub content: [u8; 32],
    /// Key of the run.
    pub run_key: RunKey,
    /// The amounts, or why the run is in quarantine.
    pub outcome: Result<Payouts, Breach>,
}

/// What a run pays.
#[derive(Clone, Debug)]
pub struct Payouts {
    /// What everyone is entitled to, by the roster of the totals.
    pub entitled: Vec<AssetAllocation>,
    /// A correction pays the difference to what was paid before.
    pub corrected: Option<Corrected>,
    /// Facts of each asset, for the manifest.
    pub facts: Vec<AssetFacts>,
}

/// Divides the pools. A service can be tested with a function that does it wrongly.
pub type Divide = fn(&Question<'_>) -> Result<Vec<AssetAllocation>, Breach>;

/// Reads the files and computes the run.
pub fn compute(job: &Job, watch: &dyn Watch) -> Result<Computed, RunError> {
    compute_with(job, watch, ron_calculus::allocate)
}

/// [`compute`], with the pools divided by another function.
pub fn compute_with(job: &Job, watch: &dyn Watch, divide: Divide) -> Result<Computed, RunError> {
    compute_pinned(job, &[], watch, divide)
}

/// [`compute_with`], of files that must each have these bytes: a hash for each file of the job, none where any will do.
pub fn compute_pinned(
    job: &Job,
    pins: &[Option<[u8; 32]>],
    watch: &dyn Watch,
    divide: Divide,
) -> Result<Computed, RunError> {
    job.policy.check_pools(&job.pools)?;
    let basis = read_pinned(job, pins, watch)?;
    settle(basis, job.cost.threads, watch, divide)
}

/// Reads and checks everything that the run follows from.
pub fn read(job: &Job, watch: &dyn Watch) -> Result<Basis, RunError> {
    read_pinned(job, &[], watch)
}

fn read_pinned(job: &Job, pins: &[Option<[u8; 32]>], watch: &dyn Watch) -> Result<Basis, RunError> {
    let policy = job.policy.in_force(&job.pools)?;
    let is_known = |asset: &&String| policy.assets.iter().any(|known| known.asset == **asset);
    if let Some(unknown) = job.carry.keys().find(|asset| !is_known(asset)) {
        return Err(RunError::Order(format!(
            "{unknown} is carried in, but the policy `{}` does not pay it",
            policy.id
        )));
    }
    let limits = Limits {
        memory_bytes: job.cost.memory_bytes,
        threads: job.cost.threads,
        spill: job.cost.spill.clone(),
        unpacked_bytes_max: unpacked_bytes_max(&job.inputs),
    };
    let read = ron_usage::read(&job.inputs, &limits, &ReadingProgress(watch))?;
    check_pins(&job.inputs, pins, &read.hashes)?;
    refuse_pots(read.totals.roster())?;
    payable::check(read.totals.roster(), &policy)?;
    let files = job.inputs.iter().zip(read.hashes.iter().zip(&read.lengths));
    let facts = |(file, (hash, bytes)): (&InputFile, (&blake3::Hash, &u64))| InputFacts {
        b3: b3(hash.as_bytes()),
        name: Some(file.name.clone()),
        bytes: *bytes,
    };
    let mut inputs: Vec<InputFacts> = files.map(facts).collect();
    // The order of files on a command line changes nothing, so it must not change the manifest either.
    inputs.sort_unstable();
    let (pools, carry) = (job.pools.clone(), without_zeros(&job.carry));
    let carry_from = job.carry_from.clone().filter(|_| !carry.is_empty());
    let (epoch, document) = (job.epoch.clone(), job.policy.clone());
    let (rows, totals) = (read.rows, read.totals);
    let (format, correction) = (FORMAT, None);
    Ok(Basis { format, epoch, document, policy, pools, carry, carry_from, inputs, rows, totals, correction })
}

/// The bytes read from each file must be those that the caller named for it, not for another one.
fn check_pins(files: &[InputFile], pins: &[Option<[u8; 32]>], hashes: &[blake3::Hash]) -> Result<(), RunError> {
    let read = files.iter().zip(hashes).zip(pins);
    let mut wrong = read.filter_map(|((file, hash), pin)| pin.filter(|pin| pin != hash.as_bytes()).zip(Some(file)));
    let told = |(pin, file): ([u8; 32], &InputFile)| {
        RunError::Order(format!("{}: its bytes do not have the hash {}", file.name, b3(&pin)))
    };
    wrong.next().map_or(Ok(()), |wrong| Err(told(wrong)))
}

/// Refuses ids that are accounts of pots. They stand together, since a roster is in order.
fn refuse_pots(roster: &Roster) -> Result<(), RunError> {
    let place = roster.place_for(POT_PREFIX);
    if place < roster.len() && roster.get(place).starts_with(POT_PREFIX) {
        let reason = format!("an actor's id begins with `{POT_PREFIX}`: such ids are the accounts of pots");
        return Err(RunError::Order(reason));
    }
    Ok(())
}

/// Bytes that a compressed file of this order may unpack to: a bomb is refused long before it has gone off.
fn unpacked_bytes_max(inputs: &[InputFile]) -> u64 {
    let lengths = inputs.iter().filter_map(|input| std::fs::metadata(&input.path).ok()).map(|found| found.len());
    lengths.max().unwrap_or(0).saturating_mul(UNPACKED_RATIO_MAX).max(UNPACKED_BYTES_FREE)
}

fn without_zeros(carry: &BTreeMap<String, Units>) -> BTreeMap<String, Units> {
    carry.iter().filter(|(_, units)| units.0 > 0).map(|(asset, units)| (asset.clone(), *units)).collect()
}

/// Divides the pools, checks the result and builds the roots.
pub fn settle(basis: Basis, threads: usize, watch: &dyn Watch, divide: Divide) -> Result<Computed, RunError> {
    let mut computed = settle_without_roots(basis, threads, watch, divide)?;
    let rooted = roots(&computed, threads, watch)?;
    computed.outcome = match (computed.outcome, rooted) {
        (Ok(payouts), Ok(facts)) => Ok(Payouts { facts, ..payouts }),
        (Err(breach), _) | (_, Err(breach)) => Err(breach),
    };
    Ok(computed)
}

/// Divides the pools and checks the result; there are no facts for the manifest yet.
pub fn settle_without_roots(
    basis: Basis,
    threads: usize,
    watch: &dyn Watch,
    divide: Divide,
) -> Result<Computed, RunError> {
    if let Some(correction) =
        basis.correction.as_ref().filter(|c| !c.carries(&basis.carry, basis.carry_from.as_deref()))
    {
        let reason = format!("a correction carries in what {} carried in, and nothing else", correction.epoch);
        return Err(RunError::Order(reason));
    }
    let (policy_bytes, policy_hash) = canonical_policy(&basis.policy)?;
    let content = *basis.totals.content_hash().as_bytes();
    let run_key = run_key(&basis, &policy_hash, &content)?;
    let assets = basis.policy.assets.len() as u64;
    go_on(watch, Stage::Dividing, 0, assets)?;
    let outcome = entitlements(&basis, &run_key, threads, divide);
    let outcome = outcome.map(|(entitled, corrected)| Payouts { entitled, corrected, facts: Vec::new() });
    go_on(watch, Stage::Dividing, assets, assets)?;
    Ok(Computed { basis, policy_bytes, policy_hash, content, run_key, outcome })
}

/// Facts of every asset, with the roots of its trees.
fn roots(computed: &Computed, threads: usize, watch: &dyn Watch) -> Result<Result<Vec<AssetFacts>, Breach>, RunError> {
    let (roster, paying) = computed.paying();
    let assets = paying.len() as u64;
    let mut facts = Vec::with_capacity(paying.len());
    for (done, allocation) in paying.iter().enumerate() {
        go_on(watch, Stage::Rooting, done as u64, assets)?;
        match asset_facts(roster, allocation, threads) {
            Ok(found) => facts.push(found),
            Err(breach) => return Ok(Err(breach)),
        }
    }
    go_on(watch, Stage::Rooting, assets, assets)?;
    Ok(Ok(facts))
}

fn go_on(watch: &dyn Watch, stage: Stage, done: u64, of: u64) -> Result<(), RunError> {
    if watch.at(stage, done, of) { Ok(()) } else { Err(RunError::Stopped) }
}

/// Key of a run: everything that its amounts follow from, and nothing else.
fn run_key(basis: &Basis, policy_hash: &[u8; 32], content: &[u8; 32]) -> Result<RunKey, CanonicalError> {
    let carry = to_canonical(&basis.carry)?;
    let epoch = basis.epoch.as_str().as_bytes();
    Ok(match &basis.correction {
        None => hash_parts(&[b"svc-rewarder|v1", epoch, policy_hash, content, &carry]),
        Some(correction) => {
            let base = to_canonical(&correction.facts())?;
            hash_parts(&[b"svc-rewarder|correction|v1", epoch, policy_hash, content, &carry, &base])
        }
    })
}

type Entitlements = (Vec<AssetAllocation>, Option<Corrected>);

fn entitlements(basis: &Basis, run_key: &RunKey, threads: usize, divide: Divide) -> Result<Entitlements, Breach> {
    let carry = basis.carry_units();
    // A correction orders equals as the corrected run did: else units would change hands that no error explains.
    let order_key = basis.correction.as_ref().map_or(run_key, |correction| &correction.run_key);
    let question =
        Question { policy: &basis.policy, totals: &basis.totals, run_key: order_key, carry: &carry, threads };
    let entitled = divide(&question)?;
    check(basis, &entitled)?;
    let corrected = match &basis.correction {
        Some(correction) => Some(correction.apply(basis.totals.roster(), &entitled)?),
        None => None,
    };
    Ok((entitled, corrected))
}

/// Conservation, checked apart from the code that divides: one amount for each actor, their sum is what is said to be
/// paid, and no more is paid than there is.
fn check(basis: &Basis, allocations: &[AssetAllocation]) -> Result<(), Breach> {
    let expected = basis.policy.assets.iter().map(|asset| asset.asset.as_str());
    if !expected.eq(allocations.iter().map(|allocation| allocation.asset.as_str())) {
        return Err(Breach::Conservation("the assets divided are not those of the policy".to_owned()));
    }
    for allocation in allocations {
        let AssetAllocation { asset, pool, paid, amounts, .. } = allocation;
        if amounts.len() != basis.totals.roster().len() {
            return Err(Breach::Conservation(format!("{asset}: {} amounts for the actors", amounts.len())));
        }
        let sum = amounts.iter().try_fold(0_u128, |sum, amount| sum.checked_add(*amount));
        if sum != Some(*paid) || paid > pool {
            let sum = sum.map_or_else(|| "more than 2^128".to_owned(), |sum| sum.to_string());
            return Err(Breach::Conservation(format!("{asset}: {sum} of {pool} allocated, {paid} declared")));
        }
    }
    Ok(())
}

/// Facts of one asset. The trees are dropped again: together they would be larger than everything else in memory.
fn asset_facts(roster: &Roster, allocation: &AssetAllocation, threads: usize) -> Result<AssetFacts, Breach> {
    let AssetAllocation { asset, pool, paid, amounts, .. } = allocation;
    let oz = OzTree::build(roster, amounts, threads)?.root().map(|root| hex0x(&root));
    let sum = SumTree::build(asset, roster, amounts, threads)?.root();
    if sum.sum != *paid {
        return Err(Breach::Conservation(format!("{asset}: the sum tree counts {} of {paid} paid", sum.sum)));
    }
    let payees = amounts.iter().filter(|amount| **amount > 0).count() as u64;
    let delta = pool.checked_sub(*paid).map(Units);
    let delta = delta.ok_or_else(|| Breach::Conservation(format!("{asset}: {paid} paid of {pool}")))?;
    let roots = Roots { oz, sum: b3(&sum.hash) };
    let (pool, paid, provable) = (Units(*pool), Units(*paid), Units(sum.sum));
    Ok(AssetFacts { asset: asset.clone(), pool, paid, delta, payees, roots, provable })
}

impl Basis {
    /// What was carried in, as the calculus takes it.
    pub fn carry_units(&self) -> BTreeMap<String, u128> {
        self.carry.iter().map(|(asset, units)| (asset.clone(), units.0)).collect()
    }
}

impl Computed {
    /// Who is paid and how much, by asset; nobody in quarantine.
    pub fn paying(&self) -> (&Roster, &[AssetAllocation]) {
        match &self.outcome {
            Ok(Payouts { corrected: Some(corrected), .. }) => (&corrected.roster, &corrected.pay),
            Ok(payouts) => (self.basis.totals.roster(), &payouts.entitled),
            Err(_) => (self.basis.totals.roster(), &[]),
        }
    }

    /// Units of each asset that are left over, for the next epoch to carry in; nothing in quarantine.
    pub fn left_over(&self) -> BTreeMap<String, Units> {
        let Ok(payouts) = &self.outcome else { return BTreeMap::new() };
        let mut left: BTreeMap<String, Units> = match &payouts.corrected {
            Some(corrected) => corrected.facts.iter().map(|facts| (facts.asset.clone(), facts.left_over)).collect(),
            None => {
                payouts.entitled.iter().map(|asset| (asset.asset.clone(), Units(asset.pool - asset.paid))).collect()
            }
        };
        left.retain(|_, units| units.0 > 0);
        left
    }

    /// Key that equals are ordered by: the run's own, or the corrected run's.
    pub fn order_key(&self) -> &RunKey {
        self.basis.correction.as_ref().map_or(&self.run_key, |correction| &correction.run_key)
    }
}

/// Passes the progress of reading on.
struct ReadingProgress<'a>(&'a dyn Watch);

impl ron_usage::Progress for ReadingProgress<'_> {
    fn read(&self, bytes: u64, of: u64) -> bool {
        self.0.at(Stage::Reading, bytes, of)
    }
}
