//! Where a scrub stands: the pass that runs, the last one, and the damage that is known already.

use std::collections::BTreeSet;
use std::sync::Mutex;

use ron_kernel::clock;
use ron_log::{SegmentFindings, SegmentSpan};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{EVERY, FIRST_AFTER, due_ms};
use crate::engine::lock;
use crate::types::{Millis, TopicName};

/// Findings kept of one pass; more are only counted.
const FINDINGS_MAX: usize = 100;
/// Damaged stretches remembered, so that they are not told anew every day.
const KNOWN_MAX: usize = 10_000;

/// The scrub, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScrubView {
    /// The pass that runs now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<ScrubPass>,
    /// The last pass that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<ScrubPass>,
    /// When the next daily pass begins, unless one runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_ms: Option<Millis>,
    /// Bytes checked since the start of the node.
    pub bytes_checked: u64,
}

/// One pass through the log.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScrubPass {
    /// Its number: 1 for the first pass since the start of the node.
    pub run: u64,
    /// Somebody asked for it; otherwise it is the daily one.
    pub asked_for: bool,
    /// When it began.
    pub started_ms: Millis,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_ms: Option<Millis>,
    /// Bytes of the log it is through with.
    pub bytes_done: u64,
    /// Bytes of the log when it began.
    pub bytes_total: u64,
    /// Segments it is through with.
    pub segments: u64,
    /// Whole records.
    pub records: u64,
    /// Damaged records.
    pub damaged_records: u64,
    /// Damaged stretches; each may hold several records, or none if a mark between records is damaged.
    pub damaged_stretches: u64,
    /// Segments with a bad copy of their header.
    pub damaged_headers: u64,
    /// The first damaged stretches.
    pub findings: Vec<ScrubFinding>,
    /// Why it broke off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A damaged stretch of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScrubFinding {
    /// Number of the segment.
    pub segment: u32,
    /// First damaged byte.
    pub offset: u32,
    /// Damaged bytes.
    pub bytes: u32,
    /// Records lost here.
    pub records: u64,
    /// Number of the first of them.
    pub first_lsn: u64,
    /// No earlier pass since the start of the node found it.
    pub is_new: bool,
    /// Messages lost here, as far as they can be named.
    pub messages: Vec<DamagedMessage>,
}

/// A message whose bytes are damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DamagedMessage {
    /// The topic that held it.
    pub topic: TopicName,
    /// Number of the partition.
    pub partition: u16,
    /// Id of the message.
    pub msg_id: String,
}

impl ScrubPass {
    /// Nothing is wrong with the log, as far as it got.
    pub fn is_clean(&self) -> bool {
        self.damaged_stretches == 0 && self.damaged_headers == 0 && self.error.is_none()
    }

    /// The part that is done, from 0 to 1.
    pub fn ratio(&self) -> f64 {
        if self.bytes_total == 0 { 1.0 } else { self.bytes_done as f64 / self.bytes_total as f64 }
    }
}

/// The state of the scrub. It belongs to the mailbox, not to the keeper's life: a keeper that is restarted goes on with
/// the pass of the one before.
#[derive(Default)]
pub(crate) struct Scrubber {
    state: Mutex<State>,
    asked: Notify,
}

/// Segment, offset and length of a damaged stretch; a bad header has no length.
type Stretch = (u32, u32, u32);

#[derive(Default)]
struct State {
    running: Option<ScrubPass>,
    last: Option<ScrubPass>,
    runs: u64,
    /// When the next daily pass is due; none before the first life of the keeper.
    due: Option<Instant>,
    next_ms: Option<Millis>,
    bytes_checked: u64,
    /// The first segment that the running pass has not checked.
    next_segment: u32,
    /// Bytes of the running pass that belong to segments it is through with.
    settled_bytes: u64,
    known: BTreeSet<Stretch>,
    /// Damage that the running pass has met, known before or not.
    met: BTreeSet<Stretch>,
}

impl State {
    fn begin(&mut self, now_ms: Millis, asked_for: bool) {
        self.runs += 1;
        self.due = Some(clock::now() + EVERY);
        self.next_ms = None;
        (self.next_segment, self.settled_bytes) = (0, 0);
        self.met.clear();
        self.running = Some(ScrubPass { run: self.runs, asked_for, started_ms: now_ms, ..ScrubPass::default() });
    }
}

impl Scrubber {
    /// Where it stands.
    pub fn view(&self) -> ScrubView {
        let state = lock(&self.state);
        let (running, last) = (state.running.clone(), state.last.clone());
        ScrubView { running, last, next_ms: state.next_ms, bytes_checked: state.bytes_checked }
    }

    /// Begins a pass, or hurries the one that runs.
    pub fn ask(&self, now_ms: Millis) {
        let mut state = lock(&self.state);
        match &mut state.running {
            Some(pass) => pass.asked_for = true,
            None => state.begin(now_ms, true),
        }
        drop(state);
        self.asked.notify_one();
    }

    /// Returns once a pass runs: one left by an earlier life of the keeper, one that was asked for, or the daily one.
    pub async fn until_due(&self, now_ms: &(dyn Fn() -> Millis + Sync)) {
        loop {
            let due = {
                let mut state = lock(&self.state);
                if state.running.is_some() {
                    return;
                }
                let due = *state.due.get_or_insert_with(|| clock::now() + FIRST_AFTER);
                if clock::now() >= due {
                    return state.begin(now_ms(), false);
                }
                state.next_ms = Some(due_ms(now_ms(), due));
                due
            };
            tokio::select! {
                () = self.asked.notified() => {}
                () = tokio::time::sleep_until(due) => {}
            }
        }
    }

    pub fn is_asked_for(&self) -> bool {
        lock(&self.state).running.as_ref().is_some_and(|pass| pass.asked_for)
    }

    /// The segments that the running pass has still to check.
    pub fn left_of(&self, spans: &[SegmentSpan]) -> Vec<SegmentSpan> {
        let mut state = lock(&self.state);
        let next = state.next_segment;
        let left: Vec<_> = spans.iter().copied().filter(|span| span.segment >= next).collect();
        let total = state.settled_bytes + left.iter().map(|span| span.bytes).sum::<u64>();
        if let Some(pass) = &mut state.running {
            pass.bytes_total = total;
        }
        left
    }

    /// So many bytes of a segment were read.
    pub fn has_read(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.bytes_checked += bytes;
        if let Some(pass) = &mut state.running {
            pass.bytes_done = (pass.bytes_done + bytes).min(pass.bytes_total);
        }
    }

    /// Whether this damage was not known; from now on it is.
    pub fn is_news(&self, stretch: Stretch) -> bool {
        let mut state = lock(&self.state);
        if state.met.len() < KNOWN_MAX {
            state.met.insert(stretch);
        }
        // With the memory full, damage is told again rather than forgotten.
        let is_full = state.known.len() >= KNOWN_MAX && !state.known.contains(&stretch);
        is_full || state.known.insert(stretch)
    }

    /// Whether the journal of the node has room for one more finding of this pass: a log that is damaged all over must
    /// not fill it.
    pub fn may_name(&self) -> bool {
        lock(&self.state).met.len() <= FINDINGS_MAX
    }

    /// A segment is no longer there.
    pub fn skip(&self, span: SegmentSpan) {
        lock(&self.state).is_through(span.segment, span.bytes);
    }

    /// A segment was checked.
    pub fn take_in(&self, found: &SegmentFindings, planned_bytes: u64, findings: Vec<ScrubFinding>) {
        let mut state = lock(&self.state);
        state.is_through(found.span.segment, planned_bytes);
        let Some(pass) = &mut state.running else { return };
        pass.segments += 1;
        pass.records += found.records;
        pass.damaged_headers += u64::from(found.header_damaged);
        pass.damaged_stretches += findings.len() as u64;
        pass.damaged_records += findings.iter().map(|finding| finding.records).sum::<u64>();
        let room = FINDINGS_MAX.saturating_sub(pass.findings.len());
        pass.findings.extend(findings.into_iter().take(room));
    }

    /// The pass is over, or broke off.
    pub fn end(&self, now_ms: Millis, error: Option<String>) {
        let mut state = lock(&self.state);
        let Some(mut pass) = state.running.take() else { return };
        pass.finished_ms = Some(now_ms);
        if error.is_none() {
            // Damage that went with its segment is forgotten, so that the memory stays small.
            state.known = std::mem::take(&mut state.met);
            tell(&pass);
        }
        pass.error = error;
        state.last = Some(pass);
    }
}

impl State {
    fn is_through(&mut self, segment: u32, planned_bytes: u64) {
        self.next_segment = segment + 1;
        self.settled_bytes += planned_bytes;
        let done = self.settled_bytes;
        if let Some(pass) = &mut self.running {
            // Files may be shorter than planned; the ratio still comes to its end.
            pass.bytes_done = done;
        }
    }
}

/// One line in the journal of the node for each pass.
fn tell(pass: &ScrubPass) {
    let ScrubPass { run, records, segments, damaged_records, damaged_stretches, damaged_headers, .. } = *pass;
    if pass.is_clean() {
        tracing::info!(run, records, segments, "the log was checked: every record is whole");
    } else {
        let known = pass.findings.iter().filter(|finding| !finding.is_new).count();
        tracing::error!(
            run,
            damaged_records,
            damaged_stretches,
            damaged_headers,
            known_before = known,
            "the log was checked and is damaged; GET /v1/log/scrub names what was found"
        );
    }
}
