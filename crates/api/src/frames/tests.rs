//! Replies and chains, without a service behind them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use oap::{Decoder, FRAME_BYTES_MAX, Flags};

use super::*;

#[test]
fn a_long_reply_takes_several_frames() {
    let payload: Bytes = (0..5_000_u32).flat_map(u32::to_be_bytes).collect::<Vec<u8>>().into();
    for (frame_bytes_max, expected) in [(1024, 21), (20_000 + HEADER_BYTES - 1, 2), (20_000 + HEADER_BYTES, 1)] {
        let reply = Reply { code: 207, payload: payload.clone() };
        let frames: Vec<Frame> = reply.into_frames(AppId::MAILBOX, 7, frame_bytes_max).collect();
        assert_eq!(frames.len(), expected);
        for (place, frame) in frames.iter().enumerate() {
            let is_last = place + 1 == frames.len();
            assert_eq!((frame.code, frame.corr, frame.has(Flags::END)), (207, 7, is_last));
            assert_eq!(frame.check(frame_bytes_max), Ok(()));
        }
        let joined: Vec<u8> = frames.iter().flat_map(|frame| frame.payload.to_vec()).collect();
        assert_eq!(joined, payload);
    }
    let frames: Vec<Frame> = Reply::ok("").into_frames(AppId::ECHO, 1, 1024).collect();
    assert_eq!(frames, [Frame::response(AppId::ECHO, 1, 200, "")]);
}

#[test]
fn every_refusal_is_a_response_that_a_decoder_takes() {
    for kind in ron_types::Kind::ALL {
        let reply = Reply::from(Error::new(kind, "why"));
        let problem: serde_json::Value = serde_json::from_slice(&reply.payload).expect("a problem in JSON");
        assert_eq!((problem["code"].as_str(), problem["detail"].as_str()), (Some(kind.code()), Some("why")));
        for frame in reply.into_frames(AppId::MAILBOX, 1, FRAME_BYTES_MAX) {
            let mut decoder = Decoder::new(FRAME_BYTES_MAX);
            frame.encode(decoder.buffer());
            assert_eq!(decoder.next(), Ok(Some(frame)));
        }
    }
}

#[test]
fn a_chain_shows_what_is_missing_doubled_or_changed() {
    let batches: Vec<[u8; 32]> = [1, 2, 3].map(|byte| batch_hash(&[[byte; 32], [0; 32]])).into();
    let (sent, taken) = (Chain::default(), Chain::default());
    let links: Vec<Link> = batches.iter().map(|batch| sent.add(batch)).collect();
    assert_eq!(links.iter().map(|link| link.number).collect::<Vec<_>>(), [1, 2, 3]);
    let refused = |place: usize, link: usize| taken.add_checked(&batches[place], &links[link].hash).is_err();
    assert!(refused(1, 1), "the first is missing");
    assert_eq!(taken.add_checked(&batches[0], &links[0].hash), Ok(links[0]));
    assert!(refused(0, 0), "the first again");
    assert!(refused(2, 1), "another batch in its place");
    assert_eq!(taken.add_checked(&batches[1], &links[1].hash), Ok(links[1]), "a refusal changes nothing");
    assert_ne!(batch_hash(&[[1; 32], [2; 32]]), batch_hash(&[[2; 32], [1; 32]]), "the order counts");
}

#[tokio::test]
async fn what_needs_no_waiting_is_answered_at_once() {
    let now = Answer::begin(async { Reply::ok("now") });
    assert!(matches!(now, Answer::Now(reply) if reply == Reply::ok("now")));
    let (tell, told) = tokio::sync::oneshot::channel();
    let later = Answer::begin(async { Reply::ok(told.await.unwrap_or("gone")) });
    let Answer::Later(later) = later else { panic!("nothing was told yet") };
    tell.send("told").expect("somebody waits");
    assert_eq!(later.await, Reply::ok("told"));
}

#[tokio::test]
async fn what_waits_is_told_from_what_is_under_way_and_holds_what_it_is_given() {
    let now = Answer::begin_waiting(async { Reply::ok("now") });
    assert!(matches!(now.holding(1), Answer::Now(reply) if reply == Reply::ok("now")));
    let held = Arc::new(());
    let waiting = Answer::begin_waiting(std::future::pending()).holding(Arc::clone(&held));
    assert!(matches!(&waiting, Answer::Waiting(_)));
    assert_eq!(Arc::strong_count(&held), 2);
    drop(waiting);
    assert_eq!(Arc::strong_count(&held), 1, "what is cancelled holds nothing");
    assert!(matches!(Answer::begin(std::future::pending()).holding(1), Answer::Later(_)));
}

#[tokio::test]
async fn what_needs_the_first_request_waits_for_it_in_line() {
    let address = std::net::IpAddr::from([127, 0, 0, 1]);
    let shares =
        crate::SharedShares::new(ron_kernel::Snapshot::new(crate::HttpLimits::default()), &ron_kernel::Metrics::new());
    let caller = Caller::new(ron_transport::Remote::Client, address, None, shares);
    let (is_made, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let (make, makes) = tokio::sync::oneshot::channel::<()>();
    // None of the others could end if one had to end before the next begins.
    let all_others = Arc::new(tokio::sync::Barrier::new(4));
    let mut makes = Some(makes);
    let begin = |number: usize| {
        let (caller, is_made, begun) = (caller.clone(), Arc::clone(&is_made), Arc::clone(&begun));
        let (makes, all_others) = (makes.take(), Arc::clone(&all_others));
        let made = Arc::clone(&is_made);
        Answer::begin(async move {
            let work = async move {
                if let Some(makes) = makes {
                    makes.await.expect("it is made");
                    begun.lock().expect("whole").push(number);
                    is_made.store(true, Ordering::Relaxed);
                } else {
                    begun.lock().expect("whole").push(number);
                    all_others.wait().await;
                }
                Reply::ok("")
            };
            caller.in_order(move || made.load(Ordering::Relaxed), work).await
        })
    };
    let answers: Vec<Answer> = (0..5).map(begin).collect();
    assert!(begun.lock().expect("whole").is_empty());
    make.send(()).expect("the first waits");
    let waits = answers.into_iter().rev().map(|answer| match answer {
        Answer::Later(later) => later,
        Answer::Now(_) | Answer::Waiting(_) => panic!("everybody waits for the first"),
    });
    assert_eq!(futures_util::future::join_all(waits).await.len(), 5);
    assert_eq!(*begun.lock().expect("whole"), [0, 1, 2, 3, 4]);
    let alone = Answer::begin(async move { caller.in_order(|| true, async { Reply::ok("alone") }).await });
    assert!(matches!(alone, Answer::Now(_)), "nobody is in line");
}
