//! Every wait has an end, also while other streams are busy, and when packets no longer come.

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
async fn a_side_that_vanishes_in_its_handshake_costs_three_seconds() {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let (sides, limits) = (Sides::new(&dialler, &node), SessionLimits::default());
    let began = clock::now();
    let accepting = async {
        let incoming = sides.node.incoming().await.expect("somebody");
        sides.cut_off();
        incoming.accept(hello(), &limits).await
    };
    let (_, accepted) = both(sides.dial(hello(), &limits), accepting).await;
    let error = accepted.err().expect("no session");
    assert!(matches!(error, ConnectError::Timeout { stage: Stage::Tls }), "{error}");
    assert!((3.0..3.1).contains(&seconds_since(began)));
}
