//! Walks through the key space: nothing twice, nothing left out, and a cost that follows the peers.

use proptest::prelude::*;

use super::*;
use crate::table::TableLimits;
use crate::{Chance, PeerTable};

fn position(chance: &mut Chance) -> Position {
    let mut position = [0; 32];
    position.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&chance.draw().to_be_bytes()));
    position
}

/// All regions that are due up to `until_ms`, one look every `step_ms`.
fn walk(sweep: &mut Sweep, until_ms: Millis, step_ms: u64, mut peers: impl FnMut() -> usize) -> Vec<Region> {
    let mut regions = Vec::new();
    for now_ms in (0..=until_ms).step_by(step_ms as usize) {
        while let Some(region) = sweep.next(now_ms, peers()) {
            regions.push(region);
        }
    }
    regions
}

/// Whether the regions follow each other without a gap and come round as often as said.
fn assert_cover(regions: &[Region]) {
    let mut expected = [0u8; 32];
    for region in regions {
        assert_eq!(region.from, expected, "begins where the last one ended");
        let bits = crate::shared_bits(&region.from, &region.to);
        assert_eq!(bits, region.prefix_bits, "{region:?} is a prefix");
        expected = after(region.to);
    }
}

/// The position after this one; the first follows the last.
fn after(mut position: Position) -> Position {
    for byte in position.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
    position
}

proptest! {
    #[test]
    fn every_key_is_visited_once_in_a_cycle_though_peers_come_and_go(
        sizes in proptest::collection::vec(0usize..50_000, 1..20),
        step_ms in 1u64..5_000,
    ) {
        let mut sweep = Sweep::new(60_000, 20, 0);
        let mut sizes = sizes.into_iter().cycle();
        let mut last_due_ms = 0;
        let regions = walk(&mut sweep, 59_999, step_ms, || sizes.next().unwrap_or(0));
        assert_cover(&regions);
        last_due_ms = last_due_ms.max(sweep.due_at_ms());
        prop_assert!(last_due_ms + step_ms > 59_999, "kept pace: next due at {}", last_due_ms);
        prop_assert!(sweep.cycles() <= 1);
    }
}

#[test]
fn cycles_follow_each_other_at_the_pace_of_the_period() {
    let mut sweep = Sweep::new(1_000, 20, 0);
    let regions = walk(&mut sweep, 9_999, 10, || 640);
    assert_cover(&regions);
    assert_eq!((sweep.cycles(), regions.len()), (10, 320), "32 regions for 640 peers, ten times");
    let firsts = regions.iter().filter(|region| region.from == [0; 32]).count();
    assert_eq!(firsts, 10);
}

#[test]
fn nothing_is_due_before_its_time() {
    let mut sweep = Sweep::new(8_000, 20, 500);
    assert!(sweep.next(499, 10).is_none());
    assert!(sweep.next(500, 10).is_some());
    assert_eq!(sweep.due_at_ms(), 1_500, "eight regions at the least");
    assert!(sweep.next(1_499, 10).is_none());
}

#[test]
fn a_node_that_slept_goes_on_at_the_usual_pace() {
    let mut sweep = Sweep::new(1_000, 20, 0);
    sweep.next(0, 10);
    let burst = std::iter::from_fn(|| sweep.next(1_000_000, 10)).count();
    assert!(burst <= 8, "{burst} regions at once");
    let later = std::iter::from_fn(|| sweep.next(1_000_125, 10)).count();
    assert_eq!(later, 1);
}

/// Calls of one cycle: the batches of every region.
fn calls(peers: u64, keys: usize) -> usize {
    let mut chance = Chance::new(peers ^ keys as u64);
    let limits = TableLimits { peers_max: 100_000, ..TableLimits::default() };
    let mut table = PeerTable::new(position(&mut chance), limits);
    for peer in 0..peers {
        table.insert(peer, position(&mut chance), &[]);
    }
    let mut keys: Vec<Position> = (0..keys).map(|_| position(&mut chance)).collect();
    keys.sort_unstable();
    let mut sweep = Sweep::new(1_000, 20, 0);
    let regions = walk(&mut sweep, 999, 1, || peers as usize);
    let in_region = |region: &Region| {
        let from = keys.partition_point(|key| *key < region.from);
        let to = keys.partition_point(|key| *key <= region.to);
        batches(&table, &keys[from..to], 20).len()
    };
    regions.iter().map(in_region).sum()
}

#[test]
fn the_cost_of_a_cycle_grows_with_the_peers_and_not_with_the_keys() {
    let (few, many) = (calls(400, 4_000), calls(400, 16_000));
    assert!(many * 10 <= few * 12, "four times the keys cost {many} calls instead of {few}");
    let more_peers = calls(1_600, 16_000);
    assert!((many * 3..=many * 5).contains(&more_peers), "four times the peers: {more_peers} calls after {many}");
    assert!(many <= 400 * 3, "a peer is called about twice in a cycle: {many}");
}
