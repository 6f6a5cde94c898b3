//! Every wait has an end: slow senders, silent ones, and those who do not read.

use std::time::Duration;

use oap::{Control, status};
use ron_kernel::clock;
use tokio::task::JoinSet;

use super::harness::*;
use crate::{Closed, Heard, SessionLimits};

#[tokio::test(start_paused = true)]
async fn a_frame_that_trickles_in_is_refused_after_five_seconds() {
    let (mut raw, session) = raw_pair(64 * 1024, &SessionLimits::default()).await;
    let mut set = JoinSet::new();
    run(&mut set, session.writer);
    let mut reader = session.reader;
    tokio::time::sleep(7 * SECOND).await;
    let began = clock::now();
    let trickling = async {
        for byte in frame(1, 100).to_bytes() {
            raw.say(&[byte]).await;
            tokio::time::sleep(SECOND).await;
        }
        let farewell = loop {
            let control = Control::parse(&raw.hear().await.expect("a farewell")).expect("a control frame");
            if matches!(control, Control::GoAway { .. }) {
                break control;
            }
        };
        assert!(matches!(farewell, Control::GoAway { code: status::TIMEOUT, .. }), "{farewell:?}");
    };
    let hearing = async {
        let (heard, closed) = hear_all(&mut reader).await;
        assert!(heard.is_empty() && matches!(closed, Closed::Timeout("read")), "{closed}");
        seconds_since(began)
    };
    let ((), seconds) = both(trickling, hearing).await;
    assert!((5.0..5.1).contains(&seconds), "{seconds}: from the first byte, however many follow");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_trickles_in_is_refused_as_well() {
    let (mut raw, mut session) = raw_pair(64 * 1024, &SessionLimits::default()).await;
    let sealed = raw.sealed(&frame(1, 100).to_bytes());
    let began = clock::now();
    let trickling = async {
        for byte in sealed {
            raw.say_raw(&[byte]).await;
            tokio::time::sleep(SECOND).await;
        }
    };
    let hearing = async {
        let closed = hear_all(&mut session.reader).await.1;
        (closed, seconds_since(began))
    };
    let ((), (closed, seconds)) = both(trickling, hearing).await;
    assert!(matches!(closed, Closed::Timeout("read")), "{closed}");
    assert!((5.0..5.1).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn each_frame_has_its_own_time() {
    let (mut raw, mut session) = raw_pair(64 * 1024, &SessionLimits::default()).await;
    let bytes = frame(1, 100).to_bytes();
    let sending = async {
        // Ten frames, each in two halves four seconds apart, the second half together with the first of the next.
        raw.say(&bytes[..50]).await;
        for _ in 0..10 {
            tokio::time::sleep(4 * SECOND).await;
            raw.say(&[&bytes[50..], &bytes[..50]].concat()).await;
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

#[tokio::test(start_paused = true)]
async fn a_silent_side_is_gone_after_thirty_seconds() {
    let (_raw, mut session) = raw_pair(64 * 1024, &SessionLimits::default()).await;
    let began = clock::now();
    let closed = hear_all(&mut session.reader).await.1;
    assert!(matches!(closed, Closed::Timeout("idle")), "{closed}");
    assert!((30.0..30.1).contains(&seconds_since(began)));
}

#[tokio::test(start_paused = true)]
async fn two_sides_with_nothing_to_say_stay_together() {
    let (dialled, accepted) = pair().await;
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

#[tokio::test(start_paused = true)]
async fn a_side_that_does_not_read_is_given_up_after_five_seconds() {
    let (_raw, session) = raw_pair(4096, &SessionLimits::default()).await;
    session.outbox.push(1, frame(1, 100_000)).expect("room");
    let began = clock::now();
    let closed = session.writer.run().await;
    assert!(matches!(closed, Closed::Timeout("write")), "{closed}");
    assert!((5.0..5.1).contains(&seconds_since(began)));
    let mut reader = session.reader;
    assert!(matches!(hear_all(&mut reader).await.1, Closed::Timeout("write")), "the reader ends with the writer");
}

#[tokio::test(start_paused = true)]
async fn a_side_that_reads_slowly_is_not() {
    // Ten thousand bytes at a time: five frames take some twenty seconds, and never five without progress.
    let (dialled, accepted) = pair_with(10_000, &SessionLimits::default()).await;
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    run(&mut set, accepted.writer);
    let mut reader = dialled.reader;
    dialled.outbox.push_all(1, (0..5).map(|corr| frame(corr, 65_536))).1.expect("room");
    let began = clock::now();
    let mut slow = accepted.reader;
    let hearing = async {
        let mut heard: Vec<Heard> = Vec::new();
        while heard.len() < 5 {
            tokio::time::sleep(Duration::from_millis(600)).await;
            let _ = std::future::poll_fn(|context| std::task::Poll::Ready(slow.poll_batch(context, &mut heard))).await;
        }
        heard.len()
    };
    tokio::select! {
        count = hearing => assert_eq!(count, 5),
        (_, closed) = hear_all(&mut reader) => panic!("{closed}"),
    }
    assert!(seconds_since(began) > 15.0, "longer than any one wait may take");
}
