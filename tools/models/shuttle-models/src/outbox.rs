//! The outbox of a session: nobody sleeps through what concerns him, and nothing is lost or doubled.

use std::collections::VecDeque;
use std::time::Duration;

use crate::check;
use bytes::Bytes;
use oap::{AppId, Frame};
use ron_kernel::Deadline;
use ron_transport::scheduler::Bounds;
use ron_transport::writer_side::{self, Work};
use ron_transport::{Closed, GoAway, Outbox, PushError};
use shuttle::future::{block_on, spawn};

/// Its models are small: fewer schedules find the same.
const SCHEDULES: usize = 20_000;

const BOUNDS: Bounds = Bounds { bytes_max: 1000, frames_max: 2, control_bytes_max: 200 };

fn outbox() -> Outbox {
    writer_side::outbox(BOUNDS, oap::FRAME_BYTES_MAX)
}

fn frame(corr: u64) -> Frame {
    Frame::event(AppId::GOSSIP, corr, Bytes::new())
}

fn much_later() -> Deadline {
    Deadline::after(Duration::from_secs(3600))
}

/// The writer, with a list for a socket: the numbers of the data frames in the order they went out, and how it ended.
async fn write_all(outbox: Outbox) -> (Vec<u64>, bool) {
    let (mut written, mut batch) = (Vec::new(), VecDeque::new());
    loop {
        match writer_side::next_work(&outbox, 100, &mut batch).await {
            Work::Write => {
                written.extend(batch.drain(..).filter(|frame| frame.app != AppId::CONTROL).map(|frame| frame.corr));
            }
            Work::Finish => return (written, true),
            Work::Stop(_) => return (written, false),
        }
    }
}

/// What was taken before the close goes out, each flow in its order; the writer sees the end.
#[test]
fn what_is_taken_goes_out_and_close_is_seen() {
    check(SCHEDULES, || {
        block_on(async {
            let outbox = outbox();
            let writer = spawn(write_all(outbox.clone()));
            let pushers: Vec<_> = (0..2u64)
                .map(|flow| {
                    let outbox = outbox.clone();
                    spawn(async move {
                        let push = |number: &u64| outbox.push(flow, frame(flow * 10 + number)).is_ok();
                        (0..3).filter(push).map(|number| flow * 10 + number).collect::<Vec<u64>>()
                    })
                })
                .collect();
            let closer = spawn({
                let outbox = outbox.clone();
                async move { outbox.close(&GoAway::normal(), much_later()) }
            });
            let mut taken = Vec::new();
            for pusher in pushers {
                taken.push(pusher.await.expect("ran"));
            }
            closer.await.expect("ran");
            let (written, is_in_order) = writer.await.expect("ran");
            assert!(is_in_order);
            for (flow, taken) in taken.iter().enumerate() {
                let of_flow: Vec<u64> = written.iter().copied().filter(|corr| *corr / 10 == flow as u64).collect();
                assert_eq!(of_flow, *taken);
            }
        });
    });
}

/// Senders that wait for room all get it.
#[test]
fn who_waits_for_room_is_woken() {
    check(SCHEDULES, || {
        block_on(async {
            let outbox = outbox();
            let writer = spawn(write_all(outbox.clone()));
            let senders: Vec<_> = (0..2u64)
                .map(|flow| {
                    let outbox = outbox.clone();
                    spawn(async move {
                        let mut frames = (0..4).map(|number| frame(flow * 10 + number)).collect();
                        outbox.send_all(flow, &mut frames).await
                    })
                })
                .collect();
            for sender in senders {
                sender.await.expect("ran").expect("sent");
            }
            outbox.close(&GoAway::normal(), much_later());
            let (written, _) = writer.await.expect("ran");
            assert_eq!(written.len(), 8);
        });
    });
}

/// One half ends: the other half and everybody who waits for room see it.
#[test]
fn an_end_reaches_everybody() {
    check(SCHEDULES, || {
        block_on(async {
            let outbox = outbox();
            outbox.push_all(1, [frame(1), frame(2)]).1.expect("room");
            let sender = spawn({
                let outbox = outbox.clone();
                async move { outbox.send(1, frame(3)).await }
            });
            let reader = spawn({
                let outbox = outbox.clone();
                async move { writer_side::ended(&outbox).await }
            });
            let stopped = spawn({
                let outbox = outbox.clone();
                async move { writer_side::stopped(&outbox).await }
            });
            writer_side::end(&outbox, &Closed::Timeout("write"));
            assert!(matches!(reader.await.expect("ran"), Closed::Timeout("write")));
            assert!(matches!(stopped.await.expect("ran"), Closed::Timeout("write")));
            assert_eq!(sender.await.expect("ran"), Err(PushError::Closed));
        });
    });
}
