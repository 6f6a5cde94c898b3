//! `macronode mailbox verify --online`: has a running node check its log, and waits for what it finds.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::super::args::VerifyArgs;
use super::super::types::{bytes, counted, one_line};
use super::progress_bar;
use crate::client::ApiClient;
use crate::commands::Report;
use crate::errors::{Code, Exit, Failure};

const SCRUB: &str = "/v1/log/scrub";
/// Time between two looks at the check.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Scrub {
    running: Option<Pass>,
    last: Option<Pass>,
}

/// State of one check of the whole log, as the node reports it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Pass {
    run: u64,
    bytes_done: u64,
    bytes_total: u64,
    segments: u64,
    records: u64,
    damaged_records: u64,
    damaged_stretches: u64,
    damaged_headers: u64,
    findings: Vec<Finding>,
    error: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Finding {
    segment: u32,
    offset: u32,
    bytes: u32,
    records: u64,
    messages: Vec<Named>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    topic: String,
    msg_id: String,
}

/// Asks for a check and waits until it has ended.
pub async fn verify_online(args: &VerifyArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    let begun: Scrub = client.post(SCRUB, &json!({})).await?.read(SCRUB)?;
    let silent = || Failure::new(Code::NodeRefused, "the node named no check of its log");
    let run = begun.running.or(begun.last).ok_or_else(silent)?.run;
    let bar = progress_bar();
    let (pass, text) = loop {
        let answer = client.get(SCRUB).await?;
        let scrub: Scrub = answer.read(SCRUB)?;
        if let Some(last) = scrub.last.filter(|last| last.run >= run) {
            break (last, answer.text());
        }
        if let Some(pass) = scrub.running {
            bar.set_length(pass.bytes_total);
            bar.set_position(pass.bytes_done);
        }
        tokio::time::sleep(LOOK).await;
    };
    bar.finish_and_clear();
    let text = if args.node.json { text + "\n" } else { pass.in_words() };
    Ok(Report { text, exit: if pass.is_clean() { Exit::Clean } else { Exit::Failed } })
}

impl Pass {
    fn is_clean(&self) -> bool {
        self.damaged_stretches == 0 && self.damaged_headers == 0 && self.error.is_none()
    }

    fn in_words(&self) -> String {
        let segments = counted(self.segments, "segment");
        let checked = format!("{} in {segments}, {}", counted(self.records, "record"), bytes(self.bytes_done));
        if let Some(error) = &self.error {
            return format!("the check broke off after {checked}: {}\n", one_line(error));
        }
        if self.is_clean() {
            return format!("ok: {checked}: every checksum is whole\n");
        }
        let mut text: String = self.findings.iter().map(Finding::line).collect();
        let more = self.damaged_stretches.saturating_sub(self.findings.len() as u64);
        if more > 0 {
            text +=
                &format!("and {} more\n", if more == 1 { "1 stretch".to_owned() } else { format!("{more} stretches") });
        }
        if self.damaged_headers > 0 {
            text += &format!("{} with a damaged copy of its header\n", counted(self.damaged_headers, "segment"));
        }
        text + &format!("DAMAGED: {checked} are whole; {} lost\n", counted(self.damaged_records, "record"))
    }
}

impl Finding {
    fn line(&self) -> String {
        let Finding { segment, offset, bytes, records, messages } = self;
        let named = messages.iter().map(|named| format!("{} {}", one_line(&named.topic), one_line(&named.msg_id)));
        let named: Vec<String> = named.collect();
        let named = if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) };
        format!(
            "segment {segment}: {bytes} bytes at {offset} are damaged, {} lost{named}\n",
            counted(*records, "record")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_told_with_what_it_found() {
        let clean = Pass { run: 1, segments: 2, records: 10, bytes_done: 2048, ..Pass::default() };
        assert_eq!(clean.in_words(), "ok: 10 records in 2 segments, 2.0 KiB: every checksum is whole\n");
        let named = Named { topic: "orders".to_owned(), msg_id: "01".to_owned() };
        let finding = Finding { segment: 3, offset: 128, bytes: 500, records: 1, messages: vec![named] };
        let (damaged_records, damaged_stretches, findings) = (4, 2, vec![finding]);
        let bad = Pass { damaged_records, damaged_stretches, damaged_headers: 1, findings, ..clean.clone() };
        let expected = "\
segment 3: 500 bytes at 128 are damaged, 1 record lost: orders 01
and 1 stretch more
1 segment with a damaged copy of its header
DAMAGED: 10 records in 2 segments, 2.0 KiB are whole; 4 records lost
";
        assert_eq!(bad.in_words(), expected);
        let broken = Pass { error: Some("no".to_owned()), ..clean };
        assert!(!broken.is_clean() && broken.in_words().starts_with("the check broke off"), "{broken:?}");
    }
}
