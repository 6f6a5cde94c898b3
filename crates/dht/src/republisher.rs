//! The task that keeps records near their keys: region by region, it has those moved whose nearest nodes have changed.

use std::sync::Arc;
use std::time::Duration;

use ron_kernel::{TaskContext, TaskError, TaskResult, clock};
use ron_lookup::{PeerTable, Region, Sweep};
use ron_store::{Key, PeerId};

use crate::ports::Held;
use crate::shared::{Shared, ToPlace};

/// Records read at once.
const PAGE: usize = 512;
/// Holders of a record that give it to a newcomer: one may fail, all would be a flood.
const GIVERS: usize = 3;
/// Wait before a record that found the queue full is offered again.
const FULL_WAIT: Duration = Duration::from_millis(100);
/// The plan is looked at this often at least, to follow changed settings.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The task.
pub(crate) async fn republisher(context: TaskContext, shared: Arc<Shared>) -> TaskResult {
    let started = clock::now();
    let now_ms = || started.elapsed().as_millis() as u64;
    let plan = || (shared.live.get().value.republish_interval, shared.replication());
    let mut current = plan();
    let mut sweep = Sweep::new(current.0.as_millis() as u64, current.1, 0);
    // Nodes known when the walk before this one began: what was placed, was placed with them. None in the first walk
    // of a life: a node that comes back must not flood its neighbours with all it holds.
    let mut before: Option<PeerTable<PeerId>> = None;
    let mut now_known = shared.members.table();
    let mut cycle = 0;
    context.ready().await;
    loop {
        tokio::select! {
            biased;
            () = context.stopping() => break,
            () = context.heartbeat() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        if plan() != current {
            current = plan();
            sweep = Sweep::new(current.0.as_millis() as u64, current.1, now_ms());
        }
        while let Some(region) = sweep.next(now_ms(), shared.members.len()) {
            let now = shared.members.table();
            let change = Change { before: before.as_ref(), now: &now, own: shared.own, replication: current.1 };
            context.beating(republish(&context, &shared, region, &change)).await?;
            if context.is_stopping() {
                break;
            }
        }
        if sweep.cycles() != cycle {
            cycle = sweep.cycles();
            before = Some(std::mem::replace(&mut now_known, shared.members.table()));
        }
    }
    Ok(())
}

/// The nodes of then and of now, which decide who gets a record.
struct Change<'a> {
    before: Option<&'a PeerTable<PeerId>>,
    now: &'a PeerTable<PeerId>,
    own: PeerId,
    replication: usize,
}

impl Change<'_> {
    /// Nodes that shall be given a record: all of the nearest if it is this node's own; else those that are new among
    /// the nearest, if this node is one of the few that give it to them.
    fn receivers(&self, key: &Key, is_own: bool) -> Vec<PeerId> {
        let nearest = |table: &PeerTable<PeerId>| -> Vec<PeerId> {
            table.nearest(&key.0, self.replication).into_iter().map(|candidate| candidate.target).collect()
        };
        let mut now = nearest(self.now);
        if is_own {
            return now;
        }
        let Some(before) = self.before.map(nearest) else { return Vec::new() };
        let own = self.own.key().distance(key);
        let nearer_givers = now.iter().filter(|peer| before.contains(peer) && peer.key().distance(key) < own).count();
        if nearer_givers >= GIVERS {
            return Vec::new();
        }
        now.retain(|peer| !before.contains(peer));
        now
    }
}

async fn republish(
    context: &TaskContext,
    shared: &Arc<Shared>,
    region: Region,
    change: &Change<'_>,
) -> Result<(), TaskError> {
    let (mut from, to) = (Key(region.from), Key(region.to));
    loop {
        let held = page(shared, from, to).await?;
        let is_last = held.len() < PAGE;
        let Some(last) = held.last().map(|held| held.record.key()) else { return Ok(()) };
        // A page may end amid the records of a key: they come again with the next one, unless they fill it alone.
        let is_one_key = held.first().is_some_and(|first| first.record.key() == last);
        for Held { record, is_own } in held {
            let key = record.key();
            if !is_last && !is_one_key && key == last {
                break;
            }
            let at = change.receivers(&key, is_own);
            if !at.is_empty() && !place(context, shared, ToPlace { record, at: Some(at) }).await {
                return Ok(());
            }
        }
        let next = if is_one_key { after(last) } else { Some(last) };
        match next.filter(|next| !is_last && *next <= to) {
            Some(next) => from = next,
            None => return Ok(()),
        }
    }
}

/// Reading records waits for the disk.
async fn page(shared: &Arc<Shared>, from: Key, to: Key) -> Result<Vec<Held>, TaskError> {
    let Some(records) = shared.records.get().map(Arc::clone) else { return Ok(Vec::new()) };
    let reading = tokio::task::spawn_blocking(move || records.held(&from, &to, PAGE));
    reading.await.map_err(|error| TaskError::Failed(format!("reading records ended: {error}")))
}

/// Hands a record to the placer, waiting while it has no room; false if the node leaves first.
async fn place(context: &TaskContext, shared: &Shared, mut to_place: ToPlace) -> bool {
    loop {
        match shared.keep.offer_or_return(to_place) {
            Ok(()) => return true,
            Err((returned, _)) => to_place = returned,
        }
        tokio::select! {
            () = context.stopping() => return false,
            () = tokio::time::sleep(FULL_WAIT) => {}
        }
    }
}

/// The key behind this one.
fn after(key: Key) -> Option<Key> {
    let mut bytes = key.0;
    for byte in bytes.iter_mut().rev() {
        let (next, has_wrapped) = byte.overflowing_add(1);
        *byte = next;
        if !has_wrapped {
            return Some(Key(bytes));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_each_other() {
        assert_eq!(after(Key([0xff; 32])), None);
        let mut expected = [0; 32];
        expected[30] = 1;
        let mut key = [0; 32];
        key[31] = 0xff;
        assert_eq!(after(Key(key)), Some(Key(expected)));
    }

    fn table(own: PeerId, peers: &[PeerId]) -> PeerTable<PeerId> {
        let mut table = PeerTable::new(own.key().0, ron_lookup::TableLimits::default());
        for peer in peers {
            table.insert(*peer, peer.key().0, &[]);
        }
        table
    }

    #[test]
    fn a_record_moves_only_when_its_nearest_nodes_change() {
        let mut sorted: Vec<PeerId> = (0..40_u8).map(|number| PeerId::of_ed25519(&[number; 32])).collect();
        let key = Key([7; 32]);
        sorted.sort_by_key(|peer| peer.key().distance(&key));
        // The nearest node holds the record; the second nearest is new.
        let (own, newcomer) = (sorted[0], sorted[1]);
        let others: Vec<PeerId> = sorted[1..].to_vec();
        let old: Vec<PeerId> = sorted[2..].to_vec();
        let (before, now) = (table(own, &old), table(own, &others));
        let change = Change { before: Some(&before), now: &now, own, replication: 5 };
        assert_eq!(change.receivers(&key, false), vec![newcomer]);
        assert_eq!(change.receivers(&key, true), others[..5].to_vec());
        let unchanged = Change { before: Some(&now), now: &now, own, replication: 5 };
        assert_eq!(unchanged.receivers(&key, false), Vec::new());
        let first = Change { before: None, now: &now, own, replication: 5 };
        assert_eq!(first.receivers(&key, false), Vec::new(), "the first walk moves nothing of others");
        assert_eq!(first.receivers(&key, true).len(), 5);
        // A far holder leaves it to the nearer ones.
        let far = sorted[6];
        let all_but_far: Vec<PeerId> = sorted.iter().copied().filter(|peer| *peer != far).collect();
        let old: Vec<PeerId> = all_but_far.iter().copied().filter(|peer| *peer != newcomer).collect();
        let (before, now) = (table(far, &old), table(far, &all_but_far));
        let change = Change { before: Some(&before), now: &now, own: far, replication: 5 };
        assert_eq!(change.receivers(&key, false), Vec::new());
    }
}
