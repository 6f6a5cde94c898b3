//! No peer closes a table to the others, however busy it keeps what it brought.

use super::bounds::small;
use super::*;
use crate::budget::Rate;

fn name(number: usize) -> LaneName {
    LaneName::new(&format!("lane-{number}")).unwrap()
}

/// A peer says something in each of these lanes.
fn keep_busy(core: &mut Core, world: &mut World, now: Micros, who: u8, lanes: std::ops::Range<usize>) {
    for number in lanes {
        let message = Message { lane: name(number), body: data(who, 1 + now / MS) };
        let _refused = core.receive(now, &peer(who), message, world);
    }
}

fn has(core: &Core, number: usize) -> bool {
    core.by_name.contains_key(&name(number))
}

#[test]
fn a_peer_with_all_lanes_gives_way_to_the_others_up_to_their_share() {
    let (mut core, mut world) = core_with(small(), 3);
    keep_busy(&mut core, &mut world, 0, 1, 0..8);
    keep_busy(&mut core, &mut world, MS, 1, 0..8);
    for number in 10..18 {
        keep_busy(&mut core, &mut world, 2 * MS, 2, number..number + 1);
        keep_busy(&mut core, &mut world, 2 * MS, 1, 0..8);
    }
    let of = |core: &Core, who: u8| core.lanes.iter().flatten().filter(|it| it.opened_by == Some(peer(who))).count();
    assert_eq!((of(&core, 1), of(&core, 2)), (4, 4), "an equal share each");
    keep_busy(&mut core, &mut world, 3 * MS, 3, 20..21);
    assert!(has(&core, 20), "a third finds room too");
    core.publish(4 * MS, &name(30), &Bytes::new(), &mut world).unwrap();
    assert_eq!((core.by_name.len(), core.shared.counts.strikes), (8, 0));
}

#[test]
fn a_new_session_is_no_new_share() {
    let (mut core, mut world) = core_with(small(), 2);
    keep_busy(&mut core, &mut world, 0, 2, 20..24);
    for number in 0..8 {
        core.peer_down(MS, &peer(1), &mut world);
        core.peer_up(MS, peer(1), &mut world);
        keep_busy(&mut core, &mut world, MS, 1, number..number + 1);
    }
    assert!((20..24).all(|number| has(&core, number)), "the other keeps its half");
}

#[test]
fn a_new_session_gives_no_new_openings() {
    let config = CoreConfig { openings: Rate { per_second: 1, burst: 4 }, ..CoreConfig::default() };
    let (mut core, mut world) = core_with(config, 1);
    for number in 0..20 {
        keep_busy(&mut core, &mut world, 0, 1, number..number + 1);
        core.peer_down(0, &peer(1), &mut world);
        core.peer_up(0, peer(1), &mut world);
    }
    assert_eq!(core.by_name.len(), 2, "each took two: the lane and the origin");
}

#[test]
fn lanes_of_this_node_do_not_go_for_those_of_peers() {
    let (mut core, mut world) = core_with(small(), 2);
    world.heard.push(name(20));
    keep_busy(&mut core, &mut world, 0, 2, 20..21);
    for number in 30..36 {
        core.publish(0, &name(number), &Bytes::new(), &mut world).unwrap();
    }
    for round in 1..20u64 {
        keep_busy(&mut core, &mut world, round * MS, 1, 0..12);
    }
    assert!(has(&core, 20) && (30..36).all(|number| has(&core, number)));
    assert_eq!((0..12).filter(|number| has(&core, *number)).count(), 1, "it replaces its own");
    // What somebody here waits for is let in, for the quietest of this node's own that nobody hears.
    world.heard.push(name(21));
    keep_busy(&mut core, &mut world, 21 * MS, 2, 21..22);
    assert!(has(&core, 20) && has(&core, 21) && !has(&core, 30));
    // What this node published in long ago is no longer its own.
    let later = 61_000 * MS;
    keep_busy(&mut core, &mut world, later, 1, 40..41);
    keep_busy(&mut core, &mut world, later, 2, 50..52);
    assert!(has(&core, 40) && (50..52).all(|number| has(&core, number)) && has(&core, 20));
}

#[test]
fn a_peer_with_all_origins_of_a_lane_gives_way() {
    let (mut core, mut world) = core_with(small(), 2);
    for round in 0..3 {
        (0..16).for_each(|of| core.hear(round * MS, peer(1), data(of, round + 1), &mut world).unwrap());
    }
    for of in 100..108 {
        core.hear(5 * MS, peer(2), data(of, 1), &mut world).unwrap();
        (0..16).for_each(|of| core.hear(5 * MS, peer(1), data(of, 4), &mut world).unwrap());
    }
    let held = (100..108).filter(|of| core.replay(&lane(), &origin(*of), 1).count() == 1).count();
    assert_eq!(held, 8, "the other has its half of the table");
    core.check();
}

#[test]
fn a_peer_with_most_origins_of_all_lanes_gives_way_in_any_of_them() {
    let (mut core, mut world) = core_with(small(), 2);
    for number in 0..4 {
        for of in 0..16 {
            let message = Message { lane: name(number), body: data(of, 1) };
            core.receive(u64::from(of), &peer(1), message, &mut world).unwrap();
        }
    }
    assert_eq!(core.shared.totals.origins, 40);
    for of in 100..110 {
        let message = Message { lane: name(7), body: data(of, 1) };
        core.receive(MS, &peer(2), message, &mut world).unwrap();
    }
    let held = (100..110).filter(|of| core.replay(&name(7), &origin(*of), 1).count() == 1).count();
    assert_eq!((held, core.shared.totals.origins), (10, 40));
    core.check();
}
