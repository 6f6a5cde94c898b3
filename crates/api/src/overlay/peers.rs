//! Peers of the node: how they stand, and which ones it keeps sessions with.

use std::sync::Arc;

use axum::response::IntoResponse as _;
use http::StatusCode;
use ron_transport::PeerAddress;
use ron_types::{Error, Kind};
use svc_overlay::capabilities::ADMIN;

use super::words::{PeerAdded, PeerRequest, PeersAnswer};
use super::{App, Routes, node_id_of};
use crate::auth::Bearer;
use crate::extract::{Json, JsonText, Path};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

static PEERS: Operation =
    Operation::get("/overlay/peers", "peers", "how the node stands with each of its peers, and its own id and address")
        .allows(ADMIN)
        .answers::<PeersAnswer>();

static ADD_PEER: Operation =
    Operation::post("/overlay/peers", "peers", "keeps a session with a node from now on; asked again, nothing changes")
        .allows(ADMIN)
        .body::<PeerRequest>(
            r#"{"node_id":"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a","addr":"127.0.0.1:9501"}"#,
        )
        .answers::<PeerAdded>()
        .accepted();

static REMOVE_PEER: Operation =
    Operation::delete("/overlay/peers/{node_id}", "peers", "ends the session with a node and no longer dials it")
        .allows(ADMIN)
        .errors(&[Kind::NotFound]);

pub(super) const OPERATIONS: &[&Operation] = &[&PEERS, &ADD_PEER, &REMOVE_PEER];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add(&PEERS, with!(app, list(bearer)))
        .add(&ADD_PEER, with!(app, add(bearer, body)))
        .add(&REMOVE_PEER, with!(app, remove(bearer, node_id)))
}

async fn list(app: Arc<App>, bearer: Bearer) -> HandlerResult {
    app.allow_admin(&bearer)?;
    let peers = app.overlay.peers().await?.into_iter().map(Into::into).collect();
    let node_id = app.overlay.node_id().to_string();
    let listen = app.overlay.listen().map(|address| address.to_string());
    Ok(Json(PeersAnswer { node_id, listen, peers }).into_response())
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn add(app: Arc<App>, bearer: Bearer, body: JsonText) -> HandlerResult {
    app.allow_admin(&bearer)?;
    let PeerRequest { node_id, addr } = body.parse()?;
    let address = PeerAddress::new(node_id_of(&node_id)?, &addr)
        .map_err(|error| Problem::schema(StatusCode::BAD_REQUEST, format!("addr: {error}")))?;
    let addr = address.address();
    app.overlay.add_peer(address)?;
    Ok((StatusCode::ACCEPTED, Json(PeerAdded { node_id, addr })).into_response())
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn remove(app: Arc<App>, bearer: Bearer, node_id: Path<String>) -> HandlerResult {
    app.allow_admin(&bearer)?;
    if app.overlay.remove_peer(node_id_of(&node_id.0)?) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Err(Error::new(Kind::NotFound, "no peer of this node has this id").into())
}
