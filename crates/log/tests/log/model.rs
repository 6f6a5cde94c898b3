//! Random lives of a log against a list: append, flush, crash, stop, retire, in any order.

use crate::workload::{Memory, open};
use proptest::prelude::*;
use ron_log::SimDisk;

#[derive(Clone, Debug)]
enum Step {
    Append { head_len: usize, body_len: usize },
    Flush,
    Seal,
    Retire,
    Crash { seed: u64 },
    CrashWithin { operations: u64, seed: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..80_usize, 0..1500_usize).prop_map(|(head_len, body_len)| Step::Append { head_len, body_len }),
        4 => Just(Step::Flush),
        1 => Just(Step::Seal),
        1 => Just(Step::Retire),
        1 => any::<u64>().prop_map(|seed| Step::Crash { seed: seed % 1000 }),
        2 => (0..12_u64, any::<u64>()).prop_map(|(operations, seed)| {
            Step::CrashWithin { operations, seed: seed % 1000 }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_keeps_its_promises(steps in prop::collection::vec(step(), 1..60), seed in any::<u64>()) {
        let mut disk = SimDisk::new(seed);
        let mut memory = Memory::default();
        let (mut log, ..) = open(&disk).expect("a new disk");
        for (number, step) in steps.into_iter().enumerate() {
            let what = format!("step {number}");
            let result = match step {
                Step::Append { head_len, body_len } => memory.append(&log, head_len, body_len).map(drop),
                Step::Flush => memory.flush(&log).map(drop),
                Step::Seal => log.seal().map(|durable| memory.durable = durable.0),
                Step::Retire => memory.retire_oldest(&log),
                Step::CrashWithin { operations, .. } => {
                    disk.crash_at(disk.operations() + operations);
                    memory.flush(&log).and_then(|_| memory.retire_oldest(&log))
                }
                Step::Crash { .. } => Ok(()),
            };
            memory.durable = log.durable().0;
            prop_assert!(result.is_ok() || disk.has_crashed(), "{}: {:?}", what, result);
            if let Step::Crash { seed } | Step::CrashWithin { seed, .. } = step {
                disk = disk.crash(seed);
                log = memory.reopen(&disk, &what).0;
            }
        }
    }
}
