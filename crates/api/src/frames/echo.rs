//! Echo: development's own application, which gives a frame back as it came.

use std::sync::Arc;

use oap::{AppId, Frame};

use super::{Answer, Caller, FrameSurface, Reply};

struct Echo;

/// The surface that development nodes have.
pub fn echo_frames() -> Arc<dyn FrameSurface> {
    Arc::new(Echo)
}

impl FrameSurface for Echo {
    fn app(&self) -> AppId {
        AppId::ECHO
    }

    fn answer(&self, _caller: &Caller, request: Frame) -> Answer {
        Answer::Now(Reply::ok(request.payload))
    }
}
