//! The peers nearest to a key (IPIP-476), for clients that place or look for records themselves.

use std::fmt;
use std::sync::Arc;

use futures_util::stream;
use http::HeaderMap;
use ron_store::{ContentId, Key, PeerId};
use ron_types::Kind;
use ron_types::limits::index::{CLOSEST_AT_ONCE_MAX, CLOSEST_PEERS_MAX};
use svc_index::words::Outcome;

use super::cross_origin::{PageMethods, READ_ERRORS};
use super::filters::Filters;
use super::negotiation::{Form, JSON, NDJSON, Negotiated};
use super::routing::{Envelope, FilterQuery, document, streamed, unreadable, words};
use super::{App, Asker, READERS, Routes, cross_origin};
use crate::extract::{Path, Query};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

const PATTERN: &str = "/routing/v1/dht/closest/peers/{key}";

static CLOSEST: Operation = Operation::get(
    PATTERN,
    "routing",
    "the peers of this network nearest to a CID or a peer id, nearest first, 20 at most; nobody is 200 with nothing in \
     it, an unreadable key 422",
)
.needs(READERS)
.query::<FilterQuery>()
.speaks(&[], &[JSON, NDJSON])
.error_formats(&READ_ERRORS)
.errors(&[Kind::Integrity])
// Where not every peer is known, each of these asks a few dozen of them.
.concurrency(CLOSEST_AT_ONCE_MAX)
.open_to_pages();

static CLOSEST_OPTIONS: Operation = Operation::options(PATTERN, "routing", "tells browsers that every page may ask")
    .error_formats(&READ_ERRORS)
    .open_to_pages();

pub(super) const OPERATIONS: &[&Operation] = &[&CLOSEST, &CLOSEST_OPTIONS];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add_open(&CLOSEST, with!(app, closest(asker, headers, key, query)))
        .add(&CLOSEST_OPTIONS, async || cross_origin::preflight(PageMethods::Read))
}

async fn closest(
    app: Arc<App>,
    asker: Asker,
    headers: HeaderMap,
    key: Path<String>,
    query: Query<Vec<(String, String)>>,
) -> HandlerResult {
    let wanted = Wanted::of(&key.0)?;
    let filters = Filters::read(&query.0)?;
    let negotiated = Negotiated::of(&headers)?;
    let admitted = app.admit(&asker, &wanted)?;
    let found = app.index.closest_peers(&admitted.tenant, wanted.key(), CLOSEST_PEERS_MAX).await;
    let shown = found.into_iter().filter_map(|near| words(&filters, &near.peer, near.addrs, Vec::new()));
    let shown: Vec<_> = shown.collect();
    // What the node knows of its network is all that is asked for, so that nobody is an answer.
    let outcome = Outcome::Found;
    match negotiated.form {
        Form::Json => Ok(document(Envelope::Peers(shown), outcome, &admitted, negotiated)),
        Form::Ndjson => Ok(streamed(stream::iter(shown), || outcome, admitted, negotiated).await),
    }
}

/// Whose nearest peers are asked for. A text that can be both, `Qm…`, has one position as either.
enum Wanted {
    Peer(PeerId),
    Content(ContentId),
}

impl Wanted {
    fn of(text: &str) -> Result<Self, Problem> {
        match text.parse::<PeerId>() {
            Ok(peer) => Ok(Wanted::Peer(peer)),
            Err(_) => text.parse::<ContentId>().map(Wanted::Content).map_err(|error| unreadable("key", &error)),
        }
    }

    fn key(&self) -> Key {
        match self {
            Wanted::Peer(peer) => peer.key(),
            Wanted::Content(content) => content.key(),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Peer(peer) => peer.fmt(f),
            Wanted::Content(content) => content.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_content_or_a_peer() {
        const PEER: &str = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
        const BOTH: &str = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N";
        let key = |text: &str| Wanted::of(text).map(|it| it.key()).map_err(|problem| problem.status.as_u16());
        let peer: PeerId = PEER.parse().expect("a peer id");
        assert_eq!(key(PEER), Ok(peer.key()));
        let cid = "bafkr4ideg6z2yocgkez77nr3outtvdnvjdcvqrs5phnqh7jvtrwnlpm5qu";
        assert_eq!(key(cid), Ok(ContentId::of_bytes(b"abc").key()));
        let content: ContentId = BOTH.parse().expect("a CID of version 0");
        assert_eq!(key(BOTH), Ok(content.key()));
        for wrong in ["", "nonsense", "b3:00"] {
            assert_eq!(key(wrong), Err(422), "{wrong}");
        }
    }
}
