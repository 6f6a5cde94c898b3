//! `--memory` is what the process takes, for many rows, many files and hostile ones.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::process::{BINARY, Outcome, command, finish_watched};

const POLICY: &str = r#"{"id":"demo","ruleset":1,"assets":[{"asset":"RON","pool":"1000003","weights":{"usage":"1"}}]}"#;

/// The memory that each run here may take, in KiB.
const MEMORY_KIB: u64 = 128 << 10;
/// What the pages of an optimised executable take of it, in KiB. Those of a build for tests take several times that,
/// and are not counted.
const EXECUTABLE_KIB: u64 = 16 << 10;

/// What the kernel says of the memory of a process, in KiB.
#[derive(Default)]
struct Memory {
    /// The most that was resident.
    peak: u64,
    /// Pages of files, among them the executable.
    of_files: u64,
}

impl Memory {
    fn look(&mut self, process: u32) {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        // Gone once it has ended.
        self.peak = self.peak.max(number("VmHWM:").unwrap_or(0));
        self.of_files = self.of_files.max(number("RssFile:").unwrap_or(0));
    }
}

/// Runs it with 128 MiB; how it ended, and the memory that it took at most.
async fn measured(here: &Path, usage: &[String], out: &str) -> (Outcome, u64) {
    let mut run = command(BINARY, here);
    run.args(["reward", "run", "--policy", "policy.json", "--unsigned", "--epoch", "e1", "--out", out]);
    run.args(["--memory", "128MiB", "--threads", "2", "--usage"]).args(usage);
    let mut memory = Memory::default();
    let outcome = finish_watched(run, |process| memory.look(process)).await;
    (outcome, memory.peak.saturating_sub(memory.of_files) + EXECUTABLE_KIB)
}

fn rows(rows: u64, actors: u64) -> String {
    let mut text = "actor,quantity\n".to_owned();
    for row in 0..rows {
        writeln!(text, "actor-{:016x},{}", (row % actors).wrapping_mul(0x9e37_79b9_7f4a_7c15), row % 1000 + 1)
            .expect("memory");
    }
    text
}

#[tokio::test]
async fn a_run_takes_no_more_memory_than_it_may_from_many_rows_or_many_files() {
    let is_soak = std::env::var_os("MACRO_SOAK").is_some_and(|value| value == "1");
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    fs::write(here.join("policy.json"), POLICY).expect("written");
    // More rows than fit, of about as many actors as can be paid with so much memory.
    let (large, actors) = if is_soak { (2_000_000, 300_000) } else { (200_000, 5_000) };
    fs::write(here.join("large.csv"), rows(large, actors)).expect("written");
    fs::create_dir(here.join("small")).expect("made");
    let small: Vec<String> = (0..300).map(|number| format!("small/{number}.csv")).collect();
    for path in &small {
        fs::write(here.join(path), rows(20, 20)).expect("written");
    }
    for (name, usage) in [("large", vec!["large.csv".to_owned()]), ("small", small)] {
        let (outcome, kib) = measured(here, &usage, &format!("out-{name}")).await;
        outcome.expect(0, &["written to"]);
        assert!(kib <= MEMORY_KIB, "{name}: {kib} KiB");
    }
}

/// The head of a zstd frame that asks for a window of 2 GiB, and a block that says "the same byte again" many times.
#[tokio::test]
async fn a_hostile_window_is_refused_before_it_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    fs::write(here.join("policy.json"), POLICY).expect("written");
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3];
    for _ in 0..1000 {
        // A run of 128 KiB of one byte, and not the last block.
        frame.extend([0x02, 0x00, 0x10, b'x']);
    }
    fs::write(here.join("hostile.csv.zst"), frame).expect("written");
    let (outcome, kib) = measured(here, &["hostile.csv.zst".to_owned()], "out").await;
    outcome.expect(70, &["window", "more memory"]);
    assert!(kib <= MEMORY_KIB, "{kib} KiB");
}
