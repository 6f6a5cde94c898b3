//! The first frame: absent, huge, wrong, or a lie.

use oap::{Control, Frame, Hello, status};

use super::harness::*;
use crate::{BadHello, ConnectError, PostQuantum, Stage};

fn bytes_of(hello: Hello) -> Vec<u8> {
    Control::Hello(hello).to_frame().to_bytes().to_vec()
}

async fn check(first: Vec<u8>, code: u16, expected: impl Fn(&ConnectError) -> bool) {
    let told = std::cell::Cell::new(None);
    let error = accept_raw(None, |mut raw| {
        let told = &told;
        async move {
            raw.say(&first).await;
            raw.hear().await.expect("their HELLO comes first");
            told.set(raw.farewell().await);
        }
    })
    .await;
    assert!(expected(&error), "{error:?}");
    assert_eq!(told.get(), Some(code), "{error}");
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
        // Another stream is there, and the control stream never says anything.
        let _stream = raw.open_with(&frame(1, 10).to_bytes()).await;
        raw.connection.closed().await;
    })
    .await;
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
    })
    .await;
    assert!(matches!(error, ConnectError::Timeout { stage: Stage::Hello }), "{error}");
}
