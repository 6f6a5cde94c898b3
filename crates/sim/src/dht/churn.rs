//! Nodes that leave and come, minute by minute, and those that hand on what they keep.

use std::sync::Arc;

use ron_lookup::{Millis, Position, batches};
use ron_store::Record;

use super::client::Client;
use super::world::{Membership, REPLICAS, World};

const MINUTE_MS: Millis = 60_000;
/// Minutes after which each node has refreshed its table once.
const REFRESH_MINUTES: u64 = 10;
const PER_MILLION: u64 = 1_000_000;

/// Counts of a stretch of churn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChurnCounts {
    /// Nodes that left; as many came.
    pub(super) left: u64,
    /// Calls that handed records on; one call carries all records of a region for one peer.
    pub(super) repair_calls: u64,
}

/// Runs the network for some minutes in which `per_hour_percent` of the nodes leave each hour, and as many come.
pub(super) fn run(world: &mut World, minutes: u64, per_hour_percent: u64, repairs: bool) -> ChurnCounts {
    let stay = 1.0 - per_hour_percent as f64 / 100.0;
    let leaves_per_million = ((1.0 - stay.powf(1.0 / 60.0)) * PER_MILLION as f64) as u64;
    let mut counts = ChurnCounts::default();
    for minute in 0..minutes {
        world.now_ms += MINUTE_MS;
        let World { alive, rng, .. } = &mut *world;
        let leaving = alive.iter().filter(|_| rng.between(0, PER_MILLION - 1) < leaves_per_million);
        let leaving: Vec<u32> = leaving.map(|(_, node)| *node).collect();
        for node in leaving {
            world.kill(node);
            world.join();
            counts.left += 1;
        }
        if world.membership == Membership::Partial {
            let due = |(_, node): &(Position, u32)| u64::from(*node) % REFRESH_MINUTES == minute % REFRESH_MINUTES;
            let refreshing: Vec<u32> = world.alive.iter().filter(|entry| due(entry)).map(|(_, node)| *node).collect();
            for node in refreshing {
                world.refresh_table(node);
            }
        }
        if repairs {
            counts.repair_calls += repair(world);
        }
    }
    counts
}

/// Every node walks on through the key space and hands on what nobody else has handed on lately.
fn repair(world: &mut World) -> u64 {
    let holders: Vec<u32> = world.alive.iter().map(|(_, node)| *node).collect();
    let (mut calls, peers) = (0, world.alive.len());
    let period_ms = ron_types::limits::lookup::REPAIR_PERIOD.as_millis() as Millis;
    for holder in holders {
        let (now_ms, mut due) = (world.now_ms, Vec::new());
        let node = &mut world.nodes[holder as usize];
        if node.records.is_empty() {
            continue;
        }
        while let Some(region) = node.repair.next(now_ms, peers) {
            // A record that came within the last period was handed on by another holder a moment ago.
            let kept = node.records.range(region.from..=region.to);
            let old = kept.filter(|(_, kept)| now_ms.saturating_sub(kept.refreshed_ms) >= period_ms / 2);
            due.extend(old.map(|(key, kept)| (*key, Arc::clone(&kept.record))));
        }
        calls += hand_on(world, holder, &due);
    }
    calls
}

fn hand_on(world: &mut World, holder: u32, due: &[(Position, Arc<Record>)]) -> u64 {
    if world.membership == Membership::Complete {
        let keys: Vec<Position> = due.iter().map(|(key, _)| *key).collect();
        let batches = batches(&world.shared, &keys, REPLICAS);
        let calls = batches.len() as u64;
        for (peer, keys) in batches {
            for (key, record) in due.iter().filter(|(key, _)| keys.contains(key)) {
                world.keep(peer, *key, record);
            }
        }
        return calls;
    }
    let mut calls = 0;
    let mut client = Client::new(holder, world.now_ms);
    for (key, record) in due {
        let nearest = client.find_nearest(world, *key).answered;
        for peer in nearest.into_iter().take(REPLICAS) {
            world.keep(peer, *key, record);
            calls += 1;
        }
        // The holder itself has it still, and it is as fresh as the others' copies.
        world.keep(holder, *key, record);
    }
    calls
}
