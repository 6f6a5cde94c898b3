//! Seeds are clean and repeatable.

use sim::{Stats, run_seed, trace_seed};

#[test]
fn three_hundred_seeds_are_clean() {
    let mut total = Stats::default();
    for seed in 0..300 {
        total.add(run_seed(seed, None).unwrap_or_else(|failure| panic!("{failure}")));
    }
    assert_eq!((total.seeds, total.drains), (300, 300));
    let seen = [total.restarts, total.aborts, total.jobs];
    assert!(seen.iter().all(|count| *count > 300), "the luck is not bad enough: {total:?}");
}

#[test]
fn a_seed_is_repeatable_and_its_trace_has_fixed_columns() {
    let trace = |seed| {
        let mut lines = Vec::new();
        let stats = trace_seed(seed, None, &mut |line| lines.push(line.to_owned())).unwrap();
        (stats, lines)
    };
    let (stats, lines) = trace(11);
    assert_eq!((stats, lines.clone()), trace(11));
    assert_eq!(stats, run_seed(11, None).unwrap(), "watching changes nothing");
    let on_policy = lines.iter().filter(|line| line[17..35].trim() != "job").count();
    assert_eq!(on_policy as u64, stats.events);
    assert!(lines.iter().all(|line| line[8..16].trim() == "11"), "{lines:#?}");
    assert!(lines.last().unwrap().contains("finish"), "{lines:#?}");
}
