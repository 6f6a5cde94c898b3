//! Replies and chains, without a service behind them.

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
