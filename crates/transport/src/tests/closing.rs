//! The end of a session: in order, in time, and when the other side is stuck.

use oap::{AppId, Frame, status};
use ron_kernel::{Deadline, clock};
use tokio::task::JoinSet;

use super::harness::*;
use crate::{Closed, GoAway, Heard, PushError};

#[tokio::test]
async fn what_is_queued_is_drained_after_the_farewell() {
    let (dialler, node) = (tls(crate::PostQuantum::Off), tls(crate::PostQuantum::Off));
    let (dialled, accepted) = over_tcp(&dialler, &node, &node).await;
    let (mut dialled, mut accepted) = (dialled.expect("dialled"), accepted.expect("accepted"));
    for corr in 0..50 {
        dialled.outbox.push(corr % 3, frame(corr, 60_000)).expect("room");
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

#[tokio::test]
async fn every_farewell_names_the_highest_request_that_was_begun() {
    for breaks_the_rules in [false, true] {
        let (dialler, node) = (tls(crate::PostQuantum::Off), tls(crate::PostQuantum::Off));
        let (dialled, accepted) = over_tcp(&dialler, &node, &node).await;
        let (mut dialled, mut accepted) = (dialled.expect("dialled"), accepted.expect("accepted"));
        [7, 41, 12].iter().for_each(|corr| accepted.outbox.note_begun(*corr));
        if breaks_the_rules {
            // Said by the half that reads, which knows nothing of requests.
            dialled.outbox.push(0, Frame { app: AppId::CONTROL, ..frame(0, 1) }).expect("room");
        } else {
            accepted.outbox.close(&GoAway::normal(), Deadline::after(20 * SECOND));
        }
        let mut set = JoinSet::new();
        run(&mut set, dialled.writer);
        run(&mut set, accepted.writer);
        let ((heard, _), _) = both(hear_all(&mut dialled.reader), hear_all(&mut accepted.reader)).await;
        let [Heard::GoAway(farewell)] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!((farewell.last_corr, farewell.code == status::OK), (41, !breaks_the_rules), "{farewell:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_side_is_left_at_the_deadline() {
    let (_raw, session) = raw_pair(4096, &crate::SessionLimits::default()).await;
    session.outbox.push(1, frame(1, 100_000)).expect("room");
    let began = clock::now();
    session.outbox.close(&GoAway::normal(), Deadline::after(2 * SECOND));
    let closed = session.writer.run().await;
    assert!(matches!(closed, Closed::Timeout("drain")), "{closed}");
    assert!((2.0..2.1).contains(&seconds_since(began)));
}

#[tokio::test(start_paused = true)]
async fn closing_reaches_a_writer_that_is_stuck_already() {
    let (_raw, session) = raw_pair(4096, &crate::SessionLimits::default()).await;
    session.outbox.push(1, frame(1, 100_000)).expect("room");
    let began = clock::now();
    let closing = async {
        tokio::time::sleep(SECOND).await;
        session.outbox.close(&GoAway::normal(), Deadline::after(20 * SECOND));
        session.outbox.close(&GoAway::normal(), Deadline::after(SECOND));
        session.outbox.close(&GoAway::normal(), Deadline::after(30 * SECOND));
    };
    let (closed, ()) = both(session.writer.run(), closing).await;
    assert!(matches!(closed, Closed::Timeout("drain")), "{closed}");
    assert!((2.0..2.1).contains(&seconds_since(began)), "the soonest of three deadlines");
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_for_the_other_side_no_longer_than_the_deadline() {
    let (_raw, session) = raw_pair(64 * 1024, &crate::SessionLimits::default()).await;
    let mut reader = session.reader;
    let began = clock::now();
    session.outbox.close(&GoAway::normal(), Deadline::after(2 * SECOND));
    let (written, (_, closed)) = both(session.writer.run(), hear_all(&mut reader)).await;
    assert!(matches!(written, Closed::Done) && matches!(closed, Closed::Done), "{written} {closed}");
    assert!((2.0..2.1).contains(&seconds_since(began)), "the other side never ended");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_tls_is_an_end_though_the_connection_stays() {
    let (mut raw, mut session) = raw_pair(64 * 1024, &crate::SessionLimits::default()).await;
    raw.say(&frame(1, 10).to_bytes()).await;
    raw.say_end().await;
    let (heard, closed) = hear_all(&mut session.reader).await;
    assert_eq!(numbers(&heard), [1]);
    assert!(matches!(closed, Closed::Done), "{closed}");
    let (mut raw, mut session) = raw_pair(64 * 1024, &crate::SessionLimits::default()).await;
    raw.say(&frame(1, 10).to_bytes()[..20]).await;
    raw.say_end().await;
    let closed = hear_all(&mut session.reader).await.1;
    assert!(matches!(closed, Closed::Broken(_)), "in the middle of a frame it is none: {closed}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_cut_off_is_not_an_end_in_order() {
    let (raw, mut session) = raw_pair(64 * 1024, &crate::SessionLimits::default()).await;
    drop(raw);
    let closed = hear_all(&mut session.reader).await.1;
    assert!(matches!(closed, Closed::Broken(_)), "{closed}");
    assert!(matches!(session.writer.run().await, Closed::Broken(_)), "the writer ends with the reader");
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_dropped_ends_the_session() {
    let (_raw, session) = raw_pair(64 * 1024, &crate::SessionLimits::default()).await;
    drop(session.writer);
    assert!(session.outbox.is_closed());
    let mut reader = session.reader;
    assert!(matches!(hear_all(&mut reader).await.1, Closed::Broken(_)));
}
