//! Says when the store takes no more, so that a node that refuses writes looks like one.

use ron_store::Shortages;

use crate::shared::Shared;
use crate::specs::SERVICE;

/// Looks between two tries of a disk that refused a write: each that fails costs as much as opening the file.
const LOOKS_BETWEEN_TRIES: u32 = 10;

/// What was told last; a former life of the task may have told something else.
#[derive(Default)]
pub(crate) struct Told {
    last: Option<Shortages>,
    /// Looks since a disk that refused a write was tried.
    looks: u32,
}

/// Looks, and tells what changed. Every cause is told for itself.
pub(crate) async fn look(shared: &Shared, told: &mut Told) {
    let store = &shared.options.store;
    for row in store.take_dropped_rows() {
        shared.kernel.metrics().io_errors.at("index_store").inc();
        tracing::error!("a row of the index's store was damaged, and is dropped: {row}");
    }
    told.looks = if store.shortages().disk { told.looks + 1 } else { 0 };
    if told.looks >= LOOKS_BETWEEN_TRIES {
        told.looks = 0;
        // Nobody may write for hours, and whoever asks whether the node takes writes sends none while it says no.
        let now_ms = shared.unix_ms();
        let _ = shared.blocking(move |store| Ok(store.try_disk(now_ms).is_ok())).await;
    }
    let now = store.shortages();
    if told.last == Some(now) || tell(shared, now).await.is_err() {
        return;
    }
    let Shortages { damaged, disk, records, documents } = now;
    let was = told.last.replace(now).unwrap_or_default();
    if damaged && !was.damaged {
        let why = store.damage().unwrap_or_default();
        tracing::error!(
            "the store of the index is damaged and takes no writes; the next start copies what can be read: {why}"
        );
    }
    if disk && !was.disk {
        tracing::warn!("the disk takes nothing of the index: what is published is refused");
    }
    if records && !was.records {
        tracing::warn!("no room for records of this node: raise index.records_max or index.records_bytes_max");
    }
    if documents && !was.documents {
        tracing::warn!("no room for documents: remove some, or raise index.manifests_bytes_max");
    }
    if now == Shortages::default() && was != now {
        tracing::info!("the store of the index has room again");
    }
}

/// Tells the supervisor, which takes back the readiness for writes and names the causes.
async fn tell(shared: &Shared, now: Shortages) -> Result<(), ron_types::Error> {
    let Shortages { damaged, disk, records, documents } = now;
    let causes =
        [("store_damaged", damaged), ("store_disk", disk), ("records_full", records), ("documents_full", documents)];
    for (cause, is_on) in causes {
        shared.kernel.pressure(SERVICE, cause, is_on).await?;
    }
    Ok(())
}
