//! The surface described: each route declared once, served by it, and written as OpenAPI 3.1 with a page to read it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, header};
use ron_auth::Op;
use ron_types::Kind;
use serde::Deserialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use super::Routes;
use crate::route::{RouteSpec, Verb};

mod document;

static OPENAPI: Operation = Operation::get("/openapi.json", "description", "describes this surface in OpenAPI 3.1");
static DOCS: Operation = Operation::get("/docs", "description", "the same as a page for people");

const PAGE: &str = include_str!("../../assets/docs.html");

/// The page is whole: it needs nothing but its own text and the description.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A route with everything that is said about it.
pub(crate) struct Operation {
    pub spec: RouteSpec,
    tag: &'static str,
    /// What a token must allow; none for the routes that need no token.
    needs: Option<Op>,
    query: Option<Shape>,
    body: Option<BodyShape>,
    answer: Option<Shape>,
    media_type: &'static str,
    may_create: bool,
    takes_min_durability: bool,
    tells_durability: bool,
    errors: &'static [Kind],
}

/// What a body must look like.
struct BodyShape {
    shape: Shape,
    example: &'static str,
    is_required: bool,
    /// Reads the example as the route would.
    #[cfg_attr(not(test), expect(dead_code, reason = "examples are tried in tests"))]
    reads: fn(&'static str) -> Result<(), serde_json::Error>,
}

/// A type as the description sees it.
#[derive(Clone, Copy)]
struct Shape {
    name: fn() -> Cow<'static, str>,
    schema: fn() -> RefOr<Schema>,
    /// Adds the schemas it refers to.
    parts: fn(&mut Vec<(String, RefOr<Schema>)>),
}

impl Shape {
    const fn of<T: ToSchema>() -> Self {
        Shape { name: T::name, schema: <T as PartialSchema>::schema, parts: T::schemas }
    }
}

impl Operation {
    const fn new(method: Verb, pattern: &'static str, tag: &'static str, does: &'static str) -> Self {
        Operation {
            spec: RouteSpec { pattern, method, deadline: None, concurrency: None, does },
            tag,
            needs: None,
            query: None,
            body: None,
            answer: None,
            media_type: "application/json",
            may_create: false,
            takes_min_durability: false,
            tells_durability: false,
            errors: &[],
        }
    }

    pub(crate) const fn get(pattern: &'static str, tag: &'static str, does: &'static str) -> Self {
        Operation::new(Verb::Get, pattern, tag, does)
    }

    pub(crate) const fn post(pattern: &'static str, tag: &'static str, does: &'static str) -> Self {
        Operation::new(Verb::Post, pattern, tag, does)
    }

    pub(crate) const fn put(pattern: &'static str, tag: &'static str, does: &'static str) -> Self {
        Operation::new(Verb::Put, pattern, tag, does)
    }

    pub(crate) const fn patch(pattern: &'static str, tag: &'static str, does: &'static str) -> Self {
        Operation::new(Verb::Patch, pattern, tag, does)
    }

    pub(crate) const fn delete(pattern: &'static str, tag: &'static str, does: &'static str) -> Self {
        Operation::new(Verb::Delete, pattern, tag, does)
    }

    pub(crate) const fn deadline(mut self, deadline: Duration) -> Self {
        self.spec.deadline = Some(deadline);
        self
    }

    /// A token with this right is needed.
    pub(crate) const fn allows(mut self, op: Op) -> Self {
        self.needs = Some(op);
        self
    }

    pub(crate) const fn query<T: ToSchema>(mut self) -> Self {
        self.query = Some(Shape::of::<T>());
        self
    }

    pub(crate) const fn body<T: ToSchema + Deserialize<'static>>(mut self, example: &'static str) -> Self {
        let reads = |example| serde_json::from_str::<T>(example).map(drop);
        self.body = Some(BodyShape { shape: Shape::of::<T>(), example, is_required: true, reads });
        self
    }

    /// The body may be left out.
    pub(crate) const fn optional_body(mut self) -> Self {
        if let Some(body) = &mut self.body {
            body.is_required = false;
        }
        self
    }

    pub(crate) const fn answers<T: ToSchema>(mut self) -> Self {
        self.answer = Some(Shape::of::<T>());
        self
    }

    /// The answer is one such object on each line.
    pub(crate) const fn streams<T: ToSchema>(mut self) -> Self {
        self.media_type = "application/x-ndjson";
        self.answers::<T>()
    }

    /// The answer is a stream of server-sent events with such data.
    pub(crate) const fn event_stream<T: ToSchema>(mut self) -> Self {
        self.media_type = "text/event-stream";
        self.answers::<T>()
    }

    /// 201 where something new came to be.
    pub(crate) const fn created(mut self) -> Self {
        self.may_create = true;
        self
    }

    /// The answer says how durable it is.
    pub(crate) const fn marked(mut self) -> Self {
        self.tells_durability = true;
        self
    }

    /// The answer says how durable it is, and the request may demand a minimum.
    pub(crate) const fn durable(mut self) -> Self {
        self.takes_min_durability = true;
        self.marked()
    }

    /// Kinds of failure beside those every route may answer with.
    pub(crate) const fn errors(mut self, errors: &'static [Kind]) -> Self {
        self.errors = errors;
        self
    }
}

pub(super) fn routes(routes: Routes) -> Routes {
    let operations: Vec<_> = routes.operations.iter().copied().chain([&OPENAPI, &DOCS]).collect();
    let description = Bytes::from(document::write(&operations));
    let page = Bytes::from_static(PAGE.as_bytes());
    routes
        .add(&OPENAPI, move || std::future::ready(text(description.clone(), "application/json")))
        .add(&DOCS, move || std::future::ready(text(page.clone(), "text/html; charset=utf-8")))
}

fn text(content: Bytes, media_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(content));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    response
}

/// Every schema that an operation refers to, by name.
fn schemas(operations: &[&Operation]) -> BTreeMap<String, RefOr<Schema>> {
    let mut all = Vec::new();
    for operation in operations {
        let body = operation.body.as_ref().map(|body| &body.shape);
        for shape in [body, operation.answer.as_ref()].into_iter().flatten() {
            all.push(((shape.name)().into_owned(), (shape.schema)()));
            (shape.parts)(&mut all);
        }
    }
    all.into_iter().collect()
}

#[cfg(test)]
mod tests;
