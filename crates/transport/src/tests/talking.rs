//! What is said arrives: whole, in order, in batches, compressed or not, whatever the sizes.

use bytes::Bytes;
use oap::{AppId, Control, FEATURE_ZSTD, Flags, Frame, Hello, compress, status};
use tokio::task::JoinSet;

use super::harness::*;
use crate::quic::LANES_MAX;
use crate::{Carrier, Closed, Heard, SessionLimits};

for_each_carrier! {
    // Without paused time: where so much is under way both ways, QUIC waits for a clock that goes on.
    #[tokio::test] {
        frames_of_all_sizes_arrive_whole_and_in_the_order_of_their_flow,
        both_directions_at_once,
    }
    #[tokio::test(start_paused = true)] {
        a_read_that_is_given_up_loses_nothing,
        compressed_frames_come_inflated_where_that_was_agreed,
        compressed_frames_are_refused_where_nobody_agreed,
        what_is_no_frame_ends_the_session_and_is_told,
        frames_larger_than_agreed_are_refused_by_their_length,
        a_second_hello_ends_the_session,
        keys_may_change_in_mid_session,
        a_frame_behind_an_introduction_is_judged_after_it,
    }
}

async fn frames_of_all_sizes_arrive_whole_and_in_the_order_of_their_flow(carrier: Carrier) {
    let (dialled, mut accepted) = pair_over_sockets(carrier).await;
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

async fn both_directions_at_once(carrier: Carrier) {
    let (a, b) = pair_over_sockets(carrier).await;
    let mut set = JoinSet::new();
    let count = 2000;
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
            let ((), numbers) = both(sending, hearing).await;
            // Kept until both sides are done: one that reads no more is told so over QUIC.
            (numbers, reader)
        }
    };
    let (one, other) = (exchange(a, &mut set), exchange(b, &mut set));
    let ((one, _reader), (other, _other_reader)) = both(one, other).await;
    assert!(one.iter().copied().eq(0..count) && other.iter().copied().eq(0..count));
}

async fn a_read_that_is_given_up_loses_nothing(carrier: Carrier) {
    let (dialled, mut accepted) = pair_with(carrier, 600, &SessionLimits::default()).await;
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    for corr in 0..20 {
        dialled.outbox.push(1, frame(corr, 5000)).expect("room");
    }
    let mut heard = Vec::new();
    while heard.len() < 20 {
        // Given up again and again, with the pipe so narrow that each frame takes several reads.
        tokio::select! {
            biased;
            outcome = accepted.reader.next_batch(&mut heard) => outcome.expect("frames"),
            () = tokio::task::yield_now() => {}
        }
    }
    assert!(numbers(&heard).into_iter().eq(0..20));
}

async fn compressing_pair(carrier: Carrier, features: [&[&str]; 2]) -> (crate::Session, crate::Session) {
    let hellos =
        features.map(|features| Hello { features: features.iter().map(ToString::to_string).collect(), ..hello() });
    let (dialled, accepted) = outcomes_in_memory(carrier, PIPE_BYTES, hellos, &SessionLimits::default()).await;
    (dialled.expect("dialled"), accepted.expect("accepted"))
}

/// Four bits of content in each byte: worth compressing, and no bomb.
fn text() -> Vec<u8> {
    (0..20_000u32).map(|n| b'a' + (n.wrapping_mul(2_654_435_761) >> 28) as u8).collect()
}

fn compressed(payload: &[u8]) -> Frame {
    let deflated = compress::deflate(payload, 1).expect("worth it");
    Frame { flags: Flags::EVENT | Flags::COMP, ..Frame::event(AppId::GOSSIP, 1, deflated) }
}

async fn compressed_frames_come_inflated_where_that_was_agreed(carrier: Carrier) {
    let text = text();
    let (dialled, mut accepted) = compressing_pair(carrier, [&[FEATURE_ZSTD], &[FEATURE_ZSTD, "other"]]).await;
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    dialled.outbox.push(1, compressed(&text)).expect("room");
    let mut heard = Vec::new();
    accepted.reader.next_batch(&mut heard).await.expect("a frame");
    assert_eq!(heard, [Heard::Frame(Frame::event(AppId::GOSSIP, 1, Bytes::from(text)))]);
}

async fn compressed_frames_are_refused_where_nobody_agreed(carrier: Carrier) {
    let (dialled, mut accepted) = compressing_pair(carrier, [&[FEATURE_ZSTD], &[]]).await;
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    let text = text();
    dialled.outbox.push(1, compressed(&text)).expect("room");
    let (heard, closed) = hear_all(&mut accepted.reader).await;
    assert!(heard.is_empty() && matches!(closed, Closed::NotAgreed(_)), "{closed}");
}

async fn what_is_no_frame_ends_the_session_and_is_told(carrier: Carrier) {
    let good = frame(1, 10).to_bytes();
    let (heard, closed, told) = refusal(carrier, &[], &[&good[..], &5u32.to_be_bytes()].concat()).await;
    assert_eq!(heard, [1], "what came before is not lost");
    assert!(matches!(closed, Closed::Refused(oap::FrameError::TooSmall { len: 5 })), "{closed}");
    assert_eq!(told, Some(status::BAD_REQUEST));
}

async fn frames_larger_than_agreed_are_refused_by_their_length(carrier: Carrier) {
    let (_, closed, told) = refusal(carrier, &[], &((1u32 << 20) + 1).to_be_bytes()).await;
    assert!(matches!(closed, Closed::Refused(oap::FrameError::TooLarge { .. })), "{closed}");
    assert_eq!(told, Some(status::TOO_LARGE));
}

async fn a_second_hello_ends_the_session(carrier: Carrier) {
    let second = Control::Hello(hello()).to_frame().to_bytes();
    let (_, closed, told) = refusal(carrier, &second, &[]).await;
    assert!(matches!(closed, Closed::RefusedControl(_)), "{closed}");
    assert_eq!(told, Some(status::BAD_REQUEST));
}

async fn keys_may_change_in_mid_session(carrier: Carrier) {
    let (mut raw, session) = raw_pair(carrier, PIPE_BYTES, &SessionLimits::default()).await;
    let mut set = JoinSet::new();
    run(&mut set, session.writer);
    let mut reader = session.reader;
    let mut heard = Vec::new();
    for corr in 0..5 {
        // QUIC changes keys again only some time after the last change.
        tokio::time::sleep(SECOND).await;
        raw.refresh_keys();
        raw.say_in_flow(&frame(corr, 100).to_bytes()).await;
        reader.next_batch(&mut heard).await.expect("a frame");
        session.outbox.push(1, frame(corr, 10)).expect("room");
        assert_eq!(raw.hear_in_flow().await.map(|frame| frame.corr), Some(corr));
    }
    assert!(numbers(&heard).into_iter().eq(0..5));
}

async fn a_frame_behind_an_introduction_is_judged_after_it(carrier: Carrier) {
    for is_known in [true, false] {
        let (mut raw, mut session) = raw_pair(carrier, PIPE_BYTES, &SessionLimits::default()).await;
        session.reader.set_frame_bytes_max(1024);
        let introduction = Frame::request(AppId::ECHO, 2, "me").with_cap("token");
        let said = [frame(1, 10), introduction, frame(3, 5_000)].map(|frame| frame.to_bytes());
        raw.say_in_flow(&said.concat()).await;
        let mut heard = Vec::new();
        while heard.len() < 2 {
            session.reader.next_batch(&mut heard).await.expect("frames");
        }
        assert_eq!(numbers(&heard), [1, 2], "the owner looks at the introduction first");
        if is_known {
            session.reader.set_frame_bytes_max(oap::FRAME_BYTES_MAX);
        }
        match session.reader.next_batch(&mut heard).await {
            Ok(()) => assert_eq!((is_known, numbers(&heard)), (true, vec![1, 2, 3])),
            Err(closed) => assert!(!is_known && matches!(closed, Closed::Refused(_)), "{closed}"),
        }
    }
}
