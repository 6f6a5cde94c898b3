//! What is said arrives: whole, in order, in batches, compressed or not, whatever the sizes.

use bytes::Bytes;
use oap::{AppId, Control, FEATURE_ZSTD, Flags, Frame, Hello, compress, status};
use tokio::task::JoinSet;

use super::harness::*;
use crate::{Closed, Heard, PostQuantum, SessionLimits, accept_on, dial_on};

#[tokio::test]
async fn frames_of_all_sizes_arrive_whole_and_in_the_order_of_their_flow() {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let (dialled, accepted) = over_tcp(&dialler, &node, &node).await;
    let (dialled, mut accepted) = (dialled.expect("dialled"), accepted.expect("accepted"));
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    run(&mut set, accepted.writer);
    let sizes = [0, 1, 37, 64, 1000, 16 * 1024 - 1, 16 * 1024, 65_536, (1 << 20) - 38];
    let sending = async {
        for corr in 0..300u64 {
            let size = sizes[corr as usize % sizes.len()];
            let said = if corr % 2 == 0 { frame(corr, size) } else { frame_of_two(corr, size, 66) };
            dialled.outbox.send(corr % 16, said).await.expect("sent");
        }
    };
    let hearing = async {
        let mut heard = Vec::new();
        while heard.len() < 300 {
            accepted.reader.next_batch(&mut heard).await.expect("frames");
        }
        heard
    };
    let ((), heard) = both(sending, hearing).await;
    for heard in &heard {
        let Heard::Frame(got) = heard else { panic!("{heard:?}") };
        assert_eq!(*got, frame(got.corr, sizes[got.corr as usize % sizes.len()]));
    }
    for flow in 0..16 {
        let of_flow: Vec<u64> = numbers(&heard).into_iter().filter(|corr| corr % 16 == flow).collect();
        assert!(of_flow.is_sorted() && of_flow.len() >= 300 / 16, "{of_flow:?}");
    }
}

#[tokio::test]
async fn both_directions_at_once() {
    let (a, b) = pair().await;
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
            both(sending, hearing).await.1
        }
    };
    let (one, other) = (exchange(a, &mut set), exchange(b, &mut set));
    let (one, other) = both(one, other).await;
    assert!(one.iter().copied().eq(0..count) && other.iter().copied().eq(0..count));
}

#[tokio::test(start_paused = true)]
async fn one_read_hands_over_all_its_frames() {
    let (dialled, mut accepted) = pair().await;
    let mut set = JoinSet::new();
    let (taken, outcome) = dialled.outbox.push_all(1, (0..100).map(|corr| frame(corr, 64)));
    assert_eq!((taken, outcome), (100, Ok(())));
    run(&mut set, dialled.writer);
    let mut heard = Vec::new();
    accepted.reader.next_batch(&mut heard).await.expect("frames");
    assert_eq!(heard.len(), 100, "one wake-up, one write, one read");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_given_up_loses_nothing() {
    let (dialled, mut accepted) = pair_with(600, &SessionLimits::default()).await;
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

async fn compressing_pair(features: [&[&str]; 2]) -> (crate::Session, crate::Session) {
    let (a, b) = tokio::io::duplex(64 * 1024);
    let (dialler, node) = (tls(PostQuantum::Off), tls(PostQuantum::Off));
    let [ours, theirs] =
        features.map(|features| Hello { features: features.iter().map(ToString::to_string).collect(), ..hello() });
    let (a_read, a_write) = tokio::io::split(a);
    let (b_read, b_write) = tokio::io::split(b);
    let limits = SessionLimits::default();
    let dialling = dial_on(a_read, a_write, ADDRESS, node.node_id(), &dialler, ours, &limits);
    let accepting = accept_on(b_read, b_write, ADDRESS, &node, theirs, &limits);
    let (dialled, accepted) = both(dialling, accepting).await;
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

#[tokio::test(start_paused = true)]
async fn compressed_frames_come_inflated_where_that_was_agreed() {
    let text = text();
    let (dialled, mut accepted) = compressing_pair([&[FEATURE_ZSTD], &[FEATURE_ZSTD, "other"]]).await;
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    dialled.outbox.push(1, compressed(&text)).expect("room");
    let mut heard = Vec::new();
    accepted.reader.next_batch(&mut heard).await.expect("a frame");
    assert_eq!(heard, [Heard::Frame(Frame::event(AppId::GOSSIP, 1, Bytes::from(text)))]);
}

#[tokio::test(start_paused = true)]
async fn compressed_frames_are_refused_where_nobody_agreed() {
    let (dialled, mut accepted) = compressing_pair([&[FEATURE_ZSTD], &[]]).await;
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    let text = text();
    dialled.outbox.push(1, compressed(&text)).expect("room");
    let (heard, closed) = hear_all(&mut accepted.reader).await;
    assert!(heard.is_empty() && matches!(closed, Closed::NotAgreed(_)), "{closed}");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_frame_ends_the_session_and_is_told() {
    let (mut raw, session) = raw_pair(64 * 1024, &SessionLimits::default()).await;
    let mut set = JoinSet::new();
    run(&mut set, session.writer);
    let mut reader = session.reader;
    let good = frame(1, 10).to_bytes();
    raw.say(&[&good[..], &5u32.to_be_bytes()].concat()).await;
    let (heard, closed) = hear_all(&mut reader).await;
    assert_eq!(numbers(&heard), [1], "what came before is not lost");
    assert!(matches!(closed, Closed::Refused(oap::FrameError::TooSmall { len: 5 })), "{closed}");
    let farewell = Control::parse(&raw.hear().await.expect("a farewell")).expect("a control frame");
    assert!(matches!(farewell, Control::GoAway { code: status::BAD_REQUEST, .. }), "{farewell:?}");
    assert!(raw.hear().await.is_none());
    assert!(session.outbox.push(1, frame(2, 1)).is_err(), "nothing is taken any more");
}

#[tokio::test(start_paused = true)]
async fn a_second_hello_and_damaged_records_end_the_session() {
    let limits = SessionLimits::default();
    let (mut raw, mut session) = raw_pair(64 * 1024, &limits).await;
    raw.say(&Control::Hello(hello()).to_frame().to_bytes()).await;
    assert!(matches!(hear_all(&mut session.reader).await.1, Closed::RefusedControl(_)));
    let (mut raw, mut session) = raw_pair(64 * 1024, &limits).await;
    let mut sealed = raw.sealed(&frame(1, 100).to_bytes());
    sealed[20] ^= 1;
    raw.say_raw(&sealed).await;
    assert!(matches!(hear_all(&mut session.reader).await.1, Closed::Tls(_)));
}

#[tokio::test(start_paused = true)]
async fn keys_may_change_in_mid_session() {
    let (mut raw, session) = raw_pair(64 * 1024, &SessionLimits::default()).await;
    let mut set = JoinSet::new();
    run(&mut set, session.writer);
    let mut reader = session.reader;
    let mut heard = Vec::new();
    for corr in 0..5 {
        raw.refresh_keys();
        raw.say(&frame(corr, 100).to_bytes()).await;
        reader.next_batch(&mut heard).await.expect("a frame");
        session.outbox.push(1, frame(corr, 10)).expect("room");
        assert_eq!(raw.hear().await.map(|frame| frame.corr), Some(corr));
    }
    assert!(numbers(&heard).into_iter().eq(0..5));
}

#[tokio::test(start_paused = true)]
async fn a_frame_behind_an_introduction_is_judged_after_it() {
    for is_known in [true, false] {
        let (mut raw, mut session) = raw_pair(64 * 1024, &SessionLimits::default()).await;
        session.reader.set_frame_bytes_max(1024);
        let introduction = Frame::request(AppId::ECHO, 2, "me").with_cap("token");
        let said = [frame(1, 10), introduction, frame(3, 5_000)].map(|frame| frame.to_bytes());
        raw.say(&said.concat()).await;
        let mut heard = Vec::new();
        session.reader.next_batch(&mut heard).await.expect("frames");
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
