//! The nodes of the network, and joining it.

use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse as _;
use http::StatusCode;
use ron_store::{Multiaddr, PeerId};
use serde::{Deserialize, Serialize};
use svc_dht::capabilities::{ADMIN, READ};
use utoipa::ToSchema;

use super::words::DhtPeersAnswer;
use super::{App, Routes};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::{Json, JsonText};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

/// Time left of a request for saying that a node was not reached.
const ANSWER_MARGIN: Duration = Duration::from_millis(250);
/// Addresses that one request may name.
const ADDRS_MAX: usize = 8;

static PEERS: Operation =
    Operation::get("/dht/peers", "network", "how the node stands in its network, and every node it knows")
        .allows(READ)
        .answers::<DhtPeersAnswer>();

static BOOTSTRAP: Operation = Operation::post(
    "/dht/bootstrap",
    "network",
    "joins the network anew: dials the bootstrap list, or the node that is named, and looks the neighbourhood up; 503 if \
     the node that is named cannot be reached",
)
.allows(ADMIN)
.deadline(Duration::from_secs(10))
.body::<BootstrapRequest>(
    r#"{"peer_id":"12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN","addrs":["/ip4/127.0.0.1/tcp/4001"]}"#,
)
.optional_body()
.answers::<BootstrapAnswer>();

/// Whom to dial, beside the bootstrap list.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BootstrapRequest {
    /// Peer id of a node.
    peer_id: Option<String>,
    /// Multiaddresses of it.
    #[schema(max_items = 8)]
    addrs: Vec<String>,
}

/// The network after joining it anew.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BootstrapAnswer {
    /// Nodes known now.
    peers: usize,
}

pub(super) const OPERATIONS: &[&Operation] = &[&PEERS, &BOOTSTRAP];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add(&PEERS, with!(app, peers(bearer))).add(&BOOTSTRAP, with!(app, bootstrap(call, bearer, body)))
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn peers(app: Arc<App>, bearer: Bearer) -> HandlerResult {
    app.allow(&bearer, READ)?;
    Ok(Json(DhtPeersAnswer::of(&app.dht.standing(), &app.dht.peers())).into_response())
}

async fn bootstrap(app: Arc<App>, call: Call, bearer: Bearer, body: JsonText) -> HandlerResult {
    app.allow(&bearer, ADMIN)?;
    if let Some((peer, addrs)) = body.parse_or_default::<BootstrapRequest>()?.named()? {
        // Answered before the deadline, so that its caller hears who was not reached.
        app.dht.reach(peer, addrs, call.deadline.earlier_by(ANSWER_MARGIN)).await?;
    }
    let peers = app.dht.bootstrap(call.deadline).await?;
    Ok(Json(BootstrapAnswer { peers }).into_response())
}

impl BootstrapRequest {
    /// The node that is named; none if the body names nobody.
    fn named(&self) -> Result<Option<(PeerId, Vec<Multiaddr>)>, Problem> {
        let Some(peer_id) = &self.peer_id else {
            return match self.addrs.is_empty() {
                true => Ok(None),
                false => Err(wrong("addrs: a peer_id belongs to them")),
            };
        };
        let peer = peer_id.parse().map_err(|error| wrong(format!("peer_id: {error}")))?;
        if !(1..=ADDRS_MAX).contains(&self.addrs.len()) {
            return Err(wrong(format!("addrs: 1 to {ADDRS_MAX}, not {}", self.addrs.len())));
        }
        let addrs = self.addrs.iter().map(|addr| addr.parse().map_err(|error| wrong(format!("addrs: {error}"))));
        Ok(Some((peer, addrs.collect::<Result<_, _>>()?)))
    }
}

fn wrong(detail: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
    Problem::schema(StatusCode::BAD_REQUEST, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_with_its_addresses_or_not_at_all() {
        const PEER: &str = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
        let named = |text: &str| {
            let request: BootstrapRequest = JsonText::of(text).parse_or_default().map_err(|_| ())?;
            request.named().map(|named| named.is_some()).map_err(|_| ())
        };
        assert_eq!(named(""), Ok(false));
        assert_eq!(named("{}"), Ok(false));
        let whole = format!(r#"{{"peer_id":"{PEER}","addrs":["/ip4/127.0.0.1/tcp/1"]}}"#);
        assert_eq!(named(&whole), Ok(true));
        for wrong in [
            format!(r#"{{"peer_id":"{PEER}"}}"#),
            r#"{"addrs":["/ip4/127.0.0.1/tcp/1"]}"#.to_owned(),
            whole.replace("tcp/1", "tcp/x"),
            whole.replace("12D3", "xxxx"),
            whole.replace("addrs", "addr"),
        ] {
            assert_eq!(named(&wrong), Err(()), "{wrong}");
        }
    }
}
