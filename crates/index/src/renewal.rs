//! The task `renewer`: what this node provides and its own names are signed anew before their records end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ron_kernel::{Deadline, TaskContext, TaskResult};
use ron_store::{
    Applied, CLOCK_SKEW_MS, ContentId, Key, Multiaddr, NameRecord, PeerId, Provided, ProviderRecord, PublicKey, Record,
    Store, StoreError,
};
use ron_types::Error;
use ron_types::limits::index::{
    NAME_TTL, RENEWAL_PAUSE, RENEWALS_LOOKED_AT_PER_SECOND, RENEWALS_PER_SECOND, WARMUP_WAIT,
};
use tokio::time::sleep;

use crate::ingest::Update;
use crate::shared::Shared;
use crate::words::ProviderOffer;

/// Time between two turns of a sweep: the limits are for each second.
const TURN: Duration = Duration::from_secs(1);
/// Interval at which it is asked whether the node knows where it is reached.
const ADDRESSES_ASKED_EVERY: Duration = Duration::from_millis(250);

/// How far a sweep has come: through the names, which are few, then through what is provided.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Position {
    Names { after: Option<String> },
    Provided { after: Option<Key> },
}

const START: Position = Position::Names { after: None };

/// Something whose record ends soon, or has ended.
enum Owed {
    Name { label: String, value: ContentId, known: u64 },
    Provider { provided: Provided, known: u64 },
}

/// What one turn found, and where the next goes on; none at the end of the sweep.
struct Found {
    owed: Vec<Owed>,
    next: Option<Position>,
}

/// This node, as its records are compared with.
#[derive(Clone)]
struct Own {
    key: PublicKey,
    peer: PeerId,
    /// Where it is reached now; none if it does not know.
    addrs: Vec<Multiaddr>,
    region: Option<Arc<str>>,
}

/// Sweeps through what the node says, a part each second, and rests between sweeps. What fails is met again in the
/// next sweep, long before its record ends.
pub(crate) async fn renewer(context: TaskContext, shared: Arc<Shared>) -> TaskResult {
    context.ready().await;
    tokio::select! {
        biased;
        () = context.stopping() => return Ok(()),
        () = context.beating(is_reached_somewhere(&shared)) => {}
    }
    let mut position = START;
    // Kept across heartbeats, which would otherwise begin the wait anew each time.
    let mut due = Box::pin(sleep(Duration::ZERO));
    loop {
        tokio::select! {
            biased;
            () = context.stopping() => return Ok(()),
            () = &mut due => {
                let next = context.beating(turn(&shared, position)).await;
                due = Box::pin(sleep(if next.is_some() { TURN } else { RENEWAL_PAUSE }));
                position = next.unwrap_or(START);
            }
            () = context.heartbeat() => {}
        }
    }
}

/// Waits a while for the network to listen: a record from before that would say nowhere.
async fn is_reached_somewhere(shared: &Shared) {
    let until = Deadline::after(WARMUP_WAIT);
    while shared.options.network.is_some() && (shared.options.own_addresses)().is_empty() && !until.has_passed() {
        sleep(ADDRESSES_ASKED_EVERY).await;
    }
}

/// Renews what is due in the next part of the sweep; gives where to go on.
async fn turn(shared: &Shared, position: Position) -> Option<Position> {
    let own = Own {
        key: shared.node_key(),
        peer: shared.node_peer(),
        addrs: (shared.options.own_addresses)(),
        region: shared.region(),
    };
    let now_ms = shared.unix_ms();
    // A store that fails is counted and told where it is read; the next sweep tries again.
    let Found { owed, next } = shared.read(move |store| look(store, &position, &own, now_ms)).await.ok()?;
    let renewed = join_all(owed.into_iter().map(|owed| renew(shared, owed))).await;
    for result in renewed {
        match result {
            // Withdrawn since it was looked at, or published anew.
            Ok(Applied::Refused | Applied::Older | Applied::Same) => {}
            Ok(Applied::Stored) => shared.counts.renewed(true),
            Ok(Applied::Full | Applied::KeyFull) => shared.counts.renewed(false),
            Err(error) => {
                shared.counts.renewed(false);
                tracing::debug!(%error, "a record of this node is not renewed now");
            }
        }
    }
    next
}

async fn renew(shared: &Shared, owed: Owed) -> Result<Applied, Error> {
    let record = match owed {
        Owed::Name { label, value, known } => {
            Record::Name(shared.sign_name(&label, value, known, NAME_TTL.as_millis() as u64)?)
        }
        Owed::Provider { provided: Provided { content, addrs, protocols, ttl_ms }, known } => {
            let offer = ProviderOffer { peer: None, addrs: shared.addrs_now(&addrs), protocols, ttl: None };
            Record::Provider(shared.sign_provider(&content, offer, known, ttl_ms)?)
        }
    };
    shared.ingest(Update::renewal(record)).await
}

/// Looks at the next part of what the node says, until enough of it is due.
fn look(store: &Store, position: &Position, own: &Own, now_ms: u64) -> Result<Found, StoreError> {
    match position {
        Position::Names { after } => look_at_names(store, after.as_deref(), own, now_ms),
        Position::Provided { after } => look_at_provided(store, *after, own, now_ms),
    }
}

fn look_at_names(store: &Store, after: Option<&str>, own: &Own, now_ms: u64) -> Result<Found, StoreError> {
    let names = store.named(after, RENEWALS_LOOKED_AT_PER_SECOND)?;
    let mut next = Some(Position::Provided { after: None });
    let (is_last, mut owed) = (names.len() < RENEWALS_LOOKED_AT_PER_SECOND, Vec::new());
    for (label, value) in names {
        let record = store.name_or_withdrawal(&own.key, &label, now_ms)?;
        let known = record.as_ref().map_or(0, |record| record.sequence);
        if record.is_none_or(|record| is_name_due(&record, value, now_ms)) {
            owed.push(Owed::Name { label: label.clone(), value, known });
        }
        let is_enough = owed.len() >= RENEWALS_PER_SECOND;
        if !is_last || is_enough {
            next = Some(Position::Names { after: Some(label) });
        }
        if is_enough {
            break;
        }
    }
    Ok(Found { owed, next })
}

fn look_at_provided(store: &Store, after: Option<Key>, own: &Own, now_ms: u64) -> Result<Found, StoreError> {
    let provided = store.provided(after, RENEWALS_LOOKED_AT_PER_SECOND)?;
    let (is_last, mut owed, mut next) = (provided.len() < RENEWALS_LOOKED_AT_PER_SECOND, Vec::new(), None);
    for (key, provided) in provided {
        let record = store.provider_or_withdrawal(&key, &own.peer, &own.key, now_ms)?;
        let known = record.as_ref().map_or(0, |record| record.sequence);
        if record.is_none_or(|record| is_provider_due(&record, &provided, own, now_ms)) {
            owed.push(Owed::Provider { provided, known });
        }
        let is_enough = owed.len() >= RENEWALS_PER_SECOND;
        if !is_last || is_enough {
            next = Some(Position::Provided { after: Some(key) });
        }
        if is_enough {
            break;
        }
    }
    Ok(Found { owed, next })
}

/// A name whose owner pointed it elsewhere with a record of his own is left alone: that record is newer.
fn is_name_due(record: &NameRecord, value: ContentId, now_ms: u64) -> bool {
    record.value == value && is_due(&record.key(), record.issued_ms, record.expires_ms, now_ms)
}

/// A record that names other addresses than those of now is of no use, however long it lasts.
fn is_provider_due(record: &ProviderRecord, provided: &Provided, own: &Own, now_ms: u64) -> bool {
    let addrs = if provided.addrs.is_empty() { &own.addrs } else { &provided.addrs };
    let has_moved = !addrs.is_empty() && !is_same_set(addrs, &record.addrs);
    record.withdraws()
        || has_moved
        || provided.protocols != record.protocols
        || own.region.as_deref() != record.region.as_deref()
        || is_due(&record.key, record.issued_ms, record.expires_ms, now_ms)
}

fn is_same_set(one: &[Multiaddr], other: &[Multiaddr]) -> bool {
    one.len() == other.len() && one.iter().all(|addr| other.contains(addr))
}

/// Whether a record is to be renewed: between half and 3/8 of its life are left. The key decides where between, so
/// that what was published at once is not renewed at once, in this life of the node as in the next. A record of a clock
/// that has been set back since is of no use: until then others refuse it.
fn is_due(key: &Key, issued_ms: u64, expires_ms: u64, now_ms: u64) -> bool {
    let life_ms = expires_ms.saturating_sub(issued_ms);
    // The end of the key: its beginning decides the order of the sweep.
    let jitter_ms = life_ms / 8 * u64::from(key.0[31]) / 255;
    let is_from_the_future = issued_ms > now_ms.saturating_add(CLOCK_SKEW_MS);
    is_from_the_future || expires_ms.saturating_sub(now_ms) <= life_ms / 2 - jitter_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_due_between_half_and_three_eighths_of_its_life() {
        let (early, late) = (Key([0; 32]), Key([255; 32]));
        let due_at = |key: &Key| (0..=800).find(|now_ms| is_due(key, 0, 800, *now_ms));
        assert_eq!((due_at(&early), due_at(&late)), (Some(400), Some(500)));
        assert!(is_due(&early, 0, 800, 10_000), "what has ended is due");
        assert!(!is_due(&late, 1_000, 1_800, 0), "a clock that went back a little makes nothing due");
        assert!(is_due(&late, CLOCK_SKEW_MS + 1, CLOCK_SKEW_MS + 800, 0), "but nobody takes what is far ahead");
    }
}
