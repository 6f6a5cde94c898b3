//! What only sessions over TCP have: one stream for all frames, in records of TLS that are opened here.

use ron_kernel::clock;
use tokio::task::JoinSet;

use super::harness::pipe::{self, raw_pair};
use super::harness::*;
use crate::{Carrier, Closed, ConnectError, PostQuantum, SessionLimits, Stage};

/// A read from a stream of QUIC gives what its packets have brought so far.
#[tokio::test(start_paused = true)]
async fn one_read_hands_over_all_its_frames() {
    let (dialled, mut accepted) = pair(Carrier::Tcp).await;
    let mut set = JoinSet::new();
    let (taken, outcome) = dialled.outbox.push_all(1, (0..100).map(|corr| frame(corr, 64)));
    assert_eq!((taken, outcome), (100, Ok(())));
    run(&mut set, dialled.writer);
    let mut heard = Vec::new();
    accepted.reader.next_batch(&mut heard).await.expect("frames");
    assert_eq!(heard.len(), 100, "one wake-up, one write, one read");
}

/// The end of QUIC's control stream is that of the session only if all other streams have ended, and a test of its own.
#[tokio::test(start_paused = true)]
async fn the_end_of_tls_is_an_end_though_the_connection_stays() {
    let (mut raw, mut session) = raw_pair(PIPE_BYTES, &SessionLimits::default()).await;
    raw.say(&frame(1, 10).to_bytes()).await;
    raw.say_end().await;
    let (heard, closed) = hear_all(&mut session.reader).await;
    assert_eq!(numbers(&heard), [1]);
    assert!(matches!(closed, Closed::Done), "{closed}");
    let (mut raw, mut session) = raw_pair(PIPE_BYTES, &SessionLimits::default()).await;
    raw.say(&frame(1, 10).to_bytes()[..20]).await;
    raw.say_end().await;
    let closed = hear_all(&mut session.reader).await.1;
    assert!(matches!(closed, Closed::Broken(_)), "in the middle of a frame it is none: {closed}");
}

/// QUIC has no records: a packet is whole, or it is none.
#[tokio::test(start_paused = true)]
async fn a_record_that_trickles_in_is_refused_as_well() {
    let (mut raw, mut session) = raw_pair(PIPE_BYTES, &SessionLimits::default()).await;
    let sealed = raw.sealed(&frame(1, 100).to_bytes());
    let began = clock::now();
    let trickling = async {
        for byte in sealed {
            raw.say_raw(&[byte]).await;
            tokio::time::sleep(SECOND).await;
        }
    };
    let hearing = async {
        let closed = hear_all(&mut session.reader).await.1;
        (closed, seconds_since(began))
    };
    let ((), (closed, seconds)) = both(trickling, hearing).await;
    assert!(matches!(closed, Closed::Timeout("read")), "{closed}");
    assert!((5.0..5.1).contains(&seconds), "{seconds}");
}

/// A damaged packet of QUIC is as good as lost: the library passes over it, and it is sent again.
#[tokio::test(start_paused = true)]
async fn damaged_records_end_the_session() {
    let (mut raw, mut session) = raw_pair(PIPE_BYTES, &SessionLimits::default()).await;
    let mut sealed = raw.sealed(&frame(1, 100).to_bytes());
    sealed[20] ^= 1;
    raw.say_raw(&sealed).await;
    assert!(matches!(hear_all(&mut session.reader).await.1, Closed::Tls(_)));
}

/// What the accepting side makes of somebody who never gets through TLS.
async fn stalled(first: &[u8]) -> (ConnectError, f64) {
    let (mut a, b) = tokio::io::duplex(PIPE_BYTES);
    tokio::io::AsyncWriteExt::write_all(&mut a, first).await.expect("room");
    let began = clock::now();
    let outcome = pipe::accept(b, &tls(PostQuantum::Hybrid), hello(), &SessionLimits::default()).await;
    drop(a);
    (outcome.err().expect("no session"), seconds_since(began))
}

/// Over QUIC nobody is accepted before a packet that begins a handshake; who is silent after it has a test there.
#[tokio::test(start_paused = true)]
async fn a_handshake_that_stalls_ends_after_three_seconds() {
    // Nothing at all, and a record of a handshake that promises 512 bytes and brings none.
    for first in [&[][..], &[22, 3, 1, 2, 0]] {
        let (error, seconds) = stalled(first).await;
        assert!(matches!(error, ConnectError::Timeout { stage: Stage::Tls }), "{error}");
        assert!((3.0..3.1).contains(&seconds), "{seconds}");
    }
}

/// QUIC's library drops what is no packet of QUIC, and nobody is told.
#[tokio::test(start_paused = true)]
async fn what_is_no_tls_is_refused_at_once() {
    let (error, seconds) = stalled(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(matches!(error, ConnectError::Tls(_)), "{error}");
    assert!(seconds < 0.1, "{seconds}");
}
