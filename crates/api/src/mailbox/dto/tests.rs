//! The rules of requests and the shape of answers, each with what it accepts and what it says of what it refuses.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use svc_mailbox::Secret;
use svc_mailbox::types::{PartKey, TopicId};

use super::super::fields::{Attrs, Text, Topic};
use super::super::recv::RecvRequest;
use super::super::send::{BatchRequest, SendRequest};
use super::super::settle::{AckRequest, NackRequest};
use super::*;
use crate::extract::JsonText;

/// The beginning of the refusal, or nothing if there was none.
fn refusal<T: for<'a> Deserialize<'a>>(text: &str) -> Option<String> {
    JsonText::of(text).parse::<T>().err().map(|problem| {
        assert_eq!(problem.status, 400, "{text}");
        problem.detail.into_owned()
    })
}

fn check<T: for<'a> Deserialize<'a>>(cases: &[(&str, Option<&str>)]) {
    for (text, expected) in cases {
        let refused = refusal::<T>(text);
        let is_as_expected = match (&refused, expected) {
            (None, None) => true,
            (Some(refused), Some(expected)) => refused.starts_with(expected),
            _ => false,
        };
        assert!(is_as_expected, "{text}: {refused:?}, not {expected:?}");
    }
}

#[test]
fn a_message_to_send_is_checked_field_by_field() {
    let longest = format!(r#"{{"topic":"t","payload_b64":"","group":"{}"}}"#, "g".repeat(128));
    let too_long = format!(r#"{{"topic":"t","payload_b64":"","group":"{}"}}"#, "g".repeat(129));
    let long_topic = format!(r#"{{"topic":"{}","payload_b64":""}}"#, "t".repeat(81));
    check::<SendRequest>(&[
        (r#"{"topic":"t","payload_b64":"aGk="}"#, None),
        (r#"{"topic":"t","payload_b64":"aGk"}"#, None),
        (r#"{"topic":"t","payload_b64":""}"#, None),
        (r#"{"topic":"t","payload_b64":"aGk=","idem_key":null,"group":null,"delay_ms":null}"#, None),
        (r#"{"topic":"t","payload_b64":"aGk=","idem_key":"k-1:~!","attrs":{"a":"ä"},"delay_ms":9}"#, None),
        (&longest, None),
        (&too_long, Some("group: must be 1 to 128")),
        (&long_topic, Some("topic: ")),
        (r#"{"topic":"t","payload_b64":"a"}"#, Some("payload_b64: not base64")),
        (r#"{"topic":"t","payload_b64":"a-_="}"#, Some("payload_b64: not base64")),
        (r#"{"topic":"t","payload_b64":"aG k="}"#, Some("payload_b64: not base64")),
        (r#"{"topic":"t","payload_b64":"aGk=="}"#, Some("payload_b64: not base64")),
        (r#"{"topic":"t","payload_b64":7}"#, Some("payload_b64: ")),
        (r#"{"topic":"t","payload_b64":null}"#, Some("payload_b64: ")),
        (r#"{"topic":"t"}"#, Some("missing field `payload_b64`")),
        (r#"{"payload_b64":""}"#, Some("missing field `topic`")),
        (r#"{"topic":"t","payload_b64":"","extra":1}"#, Some("extra: unknown field")),
        (r#"{"topic":"a b","payload_b64":""}"#, Some("topic: \"a b\"")),
        (r#"{"topic":".t","payload_b64":""}"#, Some("topic: ")),
        (r#"{"topic":"","payload_b64":""}"#, Some("topic: ")),
        (r#"{"topic":"t","payload_b64":"","idem_key":""}"#, Some("idem_key: must be 1 to 128")),
        (r#"{"topic":"t","payload_b64":"","idem_key":"a b"}"#, Some("idem_key: must be 1 to 128")),
        (r#"{"topic":"t","payload_b64":"","idem_key":"ä"}"#, Some("idem_key: must be 1 to 128")),
        (r#"{"topic":"t","payload_b64":"","group":"a\n"}"#, Some("group: must be 1 to 128")),
        (r#"{"topic":"t","payload_b64":"","delay_ms":-1}"#, Some("delay_ms: ")),
        (r#"{"topic":"t","payload_b64":"","delay_ms":1.5}"#, Some("delay_ms: ")),
        (r#"{"topic":"t","payload_b64":"","delay_ms":"1"}"#, Some("delay_ms: ")),
        (r#"{"topic":"t","payload_b64":"","attrs":{"a":1}}"#, Some("attrs.a: ")),
        (r#"{"topic":"t","payload_b64":"","attrs":{"a":"1","a":"2"}}"#, Some("attrs: \"a\" is there twice")),
        (r#"{"topic":"t","payload_b64":"","attrs":{"":"1"}}"#, Some("attrs: the name \"\" must have 1 to 256 bytes")),
        (r#"{"topic":"t","payload_b64":"","attrs":[]}"#, Some("attrs: ")),
        (r#"{"topic":"t","topic":"t","payload_b64":""}"#, Some("duplicate field `topic`")),
        ("[]", Some("invalid ")),
        ("", Some("EOF")),
    ]);
}

#[test]
fn a_mistake_in_a_batch_names_its_place() {
    check::<BatchRequest>(&[
        (r#"{"topic":"t","messages":[{"payload_b64":"aGk="},{"payload_b64":"aG8=","group":"g"}]}"#, None),
        (r#"{"topic":"t","messages":[{"payload_b64":"aGk="},{"payload_b64":"%"}]}"#, Some("messages[1].payload_b64: ")),
        (r#"{"topic":"t","messages":[{"payload_b64":"","delay_ms":-5}]}"#, Some("messages[0].delay_ms: ")),
        (r#"{"topic":"t","messages":[{"payload_b64":"","topic":"t"}]}"#, Some("messages[0].topic: unknown field")),
    ]);
}

#[test]
fn attributes_are_bounded_in_number_and_in_bytes() {
    let attrs = |count: usize, bytes: usize| {
        let pairs: Vec<String> = (0..count).map(|at| format!(r#""{at:02}":"{}""#, "x".repeat(bytes))).collect();
        serde_json::from_str::<Attrs>(&format!("{{{}}}", pairs.join(","))).map(|attrs| attrs.0.len())
    };
    assert_eq!(attrs(64, 1022).expect("just fits"), 64);
    assert!(attrs(64, 1023).expect_err("too many bytes").to_string().starts_with("attrs: over 65536 bytes"));
    assert!(attrs(65, 1).expect_err("too many").to_string().starts_with("attrs: more than 64"));
    let named = |bytes: usize| serde_json::from_str::<Attrs>(&format!(r#"{{"{}":"x"}}"#, "n".repeat(bytes)));
    assert_eq!(named(256).expect("just fits").0.len(), 1);
    let refused = named(257).expect_err("too long").to_string();
    assert!(refused.starts_with("attrs: the name \"nnnn") && refused.contains("1 to 256 bytes"), "{refused}");
}

#[test]
fn attributes_of_the_node_are_looked_for_and_never_set() {
    for (name, is_own) in [("$sender", true), ("$", true), ("$type.a", true), ("a$", false), ("sender", false)] {
        let text = format!(r#"{{"{name}":"x"}}"#);
        let refused = serde_json::from_str::<Attrs>(&text).err().map(|error| error.to_string());
        assert_eq!(refused.is_some_and(|refused| refused.contains("begins with '$'")), is_own, "{name}");
        assert!(serde_json::from_str::<SoughtAttrs>(&text).is_ok(), "{name}");
    }
}

#[test]
fn receives_and_settlements_are_checked_field_by_field() {
    check::<RecvRequest>(&[
        (r#"{"topic":"t"}"#, None),
        (r#"{"topic":"t","visibility_ms":5000,"max_messages":32,"max_bytes":524288,"wait_ms":0}"#, None),
        (r#"{"topic":"t","wait_ms":-1}"#, Some("wait_ms: ")),
        (r#"{"topic":"t","max_messages":-1}"#, Some("max_messages: ")),
        (r#"{"topic":"t","visibility_ms":-1}"#, Some("visibility_ms: ")),
        (r#"{"topic":"t","max":1}"#, Some("max: unknown field")),
        (r#"{}"#, Some("missing field `topic`")),
    ]);
    for (text, is_fine) in [
        (r#"{"receipts":["a","b"]}"#, true),
        (r#"{"receipts":"a"}"#, false),
        (r#"{"receipts":[1]}"#, false),
        (r#"{"receipts":[],"reason":"x"}"#, false),
    ] {
        assert_eq!(serde_json::from_str::<AckRequest>(text).is_ok(), is_fine, "{text}");
    }
    assert!(serde_json::from_str::<NackRequest>(r#"{"receipts":["a"],"reason":"x","delay_ms":0}"#).is_ok());
    assert!(serde_json::from_str::<NackRequest>(r#"{"receipts":["a"],"delay_ms":-1}"#).is_err());
}

#[test]
fn texts_are_borrowed_unless_something_is_escaped() {
    let texts: Vec<Text<'_>> = serde_json::from_str(r#"["plain","\u0041b"]"#).expect("texts");
    assert!(matches!(texts[0].0, std::borrow::Cow::Borrowed("plain")));
    assert_eq!(texts[1].0, "Ab");
}

#[test]
fn pages_are_bounded() {
    assert_eq!(check_limit(None, 20, 100), Ok(20));
    assert_eq!(check_limit(Some(100), 20, 100), Ok(100));
    assert!(check_limit(Some(0), 20, 100).is_err() && check_limit(Some(101), 20, 100).is_err());
}

#[test]
fn a_filter_is_what_was_written() {
    let fields = r#"{"state":"leased","attrs":{"a":"b"},"reason":"max_attempts","sent_before_ms":5}"#;
    let filter = Filter::from(serde_json::from_str::<FilterFields>(fields).expect("a filter"));
    let expected = Filter {
        state: Some(State::Leased),
        attrs: [("a".to_owned(), "b".to_owned())].into(),
        reason: Some(DeadReason::MaxAttempts),
        sent_before_ms: Some(5),
        ..Filter::default()
    };
    assert_eq!(filter, expected);
    assert!(serde_json::from_str::<FilterFields>(r#"{"state":"gone"}"#).is_err());
    assert!(serde_json::from_str::<FilterFields>(r#"{"colour":"red"}"#).is_err());
}

fn delivery() -> Delivery {
    let secret = Secret::new([7; 32]);
    Delivery {
        msg_id: secret.message_id(1_700_000_000_000, 5),
        topic: "orders".parse().expect("a name"),
        sent_ms: 1_700_000_000_000,
        idem_key: None,
        payload: Bytes::from_static(b"hi"),
        payload_hash: [0xab; 32],
        attrs: vec![("z".into(), "1".into()), ("a".into(), "2".into())],
        corr_id: "c".into(),
        group: None,
        shard: 3,
        attempt: 1,
        hash_chain: [0x0c; 32],
        receipt: secret.receipt(PartKey { topic: TopicId(1), partition: 0 }, 5, 1, 9),
        fence: 1,
        first_received_ms: 1_700_000_000_500,
        until_ms: 1_700_000_005_500,
        history: Vec::new(),
        dead: None,
    }
}

#[test]
fn a_message_is_shown_with_just_the_fields_that_were_promised() {
    let delivery = delivery();
    let shown = serde_json::to_value(Message::from(&delivery)).expect("json");
    let expected = json!({
        "msg_id": delivery.msg_id.to_string(),
        "topic": "orders",
        "ts": 1_700_000_000_000_u64,
        "payload_b64": "aGk=",
        "payload_hash": format!("b3:{}", "ab".repeat(32)),
        "attrs": {"z": "1", "a": "2"},
        "corr_id": "c",
        "shard": 3,
        "attempt": 1,
        "hash_chain": format!("b3:{}", "0c".repeat(32)),
        "receipt": delivery.receipt.to_string(),
        "fence": 1,
        "first_received_ts": 1_700_000_000_500_u64,
    });
    assert_eq!(shown, expected);
}

#[test]
fn what_is_not_always_there_is_shown_when_it_is() {
    let past = Attempt { number: 1, consumer: "w".into(), leased_ms: 8, outcome: "timed out".into() };
    let dead = DeadInfo {
        reason: DeadReason::Rejected,
        source: "orders".parse().expect("a name"),
        attempts: 2,
        since_ms: 9,
        last_error: "bad".into(),
    };
    let group: Option<Arc<str>> = Some("g".into());
    let all = Delivery { idem_key: Some("k".into()), group, history: vec![past], dead: Some(dead), ..delivery() };
    let shown = serde_json::to_value(Message::from(&all)).expect("json");
    assert_eq!((&shown["idem_key"], &shown["group"]), (&Value::from("k"), &Value::from("g")));
    let history = json!([{"number": 1, "consumer": "w", "leased_ts": 8, "outcome": "timed out"}]);
    assert_eq!(shown["history"], history);
    let dead = json!({"reason": "rejected", "source": "orders", "attempts": 2, "since_ts": 9, "last_error": "bad"});
    assert_eq!(shown["dead"], dead);
}

#[test]
fn a_message_takes_no_more_bytes_than_are_counted_for_it() {
    let past = Attempt {
        number: 1,
        consumer: "\u{1}".repeat(190).into(),
        leased_ms: 1_700_000_000_000,
        outcome: "\"".repeat(1024).into(),
    };
    let dead = DeadInfo {
        reason: DeadReason::MaxAttempts,
        source: "s".repeat(80).parse().expect("a name"),
        attempts: u32::MAX,
        since_ms: u64::MAX,
        last_error: "\u{2}".repeat(1024),
    };
    let largest = Delivery {
        topic: "t".repeat(80).parse().expect("a name"),
        idem_key: Some("\\".repeat(128)),
        group: Some("\"".repeat(128).into()),
        corr_id: "c".repeat(64),
        attrs: vec![("\u{1}".repeat(200), "\u{1f}".repeat(60_000)), ("plain".to_owned(), "v".repeat(5_000))],
        history: vec![past; 8],
        dead: Some(dead),
        ..delivery()
    };
    for delivery in [delivery(), Delivery { dead: None, ..largest.clone() }, largest] {
        let written = serde_json::to_vec(&Message::from(&delivery)).expect("json").len();
        let counted = written_bytes(&delivery);
        assert!((written..written + 1024).contains(&counted), "{counted} for {written}");
    }
}

#[test]
fn every_length_of_payload_comes_back_with_and_without_padding() {
    for length in 0..70_u8 {
        let payload = Base64((0..length).collect());
        let padded = serde_json::to_string(&payload).expect("json");
        for text in [padded.clone(), padded.replace('=', "")] {
            assert_eq!(serde_json::from_str::<Base64>(&text).expect(&text), payload);
        }
    }
    let topic: Topic = serde_json::from_str(r#""a.b""#).expect("a name");
    assert_eq!(serde_json::to_string(&topic).expect("json"), r#""a.b""#);
}
