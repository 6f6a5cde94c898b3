//! The state machine of streams against the reference.

use oap::{AppId, Flags, Frame, Step, StreamError, Streams};
use proptest::prelude::*;

use crate::reference::Reference;

/// What happens: a frame with these flags, number and application, or the end of an answer.
#[derive(Debug, Clone)]
enum Happening {
    Came(u16, u64, u16),
    Finished(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    let flags = prop::sample::select(vec![1_u16, 1 | 8, 1 | 16, 1 | 8 | 16, 1 | 32, 2 | 16, 4]);
    prop_oneof![
        4 => (flags, 0_u64..6, 1_u16..3).prop_map(|(flags, corr, app)| Happening::Came(flags, corr, app)),
        1 => (0_u64..6).prop_map(Happening::Finished),
    ]
}

proptest! {
    #[test]
    fn streams_do_what_the_reference_does(
        max in 1_usize..4,
        happenings in proptest::collection::vec(happening(), 0..60),
    ) {
        let mut streams = Streams::new(max);
        let mut reference = Reference::new(max);
        for happening in happenings {
            match happening {
                Happening::Came(flags, corr, app) => {
                    let flags = Flags::from_bits(flags).expect("known bits");
                    let frame = Frame { flags, ..Frame::event(AppId(app), corr, "") };
                    prop_assert_eq!(streams.accept(&frame), reference.accept(&frame), "{:?}", frame);
                }
                Happening::Finished(corr) => {
                    streams.finished(corr);
                    reference.finished(corr);
                }
            }
            prop_assert_eq!(streams.inflight(), reference.inflight());
            prop_assert!(streams.inflight() <= max);
        }
    }
}

/// Streams that were answered early and never ended, over and over: what is remembered of them is bounded.
#[test]
fn what_is_remembered_is_bounded() {
    let mut streams = Streams::new(8);
    let refused_at = (0..100_u64).find_map(|corr| match streams.accept(&Frame::open(AppId::LANES, corr, "")) {
        Ok(step) => {
            assert_eq!(step, Step::Opens);
            streams.finished(corr);
            None
        }
        Err(error) => Some((corr, error)),
    });
    assert_eq!(refused_at, Some((8, StreamError::TooManyUnended)));
}
