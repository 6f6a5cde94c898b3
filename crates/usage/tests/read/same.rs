//! The same rows give the same totals: in any order, split, format, packing, with any threads, spilled or not.

use proptest::prelude::*;

use crate::rows::{FORMATS, GoOn, Row, encode, file, limits, read_bytes, reference};
use ron_usage::{InputError, Limits};

/// Ids that differ only in Unicode form, and ids that formats have to escape.
const ODD: [&str; 10] = ["\u{e9}", "e\u{301}", " a", "a,b", "a\"b", "\"", "a\nb", "a\r", "\0", "\\u0061"];

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let actor = prop_oneof![
        4 => "[a-d]{1,2}",
        1 => "0x[0-9a-f]{3}",
        1 => "\\PC{1,8}",
        1 => proptest::sample::select(ODD.to_vec()).prop_map(str::to_owned),
        1 => Just("x".repeat(1024)),
    ];
    let name =
        || proptest::option::of(prop_oneof![Just("g".to_owned()), Just("a name, longer than a view".to_owned())]);
    let metric = prop_oneof![Just("usage".to_owned()), Just("calls".to_owned()), Just("m".repeat(256))];
    let quantity = prop_oneof![
        4 => 0..1000_u128,
        1 => Just(u128::from(u64::MAX)),
        1 => Just(123_456_789_012_345_678_901_234_567_890_u128),
    ];
    let row = (actor, metric, name(), name(), quantity).prop_map(|(actor, metric, group, asset, quantity)| Row {
        actor,
        metric,
        group,
        asset,
        quantity,
    });
    proptest::collection::vec(row, 0..150)
}

fn cases() -> u32 {
    let is_soak = std::env::var_os("MACRO_SOAK").is_some_and(|value| value == "1");
    if is_soak { 2000 } else { 6 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn every_format_gives_the_reference(rows in rows(), threads in proptest::sample::select(vec![1_usize, 2, 8])) {
        let expected = reference(&rows);
        for format in FORMATS {
            let bytes = encode(&rows, format);
            let read = read_bytes("usage", &bytes, &limits(threads)).expect("sound");
            prop_assert_eq!(&read.totals, &expected, "{:?}", format);
            prop_assert_eq!(read.totals.content_hash(), expected.content_hash());
            prop_assert_eq!((read.rows, read.lengths[0]), (rows.len() as u64, bytes.len() as u64));
            prop_assert_eq!(read.hashes[0], blake3::hash(&bytes));
        }
    }

    #[test]
    fn order_split_threads_and_spill_change_nothing(
        (rows, shuffled) in rows().prop_flat_map(|rows| (Just(rows.clone()), Just(rows).prop_shuffle())),
        cuts in proptest::collection::vec(0..150_usize, 0..5),
        formats in proptest::collection::vec(proptest::sample::select(FORMATS.to_vec()), 6),
    ) {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(shuffled.len())).collect();
        cuts.extend([0, shuffled.len()]);
        cuts.sort_unstable();
        let parts = cuts.windows(2).map(|pair| &shuffled[pair[0]..pair[1]]);
        let files: Vec<_> = parts.zip(&formats).enumerate()
            .map(|(index, (part, format))| file(folder.path(), &index.to_string(), &encode(part, *format)))
            .collect();
        let expected = reference(&rows);
        for threads in [1, 2, 8] {
            let read = ron_usage::read(&files, &limits(threads), &GoOn).expect("sound");
            prop_assert_eq!(&read.totals, &expected, "{} threads", threads);
        }
    }
}

/// Many actors in a cap that holds the result and little else.
#[test]
fn a_small_cap_spills_and_changes_nothing() {
    let rows: Vec<Row> = (0..90_000_u128)
        .map(|index| Row {
            actor: format!("actor-{:x}", index % 60_000 * 0x9e37_79b9),
            metric: if index % 5 == 0 { "calls" } else { "usage" }.to_owned(),
            group: None,
            asset: None,
            quantity: index,
        })
        .collect();
    let folder = tempfile::tempdir().expect("a scratch folder");
    let files: Vec<_> = rows
        .chunks(23_000)
        .zip(FORMATS.iter().step_by(2))
        .map(|(part, format)| file(folder.path(), &format!("{format:?}"), &encode(part, *format)))
        .collect();
    let expected = reference(&rows);
    for threads in [1, 8] {
        let small = Limits { memory_bytes: 4 << 20, spill: Some(folder.path().into()), ..limits(threads) };
        let read = ron_usage::read(&files, &small, &GoOn).expect("it fits");
        assert!(read.spilled_bytes > 1 << 20, "{} bytes spilled with {threads} threads", read.spilled_bytes);
        assert!(read.totals == expected, "{threads} threads");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), files.len(), "nothing is left behind");
    let large = Limits { spill: Some(folder.path().into()), ..limits(2) };
    let read = ron_usage::read(&files, &large, &GoOn).expect("it fits");
    assert!(read.totals == expected && read.spilled_bytes == 0);
    let unable = Limits { memory_bytes: 4 << 20, ..limits(2) };
    let refused = ron_usage::read(&files, &unable, &GoOn).expect_err("too little memory");
    assert!(matches!(&refused, InputError::TooMuch(reason) if reason.contains("bytes of memory")), "{refused}");
    let tiny = Limits { memory_bytes: 1 << 20, spill: Some(folder.path().into()), ..limits(2) };
    let refused = ron_usage::read(&files, &tiny, &GoOn).expect_err("the result does not fit");
    assert!(matches!(&refused, InputError::TooMuch(reason) if reason.contains("the result alone")), "{refused}");
}

#[test]
fn a_text_file_of_many_blocks_is_cut_between_records() {
    let rows: Vec<Row> = (0..30_000_u128)
        .map(|index| Row {
            actor: format!("{}\n\"{}\",", index % 1000, "x".repeat((index % 100) as usize)),
            metric: "usage".to_owned(),
            group: None,
            asset: None,
            quantity: index,
        })
        .collect();
    let expected = reference(&rows);
    for format in [crate::rows::Format::Csv, crate::rows::Format::NdjsonZstd] {
        let bytes = encode(&rows, format);
        for threads in [1, 2] {
            let read = read_bytes("usage", &bytes, &limits(threads)).expect("sound");
            assert!(read.totals == expected, "{format:?}");
        }
    }
}
