//! Every route of the admin plane, and what holds for all of them: deadline, body limit, safe headers.

mod operate;
mod read;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use ron_kernel::{Deadline, KernelHandle};
use ron_types::web_page::{OwnNames, PageHeaders};
use ron_types::{Error, Kind};

use crate::control::Control;
use crate::problem::{problem, refuse};
use crate::token::OperatorToken;

/// Maximum duration of one request.
pub(crate) const REQUEST_DEADLINE: Duration = Duration::from_secs(5);
/// Largest request body; nothing here needs more than a filter.
const BODY_BYTES_MAX: usize = 16 * 1024;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// State shared by the handlers.
pub(crate) struct Plane {
    pub kernel: KernelHandle,
    pub control: Arc<dyn Control>,
    pub token: OperatorToken,
    /// Names that requests must call the node by; none if the listener is not on loopback.
    pub own_names: Option<OwnNames>,
}

/// The routes; those of chaos exist only where it was asked for.
pub(crate) fn router(plane: Arc<Plane>, chaos: bool) -> Router {
    let mut router = Router::new()
        .route("/", get(read::page))
        .route("/healthz", get(read::healthz))
        .route("/readyz", get(read::readyz))
        .route("/metrics", get(read::metrics))
        .route("/version", get(read::version))
        .route("/topology", get(read::topology))
        .route("/identity", get(read::identity))
        .route("/reload", post(operate::reload))
        .route("/drain", post(operate::drain))
        .route("/log-level", post(operate::log_level))
        .route("/services/{name}/restart", post(operate::restart_service));
    if chaos {
        router = router.route("/chaos/kill", post(operate::kill)).route("/chaos/freeze", post(operate::freeze));
        router = router.route("/chaos/stall", post(operate::stall));
    }
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&plane), guard))
        .with_state(plane)
}

async fn unknown_path(uri: Uri) -> Response {
    refuse(&Error::new(Kind::NotFound, format!("there is no route {}", uri.path())))
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let detail = format!("{} does not take {method}", uri.path());
    problem(StatusCode::METHOD_NOT_ALLOWED, "the method does not fit", &detail, Kind::Schema.code())
}

/// Around every request: where it comes from, its deadline and the limit of its body; on every answer: headers that
/// keep it out of caches.
async fn guard(State(plane): State<Arc<Plane>>, request: Request, next: Next) -> Response {
    let answered = match (foreign_page(&request, plane.own_names.as_ref()), declared_length(&request)) {
        (Some(reason), _) => Err(Error::new(Kind::Forbidden, reason)),
        (None, Some(length)) if length > BODY_BYTES_MAX as u64 => Err(oversize()),
        _ => Deadline::after(REQUEST_DEADLINE).run("admin_request", next.run(request)).await,
    };
    let mut response = answered.unwrap_or_else(|error| refuse(&error));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Why the request of a web page of somebody else is refused: without this it could read all there is to read here.
fn foreign_page(request: &Request, own_names: Option<&OwnNames>) -> Option<&'static str> {
    let header = |name: HeaderName| request.headers().get(name).map(HeaderValue::as_bytes);
    own_names?.refuse(PageHeaders {
        host: header(header::HOST),
        origin: header(header::ORIGIN),
        fetch_site: header(SEC_FETCH_SITE),
    })
}

fn declared_length(request: &Request) -> Option<u64> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn oversize() -> Error {
    Error::new(Kind::FrameTooLarge, format!("a body may have {BODY_BYTES_MAX} bytes here"))
}
