//! The outbox under randomised schedules: nobody sleeps through what concerns him, and nothing is lost or doubled. Run
//! with `RUSTFLAGS="--cfg shuttle" cargo test -p ron-transport --lib outbox::model --release`.

use std::future::poll_fn;

use bytes::Bytes;
use oap::AppId;
use shuttle::future::{block_on, spawn};

use super::*;

const BOUNDS: Bounds = Bounds { bytes_max: 1000, frames_max: 2, control_bytes_max: 200 };

fn check(model: impl Fn() + Send + Sync + 'static) {
    let iterations = std::env::var("SHUTTLE_ITERATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    shuttle::check_random(model, iterations);
}

fn outbox() -> Outbox {
    Outbox::new(BOUNDS, oap::FRAME_BYTES_MAX)
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
        match poll_fn(|context| outbox.poll_work(context, 100, &mut batch)).await {
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
    check(|| {
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
    check(|| {
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
    check(|| {
        block_on(async {
            let outbox = outbox();
            outbox.push_all(1, [frame(1), frame(2)]).1.expect("room");
            let sender = spawn({
                let outbox = outbox.clone();
                async move { outbox.send(1, frame(3)).await }
            });
            let reader = spawn({
                let outbox = outbox.clone();
                poll_fn(move |context| match outbox.watch(context).0 {
                    Some(ended) => Poll::Ready(ended),
                    None => Poll::Pending,
                })
            });
            let stopped = spawn({
                let outbox = outbox.clone();
                poll_fn(move |context| outbox.poll_stop(context))
            });
            outbox.end(&Closed::Timeout("write"));
            assert!(matches!(reader.await.expect("ran"), Closed::Timeout("write")));
            assert!(matches!(stopped.await.expect("ran"), Closed::Timeout("write")));
            assert_eq!(sender.await.expect("ran"), Err(PushError::Closed));
        });
    });
}
