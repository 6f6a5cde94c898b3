//! What browsers must be told before a page of somebody else may read an answer of the routing API.

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::error_format::{ErrorFormat, ErrorFormats, ProblemJson, RefusedRequest};
use crate::problem::Problem;

/// Seconds for which a browser need not ask again whether it may ask.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("86400");
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
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("Accept, Content-Type"));
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

impl ErrorFormat for OpenProblems {
    fn media_type(&self) -> &'static str {
        ProblemJson.media_type()
    }

    fn write(&self, problem: &Problem, request: &RefusedRequest<'_>) -> Response {
        let mut response = ProblemJson.write(problem, request);
        add(response.headers_mut(), self.0);
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
