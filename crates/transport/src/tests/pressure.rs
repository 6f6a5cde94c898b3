//! What the other side may cost: bytes, frames, and the control lane that passes them all.

use oap::{AppId, Control, Flags, Frame};
use tokio::task::JoinSet;

use super::harness::*;
use crate::{Carrier, Closed, Heard, PushError, SessionLimits};

for_each_carrier! {
    #[tokio::test(start_paused = true)] {
        a_full_queue_says_so_and_takes_no_more,
        an_event_in_parts_is_queued_whole_or_not_at_all,
        a_frame_that_was_not_agreed_on_is_not_queued,
        a_sender_that_may_wait_gets_room_as_it_comes,
        a_place_is_kept_until_it_is_used_or_given_up,
        control_frames_pass_a_full_queue,
        a_flood_of_ping_costs_no_more_than_the_reserve,
        pong_comes_in_time_over_a_saturated_link,
        four_bytes_of_length_hold_next_to_nothing,
        an_idle_session_holds_no_buffer,
    }
}

async fn a_full_queue_says_so_and_takes_no_more(carrier: Carrier) {
    let limits = SessionLimits { egress_frames_max: 10, ..SessionLimits::default() };
    let (session, _other) = pair_with(carrier, PIPE_BYTES, &limits).await;
    let (taken, outcome) = session.outbox.push_all(1, (0..20).map(|corr| frame(corr, 62)));
    assert_eq!((taken, outcome), (10, Err(PushError::Full { queued_bytes: 1000, queued_frames: 10 })));
    assert_eq!((session.outbox.queued_frames(), session.outbox.queued_bytes_of(1)), (10, 1000));
    assert_eq!(session.outbox.shed_oldest(1, 150), (2, 200));
    assert_eq!(session.outbox.push(1, frame(20, 62)), Ok(()));
}

async fn an_event_in_parts_is_queued_whole_or_not_at_all(carrier: Carrier) {
    let limits = SessionLimits { egress_frames_max: 6, ..SessionLimits::default() };
    let (session, mut other) = pair_with(carrier, PIPE_BYTES, &limits).await;
    let parts = |corr: u64| {
        let flags = [Flags::START, Flags::EVENT, Flags::END];
        flags.map(|flags| Frame::event(AppId::LANES, corr, vec![0; 100]).with_flags(flags))
    };
    let events = parts(1).into_iter().chain([frame(2, 62)]).chain(parts(3)).chain([frame(4, 62)]);
    let (taken, outcome) = session.outbox.push_all(1, events);
    assert_eq!(taken, 2, "events, not frames");
    assert!(matches!(outcome, Err(PushError::Full { queued_frames: 4, .. })), "no part of the third: {outcome:?}");
    assert_eq!(session.outbox.push_all(1, [frame(5, 62)]).0, 1, "what is small still fits");
    let mut set = JoinSet::new();
    run(&mut set, session.writer);
    let mut heard = Vec::new();
    while heard.len() < 5 {
        other.reader.next_batch(&mut heard).await.expect("frames");
    }
    assert_eq!(numbers(&heard), [1, 1, 1, 2, 5]);
}

async fn a_frame_that_was_not_agreed_on_is_not_queued(carrier: Carrier) {
    let limits = SessionLimits { frame_bytes_max: 4096, ..SessionLimits::default() };
    let (session, _other) = pair_with(carrier, PIPE_BYTES, &limits).await;
    assert_eq!(session.facts.agreed.max_frame, 4096);
    assert!(matches!(session.outbox.push(1, frame(1, 4096)), Err(PushError::Unfit(_))));
    assert!(matches!(session.outbox.send(1, frame(1, 4096)).await, Err(PushError::Unfit(_))));
    assert_eq!(session.outbox.push(1, frame(1, 4096 - 38)), Ok(()));
}

async fn a_sender_that_may_wait_gets_room_as_it_comes(carrier: Carrier) {
    let limits = SessionLimits { egress_frames_max: 4, ..SessionLimits::default() };
    let (session, mut other) = pair_with(carrier, 1024, &limits).await;
    let mut set = JoinSet::new();
    run(&mut set, session.writer);
    let sending = async {
        let mut frames = (0..100).map(|corr| frame(corr, 300)).collect();
        session.outbox.send_all(1, &mut frames).await.expect("sent");
    };
    let hearing = async {
        let mut heard = Vec::new();
        while heard.len() < 100 {
            other.reader.next_batch(&mut heard).await.expect("frames");
        }
        numbers(&heard)
    };
    let ((), numbers) = both(sending, hearing).await;
    assert!(numbers.into_iter().eq(0..100));
}

async fn a_place_is_kept_until_it_is_used_or_given_up(carrier: Carrier) {
    let limits = SessionLimits { egress_frames_max: 8, ..SessionLimits::default() };
    let (session, mut other) = pair_with(carrier, PIPE_BYTES, &limits).await;
    let outbox = session.outbox;
    let mut places: Vec<_> = (0..4).map(|_| outbox.try_place(100).expect("half of the room")).collect();
    assert!(matches!(outbox.try_place(100), Err(PushError::Full { .. })), "the other half is for others");
    assert_eq!(outbox.push_all(1, (10..20).map(|corr| frame(corr, 62))).0, 4, "what is kept is nobody's");
    // Larger than its place, and found room all the same.
    places.pop().expect("a place").push(1, frame(1, 3_000)).expect("its room was kept");
    assert_eq!(outbox.push(1, frame(20, 62)).map_err(drop), Err(()));
    places.truncate(2);
    assert_eq!(outbox.push(1, frame(21, 62)), Ok(()), "one was given up");
    let mut set = JoinSet::new();
    run(&mut set, session.writer);
    // There is half of the room again once frames are out.
    let further = outbox.place(100).await.expect("room comes up");
    further.push(1, frame(2, 62)).expect("its room was kept");
    let mut heard = Vec::new();
    while heard.len() < 7 {
        other.reader.next_batch(&mut heard).await.expect("frames");
    }
    assert_eq!(numbers(&heard), [10, 11, 12, 13, 1, 21, 2]);
    outbox.close(&crate::GoAway::normal(), ron_kernel::Deadline::after(SECOND));
    let last = places.pop().expect("a place");
    assert_eq!(last.push(1, frame(3, 1)), Err(PushError::Closed));
    assert_eq!(outbox.place(1).await.map(drop), Err(PushError::Closed));
}

async fn control_frames_pass_a_full_queue(carrier: Carrier) {
    let (session, mut other) = pair(carrier).await;
    while session.outbox.push(1, frame(1, 60_000)).is_ok() {}
    assert!(session.outbox.control(&Control::Credit { flow: 3, bytes: 4 }), "it has room of its own");
    let mut set = JoinSet::new();
    run(&mut set, session.writer);
    let mut heard = Vec::new();
    other.reader.next_batch(&mut heard).await.expect("frames");
    assert_eq!(heard[0], Heard::Credit { flow: 3, bytes: 4 });
}

async fn a_flood_of_ping_costs_no_more_than_the_reserve(carrier: Carrier) {
    let limits = SessionLimits::default();
    let (mut raw, session) = raw_pair(carrier, 1 << 20, &limits).await;
    let mut reader = session.reader;
    // Nothing is written meanwhile: every PONG has to wait.
    let last = Control::Credit { flow: 3, bytes: 4 };
    let pings = (0..10_000).map(|nonce| Control::Ping { nonce });
    let flood: Vec<u8> = pings.chain([last]).flat_map(|control| control.to_frame().to_bytes()).collect();
    let flooding = async {
        raw.say(&flood).await;
        raw.say_in_flow(&frame(1, 1).to_bytes()).await;
    };
    let hearing = async {
        let mut heard = Vec::new();
        while heard.len() < 2 {
            reader.next_batch(&mut heard).await.expect("what follows the flood");
        }
        heard
    };
    let ((), heard) = both(flooding, hearing).await;
    assert_eq!(numbers(&heard), [1], "PING is not handed on");
    assert!(heard.contains(&Heard::Credit { flow: 3, bytes: 4 }), "{heard:?}");
    let waiting = session.outbox.queued_control_bytes();
    assert!(waiting > 0 && waiting <= limits.control_bytes_reserve, "{waiting}");
    assert_eq!(session.outbox.push(1, frame(2, 1)), Ok(()), "data has its own room");
}

async fn pong_comes_in_time_over_a_saturated_link(carrier: Carrier) {
    // The link carries 64 KiB a second and 4 MiB wait: in their order an answer would take more than a minute.
    let (session, other) = pair(carrier).await;
    let mut set = JoinSet::new();
    run(&mut set, session.writer);
    run(&mut set, other.writer);
    let (mut reader, mut slow) = (session.reader, other.reader);
    let (outbox, measured) = (session.outbox, other.outbox);
    let flooding = async {
        let closed = loop {
            if let Err(error) = outbox.send(1, frame(1, 16_000)).await {
                break error;
            }
        };
        panic!("{closed}");
    };
    let hearing = async {
        let mut heard = Vec::new();
        for _ in 0..90 {
            tokio::time::sleep(SECOND).await;
            heard.clear();
            let read = std::future::poll_fn(|context| match slow.poll_batch(context, &mut heard) {
                std::task::Poll::Ready(outcome) => std::task::Poll::Ready(outcome),
                std::task::Poll::Pending => std::task::Poll::Ready(Ok(())),
            });
            read.await.expect("alive");
        }
    };
    tokio::select! {
        () = flooding => {}
        (_, closed) = hear_all(&mut reader) => panic!("{closed}"),
        () = hearing => {}
    }
    assert!(outbox.queued_bytes() > 1 << 20, "the queue is long");
    let rtt = measured.rtt().expect("PING was answered");
    assert!(rtt < 10 * SECOND, "{rtt:?}");
}

async fn four_bytes_of_length_hold_next_to_nothing(carrier: Carrier) {
    let count = if std::env::var_os("MACRO_SOAK").is_some() { 1024 } else { 64 };
    let limits = SessionLimits::default();
    let mut held = 0;
    let mut peers = Vec::new();
    for _ in 0..count {
        let (mut raw, mut session) = raw_pair(carrier, 4096, &limits).await;
        raw.say_in_flow(&(1u32 << 20).to_be_bytes()).await;
        // The clock goes on when all that was said is there.
        tokio::time::sleep(SECOND / 100).await;
        let mut heard: Vec<Heard> = Vec::new();
        let polled =
            std::future::poll_fn(|context| std::task::Poll::Ready(session.reader.poll_batch(context, &mut heard)));
        assert!(polled.await.is_pending(), "no frame yet");
        held += session.reader.buffered_bytes();
        peers.push((raw, session));
    }
    assert!(held >= count * 4 && held <= count * 8 * 1024, "{} bytes each", held / count);
}

async fn an_idle_session_holds_no_buffer(carrier: Carrier) {
    let (session, mut other) = pair(carrier).await;
    let mut set = JoinSet::new();
    let outbox = session.outbox;
    run(&mut set, session.writer);
    outbox.push_all(1, (0..1000).map(|corr| frame(corr, 64))).1.expect("room");
    let mut heard = Vec::new();
    while heard.len() < 1000 {
        other.reader.next_batch(&mut heard).await.expect("frames");
    }
    let polled = std::future::poll_fn(|context| std::task::Poll::Ready(other.reader.poll_batch(context, &mut heard)));
    assert!(polled.await.is_pending());
    assert_eq!(other.reader.buffered_bytes(), 0);
    assert_eq!(Frame::event(AppId::CONTROL, 0, "").encoded_len(), 38);
    assert!(!matches!(set.try_join_next(), Some(Ok(Closed::Done))), "still open");
}
