//! Sides that take nothing, promise much or open everything: bounded, and no trouble for the rest.

use std::task::Poll;

use tokio::task::JoinSet;

use super::harness::*;
use crate::quic::LANES_MAX;
use crate::{Closed, PushError, SessionLimits};

#[tokio::test(start_paused = true)]
async fn a_stalled_lane_holds_up_no_other_and_fills_its_own_bounds() {
    let (mut raw, session, _sides) = raw_pair(&SessionLimits::default()).await;
    let (outbox, mut set) = (session.outbox, JoinSet::new());
    run(&mut set, session.writer);
    // Flow 1 is never read. Half a mebibyte of it is in the window of its stream and on the way to it; the rest waits.
    outbox.push_all(1, (0..32).map(|corr| frame(corr, 65_000))).1.expect("room");
    let _stalled = raw.connection.accept_uni().await.expect("the lane of flow 1");
    let waiting = loop {
        let waiting = outbox.queued_bytes_of(1);
        tokio::time::sleep(SECOND / 100).await;
        if outbox.queued_bytes_of(1) == waiting {
            break waiting;
        }
    };
    assert!(waiting > 1_000_000, "{waiting}: what the stream does not take keeps its place in the queue");
    // Flow 2 passes it, all of it, within the time in which nothing of flow 1 moves.
    outbox.push_all(2, (100..130).map(|corr| frame(corr, 10_000))).1.expect("room");
    let mut other = raw.connection.accept_uni().await.expect("the lane of flow 2");
    let expected: Vec<u8> = (100..130).flat_map(|corr| frame(corr, 10_000).to_bytes()).collect();
    let mut got = vec![0; expected.len()];
    other.read_exact(&mut got).await.expect("all of it");
    assert!(got == expected, "in order and whole");
    assert_eq!((outbox.queued_bytes_of(1), outbox.queued_bytes_of(2)), (waiting, 0));
    // Control frames pass as well.
    raw.say(&oap::Control::Ping { nonce: 7 }.to_frame().to_bytes()).await;
    let mut reader = session.reader;
    let hearing = async { hear_all(&mut reader).await.1 };
    tokio::select! {
        frame = raw.hear() => assert!(matches!(
            oap::Control::parse(&frame.expect("a frame")), Ok(oap::Control::Pong { nonce: 7 })
        )),
        closed = hearing => panic!("{closed}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_stalled_lane_is_bounded() {
    let limits = SessionLimits { egress_bytes_max: 1 << 20, ..SessionLimits::default() };
    let (_raw, session, _sides) = raw_pair(&limits).await;
    let (outbox, mut set) = (session.outbox, JoinSet::new());
    run(&mut set, session.writer);
    let mut taken = 0;
    let full = loop {
        match outbox.push(1, frame(taken, 65_000)) {
            Ok(()) => taken += 1,
            Err(full) => {
                let before = outbox.queued_bytes();
                tokio::time::sleep(SECOND / 100).await;
                if outbox.queued_bytes() == before {
                    break full;
                }
            }
        }
    };
    assert!(matches!(full, PushError::Full { .. }), "{full}");
    assert!(taken * 65_000 < 2 << 20, "{taken} frames: the window of a stream, a turn, and the queue");
}

#[tokio::test(start_paused = true)]
async fn more_streams_than_allowed_cannot_be_opened() {
    let (raw, mut session, _sides) = raw_pair(&SessionLimits::default()).await;
    let mut streams = Vec::new();
    for corr in 0..LANES_MAX as u64 {
        streams.push(raw.open_with(&frame(corr, 10).to_bytes()).await);
    }
    let mut heard = Vec::new();
    while heard.len() < LANES_MAX {
        session.reader.next_batch(&mut heard).await.expect("frames");
    }
    tokio::select! {
        _ = raw.connection.open_uni() => panic!("one stream too many"),
        (_, closed) = hear_all(&mut session.reader) => panic!("{closed}"),
        () = tokio::time::sleep(SECOND) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn streams_that_end_make_no_room_for_others() {
    let (mut raw, session, _sides) = raw_pair(&SessionLimits::default()).await;
    let mut set = JoinSet::new();
    run(&mut set, session.writer);
    let (mut reader, opened) = (session.reader, std::cell::Cell::new(0));
    let opening = async {
        while let Ok(mut stream) = raw.connection.open_uni().await {
            let is_written = stream.write_all(&frame(1, 10).to_bytes()).await.is_ok();
            if !is_written || stream.finish().is_err() {
                break;
            }
            opened.set(opened.get() + 1);
            if opened.get() > 10 * LANES_MAX {
                break;
            }
        }
    };
    let (heard, closed) = tokio::select! {
        outcome = hear_all(&mut reader) => outcome,
        () = async { opening.await; std::future::pending().await } => unreachable!(),
    };
    assert!(matches!(closed, Closed::NotAgreed("more streams")), "{closed}");
    assert!(numbers(&heard).len() <= LANES_MAX, "{} frames", heard.len());
    assert_eq!(raw.farewell().await, Some(oap::status::BAD_REQUEST));
}

#[tokio::test(start_paused = true)]
async fn frames_without_end_on_all_streams_cost_little_more_than_on_one() {
    let limits = SessionLimits::default();
    let (raw, mut session, _sides) = raw_pair(&limits).await;
    let head = [&(1u32 << 20).to_be_bytes()[..], &frame(1, 0).to_bytes()[4..]].concat();
    let mut sending = JoinSet::new();
    for _ in 0..LANES_MAX {
        let mut stream = raw.open_with(&head).await;
        // All but the last bytes of a mebibyte.
        sending.spawn(async move { stream.write_all(&vec![0; (1 << 20) - 100]).await.map(|()| stream) });
    }
    let mut most = 0;
    let mut heard = Vec::new();
    let closed = loop {
        let polled = std::future::poll_fn(|context| match session.reader.poll_batch(context, &mut heard) {
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        });
        let polled = polled.await;
        most = most.max(session.reader.buffered_bytes());
        match polled {
            Some(Err(closed)) => break closed,
            Some(Ok(())) => panic!("no frame is whole"),
            None => tokio::time::sleep(SECOND / 100).await,
        }
    };
    assert!(matches!(closed, Closed::Timeout("read")), "{closed}");
    assert!(most > 1 << 20, "{most}: one of them is read to its end");
    let bound = super::super::input::UNFINISHED_FRAMES_MOST << 20;
    assert!(most <= bound, "{most} bytes for {LANES_MAX} mebibytes that were promised");
}
