//! What is recorded: each workload has one subject; the mixtures have all.

use ron_log::LogError;

use super::Dice;
use super::world::{TestMessage, World};
use crate::mailbox::browse::Filter;
use crate::moves::{self, MoveControl, MoveOrder, MoveState, MoveTask};
use crate::types::{Expired, Groups, PartKey, Seq, TopicSettings};

pub fn settings() -> TopicSettings {
    TopicSettings {
        max_attempts: 2,
        replay_window_ms: 50_000,
        retention_ms: 600_000,
        backoff_max_ms: 2_000,
        ..TopicSettings::default()
    }
}

fn fifo() -> TopicSettings {
    TopicSettings { groups: Groups::Fifo, partitions: 2, ..settings() }
}

/// Dies into another topic, whose partition another shard owns.
fn with_grave() -> TopicSettings {
    TopicSettings { dlq: Some("grave".to_owned()), ..settings() }
}

fn short() -> TopicSettings {
    TopicSettings { retention_ms: 5_000, expired: Expired::Drop, ..settings() }
}

/// Fair, in order with partitions, dying elsewhere, kept for a short time.
pub fn make_topics(world: &mut World) -> Result<(), LogError> {
    world.put_topic("fair", settings());
    world.put_topic("line", fifo());
    world.flush()?;
    world.put_topic("grave", TopicSettings { max_attempts: 0, ..settings() });
    world.put_topic("jobs", with_grave());
    world.put_topic("brief", short());
    world.flush()
}

fn message(len: usize) -> TestMessage<'static> {
    TestMessage { len, ..TestMessage::default() }
}

pub fn send_and_ack(world: &mut World) -> Result<(), LogError> {
    make_topics(world)?;
    let (fair, line) = (world.part("fair", 0), world.part("line", 1));
    for round in 0..6 {
        world.send("fair", TestMessage { key: Some(round), ..message(100) });
        world.send("line", TestMessage { partition: 1, group: Some("a"), ..message(700) });
        world.send("line", TestMessage { partition: 1, group: Some("b"), delay_ms: 2_000, ..message(20) });
        world.flush()?;
        let mut given = world.recv(fair, 2, 30_000);
        given.extend(world.recv(line, 2, 30_000));
        if round % 2 == 0 {
            world.flush()?;
        }
        given.iter().skip(1).for_each(|seq| world.ack(*seq));
        world.send("fair", TestMessage { key: Some(round), ..message(100) });
        world.advance(900);
        world.flush()?;
    }
    let [first, second, ..] = world.unseen()[..] else { panic!("some were left") };
    world.edit(first, 300);
    world.reschedule(second, 1_000);
    world.flush()?;
    world.cancel(first);
    world.advance(31_000);
    world.tick();
    world.flush()
}

pub fn dead_letters(world: &mut World) -> Result<(), LogError> {
    make_topics(world)?;
    let (fair, jobs) = (world.part("fair", 0), world.part("jobs", 0));
    for round in 0..4 {
        for topic in ["fair", "jobs"] {
            world.send(topic, TestMessage { key: Some(round), group: Some("g"), ..message(150) });
        }
        world.flush()?;
        for part in [fair, jobs] {
            world.recv_for_nobody(part, 1);
            for seq in world.recv(part, 2, 1_000) {
                world.nack(seq, 0, round == 3);
            }
        }
        world.flush()?;
        // Some die because their lease ran out.
        world.recv(jobs, 1, 1_000);
        world.advance(1_500);
        world.tick();
        world.flush()?;
        for (grave, home) in [(world.part("fair.dlq", 0), fair), (world.part("grave", 0), jobs)] {
            if let Some(seq) = world.held(grave).first().copied() {
                world.redrive(seq, home, 0);
            }
            if round % 2 == 1 {
                world.flush()?;
            }
        }
    }
    let grave = world.part("grave", 0);
    let given = world.recv(grave, 3, 1_000);
    given.into_iter().for_each(|seq| world.ack(seq));
    world.flush()
}

/// Fills segments, settles most, and gives them back; a few messages of every sort stay behind in each.
pub fn compaction(world: &mut World) -> Result<(), LogError> {
    make_topics(world)?;
    let (fair, jobs, line) = (world.part("fair", 0), world.part("jobs", 0), world.part("line", 0));
    for round in 0..5 {
        for nth in 0..4 {
            world.send("fair", TestMessage { key: Some(round * 10 + nth), ..message(900) });
        }
        world.send("jobs", message(300));
        world.send("line", TestMessage { group: Some("a"), ..message(100) });
        world.send("fair", TestMessage { delay_ms: 400_000, ..message(50) });
        world.flush()?;
        let given = world.recv(fair, 4, 60_000);
        given.iter().skip(usize::from(round % 3 == 0)).for_each(|seq| world.ack(*seq));
        for seq in world.recv(jobs, 1, 60_000) {
            world.nack(seq, 0, true);
        }
        world.recv(line, 1, 100);
        world.flush()?;
        world.advance(1_000);
        while world.compact()? {}
        world.flush()?;
    }
    assert!(world.log.usage().segments < 6, "{:?}", world.log.usage());
    Ok(())
}

pub fn rebalance(world: &mut World) -> Result<(), LogError> {
    make_topics(world)?;
    for (round, shards) in [4, 1, 3, 8].into_iter().enumerate() {
        for partition in 0..2 {
            world.send("line", TestMessage { partition, group: Some("a"), key: Some(round as u128), ..message(200) });
        }
        world.send("jobs", message(200));
        world.send("fair", message(200));
        world.flush()?;
        let given = world.recv(world.part("jobs", 0), 1, 60_000);
        given.into_iter().for_each(|seq| world.nack(seq, 0, true));
        // The dead one is still on its way when partitions move.
        world.rebalance(shards)?;
        for part in [world.part("line", 0), world.part("fair", 0)] {
            let given = world.recv(part, 2, 60_000);
            given.into_iter().skip(1).for_each(|seq| world.ack(seq));
        }
        let buried = world.recv(world.part("grave", 0), 1, 1_000);
        assert_eq!(buried.len(), 1, "the dead one has arrived");
        world.advance(1_200);
        world.flush()?;
        world.tick();
    }
    world.flush()
}

/// Groups that end within, at and over the end of a segment.
pub fn roll(world: &mut World) -> Result<(), LogError> {
    make_topics(world)?;
    for round in 0..10 {
        for nth in 0..3 {
            world.send("fair", message(400 + 631 * ((round + nth) % 5)));
        }
        if round % 3 != 1 {
            world.flush()?;
        }
        let given = world.recv(world.part("fair", 0), 2, 60_000);
        given.into_iter().skip(1).for_each(|seq| world.ack(seq));
    }
    world.flush()?;
    assert!(world.log.usage().segments > 3, "{:?}", world.log.usage());
    Ok(())
}

/// Fills a few segments with messages that stay.
pub fn fill(world: &mut World) -> Result<(), LogError> {
    for _ in 0..14 {
        world.send("fair", message(1_500));
        world.send("line", TestMessage { group: Some("a"), ..message(200) });
        world.recv(world.part("line", 0), 1, 90_000);
        world.flush()?;
    }
    Ok(())
}

pub fn topics(world: &mut World) -> Result<(), LogError> {
    make_topics(world)?;
    for round in 0..4 {
        world.put_topic("passing", TopicSettings { partitions: 2, ..settings() });
        world.send("passing", TestMessage { partition: 1, key: Some(1), ..message(500) });
        world.flush()?;
        world.put_topic("fair", TopicSettings { visibility_ms: 1000 + round, ..settings() });
        world.send("fair", TestMessage { key: Some(KEYS[0]), ..message(900) });
        world.send("fair", TestMessage { key: Some(KEYS[1 + round as usize % 2]), ..message(100) });
        world.recv(world.part("passing", 1), 1, 500);
        if round % 2 == 0 {
            world.flush()?;
        }
        // One of the keys is of a message that is gone.
        let given = world.recv(world.part("fair", 0), 1, 500);
        given.into_iter().for_each(|seq| world.ack(seq));
        world.purge(world.part("fair", 0));
        world.send("brief", message(900));
        world.flush()?;
        world.remove_topic("passing");
        // Taken in as new, because the purge forgot the key: the send asserts it.
        world.send("fair", TestMessage { key: Some(KEYS[0]), ..message(900) });
        world.flush()?;
        world.advance(4_000);
        world.tick();
        while world.compact()? {}
        world.flush()?;
    }
    Ok(())
}

/// Topics go while messages are in them and on their way to them, partitions are emptied, and nobody waits for the
/// shards to let go of all that; meanwhile the log is tidied.
pub fn ends(world: &mut World) -> Result<(), LogError> {
    make_topics(world)?;
    for round in 0..4 {
        world.put_topic("pit", TopicSettings { max_attempts: 0, ..settings() });
        let buried = TopicSettings { dlq: Some("pit".to_owned()), partitions: 2, ..settings() };
        world.put_topic("doomed", buried.clone());
        for nth in 0..7 {
            world.send("doomed", TestMessage { partition: nth % 2, key: Some(u128::from(nth)), ..message(300) });
            world.send("fair", TestMessage { key: Some(KEYS[usize::from(nth) % 3] + 10), ..message(200) });
        }
        world.flush()?;
        for seq in world.recv(world.part("doomed", 0), 3, 60_000) {
            world.nack(seq, 0, true);
        }
        // The dead ones are still on their way when their topic goes.
        world.put_topic("doomed", TopicSettings { dlq: None, ..buried });
        world.remove_topic("pit");
        if round % 2 == 0 {
            world.flush()?;
        }
        world.purge(world.part("fair", 0));
        world.remove_topic("doomed");
        world.send("fair", message(700));
        while round % 2 == 1 && world.compact()? {}
        world.flush()?;
        world.advance(1_000);
        world.tick();
        world.send("brief", message(1_500));
        world.flush()?;
    }
    for topic in ["fair", "brief"] {
        world.purge(world.part(topic, 0));
    }
    while world.shards.iter().any(|driven| driven.shard.has_remains()) {
        world.tick();
    }
    while world.compact()? {}
    world.flush()?;
    assert_eq!(world.log.usage().bytes_live, 0, "nothing is kept for what is gone");
    Ok(())
}

/// Keys that are purged, and tried after a recovery whether they are known or not.
const KEYS: [u128; 3] = [1001, 1002, 1003];

fn found(tasks: &[MoveTask], id: u64) -> MoveTask {
    moves::find(tasks, id).expect("it is remembered")
}

fn control(world: &mut World, part: PartKey, id: u64, control: MoveControl) {
    let controlled = |tasks: &[MoveTask]| found(tasks, id).controlled(control, tasks);
    world.change_moves(part.topic, |tasks, _| controlled(tasks).expect("it has not ended"));
}

/// Dead letters go back by moves that wait, run, are paused, canceled or end; their records outlive compaction.
pub fn moves(world: &mut World) -> Result<(), LogError> {
    make_topics(world)?;
    let (jobs, grave) = (world.part("jobs", 0), world.part("grave", 0));
    for round in 0..4 {
        for _ in 0..4 {
            world.send("jobs", message(1_500));
        }
        for seq in world.recv(jobs, 10, 60_000) {
            world.nack(seq, 0, true);
        }
        // They have arrived.
        world.recv(grave, 1, 1);
        world.advance(10);
        world.tick();
        world.flush()?;
        let to_move = world.held(grave).len() as u64;
        let order = || MoveOrder { rate_per_second: Some(5), ..MoveOrder::all_of("grave".parse().unwrap()) };
        world.change_moves(grave.topic, |_, id| order().task(id, to_move, id, false));
        let first = world.topics.moves.of(grave.topic).last().expect("it runs").id;
        // Another one waits behind it, with all that can be said in an order.
        let filter = Filter { error_contains: Some("failed".to_owned()), ..Filter::default() };
        world.change_moves(grave.topic, |_, id| {
            MoveOrder { filter, limit: Some(3), ..order() }.task(id, to_move, id, true)
        });
        let second = world.topics.moves.of(grave.topic).last().expect("it waits").id;
        for (nth, seq) in world.held(grave).into_iter().take(3).enumerate() {
            world.redrive(seq, jobs, first);
            if nth == 1 {
                world.flush()?;
                while world.compact()? {}
            }
        }
        if round % 2 == 0 {
            control(world, grave, first, MoveControl::Pause);
            world.flush()?;
            control(world, grave, first, MoveControl::Cancel);
        }
        world.change_moves(grave.topic, |tasks, _| {
            let seen = MoveTask { looked_at: 4, failed: 1, last_error: Some("no".to_owned()), ..found(tasks, first) };
            seen.ended(MoveState::Canceled, None)
        });
        control(world, grave, second, MoveControl::Pause);
        world.flush()?;
        control(world, grave, second, MoveControl::Cancel);
        // What moves by no order counts for none.
        if let Some(seq) = world.held(grave).first().copied() {
            world.redrive(seq, jobs, 0);
        }
        assert_eq!(found(&world.topics.moves.of(grave.topic), first).moved, 3);
        world.flush()?;
        let given = world.recv(jobs, 10, 60_000);
        given.into_iter().for_each(|seq| world.ack(seq));
        world.flush()?;
        while world.compact()? {}
    }
    world.flush()?;
    assert!(world.log.usage().segments < 3, "{:?}", world.log.usage());
    Ok(())
}

const PARTS: [(&str, u16); 7] =
    [("fair", 0), ("line", 0), ("line", 1), ("jobs", 0), ("brief", 0), ("grave", 0), ("fair.dlq", 0)];

pub fn mixture(world: &mut World, seed: u64, steps: usize) -> Result<(), LogError> {
    let mut dice = Dice(seed.wrapping_mul(77) + 1);
    make_topics(world)?;
    for _ in 0..steps {
        step(world, &mut dice)?;
    }
    world.flush()
}

fn step(world: &mut World, dice: &mut Dice) -> Result<(), LogError> {
    let (topic, partition) = PARTS[dice.roll(PARTS.len() as u64) as usize];
    let part = world.part(topic, partition);
    match dice.roll(24) {
        0..8 => {
            let (topic, partition) = PARTS[dice.roll(5) as usize];
            let key = (dice.roll(3) == 0).then(|| u128::from(dice.roll(4)));
            let group = [None, Some("a"), Some("b")][dice.roll(3) as usize];
            let delay_ms = [0, 0, 0, 1_500][dice.roll(4) as usize];
            let len = 50 + dice.roll(1_500) as usize;
            world.send(topic, TestMessage { partition, group, key, delay_ms, len });
        }
        8..12 => drop(world.recv(part, 1 + dice.roll(3) as usize, [500, 5_000, 60_000][dice.roll(3) as usize])),
        12..20 => change(world, dice, part),
        20 => world.advance(700),
        21 => match dice.roll(2) {
            0 => world.tick(),
            _ => world.recv_for_nobody(part, 2),
        },
        22 => while world.compact()? {},
        _ if dice.roll(3) == 0 => world.rebalance(1 + dice.roll(4) as usize)?,
        _ => {}
    }
    if dice.roll(2) == 0 {
        world.flush()?;
    }
    Ok(())
}

/// Something that needs a message of the right sort; nothing if there is none.
fn change(world: &mut World, dice: &mut Dice, part: PartKey) {
    let leases: Vec<Seq> = world.leased().iter().map(|lease| lease.1).collect();
    let (leased, unseen) = (dice.pick(&leases), dice.pick(&world.unseen()));
    let graves = [("grave", "jobs"), ("fair.dlq", "fair")];
    match (dice.roll(10), leased, unseen) {
        (0..4, Some(seq), _) => world.ack(seq),
        (4, Some(seq), _) => world.nack(seq, dice.roll(2) * 800, false),
        (5, Some(seq), _) => world.nack(seq, 0, part_dies(world, seq)),
        (6, Some(seq), _) => world.extend(seq, [0, 10_000][dice.roll(2) as usize]),
        (7, _, Some(seq)) => match dice.roll(3) {
            0 => world.cancel(seq),
            1 => world.edit(seq, 40 + dice.roll(400) as usize),
            _ => world.reschedule(seq, dice.roll(2) * 700),
        },
        (8, ..) => {
            let (grave, home) = graves[dice.roll(2) as usize];
            let free = world.held(world.part(grave, 0));
            let free: Vec<Seq> = free.into_iter().filter(|seq| !leases.contains(seq)).collect();
            if let Some(seq) = dice.pick(&free) {
                world.redrive(seq, world.part(home, 0), 0);
            }
        }
        (9, ..) if dice.roll(4) == 0 => world.purge(part),
        _ => {}
    }
}

fn part_dies(world: &World, seq: Seq) -> bool {
    let message = world.model.reference.messages.iter().find(|message| message.seq == seq).expect("it is there");
    world.model.reference.rules[&message.part].dlq.is_some()
}

/// After a recovery: what was promised is used, in the hardest order.
pub fn afterwards(world: &mut World, dice: &mut Dice) -> Result<(), LogError> {
    if world.model.topics.contains_key("fair") {
        for key in KEYS {
            world.send("fair", TestMessage { key: Some(key), ..message(30) });
        }
    }
    let known: Vec<_> = world.model.reference.keys.iter().map(|known| (known.part, known.hash)).collect();
    for (part, hash) in known.into_iter().rev().take(3) {
        let topic = world.topics.by_id(part.topic).expect("keys go with their topic").name.to_string();
        world.send(&topic, TestMessage { partition: part.partition, key: Some(hash), ..message(60) });
    }
    world.flush()?;
    world.leased().into_iter().step_by(2).for_each(|(_, seq, _)| world.ack(seq));
    if dice.roll(2) == 0 {
        world.tick();
    }
    let parts: Vec<PartKey> = world.model.reference.rules.keys().copied().collect();
    for part in parts {
        let given = world.recv(part, 100, 5_000);
        given.into_iter().step_by(3).for_each(|seq| world.ack(seq));
    }
    world.flush()?;
    if world.topics.len() > 0 {
        for _ in 0..3 {
            if let Some(name) =
                dice.pick(&["fair", "line", "jobs"]).filter(|name| world.model.topics.contains_key(*name))
            {
                world.send(name, TestMessage { group: Some("z"), ..message(600) });
            }
        }
        world.compact()?;
        world.rebalance(1 + dice.roll(4) as usize)?;
    }
    world.advance(dice.roll(3) * 3_000);
    world.tick();
    world.flush()
}
