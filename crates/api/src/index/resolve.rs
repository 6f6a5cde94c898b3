//! What an id stands for and who has it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderValue, header};
use ron_types::Error;
use ron_types::limits::index::PROVIDERS_MAX;
use serde::Deserialize;
use svc_index::config::Access;
use svc_index::words::{MadeAnswer, Outcome, Resolution, ResolveOptions};
use utoipa::ToSchema;

use super::caching::HeldTags;
use super::negotiation::JSON;
use super::words::{Circumstances, Finding, ResolveAnswer};
use super::{App, Asker, READERS, Routes, caching, subject_of};
use crate::extract::{Path, Query};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

static RESOLVE: Operation = Operation::get(
    "/resolve/{id}",
    "lookups",
    "what an id (`b3:…`, a CID, `name:…`) stands for and who has it; that nothing was found is an answer too, and \
     `outcome` says how much it is worth",
)
.needs(READERS)
.query::<ResolveQuery>()
.answers::<ResolveAnswer<'static>>();

/// How to look.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ResolveQuery {
    /// Maximum providers in the answer.
    #[schema(minimum = 1, maximum = 64)]
    max: Option<usize>,
    /// Ask the network, whatever the node knows.
    fresh: bool,
    /// Milliseconds for the whole answer, if less than the node would take.
    #[schema(minimum = 1)]
    budget_ms: Option<u64>,
}

impl ResolveQuery {
    pub(super) fn new(max: Option<usize>, fresh: bool) -> Self {
        ResolveQuery { max, fresh, budget_ms: None }
    }

    /// As the index takes it, for a question from this address.
    pub(super) fn options(self, from: IpAddr) -> Result<ResolveOptions, Error> {
        let max = self.max.unwrap_or(PROVIDERS_MAX);
        if !(1..=PROVIDERS_MAX).contains(&max) {
            return Err(Error::schema(format!("max: 1 to {PROVIDERS_MAX}, not {max}")));
        }
        if self.budget_ms == Some(0) {
            return Err(Error::schema("budget_ms: at least 1"));
        }
        let budget = self.budget_ms.map(Duration::from_millis);
        Ok(ResolveOptions { budget, fresh: self.fresh, max, from: Some(from) })
    }
}

pub(super) const OPERATIONS: &[&Operation] = &[&RESOLVE];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add_open(&RESOLVE, with!(app, resolve(asker, held, id, query)))
}

async fn resolve(
    app: Arc<App>,
    asker: Asker,
    held: HeldTags,
    id: Path<String>,
    query: Query<ResolveQuery>,
) -> HandlerResult {
    let subject = subject_of(&id.0)?;
    let options = query.0.options(asker.address)?;
    let admitted = app.admit(&asker, &subject)?;
    let resolution = app.index.resolve(&admitted.tenant, subject, options).await?;
    let made = Made::of(&resolution, options.max);
    let mut response = Response::default();
    let answer = response.headers_mut();
    answer.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    answer.insert(header::ETAG, made.etag_value());
    answer.insert(header::CACHE_CONTROL, life(admitted.access, &resolution));
    if held.has(made.etag()) {
        return Ok(caching::not_modified(response));
    }
    *response.body_mut() = Body::from(made.body(&resolution));
    Ok(response)
}

/// How long the answer may be kept by others: as long as the node itself would use it.
fn life(access: Access, resolution: &Resolution) -> HeaderValue {
    let is_certain = matches!(resolution.outcome, Outcome::Found | Outcome::Absent);
    let seconds = resolution.fresh_for.as_secs();
    match is_certain && seconds > 0 {
        true => caching::life(access, format_args!("max-age={seconds}")),
        false => HeaderValue::from_static("no-store"),
    }
}

/// The finding of an answer as JSON behind its tag. Answers out of the cache share one: writing it anew for each took
/// most of the time of a hit.
struct Made(Bytes);

/// `W/"`, 32 hex digits, `"`: weak, because age and time taken are not part of it.
const ETAG_BYTES: usize = 36;

impl Made {
    fn of(resolution: &Resolution, max: usize) -> Self {
        if max <= resolution.providers.len() {
            return Made::new(resolution, max);
        }
        let subject = &resolution.subject;
        let make = || MadeAnswer { subject: subject.clone(), bytes: Made::new(resolution, max).0 };
        let shared = resolution.made.get_or_init(make);
        // Ids that differ in their codec alone share an entry of the cache, but not their name.
        if shared.subject == *subject { Made(shared.bytes.clone()) } else { Made::new(resolution, max) }
    }

    fn new(resolution: &Resolution, max: usize) -> Self {
        let finding = serde_json::to_vec(&Finding::of(resolution, max)).expect("strings and numbers can be written");
        let digest = blake3::hash(&finding).to_hex();
        let mut made = BytesMut::with_capacity(ETAG_BYTES + finding.len());
        made.put_slice(format!("W/\"{}\"", &digest[..32]).as_bytes());
        made.put_slice(&finding);
        Made(made.freeze())
    }

    fn etag(&self) -> &str {
        std::str::from_utf8(&self.0[..ETAG_BYTES]).expect("hexadecimal digits")
    }

    /// The tag as a header, in the same memory.
    fn etag_value(&self) -> HeaderValue {
        HeaderValue::from_maybe_shared(self.0.slice(..ETAG_BYTES)).expect("hexadecimal digits")
    }

    /// The whole answer: circumstances first, then the finding, as one object.
    fn body(&self, resolution: &Resolution) -> Bytes {
        let finding = &self.0[ETAG_BYTES..];
        let mut text = Vec::with_capacity(finding.len() + 128);
        serde_json::to_writer(&mut text, &Circumstances::of(resolution)).expect("strings and numbers can be written");
        // Both objects have fields, so a comma joins them.
        text.pop();
        text.push(b',');
        text.extend_from_slice(&finding[1..]);
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use utoipa::PartialSchema as _;

    use super::super::batch::ResolveBatchRequest;
    use super::*;

    #[test]
    fn the_description_names_the_maximum_that_the_node_holds_to() {
        let from = IpAddr::from([192, 0, 2, 1]);
        let asks = |max| ResolveQuery { max: Some(max), ..ResolveQuery::default() }.options(from).is_ok();
        assert!(asks(PROVIDERS_MAX) && !asks(PROVIDERS_MAX + 1) && asks(1) && !asks(0));
        for schema in [ResolveQuery::schema(), ResolveBatchRequest::schema()] {
            let schema = serde_json::to_value(&schema).expect("JSON");
            let max = &schema["properties"]["max"];
            assert_eq!((max["minimum"].as_u64(), max["maximum"].as_u64()), (Some(1), Some(PROVIDERS_MAX as u64)));
        }
    }
}
