//! A request to compute an epoch, and what makes two of them the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ron_calculus::Units;
use ron_kernel::Deadline;
use ron_types::limits::rewarder::INPUT_FILES_MAX;
use ron_types::{Error, Kind};
use ron_usage::InputFile;

use super::shares::RunShare;
use crate::canonical::to_canonical;
use crate::epoch::EpochId;
use crate::hashing::{b3, hash_parts};
use crate::inputs::{self, InputPin, Inputs};
use crate::keys::TrustedKeys;
use crate::policy_document::{PolicyDocument, Trust, canonical_policy};
use crate::sealed::SealedRun;

/// A request as the caller wrote it.
#[derive(Clone, Debug)]
pub struct ComputeRequest {
    /// The epoch to compute.
    pub epoch: EpochId,
    /// Its usage.
    pub inputs: Vec<InputRef>,
    /// A policy, or an envelope with one.
    pub policy: Vec<u8>,
    /// Pools of this epoch, in place of those in the policy.
    pub pools: BTreeMap<String, Units>,
    /// The epoch whose leftovers are added to the pools.
    pub carry_from: Option<EpochId>,
    /// A policy that nobody signed will do, if the node takes any.
    pub unsigned: bool,
    /// Time the run has.
    pub deadline: Option<Duration>,
}

/// One file of usage, named by the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputRef {
    /// Bytes that were uploaded.
    Upload([u8; 32]),
    /// A file below the folder of inputs, and what it must hash to if the caller says so.
    File {
        /// Path below the folder.
        path: String,
        /// Hash of its bytes.
        b3: Option<[u8; 32]>,
    },
    /// The usage that the node's own meter sealed under this name.
    Meter(EpochId),
}

/// What the preparation of a request needs to know of the node.
pub(crate) struct Grounds<'a> {
    pub inputs: &'a Arc<Inputs>,
    pub inputs_dir: Option<&'a Path>,
    pub trusted: Option<&'a TrustedKeys>,
    pub allows_unsigned: bool,
    /// Nothing outlives the process.
    pub is_amnesia: bool,
    /// Memory of one run.
    pub memory_bytes: u64,
    /// Threads of one run.
    pub threads: usize,
    /// When nobody waits for the request any more.
    pub deadline: Deadline,
}

/// A request that is understood: its policy is believed and its files are there.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub epoch: EpochId,
    pub files: Vec<InputFile>,
    /// What each file must hash to, in the order of the files; none where nobody said.
    pub pins: Vec<Option<[u8; 32]>>,
    /// Keep uploads from removal until the run is over.
    pub kept: Vec<Arc<InputPin>>,
    /// Share of its caller in the runs that wait.
    pub share: Option<Arc<RunShare>>,
    /// A correction that was made elsewhere, in place of files.
    pub correction: Option<Arc<SealedRun>>,
    /// The signatures under it.
    pub signatures: Option<Vec<u8>>,
    pub document: PolicyDocument,
    pub pools: BTreeMap<String, Units>,
    pub carry_from: Option<EpochId>,
    pub deadline: Option<Duration>,
    /// Identity of the request.
    pub hash: [u8; 32],
    /// Whether its inputs outlive the process, so that after a crash the same payouts can be computed again.
    pub is_payable: bool,
}

impl ComputeRequest {
    /// Checks everything that can be checked without reading usage. Blocks on the file system.
    pub(crate) fn prepare(self, grounds: &Grounds<'_>) -> Result<Prepared, Error> {
        let allows_unsigned = grounds.allows_unsigned && self.unsigned;
        let trust = Trust { keys: grounds.trusted, allows_unsigned };
        let is_wanted = || !grounds.deadline.has_passed();
        let document =
            PolicyDocument::read_while(&self.policy, trust, &is_wanted).map_err(|error| bad_policy(&error))?;
        document.check_pools(&self.pools).map_err(|error| bad_policy(&error))?;
        let policy = document.in_force(&self.pools).map_err(|error| bad_policy(&error))?;
        let (_, policy_hash) = canonical_policy(&policy).map_err(|error| bad_policy(&error))?;
        if self.inputs.is_empty() || self.inputs.len() > INPUT_FILES_MAX {
            return Err(Error::schema(format!("inputs: 1 to {INPUT_FILES_MAX} files, not {}", self.inputs.len())));
        }
        let (mut files, mut pins, mut names, mut kept) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut named = NamedOnce::default();
        for (index, input) in self.inputs.iter().enumerate() {
            let (file, pin, keeps) = input.resolve(grounds)?;
            named.add(index, &file, pin)?;
            kept.extend(keeps.map(Arc::new));
            names.push(pin.map_or_else(|| format!("file:{}", file.name), |hash| b3(&hash)));
            files.push(file);
            pins.push(pin);
        }
        // Neither the order of files nor the way a file was named makes another request.
        names.sort_unstable();
        let carry_from = self.carry_from.as_ref().map_or("", EpochId::as_str);
        let names = to_canonical(&names).map_err(|error| Error::schema(error.to_string()))?;
        let epoch = self.epoch.as_str().as_bytes();
        let hash = hash_parts(&[b"svc-rewarder|request|v1", epoch, &policy_hash, &names, carry_from.as_bytes()]);
        let is_pinned = |input: &InputRef| matches!(input, InputRef::File { b3: Some(_), .. });
        let is_payable = !grounds.is_amnesia || self.inputs.iter().all(is_pinned);
        let ComputeRequest { epoch, pools, carry_from, deadline, .. } = self;
        let (correction, signatures, share) = (None, None, None);
        Ok(Prepared {
            epoch,
            files,
            pins,
            kept,
            share,
            correction,
            signatures,
            document,
            pools,
            carry_from,
            deadline,
            hash,
            is_payable,
        })
    }
}

/// The inputs of one request: its rows would count twice if one were named twice, by whatever names.
#[derive(Default)]
struct NamedOnce {
    hashes: BTreeMap<[u8; 32], usize>,
    files: BTreeMap<(u64, u64), usize>,
}

impl NamedOnce {
    fn add(&mut self, index: usize, file: &InputFile, pin: Option<[u8; 32]>) -> Result<(), Error> {
        let same_hash = pin.and_then(|hash| self.hashes.insert(hash, index));
        let same_file = file.accepted.and_then(|identity| self.files.insert(identity.file(), index));
        same_hash.or(same_file).map_or(Ok(()), |first| {
            Err(Error::schema(format!("inputs[{index}]: it is inputs[{first}] once more; an input counts once")))
        })
    }
}

/// A file, what it must hash to, and what keeps it there.
type Resolved = (InputFile, Option<[u8; 32]>, Option<InputPin>);

impl InputRef {
    fn resolve(&self, grounds: &Grounds<'_>) -> Result<Resolved, Error> {
        match self {
            InputRef::Upload(hash) => {
                let missing = || Error::new(Kind::NotFound, format!("inputs: {} was not uploaded", b3(hash)));
                let pin = grounds.inputs.pin(hash).ok_or_else(missing)?;
                Ok((InputFile::new(b3(hash), pin.path()), Some(*hash), Some(pin)))
            }
            InputRef::File { path, b3 } => {
                let (found, accepted) = inputs::below(grounds.inputs_dir, path)?;
                Ok((InputFile { accepted: Some(accepted), ..InputFile::new(path, found) }, *b3, None))
            }
            // The handle has brought its file in and put its hash here.
            InputRef::Meter(epoch) => {
                Err(Error::new(Kind::NotFound, format!("inputs: this node has no meter that sealed {epoch}")))
            }
        }
    }
}

pub(crate) fn bad_policy(error: &dyn std::fmt::Display) -> Error {
    Error::schema(format!("policy: {error}"))
}
