//! The plane described: OpenAPI 3.1 of everything it serves, and a page to read it.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, header};
use serde::Serialize;
use utoipa::ToSchema;

use crate::extract::Json;
use crate::operation::Operation;
use crate::route::{ApiBuilder, HttpMethod};
use crate::surface::{NODE, Surface};

mod document;

static OPENAPI: Operation = Operation::get("/openapi.json", "description", "describes this node in OpenAPI 3.1");
static DOCS: Operation = Operation::get("/docs", "description", "the same as a page for people");
static ROOT: Operation = Operation::get("/", "description", "says what this is").answers::<RootAnswer>();

/// The description itself; every plane has it.
pub(crate) static SURFACE: Surface = Surface {
    service: NODE,
    about: "The description you are reading.",
    tags: &["description"],
    operations: &[&OPENAPI, &DOCS],
};

/// Answers at the root, so that a browser shows what the node is, unless a surface serves that path.
static ROOT_SURFACE: Surface = Surface { service: NODE, about: "", tags: SURFACE.tags, operations: &[&ROOT] };

const PAGE: &str = include_str!("../assets/docs.html");

/// The page is whole: it needs nothing but its own text and the description.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What answers here, and where it is described.
#[derive(Serialize, ToSchema)]
struct RootAnswer {
    /// The program.
    name: &'static str,
    /// Its version.
    version: &'static str,
    /// The path of the description for programs.
    openapi: &'static str,
    /// The path of the description for people.
    docs: &'static str,
}

/// Adds the description of everything that was added before.
pub(crate) fn describe(builder: ApiBuilder) -> ApiBuilder {
    let builder = if builder.serves(HttpMethod::Get, ROOT.spec.pattern) {
        builder
    } else {
        builder.surface(&ROOT_SURFACE).operation(&ROOT, async || Json(root()))
    };
    let builder = builder.surface(&SURFACE);
    let description = Bytes::from(document::write(builder.surfaces()));
    let page = Bytes::from_static(PAGE.as_bytes());
    builder
        .operation(&OPENAPI, move || std::future::ready(text(description.clone(), "application/json")))
        .operation(&DOCS, move || std::future::ready(text(page.clone(), "text/html; charset=utf-8")))
}

const fn root() -> RootAnswer {
    RootAnswer {
        name: "macronode",
        version: env!("CARGO_PKG_VERSION"),
        openapi: OPENAPI.spec.pattern,
        docs: DOCS.spec.pattern,
    }
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

#[cfg(test)]
mod tests;
