//! The task `index_ingester`, the only writer of the store, and the updates that wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ron_kernel::coalesce::Coalesce;
use ron_kernel::{Deadline, TaskContext, TaskResult};
use ron_store::{Applied, Change, ContentId, PeerId, PublicKey, Record};
use ron_types::limits::index::{INGEST_BATCH_MAX, INGEST_DEADLINE, INGEST_WAITERS_MAX, STORE_FULL_RETRY};
use ron_types::{Error, Kind};
use tokio::sync::oneshot;

use crate::query::Query;
use crate::shared::Shared;
use crate::words::{Notice, PublishOutcome};

/// Changes that belong together, and who wants to know what became of them.
pub(crate) struct Update {
    key: UpdateKey,
    /// The first one decides what the callers are told, and whether the others are done.
    changes: Vec<Change>,
    /// Whether the network is to keep the record of the first one.
    place: bool,
    waiters: Vec<Waiting>,
}

struct Waiting {
    /// Sequence number of the caller's own record.
    sequence: u64,
    told: oneshot::Sender<Result<Applied, Error>>,
}

/// Updates with equal keys become one, of which the newest wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpdateKey {
    Provider(ron_store::Key, PeerId, PublicKey),
    Name(PublicKey, String),
    Peer(PeerId),
    Ipns(PeerId),
    Manifest(ContentId),
    /// One of its own.
    Single(u64),
}

impl UpdateKey {
    fn of(record: &Record) -> Self {
        match record {
            Record::Provider(record) => UpdateKey::Provider(record.key, record.peer, record.signer),
            Record::Name(record) => UpdateKey::Name(record.owner, record.label.clone()),
            Record::Peer(record) => UpdateKey::Peer(record.peer),
            Record::Ipns(record) => UpdateKey::Ipns(*record.name()),
        }
    }
}

impl Update {
    /// Keeps a record, which was verified; `place` says whether the network is to keep it too.
    pub fn of_record(record: Record, place: bool) -> Self {
        Update { key: UpdateKey::of(&record), changes: vec![Change::Put(record)], place, waiters: Vec::new() }
    }

    /// Keeps a record that this node signed just now, here and in the network.
    pub fn of_own(record: Record) -> Self {
        Update { key: UpdateKey::of(&record), changes: vec![Change::PutOwn(record)], place: true, waiters: Vec::new() }
    }

    /// Makes changes that coalesce with no others.
    pub fn single(changes: Vec<Change>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let key = UpdateKey::Single(NEXT.fetch_add(1, Ordering::Relaxed));
        Update { key, changes, place: false, waiters: Vec::new() }
    }

    /// Keeps a newer record of what this node goes on saying. It coalesces with nothing: taking the place of a
    /// withdrawal that waits would undo it.
    pub fn renewal(record: Record) -> Self {
        Update { place: true, ..Update::single(vec![Change::Renew(record)]) }
    }

    /// Keeps a document.
    pub fn manifest(content: ContentId, bytes: bytes::Bytes) -> Self {
        let changes = vec![Change::Manifest { content, bytes }];
        Update { key: UpdateKey::Manifest(content), changes, place: false, waiters: Vec::new() }
    }

    /// The same, and this change with it.
    pub fn and(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }

    fn record(&self) -> Option<&Record> {
        match self.changes.first() {
            Some(Change::Put(record) | Change::PutOwn(record) | Change::Renew(record)) => Some(record),
            _ => None,
        }
    }

    fn sequence(&self) -> u64 {
        self.record().map_or(0, Record::sequence)
    }
}

impl Coalesce for Update {
    type Key = UpdateKey;

    fn key(&self) -> UpdateKey {
        self.key.clone()
    }

    fn absorb(&mut self, newer: Self) {
        let Update { changes, place, waiters, .. } = newer;
        self.place |= place;
        self.waiters.extend(waiters);
        // Who finds the list full is told so, though the write may happen all the same.
        for refused in self.waiters.drain(INGEST_WAITERS_MAX.min(self.waiters.len())..) {
            let _ = refused.told.send(Err(Error::busy("the list of those who wait for one update")));
        }
        let is_newer = match (self.record(), changes.first()) {
            (Some(known), Some(Change::Put(record) | Change::PutOwn(record))) => record.supersedes(known),
            _ => true,
        };
        if is_newer {
            self.changes = changes;
        }
    }
}

impl Shared {
    /// Queues an update and waits until it is written. Busy if there is no room for it.
    pub async fn ingest(&self, mut update: Update) -> Result<Applied, Error> {
        let (told, applied) = oneshot::channel();
        let sequence = update.sequence();
        update.waiters.push(Waiting { sequence, told });
        self.ingest.offer(update)?;
        let applied = Deadline::after(INGEST_DEADLINE).run("index_ingest", applied).await?;
        applied.map_err(|_| Error::canceled("the node stopped before it was written"))?
    }
}

/// Writes updates in batches until the node stops, and then what still waits.
pub(crate) async fn index_ingester(context: TaskContext, shared: Arc<Shared>) -> TaskResult {
    context.ready().await;
    loop {
        let first = tokio::select! {
            biased;
            () = context.stopping() => break,
            update = shared.ingest.recv() => update,
            () = context.heartbeat() => continue,
        };
        context.beating(write(&shared, with_more(&shared, first))).await;
    }
    while let Some(first) = shared.ingest.try_recv() {
        context.beating(write(&shared, with_more(&shared, first))).await;
    }
    Ok(())
}

fn with_more(shared: &Shared, first: Update) -> Vec<Update> {
    let mut batch = vec![first];
    while batch.len() < INGEST_BATCH_MAX {
        let Some(update) = shared.ingest.try_recv() else { break };
        batch.push(update);
    }
    batch
}

/// Writes one batch in one transaction, on a thread that may block, and tells everybody concerned.
async fn write(shared: &Shared, batch: Vec<Update>) {
    let updates: Vec<Vec<Change>> = batch.iter().map(|update| update.changes.clone()).collect();
    let now_ms = shared.unix_ms();
    let applied = match shared.blocking(move |store| store.apply_updates(&updates, now_ms)).await {
        Ok(applied) => applied,
        Err(error) => return refuse(batch, &error),
    };
    for (update, applied) in batch.into_iter().zip(applied) {
        let of_first = applied.first().copied().unwrap_or(Applied::Refused);
        if of_first == Applied::Stored {
            stored(shared, &update).await;
        }
        let rest = update.changes.iter().zip(&applied).skip(1);
        for (change, applied) in rest.filter(|(_, applied)| **applied == Applied::Full) {
            tracing::warn!(?change, ?applied, "the store has no room for what belongs to an update");
        }
        answer(update, of_first);
    }
}

fn answer(update: Update, applied: Applied) {
    let written = update.sequence();
    for waiting in update.waiters {
        // Somebody else's newer record of the same took the place of this one before it was written.
        let own = if applied == Applied::Stored && waiting.sequence < written { Applied::Older } else { applied };
        let _ = waiting.told.send(Ok(own));
    }
}

fn refuse(batch: Vec<Update>, error: &Error) {
    for waiting in batch.into_iter().flat_map(|update| update.waiters) {
        let _ = waiting.told.send(Err(error.clone()));
    }
}

/// Something new is stored: answers from before are forgotten, watchers told, the network asked to keep it.
async fn stored(shared: &Shared, update: &Update) {
    match update.changes.first() {
        Some(Change::Put(record) | Change::PutOwn(record) | Change::Renew(record)) => {
            let (query, notice) = concerned(record);
            shared.forget(&query).await;
            if let Some(notice) = notice {
                shared.watchers.tell(&query, &notice);
            }
            if update.place {
                place(shared, record);
            }
        }
        Some(Change::Manifest { content, .. }) => {
            let query = Query::Providers(content.key());
            shared.forget(&query).await;
            shared.watchers.tell(&query, &Notice::Manifest(*content));
        }
        _ => {}
    }
}

/// The question that a record answers, and what those who watch it are told.
pub(crate) fn concerned(record: &Record) -> (Query, Option<Notice>) {
    match record {
        Record::Provider(record) => {
            let notice = Notice::Provider { withdrawn: record.withdraws(), record: record.clone() };
            (Query::Providers(record.key), Some(notice))
        }
        Record::Name(record) => {
            let query = Query::Name { owner: record.owner, label: record.label.as_str().into() };
            (query, Some(Notice::Name(record.clone())))
        }
        Record::Peer(record) => (Query::Peer(record.peer), None),
        Record::Ipns(record) => (Query::Ipns(*record.name()), None),
    }
}

fn place(shared: &Shared, record: &Record) {
    let Some(network) = &shared.options.network else { return };
    if let Err(error) = network.keep(record.clone()) {
        // The network republishes what this node provides anyway; only the first placement is late.
        tracing::debug!(%error, key = %record.key(), "a record is not placed now");
    }
}

/// There is room again when records end, which they do after hours: who comes back in a second finds the same.
fn full(what: &str) -> Error {
    Error { retry_after: Some(STORE_FULL_RETRY), ..Error::busy(what) }
}

/// What became of a change, as callers are told.
pub(crate) fn published(applied: Applied) -> Result<PublishOutcome, Error> {
    match applied {
        Applied::Stored => Ok(PublishOutcome::Stored),
        Applied::Same => Ok(PublishOutcome::Same),
        Applied::Older => Ok(PublishOutcome::Older),
        Applied::Full => Err(full("the store")),
        Applied::KeyFull => Err(full("the list of providers of this content")),
        Applied::Refused => Err(Error::new(Kind::Schema, "the store refuses it: it is over or too large")),
    }
}
