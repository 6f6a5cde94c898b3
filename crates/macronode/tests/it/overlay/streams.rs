//! Streams over OAP/1 at their ends: what is still said after one, what was said before a farewell, and outcomes that
//! are read late.

use std::time::Duration;

use bytes::Bytes;
use oap::{AppId, Control, Decoder, Flags, Frame, status};
use oap_client::{Event, Since};
use serde_json::{Value, json};
use testkit::PATIENCE_MAX;
use testkit::frames::RawSession;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::member::Member;

/// Bytes of an event before its message: kind, origin, epoch, number, hops.
const MESSAGE_HEAD_BYTES: usize = 1 + 32 + 8 + 8 + 1;

async fn node(services: &'static str) -> Member {
    let mut member = Member::running(services);
    member.start().await;
    member
}

async fn session(member: &mut Member) -> RawSession {
    let token = member.process().token.clone();
    RawSession::hello(member.oap, &token).await
}

async fn next(raw: &mut RawSession) -> Frame {
    tokio::time::timeout(PATIENCE_MAX, raw.answer()).await.expect("in time").expect("a frame")
}

fn opening(corr: u64, said: &Value) -> Frame {
    Frame::open(AppId::LANES, corr, said.to_string())
}

fn farewell() -> Bytes {
    Control::GoAway { code: status::OK, last_corr: u64::MAX, reason: "bye".to_owned() }.to_frame().to_bytes()
}

#[tokio::test]
async fn an_ended_subscription_says_nothing_more() {
    let mut member = node("http,oap,overlay").await;
    let mut raw = session(&mut member).await;
    for round in 0..3 {
        // One number for both, as the protocol allows: whatever the first still said would be taken for the second's.
        for lane in ["first", "second"] {
            raw.write(&opening(1, &json!({"subscribe": lane})).to_bytes()).await;
            let ready = next(&mut raw).await;
            assert!(ready.has(Flags::EVENT) && ready.payload[0] == 0, "{ready:?}");
            if lane == "first" {
                raw.write(&Frame::close(AppId::LANES, 1, Bytes::new()).to_bytes()).await;
                let ended = next(&mut raw).await;
                assert!(ended.has(Flags::RESP | Flags::END) && ended.code == status::OK, "{ended:?}");
            }
        }
        for lane in ["first", "second"] {
            member.publish(lane, format!("{lane} {round}")).await;
        }
        let event = next(&mut raw).await;
        let said = String::from_utf8_lossy(&event.payload[MESSAGE_HEAD_BYTES..]).into_owned();
        assert_eq!(said, format!("second {round}"));
        raw.write(&Frame::close(AppId::LANES, 1, Bytes::new()).to_bytes()).await;
        assert!(next(&mut raw).await.has(Flags::RESP | Flags::END));
    }
}

#[tokio::test]
async fn outcomes_that_are_read_late_all_come_and_end_with_their_stream() {
    let mut member = node("http,oap,overlay").await;
    let raw = session(&mut member).await;
    let (mut reading, mut writing) = tokio::io::split(raw.stream);
    // More than what fits between the two ends.
    let count = 60_000;
    let part = |_| Frame::part(AppId::LANES, 1, "x").with_flags(Flags::ACK_REQ).to_bytes();
    let mut said = opening(1, &json!({"publish": "busy"})).to_bytes().to_vec();
    said.extend((0..count).flat_map(part));
    said.extend_from_slice(&Frame::close(AppId::LANES, 1, Bytes::new()).to_bytes());
    let writes = async {
        writing.write_all(&said).await.expect("the node reads");
        writing.flush().await.expect("the node reads");
    };
    let reads = async {
        // Late, so that the node has to keep some of them.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (mut decoder, mut outcomes) = (Decoder::new(oap::FRAME_BYTES_MAX), 0);
        loop {
            while let Some(frame) = decoder.next().expect("frames") {
                assert!(!matches!(Control::parse(&frame), Ok(Control::GoAway { .. })), "after {outcomes} outcomes");
                if frame.has(Flags::RESP | Flags::END) {
                    return (outcomes, frame.code);
                }
                outcomes += u32::from(frame.has(Flags::RESP));
            }
            let read = reading.read_buf(decoder.buffer()).await.expect("the node writes");
            assert!(read > 0, "the end after {outcomes} outcomes");
        }
    };
    let both = async { tokio::join!(writes, reads).1 };
    let (outcomes, code) = tokio::time::timeout(PATIENCE_MAX, both).await.expect("in time");
    assert_eq!((outcomes, code), (count, status::OK));
}

#[tokio::test]
async fn what_a_client_said_before_it_leaves_is_done() {
    let member = node("http,oap,overlay").await;
    let (listener, leaver) = (member.oap_client().await, member.oap_client().await);
    let mut heard = listener.subscribe("last-words", Since::now()).await.expect("subscribed");
    let publisher = leaver.publisher("last-words").await.expect("opened");
    let count = 3_000;
    publisher.publish_all((0..count).map(|_| Bytes::from(vec![7; 1_000]))).await.expect("queued");
    drop(publisher);
    // The farewell passes all of them on the way.
    leaver.close(PATIENCE_MAX).await;
    member.publish("last-words", "and the rest").await;
    let (mut events, mut messages) = (Vec::new(), 0);
    while !events.iter().any(|event| matches!(event, Event::Message(last) if &last.payload[..] == b"and the rest")) {
        messages += events.drain(..).count();
        let next = tokio::time::timeout(PATIENCE_MAX, heard.next_batch(&mut events)).await;
        next.expect("events in time").expect("events");
    }
    assert_eq!(messages + events.len() - 1, count);
}

#[tokio::test]
async fn a_request_right_before_a_farewell_is_answered_and_the_farewell_is_no_offence() {
    let mut member = node("http,oap,overlay,mailbox").await;
    let mut raw = session(&mut member).await;
    let head = json!({"topic": "jobs", "messages": [{"len": 4}]}).to_string();
    let payload = [&[1][..], &(head.len() as u32).to_be_bytes(), head.as_bytes(), b"work"].concat();
    let send = Frame::request(AppId::MAILBOX, 7, Bytes::from(payload)).to_bytes();
    raw.write(&[&send[..], &farewell()].concat()).await;
    let answer = next(&mut raw).await;
    assert_eq!((answer.corr, answer.code), (7, status::OK), "{answer:?}");
    raw.stream.shutdown().await.expect("the end of TLS");
    let told = tokio::time::timeout(PATIENCE_MAX, raw.farewell_after()).await.expect("in time");
    assert_eq!(told, Some((status::OK, 7)), "what was begun, whatever number the client named");
    // A client that says nothing after its farewell is not waited for until it is idle.
    let mut raw = session(&mut member).await;
    raw.write(&farewell()).await;
    let told = tokio::time::timeout(Duration::from_secs(20), raw.farewell_after()).await.expect("in time");
    assert_eq!(told, Some((status::OK, 0)));
    assert_eq!(member.process().metric(r#"frame_reject_total{reason="malformed"}"#).await, 0.0);
}
