//! Messages of the index protocol: what is written is read, and bounds hold on both sides.

use proptest::collection::vec;
use proptest::prelude::*;
use ron_store::wire::{ANSWER_BYTES_MAX, Answer, AskError, Question, REQUEST_BYTES_MAX, Reply, Request};
use ron_store::{IpnsRecord, Key, PeerId, Possession, PublicKey, Record};

use crate::samples::{IpnsParts, label, peer, public_key, record};

fn peer_id() -> impl Strategy<Value = PeerId> {
    any::<[u8; 32]>().prop_map(|key| PeerId::of_ed25519(&key))
}

fn question() -> impl Strategy<Value = Question> {
    prop_oneof![
        any::<[u8; 32]>().prop_map(|key| Question::Providers(Key(key))),
        (any::<[u8; 32]>(), label()).prop_map(|(owner, label)| Question::Name { owner: PublicKey(owner), label }),
        peer_id().prop_map(Question::Ipns),
        peer_id().prop_map(Question::Peer),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    let errors = vec![
        AskError::Unreachable,
        AskError::Closed,
        AskError::TimedOut,
        AskError::Busy,
        AskError::Refused,
        AskError::Malformed,
        AskError::Unsupported,
    ];
    prop_oneof![
        (vec(record(), 0..8), vec(peer_id(), 0..=20))
            .prop_map(|(records, closer)| Answer::Reply(Reply { records, closer })),
        (any::<u32>(), any::<u32>()).prop_map(|(kept, refused)| Answer::Kept { kept, refused }),
        prop::sample::select(errors).prop_map(Answer::Refused),
        (vec(any::<u8>(), 0..9000), any::<u64>())
            .prop_map(|(content, draw)| Answer::Possession(Some(Box::new(Possession::of(&content, draw))))),
        Just(Answer::Possession(None)),
    ]
}

/// A record of nearly 10 KiB.
fn large() -> Record {
    let bytes = IpnsParts { value: vec![b'a'; 9_900], ..IpnsParts::default() }.signed_by(4);
    Record::Ipns(IpnsRecord::parse(&public_key(4).peer_id(), &bytes).expect("a record"))
}

#[test]
fn a_reply_that_is_too_large_loses_its_end() {
    let closer = vec![public_key(1).peer_id(); 40];
    let reply = Answer::Reply(Reply { records: vec![large(); 80], closer });
    let bytes = reply.encode();
    assert!(bytes.len() <= ANSWER_BYTES_MAX);
    let Ok(Answer::Reply(read)) = Answer::decode(&bytes) else { panic!("a reply") };
    assert_eq!((read.records.len(), read.closer.len()), (25, 20));
}

#[test]
fn requests_to_keep_are_as_few_as_can_be() {
    let requests = Request::to_keep(vec![large(); 20]);
    let kept = requests.iter().map(|request| match request {
        Request::Keep { records } => records.len(),
        Request::Ask { .. } | Request::Prove { .. } => 0,
    });
    assert_eq!(kept.collect::<Vec<_>>(), [6, 6, 6, 2]);
    assert!(requests.iter().all(|request| request.encode().is_ok_and(|bytes| bytes.len() <= REQUEST_BYTES_MAX)));
    assert!(Request::Keep { records: vec![large(); 20] }.encode().is_err());
    assert!(Request::Keep { records: vec![] }.encode().is_err());
    assert!(Request::to_keep(vec![]).is_empty());
}

#[test]
fn numbers_of_others_are_not_believed() {
    // A count without the records, one above the bound, and a length beyond the end.
    for bytes in [[2, 64].as_slice(), &[2, 65], &[2, 0xff, 0xff, 0xff, 0xff, 0x0f], &[2, 1, 0xff, 0x7f, 1]] {
        assert!(Request::decode(bytes).is_err(), "{bytes:?}");
    }
    assert!(Request::decode(&vec![1; REQUEST_BYTES_MAX + 1]).is_err());
    assert!(Answer::decode(&vec![1; ANSWER_BYTES_MAX + 1]).is_err());
    assert!(Answer::decode(&[3, 7]).is_err());
}

proptest! {
    #[test]
    fn requests_are_read_as_they_are_written(
        question in question(),
        budget_ms in any::<u32>(),
        records in vec(record(), 1..8),
        (digest, draw) in any::<([u8; 32], u64)>(),
    ) {
        let prove = Request::Prove { digest, draw, budget_ms };
        for request in [Request::Ask { question, budget_ms }, Request::Keep { records }, prove] {
            let bytes = request.encode().expect("within the bounds");
            prop_assert_eq!(Request::decode(&bytes), Ok(request));
            prop_assert!(Request::decode(&bytes[..bytes.len() - 1]).is_err());
            prop_assert!(Request::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
        }
    }

    #[test]
    fn answers_are_read_as_they_are_written(answer in answer()) {
        let bytes = answer.encode();
        prop_assert_eq!(Answer::decode(&bytes), Ok(answer));
        prop_assert!(Answer::decode(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn a_record_answers_the_question_about_it_and_no_other(record in record(), other in peer()) {
        let question = match &record {
            Record::Provider(record) => Question::Providers(record.key),
            Record::Name(record) => Question::Name { owner: record.owner, label: record.label.clone() },
            Record::Peer(record) => Question::Peer(record.peer),
            Record::Ipns(record) => Question::Ipns(*record.name()),
        };
        prop_assert!(question.is_answered_by(&record));
        prop_assert_eq!(question.key(), record.key());
        let is_other = !matches!(record, Record::Peer(_));
        prop_assert_eq!(question.is_answered_by(&Record::Peer(other)), !is_other);
        prop_assert!(!Question::Providers(Key([9; 32])).is_answered_by(&record));
    }
}
