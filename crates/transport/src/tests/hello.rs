//! The first frame: absent, late, huge, wrong, or a lie.

use oap::{Control, Frame, Hello, status};

use super::harness::*;
use crate::{BadHello, ConnectError, PostQuantum, SessionLimits, Stage, accept_on};

/// What a first frame comes to, and the code the sender is told.
async fn outcome(first: Vec<u8>) -> (ConnectError, Option<u16>) {
    let told = std::cell::Cell::new(None);
    let error = accept_raw(None, |mut raw| {
        let told = &told;
        async move {
            raw.hear().await.expect("their HELLO comes first");
            raw.say(&first).await;
            let farewell = raw.hear().await.map(|frame| Control::parse(&frame).expect("a control frame"));
            if let Some(Control::GoAway { code, .. }) = farewell {
                told.set(Some(code));
            }
            assert!(raw.hear().await.is_none(), "then it ends");
        }
    })
    .await;
    (error, told.get())
}

fn bytes_of(hello: Hello) -> Vec<u8> {
    Control::Hello(hello).to_frame().to_bytes().to_vec()
}

async fn check(first: Vec<u8>, code: u16, expected: impl Fn(&ConnectError) -> bool) {
    let (error, told) = outcome(first).await;
    assert!(expected(&error), "{error:?}");
    assert_eq!(told, Some(code), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_first_frame_is_refused_and_told() {
    fn bad(wanted: fn(&BadHello) -> bool) -> impl Fn(&ConnectError) -> bool {
        move |error| match error {
            ConnectError::BadHello(got) => wanted(got),
            _ => false,
        }
    }
    let ping = Control::Ping { nonce: 1 }.to_frame().to_bytes().to_vec();
    check(ping, status::BAD_REQUEST, bad(|got| *got == BadHello::Absent)).await;
    let request = Frame::request(oap::AppId::ECHO, 1, "hi").to_bytes().to_vec();
    check(request, status::BAD_REQUEST, bad(|got| matches!(got, BadHello::Control(_)))).await;
    let huge = 20_000u32.to_be_bytes().to_vec();
    check(huge, status::TOO_LARGE, bad(|got| matches!(got, BadHello::Frame(_)))).await;
    let unknown_version = Hello { versions: vec![7], ..hello() };
    check(bytes_of(unknown_version), status::VERSION_UNKNOWN, bad(|got| matches!(got, BadHello::Agreement(_)))).await;
    let mut not_json = bytes_of(hello());
    not_json[45] = b'!';
    check(not_json, status::BAD_REQUEST, bad(|got| matches!(got, BadHello::Control(_)))).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_id_without_proof_is_refused() {
    let lie = Hello { node_id: Some(tls(PostQuantum::Off).node_id().to_string()), ..hello() };
    let is_unproven = |error: &ConnectError| matches!(error, ConnectError::BadHello(BadHello::Unproven));
    check(bytes_of(lie), status::UNAUTHENTICATED, is_unproven).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_claims_to_be_another_is_refused() {
    let (liar, other) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Off).node_id());
    let lie = bytes_of(Hello { node_id: Some(other.to_string()), ..hello() });
    let error = accept_raw(Some(&liar), |mut raw| async move {
        raw.say(&lie).await;
        while raw.hear().await.is_some() {}
    })
    .await;
    assert!(matches!(error, ConnectError::WrongPin { expected, got } if expected == liar.node_id() && got == other));
}

#[tokio::test(start_paused = true)]
async fn without_hello_there_is_no_session() {
    let began = ron_kernel::clock::now();
    let error = accept_raw(None, |raw| async move {
        tokio::time::sleep(60 * SECOND).await;
        drop(raw);
    });
    let error = error.await;
    assert!(matches!(error, ConnectError::Timeout { stage: Stage::Hello }), "{error}");
    assert!(seconds_since(began) >= 3.0);
}

#[tokio::test(start_paused = true)]
async fn a_hello_that_trickles_in_is_too_late() {
    let error = accept_raw(None, |mut raw| async move {
        for byte in bytes_of(hello()) {
            raw.say(&[byte]).await;
            tokio::time::sleep(SECOND / 10).await;
        }
    });
    let error = error.await;
    assert!(matches!(error, ConnectError::Timeout { stage: Stage::Hello }), "{error}");
}

/// What the accepting side makes of somebody who never gets through TLS.
async fn stalled(first: &[u8]) -> (ConnectError, f64) {
    let (mut a, b) = tokio::io::duplex(64 * 1024);
    tokio::io::AsyncWriteExt::write_all(&mut a, first).await.expect("room");
    let (read, write) = tokio::io::split(b);
    let began = ron_kernel::clock::now();
    let outcome = accept_on(read, write, ADDRESS, &tls(PostQuantum::Hybrid), hello(), &SessionLimits::default()).await;
    drop(a);
    (outcome.err().expect("no session"), seconds_since(began))
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_stalls_ends_after_three_seconds() {
    // Nothing at all, and a record of a handshake that promises 512 bytes and brings none.
    for first in [&[][..], &[22, 3, 1, 2, 0]] {
        let (error, seconds) = stalled(first).await;
        assert!(matches!(error, ConnectError::Timeout { stage: Stage::Tls }), "{error}");
        assert!((3.0..3.1).contains(&seconds), "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_tls_is_refused_at_once() {
    let (error, seconds) = stalled(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(matches!(error, ConnectError::Tls(_)), "{error}");
    assert!(seconds < 0.1, "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_dialler_learns_why() {
    let (a, b) = tokio::io::duplex(64 * 1024);
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let (a_read, a_write) = tokio::io::split(a);
    let (b_read, b_write) = tokio::io::split(b);
    let limits = SessionLimits::default();
    let old = Hello { versions: vec![7], ..hello() };
    let dialling = crate::dial_on(a_read, a_write, ADDRESS, node.node_id(), &dialler, old, &limits);
    let (dialled, accepted) = both(dialling, accept_on(b_read, b_write, ADDRESS, &node, hello(), &limits)).await;
    assert!(dialled.is_err() && accepted.is_err(), "both find that they have no version in common");
}
