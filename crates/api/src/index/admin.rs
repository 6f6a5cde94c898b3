//! What an operator does to the index: pin, unpin, look up again.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::IntoResponse as _;
use http::{HeaderMap, HeaderName};
use ron_types::limits::index::IDEMPOTENCY_KEY_BYTES_MAX;
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use svc_index::capabilities::ADMIN;
use svc_index::words::{AdminAction, AdminRequest};
use utoipa::ToSchema;

use super::{App, Routes, subject_of};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::Json;
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const EXAMPLE: &str = r#"{"id":"name:site"}"#;

static PIN: Operation = Operation::post(
    "/admin/pin",
    "upkeep",
    "keeps what is known of an id; with the header Idempotency-Key once in a day, however often it is asked",
)
.allows(ADMIN)
.body::<AdminBody>(EXAMPLE)
.answers::<AdminAnswer>()
.errors(&[Kind::Conflict]);

static UNPIN: Operation = Operation::post(
    "/admin/unpin",
    "upkeep",
    "keeps what is known of an id no longer than of others; takes Idempotency-Key",
)
.allows(ADMIN)
.body::<AdminBody>(EXAMPLE)
.answers::<AdminAnswer>()
.errors(&[Kind::Conflict]);

static REINDEX: Operation = Operation::post(
    "/admin/reindex",
    "upkeep",
    "forgets what is cached of an id and asks the network again; takes Idempotency-Key",
)
.allows(ADMIN)
.body::<AdminBody>(EXAMPLE)
.answers::<AdminAnswer>()
.errors(&[Kind::Conflict]);

/// To what it is done.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AdminBody {
    /// The id: `b3:…`, a CID, or `name:…`.
    id: String,
}

/// What became of it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AdminAnswer {
    /// The id, in its one spelling.
    id: String,
    /// `pin`, `unpin` or `reindex`.
    action: &'static str,
    /// Whether it changed anything.
    changed: bool,
    /// Whether this is the answer to an earlier request with the same Idempotency-Key.
    replayed: bool,
}

pub(super) const OPERATIONS: &[&Operation] = &[&PIN, &UNPIN, &REINDEX];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add(&PIN, with!(app, pin(call, bearer, request)))
        .add(&UNPIN, with!(app, unpin(call, bearer, request)))
        .add(&REINDEX, with!(app, reindex(call, bearer, request)))
}

async fn pin(app: Arc<App>, call: Call, bearer: Bearer, request: Request) -> HandlerResult {
    administer(&app, &call, &bearer, request, AdminAction::Pin).await
}

async fn unpin(app: Arc<App>, call: Call, bearer: Bearer, request: Request) -> HandlerResult {
    administer(&app, &call, &bearer, request, AdminAction::Unpin).await
}

async fn reindex(app: Arc<App>, call: Call, bearer: Bearer, request: Request) -> HandlerResult {
    administer(&app, &call, &bearer, request, AdminAction::Reindex).await
}

async fn administer(app: &App, call: &Call, bearer: &Bearer, request: Request, action: AdminAction) -> HandlerResult {
    let idempotency_key = key_of(request.headers())?;
    let AdminBody { id } = app.read(call, request).await?.parse()?;
    let subject = subject_of(&id)?;
    let by = app.allow_admin(bearer, &subject.to_string())?;
    let id = subject.to_string();
    let request = AdminRequest { action, subject, by: by.as_ref().to_owned(), idempotency_key };
    let done = app.index.administer(request).await?;
    let answer = AdminAnswer { id, action: action.as_str(), changed: done.changed, replayed: done.replayed };
    Ok(Json(answer).into_response())
}

/// The key under which a request is done once; read strictly, since two spellings would be two keys.
fn key_of(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| {
        (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
    });
    match (key, values.next()) {
        (Some(key), None) => Ok(Some(key.to_owned())),
        _ => {
            let detail =
                format!("Idempotency-Key must be 1 to {IDEMPOTENCY_KEY_BYTES_MAX} visible ASCII characters, once");
            Err(Error::schema(detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::extract::JsonText;

    #[test]
    fn a_key_is_read_strictly() {
        let read = |values: &[&str]| {
            let value = |text: &&str| (IDEMPOTENCY_KEY, HeaderValue::from_str(text).expect("a header"));
            key_of(&values.iter().map(value).collect()).map_err(|error| error.kind)
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["a-1"]), Ok(Some("a-1".to_owned())));
        for wrong in [&[""][..], &["a b"], &["a", "a"], &[&"x".repeat(IDEMPOTENCY_KEY_BYTES_MAX + 1)]] {
            assert_eq!(read(wrong), Err(Kind::Schema), "{wrong:?}");
        }
        let body = |text: &str| JsonText::of(text).parse::<AdminBody>().is_ok();
        assert!(body(EXAMPLE) && !body("{}") && !body(r#"{"id":"name:a","force":true}"#));
    }
}
