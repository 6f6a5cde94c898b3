//! The node's own operations: minting capabilities.

use std::sync::Arc;

use axum::response::IntoResponse as _;
use ron_auth::{Authority, Grant, Op};
use ron_kernel::clock;
use ron_types::Error;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::auth::Bearer;
use crate::extract::{Json, JsonText};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::route::ApiBuilder;
use crate::surface::{NODE, Surface};

static MINT: Operation = Operation::post("/v1/tokens", "tokens", "mints a token; only the operator may")
    .allows(Op::Admin)
    .body::<MintRequest>(
        r#"{"subject":"billing","ops":["send","recv","ack"],"topics":["orders","jobs.*"],"expires_in_ms":86400000}"#,
    )
    .answers::<MintAnswer>();

/// What belongs to the node and to no service of it.
pub static SURFACE: Surface = Surface {
    service: NODE,
    about: "Tokens are capabilities: each says who may do what to which resources, and until when.",
    tags: &["tokens"],
    operations: &[&MINT],
};

/// What the token allows, and whom.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MintRequest {
    /// For whom: 1 to 128 letters, digits or any of `-_.:@/`.
    subject: String,
    /// Each of these: `send`, `recv`, `ack`, `nack`, `admin`…
    #[schema(min_items = 1)]
    ops: Vec<String>,
    /// …on each of these topics; a `*` may stand at the end.
    #[schema(min_items = 1)]
    topics: Vec<String>,
    /// For how long; for ever if not given.
    #[schema(minimum = 1)]
    expires_in_ms: Option<u64>,
    /// Messages it may send in a second.
    sends_per_second: Option<u32>,
    /// Largest payload it may send.
    payload_bytes_max: Option<u32>,
}

/// The token: keep it safe, it is not shown again.
#[derive(Serialize, ToSchema)]
struct MintAnswer {
    token: String,
}

/// Adds the node's own operations.
pub fn node_routes(builder: ApiBuilder, authority: Authority) -> ApiBuilder {
    let authority = Arc::new(authority);
    builder.surface(&SURFACE).operation(&MINT, with!(authority, mint(bearer, body)))
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn mint(authority: Arc<Authority>, bearer: Bearer, body: JsonText) -> HandlerResult {
    bearer.allow_operator(&authority)?;
    let request: MintRequest = body.parse()?;
    let grant = request.grant(clock::unix_millis())?;
    let token = authority.mint(&grant).map_err(|error| Error::schema(error.to_string()))?;
    Ok(Json(MintAnswer { token }).into_response())
}

impl MintRequest {
    fn grant(self, now_ms: u64) -> Result<Grant, Error> {
        Ok(Grant {
            subject: self.subject,
            ops: all("ops", &self.ops)?,
            topics: all("topics", &self.topics)?,
            sends_per_second: self.sends_per_second,
            payload_bytes_max: self.payload_bytes_max,
            expires_ms: self.expires_in_ms.map(|expires_in_ms| expiry(now_ms, expires_in_ms)).transpose()?,
        })
    }
}

pub(crate) fn all<T: std::str::FromStr<Err: std::fmt::Display>>(
    field: &str,
    texts: &[String],
) -> Result<Vec<T>, Error> {
    let read =
        |(at, text): (usize, &String)| text.parse().map_err(|error| Error::schema(format!("{field}[{at}]: {error}")));
    texts.iter().enumerate().map(read).collect()
}

pub(crate) fn expiry(now_ms: u64, expires_in_ms: u64) -> Result<u64, Error> {
    let expires_ms = now_ms.checked_add(expires_in_ms).filter(|_| expires_in_ms > 0);
    expires_ms.ok_or_else(|| Error::schema("expires_in_ms: must be above 0 and not beyond all time"))
}

#[cfg(test)]
mod tests {
    use ron_auth::TopicScope;

    use super::*;

    fn grant(text: &str) -> Result<Grant, String> {
        let request: MintRequest = serde_json::from_str(text).map_err(|error| error.to_string())?;
        request.grant(1000).map_err(|error| error.detail.into_owned())
    }

    #[test]
    fn a_grant_is_what_was_asked_for() {
        let read = grant(r#"{"subject":"a","ops":["send","ack"],"topics":["t","j.*"],"expires_in_ms":5}"#);
        let expected = Grant {
            subject: "a".into(),
            ops: vec![Op::Send, Op::Ack],
            topics: vec![TopicScope::Exact("t".into()), TopicScope::Prefix("j.".into())],
            expires_ms: Some(1005),
            ..Grant::default()
        };
        assert_eq!(read, Ok(expected));
        for (text, field) in [
            (r#"{"subject":"a","ops":["sned"],"topics":["t"]}"#, "ops[0]"),
            (r#"{"subject":"a","ops":["send"],"topics":["t","a b"]}"#, "topics[1]"),
            (r#"{"subject":"a","ops":["send"],"topics":["t"],"expires_in_ms":0}"#, "expires_in_ms"),
            (r#"{"subject":"a","ops":["send"],"topics":["t"],"expires_in_ms":18446744073709551615}"#, "expires_in_ms"),
        ] {
            let error = grant(text).expect_err(text);
            assert!(error.starts_with(field), "{text}: {error}");
        }
    }
}
