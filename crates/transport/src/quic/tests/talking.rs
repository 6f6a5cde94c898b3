//! What is said arrives on the stream where it belongs, and past what is lost of others.

use oap::{AppId, Control, Frame, status};
use tokio::task::JoinSet;

use super::harness::*;
use crate::tests::harness::refusal;
use crate::{Carrier, Closed, PostQuantum, SessionLimits};

#[tokio::test(start_paused = true)]
async fn a_lost_packet_holds_up_its_own_flow_and_no_other() {
    let (dialled, mut accepted, network) = pair().await;
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    // Both streams are there.
    dialled.outbox.push(1, frame(1, 10)).expect("room");
    dialled.outbox.push(2, frame(2, 10)).expect("room");
    let mut heard = Vec::new();
    while heard.len() < 2 {
        accepted.reader.next_batch(&mut heard).await.expect("frames");
    }
    let lost = network.lost();
    network.lose(true);
    dialled.outbox.push(1, frame(3, 10)).expect("room");
    while network.lost() == lost {
        tokio::task::yield_now().await;
    }
    network.lose(false);
    dialled.outbox.push(2, frame(4, 10)).expect("room");
    while heard.len() < 4 {
        accepted.reader.next_batch(&mut heard).await.expect("frames");
    }
    assert_eq!(numbers(&heard)[2..], [4, 3], "the flow whose packet was lost comes last");
}

#[tokio::test(start_paused = true)]
async fn control_frames_and_others_do_not_change_places() {
    let ping = Control::Ping { nonce: 1 }.to_frame().to_bytes();
    for (on_control, on_another) in [(&[][..], &ping[..]), (&frame(1, 10).to_bytes()[..], &[][..])] {
        let (heard, closed, told) = refusal(Carrier::Quic, on_control, on_another).await;
        assert!(heard.is_empty() && matches!(closed, Closed::NotAgreed(_)), "{closed}");
        assert_eq!(told, Some(status::BAD_REQUEST));
    }
    assert_eq!(Frame::event(AppId::CONTROL, 0, "").encoded_len(), 38);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_takes_nobody_any_more_keeps_its_sessions() {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let (sides, limits) = (Sides::new(&dialler, &node), SessionLimits::default());
    let (dialled, accepted) = sides.outcomes([hello(), hello()], &limits).await;
    let (dialled, mut accepted) = (dialled.expect("dialled"), accepted.expect("accepted"));
    sides.node.refuse_new();
    assert!(sides.dial(hello(), &limits).await.is_err());
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    dialled.outbox.push(1, frame(1, 10)).expect("room");
    let mut heard = Vec::new();
    accepted.reader.next_batch(&mut heard).await.expect("a frame");
    assert_eq!(numbers(&heard), [1]);
}
