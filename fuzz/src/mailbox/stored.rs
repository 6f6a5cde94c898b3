//! What a mailbox keeps or hands out: records of the log, envelopes, receipts and ids.

use svc_mailbox::envelope::{Envelope, payload_hash};
use svc_mailbox::record::{Death, Memo, Record, Stand, Taken, Tried, Whole};
use svc_mailbox::shard::Key;
use svc_mailbox::types::{DeadReason, PartKey, TopicId};
use svc_mailbox::{Receipt, Secret};

use crate::Seed;

const NOW_MS: u64 = 1_800_000_000_000;
const PART: PartKey = PartKey { topic: TopicId(3), partition: 1 };
const KEY: Key = Key { hash: 0x1234_5678_9abc, payload: 77 };

/// Records of several kinds.
pub fn records() -> Vec<Seed> {
    let taken = Taken {
        part: PART,
        seq: 42,
        sent_ms: NOW_MS,
        due_ms: NOW_MS + 5,
        body_len: 5,
        group: Some("g"),
        key: Some((KEY, NOW_MS + 60_000)),
    };
    let lease = Record::Lease {
        part: PART,
        until_ms: NOW_MS + 30_000,
        now_ms: NOW_MS,
        consumer: "worker-1",
        items: vec![(42, 1), (44, 2)].into(),
    };
    let moved = Record::Move {
        from: PART,
        to: PartKey { topic: TopicId(4), partition: 0 },
        seq: 42,
        reason: Some(DeadReason::MaxAttempts),
        now_ms: NOW_MS,
        attempts: 5,
        error: "the disk is full",
    };
    let settings = r#"{"visibility_ms":30000}"#;
    let written = |record: &Record<'_>| {
        let mut out = Vec::new();
        record.encode(&mut out);
        out
    };
    vec![
        ("topic.seed", written(&Record::Topic { id: TopicId(3), name: "orders", settings })),
        ("send.seed", written(&Record::Send(taken))),
        ("lease.seed", written(&lease)),
        ("acknowledged.seed", written(&Record::Ack { part: PART, seqs: vec![42, 44, 45].into() })),
        ("move.seed", written(&moved)),
        ("relocated.seed", written(&Record::Relocated(Box::new(whole())))),
        ("mark.seed", written(&Record::Mark { now_ms: NOW_MS, shards: 4, seq: 45, boot: None })),
    ]
}

/// A dead message with all that can be known of one.
fn whole() -> Whole<'static> {
    let since_ms = NOW_MS + 90_000;
    let source = PartKey { topic: TopicId(2), partition: 0 };
    Whole {
        part: PART,
        seq: 42,
        sent_ms: NOW_MS,
        now_ms: NOW_MS + 100_000,
        body_len: 5,
        group: Some("g"),
        attempts: 2,
        fence: 2,
        stand: Stand::Delayed(NOW_MS + 200_000),
        moved_ms: Some(since_ms),
        dead: Some(Death { reason: DeadReason::Rejected, source, attempts: 2, since_ms, last_error: "no" }),
        first_leased_ms: NOW_MS + 10,
        tries: vec![Tried { number: 1, consumer: "worker-1", leased_ms: NOW_MS + 10, outcome: "no" }],
        memo: Some(Memo { key: KEY, sent_ms: NOW_MS, until_ms: NOW_MS + 600_000 }),
    }
}

/// Envelopes with everything, and with nothing but a payload.
pub fn envelopes() -> Vec<Seed> {
    let payload = b"hello".as_slice();
    let plain = Envelope { payload_hash: payload_hash(payload), payload: payload.into(), ..Envelope::default() };
    let whole = Envelope {
        idem_key: Some("k-1"),
        corr_id: Some("018f"),
        attrs: vec![("kind", "test"), ("note", "")],
        ..plain.clone()
    };
    vec![("plain.seed", plain.encode().to_vec()), ("whole.seed", whole.encode().to_vec())]
}

/// A receipt of another node than the target checks receipts for.
pub fn receipt() -> Receipt {
    Secret::new([1; 32]).receipt(PART, 42, 1, NOW_MS)
}

/// A receipt, and an id of a message.
pub fn receipts() -> Vec<Seed> {
    let id = Secret::new([1; 32]).message_id(NOW_MS, 42);
    vec![("receipt.seed", receipt().to_string().into_bytes()), ("message-id.seed", id.to_string().into_bytes())]
}
