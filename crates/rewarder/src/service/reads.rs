//! Reading sealed runs: opened by their row; those that are loaded are shared, and bounded by their bytes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ron_kernel::Deadline;
use ron_log::DiskFile;
use ron_types::limits::CHUNK_BYTES;
use ron_types::{Error, Kind};
use ron_usage::{FileIdentity, InputFile, open_file};

use super::engine::{Engine, lock};
use super::request::Prepared;
use crate::artifacts::MANIFEST;
use crate::hashing::b3;
use crate::sealed::{Loaded, SealedError, SealedRun, damaged};
use crate::store::EpochRow;

/// Bytes that one amount takes in a loaded run, with its part of the trees, the totals and the roster.
const BYTES_PER_AMOUNT: u64 = 256;

/// What a caller holds of the reads of the node, of whatever kind: given back when the thread that reads is done, so
/// that a caller that leaves makes no room for another of its own.
pub struct ReadShare(#[expect(dead_code, reason = "held for its drop")] Option<Box<dyn Send>>);

impl ReadShare {
    /// A read that counts against this until it is done.
    pub fn of(held: impl Send + 'static) -> ReadShare {
        ReadShare(Some(Box::new(held)))
    }

    /// A read of nobody's share.
    pub fn none() -> ReadShare {
        ReadShare(None)
    }
}

/// Runs that are loaded, or were for the last who asked. Whoever asks for one that is being loaded waits for it and
/// shares it, so that a crowd costs one load; what would not fit beside those in use is refused.
#[derive(Default)]
pub(crate) struct LoadedRuns(Mutex<KeptRuns>);

#[derive(Default)]
struct KeptRuns {
    by_commitment: BTreeMap<String, KeptRun>,
    /// Number of the last use.
    uses: u64,
}

struct KeptRun {
    run: Arc<SealedRun>,
    /// Bytes that it takes when it is loaded, about.
    bytes: u64,
    last_use: u64,
}

impl KeptRuns {
    fn bytes(&self) -> u64 {
        self.by_commitment.values().map(|kept| kept.bytes).sum()
    }

    /// Forgets runs that nobody uses, the one used longest ago first, until so many bytes fit.
    fn make_room(&mut self, bytes: u64, bytes_max: u64) {
        while self.bytes().saturating_add(bytes) > bytes_max {
            let idle = self.by_commitment.iter().filter(|(_, kept)| Arc::strong_count(&kept.run) == 1);
            let Some(oldest) = idle.min_by_key(|(_, kept)| kept.last_use).map(|(name, _)| name.clone()) else { return };
            self.by_commitment.remove(&oldest);
        }
    }
}

/// Opens the run that a row seals. Blocks.
pub(crate) fn open_run(engine: &Engine, row: &EpochRow) -> Result<SealedRun, SealedError> {
    if let Some(by) = &row.removed_by {
        return Err(SealedError::Removed(by.clone()));
    }
    let disk = engine.options.folders.open(&row.epoch).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => SealedError::Missing,
        _ => SealedError::Io(error),
    })?;
    let run = SealedRun::open(disk, engine.options.run_memory_bytes, engine.options.run_threads)?;
    let found = b3(&run.commitment());
    if found != row.commitment {
        let sealed = &row.commitment;
        return Err(damaged(MANIFEST, format!("its commitment is {found}, but {sealed} was sealed")));
    }
    Ok(run)
}

impl LoadedRuns {
    /// The run of a row, to be loaded by whoever comes first. Blocks. A run that is larger than the bound has it to
    /// itself, and so do the two of a comparison: `in_hand` are those that the same question has already.
    pub fn get(
        &self,
        engine: &Engine,
        row: &EpochRow,
        bytes_max: u64,
        in_hand: &[Arc<SealedRun>],
    ) -> Result<Arc<SealedRun>, Error> {
        // Held while the manifest is read, which is small, so that two do not open the same run.
        let mut kept = lock(&self.0);
        kept.uses += 1;
        let this_use = kept.uses;
        if let Some(found) = kept.by_commitment.get_mut(&row.commitment) {
            found.last_use = this_use;
            return Ok(Arc::clone(&found.run));
        }
        let bytes = row.actors.saturating_mul(row.totals.len() as u64 + 1).saturating_mul(BYTES_PER_AMOUNT);
        kept.make_room(bytes, bytes_max);
        let is_own = |kept: &KeptRun| in_hand.iter().any(|own| Arc::ptr_eq(own, &kept.run));
        let has_others = kept.by_commitment.values().any(|kept| !is_own(kept));
        if has_others && kept.bytes().saturating_add(bytes) > bytes_max {
            return Err(Error::busy("memory for reading runs"));
        }
        let run = Arc::new(open_run(engine, row).map_err(sealed_error)?);
        let opened = KeptRun { run: Arc::clone(&run), bytes, last_use: this_use };
        kept.by_commitment.insert(row.commitment.clone(), opened);
        Ok(run)
    }

    /// Forgets what is over the bound as soon as nobody uses it: one run that is larger does not stay.
    fn trim(&self, bytes_max: u64) {
        lock(&self.0).make_room(0, bytes_max);
    }

    /// Forgets a run whose artifacts are gone.
    pub fn forget(&self, commitment: &str) {
        lock(&self.0).by_commitment.remove(commitment);
    }
}

/// Whether files of a request whose hashes nobody said still hold what a sealed run was computed from. Blocks.
pub(crate) fn holds_same_inputs(run: &SealedRun, prepared: &Prepared) -> Result<bool, SealedError> {
    let mut sealed: Vec<&str> = run.manifest().inputs.iter().map(|facts| facts.b3.as_str()).collect();
    for (file, pin) in prepared.files.iter().zip(&prepared.pins) {
        let found = match pin {
            Some(hash) => b3(hash),
            None => b3(&hash_of(file)?),
        };
        let Some(place) = sealed.iter().position(|hash| *hash == found) else { return Ok(false) };
        sealed.swap_remove(place);
    }
    Ok(sealed.is_empty())
}

/// Hash of a file that was accepted, as long as it is that file.
fn hash_of(input: &InputFile) -> io::Result<[u8; 32]> {
    let file = open_file(&input.path)?;
    if input.accepted.is_some_and(|accepted| file.metadata().is_ok_and(|found| FileIdentity::of(&found) != accepted)) {
        return Err(io::Error::other(format!("{}: it was changed or replaced meanwhile", input.name)));
    }
    Ok(*blake3::Hasher::new().update_reader(file)?.finalize().as_bytes())
}

/// Asks something of the manifest or of a file of a sealed run, on a thread that may block, under a permit of the gate.
pub(crate) async fn ask<T: Send + 'static>(
    engine: &Arc<Engine>,
    row: Arc<EpochRow>,
    share: ReadShare,
    deadline: Deadline,
    question: impl FnOnce(&SealedRun) -> Result<T, SealedError> + Send + 'static,
) -> Result<T, Error> {
    let opening = Arc::clone(engine);
    let answer = move || open_run(&opening, &row).and_then(|run| question(&run)).map_err(sealed_error);
    blocking(engine, share, deadline, answer).await
}

/// Asks something of loaded runs, on a thread that may block, under a permit of the gate.
pub(crate) async fn ask_loaded<T: Send + 'static, const N: usize>(
    engine: &Arc<Engine>,
    rows: [Arc<EpochRow>; N],
    share: ReadShare,
    deadline: Deadline,
    question: impl FnOnce([&Loaded; N]) -> Result<T, SealedError> + Send + 'static,
) -> Result<T, Error> {
    let reading = Arc::clone(engine);
    let answer = move || {
        let bytes_max = reading.options.run_memory_bytes;
        let mut runs = Vec::with_capacity(N);
        for row in &rows {
            let run = reading.loaded_runs.get(&reading, row, bytes_max, &runs)?;
            runs.push(run);
        }
        let loaded = runs.iter().map(|run| run.load()).collect::<Result<Vec<_>, _>>().map_err(sealed_error)?;
        let answer = question(std::array::from_fn(|index| &*loaded[index])).map_err(sealed_error);
        drop((loaded, runs));
        reading.loaded_runs.trim(bytes_max);
        answer
    };
    blocking(engine, share, deadline, answer).await
}

async fn blocking<T: Send + 'static>(
    engine: &Engine,
    share: ReadShare,
    deadline: Deadline,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let permit = engine.reads.try_acquire(1)?;
    let answer = tokio::task::spawn_blocking(move || {
        // Held by the thread, not by the caller: a caller that leaves does not make room for another.
        let _held = (permit, share);
        work()
    });
    deadline.run("reward_read", answer).await?.map_err(|_| Error::canceled("reading the run broke off"))?
}

/// What is wrong with a sealed run, in the taxonomy of the node.
pub(crate) fn sealed_error(error: SealedError) -> Error {
    let kind = match &error {
        SealedError::Missing | SealedError::Damaged { .. } => Kind::Integrity,
        SealedError::Quarantined(_) => Kind::Quarantine,
        SealedError::UnknownAsset(_) | SealedError::Removed(_) => Kind::NotFound,
        SealedError::Io(_) | SealedError::Run(_) => Kind::Degraded,
    };
    Error::new(kind, error.to_string())
}

/// An artifact that is read piece by piece.
pub struct ArtifactReader {
    file: Arc<dyn DiskFile>,
    offset: u64,
    bytes: u64,
}

impl ArtifactReader {
    pub(crate) fn new(file: Arc<dyn DiskFile>) -> io::Result<ArtifactReader> {
        let bytes = file.len()?;
        Ok(ArtifactReader { file, offset: 0, bytes })
    }

    /// Length of the artifact.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next piece; none at the end.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let len = (self.bytes - self.offset).min(4 * CHUNK_BYTES as u64) as usize;
        if len == 0 {
            return Ok(None);
        }
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; len];
            file.read_at(offset, &mut piece).map(|()| Bytes::from(piece))
        });
        let piece = read.await.map_err(io::Error::other)??;
        self.offset += len as u64;
        Ok(Some(piece))
    }
}
