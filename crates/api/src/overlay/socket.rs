//! A lane by WebSocket: events go out as text frames, publications come in.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use ron_kernel::deadline;
use ron_types::Error;
use serde::Deserialize;
use svc_overlay::capabilities::PUBLISH;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message};

use super::feed::{Feed, FeedEnd, FeedStep};
use super::publish::JSON_BYTES_MAX;
use super::words::{EventWords, Hex, PublishAnswer};
use crate::extract;
use crate::mailbox::Base64;
use crate::problem::Problem;
use crate::websocket::Socket;

/// Largest message from a client that may publish.
pub(super) const PUBLISH_BYTES_MAX: usize = JSON_BYTES_MAX;
/// Largest message from a client that may not.
pub(super) const OTHER_BYTES_MAX: usize = 4 * 1024;
/// Longest id that a client may give to a publication, in bytes.
const ID_BYTES_MAX: usize = 128;
/// Events written before the socket is flushed.
const EVENTS_AT_ONCE: usize = 256;
/// Time a client has to read the last frame of a socket and to say its own.
const CLOSING_PATIENCE: Duration = Duration::from_secs(1);

/// A message from the client.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientMessage {
    publish: ClientPublication,
}

/// A publication from the client.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientPublication {
    payload_b64: Base64,
    /// Name under which the outcome is told; without one only a refusal is.
    id: Option<String>,
}

/// Reason why a socket ends.
enum SocketEnd {
    /// The client broke off; there is nobody to tell.
    Gone,
    /// The client said goodbye.
    Left,
    /// The client is told why.
    Told(CloseCode, &'static str),
    /// The client is told why; what it sends from here on cannot be read as frames.
    Broken(CloseCode, &'static str),
}

/// Runs the socket until one side ends it.
pub(super) async fn run(feed: Feed, mut socket: Socket) {
    let draining = feed.draining();
    let end = tokio::select! {
        biased;
        end = serve(feed, &mut socket) => end,
        // A client that reads nothing holds up the write of an event, and must not hold up the drain.
        () = draining => told(FeedEnd::Draining),
    };
    // Whether the client hears of the end is its own affair.
    let _ = deadline::within(CLOSING_PATIENCE, "close", close(&mut socket, end)).await;
}

/// Says goodbye, and waits until the client has as well: a socket that is closed before resets what is on its way.
async fn close(socket: &mut Socket, end: SocketEnd) {
    let (told, is_readable) = match end {
        SocketEnd::Gone => return,
        SocketEnd::Left => (None, true),
        SocketEnd::Told(code, reason) => (Some((code, reason)), true),
        SocketEnd::Broken(code, reason) => (Some((code, reason)), false),
    };
    if let Some((code, reason)) = told
        && socket.close(Some(CloseFrame { code, reason: reason.into() })).await.is_err()
    {
        return;
    }
    match is_readable {
        // The client's own goodbye ends the frames, and reading it sends the answer to it.
        true => while let Some(Ok(_)) = socket.next().await {},
        false => socket.get_mut().throw_away().await,
    }
}

async fn serve(mut feed: Feed, socket: &mut Socket) -> SocketEnd {
    let ready = EventWords::Ready { lane: feed.lane.as_str(), node_id: Hex(feed.app.overlay.node_id()) }.typed();
    if socket.send(Message::text(ready)).await.is_err() {
        return SocketEnd::Gone;
    }
    loop {
        let outcome = tokio::select! {
            step = feed.next() => hand_on(&mut feed, socket, step).await,
            message = socket.next() => {
                let outcome = take(&feed, socket, message).await;
                socket.get_mut().message_done();
                outcome
            }
        };
        if let Err(end) = outcome {
            return end;
        }
    }
}

/// Does what the subscription asks for.
async fn hand_on(feed: &mut Feed, socket: &mut Socket, step: FeedStep) -> Result<(), SocketEnd> {
    let first = match step {
        FeedStep::Item(first) => first,
        FeedStep::Beat => return write(socket.send(Message::Ping(Default::default()))).await,
        FeedStep::End(end) => return Err(told(end)),
    };
    write(socket.feed(Message::text(EventWords::of(&feed.lane, first).typed()))).await?;
    for _ in 1..EVENTS_AT_ONCE {
        // Taken only with room for it: what was taken and not written would be lost without a word.
        let Some(next) = feed.try_next() else { break };
        write(socket.feed(Message::text(EventWords::of(&feed.lane, next).typed()))).await?;
    }
    write(socket.flush()).await
}

async fn write(writing: impl Future<Output = Result<(), tungstenite::Error>>) -> Result<(), SocketEnd> {
    writing.await.map_err(|_| SocketEnd::Gone)
}

/// Takes what the client says.
async fn take(
    feed: &Feed,
    socket: &mut Socket,
    message: Option<Result<Message, tungstenite::Error>>,
) -> Result<(), SocketEnd> {
    let text = match message {
        Some(Ok(Message::Text(text))) => text,
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => return Ok(()),
        Some(Ok(Message::Binary(_))) => return Err(SocketEnd::Told(CloseCode::Unsupported, "text frames only")),
        Some(Err(error)) => return Err(broken(&error)),
        Some(Ok(Message::Close(_))) => return Err(SocketEnd::Left),
        None => return Err(SocketEnd::Gone),
    };
    let (id, answered) = match read(text.as_bytes()) {
        Ok(ClientPublication { payload_b64, id }) => (id, publish(feed, payload_b64.0).await.map_err(Problem::from)),
        Err(problem) => (None, Err(problem)),
    };
    let answer = match (answered, &id) {
        (Ok(_), None) => return Ok(()),
        (Ok(published), Some(id)) => EventWords::Published { id, published }.typed(),
        (Err(problem), id) => refusal(&problem, id.as_deref()).typed(),
    };
    write(socket.send(Message::text(answer))).await
}

fn read(text: &[u8]) -> Result<ClientPublication, Problem> {
    let ClientMessage { publish } = extract::parse(text)?;
    if publish.id.as_ref().is_some_and(|id| id.len() > ID_BYTES_MAX) {
        return Err(Error::schema(format!("publish.id: at most {ID_BYTES_MAX} bytes")).into());
    }
    Ok(publish)
}

/// The right is asked for with each message: a token may be revoked while its socket is open.
async fn publish(feed: &Feed, payload: Bytes) -> Result<PublishAnswer, Error> {
    let subject = feed.app.allow(&feed.bearer, PUBLISH, &feed.lane)?;
    let published = feed.app.overlay.publish(&subject.name, feed.lane, payload).await?;
    Ok(PublishAnswer::new(&feed.lane, &published))
}

fn refusal<'a>(problem: &'a Problem, id: Option<&'a str>) -> EventWords<'a> {
    let retry_after_ms = problem.retry_after.map(|wait| wait.as_millis() as u64);
    EventWords::Refused { id, code: problem.code, detail: &problem.detail, retry_after_ms }
}

fn told(end: FeedEnd) -> SocketEnd {
    match end {
        FeedEnd::Draining => SocketEnd::Told(CloseCode::Away, "the node is shutting down"),
        FeedEnd::Restarted => SocketEnd::Told(CloseCode::Restart, "the lane's engine was restarted; subscribe again"),
        FeedEnd::Revoked => SocketEnd::Told(CloseCode::Policy, "the token no longer allows this"),
    }
}

fn broken(error: &tungstenite::Error) -> SocketEnd {
    match error {
        tungstenite::Error::Capacity(_) => SocketEnd::Broken(CloseCode::Size, "the message is too large"),
        tungstenite::Error::Utf8(_) => SocketEnd::Broken(CloseCode::Invalid, "not UTF-8"),
        tungstenite::Error::Protocol(_) => SocketEnd::Broken(CloseCode::Protocol, "not a frame of a WebSocket client"),
        tungstenite::Error::Io(error) if error.kind() == std::io::ErrorKind::OutOfMemory => {
            SocketEnd::Broken(CloseCode::Again, "no memory for this message now")
        }
        _ => SocketEnd::Gone,
    }
}
