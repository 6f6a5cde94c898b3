//! What is said arrives: whole, in the order of its flow, and past what is lost of others.

use oap::{AppId, Control, Frame, status};
use tokio::task::JoinSet;

use super::harness::*;
use crate::quic::{Endpoint, LANES_MAX};
use crate::{Closed, Heard, PeerAddress, PostQuantum, SessionLimits, dial};

#[tokio::test]
async fn frames_of_all_sizes_arrive_over_udp_in_the_order_of_their_flow() {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let endpoint = Endpoint::bind("127.0.0.1:0".parse().expect("an address"), &node).expect("bound");
    let address = format!("{}@quic:{}", node.node_id(), endpoint.local_addr().expect("bound"));
    let (address, limits): (PeerAddress, _) = (address.parse().expect("an address"), SessionLimits::default());
    let accepting = async { endpoint.incoming().await.expect("somebody").accept(hello(), &limits).await };
    let (dialled, accepted) = both(dial(&address, &dialler, hello(), &limits), accepting).await;
    // Sessions outlive it.
    drop(endpoint);
    let (dialled, mut accepted) = (dialled.expect("dialled"), accepted.expect("accepted"));
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    run(&mut set, accepted.writer);
    // More flows than there are streams for.
    let (flows, count) = (LANES_MAX as u64 + 5, 300);
    let sizes = [0, 1, 37, 64, 1000, 16 * 1024 - 1, 16 * 1024, 65_536, (1 << 20) - 38];
    let sending = async {
        for corr in 0..count {
            let size = sizes[corr as usize % sizes.len()];
            let said = if corr % 2 == 0 { frame(corr, size) } else { frame_of_two(corr, size, 66) };
            dialled.outbox.send(corr % flows, said).await.expect("sent");
        }
    };
    let hearing = async {
        let mut heard = Vec::new();
        while heard.len() < count as usize {
            accepted.reader.next_batch(&mut heard).await.expect("frames");
        }
        heard
    };
    let ((), heard) = both(sending, hearing).await;
    for heard in &heard {
        let Heard::Frame(got) = heard else { panic!("{heard:?}") };
        assert_eq!(*got, frame(got.corr, sizes[got.corr as usize % sizes.len()]));
    }
    for flow in 0..flows {
        let of_flow: Vec<u64> = numbers(&heard).into_iter().filter(|corr| corr % flows == flow).collect();
        assert!(of_flow.is_sorted() && of_flow.len() >= count as usize / flows as usize, "{of_flow:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn both_directions_at_once() {
    let (a, b, _network) = pair().await;
    let mut set = JoinSet::new();
    let count = 1000;
    let exchange = |session: crate::Session, set: &mut JoinSet<Closed>| {
        let crate::Session { mut reader, writer, outbox, .. } = session;
        run(set, writer);
        async move {
            let sending = async {
                for corr in 0..count {
                    outbox.send(1, frame(corr, corr as usize % 3000)).await.expect("sent");
                }
            };
            let hearing = async {
                let mut heard = Vec::new();
                while heard.len() < count as usize {
                    reader.next_batch(&mut heard).await.expect("frames");
                }
                numbers(&heard)
            };
            both(sending, hearing).await.1
        }
    };
    let (one, other) = (exchange(a, &mut set), exchange(b, &mut set));
    let (one, other) = both(one, other).await;
    assert!(one.iter().copied().eq(0..count) && other.iter().copied().eq(0..count));
}

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
async fn a_read_that_is_given_up_loses_nothing() {
    let (dialled, mut accepted, _network) = pair().await;
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    for corr in 0..20 {
        dialled.outbox.push(1, frame(corr, 5000)).expect("room");
    }
    let mut heard = Vec::new();
    while heard.len() < 20 {
        tokio::select! {
            biased;
            outcome = accepted.reader.next_batch(&mut heard) => outcome.expect("frames"),
            () = tokio::task::yield_now() => {}
        }
    }
    assert!(numbers(&heard).into_iter().eq(0..20));
}

/// What a session makes of bytes on its control stream and on another one, and the code that the sender is told.
async fn refusal(on_control: &[u8], on_another: &[u8]) -> (Vec<u64>, Closed, Option<u16>) {
    let (mut raw, session, _sides) = raw_pair(&SessionLimits::default()).await;
    let mut set = JoinSet::new();
    run(&mut set, session.writer);
    let mut reader = session.reader;
    raw.say(on_control).await;
    let _stream = raw.open_with(on_another).await;
    let (heard, closed) = hear_all(&mut reader).await;
    (numbers(&heard), closed, raw.farewell().await)
}

#[tokio::test(start_paused = true)]
async fn what_is_no_frame_ends_the_session_and_is_told() {
    let good = frame(1, 10).to_bytes();
    let (heard, closed, told) = refusal(&[], &[&good[..], &5u32.to_be_bytes()].concat()).await;
    assert_eq!(heard, [1], "what came before is not lost");
    assert!(matches!(closed, Closed::Refused(oap::FrameError::TooSmall { len: 5 })), "{closed}");
    assert_eq!(told, Some(status::BAD_REQUEST));
}

#[tokio::test(start_paused = true)]
async fn frames_larger_than_agreed_are_refused_by_their_length() {
    let (_, closed, told) = refusal(&[], &((1u32 << 20) + 1).to_be_bytes()).await;
    assert!(matches!(closed, Closed::Refused(oap::FrameError::TooLarge { .. })), "{closed}");
    assert_eq!(told, Some(status::TOO_LARGE));
}

#[tokio::test(start_paused = true)]
async fn control_frames_and_others_do_not_change_places() {
    let ping = Control::Ping { nonce: 1 }.to_frame().to_bytes();
    for (on_control, on_another) in [(&[][..], &ping[..]), (&frame(1, 10).to_bytes()[..], &[][..])] {
        let (heard, closed, told) = refusal(on_control, on_another).await;
        assert!(heard.is_empty() && matches!(closed, Closed::NotAgreed(_)), "{closed}");
        assert_eq!(told, Some(status::BAD_REQUEST));
    }
    let second_hello = Control::Hello(hello()).to_frame().to_bytes();
    assert!(matches!(refusal(&second_hello, &[]).await.1, Closed::RefusedControl(_)));
    assert_eq!(Frame::event(AppId::CONTROL, 0, "").encoded_len(), 38);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_takes_nobody_any_more_keeps_its_sessions() {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let (sides, limits) = (Sides::new(&dialler, &node), SessionLimits::default());
    let (dialled, accepted) = both(sides.dial(&node, &limits), sides.accept(&limits)).await;
    let (dialled, mut accepted) = (dialled.expect("dialled"), accepted.expect("accepted"));
    sides.node.refuse_new();
    assert!(sides.dial(&node, &limits).await.is_err());
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    dialled.outbox.push(1, frame(1, 10)).expect("room");
    let mut heard = Vec::new();
    accepted.reader.next_batch(&mut heard).await.expect("a frame");
    assert_eq!(numbers(&heard), [1]);
}
