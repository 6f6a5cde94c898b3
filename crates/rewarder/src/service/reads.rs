//! Reading sealed runs: opened by their row, one kept in memory for those who ask several things of it.

use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ron_kernel::Deadline;
use ron_log::DiskFile;
use ron_types::limits::CHUNK_BYTES;
use ron_types::{Error, Kind};

use super::engine::{Engine, lock};
use crate::artifacts::MANIFEST;
use crate::hashing::b3;
use crate::sealed::{SealedError, SealedRun, damaged};
use crate::store::EpochRow;

/// Runs with more amounts than this are forgotten after each answer: about 100 MiB with their trees.
const AMOUNTS_KEPT_MAX: u64 = 500_000;

/// The run that was read last.
#[derive(Default)]
pub(crate) struct LastRead(Mutex<Option<Arc<SealedRun>>>);

/// Opens the run that a row seals. Blocks.
pub(crate) fn open_run(engine: &Engine, row: &EpochRow) -> Result<SealedRun, SealedError> {
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

impl LastRead {
    /// The run of a row, from memory if it was the last one. Blocks.
    fn get(&self, engine: &Engine, row: &EpochRow) -> Result<Arc<SealedRun>, SealedError> {
        let kept = lock(&self.0).clone();
        if let Some(run) = kept.filter(|run| b3(&run.commitment()) == row.commitment) {
            return Ok(run);
        }
        let run = Arc::new(open_run(engine, row)?);
        let amounts = row.actors.saturating_mul(row.totals.len() as u64);
        *lock(&self.0) = (amounts <= AMOUNTS_KEPT_MAX).then(|| Arc::clone(&run));
        Ok(run)
    }
}

/// Asks something of a sealed run, on a thread that may block, under a permit of the gate.
pub(crate) async fn ask<T: Send + 'static>(
    engine: &Arc<Engine>,
    row: Arc<EpochRow>,
    deadline: Deadline,
    question: impl FnOnce(&SealedRun) -> Result<T, SealedError> + Send + 'static,
) -> Result<T, Error> {
    let permit = engine.reads.try_acquire(1)?;
    let asked = Arc::clone(engine);
    let answer = tokio::task::spawn_blocking(move || {
        // Held by the thread, not by the caller: a caller that leaves does not make room for another.
        let _permit = permit;
        asked.last_read.get(&asked, &row).and_then(|run| question(&run)).map_err(sealed_error)
    });
    deadline.run("reward_read", answer).await?.map_err(|_| Error::canceled("reading the run broke off"))?
}

/// What is wrong with a sealed run, in the taxonomy of the node.
pub(crate) fn sealed_error(error: SealedError) -> Error {
    let kind = match &error {
        SealedError::Missing | SealedError::Damaged { .. } => Kind::Integrity,
        SealedError::Quarantined(_) => Kind::Quarantine,
        SealedError::UnknownAsset(_) => Kind::NotFound,
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
