//! A stream of messages to one lane, and what its client is told of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use oap::{AppId, Flags, Frame, HEADER_BYTES, status};
use ron_auth::{Authority, Identified, Subject};
use ron_kernel::{Deadline, retry};
use ron_transport::{Outbox, Place, PushError};
use ron_types::{Error, Kind};
use svc_overlay::capabilities::PUBLISH;
use svc_overlay::words::{Outcome, Published};
use svc_overlay::{LaneName, Overlay, PublishStream, StreamMessage};
use tokio::sync::oneshot;

use super::stream_writer::{OpenGuard, StreamWriter};
use crate::frames::{FrameStream, Reply};

/// Time in which an engine must have taken messages, or the stream ends.
const HAND_OVER_TIME: Duration = Duration::from_secs(2);
/// Wait before messages that an engine had no room for are offered again.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(2));
/// Bytes that are kept free for an outcome; one that names many peers takes more.
const OUTCOME_BYTES: usize = 1024;

/// A stream of messages on one lane.
pub(super) struct Publishing {
    overlay: Overlay,
    authority: Authority,
    bearer: Identified,
    subject: Arc<Subject>,
    lane: LaneName,
    writer: Arc<StreamWriter>,
    _open: OpenGuard,
    stream: PublishStream,
    /// Resolves when the engine refuses a message; taken by whoever watches for that.
    refused: Option<oneshot::Receiver<Error>>,
    /// Messages of this read, not handed on yet.
    taken: Vec<Taken>,
}

/// A message as it came.
struct Taken {
    payload: Bytes,
    wants_outcome: bool,
}

/// The outcome of one message, which is told in any case: outcomes are known by their order alone.
struct UntoldOutcome {
    writer: Arc<StreamWriter>,
    /// Room for it; none once it is told.
    place: Option<Place>,
}

impl Publishing {
    pub(super) fn new(
        overlay: Overlay,
        authority: Authority,
        (bearer, subject): (Identified, Arc<Subject>),
        lane: LaneName,
        (corr, outbox): (u64, Outbox),
    ) -> Self {
        let (writer, open) = StreamWriter::new(corr, outbox);
        let (stream, refused) = PublishStream::new();
        let (refused, taken) = (Some(refused), Vec::new());
        Publishing { overlay, authority, bearer, subject, lane, writer, _open: open, stream, refused, taken }
    }

    /// Room for the outcome of a message, before the message is handed on: while there is none the client is not read.
    /// What was handed on makes room, so `before` goes first. A session that has ended needs no outcomes.
    async fn place(&self, before: &mut Vec<StreamMessage>) -> Result<Option<Place>, Reply> {
        let place = match self.writer.outbox().try_place(OUTCOME_BYTES) {
            Err(PushError::Full { .. }) => {
                self.hand_on(std::mem::take(before)).await?;
                self.writer.outbox().place(OUTCOME_BYTES).await
            }
            place => place,
        };
        Ok(place.ok())
    }

    async fn hand_on(&self, mut messages: Vec<StreamMessage>) -> Result<(), Reply> {
        if messages.is_empty() {
            return Ok(());
        }
        let by = Deadline::after(HAND_OVER_TIME);
        loop {
            match self.overlay.publish_stream(&self.subject.name, self.lane, &self.stream, messages) {
                Ok(()) => return Ok(()),
                Err((back, error)) if error.kind == Kind::Busy && !by.has_passed() => messages = back,
                Err((back, error)) => {
                    let outcomes = back.into_iter().filter_map(|message| message.outcome);
                    outcomes.for_each(|outcome| outcome(Err(error.clone())));
                    return Err(Reply::from(error));
                }
            }
            tokio::time::sleep(retry::jitter(RETRY_WAIT.0, RETRY_WAIT.1)).await;
        }
    }
}

impl FrameStream for Publishing {
    fn take(&mut self, frame: Frame) -> Result<(), Reply> {
        let wants_outcome = frame.has(Flags::ACK_REQ);
        self.taken.push(Taken { payload: frame.payload, wants_outcome });
        Ok(())
    }

    /// The right is looked at once for each read: a token that was revoked or ran out ends the stream.
    fn flush(&mut self) -> BoxFuture<'_, Result<(), Reply>> {
        Box::pin(async move {
            if self.taken.is_empty() {
                return Ok(());
            }
            self.authority.allows(&self.bearer, PUBLISH, self.lane.as_str(), None)?;
            let taken = std::mem::take(&mut self.taken);
            let mut messages = Vec::with_capacity(taken.len());
            for Taken { payload, wants_outcome } in taken {
                let place = if wants_outcome { self.place(&mut messages).await? } else { None };
                let outcome = place.map(|place| UntoldOutcome::new(&self.writer, place).into_callback());
                messages.push(StreamMessage { payload, outcome });
            }
            self.hand_on(messages).await
        })
    }

    /// The answer to the end of a stream says that all of it was published, so the engine must have got to it.
    fn finish(&mut self) -> BoxFuture<'_, Result<(), Reply>> {
        Box::pin(async move {
            self.flush().await?;
            self.overlay.settle(&self.lane).await?;
            self.stream.refusal().map_or(Ok(()), |error| Err(Reply::from(error)))
        })
    }

    fn ended(&mut self) -> Option<BoxFuture<'static, Option<Reply>>> {
        let refused = self.refused.take()?;
        Some(Box::pin(async move { refused.await.ok().map(Reply::from) }))
    }
}

impl UntoldOutcome {
    fn new(writer: &Arc<StreamWriter>, place: Place) -> Self {
        UntoldOutcome { writer: Arc::clone(writer), place: Some(place) }
    }

    fn into_callback(mut self) -> svc_overlay::OutcomeCallback {
        Box::new(move |published| {
            let room = self.writer.outbox().frame_bytes_max() - HEADER_BYTES;
            self.tell(published.map_or_else(Reply::from, |published| accepted(&published, room)));
        })
    }

    fn tell(&mut self, reply: Reply) {
        let (corr, place) = (self.writer.corr(), self.place.take());
        let frame = Frame::partial_response(AppId::LANES, corr, reply.code, reply.payload);
        // A session that has ended hears nothing more.
        self.writer.while_open(|_| place.map(|place| place.push(corr, frame)));
    }
}

impl Drop for UntoldOutcome {
    fn drop(&mut self) {
        if self.place.is_some() {
            let detail = "the lane's engine was restarted; whether the message was published is not known";
            self.tell(Reply::from(Error::new(Kind::Degraded, detail)));
        }
    }
}

/// The outcome of a message, in the words of the HTTP surface, with as many peers as fit so many bytes.
pub(super) fn accepted(published: &Published, room: usize) -> Reply {
    let mut rows: Vec<_> = published.peers.iter().map(row_of).collect();
    loop {
        let body = serde_json::json!({
            "msg_id": published.msg_id.to_string(),
            "origin": published.origin.to_string(),
            "epoch": published.epoch,
            "seq": published.seq,
            "peers": rows,
        })
        .to_string();
        if body.len() <= room || rows.is_empty() {
            return Reply { code: status::ACCEPTED, payload: Bytes::from(body) };
        }
        let fitting = rows.len() * room / body.len();
        rows.truncate(fitting.min(rows.len() - 1));
    }
}

fn row_of(peer: &svc_overlay::words::PeerOutcome) -> serde_json::Value {
    let mut row = serde_json::json!({"node_id": peer.node_id.to_string(), "outcome": peer.outcome.as_str()});
    if let Outcome::Busy { retry_after } = peer.outcome {
        row["retry_after_ms"] = (retry_after.as_millis() as u64).into();
    }
    row
}

#[cfg(test)]
mod tests {
    use ron_transport::NodeId;
    use svc_overlay::MsgId;
    use svc_overlay::words::PeerOutcome;

    use super::*;

    #[test]
    fn an_outcome_names_as_many_peers_as_fit() {
        let busy = Outcome::Busy { retry_after: Duration::from_millis(250) };
        let peer = |byte: u8| PeerOutcome { node_id: NodeId::from_bytes([byte; 32]), outcome: busy };
        let peers = (0..40).map(peer).collect();
        let (msg_id, origin) = (MsgId([9; 16]), NodeId::from_bytes([1; 32]));
        let published = Published { msg_id, origin, epoch: u64::MAX, seq: u64::MAX, peers };
        for (room, expected) in [(usize::MAX, 40), (2_000, 15), (oap::FRAME_BYTES_MIN - HEADER_BYTES, 6), (300, 0)] {
            let reply = accepted(&published, room);
            let told: serde_json::Value = serde_json::from_slice(&reply.payload).expect("JSON");
            assert!(reply.payload.len() <= room, "{} bytes", reply.payload.len());
            assert_eq!((reply.code, told["seq"].as_u64()), (status::ACCEPTED, Some(u64::MAX)));
            assert_eq!(told["peers"].as_array().map(Vec::len), Some(expected), "{room}");
        }
    }
}
