//! What changes about an id, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderName, HeaderValue, header};
use ron_kernel::clock;
use ron_kernel::shutdown::Stopping;
use ron_store::Subject;
use ron_types::Error;
use svc_index::Watch;
use svc_index::capabilities::READ;
use svc_index::config::Access;
use tokio::sync::watch;
use tokio::time::Instant;

use super::words::ChangeWords;
use super::{App, Asker, READERS, Routes, subject_of};
use crate::admission::Waiting;
use crate::extract::Path;
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

/// Pause between two signs of life, so that both sides notice a connection that is gone.
const BEAT_EVERY: Duration = Duration::from_secs(15);
/// Pause between two checks of the token, which may expire or be revoked while the stream is open.
const RECHECK_EVERY: Duration = Duration::from_secs(5);
/// Time a reader is told to wait before it comes back, in milliseconds.
const RETRY_MS: u32 = 1000;
/// Comment that shows a reader that the stream is alive.
const BEAT: &[u8] = b": keep-alive\n\n";
/// Tells proxies of the nginx family to pass events on as they come.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

static WATCH: Operation = Operation::get(
    "/watch/{id}",
    "lookups",
    "what changes about an id from now on, as server-sent events `ready`, `provider`, `name`, `manifest`, `missed` and \
     `end`",
)
.needs(READERS)
.event_stream::<ChangeWords>();

pub(super) const OPERATIONS: &[&Operation] = &[&WATCH];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add_open(&WATCH, with!(app, watch(asker, id)))
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn watch(app: Arc<App>, asker: Asker, id: Path<String>) -> HandlerResult {
    let subject = subject_of(&id.0)?;
    Ok(open(app, asker, subject)?)
}

/// Opens the stream of changes of a subject for somebody who may read it.
pub(super) fn open(app: Arc<App>, asker: Asker, subject: Subject) -> Result<Response, Error> {
    let resource = subject.to_string();
    // The address has a share of what waits, so that its share of questions is given back at once.
    drop(app.admit(&asker, &resource)?);
    let waiting = asker.call.wait()?;
    let (changes, stopping, now) = (app.index.watch(&subject)?, app.kernel.watch_stopping(), clock::now());
    let (beat, recheck) = (now + BEAT_EVERY, now + RECHECK_EVERY);
    let stage = Stage::Opening;
    let feed = Feed { app, asker, resource, changes, stopping, stage, beat, recheck, _waiting: waiting };
    let pieces = stream::unfold(feed, |mut feed| async {
        let text = Box::pin(feed.next()).await?;
        Some((Ok::<_, Infallible>(text), feed))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening,
    Running,
    Ended,
}

/// An open stream with what it needs to know when to end.
struct Feed {
    app: Arc<App>,
    asker: Asker,
    resource: String,
    changes: Watch,
    stopping: watch::Receiver<Stopping>,
    stage: Stage,
    beat: Instant,
    recheck: Instant,
    /// Bounds the streams open at once, and those of each caller.
    _waiting: Waiting,
}

impl Feed {
    /// The next piece of text; none once the last was given.
    async fn next(&mut self) -> Option<Bytes> {
        let mut text = Vec::new();
        match self.stage {
            Stage::Ended => return None,
            Stage::Opening => {
                self.stage = Stage::Running;
                text.extend_from_slice(format!("retry: {RETRY_MS}\n").as_bytes());
                ChangeWords::Ready { id: self.resource.clone() }.append_to(&mut text);
            }
            Stage::Running => self.step(&mut text).await,
        }
        Some(text.into())
    }

    /// Waits until there is something to say, and says it.
    async fn step(&mut self, text: &mut Vec<u8>) {
        loop {
            let now = clock::now();
            if self.stopping.borrow().draining {
                return self.end("draining", text);
            }
            if now >= self.recheck {
                self.recheck = now + RECHECK_EVERY;
                if !self.may_read() {
                    return self.end("revoked", text);
                }
            }
            if now >= self.beat {
                self.beat = now + BEAT_EVERY;
                text.extend_from_slice(BEAT);
                return;
            }
            tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| stopping.draining) => {}
                change = self.changes.next() => return ChangeWords::of(&change).append_to(text),
                () = tokio::time::sleep_until(self.beat.min(self.recheck)) => {}
            }
        }
    }

    fn end(&mut self, reason: &'static str, text: &mut Vec<u8>) {
        self.stage = Stage::Ended;
        ChangeWords::End { reason }.append_to(text);
    }

    /// Whether the reader may still read, now that settings and tokens may have changed.
    fn may_read(&self) -> bool {
        match (&self.asker.call.bearer, self.app.index.access()) {
            (_, Access::Public) => true,
            (None, Access::Token) => false,
            (Some(bearer), Access::Token) => bearer.allow(&self.app.authority, READ, &self.resource).is_ok(),
        }
    }
}
