//! Answers of the index as JSON.

use ron_lookup::{AskEnd, BreakerState};
use ron_store::{ContentId, NameRecord, ProviderRecord};
use serde::Serialize;
use svc_index::words::{AskView, LookupSummary, Notice, RankedProvider, Resolution};
use utoipa::ToSchema;

use super::encoding::base64_of;

/// What an id stands for, who has it, and how the node knows.
#[derive(Serialize, ToSchema)]
pub(super) struct ResolveAnswer<'a> {
    #[serde(flatten)]
    circumstances: Circumstances<'a>,
    #[serde(flatten)]
    finding: Finding<'a>,
}

/// The part of an answer that differs from one request to the next.
#[derive(Serialize, ToSchema)]
pub(super) struct Circumstances<'a> {
    /// Milliseconds since it was found out.
    age_ms: u64,
    /// Milliseconds that this answer took.
    took_ms: f64,
    /// Where it was found: `cache`, `store` or `dht`.
    source: &'a str,
    /// Targets that were not asked because they keep failing.
    open_targets: usize,
    /// Everybody who was asked, in order; missing if nobody was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    course: Vec<AskWords>,
}

/// The part of an answer that is the same until something changes.
#[derive(Serialize, ToSchema)]
pub(super) struct Finding<'a> {
    /// The id, in its one spelling.
    id: String,
    /// `found`; `absent`: all that are nearest to it answered without it; `unknown`: the time was over first;
    /// `degraded`: as unknown, and some targets were not asked because they keep failing.
    outcome: &'a str,
    /// The same of the providers, which of a name are looked for in a second step.
    providers_outcome: &'a str,
    /// The record of the name, if the id is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<NameWords>,
    /// The content that the id stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<ContentWords>,
    /// The content itself, if it is a document that this node keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<ManifestWords>,
    /// Those who have the content, best first.
    providers: Vec<ProviderWords>,
}

/// Content under its names.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ContentWords {
    /// `b3:` and 64 hex digits, if its hash is BLAKE3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b3: Option<String>,
    /// The CID, version 1 in base32.
    pub cid: String,
}

/// A document that the node keeps.
#[derive(Debug, Serialize, ToSchema)]
struct ManifestWords {
    /// Path of its bytes.
    href: String,
    /// Bytes of it.
    bytes: usize,
}

/// A name and what it stands for.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NameWords {
    /// The name with the key of its owner.
    name: String,
    /// The content it stands for.
    value: String,
    /// Number of the record; the highest counts.
    sequence: u64,
    /// When it was signed, in milliseconds since 1970.
    issued_ms: u64,
    /// When it ends, in milliseconds since 1970.
    expires_ms: u64,
    /// The signed record in base64.
    record_b64: String,
}

/// Somebody who has the content.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProviderWords {
    /// Who, as a peer id in base58.
    peer_id: String,
    /// Where, as multiaddresses.
    addrs: Vec<String>,
    /// How it can be fetched.
    protocols: Vec<String>,
    /// Region it says it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<String>,
    /// The higher, the better: the sum of the terms.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    /// What the score is made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    terms: Option<TermWords>,
    /// Number of the record; the highest counts.
    sequence: u64,
    /// When the record ends, in milliseconds since 1970.
    expires_ms: u64,
    /// Somebody else signed for the provider.
    vouched: bool,
}

/// The parts of a score.
#[derive(Debug, Serialize, ToSchema)]
struct TermWords {
    rtt: f64,
    success: f64,
    age: f64,
    region: f64,
    possession: f64,
    breaker: f64,
    vouched: f64,
}

/// Somebody who was asked, and how that ended.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AskWords {
    /// A peer id, or the name of a router.
    target: String,
    /// `peer` or `upstream`.
    class: &'static str,
    /// Whether it was asked because others took long.
    hedge: bool,
    /// When it was asked, in milliseconds since the lookup began.
    asked_ms: f64,
    /// When that was over; none if it was not asked.
    ended_ms: Option<f64>,
    /// Steps from the targets that were known first, which are step 1.
    hop: u32,
    /// `won`, `empty`, `cancelled`, `failed`, `timed_out` or `skipped`.
    end: &'static str,
    /// State of its breaker then: `closed`; `half_open`: this question was to find out whether it is well again;
    /// `open`: it was not asked because it keeps failing.
    breaker: &'static str,
}

/// A lookup that ended.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LookupWords {
    /// The id that was looked up.
    id: String,
    /// How it ended, as in answers.
    outcome: &'static str,
    /// Targets that were not asked because they keep failing.
    open_targets: usize,
    /// Records that were found.
    found: usize,
    /// When it ended, in milliseconds since 1970.
    at_ms: u64,
    /// Milliseconds it took.
    took_ms: f64,
    /// Everybody who was asked, in order.
    course: Vec<AskWords>,
}

/// Something that changed about a watched id.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum ChangeWords {
    /// Event `provider`: published, renewed or withdrawn.
    Provider { provider: ProviderWords, withdrawn: bool },
    /// Event `name`: set, renewed or removed.
    Name { name: NameWords, withdrawn: bool },
    /// Event `manifest`: the document itself came.
    Manifest { content: ContentWords },
    /// Event `missed`: so many changes came faster than they were read.
    Missed { missed: u64 },
    /// Event `ready`: from now on changes are told.
    Ready { id: String },
    /// Event `end`: why there will be no more.
    End { reason: &'static str },
}

impl<'a> ResolveAnswer<'a> {
    pub(super) fn of(resolution: &Resolution, max: usize) -> Self {
        ResolveAnswer { circumstances: Circumstances::of(resolution), finding: Finding::of(resolution, max) }
    }
}

impl Circumstances<'_> {
    pub(super) fn of(resolution: &Resolution) -> Self {
        Circumstances {
            age_ms: resolution.age.as_millis() as u64,
            took_ms: milliseconds(resolution.took),
            source: resolution.source.as_str(),
            open_targets: resolution.open_targets,
            course: resolution.course.iter().map(AskWords::of).collect(),
        }
    }
}

impl Finding<'_> {
    pub(super) fn of(resolution: &Resolution, max: usize) -> Self {
        let href = |id: &ContentId| format!("/manifests/{id}");
        Finding {
            id: resolution.subject.to_string(),
            outcome: resolution.outcome.as_str(),
            providers_outcome: resolution.providers_outcome.as_str(),
            name: resolution.name.as_ref().map(NameWords::of),
            content: resolution.content.as_ref().map(ContentWords::of),
            manifest: resolution
                .manifest
                .as_ref()
                .map(|manifest| ManifestWords { href: href(&manifest.id), bytes: manifest.length }),
            providers: resolution.providers.iter().take(max).map(ProviderWords::ranked).collect(),
        }
    }
}

impl ContentWords {
    pub(super) fn of(content: &ContentId) -> Self {
        ContentWords { b3: content.b3_text(), cid: content.cid_text() }
    }
}

impl NameWords {
    pub(super) fn of(record: &NameRecord) -> Self {
        NameWords {
            name: format!("name:{}@{}", record.label, record.owner),
            value: record.value.to_string(),
            sequence: record.sequence,
            issued_ms: record.issued_ms,
            expires_ms: record.expires_ms,
            record_b64: base64_of(&record.encode()),
        }
    }
}

impl ProviderWords {
    pub(super) fn of(record: &ProviderRecord) -> Self {
        ProviderWords {
            peer_id: record.peer.to_string(),
            addrs: record.addrs.iter().map(ToString::to_string).collect(),
            protocols: record.protocols.clone(),
            region: record.region.clone(),
            score: None,
            terms: None,
            sequence: record.sequence,
            expires_ms: record.expires_ms,
            vouched: !record.is_self_signed(),
        }
    }

    pub(super) fn ranked(provider: &RankedProvider) -> Self {
        let terms = &provider.terms;
        let terms = TermWords {
            rtt: terms.rtt,
            success: terms.success,
            age: terms.age,
            region: terms.region,
            possession: terms.possession,
            breaker: terms.breaker,
            vouched: terms.vouched,
        };
        ProviderWords { score: Some(provider.score), terms: Some(terms), ..ProviderWords::of(&provider.record) }
    }
}

impl AskWords {
    pub(super) fn of(ask: &AskView) -> Self {
        AskWords {
            target: ask.target.to_string(),
            class: ask.target.class().as_str(),
            hedge: ask.hedge,
            asked_ms: milliseconds(ask.started),
            ended_ms: (ask.end != AskEnd::SkippedOpen).then(|| milliseconds(ask.ended)),
            hop: ask.hop,
            end: end(ask.end),
            breaker: breaker_state(ask.breaker),
        }
    }
}

impl LookupWords {
    pub(super) fn of(lookup: &LookupSummary) -> Self {
        LookupWords {
            id: lookup.subject.clone(),
            outcome: lookup.outcome.as_str(),
            open_targets: lookup.open_targets,
            found: lookup.found,
            at_ms: lookup.at_ms,
            took_ms: milliseconds(lookup.took),
            course: lookup.course.iter().map(AskWords::of).collect(),
        }
    }
}

impl ChangeWords {
    pub(super) fn of(change: &Notice) -> Self {
        match change {
            Notice::Provider { record, withdrawn } => {
                ChangeWords::Provider { provider: ProviderWords::of(record), withdrawn: *withdrawn }
            }
            Notice::Name(record) => ChangeWords::Name { name: NameWords::of(record), withdrawn: record.withdraws() },
            Notice::Manifest(content) => ChangeWords::Manifest { content: ContentWords::of(content) },
            Notice::Missed(missed) => ChangeWords::Missed { missed: *missed },
        }
    }

    /// Name of the event.
    pub(super) fn event(&self) -> &'static str {
        match self {
            ChangeWords::Provider { .. } => "provider",
            ChangeWords::Name { .. } => "name",
            ChangeWords::Manifest { .. } => "manifest",
            ChangeWords::Missed { .. } => "missed",
            ChangeWords::Ready { .. } => "ready",
            ChangeWords::End { .. } => "end",
        }
    }

    /// The event as it goes over the wire.
    pub(super) fn append_to(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(format!("event: {}\ndata: ", self.event()).as_bytes());
        serde_json::to_writer(&mut *text, self).expect("strings and numbers can be written");
        text.extend_from_slice(b"\n\n");
    }
}

const fn end(end: AskEnd) -> &'static str {
    match end {
        AskEnd::Won => "won",
        AskEnd::Empty => "empty",
        AskEnd::Cancelled => "cancelled",
        AskEnd::Failed => "failed",
        AskEnd::TimedOut => "timed_out",
        AskEnd::SkippedOpen => "skipped",
    }
}

/// Word for the state of a breaker.
pub(super) const fn breaker_state(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::HalfOpen => "half_open",
        BreakerState::Open => "open",
    }
}

/// Milliseconds with three digits behind the point: more is noise.
pub(super) fn milliseconds(time: std::time::Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}
