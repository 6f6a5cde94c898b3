//! A route with everything that is said about it: declared once, served and described from the same value.

use std::borrow::Cow;
use std::time::Duration;

use ron_auth::Action;
use ron_types::Kind;
use serde::Deserialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use crate::error_format::ErrorFormats;
use crate::route::{HttpMethod, RouteSpec};

/// Kinds of error that any route may answer with.
const ANY_ROUTE: [Kind; 4] = [Kind::Schema, Kind::Busy, Kind::Degraded, Kind::Timeout];

/// Kinds of error that any route with a token may answer with, beside [`ANY_ROUTE`].
const ANY_GUARDED_ROUTE: [Kind; 2] = [Kind::Unauthenticated, Kind::Forbidden];

/// A route with everything that is said about it.
pub struct Operation {
    pub(crate) spec: RouteSpec,
    pub(crate) tag: &'static str,
    /// Right that the token must have; none for routes that need no token.
    pub(crate) needs: Option<Action>,
    /// Only the operator may; then no right is needed.
    pub(crate) is_operators: bool,
    /// Whether a token that ran out is still looked at, because it may end what was begun while it was good.
    pub(crate) takes_expired_token: bool,
    /// Words for what is needed, where a right alone does not say it.
    pub(crate) needs_text: Option<&'static str>,
    pub(crate) query: Option<Shape>,
    pub(crate) body: Option<BodyShape>,
    pub(crate) media_types: Option<MediaTypes>,
    pub(crate) answer: Option<Shape>,
    /// Media type of the answer.
    pub(crate) media_type: &'static str,
    pub(crate) may_create: bool,
    /// The answer says that work was begun, not that it is done.
    pub(crate) is_accepted: bool,
    pub(crate) takes_min_durability: bool,
    pub(crate) tells_durability: bool,
    pub(crate) errors: &'static [Kind],
    /// Kinds of failure that have another status here than elsewhere.
    pub(crate) statuses: &'static [(Kind, u16)],
    /// The formats of its refusals; none for problem bodies.
    pub(crate) error_formats: Option<&'static ErrorFormats>,
    /// The body is read piece by piece, however long it is; the handler bounds it.
    pub(crate) takes_stream: bool,
    /// Whether a path that fits the pattern belongs to the operation; none if all do.
    pub(crate) claims: Option<fn(&str) -> bool>,
    /// Web pages of others may ask too, even where the plane listens on loopback.
    pub(crate) is_open_to_pages: bool,
}

/// Media types of a protocol whose bodies are described elsewhere.
pub(crate) struct MediaTypes {
    /// Media types of the body; empty if the request has none.
    pub requests: &'static [&'static str],
    /// Media types of the answers.
    pub answers: &'static [&'static str],
}

/// Description of a request body.
pub(crate) struct BodyShape {
    pub shape: Shape,
    pub example: &'static str,
    pub is_required: bool,
    /// Reads the example as the route would.
    #[cfg_attr(not(test), expect(dead_code, reason = "examples are tried in tests"))]
    pub reads: fn(&'static str) -> Result<(), serde_json::Error>,
}

/// Schema of a type, with the schemas it refers to.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub name: fn() -> Cow<'static, str>,
    pub schema: fn() -> RefOr<Schema>,
    /// Collects the schemas this one refers to.
    pub parts: fn(&mut Vec<(String, RefOr<Schema>)>),
}

impl Shape {
    const fn of<T: ToSchema>() -> Self {
        Shape { name: T::name, schema: <T as PartialSchema>::schema, parts: T::schemas }
    }
}

impl Operation {
    const fn new(method: HttpMethod, pattern: &'static str, tag: &'static str, does: &'static str) -> Self {
        Operation {
            spec: RouteSpec { pattern, method, deadline: None, concurrency: None, does },
            tag,
            needs: None,
            is_operators: false,
            takes_expired_token: false,
            needs_text: None,
            query: None,
            body: None,
            media_types: None,
            answer: None,
            media_type: "application/json",
            may_create: false,
            is_accepted: false,
            takes_min_durability: false,
            tells_durability: false,
            errors: &[],
            statuses: &[],
            error_formats: None,
            takes_stream: false,
            claims: None,
            is_open_to_pages: false,
        }
    }

    /// An operation that reads; HEAD is answered as well.
    pub const fn get(pattern: &'static str, tag: &'static str, does: &'static str) -> Self {
        Operation::new(HttpMethod::Get, pattern, tag, does)
    }

    /// An operation that makes something happen.
    pub const fn post(pattern: &'static str, tag: &'static str, does: &'static str) -> Self {
        Operation::new(HttpMethod::Post, pattern, tag, does)
    }

    /// An operation that makes or replaces something.
    pub const fn put(pattern: &'static str, tag: &'static str, does: &'static str) -> Self {
        Operation::new(HttpMethod::Put, pattern, tag, does)
    }

    /// An operation that changes something in part.
    pub const fn patch(pattern: &'static str, tag: &'static str, does: &'static str) -> Self {
        Operation::new(HttpMethod::Patch, pattern, tag, does)
    }

    /// An operation that removes something.
    pub const fn delete(pattern: &'static str, tag: &'static str, does: &'static str) -> Self {
        Operation::new(HttpMethod::Delete, pattern, tag, does)
    }

    /// An operation that tells a browser which pages may ask, and how.
    pub const fn options(pattern: &'static str, tag: &'static str, does: &'static str) -> Self {
        Operation::new(HttpMethod::Options, pattern, tag, does)
    }

    /// Total time of a request whose caller asks for none; else the configured default.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.spec.deadline = Some(deadline);
        self
    }

    /// Maximum requests in flight at once; else the configured default at start.
    pub const fn concurrency(mut self, concurrency: usize) -> Self {
        self.spec.concurrency = Some(concurrency);
        self
    }

    /// Right that the caller's token must have.
    pub const fn allows(mut self, action: Action) -> Self {
        self.needs = Some(action);
        self
    }

    /// The token of the operator is needed: no capability can stand for it.
    pub const fn operator(mut self) -> Self {
        self.is_operators = true;
        self.needs("the token of the operator")
    }

    /// A token that ran out may still end what was begun while it was good; the handler decides.
    pub const fn even_expired(mut self) -> Self {
        self.takes_expired_token = true;
        self
    }

    /// Words for what is needed, where a right alone does not say it; completes the sentence "Needs …".
    pub const fn needs(mut self, text: &'static str) -> Self {
        self.needs_text = Some(text);
        self
    }

    /// Type that describes the query string.
    pub const fn query<T: ToSchema>(mut self) -> Self {
        self.query = Some(Shape::of::<T>());
        self
    }

    /// The JSON body, with an example that the operation takes.
    pub const fn body<T: ToSchema + Deserialize<'static>>(mut self, example: &'static str) -> Self {
        let reads = |example| serde_json::from_str::<T>(example).map(drop);
        self.body = Some(BodyShape { shape: Shape::of::<T>(), example, is_required: true, reads });
        self
    }

    /// Lets a request come without a body.
    pub const fn optional_body(mut self) -> Self {
        if let Some(body) = &mut self.body {
            body.is_required = false;
        }
        self
    }

    /// Requests and answers are of another protocol than the plane's JSON, in these media types.
    pub const fn speaks(mut self, requests: &'static [&'static str], answers: &'static [&'static str]) -> Self {
        self.media_types = Some(MediaTypes { requests, answers });
        self
    }

    /// The JSON body of the answer; without it the answer is empty.
    pub const fn answers<T: ToSchema>(mut self) -> Self {
        self.answer = Some(Shape::of::<T>());
        self
    }

    /// The answer is one such object on each line.
    pub const fn streams<T: ToSchema>(mut self) -> Self {
        self.media_type = "application/x-ndjson";
        self.answers::<T>()
    }

    /// The answer is a stream of server-sent events with such data.
    pub const fn event_stream<T: ToSchema>(mut self) -> Self {
        self.media_type = "text/event-stream";
        self.answers::<T>()
    }

    /// 201 where something new came to be.
    pub const fn created(mut self) -> Self {
        self.may_create = true;
        self
    }

    /// 202: what was asked for goes on after the answer; with [`Operation::created`] 200 if it was done before.
    pub const fn accepted(mut self) -> Self {
        self.is_accepted = true;
        self
    }

    /// Declares the header that says how durable the answer is.
    pub const fn marked(mut self) -> Self {
        self.tells_durability = true;
        self
    }

    /// The answer says how durable it is, and the request may demand a minimum.
    pub const fn durable(mut self) -> Self {
        self.takes_min_durability = true;
        self.marked()
    }

    /// The body may be of any length: the handler reads it piece by piece and has its own bound.
    pub const fn takes_stream(mut self) -> Self {
        self.takes_stream = true;
        self
    }

    /// Refusals are written in these formats instead of problem bodies.
    pub const fn error_formats(mut self, formats: &'static ErrorFormats) -> Self {
        self.error_formats = Some(formats);
        self
    }

    /// Only these paths of the pattern are the operation's; others are answered as if no route had them.
    pub const fn claims(mut self, claims: fn(&str) -> bool) -> Self {
        self.claims = Some(claims);
        self
    }

    /// Web pages of others may ask too: the operation tells nobody anything that is not public, and changes nothing
    /// that its caller has not signed.
    pub const fn open_to_pages(mut self) -> Self {
        self.is_open_to_pages = true;
        self
    }

    /// Kinds of failure beside those every route may answer with.
    pub const fn errors(mut self, errors: &'static [Kind]) -> Self {
        self.errors = errors;
        self
    }

    /// Kinds of failure that have another status here than elsewhere.
    pub const fn statuses(mut self, statuses: &'static [(Kind, u16)]) -> Self {
        self.statuses = statuses;
        self
    }

    /// The status of a kind of failure.
    pub(crate) fn status_of(&self, kind: Kind) -> u16 {
        let own = self.statuses.iter().find(|(known, _)| *known == kind);
        own.map_or_else(|| kind.http_status(), |(_, status)| *status)
    }

    /// Sentence on what a caller needs.
    pub(crate) fn needs_sentence(&self) -> String {
        match (self.needs_text, self.needs) {
            (Some(text), _) => format!("Needs {text}."),
            (None, Some(op)) => format!("Needs a token that allows `{op}`."),
            (None, None) => "Needs no token.".to_owned(),
        }
    }

    /// Whether a bearer's token is asked for.
    pub(crate) const fn takes_token(&self) -> bool {
        self.needs.is_some() || self.is_operators
    }

    /// The statuses of an answer to something that was done.
    pub(crate) const fn success_statuses(&self) -> &'static [&'static str] {
        let says_nothing = match &self.media_types {
            Some(types) => types.answers.is_empty(),
            None => true,
        };
        let is_empty = self.answer.is_none() && says_nothing && self.takes_token();
        match (is_empty, self.is_accepted, self.may_create) {
            (true, ..) => &["204"],
            (false, true, true) => &["200", "202"],
            (false, true, false) => &["202"],
            (false, false, true) => &["200", "201"],
            (false, false, false) => &["200"],
        }
    }

    /// The kinds of failure it may answer with, in the order of their statuses.
    pub(crate) fn refusals(&self) -> Vec<Kind> {
        let guarded = self.takes_token().then_some(ANY_GUARDED_ROUTE).into_iter().flatten();
        let mut kinds: Vec<Kind> = ANY_ROUTE.into_iter().chain(guarded).chain(self.errors.iter().copied()).collect();
        kinds.sort_by_key(|kind| self.status_of(*kind));
        kinds
    }
}
