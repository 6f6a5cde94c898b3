//! The node's own operations: minting capabilities, and proving whose node it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::response::IntoResponse as _;
use ron_auth::{Asked, Authority, Capabilities, Grant};
use ron_kernel::clock;
use ron_types::Error;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::auth::Bearer;
use crate::extract::{Json, JsonText, Query};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::route::{ApiBuilder, Peer};
use crate::surface::{NODE, Surface};

static MINT: Operation = Operation::post("/v1/tokens", "tokens", "mints a token; only the operator may")
    .operator()
    .body::<MintRequest>(
        r#"{"subject":"billing","rights":["service:verb:orders","service:*:jobs.*"],
            "limits":{"service.limit":100},"expires_in_ms":86400000}"#,
    )
    .answers::<MintAnswer>();

static IDENTITY: Operation =
    Operation::get("/v1/identity", "tokens", "proves that the node knows its operator token, without showing it")
        .query::<IdentityRequest>()
        .answers::<IdentityAnswer>();

/// Operations of the node itself, which belong to no service.
pub static SURFACE: Surface = Surface {
    service: NODE,
    about: "Tokens are capabilities: each says who may do what to which resources, and until when.",
    tags: &["tokens"],
    operations: &[&MINT, &IDENTITY],
};

/// What the token allows, and whom. Rights are given in full, or for topics in short as `ops` and `topics`, or both.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MintRequest {
    /// Name of the bearer: 1 to 128 letters, digits or any of `-_.:@/`.
    subject: String,
    /// Rights, each as `service:verb:resource`; a `*` may stand for the verb and at the end of the resource.
    #[serde(default)]
    rights: Vec<String>,
    /// Limits by name, each as `service.limit`.
    #[serde(default)]
    limits: BTreeMap<String, u64>,
    /// Short form: each of these verbs of the service that has topics, or `all`…
    #[serde(default)]
    ops: Vec<String>,
    /// …on each of these topics; a `*` may stand at the end.
    #[serde(default)]
    topics: Vec<String>,
    /// Lifetime in milliseconds; unlimited if not given.
    #[schema(minimum = 1)]
    expires_in_ms: Option<u64>,
    /// Short form: messages sent in a second; 0 means none.
    sends_per_second: Option<u64>,
    /// Short form: bytes of the largest message sent: payload and attributes.
    payload_bytes_max: Option<u64>,
}

/// The token: keep it safe, it is not shown again.
#[derive(Serialize, ToSchema)]
struct MintAnswer {
    token: String,
}

/// What is to be proved anew.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct IdentityRequest {
    /// 64 hex digits, drawn anew for each question.
    nonce: String,
}

/// The proof: whoever knows the operator token can make the same one of the nonce, and nobody else.
#[derive(Serialize, ToSchema)]
struct IdentityAnswer {
    proof: String,
}

/// Parts of the node that its own operations use.
struct NodeApp {
    authority: Authority,
    /// Capabilities that the services of this node declare.
    known: Vec<&'static Capabilities>,
}

/// Adds the node's own operations; `known` is what its services let be granted.
pub fn node_routes(builder: ApiBuilder, authority: Authority, known: Vec<&'static Capabilities>) -> ApiBuilder {
    let app = Arc::new(NodeApp { authority: authority.clone(), known });
    let prover = Arc::clone(&app);
    let identity = move |Extension(peer): Extension<Peer>, Query(request): Query<IdentityRequest>| {
        let proof = peer.accepted_at.and_then(|at| prover.authority.prove_operator(&request.nonce, at));
        let proof = proof.ok_or_else(|| Error::schema("nonce: 64 hex digits, and a node with an operator token"));
        std::future::ready(proof.map(|proof| Json(IdentityAnswer { proof })).map_err(Problem::from))
    };
    let builder = builder.surface(&SURFACE).authority(&authority);
    builder.operation(&MINT, with!(app, mint(bearer, body))).operation(&IDENTITY, identity)
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn mint(app: Arc<NodeApp>, bearer: Bearer, body: JsonText) -> HandlerResult {
    bearer.allow_operator(&app.authority)?;
    let request: MintRequest = body.parse()?;
    let grant = request.grant(&app.known, clock::unix_millis())?;
    let token = app.authority.mint(&grant).map_err(|error| Error::schema(error.to_string()))?;
    Ok(Json(MintAnswer { token }).into_response())
}

impl MintRequest {
    fn grant(self, known: &[&'static Capabilities], now_ms: u64) -> Result<Grant, Error> {
        // With one of the two left out, whoever forgot it would get every verb or every topic.
        if self.ops.is_empty() != self.topics.is_empty() {
            return Err(Error::schema("ops and topics: give both, or neither"));
        }
        let asked = Asked {
            rights: &self.rights,
            limits: Some(&self.limits),
            ops: &self.ops,
            topics: &self.topics,
            short_limits: &[("sends_per_second", self.sends_per_second), ("payload_bytes_max", self.payload_bytes_max)],
        };
        let grant = granted(&asked, known, self.expires_in_ms, now_ms)?;
        Ok(Grant { subject: self.subject, ..grant })
    }
}

/// The grant that was asked for, without its subject.
pub(crate) fn granted(
    asked: &Asked<'_>,
    known: &[&'static Capabilities],
    expires_in_ms: Option<u64>,
    now_ms: u64,
) -> Result<Grant, Error> {
    let refused = |error: ron_auth::AskedError| Error::schema(error.to_string());
    Ok(Grant {
        subject: String::new(),
        rights: asked.rights(known).map_err(refused)?,
        limits: asked.limits(known).map_err(refused)?,
        expires_ms: expires_in_ms.map(|expires_in_ms| expiry(now_ms, expires_in_ms)).transpose()?,
    })
}

fn expiry(now_ms: u64, expires_in_ms: u64) -> Result<u64, Error> {
    let expires_ms = now_ms.checked_add(expires_in_ms).filter(|_| expires_in_ms > 0);
    expires_ms.ok_or_else(|| Error::schema("expires_in_ms: must be above 0 and not beyond all time"))
}

#[cfg(test)]
mod tests {
    use ron_auth::{Action, LimitSpec, VerbSpec};

    use super::*;

    const SEND: Action = Action::new("post:send");
    const ACK: Action = Action::new("post:ack");
    static POST: Capabilities = Capabilities {
        service: "post",
        resource: "topic",
        verbs: &[VerbSpec { action: SEND, does: "send" }, VerbSpec { action: ACK, does: "acknowledge" }],
        limits: &[LimitSpec { name: "post.sends_per_second", does: "messages sent in a second" }],
    };

    fn grant(text: &str) -> Result<Grant, String> {
        let request: MintRequest = serde_json::from_str(text).map_err(|error| error.to_string())?;
        request.grant(&[&POST], 1000).map_err(|error| error.detail.into_owned())
    }

    #[test]
    fn a_grant_is_what_was_asked_for_in_either_form() {
        let rights = ["post:send:t", "post:ack:t", "post:send:j.*", "post:ack:j.*"];
        let expected = Grant {
            subject: "a".into(),
            rights: rights.map(|right| right.parse().expect("valid")).into(),
            limits: BTreeMap::from([("post.sends_per_second".to_owned(), 7)]),
            expires_ms: Some(1005),
        };
        for form in [
            r#""ops":["send","ack"],"topics":["t","j.*"],"sends_per_second":7"#,
            r#""rights":["post:send:t","post:ack:t","post:send:j.*","post:ack:j.*"],
               "limits":{"post.sends_per_second":7}"#,
            r#""rights":["post:send:t","post:ack:t"],"ops":["send","ack"],"topics":["j.*"],
               "limits":{"post.sends_per_second":9},"sends_per_second":7"#,
        ] {
            let read = grant(&format!(r#"{{"subject":"a",{form},"expires_in_ms":5}}"#));
            assert_eq!(read.as_ref(), Ok(&expected), "{form}");
        }
        let every = grant(r#"{"subject":"a","rights":["post:*:t"]}"#).expect("valid");
        assert_eq!(every.rights.len(), POST.verbs.len());
    }

    #[test]
    fn mistakes_are_told_with_their_field_and_what_is_known() {
        for (text, said) in [
            (r#""ops":["sned"],"topics":["t"]"#, ["ops[0]", "send, ack"]),
            (r#""ops":["send"],"topics":["t","a b"]"#, ["topics[1]", "a b"]),
            (r#""ops":["send"]"#, ["ops and topics", "both"]),
            (r#""rights":["post:send:t","overlay:publish:t"]"#, ["rights[1]", "known: post"]),
            (r#""rights":["post:sned:t"]"#, ["rights[0]", "send, ack"]),
            (r#""limits":{"post.sends":1}"#, ["limits", "post.sends_per_second"]),
            (r#""rights":["post:send:t"],"expires_in_ms":0"#, ["expires_in_ms", "above 0"]),
            (r#""rights":["post:send:t"],"expires_in_ms":18446744073709551615"#, ["expires_in_ms", "all time"]),
            (r#""right":[]"#, ["unknown field", "rights"]),
        ] {
            let error = grant(&format!(r#"{{"subject":"a",{text}}}"#)).expect_err(text);
            assert!(error.starts_with(said[0]) && error.contains(said[1]), "{text}: {error}");
        }
    }
}
