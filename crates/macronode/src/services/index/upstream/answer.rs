//! Answers of a router, read to a bound: lines as they come, one document, or an IPNS record.

use http::header::CONTENT_TYPE;
use macronode_client::http::StreamingAnswer;
use ron_kernel::{Deadline, clock};
use ron_store::wire::{AskError, Reply};
use ron_store::{ContentId, IpnsRecord, Multiaddr, PeerId, ProviderFields, ProviderRecord, Record};
use ron_transport::NodeKey;
use ron_types::limits::records::{
    ADDR_BYTES_MAX, ADDRS_MAX, IPNS_BYTES_MAX, PROTOCOL_BYTES_MAX, PROTOCOLS_MAX, WIRE_RECORDS_MAX,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use svc_index::ports::UpstreamQuestion;
use tokio::time::sleep_until;

use super::IPNS_RECORD;

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of one line.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Life of what a router says: the time for which routers let their answers be kept.
const TTL_MS: u64 = 300_000;

/// One record of an answer; what else it says is not ours.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct PeerWords {
    schema: String,
    #[serde(rename = "ID")]
    id: Option<String>,
    /// Missing or null where the router knows none.
    addrs: Option<Vec<String>>,
    protocols: Option<Vec<String>>,
    /// Of records from before the specification.
    protocol: Option<String>,
}

/// What stands in the place of a record. One of a schema or shape that is not known here is passed over, as the
/// specification has it: it is not the fault of the others, nor of the router.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Listed {
    Words(PeerWords),
    Other(IgnoredAny),
}

impl Listed {
    fn known(self) -> Option<PeerWords> {
        match self {
            Listed::Words(words) if words.is_known() => Some(words),
            Listed::Words(_) | Listed::Other(IgnoredAny) => None,
        }
    }
}

impl PeerWords {
    fn is_known(&self) -> bool {
        matches!(self.schema.as_str(), "peer" | "bitswap")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Document {
    providers: Option<Vec<Listed>>,
}

/// Reads an answer to a question. Lines that are still coming are read until `until`.
pub(super) async fn read(
    answer: StreamingAnswer,
    question: &UpstreamQuestion,
    key: &NodeKey,
    until: Deadline,
) -> Result<Reply, AskError> {
    let media_type = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match (question, media_type.as_str()) {
        (UpstreamQuestion::Providers(content), "application/x-ndjson") => {
            let (lines, has_ended) = read_lines(answer, until).await?;
            let reply = reply(lines, content, key);
            // A router that is still looking has not said that there is nothing.
            if has_ended || !reply.records.is_empty() { Ok(reply) } else { Err(AskError::TimedOut) }
        }
        (UpstreamQuestion::Providers(content), "application/json") => {
            let bytes = read_whole(answer, ANSWER_BYTES_MAX).await?;
            let document: Document = serde_json::from_slice(&bytes).map_err(|_| AskError::Malformed)?;
            let words = document.providers.into_iter().flatten().filter_map(Listed::known);
            Ok(reply(words, content, key))
        }
        (UpstreamQuestion::Ipns(name), IPNS_RECORD) => {
            let bytes = read_whole(answer, IPNS_BYTES_MAX).await?;
            let record = IpnsRecord::parse(name, &bytes).map_err(|_| AskError::Malformed)?;
            Ok(Reply { records: vec![Record::Ipns(record)], closer: Vec::new() })
        }
        // An answer of another type is that of somebody who knows nothing.
        (UpstreamQuestion::Ipns(_), _) => Ok(Reply::default()),
        _ => Err(AskError::Malformed),
    }
}

async fn read_whole(mut answer: StreamingAnswer, bytes_max: usize) -> Result<Vec<u8>, AskError> {
    let mut whole = Vec::new();
    while let Some(bytes) = answer.next().await {
        let bytes = bytes.map_err(|_| AskError::Closed)?;
        if whole.len() + bytes.len() > bytes_max {
            return Err(AskError::Malformed);
        }
        whole.extend_from_slice(&bytes);
    }
    Ok(whole)
}

/// Lines until there are as many as a reply may have, and whether the router had its say: the rest of a long answer is
/// not read. Routers send what they find as they find it and keep the stream open for as long as they look, so what
/// came by the deadline is an answer.
async fn read_lines(mut answer: StreamingAnswer, until: Deadline) -> Result<(Vec<PeerWords>, bool), AskError> {
    let mut lines = Lines::default();
    while lines.records.len() < WIRE_RECORDS_MAX {
        let bytes = tokio::select! {
            // First, so that a router that never stops sending is stopped.
            biased;
            () = sleep_until(until.instant()) => return Ok((lines.records, false)),
            bytes = answer.next() => bytes,
        };
        let Some(bytes) = bytes else { break };
        lines.take(&bytes.map_err(|_| AskError::Closed)?)?;
    }
    Ok((lines.end()?, true))
}

/// Lines as far as their bytes have come.
#[derive(Debug, Default)]
pub(super) struct Lines {
    waiting: Vec<u8>,
    read: usize,
    pub records: Vec<PeerWords>,
}

impl Lines {
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), AskError> {
        self.read += bytes.len();
        if self.read > ANSWER_BYTES_MAX {
            return Err(AskError::Malformed);
        }
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.waiting.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            self.line()?;
        }
        self.waiting.extend_from_slice(rest);
        if self.waiting.len() > LINE_BYTES_MAX { Err(AskError::Malformed) } else { Ok(()) }
    }

    /// The last line may lack its end.
    pub(super) fn end(mut self) -> Result<Vec<PeerWords>, AskError> {
        self.line()?;
        Ok(self.records)
    }

    fn line(&mut self) -> Result<(), AskError> {
        let line = std::mem::take(&mut self.waiting);
        if line.len() > LINE_BYTES_MAX {
            return Err(AskError::Malformed);
        }
        if line.trim_ascii().is_empty() || self.records.len() >= WIRE_RECORDS_MAX {
            return Ok(());
        }
        let listed: Listed = serde_json::from_slice(&line).map_err(|_| AskError::Malformed)?;
        self.records.extend(listed.known());
        Ok(())
    }
}

/// What a router said, as records that this node vouches for. One that makes no sense does not spoil the others.
fn reply(words: impl IntoIterator<Item = PeerWords>, content: &ContentId, key: &NodeKey) -> Reply {
    let now_ms = clock::unix_millis();
    let records = words.into_iter().filter_map(|words| vouched(words, content, key, now_ms));
    Reply { records: records.take(WIRE_RECORDS_MAX).collect(), closer: Vec::new() }
}

pub(super) fn vouched(words: PeerWords, content: &ContentId, key: &NodeKey, now_ms: u64) -> Option<Record> {
    if !words.is_known() {
        return None;
    }
    let peer: PeerId = words.id?.parse().ok()?;
    // Signed by this node, what a router says of the node itself would be the node's own and newest word.
    if peer == PeerId::from(key.node_id()) {
        return None;
    }
    let addrs = words.addrs.iter().flatten().filter_map(|addr| addr.parse::<Multiaddr>().ok());
    let addrs = addrs.filter(|addr| (1..=ADDR_BYTES_MAX).contains(&addr.len())).take(ADDRS_MAX).collect();
    let is_plain = |name: &String| {
        (1..=PROTOCOL_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let protocols =
        words.protocols.into_iter().flatten().chain(words.protocol).filter(is_plain).take(PROTOCOLS_MAX).collect();
    let fields = ProviderFields {
        key: content.key(),
        peer,
        addrs,
        protocols,
        region: None,
        sequence: now_ms,
        issued_ms: now_ms,
        expires_ms: now_ms + TTL_MS,
    };
    ProviderRecord::sign(fields, key).ok().map(Record::Provider)
}
