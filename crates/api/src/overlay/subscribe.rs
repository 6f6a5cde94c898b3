//! Hearing a lane: as a stream of server-sent events, or by WebSocket on the same path.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderName, HeaderValue, header};
use serde::Deserialize;
use svc_overlay::capabilities::{PUBLISH, SUBSCRIBE};
use svc_overlay::check_lane;
use svc_overlay::words::Item;
use utoipa::ToSchema;

use super::feed::{Asked, Feed, FeedStep};
use super::words::{EventWords, Hex};
use super::{App, Routes, lane_of, socket};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::{Path, Query};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::websocket::WebSocketRequest;

/// Maximum events in one write.
const EVENTS_AT_ONCE: usize = 256;
/// Bytes of text after which no more events are added to a write.
const TEXT_BYTES_AT_ONCE: usize = 256 * 1024;
/// Time a reader is told to wait before it comes back, in milliseconds.
const RETRY_MS: u32 = 1000;
/// Comment that shows a reader that the stream is alive.
const BEAT: &[u8] = b": keep-alive\n\n";
/// Tells proxies of the nginx family to pass events on as they come.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

static SUBSCRIBE_TO_LANE: Operation = Operation::get(
    "/overlay/lanes/{lane}/subscribe",
    "lanes",
    "hears a lane: as server-sent events `ready`, `message`, `gap`, `epoch`, `lagged` and `end`, or by WebSocket as text \
     frames with the same objects and their `type`. A WebSocket also takes {\"publish\":{\"payload_b64\"}} from a bearer \
     who may publish; with an `id` in it the outcome is told",
)
.allows(SUBSCRIBE)
.query::<SubscribeQuery>()
.event_stream::<EventWords<'static>>();

/// Where to begin, and whom to hear.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "the description; a parameter that may be repeated is read from the pairs")]
struct SubscribeQuery {
    /// ORIGIN:SEQ: begin with this number of that origin, as far as the ring of the node still holds it; may be
    /// repeated for other origins.
    from: Option<String>,
    /// Whether publications of this node itself are heard; true if not given.
    own: Option<bool>,
}

pub(super) const OPERATIONS: &[&Operation] = &[&SUBSCRIBE_TO_LANE];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add(&SUBSCRIBE_TO_LANE, with!(app, subscribe(call, bearer, lane, query, request)))
}

async fn subscribe(
    app: Arc<App>,
    call: Call,
    bearer: Bearer,
    lane: Path<String>,
    query: Query<Vec<(String, String)>>,
    request: Request,
) -> HandlerResult {
    let lane = lane_of(&lane.0)?;
    let subject = app.allow(&bearer, SUBSCRIBE, &lane)?;
    let asked = Asked::read(query.0)?;
    let (mut head, _body) = request.into_parts();
    let websocket = WebSocketRequest::of(&mut head)?;
    let feed = Feed::open(Arc::clone(&app), &call, (bearer, &subject), lane, asked).await?;
    let Some(websocket) = websocket else { return Ok(EventStream { feed, stage: Stage::Opening }.response()) };
    // Whoever may not publish has nothing long to say.
    let may_publish = check_lane(&lane).is_ok() && app.allow(&feed.bearer, PUBLISH, &lane).is_ok();
    let message_bytes_max = if may_publish { socket::PUBLISH_BYTES_MAX } else { socket::OTHER_BYTES_MAX };
    Ok(websocket.open(&call, message_bytes_max, |socket| socket::run(feed, socket)))
}

/// A subscription as a stream of text.
struct EventStream {
    feed: Feed,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening,
    Running,
    Ended,
}

impl EventStream {
    fn response(self) -> Response {
        let pieces = stream::unfold(self, |mut stream| async {
            let text = Box::pin(stream.next()).await?;
            Some((Ok::<_, Infallible>(text), stream))
        });
        let mut response = Response::new(Body::from_stream(pieces));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(BUFFERING, HeaderValue::from_static("no"));
        response
    }

    /// The next piece of text; none once the last was given.
    async fn next(&mut self) -> Option<Bytes> {
        let mut text = Vec::new();
        match self.stage {
            Stage::Ended => return None,
            Stage::Opening => {
                self.stage = Stage::Running;
                text.extend_from_slice(format!("retry: {RETRY_MS}\n").as_bytes());
                let node_id = Hex(self.feed.app.overlay.node_id());
                EventWords::Ready { lane: self.feed.lane.as_str(), node_id }.append_to(&mut text);
            }
            Stage::Running => match self.feed.next().await {
                FeedStep::Item(first) => self.append_items(first, &mut text),
                FeedStep::Beat => text.extend_from_slice(BEAT),
                FeedStep::End(end) => {
                    self.stage = Stage::Ended;
                    EventWords::End { reason: end.as_str() }.append_to(&mut text);
                }
            },
        }
        Some(text.into())
    }

    /// This item and those that are there already, so that many small ones share a write.
    fn append_items(&mut self, first: Item, text: &mut Vec<u8>) {
        EventWords::of(&self.feed.lane, first).append_to(text);
        for _ in 1..EVENTS_AT_ONCE {
            if text.len() >= TEXT_BYTES_AT_ONCE {
                break;
            }
            // Taken only with room for it: what was taken and not written would be lost without a word.
            let Some(next) = self.feed.try_next() else { break };
            EventWords::of(&self.feed.lane, next).append_to(text);
        }
    }
}
