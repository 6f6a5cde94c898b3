//! The first frame: absent, late, huge, wrong, or a lie.

use oap::{Control, Frame, Hello, status};

use super::harness::*;
use crate::{BadHello, Carrier, ConnectError, PostQuantum, SessionLimits, Stage};

for_each_carrier! {
    #[tokio::test(start_paused = true)] {
        a_wrong_first_frame_is_refused_and_told,
        a_node_id_without_proof_is_refused,
        a_node_that_claims_to_be_another_is_refused,
        without_hello_there_is_no_session,
        a_hello_that_trickles_in_is_too_late,
        a_refused_dialler_learns_why,
    }
}

fn bytes_of(hello: Hello) -> Vec<u8> {
    Control::Hello(hello).to_frame().to_bytes().to_vec()
}

/// What a first frame comes to, and the code the sender is told.
async fn check(carrier: Carrier, first: Vec<u8>, code: u16, expected: impl Fn(&ConnectError) -> bool) {
    let told = std::cell::Cell::new(None);
    let error = accept_raw(carrier, None, |mut raw| {
        let told = &told;
        async move {
            raw.hear().await.expect("their HELLO comes first");
            raw.say(&first).await;
            told.set(raw.farewell().await);
        }
    })
    .await;
    assert!(expected(&error), "{error:?}");
    assert_eq!(told.get(), Some(code), "{error}");
}

async fn a_wrong_first_frame_is_refused_and_told(carrier: Carrier) {
    fn bad(wanted: fn(&BadHello) -> bool) -> impl Fn(&ConnectError) -> bool {
        move |error| match error {
            ConnectError::BadHello(got) => wanted(got),
            _ => false,
        }
    }
    let ping = Control::Ping { nonce: 1 }.to_frame().to_bytes().to_vec();
    check(carrier, ping, status::BAD_REQUEST, bad(|got| *got == BadHello::Absent)).await;
    let request = Frame::request(oap::AppId::ECHO, 1, "hi").to_bytes().to_vec();
    check(carrier, request, status::BAD_REQUEST, bad(|got| matches!(got, BadHello::Control(_)))).await;
    let huge = 20_000u32.to_be_bytes().to_vec();
    check(carrier, huge, status::TOO_LARGE, bad(|got| matches!(got, BadHello::Frame(_)))).await;
    let unknown = bytes_of(Hello { versions: vec![7], ..hello() });
    check(carrier, unknown, status::VERSION_UNKNOWN, bad(|got| matches!(got, BadHello::Agreement(_)))).await;
    let mut not_json = bytes_of(hello());
    not_json[45] = b'!';
    check(carrier, not_json, status::BAD_REQUEST, bad(|got| matches!(got, BadHello::Control(_)))).await;
}

async fn a_node_id_without_proof_is_refused(carrier: Carrier) {
    let lie = Hello { node_id: Some(tls(PostQuantum::Off).node_id().to_string()), ..hello() };
    let is_unproven = |error: &ConnectError| matches!(error, ConnectError::BadHello(BadHello::Unproven));
    check(carrier, bytes_of(lie), status::UNAUTHENTICATED, is_unproven).await;
}

async fn a_node_that_claims_to_be_another_is_refused(carrier: Carrier) {
    let (liar, other) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Off).node_id());
    let lie = bytes_of(Hello { node_id: Some(other.to_string()), ..hello() });
    let error = accept_raw(carrier, Some(&liar), |mut raw| async move {
        raw.say(&lie).await;
        while raw.hear().await.is_some() {}
    })
    .await;
    assert!(matches!(error, ConnectError::WrongPin { expected, got } if expected == liar.node_id() && got == other));
}

async fn without_hello_there_is_no_session(carrier: Carrier) {
    let began = ron_kernel::clock::now();
    let error = accept_raw(carrier, None, |mut raw| async move {
        if carrier == Carrier::Quic {
            // Another stream is there, and the control stream never says anything.
            raw.say_in_flow(&frame(1, 10).to_bytes()).await;
        }
        while raw.hear().await.is_some() {}
    })
    .await;
    assert!(matches!(error, ConnectError::Timeout { stage: Stage::Hello }), "{error}");
    let seconds = seconds_since(began);
    assert!((3.0..3.1).contains(&seconds), "{seconds}");
}

async fn a_hello_that_trickles_in_is_too_late(carrier: Carrier) {
    let error = accept_raw(carrier, None, |mut raw| async move {
        for byte in bytes_of(hello()) {
            raw.say(&[byte]).await;
            tokio::time::sleep(SECOND / 10).await;
        }
    })
    .await;
    assert!(matches!(error, ConnectError::Timeout { stage: Stage::Hello }), "{error}");
}

async fn a_refused_dialler_learns_why(carrier: Carrier) {
    let old = Hello { versions: vec![7], ..hello() };
    let (dialled, accepted) = outcomes_in_memory(carrier, PIPE_BYTES, [old, hello()], &SessionLimits::default()).await;
    assert!(dialled.is_err() && accepted.is_err(), "both find that they have no version in common");
}
