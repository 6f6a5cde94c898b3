//! Records in the network: looked for by walking towards their key, and placed there.

use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse as _;
use http::StatusCode;
use ron_kernel::clock;
use ron_store::wire::Question;
use ron_store::{ContentId, Name, PeerId, ProviderFields, ProviderRecord, PublicKey, Record, TTL_MAX_MS};
use ron_types::{Error, Kind};
use serde::Deserialize;
use svc_dht::capabilities::{ADMIN, READ};
use utoipa::ToSchema;

use super::words::{RecordWords, WalkAnswer};
use super::{App, Routes};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::{Json, JsonText, Path};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

/// Time of a walk: slow nodes are waited for, since the question is how the network stands.
const WALK_TIME: Duration = Duration::from_secs(10);
/// Time left of a request for writing down what a walk met.
const ANSWER_MARGIN: Duration = Duration::from_millis(250);
/// Life of a record unless said otherwise.
const TTL_DEFAULT: Duration = Duration::from_secs(24 * 3600);

static WALK: Operation = Operation::get(
    "/dht/records/{id}",
    "records",
    "walks towards an id (`b3:…`, a CID, `name:LABEL@KEY`, `peer:…`, `ipns:…`): whom it met, and what they had",
)
.allows(READ)
.deadline(WALK_TIME)
.answers::<WalkAnswer>();

static PROVIDE: Operation = Operation::post(
    "/dht/records/{id}",
    "records",
    "places a record that this node has some content (`b3:…` or a CID) at the nodes nearest to it",
)
.allows(ADMIN)
.body::<ProvideRequest>(r#"{"ttl_s":86400}"#)
.optional_body()
.answers::<RecordWords>()
.accepted()
.errors(&[Kind::Conflict]);

/// What to say beside the content.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ProvideRequest {
    /// Multiaddresses at which it can be had; those at which the node listens if not given.
    #[schema(max_items = 8)]
    addrs: Vec<String>,
    /// Seconds until the record ends; a day if not given, at most two.
    #[schema(minimum = 1, maximum = 172_800)]
    ttl_s: Option<u64>,
}

pub(super) const OPERATIONS: &[&Operation] = &[&WALK, &PROVIDE];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add(&WALK, with!(app, walk(call, bearer, id))).add(&PROVIDE, with!(app, provide(bearer, id, body)))
}

async fn walk(app: Arc<App>, call: Call, bearer: Bearer, id: Path<String>) -> HandlerResult {
    app.allow(&bearer, READ)?;
    let question = question_of(&id.0, app.key.node_id().into())?;
    let time = call.deadline.remaining().saturating_sub(ANSWER_MARGIN);
    let trace = Box::pin(app.dht.trace(question, ron_kernel::Deadline::after(time))).await;
    Ok(Json(WalkAnswer::of(id.0, &trace)).into_response())
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn provide(app: Arc<App>, bearer: Bearer, id: Path<String>, body: JsonText) -> HandlerResult {
    app.allow(&bearer, ADMIN)?;
    let content: ContentId = id.0.parse().map_err(|error| wrong(&format_args!("id: {error}")))?;
    let ProvideRequest { addrs, ttl_s } = body.parse_or_default()?;
    let addrs = match addrs.is_empty() {
        true => app.dht.listen_addrs(),
        false => addrs.iter().map(|addr| addr.parse()).collect::<Result<_, _>>().map_err(|e| wrong(&e))?,
    };
    if addrs.is_empty() {
        let detail = "the node listens nowhere yet, and no address was given";
        return Err(Error::new(Kind::Conflict, detail).into());
    }
    let now_ms = clock::unix_millis();
    let ttl_ms = ttl_s.map_or(TTL_DEFAULT.as_millis() as u64, |seconds| seconds.saturating_mul(1000));
    if !(1..=TTL_MAX_MS).contains(&ttl_ms) {
        return Err(wrong(&format_args!("ttl_s: 1 to {}", TTL_MAX_MS / 1000)));
    }
    let fields = ProviderFields {
        key: content.key(),
        peer: app.dht.peer_id(),
        addrs,
        protocols: Vec::new(),
        region: None,
        sequence: now_ms,
        issued_ms: now_ms,
        expires_ms: now_ms + ttl_ms,
    };
    let record = ProviderRecord::sign(fields, &app.key).map_err(|error| wrong(&error))?;
    let record = Record::Provider(record);
    app.dht.keep(record.clone())?;
    let mut response = Json(RecordWords::of(&record)).into_response();
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}

/// What an id asks the network. A name without an owner is this node's.
fn question_of(id: &str, own: PublicKey) -> Result<Question, Problem> {
    let peer = |text: &str| text.parse::<PeerId>().map_err(|error| wrong(&format_args!("id: {error}")));
    match id.split_once(':') {
        Some(("peer", text)) => Ok(Question::Peer(peer(text)?)),
        Some(("ipns", text)) => Ok(Question::Ipns(peer(text)?)),
        Some(("name", _)) => {
            let name: Name = id.parse().map_err(|error| wrong(&format_args!("id: {error}")))?;
            Ok(Question::Name { owner: name.owner().unwrap_or(own), label: name.label().to_owned() })
        }
        _ => {
            let content: ContentId = id.parse().map_err(|error| wrong(&format_args!("id: {error}")))?;
            Ok(Question::Providers(content.key()))
        }
    }
}

fn wrong(reason: &dyn std::fmt::Display) -> Problem {
    Problem::schema(StatusCode::BAD_REQUEST, reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_what_is_asked() {
        const PEER: &str = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
        let own = PublicKey([7; 32]);
        let asked = |id: &str| question_of(id, own).map_err(|problem| problem.status.as_u16());
        let peer: PeerId = PEER.parse().expect("a peer id");
        assert_eq!(asked(&format!("peer:{PEER}")), Ok(Question::Peer(peer)));
        assert_eq!(asked(&format!("ipns:{PEER}")), Ok(Question::Ipns(peer)));
        assert_eq!(asked("name:site"), Ok(Question::Name { owner: own, label: "site".to_owned() }));
        let cid = "bafkr4ideg6z2yocgkez77nr3outtvdnvjdcvqrs5phnqh7jvtrwnlpm5qu";
        assert_eq!(asked(cid), Ok(Question::Providers(ContentId::of_bytes(b"abc").key())));
        for wrong in ["", "peer:x", "name:X", "b3:00", PEER] {
            assert_eq!(asked(wrong), Err(400), "{wrong}");
        }
    }
}
