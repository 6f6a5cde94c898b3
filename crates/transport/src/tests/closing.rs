//! The end of a session: in order, in time, and when the other side is stuck.

use oap::{AppId, Frame, status};
use ron_kernel::{Deadline, clock};
use tokio::task::JoinSet;

use super::harness::*;
use crate::{Carrier, Closed, GoAway, Heard, PushError, SessionLimits};

for_each_carrier! {
    #[tokio::test] {
        what_is_queued_is_drained_after_the_farewell,
        every_farewell_names_the_highest_request_that_was_begun,
        a_writer_that_is_dropped_ends_the_session_and_not_in_order,
    }
    #[tokio::test(start_paused = true)] {
        a_stuck_side_is_left_at_the_deadline,
        closing_reaches_a_writer_that_is_stuck_already,
        a_reader_waits_for_the_other_side_no_longer_than_the_deadline,
        a_connection_that_is_cut_off_is_not_an_end_in_order,
    }
}

/// Bytes that a pipe holds to which a stuck side is bound.
const NARROW_PIPE_BYTES: usize = 4096;

/// Frames of one flow: more than a narrow pipe takes, or the windows of a stream.
fn too_much() -> impl Iterator<Item = Frame> {
    (0..8).map(|corr| frame(corr, 100_000))
}

async fn what_is_queued_is_drained_after_the_farewell(carrier: Carrier) {
    let (mut dialled, mut accepted) = pair_over_sockets(carrier).await;
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

async fn every_farewell_names_the_highest_request_that_was_begun(carrier: Carrier) {
    for breaks_the_rules in [false, true] {
        let (mut dialled, mut accepted) = pair_over_sockets(carrier).await;
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

async fn a_stuck_side_is_left_at_the_deadline(carrier: Carrier) {
    let (_raw, session) = raw_pair(carrier, NARROW_PIPE_BYTES, &SessionLimits::default()).await;
    session.outbox.push_all(1, too_much()).1.expect("room");
    let began = clock::now();
    session.outbox.close(&GoAway::normal(), Deadline::after(2 * SECOND));
    let closed = session.writer.run().await;
    assert!(matches!(closed, Closed::Timeout("drain")), "{closed}");
    assert!((2.0..2.1).contains(&seconds_since(began)));
}

async fn closing_reaches_a_writer_that_is_stuck_already(carrier: Carrier) {
    let (_raw, session) = raw_pair(carrier, NARROW_PIPE_BYTES, &SessionLimits::default()).await;
    session.outbox.push_all(1, too_much()).1.expect("room");
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

async fn a_reader_waits_for_the_other_side_no_longer_than_the_deadline(carrier: Carrier) {
    let (_raw, session) = raw_pair(carrier, PIPE_BYTES, &SessionLimits::default()).await;
    let mut reader = session.reader;
    let began = clock::now();
    session.outbox.close(&GoAway::normal(), Deadline::after(2 * SECOND));
    let (written, (_, closed)) = both(session.writer.run(), hear_all(&mut reader)).await;
    assert!(matches!(written, Closed::Done) && matches!(closed, Closed::Done), "{written} {closed}");
    assert!((2.0..2.1).contains(&seconds_since(began)), "the other side never ended");
}

async fn a_connection_that_is_cut_off_is_not_an_end_in_order(carrier: Carrier) {
    let (raw, mut session) = raw_pair(carrier, PIPE_BYTES, &SessionLimits::default()).await;
    raw.cut_off();
    let closed = hear_all(&mut session.reader).await.1;
    assert!(matches!(closed, Closed::Broken(_)), "{closed}");
    assert!(matches!(session.writer.run().await, Closed::Broken(_)), "the writer ends with the reader");
}

async fn a_writer_that_is_dropped_ends_the_session_and_not_in_order(carrier: Carrier) {
    let (mut dialled, mut accepted) = pair_over_sockets(carrier).await;
    dialled.outbox.push(1, frame(1, 10)).expect("room");
    drop(dialled.writer);
    assert!(dialled.outbox.is_closed());
    assert!(matches!(hear_all(&mut dialled.reader).await.1, Closed::Broken(_)));
    let closed = hear_all(&mut accepted.reader).await.1;
    assert!(matches!(closed, Closed::Broken(_)), "{closed}");
}
