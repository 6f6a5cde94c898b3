//! Pages that surfaces serve to browsers. They hold no data: what one shows it asks for like any other caller, with the
//! reader's own token.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, header};
use ron_types::{Error, Kind};

use crate::handler::HandlerResult;

/// Media type of a script.
pub(crate) const SCRIPT: &str = "text/javascript; charset=utf-8";
/// Media type of a style sheet.
pub(crate) const STYLE: &str = "text/css; charset=utf-8";

/// Style sheet of the pages that show a node as it is.
pub(crate) const FRAME_STYLE: PageFile = ("frame.css", STYLE, include_str!("web_page/frame.css"));
/// What these pages run: the token, the look each second, and how a refusal is shown.
pub(crate) const LIVE_SCRIPT: PageFile = ("live.mjs", SCRIPT, include_str!("web_page/live.mjs"));

/// A page runs its own files, asks its own node, and nothing else: an id or an address that is markup stays text twice
/// over.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Name, media type and text of a file.
pub(crate) type PageFile = (&'static str, &'static str, &'static str);

/// A page and its files. Scripts are served, not written into the page, so that its policy can forbid all others.
pub(crate) struct WebPage {
    /// The page itself.
    pub html: &'static str,
    /// Its scripts and style sheets.
    pub files: &'static [PageFile],
}

impl WebPage {
    /// The page itself.
    pub(crate) fn page(&self) -> Response {
        let mut response = answer(self.html, "text/html; charset=utf-8");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        response
    }

    /// A file of the page.
    pub(crate) fn file(&self, name: &str) -> HandlerResult {
        let found = self.files.iter().find(|(file, ..)| *file == name);
        let (_, media_type, text) = found.ok_or_else(|| Error::new(Kind::NotFound, "the page has no such file"))?;
        Ok(answer(text, media_type))
    }
}

fn answer(text: &'static str, media_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
