//! Surfaces over OAP frames: who asks, what is answered, and the trait that a service implements for its application.
//!
//! The node's OAP port owns connections, streams and deadlines on the wire; a surface sees requests and gives answers.
//! A surface authenticates before it reads a payload, exactly as one over HTTP does, and a request costs the port one
//! call: what can be answered at once is, and what has to wait is handed back as a future that holds nothing else.

mod caller;
mod chain;
mod echo;
mod overlay;

use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use oap::status::{self, Status};
use oap::{AppId, Frame, HEADER_BYTES};
use ron_transport::Outbox;
use ron_types::Error;

pub use caller::Caller;
pub(crate) use chain::batch_hash;
pub use chain::{Chain, Link};
pub use echo::echo_frames;
pub use overlay::overlay_frames;

use crate::problem::Problem;

/// The surface of one application.
pub trait FrameSurface: Send + Sync {
    /// Number of the application it answers for.
    fn app(&self) -> AppId;

    /// Answers a request that is whole in one frame, its payload inflated. Called in the order in which the requests of
    /// a session arrived, and never waits; what is left to wait for may then be waited for in any order.
    fn answer(&self, caller: &Caller, request: Frame) -> Answer;

    /// Opens a stream. What it pushes goes to the outbox under the flow it likes; further frames of the stream go to
    /// what is returned. An application without streams refuses.
    fn open(&self, _caller: &Caller, _first: Frame, _outbox: Outbox) -> BoxFuture<'static, Result<Stream, Reply>> {
        let refusal = Error::schema("this application takes whole requests, and no streams");
        Box::pin(std::future::ready(Err(Reply::from(refusal))))
    }
}

/// The open end of a stream. Dropping it closes the stream.
pub type Stream = Box<dyn FrameStream>;

/// What becomes of the frames of an open stream.
pub trait FrameStream: Send {
    /// Takes a further frame, its payload inflated; never waits. A refusal ends the stream with this answer.
    fn take(&mut self, frame: Frame) -> Result<(), Reply>;

    /// Everything that one read gave has been taken: the time to hand it on at once. While this waits nothing more is
    /// read of the connection, which is how its peer is slowed down.
    fn flush(&mut self) -> BoxFuture<'_, Result<(), Reply>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The other side has ended the stream: hands on what is left, and waits until what became of all of it is known.
    fn finish(&mut self) -> BoxFuture<'_, Result<(), Reply>> {
        self.flush()
    }

    /// Resolves with the answer that ends the stream, should the service end it, and with nothing once the stream is
    /// dropped. Asked for once. A stream that only its client ends has none.
    fn ended(&mut self) -> Option<BoxFuture<'static, Option<Reply>>> {
        None
    }
}

/// What comes of a request.
pub enum Answer {
    /// It is done.
    Now(Reply),
    /// It is under way, and holds no core: it waits for the disk. Its client cannot cancel it.
    Later(BoxFuture<'static, Reply>),
    /// It waits for something to happen, such as a message. Its client may cancel it: dropped, it leaves nothing.
    Waiting(BoxFuture<'static, Reply>),
}

/// The answer to a request, before it is cut into frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// What became of the request.
    pub code: Status,
    /// What is said: the application's answer where the code is below 300, a problem in JSON otherwise.
    pub payload: Bytes,
}

impl Answer {
    /// Begins what has to be done. What needs no waiting is done here and now.
    pub fn begin(work: impl Future<Output = Reply> + Send + 'static) -> Answer {
        begun(Box::pin(work)).map_or_else(Answer::Later, Answer::Now)
    }

    /// The same for what its client may cancel while it waits.
    pub fn begin_waiting(work: impl Future<Output = Reply> + Send + 'static) -> Answer {
        begun(Box::pin(work)).map_or_else(Answer::Waiting, Answer::Now)
    }

    /// The same, with something that is kept until it is there.
    pub(crate) fn holding(self, held: impl Send + 'static) -> Answer {
        let holding = |rest: BoxFuture<'static, Reply>| -> BoxFuture<'static, Reply> {
            Box::pin(async move {
                let reply = rest.await;
                drop(held);
                reply
            })
        };
        match self {
            Answer::Now(reply) => Answer::Now(reply),
            Answer::Later(rest) => Answer::Later(holding(rest)),
            Answer::Waiting(rest) => Answer::Waiting(holding(rest)),
        }
    }
}

/// The first look at some work: its reply, or what is left to wait for.
fn begun(mut work: BoxFuture<'static, Reply>) -> Result<Reply, BoxFuture<'static, Reply>> {
    // Nobody is woken by this first look. Whoever waits for the future looks again first, and is then known to it.
    match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => Ok(reply),
        Poll::Pending => Err(work),
    }
}

impl Reply {
    /// The answer of an application.
    pub fn ok(payload: impl Into<Bytes>) -> Reply {
        Reply { code: status::OK, payload: payload.into() }
    }

    /// The answer to a request that its client cancelled before anything came of it.
    pub fn cancelled() -> Reply {
        let cancelled = Error::canceled("the request was cancelled, and nothing came of it");
        Problem { title: "nobody waits for the answer", ..Problem::from(cancelled) }.into()
    }

    /// The frames that carry it: several where one of so many bytes is not enough, all with its code, the last with
    /// END.
    pub fn into_frames(self, app: AppId, corr: u64, frame_bytes_max: usize) -> impl Iterator<Item = Frame> {
        let room = frame_bytes_max.saturating_sub(HEADER_BYTES).max(1);
        let (code, mut rest) = (self.code, Some(self.payload));
        std::iter::from_fn(move || {
            let mut payload = rest.take()?;
            if payload.len() <= room {
                return Some(Frame::response(app, corr, code, payload));
            }
            rest = Some(payload.split_off(room));
            Some(Frame::partial_response(app, corr, code, payload))
        })
    }
}

impl From<Problem> for Reply {
    fn from(problem: Problem) -> Self {
        Reply { code: problem.status.as_u16(), payload: problem.body(None, None).into() }
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Self {
        Problem::from(error).into()
    }
}

#[cfg(test)]
mod tests;
