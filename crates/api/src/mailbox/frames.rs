//! The mailbox over OAP frames (application 0x0100): the same operations as over HTTP, in batches, without base64.
//!
//! Payloads are a head in JSON and bodies as they are; docs/oap-1.md is the grammar. The bearer is known before a head
//! is read. Messages of one request go to the engine as one batch, and the answer waits for the disk outside of it.

mod payload;
mod recv;
mod send;
mod settle;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oap::{AppId, Frame};
use ron_auth::{Action, Authority, Identified, Subject};
use ron_kernel::{Deadline, Meter};
use ron_types::{Error, limits};
use svc_mailbox::{Durability, Mailbox};

use super::metered::Metered;
use crate::admission::Admission;
use crate::frames::{Answer, Caller, FrameSurface, Reply};
use payload::{Op, RequestPayload};

/// The surface of the mailbox over frames.
pub fn mailbox_frames(mailbox: Mailbox, authority: Authority, meter: &Meter) -> Arc<dyn FrameSurface> {
    Arc::new(MailboxFrames(Arc::new(Shared { mailbox, authority, metered: Metered::new(meter) })))
}

struct MailboxFrames(Arc<Shared>);

/// Parts of the node that the operations use.
struct Shared {
    mailbox: Mailbox,
    authority: Authority,
    metered: Metered,
}

/// A request whose bearer is known.
struct Known<'a> {
    shared: &'a Arc<Shared>,
    caller: &'a Caller,
    bearer: Identified,
    request: &'a Frame,
    /// Its part of what callers share.
    admission: &'a Admission,
}

impl FrameSurface for MailboxFrames {
    fn app(&self) -> AppId {
        AppId::MAILBOX
    }

    fn answer(&self, caller: &Caller, request: Frame) -> Answer {
        self.0.answer(caller, &request).unwrap_or_else(Answer::Now)
    }
}

impl Shared {
    fn answer(self: &Arc<Self>, caller: &Caller, request: &Frame) -> Result<Answer, Reply> {
        let bearer = caller.identify(&self.authority, request)?;
        let admission = caller.admit(&bearer, request)?;
        let known = Known { shared: self, caller, bearer, request, admission: &admission };
        let payload = RequestPayload::split(&request.payload)?;
        let answer = match payload.op {
            Op::Send => send::answer(&known, &payload),
            Op::Recv => recv::answer(&known, &payload),
            Op::Ack => settle::ack(&known, &payload),
            Op::Nack => settle::nack(&known, &payload),
            Op::Extend => settle::extend(&known, &payload),
        };
        Ok(answer?.holding(admission))
    }

    /// Refuses where the node cannot give the durability that a caller demands.
    fn require(&self, minimum: Option<&str>) -> Result<(), Error> {
        let Some(minimum) = minimum else { return Ok(()) };
        let unknown = |_| Error::schema("min_durability: must be fsynced, written or ram");
        self.mailbox.require(minimum.parse::<Durability>().map_err(unknown)?)
    }
}

impl Known<'_> {
    fn allow(&self, action: Action, topic: &str) -> Result<Arc<Subject>, Error> {
        self.shared.authority.allows(&self.bearer, action, topic, None)
    }
}

/// The time a request has: what its caller asks for, up to the limit, or else this.
fn deadline(asked_ms: Option<u64>, default: Duration) -> Result<Deadline, Error> {
    match asked_ms {
        Some(0) => Err(Error::schema("deadline_ms: must be at least 1")),
        Some(millis) => Ok(Deadline::after(Duration::from_millis(millis).min(limits::REQUEST_DEADLINE_MAX))),
        None => Ok(Deadline::after(default)),
    }
}

/// Reads bytes as a payload of a request and as every head there is, as the fuzz target does.
pub(super) fn read_any(bytes: &[u8]) -> bool {
    let whole = Bytes::copy_from_slice(bytes);
    RequestPayload::split(&whole).is_ok_and(|payload| {
        let heads = [send::read_any(&payload), recv::read_any(&payload), settle::read_any(&payload)];
        heads.contains(&true)
    })
}
