//! What happens to epochs, as a stream of server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, header};
use ron_kernel::bus::{BroadcastReceiver, Heard};
use ron_kernel::clock;
use ron_kernel::shutdown::Stopping;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use svc_rewarder::EpochId;
use svc_rewarder::capabilities::READ;
use svc_rewarder::service::RewardEvent;
use tokio::sync::watch;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::{App, Routes, epoch_of};
use crate::admission::Waiting;
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::Query;
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

/// Maximum life of a stream; its reader opens the next one and reads how its epochs stand.
const STREAM_TIME_MAX: Duration = Duration::from_secs(3600);
/// Pause after which a comment is sent, so that both sides notice a connection that is gone; the token, which may
/// expire or be revoked while the stream is open, is checked as often.
const BEAT_EVERY: Duration = Duration::from_secs(5);

static EVENTS: Operation = Operation::get(
    "/rewarder/events",
    "epochs",
    "tells what becomes of epochs from now on, as server-sent events: sealed (held, released, quarantined), released, \
     settled",
)
.allows(READ)
.query::<EpochEventsQuery>()
.event_stream::<EpochEvent>();

/// Which events.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EpochEventsQuery {
    /// Only events of this epoch; without it the token must allow every epoch.
    epoch: Option<String>,
}

/// The data of one event: `event` is `held`, `released`, `settled` or `quarantined`, with its `epoch`. The stream
/// itself speaks as `opened`, `missed` (with `count`: read how the epochs stand) and, at its end, `end` (with
/// `reason`).
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EpochEvent {
    /// What the epoch is now.
    event: String,
    /// Id of the epoch.
    epoch: Option<String>,
}

pub(super) const OPERATIONS: &[&Operation] = &[&EVENTS];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add(&EVENTS, with!(app, open(call, bearer, query)))
}

/// State of one open stream between two frames.
struct EpochFeed {
    app: Arc<App>,
    bearer: Bearer,
    epoch: Option<EpochId>,
    events: BroadcastReceiver<RewardEvent>,
    stopping: watch::Receiver<Stopping>,
    /// Nothing was told yet.
    is_new: bool,
    is_over: bool,
    ends: Instant,
    beat: Instant,
    /// Bounds the streams open at once, and those of each caller.
    _waiting: Waiting,
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn open(app: Arc<App>, call: Call, bearer: Bearer, query: Query<EpochEventsQuery>) -> HandlerResult {
    let epoch = query.0.epoch.as_deref().map(epoch_of).transpose()?;
    app.allow(&bearer, READ, epoch.as_ref().map_or("", EpochId::as_str))?;
    let now = clock::now();
    let feed = EpochFeed {
        _waiting: call.wait()?,
        events: app.rewarder.watch_events(),
        stopping: app.rewarder.watch_stopping(),
        app,
        bearer,
        epoch,
        is_new: true,
        is_over: false,
        ends: now + STREAM_TIME_MAX,
        beat: now + BEAT_EVERY,
    };
    let frames = stream::unfold(feed, |mut feed| async {
        let text = Box::pin(feed.next()).await?;
        Some((Ok::<_, Infallible>(text), feed))
    });
    let mut response = Response::new(Body::from_stream(frames));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn frame(name: &str, data: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

impl EpochFeed {
    /// The next frame; none once the last was given.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        if self.is_new {
            self.is_new = false;
            return Some(frame("opened", &json!({"event": "opened"})));
        }
        loop {
            if self.stopping.borrow().draining {
                return Some(self.end("draining"));
            }
            if clock::now() >= self.beat {
                self.beat = clock::now() + BEAT_EVERY;
                return Some(self.look());
            }
            let heard = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| stopping.draining) => continue,
                heard = self.events.recv() => heard,
                () = tokio::time::sleep_until(self.beat) => continue,
            };
            match heard {
                None => return Some(self.end("draining")),
                Some(Heard::Missed(count)) => {
                    return Some(frame("missed", &json!({"event": "missed", "count": count})));
                }
                Some(Heard::Event(event)) if self.wants(&event) => {
                    let name = event.status.as_str();
                    return Some(frame(name, &json!(EpochEvent { event: name.to_owned(), epoch: Some(event.epoch) })));
                }
                Some(Heard::Event(_)) => {}
            }
        }
    }

    fn wants(&self, event: &RewardEvent) -> bool {
        self.epoch.as_ref().is_none_or(|epoch| epoch.as_str() == event.epoch)
    }

    /// A comment, or the end if the time is over or the token no longer allows it.
    fn look(&mut self) -> Bytes {
        let resource = self.epoch.as_ref().map_or("", EpochId::as_str);
        if clock::now() >= self.ends {
            return self.end("deadline");
        }
        if self.app.allow(&self.bearer, READ, resource).is_err() {
            return self.end("revoked");
        }
        Bytes::from_static(b": beat\n\n")
    }

    fn end(&mut self, reason: &str) -> Bytes {
        self.is_over = true;
        frame("end", &json!({"event": "end", "reason": reason}))
    }
}
