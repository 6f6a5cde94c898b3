//! The end of a session: in order, in time, and when the other side is stuck or gone.

use oap::status;
use ron_kernel::{Deadline, clock};
use tokio::task::JoinSet;

use super::harness::*;
use crate::{Closed, GoAway, Heard, PushError, SessionLimits};

#[tokio::test(start_paused = true)]
async fn what_is_queued_is_drained_after_the_farewell() {
    let (mut dialled, mut accepted, _network) = pair().await;
    for corr in 0..50 {
        dialled.outbox.push(corr % 20, frame(corr, 60_000)).expect("room");
    }
    dialled.outbox.close(&GoAway::new(status::UNAVAILABLE, 9, "restart"), Deadline::after(20 * SECOND));
    assert_eq!(dialled.outbox.push(1, frame(99, 1)), Err(PushError::Closed));
    let mut set = JoinSet::new();
    run(&mut set, dialled.writer);
    run(&mut set, accepted.writer);
    let ((heard, closed), (_, own)) = both(hear_all(&mut accepted.reader), hear_all(&mut dialled.reader)).await;
    assert_eq!(heard[0], Heard::GoAway(GoAway::new(status::UNAVAILABLE, 9, "restart")));
    assert_eq!(numbers(&heard).len(), 50, "nothing is cut off");
    assert!(matches!(closed, Closed::Done), "{closed}");
    assert!(matches!(own, Closed::Done), "{own}");
    for ended in set.join_all().await {
        assert!(matches!(ended, Closed::Done), "{ended}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_in_order_loses_nothing_though_packets_are_lost() {
    let (dialled, mut accepted, network) = pair().await;
    let mut set = JoinSet::new();
    network.lose(true);
    for corr in 0..10 {
        dialled.outbox.push(corr, frame(corr, 1000)).expect("room");
    }
    dialled.outbox.close(&GoAway::normal(), Deadline::after(20 * SECOND));
    run(&mut set, dialled.writer);
    while network.lost() == 0 {
        tokio::task::yield_now().await;
    }
    network.lose(false);
    run(&mut set, accepted.writer);
    let (heard, closed) = hear_all(&mut accepted.reader).await;
    assert_eq!(numbers(&heard).len(), 10);
    assert!(matches!(closed, Closed::Done), "{closed}");
}

#[tokio::test(start_paused = true)]
async fn a_stuck_side_is_left_at_the_deadline() {
    let (_raw, session, _sides) = raw_pair(&SessionLimits::default()).await;
    session.outbox.push_all(1, (0..8).map(|corr| frame(corr, 100_000))).1.expect("room");
    let began = clock::now();
    session.outbox.close(&GoAway::normal(), Deadline::after(2 * SECOND));
    let closed = session.writer.run().await;
    assert!(matches!(closed, Closed::Timeout("drain")), "{closed}");
    assert!((2.0..2.1).contains(&seconds_since(began)));
}

#[tokio::test(start_paused = true)]
async fn a_side_that_is_gone_is_left_at_the_deadline() {
    let (_raw, session, sides) = raw_pair(&SessionLimits::default()).await;
    sides.network.lose(true);
    session.outbox.push(1, frame(1, 100)).expect("room");
    let began = clock::now();
    session.outbox.close(&GoAway::normal(), Deadline::after(2 * SECOND));
    let closed = session.writer.run().await;
    assert!(matches!(closed, Closed::Timeout("drain")), "written is not arrived: {closed}");
    assert!((2.0..2.1).contains(&seconds_since(began)));
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_for_the_other_side_no_longer_than_the_deadline() {
    let (_raw, session, _sides) = raw_pair(&SessionLimits::default()).await;
    let mut reader = session.reader;
    let began = clock::now();
    session.outbox.close(&GoAway::normal(), Deadline::after(2 * SECOND));
    let (written, (_, closed)) = both(session.writer.run(), hear_all(&mut reader)).await;
    assert!(matches!(written, Closed::Done) && matches!(closed, Closed::Done), "{written} {closed}");
    assert!((2.0..2.1).contains(&seconds_since(began)), "the other side never ended");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_control_stream_is_the_end_if_all_others_have_ended() {
    let limits = SessionLimits::default();
    let whole = frame(1, 10).to_bytes();
    for (bytes, is_ended, is_done) in
        [(&whole[..], true, true), (&whole[..], false, false), (&whole[..20], true, false)]
    {
        let (mut raw, mut session, _sides) = raw_pair(&limits).await;
        let mut stream = raw.open_with(bytes).await;
        if is_ended {
            stream.finish().expect("open");
        }
        let mut heard = Vec::new();
        if bytes.len() == whole.len() {
            session.reader.next_batch(&mut heard).await.expect("a frame");
        }
        raw.control.finish().expect("open");
        let closed = hear_all(&mut session.reader).await.1;
        assert_eq!(matches!(closed, Closed::Done), is_done, "{closed}");
        assert_eq!(matches!(closed, Closed::Broken(_)), !is_done, "{closed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_cut_off_is_not_an_end_in_order() {
    let (raw, mut session, _sides) = raw_pair(&SessionLimits::default()).await;
    raw.connection.close(0u8.into(), b"");
    let closed = hear_all(&mut session.reader).await.1;
    assert!(matches!(closed, Closed::Broken(_)), "{closed}");
    assert!(matches!(session.writer.run().await, Closed::Broken(_)), "the writer ends with the reader");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_reset_ends_the_session() {
    let (raw, mut session, _sides) = raw_pair(&SessionLimits::default()).await;
    let mut stream = raw.open_with(&frame(1, 10).to_bytes()).await;
    let mut heard = Vec::new();
    session.reader.next_batch(&mut heard).await.expect("a frame");
    stream.reset(7u8.into()).expect("open");
    let closed = hear_all(&mut session.reader).await.1;
    assert!(matches!(closed, Closed::Broken(_)), "{closed}");
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_dropped_ends_the_session_and_not_in_order() {
    let (dialled, mut accepted, _network) = pair().await;
    dialled.outbox.push(1, frame(1, 10)).expect("room");
    drop(dialled.writer);
    assert!(dialled.outbox.is_closed());
    let mut reader = dialled.reader;
    assert!(matches!(hear_all(&mut reader).await.1, Closed::Broken(_)));
    let closed = hear_all(&mut accepted.reader).await.1;
    assert!(matches!(closed, Closed::Broken(_)), "{closed}");
}
