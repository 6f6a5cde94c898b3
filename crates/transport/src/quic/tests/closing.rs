//! The end of a session whose streams end one by one, and whose packets may be lost.

use ron_kernel::{Deadline, clock};
use tokio::task::JoinSet;

use super::harness::*;
use crate::{Closed, GoAway, SessionLimits};

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
async fn a_side_that_is_gone_is_left_at_the_deadline() {
    let (_raw, session, sides) = raw_pair(&SessionLimits::default()).await;
    sides.cut_off();
    session.outbox.push(1, frame(1, 100)).expect("room");
    let began = clock::now();
    session.outbox.close(&GoAway::normal(), Deadline::after(2 * SECOND));
    let closed = session.writer.run().await;
    assert!(matches!(closed, Closed::Timeout("drain")), "written is not arrived: {closed}");
    assert!((2.0..2.1).contains(&seconds_since(began)));
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
async fn a_stream_that_is_reset_ends_the_session() {
    let (raw, mut session, _sides) = raw_pair(&SessionLimits::default()).await;
    let mut stream = raw.open_with(&frame(1, 10).to_bytes()).await;
    let mut heard = Vec::new();
    session.reader.next_batch(&mut heard).await.expect("a frame");
    stream.reset(7u8.into()).expect("open");
    let closed = hear_all(&mut session.reader).await.1;
    assert!(matches!(closed, Closed::Broken(_)), "{closed}");
}
