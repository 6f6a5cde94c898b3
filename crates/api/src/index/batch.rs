//! Many ids at once: a line for each, in the order in which they are found out.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::Request;
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt as _, stream};
use http::{HeaderValue, StatusCode, header};
use ron_store::Subject;
use ron_types::Error;
use serde::{Deserialize, Serialize};
use svc_index::words::{Resolution, ResolveOptions};
use utoipa::ToSchema;

use super::lines::{self, LineLimits};
use super::resolve::ResolveQuery;
use super::words::ResolveAnswer;
use super::{Admitted, App, Asker, READERS, Routes, WHOLE_NODE, negotiation, subject_of};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

/// Ids of one batch.
const BATCH_MAX: usize = 100;
/// Ids of one batch that are looked up at once.
const BATCH_AT_ONCE: usize = 16;
/// Bytes of all lines of a batch.
const LINES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Providers of each id of a batch unless it says otherwise.
const PROVIDERS_DEFAULT: usize = 20;

static BATCH: Operation = Operation::post(
    "/resolve:batch",
    "lookups",
    "resolves many ids: a line for each, in the order in which they are found out; `asked` is the id as it was asked",
)
.needs(READERS)
.body::<ResolveBatchRequest>(
    r#"{"ids":["name:site","b3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"]}"#,
)
.streams::<BatchLine>();

/// What to resolve.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveBatchRequest {
    /// The ids, each once.
    #[schema(min_items = 1, max_items = 100)]
    ids: Vec<String>,
    /// Maximum providers of each; 20 if not given.
    #[schema(minimum = 1, maximum = 64)]
    max: Option<usize>,
    /// Ask the network, whatever the node knows.
    #[serde(default)]
    fresh: bool,
}

/// One line: the answer to one id, or why there is none.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum BatchLine {
    /// The answer, as `GET /resolve/{id}` gives it.
    Answer {
        /// The id as it was asked.
        asked: String,
        #[serde(flatten)]
        answer: Box<ResolveAnswer<'static>>,
    },
    /// The refusal of one id; the others go on.
    Refused {
        /// The id as it was asked.
        asked: String,
        /// Code of the refusal.
        code: &'static str,
        /// What happened.
        detail: String,
    },
}

pub(super) const OPERATIONS: &[&Operation] = &[&BATCH];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add_open(&BATCH, with!(app, batch(asker, request)))
}

async fn batch(app: Arc<App>, asker: Asker, request: Request) -> HandlerResult {
    // Whoever has no question left is told so before anything is read. Each id then is a question of its own.
    let Admitted { tenant, .. } = app.admit(&asker, &WHOLE_NODE)?;
    let takes_gzip = negotiation::takes_gzip(request.headers());
    let body = app.read(&asker.call, request).await?;
    let ResolveBatchRequest { ids, max, fresh } = body.parse()?;
    let query = ResolveQuery::new(Some(max.unwrap_or(PROVIDERS_DEFAULT)), fresh);
    let options = query.options(asker.address)?;
    let asked = read(ids)?;
    let answers = answers(app, Batcher { tenant, address: asker.address }, asked, options);
    let limits = LineLimits { lines_max: BATCH_MAX, bytes_max: LINES_BYTES_MAX };
    let mut response = lines::response(Box::pin(answers), limits, takes_gzip);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// A body as the route reads it, up to the first question.
pub(super) fn read_any(bytes: &[u8]) -> bool {
    serde_json::from_slice::<ResolveBatchRequest>(bytes).is_ok_and(|request| read(request.ids).is_ok())
}

/// Every id with what it names. One that names nothing refuses the batch: its caller has made a mistake.
fn read(ids: Vec<String>) -> Result<VecDeque<(String, Subject)>, Problem> {
    if !(1..=BATCH_MAX).contains(&ids.len()) {
        let detail = format!("ids: 1 to {BATCH_MAX}, not {}", ids.len());
        return Err(Problem::schema(StatusCode::BAD_REQUEST, detail));
    }
    let mut asked = VecDeque::with_capacity(ids.len());
    for (number, id) in ids.into_iter().enumerate() {
        let subject = subject_of(&id).map_err(|problem| {
            Problem::schema(StatusCode::BAD_REQUEST, format!("ids[{number}]: {}", problem.detail))
        })?;
        asked.push_back((id, subject));
    }
    Ok(asked)
}

/// Whose questions the ids of a batch are.
struct Batcher {
    tenant: Arc<str>,
    address: IpAddr,
}

impl Batcher {
    /// Asks one id, if the address has a question left: a batch is no way around what single questions are held to.
    async fn ask(&self, app: &App, subject: Subject, options: ResolveOptions) -> Result<Resolution, Error> {
        let _slot = app.index.admit(self.address)?;
        app.index.resolve(&self.tenant, subject, options).await
    }
}

/// The answers as they come. A few are asked for at once, so that one caller's batch does not fill the queue.
fn answers(
    app: Arc<App>,
    batcher: Batcher,
    mut waiting: VecDeque<(String, Subject)>,
    options: ResolveOptions,
) -> impl futures_util::Stream<Item = BatchLine> + Send {
    let batcher = Arc::new(batcher);
    let ask = move |(asked, subject): (String, Subject)| {
        let (app, batcher) = (Arc::clone(&app), Arc::clone(&batcher));
        async move { line(asked, batcher.ask(&app, subject, options).await, options.max) }
    };
    let first = waiting.drain(..waiting.len().min(BATCH_AT_ONCE)).map(&ask).collect::<FuturesUnordered<_>>();
    stream::unfold((first, waiting, ask), |(mut under_way, mut waiting, ask)| async move {
        let line = under_way.next().await?;
        under_way.extend(waiting.pop_front().map(&ask));
        Some((line, (under_way, waiting, ask)))
    })
}

fn line(asked: String, resolved: Result<Resolution, Error>, max: usize) -> BatchLine {
    match resolved {
        Ok(resolution) => BatchLine::Answer { asked, answer: Box::new(ResolveAnswer::of(&resolution, max)) },
        Err(error) => BatchLine::Refused { asked, code: error.kind.code(), detail: error.detail.into_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_bounded_and_a_wrong_id_is_named() {
        let of = |ids: Vec<&str>| read(ids.into_iter().map(str::to_owned).collect()).map(|asked| asked.len());
        assert_eq!(of(vec!["name:a"; BATCH_MAX]).ok(), Some(BATCH_MAX));
        assert!(of(vec!["name:a"; BATCH_MAX + 1]).is_err());
        assert!(of(Vec::new()).is_err());
        let problem = of(vec!["name:a", "nonsense"]).expect_err("no id");
        assert!(problem.detail.starts_with("ids[1]: "), "{}", problem.detail);
    }
}
