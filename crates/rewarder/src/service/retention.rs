//! Room for artifacts: how many bytes they take, and which of them go. What was paid stays in the seal log and in the
//! ledger, so that an epoch without artifacts is still known and is not computed again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ron_types::{Error, Kind};

use super::engine::{Engine, lock};
use crate::store::{EpochRow, StoreError};

/// Pause between two looks for artifacts whose time is over.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(600);
/// Epochs that one look removes at most.
const REMOVED_AT_ONCE: usize = 1000;
/// Who removes what is older than the setting says.
const BY_AGE: &str = "rewarder.artifacts_kept_for";

/// Refuses a run for which there is no room on the disk.
pub(crate) fn check_room(engine: &Engine) -> Result<(), Error> {
    let (bytes, bytes_max) = (engine.room.bytes(), engine.live.get().value.epochs_bytes_max);
    if bytes < bytes_max {
        return Ok(());
    }
    let detail = format!(
        "the artifacts of epochs take {bytes} of the {bytes_max} bytes of `rewarder.epochs_bytes_max`; remove those of \
         settled epochs (`macronode reward prune`), or set `{BY_AGE}`"
    );
    Err(Error::new(Kind::Degraded, detail))
}

/// Removes the artifacts of an epoch that is over. Blocks. The record comes first: what a crash leaves of the files is
/// removed by the next start.
pub(crate) fn remove(engine: &Engine, epoch: &str, by: &str) -> Result<Arc<EpochRow>, StoreError> {
    let store = engine.store().map_err(|_| StoreError::Unknown(epoch.to_owned()))?;
    if let Some(row) = store.get(epoch).filter(|row| row.removed_by.is_some()) {
        return Ok(row);
    }
    let row = store.remove(epoch, by)?;
    engine.loaded_runs.forget(&row.commitment);
    engine.drop_artifacts(store, epoch);
    tracing::info!(epoch, by, "artifacts are removed");
    Ok(row)
}

/// Removes the artifacts of epochs that were settled this long ago; gives their number. Blocks.
pub(crate) fn prune(engine: &Engine, kept_for: Duration, now_ms: u64) -> Result<usize, StoreError> {
    if kept_for.is_zero() {
        return Ok(0);
    }
    let store = engine.store().map_err(|_| StoreError::Unknown(String::new()))?;
    let kept_for_ms = u64::try_from(kept_for.as_millis()).unwrap_or(u64::MAX);
    let mut old = store.settled_before(now_ms.saturating_sub(kept_for_ms));
    // What the ledger lacks may have to be sent again.
    let missing: BTreeSet<String> = lock(&engine.settled).missing().iter().map(|row| row.epoch.clone()).collect();
    old.retain(|epoch| !missing.contains(epoch));
    let old = &old[..old.len().min(REMOVED_AT_ONCE)];
    old.iter().try_for_each(|epoch| remove(engine, epoch, BY_AGE).map(drop))?;
    Ok(old.len())
}

/// One look, on a thread that may block. What fails is tried again at the next.
pub(crate) async fn look(engine: &Arc<Engine>) {
    let (looking, kept_for) = (Arc::clone(engine), engine.live.get().value.artifacts_kept_for);
    if kept_for.is_zero() {
        return;
    }
    let pruned = tokio::task::spawn_blocking(move || {
        let store = looking.store().map_err(|_| StoreError::Unknown(String::new()))?;
        store.see_time()?;
        prune(&looking, kept_for, store.now_ms())
    });
    let pruned = pruned.await;
    if let Ok(Err(error)) = pruned {
        tracing::warn!(%error, "artifacts whose time is over cannot be removed");
    }
}
