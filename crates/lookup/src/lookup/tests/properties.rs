//! What holds in random worlds: the end comes in time, and absent means what it says.

use proptest::prelude::*;

use super::*;

fn reply() -> impl Strategy<Value = Reply> {
    let closer = proptest::collection::vec(1u32..200, 0..30);
    prop_oneof![
        6 => (0u64..500, proptest::bool::weighted(0.05), closer)
            .prop_map(|(after_ms, satisfactory, closer)| Reply::Answer { after_ms, satisfactory, closer }),
        1 => (0u64..300, any::<bool>()).prop_map(|(after_ms, transient)| Reply::Fail { after_ms, transient }),
        1 => Just(Reply::Silence),
    ]
}

proptest! {
    /// The driver checks the deadline, widths and that nothing is left; here what the conclusion promises.
    #[test]
    fn conclusions_are_what_the_answers_say(
        script in proptest::collection::vec(reply(), 200),
        first in 1u32..150,
        count in 0u32..30,
        quorum in 1usize..3,
        seed in any::<u64>(),
    ) {
        let limits = HedgeLimits { quorum, ..limits() };
        let lookup = Lookup::new(position(0), limits, first_candidates(first..=first + count), 0, seed);
        let run = drive(lookup, 0, limits, &mut guards(), |target, _| script[target as usize].clone());
        let ends = |end| run.course.records().iter().filter(|record| record.end.is_some_and(|(_, e)| e == end)).count();
        prop_assert_eq!(ends(AskEnd::Won), run.finished.satisfied);
        match run.finished.conclusion {
            Conclusion::Found => prop_assert!(run.finished.satisfied > 0),
            Conclusion::Absent => {
                prop_assert!(!run.finished.deadline_hit && run.finished.satisfied == 0);
                let answered: Vec<u32> = answered(&run);
                let named = named(&run, &script);
                let lost = |target: &u32| run.course.records().iter().any(|record| {
                    record.target == *target
                        && matches!(record.end, Some((_, AskEnd::Failed | AskEnd::TimedOut | AskEnd::SkippedOpen)))
                });
                // Half of the front is free of the rule on single vouchers: its nearest must have answered.
                let mut nearest: Vec<u32> = (first..=first + count).chain(named).filter(|t| !lost(t)).collect();
                nearest.sort_unstable();
                nearest.dedup();
                for target in nearest.iter().take(limits.nearest / 2) {
                    prop_assert!(answered.contains(target), "{} of {:?} did not answer", target, nearest);
                }
                prop_assert!(answered.len() >= nearest.len().min(limits.nearest));
            }
            Conclusion::Unknown => {
                prop_assert_eq!(run.finished.satisfied, 0);
                let front = answered(&run).len().min(limits.nearest);
                prop_assert!(run.finished.deadline_hit || run.finished.failed * 3 > front);
            }
        }
    }
}

fn answered(run: &Run) -> Vec<u32> {
    let is_answer = |end: Option<(Millis, AskEnd)>| matches!(end, Some((_, AskEnd::Empty | AskEnd::Won)));
    run.course.records().iter().filter(|record| is_answer(record.end)).map(|record| record.target).collect()
}

/// Everybody that an answer named, as far as one answer may.
fn named(run: &Run, script: &[Reply]) -> Vec<u32> {
    let closer = |target: u32| match &script[target as usize] {
        Reply::Answer { closer, .. } => closer.iter().copied().take(limits().closer_max).collect(),
        _ => Vec::new(),
    };
    answered(run).into_iter().flat_map(closer).collect()
}
