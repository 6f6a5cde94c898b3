//! What may happen to a mailbox, drawn at random.

use proptest::prelude::*;

#[derive(Clone, Debug)]
pub enum Step {
    Send { part: usize, group: usize, key: Option<u128>, payload: usize, delay_ms: u64, late: bool },
    Recv { part: usize, max: usize, visibility_ms: u64 },
    Ack { nth: usize, any: bool },
    Nack { nth: usize, delay_ms: Option<u64>, reject: bool, draw: u64 },
    Extend { nth: usize, visibility_ms: u64, any: bool },
    Unlease { nth: usize },
    Cancel { nth: usize },
    Reschedule { nth: usize, delay_ms: u64 },
    Edit { nth: usize, payload: usize },
    Kill { nth: usize },
    Redrive { nth: usize, to: usize },
    Purge { part: usize },
    Tick,
    Advance { ms: u64 },
    Compact,
    Restart { tick: bool },
}

fn nth() -> impl Strategy<Value = usize> {
    0usize..64
}

/// Whether the receipt of any lease counts.
fn any_lease() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.3)
}

/// A step, every sort of it often enough to matter.
pub fn step(compacts: bool) -> impl Strategy<Value = Step> {
    let delay = || prop_oneof![4 => Just(0u64), 1 => Just(100), 1 => Just(5_000)];
    let visibility = || prop_oneof![1 => Just(0u64), 3 => Just(300), 3 => Just(1_000), 3 => Just(60_000)];
    let key = prop_oneof![3 => Just(None), 1 => (0u128..4).prop_map(Some)];
    let send = (0usize..4, 0usize..3, key, 1usize..4, delay(), any::<bool>()).prop_map(
        |(part, group, key, payload, delay_ms, late)| Step::Send { part, group, key, payload, delay_ms, late },
    );
    let recv = (0usize..5, 1usize..4, visibility()).prop_map(|(part, max, visibility_ms)| Step::Recv {
        part,
        max,
        visibility_ms,
    });
    let nack = (nth(), prop::option::of(delay()), prop::bool::weighted(0.1), any::<u64>())
        .prop_map(|(nth, delay_ms, reject, draw)| Step::Nack { nth, delay_ms, reject, draw });
    let advance = prop_oneof![
        6 => (1u64..400).prop_map(|ms| Step::Advance { ms }),
        2 => Just(Step::Advance { ms: 1_000 }),
        1 => Just(Step::Advance { ms: 61_000 }),
        2 => Just(Step::Advance { ms: 149_950 }),
        1 => Just(Step::Advance { ms: 301_000 }),
    ];
    prop_oneof![
        30 => send,
        30 => recv,
        14 => (nth(), any_lease()).prop_map(|(nth, any)| Step::Ack { nth, any }),
        8 => nack,
        5 => (nth(), prop_oneof![Just(0u64), Just(500), Just(5_000)], any_lease())
            .prop_map(|(nth, visibility_ms, any)| Step::Extend { nth, visibility_ms, any }),
        2 => nth().prop_map(|nth| Step::Unlease { nth }),
        2 => nth().prop_map(|nth| Step::Cancel { nth }),
        2 => (nth(), delay()).prop_map(|(nth, delay_ms)| Step::Reschedule { nth, delay_ms }),
        2 => (nth(), 1usize..9).prop_map(|(nth, payload)| Step::Edit { nth, payload }),
        2 => nth().prop_map(|nth| Step::Kill { nth }),
        3 => (nth(), 0usize..5).prop_map(|(nth, to)| Step::Redrive { nth, to }),
        1 => (0usize..5).prop_map(|part| Step::Purge { part }),
        8 => Just(Step::Tick),
        14 => advance,
        6 => Just(if compacts { Step::Compact } else { Step::Tick }),
        3 => any::<bool>().prop_map(|tick| Step::Restart { tick }),
    ]
}
