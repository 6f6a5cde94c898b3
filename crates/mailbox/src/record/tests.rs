//! Every record comes back as it was, and no bytes break the decoder.

use std::borrow::Cow;

use super::*;

fn part(topic: u32) -> PartKey {
    PartKey { topic: TopicId(topic), partition: 3 }
}

fn memo() -> Memo {
    Memo { key: Key { hash: u128::MAX - 5, payload: 77 }, sent_ms: 12, until_ms: u64::MAX }
}

fn whole() -> Box<Whole<'static>> {
    let tried = Tried { number: 4, consumer: "worker", leased_ms: 99, outcome: "no" };
    let dead = Death { reason: DeadReason::Expired, source: part(8), attempts: 4, since_ms: 5, last_error: "boom" };
    Box::new(Whole {
        part: part(1),
        seq: 1 << 47,
        sent_ms: 1_700_000_000_000,
        now_ms: 1_700_000_000_001,
        body_len: 1 << 20,
        group: Some("g"),
        attempts: 3,
        fence: 9,
        stand: Stand::Leased(1_800_000_000_000),
        moved_ms: Some(4),
        dead: Some(dead),
        first_leased_ms: 6,
        tries: vec![tried, Tried { outcome: "", ..tried }],
        memo: Some(memo()),
    })
}

fn taken() -> Taken<'static> {
    Taken {
        part: part(1),
        seq: 300,
        sent_ms: 1000,
        due_ms: 1000,
        body_len: 5,
        group: Some("tenant"),
        key: Some((memo().key, 44)),
    }
}

/// One record of each kind, and of each shape within.
fn samples() -> Vec<Record<'static>> {
    let taken = taken();
    let (part_1, seqs) = (part(1), Cow::Borrowed(&[1, 128, u64::MAX][..]));
    let bare = Whole { group: None, moved_ms: None, dead: None, tries: vec![], memo: None, ..*whole() };
    vec![
        Record::Topic { id: TopicId(u32::MAX), name: "jobs", settings: "{}" },
        Record::TopicGone { id: TopicId(7) },
        Record::Moves { id: TopicId(1 << 31 | 7), now_ms: 9, tasks: "[]" },
        Record::Send(taken.clone()),
        Record::Send(Taken { group: None, key: None, ..taken }),
        Record::Lease {
            part: part_1,
            until_ms: 9,
            now_ms: 4,
            consumer: "w",
            items: Cow::Borrowed(&[(1, 2), (300, 4)]),
        },
        Record::Ack { part: part_1, seqs: seqs.clone() },
        Record::Nack { part: part_1, seq: 2, due_ms: 3, now_ms: 1, reason: "schade" },
        Record::Extend { part: part_1, seq: 2, until_ms: 3, now_ms: 1 },
        Record::Unlease { part: part_1, seq: 2 },
        Record::Returned { part: part_1, seqs: seqs.clone() },
        Record::Move {
            from: part_1,
            to: part(2),
            seq: 2,
            reason: Some(DeadReason::Rejected),
            now_ms: 1,
            attempts: 5,
            error: "x",
        },
        Record::Move { from: part_1, to: part(2), seq: 2, reason: None, now_ms: 1, attempts: 5, error: "" },
        Record::Cancel { part: part_1, seq: 2 },
        Record::Edit(whole()),
        Record::Reschedule { part: part_1, seq: 2, due_ms: 5, now_ms: 4 },
        Record::Relocated(whole()),
        Record::Relocated(Box::new(Whole { stand: Stand::Ready, ..bare.clone() })),
        Record::Relocated(Box::new(Whole { stand: Stand::Freed, ..bare.clone() })),
        Record::Relocated(Box::new(Whole { stand: Stand::Delayed(7), ..bare })),
        Record::Remember { part: part_1, seq: 2, memo: memo() },
        Record::Purge { part: part_1, upto: 2 },
        Record::Expired { part: part_1, seqs },
        Record::Mark { now_ms: 1, shards: 8, seq: 7, boot: None },
        Record::Mark { now_ms: 1, shards: 8, seq: 7, boot: Some(BootTime { id: u128::MAX - 1, since_ms: 9 }) },
        Record::Held { now_ms: 9, hold: Hold { before_ms: 5, jump_ms: 4, until_ms: u64::MAX } },
        Record::TopicNumbers { taken: TopicId(300) },
    ]
}

fn bytes_of(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes
}

#[test]
fn every_record_comes_back_as_it_was() {
    for record in samples() {
        assert_eq!(Record::decode(&bytes_of(&record)), Ok(record));
    }
}

/// What may use the log's reserve, kind by kind; the match has no arm for "others", so that a new kind asks for one.
#[test]
fn only_what_frees_room_may_use_the_reserve() {
    use ron_log::Class;
    let mut kinds = std::collections::BTreeSet::new();
    for record in samples() {
        let expected = match &record {
            Record::Topic { .. } | Record::Send(_) | Record::Edit(_) | Record::Reschedule { .. } => Class::Data,
            Record::Moves { .. } | Record::Move { reason: None, .. } => Class::Data,
            Record::Lease { .. } | Record::Nack { .. } | Record::Extend { .. } => Class::Step,
            Record::Unlease { .. } | Record::Returned { .. } => Class::Step,
            Record::Move { reason: Some(_), .. } => Class::Move,
            Record::Ack { .. } | Record::Cancel { .. } | Record::Expired { .. } => Class::Settle,
            Record::Purge { .. } | Record::TopicGone { .. } => Class::Settle,
            Record::Relocated(_) | Record::Remember { .. } => Class::Copy,
            Record::Mark { .. } | Record::Held { .. } | Record::TopicNumbers { .. } => Class::Copy,
        };
        assert_eq!(record.class(), expected, "{record:?}");
        kinds.insert(bytes_of(&record)[0]);
    }
    assert_eq!(kinds.len(), 22, "there is a sample of every kind");
}

/// The log lets data be shorter than its longest record by as much as a copy can gain.
#[test]
fn a_copy_gains_less_than_the_log_allows() {
    let part = PartKey { topic: TopicId(u32::MAX), partition: u16::MAX };
    let memo = Memo { sent_ms: u64::MAX, until_ms: u64::MAX, ..memo() };
    let sent = Taken { part: PartKey { topic: TopicId(0), partition: 0 }, seq: 0, sent_ms: 0, due_ms: 0, ..taken() };
    let error = "e".repeat(64);
    let dead = Death {
        reason: DeadReason::Rejected,
        source: part,
        attempts: u32::MAX,
        since_ms: u64::MAX,
        last_error: &error,
    };
    let copy = Whole {
        part,
        sent_ms: 0,
        seq: 0,
        now_ms: u64::MAX,
        body_len: sent.body_len,
        group: sent.group,
        attempts: u32::MAX,
        fence: u32::MAX,
        stand: Stand::Leased(u64::MAX),
        moved_ms: Some(u64::MAX),
        dead: Some(dead),
        first_leased_ms: u64::MAX,
        tries: Vec::new(),
        memo: Some(memo),
    };
    let gained = bytes_of(&Record::Relocated(Box::new(copy))).len() - bytes_of(&Record::Send(sent)).len();
    assert!(gained <= ron_log::COPY_GROWTH_MAX as usize, "{gained} bytes");
}

#[test]
fn a_cut_or_lengthened_record_is_refused() {
    for record in samples() {
        let mut bytes = bytes_of(&record);
        for len in 0..bytes.len() {
            assert!(Record::decode(&bytes[..len]).is_err(), "{record:?} cut to {len}");
        }
        bytes.push(0);
        assert!(Record::decode(&bytes).is_err(), "{record:?} lengthened");
    }
}

#[test]
fn lies_about_lengths_are_refused() {
    let huge_list = [1 << 5 | 5, 1, 0, 0xff, 0xff, 0xff, 0x7f];
    let huge_number = [&[1 << 5 | 2][..], &[0xff; 10]].concat();
    for (bytes, said) in [
        (&huge_list[..], "too long"),
        (&huge_number[..], "64 bits"),
        (&[0x40][..], "version 2"),
        (&[1 << 5 | 31][..], "kind 31"),
        (&[][..], "too early"),
    ] {
        let error = Record::decode(bytes).unwrap_err();
        assert!(error.detail.contains(said), "{error}");
    }
}

#[test]
fn the_longest_records_fit_a_head_of_the_log() {
    let text = "x".repeat(1024);
    let tried = Tried { number: u32::MAX, consumer: &text[..128], leased_ms: u64::MAX, outcome: &text };
    let tries = vec![tried; ron_types::limits::mailbox::HISTORY_MAX];
    let items = vec![(u64::MAX, u32::MAX); ITEMS_MAX];
    let seqs = vec![u64::MAX; ITEMS_MAX];
    for record in [
        Record::Lease { part: part(1), until_ms: 0, now_ms: 0, consumer: &text[..128], items: Cow::Borrowed(&items) },
        Record::Ack { part: part(1), seqs: Cow::Borrowed(&seqs) },
        Record::Relocated(Box::new(Whole { tries, ..*whole() })),
    ] {
        let bytes = bytes_of(&record);
        assert!(bytes.len() <= usize::from(u16::MAX), "{}", bytes.len());
        assert_eq!(Record::decode(&bytes), Ok(record));
    }
}
