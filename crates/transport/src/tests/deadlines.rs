//! Every wait has an end: slow senders, silent ones, those who do not read, and those who are not there.

use std::time::Duration;

use oap::status;
use ron_kernel::clock;
use tokio::task::JoinSet;

use super::harness::*;
use crate::quic::tests::harness::Sides;
use crate::{Carrier, Closed, ConnectError, Heard, PostQuantum, SessionLimits, Stage};

for_each_carrier! {
    #[tokio::test(start_paused = true)] {
        a_frame_that_trickles_in_is_refused_after_five_seconds,
        each_frame_has_its_own_time,
        a_silent_side_is_gone_after_thirty_seconds,
        two_sides_with_nothing_to_say_stay_together,
        a_side_that_does_not_read_is_given_up_after_five_seconds,
        a_side_that_reads_slowly_is_not,
        who_dials_where_nobody_answers_learns_it_after_three_seconds,
    }
}

async fn a_frame_that_trickles_in_is_refused_after_five_seconds(carrier: Carrier) {
    let (mut raw, session) = raw_pair(carrier, PIPE_BYTES, &SessionLimits::default()).await;
    let mut set = JoinSet::new();
    run(&mut set, session.writer);
    let mut reader = session.reader;
    tokio::time::sleep(7 * SECOND).await;
    let began = clock::now();
    let trickling = async {
        for byte in frame(1, 100).to_bytes() {
            raw.say_in_flow(&[byte]).await;
            tokio::time::sleep(SECOND).await;
        }
        assert_eq!(raw.farewell().await, Some(status::TIMEOUT));
    };
    let hearing = async {
        let (heard, closed) = hear_all(&mut reader).await;
        assert!(heard.is_empty() && matches!(closed, Closed::Timeout("read")), "{closed}");
        seconds_since(began)
    };
    let ((), seconds) = both(trickling, hearing).await;
    assert!((5.0..5.1).contains(&seconds), "{seconds}: from the first byte, however many follow");
}

async fn each_frame_has_its_own_time(carrier: Carrier) {
    let (mut raw, mut session) = raw_pair(carrier, PIPE_BYTES, &SessionLimits::default()).await;
    let bytes = frame(1, 100).to_bytes();
    let sending = async {
        // Ten frames, each in two halves four seconds apart, the second half together with the first of the next.
        raw.say_in_flow(&bytes[..50]).await;
        for _ in 0..10 {
            tokio::time::sleep(4 * SECOND).await;
            raw.say_in_flow(&[&bytes[50..], &bytes[..50]].concat()).await;
        }
    };
    let hearing = async {
        let mut heard = Vec::new();
        while heard.len() < 10 {
            session.reader.next_batch(&mut heard).await.expect("a frame");
        }
    };
    both(sending, hearing).await;
}

async fn a_silent_side_is_gone_after_thirty_seconds(carrier: Carrier) {
    let (_raw, mut session) = raw_pair(carrier, PIPE_BYTES, &SessionLimits::default()).await;
    let began = clock::now();
    let closed = hear_all(&mut session.reader).await.1;
    assert!(matches!(closed, Closed::Timeout("idle")), "{closed}");
    assert!((30.0..30.1).contains(&seconds_since(began)));
}

async fn two_sides_with_nothing_to_say_stay_together(carrier: Carrier) {
    let (dialled, accepted) = pair(carrier).await;
    let (outbox, mut readers) = (dialled.outbox.clone(), [dialled.reader, accepted.reader]);
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    run(&mut set, accepted.writer);
    let [one, other] = &mut readers;
    tokio::select! {
        (_, closed) = hear_all(one) => panic!("{closed}"),
        (_, closed) = hear_all(other) => panic!("{closed}"),
        () = tokio::time::sleep(600 * SECOND) => {}
    }
    assert!(outbox.rtt().expect("PING was answered") < SECOND);
}

async fn a_side_that_does_not_read_is_given_up_after_five_seconds(carrier: Carrier) {
    let (_raw, session) = raw_pair(carrier, 4096, &SessionLimits::default()).await;
    session.outbox.push_all(1, (0..8).map(|corr| frame(corr, 100_000))).1.expect("room");
    let began = clock::now();
    let closed = session.writer.run().await;
    assert!(matches!(closed, Closed::Timeout("write")), "{closed}");
    // The windows of a stream are filled at the pace of the network, a pipe at once.
    let until_full = if carrier == Carrier::Quic { 2.0 } else { 0.1 };
    let seconds = seconds_since(began);
    assert!((5.0..5.0 + until_full).contains(&seconds), "{seconds}: from the last byte that it took");
    let mut reader = session.reader;
    assert!(matches!(hear_all(&mut reader).await.1, Closed::Timeout("write")), "the reader ends with the writer");
}

async fn a_side_that_reads_slowly_is_not(carrier: Carrier) {
    // Ten thousand bytes at a time over a pipe, a frame at a time from a stream: the frames take some twenty seconds,
    // and never five without progress.
    let count = if carrier == Carrier::Quic { 40 } else { 5 };
    let (dialled, accepted) = pair_with(carrier, 10_000, &SessionLimits::default()).await;
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    run(&mut set, accepted.writer);
    let mut reader = dialled.reader;
    dialled.outbox.push_all(1, (0..count).map(|corr| frame(corr, 65_536))).1.expect("room");
    let began = clock::now();
    let mut slow = accepted.reader;
    let hearing = async {
        let mut heard: Vec<Heard> = Vec::new();
        while heard.len() < count as usize {
            tokio::time::sleep(Duration::from_millis(600)).await;
            let _ = std::future::poll_fn(|context| std::task::Poll::Ready(slow.poll_batch(context, &mut heard))).await;
        }
    };
    tokio::select! {
        () = hearing => {}
        (_, closed) = hear_all(&mut reader) => panic!("{closed}"),
    }
    assert!(seconds_since(began) > 15.0, "longer than any one wait may take");
}

async fn who_dials_where_nobody_answers_learns_it_after_three_seconds(carrier: Carrier) {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let limits = SessionLimits::default();
    let began = clock::now();
    let outcome = match carrier {
        Carrier::Tcp => {
            let (a, _silent) = tokio::io::duplex(PIPE_BYTES);
            pipe::dial(a, &dialler, &node, hello(), &limits).await
        }
        Carrier::Quic => {
            let sides = Sides::new(&dialler, &node);
            sides.cut_off();
            sides.dial(hello(), &limits).await
        }
    };
    let error = outcome.err().expect("no session");
    assert!(matches!(error, ConnectError::Timeout { stage: Stage::Tls }), "{error}");
    assert!((3.0..3.1).contains(&seconds_since(began)));
}
