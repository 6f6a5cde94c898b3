//! Rendering and statistics.

use super::*;

fn row(ratio: f64, target: Target) -> Row {
    Row {
        name: "queue | ping".to_owned(),
        ours: "9.0 M/s".to_owned(),
        value: Some(40.0),
        peer: String::new(),
        ratio: Some(Spread { median: ratio, min: ratio / 2.0, max: ratio * 2.0 }),
        target,
        meaning: "It means something.".to_owned(),
    }
}

#[test]
fn targets_are_held_against_the_median_or_the_value() {
    for (target, expected) in [
        (Target::RatioAtLeast(0.9), Some(true)),
        (Target::RatioAtLeast(0.91), Some(false)),
        (Target::Below(40.1, "ms"), Some(true)),
        (Target::Below(40.0, "ms"), Some(false)),
        (Target::AtLeast(40.0, "held"), Some(true)),
        (Target::AtLeast(40.1, "held"), Some(false)),
        (Target::None, None),
    ] {
        assert_eq!(row(0.9, target).is_met(), expected, "{target:?}");
    }
    let unmeasured = Row { ratio: None, value: None, ..row(1.0, Target::RatioAtLeast(0.1)) };
    assert_eq!(unmeasured.is_met(), Some(false), "what was not measured is not met");
}

#[test]
fn the_plain_table_is_aligned() {
    let table = plain_table(&[row(0.5, Target::RatioAtLeast(0.9)), row(1.0, Target::None)]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3);
    let column = lines[0].find("macronode").expect("a heading");
    assert!(lines[1..].iter().all(|line| line[column..].starts_with("9.0 M/s")), "{table}");
    assert!(lines[1].ends_with("NO") && lines[1].contains("0.50 (0.25 to 1.00)"), "{table}");
}

#[test]
fn the_markdown_table_keeps_its_columns_whatever_a_cell_contains() {
    let table = markdown_table(&[row(1.0, Target::Below(300.0, "ms"))]);
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    assert!(table.lines().all(|line| columns(line) == HEADINGS.len() + 1), "{table}");
    assert!(table.contains("| below 300 ms | yes |"), "{table}");
    assert!(markdown_table(&[row(1.0, Target::Below(0.75, "ms"))]).contains("| below 0.75 ms | NO |"));
}

#[test]
fn the_page_says_what_was_missed_and_how_to_measure_again() {
    let machine = Machine::for_tests();
    let rows = [row(0.5, Target::RatioAtLeast(0.9)), row(1.0, Target::None)];
    let text = KernelPage { machine: &machine, quick: true, rows: &rows }.markdown();
    assert!(text.starts_with("# Benchmarks: Kernel\n"), "{text}");
    for part in ["kernel --quick --write", "(target missed): It means something.", "(no target)", "a short run"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let whole = KernelPage { machine: &machine, quick: false, rows: &rows }.markdown();
    assert!(!whole.contains("--quick") && !whole.contains("short run"), "{whole}");
}
