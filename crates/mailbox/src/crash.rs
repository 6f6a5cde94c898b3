//! Nothing acknowledged is lost: the power goes at every operation of recorded workloads, and each time all is checked.

use ron_log::sim::Survival;
use ron_log::{LogError, SimDisk};

#[path = "../tests/model/reference.rs"]
#[expect(dead_code, reason = "the model tests need more of it")]
mod reference;

mod check;
mod clock;
mod damage;
mod deliveries;
mod files;
mod live;
mod memory;
mod races;
mod room;
mod workloads;
mod world;

use check::check;
use memory::Memory;
use world::{START_MS, World};

type Script<'a> = &'a dyn Fn(&mut World) -> Result<(), LogError>;

/// What a proof did, for the reader of its output.
#[derive(Default)]
struct Tally {
    crashes: usize,
    recoveries: usize,
    promises: usize,
}

/// More of everything with `MACRO_SOAK=1`.
fn seeds(few: u64) -> u64 {
    let is_soak = std::env::var_os("MACRO_SOAK").is_some_and(|value| value == "1");
    if is_soak { few * 50 } else { few }
}

/// A good enough generator.
pub(super) struct Dice(u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let sides = from.len() as u64;
        (sides > 0).then(|| from[self.roll(sides) as usize])
    }
}

/// Plays a script until its end or until the power goes.
fn play(disk: &SimDisk, script: Script<'_>) -> Memory {
    let Ok(mut world) = World::new(disk) else { return Memory::new(START_MS) };
    let played = script(&mut world);
    assert_eq!(played.is_err(), disk.has_crashed(), "{played:?}");
    world.memory
}

fn survivals(seed: u64) -> [Survival; 6] {
    let drawn = seed * 2 + 3;
    [
        Survival::Nothing,
        Survival::Everything,
        Survival::Sectors(drawn),
        Survival::Pages(drawn),
        Survival::Sectors(drawn + 1),
        Survival::Pages(drawn + 1),
    ]
}

/// The power goes at every operation, and comes back in several ways; then a second time.
fn crash_everywhere(name: &str, script: Script<'_>) {
    let disk = SimDisk::new(5);
    play(&disk, script);
    let operations = disk.operations();
    assert!(operations > 40, "{name} does little: {operations} operations");
    let mut tally = Tally::default();
    for operation in 0..operations {
        let disk = SimDisk::new(5);
        disk.crash_at(operation);
        let memory = play(&disk, script);
        assert!(disk.has_crashed());
        for (nth, survival) in survivals(operation).into_iter().enumerate() {
            let what = format!("{name}: {operation} ({}), {survival:?}", disk.operation(operation));
            let found = disk.crash_with(survival);
            let mut dice = Dice(operation * 8 + nth as u64);
            let (world, promises) = check(&found, &memory, 1 + dice.roll(4) as usize, &what);
            tally.recoveries += 1;
            tally.promises += promises;
            // Half of them are enough for what comes after.
            if (operation + nth as u64).is_multiple_of(2) {
                go_on(world, &found, &mut dice, &what, &mut tally);
            }
        }
        tally.crashes += 1;
    }
    let Tally { crashes, recoveries, promises } = tally;
    println!("{name}: {crashes} crash points, {recoveries} recoveries, 0 lost of {promises} promises");
}

/// Goes on for a while, crashes again somewhere in that, and recovers again.
fn go_on(mut world: World, found: &SimDisk, dice: &mut Dice, what: &str, tally: &mut Tally) {
    found.crash_at(found.operations() + dice.roll(24));
    let played = workloads::afterwards(&mut world, dice);
    assert_eq!(played.is_err(), found.has_crashed(), "{what}: {played:?}");
    let memory = world.memory;
    drop(world.log);
    let survival = survivals(dice.roll(1000))[dice.roll(6) as usize];
    let (_, promises) = check(&found.crash_with(survival), &memory, 2, &format!("{what}, and again {survival:?}"));
    tally.promises += promises;
    tally.recoveries += 1;
}

#[test]
fn sends_and_acknowledgements() {
    crash_everywhere("send and ack", &workloads::send_and_ack);
}

#[test]
fn dead_letters_and_redrives() {
    crash_everywhere("dead letters", &workloads::dead_letters);
}

#[test]
fn moves_of_dead_letters() {
    crash_everywhere("moves", &workloads::moves);
}

#[test]
fn compaction() {
    crash_everywhere("compaction", &workloads::compaction);
}

#[test]
fn rebalancing() {
    crash_everywhere("rebalance", &workloads::rebalance);
}

#[test]
fn rolling_over_segments() {
    crash_everywhere("roll", &workloads::roll);
}

#[test]
fn topics_made_changed_and_removed() {
    crash_everywhere("topics", &workloads::topics);
}

#[test]
fn ends_of_topics_and_purges() {
    crash_everywhere("ends", &workloads::ends);
}

#[test]
fn any_mixture() {
    for seed in 0..seeds(2) {
        crash_everywhere(&format!("mixture {seed}"), &move |world| workloads::mixture(world, seed, 60));
    }
}
