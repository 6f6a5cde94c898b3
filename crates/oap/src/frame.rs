//! A frame: the unit of everything that is said over a connection.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use crate::header::Header;
use crate::{AppId, Flags, FrameError, HEADER_BYTES, put_in_steps};

/// A frame. Its capability and payload are slices of what was read, and keep that buffer (64 KiB as a rule) alive:
/// what is kept for long is copied.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    /// What kind of frame it is.
    pub flags: Flags,
    /// Status of a response; 0 on everything else.
    pub code: u16,
    /// Protocol of the payload.
    pub app: AppId,
    /// Tenant it is for; 0 is none.
    pub tenant: u128,
    /// Number that ties the frames of one request and its answers together; chosen by the side that asks.
    pub corr: u64,
    /// Capability token that covers the request; empty is none. Only with START.
    pub cap: Bytes,
    /// What is said.
    pub payload: Bytes,
    /// What is said after `payload`, sent from where it lies: so a large message that others hold too gets a head of
    /// its own without being copied behind it. None in a frame that was read.
    pub tail: Option<Box<Bytes>>,
}

impl Frame {
    /// A request in one frame.
    pub fn request(app: AppId, corr: u64, payload: impl Into<Bytes>) -> Frame {
        Frame::new(Flags::REQ | Flags::START | Flags::END, 0, app, corr, payload.into())
    }

    /// The first frame of a stream of requests.
    pub fn open(app: AppId, corr: u64, payload: impl Into<Bytes>) -> Frame {
        Frame::new(Flags::REQ | Flags::START, 0, app, corr, payload.into())
    }

    /// A further frame of a stream.
    pub fn part(app: AppId, corr: u64, payload: impl Into<Bytes>) -> Frame {
        Frame::new(Flags::REQ, 0, app, corr, payload.into())
    }

    /// The last frame of a stream.
    pub fn close(app: AppId, corr: u64, payload: impl Into<Bytes>) -> Frame {
        Frame::new(Flags::REQ | Flags::END, 0, app, corr, payload.into())
    }

    /// The whole answer to a request, or the last frame of the answer to a stream.
    pub fn response(app: AppId, corr: u64, code: u16, payload: impl Into<Bytes>) -> Frame {
        Frame::new(Flags::RESP | Flags::END, code, app, corr, payload.into())
    }

    /// An answer to one part of a stream that stays open.
    pub fn partial_response(app: AppId, corr: u64, code: u16, payload: impl Into<Bytes>) -> Frame {
        Frame::new(Flags::RESP, code, app, corr, payload.into())
    }

    /// A push.
    pub fn event(app: AppId, corr: u64, payload: impl Into<Bytes>) -> Frame {
        Frame::new(Flags::EVENT, 0, app, corr, payload.into())
    }

    /// Nobody waits any more for the answer to the request of this number. A node that does not know of it drops it.
    pub fn cancel(app: AppId, corr: u64) -> Frame {
        Frame::new(Flags::EVENT | Flags::END, 0, app, corr, Bytes::new())
    }

    /// Whether it cancels the request of its number.
    pub fn is_cancel(&self) -> bool {
        self.flags == Flags::EVENT | Flags::END && self.app != AppId::CONTROL && self.payload.is_empty()
    }

    fn new(flags: Flags, code: u16, app: AppId, corr: u64, payload: Bytes) -> Frame {
        Frame { flags, code, app, tenant: 0, corr, cap: Bytes::new(), payload, tail: None }
    }

    /// The same with more to say after its payload.
    #[must_use]
    pub fn followed_by(self, tail: Bytes) -> Frame {
        Frame { tail: Some(Box::new(tail)), ..self }
    }

    /// The same with a capability, which needs START.
    #[must_use]
    pub fn with_cap(self, cap: impl Into<Bytes>) -> Frame {
        Frame { cap: cap.into(), ..self }
    }

    /// The same with further flags.
    #[must_use]
    pub fn with_flags(self, flags: Flags) -> Frame {
        Frame { flags: self.flags | flags, ..self }
    }

    /// True if all of these flags are set.
    pub fn has(&self, flags: Flags) -> bool {
        self.flags.contains(flags)
    }

    /// Bytes of the whole frame on the wire.
    pub fn encoded_len(&self) -> usize {
        let tail_len = self.tail.as_ref().map_or(0, |tail| tail.len());
        HEADER_BYTES + self.cap.len() + self.payload.len() + tail_len
    }

    /// The rules a decoder with this bound would hold the frame to. A frame made by this side is checked before it is
    /// queued, because on the wire a broken one costs the whole connection.
    pub fn check(&self, frame_bytes_max: usize) -> Result<(), FrameError> {
        let len = self.encoded_len();
        if len > frame_bytes_max {
            return Err(FrameError::TooLarge { len, max: frame_bytes_max });
        }
        if self.cap.len() > usize::from(u16::MAX) {
            return Err(FrameError::CapBeyondFrame { cap_len: self.cap.len() });
        }
        self.header().check()
    }

    /// The last piece of what is said: the tail, or the payload where there is none.
    pub fn last_piece(&self) -> &Bytes {
        self.tail.as_deref().unwrap_or(&self.payload)
    }

    /// Writes everything before the last piece; that follows as it is, so that a large one need not be copied.
    pub fn put_head(&self, out: &mut impl BufMut) {
        self.header().put(out);
        out.put_slice(&self.cap);
        if self.tail.is_some() {
            out.put_slice(&self.payload);
        }
    }

    /// Writes the whole frame.
    pub fn encode(&self, out: &mut impl BufMut) {
        self.put_head(out);
        put_in_steps(out, self.last_piece());
    }

    /// The whole frame as bytes of its own.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        self.encode(&mut out);
        out.freeze()
    }

    fn header(&self) -> Header {
        let Frame { flags, code, app, tenant, corr, .. } = *self;
        Header { len: self.encoded_len(), flags, code, app, tenant, cap_len: self.cap.len(), corr }
    }
}

impl fmt::Debug for Frame {
    /// Without the capability, which is a secret, and without the payload, which is somebody's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Frame { flags, code, app, tenant, corr, cap, .. } = self;
        let said = self.encoded_len() - HEADER_BYTES - cap.len();
        write!(f, "Frame({flags} {app:?} #{corr} code {code} tenant {tenant:x} ")?;
        write!(f, "cap {} B payload {said} B)", cap.len())
    }
}
