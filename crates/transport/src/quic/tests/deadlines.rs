//! Every wait has an end: slow senders, silent ones, those who do not read, and those who are not there.

use oap::status;
use ron_kernel::clock;
use tokio::task::JoinSet;

use super::harness::*;
use crate::{Closed, ConnectError, PostQuantum, SessionLimits, Stage};

#[tokio::test(start_paused = true)]
async fn a_frame_that_trickles_in_is_refused_whatever_comes_on_other_streams() {
    let (mut raw, session, _sides) = raw_pair(&SessionLimits::default()).await;
    let mut set = JoinSet::new();
    run(&mut set, session.writer);
    let mut reader = session.reader;
    let began = clock::now();
    let trickling = async {
        let mut busy = raw.open_with(&[]).await;
        let mut slow = raw.open_with(&[]).await;
        for byte in frame(1, 100).to_bytes() {
            let _ = busy.write_all(&frame(2, 10).to_bytes()).await;
            let _ = slow.write_all(&[byte]).await;
            tokio::time::sleep(SECOND).await;
        }
        assert_eq!(raw.farewell().await, Some(status::TIMEOUT));
    };
    let hearing = async {
        let (heard, closed) = hear_all(&mut reader).await;
        assert!(numbers(&heard).iter().all(|corr| *corr == 2) && matches!(closed, Closed::Timeout("read")), "{closed}");
        seconds_since(began)
    };
    let ((), seconds) = both(trickling, hearing).await;
    assert!((5.0..5.5).contains(&seconds), "{seconds}: from the first byte, however many follow");
}

#[tokio::test(start_paused = true)]
async fn a_silent_side_is_gone_after_thirty_seconds() {
    let (_raw, mut session, _sides) = raw_pair(&SessionLimits::default()).await;
    let began = clock::now();
    let closed = hear_all(&mut session.reader).await.1;
    assert!(matches!(closed, Closed::Timeout("idle")), "{closed}");
    assert!((30.0..30.1).contains(&seconds_since(began)));
}

#[tokio::test(start_paused = true)]
async fn two_sides_with_nothing_to_say_stay_together() {
    let (dialled, accepted, _network) = pair().await;
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
    let (_raw, session, _sides) = raw_pair(&SessionLimits::default()).await;
    session.outbox.push_all(1, (0..8).map(|corr| frame(corr, 100_000))).1.expect("room");
    let began = clock::now();
    let closed = session.writer.run().await;
    assert!(matches!(closed, Closed::Timeout("write")), "{closed}");
    let seconds = seconds_since(began);
    assert!((5.0..7.0).contains(&seconds), "{seconds}: from the last byte that it took");
    let mut reader = session.reader;
    assert!(matches!(hear_all(&mut reader).await.1, Closed::Timeout("write")), "the reader ends with the writer");
}

#[tokio::test(start_paused = true)]
async fn who_dials_where_nobody_answers_learns_it_after_three_seconds() {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let sides = Sides::new(&dialler, &node);
    sides.network.lose(true);
    let began = clock::now();
    let outcome = sides.dial(&node, &SessionLimits::default()).await;
    let error = outcome.err().expect("no session");
    assert!(matches!(error, ConnectError::Timeout { stage: Stage::Tls }), "{error}");
    assert!((3.0..3.1).contains(&seconds_since(began)));
}

#[tokio::test(start_paused = true)]
async fn a_side_that_vanishes_in_its_handshake_costs_three_seconds() {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let (sides, limits) = (Sides::new(&dialler, &node), SessionLimits::default());
    let began = clock::now();
    let accepting = async {
        let incoming = sides.node.incoming().await.expect("somebody");
        sides.network.lose(true);
        incoming.accept(hello(), &limits).await
    };
    let (_, accepted) = both(sides.dial(&node, &limits), accepting).await;
    let error = accepted.err().expect("no session");
    assert!(matches!(error, ConnectError::Timeout { stage: Stage::Tls }), "{error}");
    assert!((3.0..3.1).contains(&seconds_since(began)));
}
