//! What browsers must be told before a page of somebody else may read an answer of the routing API.

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::caching;
use crate::error_format::{ErrorFormat, ErrorFormats, ProblemJson, RefusedRequest};
use crate::problem::Problem;
use crate::unmatched::PathSpace;

/// Seconds for which a browser need not ask again whether it may ask.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("86400");
/// Headers that a page may send: its token where the node asks for one, and the type of what it puts.
const ALLOWED: HeaderValue = HeaderValue::from_static("Accept, Authorization, Content-Type");
/// Headers of answers that a page may read beside those every page may.
const EXPOSED: HeaderValue = HeaderValue::from_static("ETag, Retry-After, X-Corr-Id");

/// Methods that pages may use on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageMethods {
    /// Reading only.
    Read,
    /// Reading, and putting what is signed by its owner.
    ReadAndPut,
}

impl PageMethods {
    const fn names(self) -> HeaderValue {
        match self {
            PageMethods::Read => HeaderValue::from_static("GET, OPTIONS"),
            PageMethods::ReadAndPut => HeaderValue::from_static("GET, PUT, OPTIONS"),
        }
    }
}

/// Lets every page read the answer: nothing in it is for some readers only, and no credential belongs to it.
pub(super) fn add(headers: &mut HeaderMap, methods: PageMethods) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods.names());
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
}

/// The answer to the question whether a page may ask.
pub(super) fn preflight(methods: PageMethods) -> Response {
    const PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");
    let mut response = Response::default();
    let headers = response.headers_mut();
    add(headers, methods);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
    // Browsers ask this before a page of the web reaches an address of a private network.
    headers.insert(PRIVATE_NETWORK, HeaderValue::from_static("true"));
    response
}

/// Problem bodies that pages can read.
struct OpenProblems(PageMethods);

static READ_PROBLEMS: OpenProblems = OpenProblems(PageMethods::Read);
static PUT_PROBLEMS: OpenProblems = OpenProblems(PageMethods::ReadAndPut);

/// Refusals of paths that are read.
pub(super) static READ_ERRORS: ErrorFormats = ErrorFormats { all: &[&READ_PROBLEMS], choose: |_| &READ_PROBLEMS };
/// Refusals of paths that can be put to.
pub(super) static PUT_ERRORS: ErrorFormats = ErrorFormats { all: &[&PUT_PROBLEMS], choose: |_| &PUT_PROBLEMS };

/// Every path of the routing API. Its clients tell a router that does not know a question (400, 501) from one that
/// knows of nothing, which 404 would be to them.
pub(super) static ROUTING_PATHS: PathSpace = PathSpace {
    prefix: "/routing/v1",
    unknown_path: StatusCode::BAD_REQUEST,
    other_method: StatusCode::NOT_IMPLEMENTED,
    error_formats: &READ_ERRORS,
};

impl ErrorFormat for OpenProblems {
    fn media_type(&self) -> &'static str {
        ProblemJson.media_type()
    }

    fn write(&self, problem: &Problem, request: &RefusedRequest<'_>) -> Response {
        let mut response = ProblemJson.write(problem, request);
        let headers = response.headers_mut();
        add(headers, self.0);
        // Some statuses may be kept by a cache that is told nothing.
        headers.insert(header::CACHE_CONTROL, caching::NO_STORE);
        headers.insert(header::VARY, caching::VARY);
        response
    }
}

#[cfg(test)]
mod tests {
    use ron_types::{Error, Kind};

    use super::*;
    use crate::corr::CorrId;

    #[test]
    fn pages_can_read_why_they_were_refused() {
        let corr_id = CorrId::fresh();
        let request = RefusedRequest { corr_id: &corr_id, path: "/routing/v1/ipns/x", closes: false };
        let response = PUT_PROBLEMS.write(&Error::new(Kind::NotFound, "x").into(), &request);
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        assert_eq!(response.status(), 404);
        assert_eq!(header("access-control-allow-origin").as_deref(), Some("*"));
        assert_eq!(header("access-control-allow-methods").as_deref(), Some("GET, PUT, OPTIONS"));
        assert_eq!(header("content-type").as_deref(), Some("application/problem+json"));
    }
}
