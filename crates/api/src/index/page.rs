//! The page that draws the last lookups of this node. It holds no data: what it shows it asks for like any other
//! caller, with the reader's own token.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, header};
use ron_types::{Error, Kind};

use super::Routes;
use crate::extract::Path;
use crate::handler::HandlerResult;
use crate::operation::Operation;

static PAGE: Operation = Operation::get(
    "/index",
    "upkeep",
    "a page that draws the last lookups of this node: whom it asked, when, and who won",
)
.speaks(&[], &["text/html"]);

static PAGE_FILE: Operation = Operation::get("/index/page/{file}", "upkeep", "a script or style sheet of that page")
    .speaks(&[], &["text/javascript", "text/css"])
    .errors(&[Kind::NotFound]);

/// Files of the page by name. Scripts are served, not written into the page, so that its policy can forbid all others.
const FILES: &[(&str, &str, &str)] = &[
    ("page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("page.mjs", SCRIPT, include_str!("page/page.mjs")),
    ("course.mjs", SCRIPT, include_str!("page/course.mjs")),
];

const HTML: &str = include_str!("page/page.html");
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The page runs its own files, asks its own node, and nothing else: an address that is markup stays text twice over.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) const OPERATIONS: &[&Operation] = &[&PAGE, &PAGE_FILE];

pub(super) fn routes(routes: Routes) -> Routes {
    routes.add(&PAGE, page).add(&PAGE_FILE, file)
}

async fn page() -> HandlerResult {
    let mut response = answer(HTML, "text/html; charset=utf-8");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Ok(response)
}

async fn file(name: Path<String>) -> HandlerResult {
    let found = FILES.iter().find(|(file, ..)| *file == name.0);
    let (_, media_type, text) = found.ok_or_else(|| Error::new(Kind::NotFound, "the page has no such file"))?;
    Ok(answer(text, media_type))
}

fn answer(text: &'static str, media_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
