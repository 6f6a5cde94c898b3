//! Access keys made, listed and revoked by the operator: routes of the node's own JSON, not of SQS.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::response::IntoResponse as _;
use http::StatusCode;
use ron_auth::{Asked, Grant, inspect};
use ron_kernel::clock;
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use svc_mailbox::capabilities::CAPABILITIES;
use utoipa::ToSchema;

use super::App;
use super::keys::{AccessKey, Keyring};
use crate::auth::Bearer;
use crate::extract::{Json, JsonText, Path};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::route::ApiBuilder;
use crate::tokens::granted;

const NOTE_CHARS_MAX: usize = 256;

static CREATE: Operation =
    Operation::post("/v1/sqs/keys", "access keys", "makes an access key for clients of SQS; only the operator may")
        .operator()
        .body::<KeyRequest>(r#"{"note":"billing","rights":["mailbox:*:orders","mailbox:send:jobs-*"]}"#)
        .answers::<KeyAnswer>()
        .created()
        .errors(&[Kind::Conflict]);

static LIST: Operation =
    Operation::get("/v1/sqs/keys", "access keys", "lists the access keys without their secrets; only the operator may")
        .operator()
        .answers::<KeysAnswer>();

static REVOKE: Operation =
    Operation::delete("/v1/sqs/keys/{id}", "access keys", "revokes an access key at once; only the operator may")
        .operator()
        .errors(&[Kind::NotFound]);

/// What whoever signs with the key may do: everything, where nothing else is said.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyRequest {
    /// What the key is for, in your words.
    #[serde(default)]
    #[schema(max_length = 256)]
    note: String,
    /// Rights, each as `mailbox:verb:queue`; a `*` may stand for the verb and at the end of the queue.
    #[schema(min_items = 1)]
    rights: Option<Vec<String>>,
    /// Limits by name, such as `mailbox.sends_per_second`.
    #[serde(default)]
    limits: BTreeMap<String, u64>,
    /// Short form: each of these verbs, `send`, `recv`, `ack`, `nack`, `admin` or `all`; all of them if not given…
    #[schema(min_items = 1)]
    ops: Option<Vec<String>>,
    /// …on each of these queues; a `*` may stand at the end. All of them if not given.
    #[schema(min_items = 1)]
    topics: Option<Vec<String>>,
    /// Lifetime in milliseconds; unlimited if not given.
    #[schema(minimum = 1)]
    expires_in_ms: Option<u64>,
    /// Short form: messages sent in a second; 0 means none.
    sends_per_second: Option<u64>,
    /// Short form: bytes of the largest message sent: payload and attributes.
    payload_bytes_max: Option<u64>,
}

/// An access key.
#[derive(Serialize, ToSchema)]
pub(crate) struct KeyAnswer {
    access_key_id: String,
    /// Only in the answer that made the key: keep it safe, it is not shown again.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_access_key: Option<String>,
    note: String,
    /// Rights, each as `mailbox:verb:queue`.
    rights: Vec<String>,
    /// Limits by name.
    limits: BTreeMap<String, u64>,
    created_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
}

/// Every access key, in the order of their ids.
#[derive(Serialize, ToSchema)]
pub(crate) struct KeysAnswer {
    keys: Vec<KeyAnswer>,
}

pub(super) const OPERATIONS: &[&Operation] = &[&CREATE, &LIST, &REVOKE];

pub(super) fn routes(builder: ApiBuilder, app: &Arc<App>) -> ApiBuilder {
    builder
        .operation(&CREATE, with!(app, create(bearer, body)))
        .operation(&LIST, with!(app, list(bearer)))
        .operation(&REVOKE, with!(app, revoke(bearer, id)))
}

async fn create(app: Arc<App>, bearer: Bearer, body: JsonText) -> HandlerResult {
    bearer.allow_operator(&app.authority)?;
    let request: KeyRequest = body.parse()?;
    let now_ms = clock::unix_millis();
    let (note, grant) = request.read(now_ms)?;
    let authority = app.authority.clone();
    let made = change(&app.keyring, move |keyring| {
        keyring.create(&note, now_ms, |id| {
            let grant = Grant { subject: id.to_owned(), ..grant };
            authority.mint(&grant).map_err(|error| Error::schema(error.to_string()))
        })
    });
    let key = made.await?;
    tracing::info!(access_key = key.id, note = key.note, "access key made");
    let answer = KeyAnswer { secret_access_key: Some(key.secret.to_string()), ..shown(&key) };
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn list(app: Arc<App>, bearer: Bearer) -> HandlerResult {
    bearer.allow_operator(&app.authority)?;
    let keys = app.keyring.list().iter().map(|key| shown(key)).collect();
    Ok(Json(KeysAnswer { keys }).into_response())
}

async fn revoke(app: Arc<App>, bearer: Bearer, Path(id): Path<String>) -> HandlerResult {
    bearer.allow_operator(&app.authority)?;
    let revoked = id.clone();
    match change(&app.keyring, move |keyring| keyring.revoke(&id)).await? {
        true => {
            tracing::info!(access_key = revoked, "access key revoked");
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        false => Err(Error::new(Kind::NotFound, "no access key has this id").into()),
    }
}

/// Changes the ring where it may wait for the disk; once begun, it is done even if the caller has gone.
async fn change<T: Send + 'static>(
    keyring: &Keyring,
    change: impl FnOnce(&Keyring) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let keyring = keyring.clone();
    let done = tokio::task::spawn_blocking(move || change(&keyring)).await;
    done.unwrap_or_else(|_| Err(Error::new(Kind::Canceled, "the node is shutting down")))
}

impl KeyRequest {
    /// The note, and the grant without its subject.
    fn read(self, now_ms: u64) -> Result<(String, Grant), Error> {
        if self.note.chars().count() > NOTE_CHARS_MAX || self.note.chars().any(char::is_control) {
            return Err(Error::schema(format!("note: at most {NOTE_CHARS_MAX} characters of plain text")));
        }
        let rights = some("rights", self.rights)?;
        let (ops, topics) = (some("ops", self.ops)?, some("topics", self.topics)?);
        let everything = ["all".to_owned()];
        let is_silent = rights.is_empty() && ops.is_empty() && topics.is_empty();
        let asked = Asked {
            rights: &rights,
            limits: Some(&self.limits),
            ops: if is_silent { &everything } else { &ops },
            topics: &topics,
            short_limits: &[("sends_per_second", self.sends_per_second), ("payload_bytes_max", self.payload_bytes_max)],
        };
        // Of the other services' rights a client of SQS could use none.
        let grant = granted(&asked, &[&CAPABILITIES], self.expires_in_ms, now_ms)?;
        Ok((self.note, grant))
    }
}

/// A list that was given must not be empty: it would read as nothing and mean everything.
fn some(field: &str, texts: Option<Vec<String>>) -> Result<Vec<String>, Error> {
    match texts {
        Some(texts) if texts.is_empty() => Err(Error::schema(format!("{field}: at least one, or leave it out"))),
        texts => Ok(texts.unwrap_or_default()),
    }
}

fn shown(key: &AccessKey) -> KeyAnswer {
    // A key whose capability cannot be read allows nothing; it is listed so that it can be revoked.
    let allows = inspect(&key.token).ok();
    let expires_ms = allows.as_ref().and_then(|allows| allows.expires_ms);
    let (mut rights, limits) = allows.map(|allows| (allows.rights, allows.limits)).unwrap_or_default();
    rights.sort();
    KeyAnswer {
        access_key_id: key.id.clone(),
        secret_access_key: None,
        note: key.note.clone(),
        rights,
        limits,
        created_ms: key.created_ms,
        expires_ms,
    }
}

#[cfg(test)]
mod tests {
    use ron_auth::{Authority, RootKey};

    use super::*;

    fn read(text: &str) -> Result<(String, Grant), String> {
        let request: KeyRequest = serde_json::from_str(text).map_err(|error| error.to_string())?;
        request.read(1000).map_err(|error| error.detail.into_owned())
    }

    fn texts(grant: &Grant) -> Vec<String> {
        grant.rights.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_key_is_for_everything_unless_less_is_asked_for() {
        let (note, grant) = read("{}").expect("valid");
        let everything = ["send", "recv", "ack", "nack", "admin"].map(|verb| format!("mailbox:{verb}:*"));
        assert_eq!((note.as_str(), texts(&grant)), ("", everything.to_vec()));
        for form in [
            r#""ops":["send"],"topics":["a-*"],"sends_per_second":7"#,
            r#""rights":["mailbox:send:a-*"],"limits":{"mailbox.sends_per_second":7}"#,
        ] {
            let (note, grant) = read(&format!(r#"{{"note":"n",{form},"expires_in_ms":5}}"#)).expect("valid");
            assert_eq!((note.as_str(), texts(&grant)), ("n", vec!["mailbox:send:a-*".to_owned()]), "{form}");
            let limits = BTreeMap::from([("mailbox.sends_per_second".to_owned(), 7)]);
            assert_eq!((grant.limits, grant.expires_ms), (limits, Some(1005)), "{form}");
        }
        assert_eq!(texts(&read(r#"{"ops":["send"]}"#).expect("valid").1), ["mailbox:send:*"]);
        assert_eq!(read(r#"{"topics":["a"]}"#).expect("valid").1.rights.len(), everything.len());
    }

    #[test]
    fn mistakes_are_told_with_their_field() {
        let long = format!(r#"{{"note":"{}"}}"#, "x".repeat(257));
        for (text, field) in [
            (r#"{"ops":["sned"]}"#, "ops[0]"),
            (r#"{"ops":[]}"#, "ops"),
            (r#"{"rights":[]}"#, "rights"),
            (r#"{"rights":["overlay:publish:a"]}"#, "rights[0]"),
            (r#"{"limits":{"sends_per_second":1}}"#, "limits"),
            (r#"{"topics":["t","a b"]}"#, "topics[1]"),
            (r#"{"topics":[]}"#, "topics"),
            (r#"{"expires_in_ms":0}"#, "expires_in_ms"),
            (r#"{"note":"a\nb"}"#, "note"),
            (&long, "note"),
            (r#"{"more":1}"#, "unknown field"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.starts_with(field), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_listed_is_what_was_granted_without_the_secret() {
        let authority = Authority::new(RootKey::generate(), None, || 0);
        let ring = Keyring::open(None).expect("no file");
        let (note, grant) =
            read(r#"{"note":"n","ops":["send","ack"],"topics":["b","a-*"],"expires_in_ms":5}"#).expect("valid");
        let key = ring
            .create(&note, 1000, |id| Ok(authority.mint(&Grant { subject: id.to_owned(), ..grant }).expect("minted")));
        let key = key.expect("made");
        let shown = serde_json::to_value(shown(&key)).expect("json");
        let expected = serde_json::json!({
            "access_key_id": key.id, "note": "n", "limits": {}, "created_ms": 1000, "expires_ms": 1005,
            "rights": ["mailbox:ack:a-*", "mailbox:ack:b", "mailbox:send:a-*", "mailbox:send:b"],
        });
        assert_eq!(shown, expected);
        let subject =
            authority.authorize(Some(&key.token), svc_mailbox::capabilities::SEND, "a-1", None).expect("granted");
        assert_eq!(&*subject.name, key.id);
    }
}
