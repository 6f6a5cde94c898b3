//! Surfaces of services over OAP frames: what a surface is, who asks, and how a refusal is said.
//!
//! The framed plane gives a surface the frames of its application. A whole request has one reply; a stream lives until
//! either side ends it. Authorization is the surface's first step, before it looks at a payload.

mod echo;
mod overlay;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use oap::{AppId, Frame};
use ron_auth::{Action, Authority, Subject};
use ron_transport::Outbox;
use ron_types::{Error, Kind};

pub use echo::echo_frames;
pub use overlay::overlay_frames;

/// Longest token that is looked at, in bytes.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Whoever sent a frame.
#[derive(Clone)]
pub struct Caller {
    /// The token of the request, or that of the session's HELLO; not checked yet.
    token: Option<Arc<str>>,
    /// Address of the other side.
    pub ip: IpAddr,
}

/// The answer to a whole request, or the last word of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// A status of the protocol.
    pub code: u16,
    /// What the surface says.
    pub payload: Bytes,
}

/// The frames of one application.
pub trait FrameSurface: Send + Sync {
    /// The application.
    fn app(&self) -> AppId;

    /// Carries out a whole request. What it does before it first waits is done by a worker; the rest by the connection.
    fn answer(&self, caller: Caller, request: Frame) -> BoxFuture<'static, Reply>;

    /// Opens a stream with its first frame; frames of the other direction go into the outbox, under the stream's number.
    fn open(&self, _caller: Caller, _first: Frame, _outbox: Outbox) -> BoxFuture<'static, Result<Stream, Reply>> {
        let refusal = Error::new(Kind::Schema, "this application has no streams");
        Box::pin(std::future::ready(Err(Reply::refusal(&refusal))))
    }
}

/// An open stream. Dropping it ends it.
pub type Stream = Box<dyn FrameStream>;

/// What becomes of the frames of an open stream.
pub trait FrameStream: Send {
    /// Takes the next frame, in order; must not wait. A reply ends the stream.
    fn take(&mut self, frame: Frame) -> Result<(), Reply>;

    /// Everything that one read gave has been taken: the time to hand it on at once. While this waits nothing more is
    /// read of the connection, which is how its peer is slowed down.
    fn flush(&mut self) -> BoxFuture<'_, Result<(), Reply>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Caller {
    /// The sender of a frame with this capability, or else with that of its session.
    pub fn new(cap: &[u8], session: Option<&Arc<str>>, ip: IpAddr) -> Self {
        let own = (!cap.is_empty() && cap.len() <= TOKEN_BYTES_MAX).then(|| std::str::from_utf8(cap).ok()).flatten();
        // A capability that cannot be a token must not fall back to another one: the request meant this one.
        let token = if cap.is_empty() { session.cloned() } else { Some(Arc::from(own.unwrap_or("?"))) };
        Caller { token, ip }
    }

    /// The caller may do this to the resource now.
    pub fn allow(&self, authority: &Authority, action: Action, resource: &str) -> Result<Arc<Subject>, Error> {
        authority.authorize(self.token.as_deref(), action, resource, None)
    }

    /// The caller's token is one of this node, whatever it allows.
    pub fn is_known(&self, authority: &Authority) -> bool {
        authority.identify(self.token.as_deref(), false).is_ok()
    }

    /// The token itself, for surfaces that ask again later.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }
}

impl Reply {
    /// A reply without trouble.
    pub fn ok(payload: impl Into<Bytes>) -> Self {
        Reply { code: oap::status::OK, payload: payload.into() }
    }

    /// A refusal as a problem in JSON, under the status that HTTP has for it.
    pub fn refusal(error: &Error) -> Self {
        let status = error.kind.http_status();
        let mut problem = serde_json::json!({
            "code": error.kind.code(),
            "title": error.kind.title(),
            "detail": error.detail,
        });
        if let Some(after) = error.retry_after {
            problem["retry_after_ms"] = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).into();
        }
        Reply { code: status, payload: Bytes::from(problem.to_string()) }
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Self {
        Reply::refusal(&error)
    }
}
