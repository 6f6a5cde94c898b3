//! `macronode mailbox verify`: checks the log on the disk while no node has it open, and changes nothing.

mod online;

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ron_log::{Damage, LogError, SegmentReport, VerifyReport};
use serde_json::{Value, json};

use super::args::VerifyArgs;
use super::types::{bytes, counted};
use crate::client::configured;
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::errors::{Code, Exit, Failure};

pub use online::verify_online;

/// Segments without a finding that are listed one by one.
const LISTED_MAX: usize = 40;

/// Walks the log and tells what it found.
pub fn verify(args: &VerifyArgs) -> Result<Report, Failure> {
    let folder = args.node.data_dir.clone().unwrap_or_else(|| configured().data_dir).join("mailbox");
    let bar = progress_bar();
    let walked = ron_log::verify(&folder, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = walked.map_err(|error| failure(&folder, &error))?;
    let text = if args.node.json { format!("{}\n", as_json(&report)) } else { show(&folder, &report) };
    Ok(Report { text, exit: if report.is_clean() { Exit::Clean } else { Exit::Failed } })
}

fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    let style = "verifying {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn failure(folder: &Path, error: &LogError) -> Failure {
    let place = folder.display();
    let message = match error {
        LogError::InUse => {
            format!(
                "a node has the log in {place} open: have it check itself with --online, or stop it first (`macronode drain`)"
            )
        }
        LogError::Io { kind: std::io::ErrorKind::NotFound, .. } => {
            format!("there is no log in {place}: name the node's data directory with --data-dir")
        }
        error => format!("cannot verify the log in {place}: {error}"),
    };
    Failure::new(Code::DataDirUnusable, message)
}

fn show(folder: &Path, report: &VerifyReport) -> String {
    let mut rows = vec![row(["segment", "records", "written", "finding"])];
    let clean = report.segments.iter().filter(|segment| finding(segment).is_none()).count();
    for segment in &report.segments {
        let found = finding(segment);
        if found.is_none() && clean > LISTED_MAX {
            continue;
        }
        let (number, records) = (segment.segment.to_string(), segment.records.to_string());
        let well = if segment.records == 0 { "ok, empty" } else { "ok" };
        rows.push(row([&number, &records, &bytes(segment.written_bytes), found.as_deref().unwrap_or(well)]));
    }
    let mut text = if report.segments.is_empty() { String::new() } else { table(0, &rows) + "\n" };
    if clean > LISTED_MAX {
        text += &format!("{clean} segments without a finding are not listed\n");
    }
    text + &summary(folder, report)
}

/// Sentence about a segment, if there is anything to say.
fn finding(segment: &SegmentReport) -> Option<String> {
    let mut found = Vec::new();
    if segment.header_damaged {
        found.push("a copy of its header is damaged".to_owned());
    }
    if segment.cut_bytes > 0 {
        found.push(format!("the file was cut by {} bytes", segment.cut_bytes));
    }
    found.extend(segment.damage.iter().map(|damage| match damage.len {
        0 => format!("{} missing before byte {}", counted(damage.records, "record"), damage.offset),
        len => {
            let records = counted(damage.records, "record");
            format!("{len} bytes at {} are damaged, {records} lost", damage.offset)
        }
    }));
    if segment.chain_breaks > 0 {
        found.push(counted(segment.chain_breaks, "break") + " of the chain of checksums");
    }
    if segment.torn_bytes > 0 {
        found.push(format!("torn tail of {} bytes, never acknowledged", segment.torn_bytes));
    }
    (!found.is_empty()).then(|| found.join("; "))
}

fn summary(folder: &Path, report: &VerifyReport) -> String {
    let of = |number: fn(&SegmentReport) -> u64| -> u64 { report.segments.iter().map(number).sum() };
    let checked = format!(
        "{} in {}, {}",
        counted(of(|segment| segment.records), "record"),
        counted(report.segments.len() as u64, "segment"),
        bytes(of(|segment| segment.written_bytes))
    );
    if report.is_clean() {
        return format!("ok: {checked}: every checksum and the chain are whole\n");
    }
    let missing: Vec<String> = report.missing.iter().map(u32::to_string).collect();
    let missing = if missing.is_empty() { String::new() } else { format!(", segment {} missing", missing.join(", ")) };
    let end = match report.lost_at_end {
        0 => String::new(),
        lost => format!(", {} missing at the end of the log", counted(lost, "record")),
    };
    let manifest = if report.manifest_lost { ", the manifest of segments lost" } else { "" };
    format!(
        "DAMAGED: {checked} are whole; {} lost in {} damaged bytes, {}{missing}{end}{manifest}\n\
         what is whole is served; the damaged bytes are in {}\n",
        counted(of(SegmentReport::lost_records), "record"),
        of(SegmentReport::damaged_bytes),
        counted(of(|segment| segment.chain_breaks), "chain break"),
        folder.display()
    )
}

fn as_json(report: &VerifyReport) -> Value {
    let segment = |segment: &SegmentReport| {
        let damage = segment.damage.iter().map(|damage| {
            let Damage { offset, len, first, records, .. } = damage;
            json!({"offset": offset, "bytes": len, "first_lsn": first.0, "records": records})
        });
        json!({
            "segment": segment.segment,
            "bytes": segment.bytes,
            "written_bytes": segment.written_bytes,
            "records": segment.records,
            "first_lsn": segment.first_lsn,
            "last_lsn": segment.last_lsn,
            "damage": damage.collect::<Vec<_>>(),
            "chain_breaks": segment.chain_breaks,
            "torn_bytes": segment.torn_bytes,
            "header_damaged": segment.header_damaged,
            "cut_bytes": segment.cut_bytes,
        })
    };
    json!({
        "clean": report.is_clean(),
        "records": report.segments.iter().map(|segment| segment.records).sum::<u64>(),
        "missing": report.missing,
        "manifest_lost": report.manifest_lost,
        "lost_at_end": report.lost_at_end,
        "segments": report.segments.iter().map(segment).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use ron_log::Lsn;

    use super::*;

    fn segment(number: u32, records: u64) -> SegmentReport {
        SegmentReport { segment: number, records, bytes: 4096, written_bytes: 2048, ..SegmentReport::default() }
    }

    #[test]
    fn a_clean_log_is_told_with_its_torn_tail() {
        let torn = SegmentReport { torn_bytes: 90, ..segment(2, 3) };
        let report =
            VerifyReport { segments: vec![segment(1, 7), torn], missing: Vec::new(), ..VerifyReport::default() };
        let expected = "\
segment  records  written  finding
1        7        2.0 KiB  ok
2        3        2.0 KiB  torn tail of 90 bytes, never acknowledged

ok: 10 records in 2 segments, 4.0 KiB: every checksum and the chain are whole
";
        assert_eq!(show(Path::new("d/mailbox"), &report), expected);
        assert_eq!(as_json(&report)["clean"], true);
    }

    #[test]
    fn damage_is_told_with_its_place_and_cost() {
        let damage = vec![
            Damage { segment: 3, offset: 0, len: 0, first: Lsn(2), records: 4 },
            Damage { segment: 3, offset: 300, len: 44, first: Lsn(9), records: 1 },
        ];
        let bad = SegmentReport { damage, chain_breaks: 1, header_damaged: true, ..segment(3, 5) };
        let report = VerifyReport { segments: vec![segment(1, 1), bad], missing: vec![2], ..VerifyReport::default() };
        let expected = "\
segment  records  written  finding
1        1        2.0 KiB  ok
3        5        2.0 KiB  a copy of its header is damaged; 4 records missing before byte 0; \
44 bytes at 300 are damaged, 1 record lost; 1 break of the chain of checksums

DAMAGED: 6 records in 2 segments, 4.0 KiB are whole; 5 records lost in 44 damaged bytes, \
1 chain break, segment 2 missing
what is whole is served; the damaged bytes are in d/mailbox
";
        assert_eq!(show(Path::new("d/mailbox"), &report), expected);
        assert_eq!(as_json(&report)["segments"][1]["damage"][1]["bytes"], 44);
    }

    #[test]
    fn lost_and_cut_files_are_told() {
        let cut = SegmentReport { cut_bytes: 96, ..segment(3, 5) };
        let report = VerifyReport { segments: vec![cut], missing: vec![2, 4], manifest_lost: true, lost_at_end: 7 };
        let text = show(Path::new("d"), &report);
        assert!(text.contains("the file was cut by 96 bytes"), "{text}");
        let told = ", segment 2, 4 missing, 7 records missing at the end of the log, the manifest of segments lost\n";
        assert!(text.contains(told), "{text}");
        assert_eq!(as_json(&report)["clean"], false);
    }

    #[test]
    fn a_long_log_lists_only_what_matters() {
        let mut segments: Vec<SegmentReport> = (1..=100).map(|number| segment(number, 1)).collect();
        segments[70].chain_breaks = 1;
        let text = show(Path::new("d"), &VerifyReport { segments, ..VerifyReport::default() });
        assert!(text.contains("\n71 ") && !text.contains("\n70 "), "{text}");
        assert!(text.contains("99 segments without a finding are not listed"), "{text}");
    }

    #[test]
    fn a_log_that_cannot_be_walked_is_told_politely() {
        let told = |error: LogError| failure(Path::new("d/mailbox"), &error).to_string();
        assert!(told(LogError::InUse).contains("a node has the log in d/mailbox open"));
        let (doing, kind, detail) = ("reading the log", std::io::ErrorKind::NotFound, String::new());
        assert!(told(LogError::Io { doing, kind, detail }).contains("--data-dir"));
    }
}
