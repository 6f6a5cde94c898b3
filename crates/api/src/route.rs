//! Routes as declared, and the plane put together from them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request};
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};
use axum::{Extension, Router};
use hashbrown::HashMap;
use http::{Method, StatusCode, Uri};
use prometheus_client::metrics::counter::Counter;
use ron_cells::DrainGuard;
use ron_kernel::{KernelHandle, Metrics, Snapshot};
use ron_types::{Error, Kind};
use tower::Service as _;

use crate::call::Call;
use crate::guard::{Answering, Guarded, RouteState};
use crate::limits::HttpLimits;
use crate::problem::{Counted, Problem};
use crate::sqs;

/// The methods a route may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads; HEAD is answered as well.
    Get,
    /// Does.
    Post,
    /// Replaces.
    Put,
    /// Removes.
    Delete,
    /// Changes in part.
    Patch,
}

impl Verb {
    /// The method as it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Put => "PUT",
            Verb::Delete => "DELETE",
            Verb::Patch => "PATCH",
        }
    }

    const fn method(self) -> Method {
        match self {
            Verb::Get => Method::GET,
            Verb::Post => Method::POST,
            Verb::Put => Method::PUT,
            Verb::Delete => Method::DELETE,
            Verb::Patch => Method::PATCH,
        }
    }

    const fn filter(self) -> MethodFilter {
        match self {
            Verb::Get => MethodFilter::GET,
            Verb::Post => MethodFilter::POST,
            Verb::Put => MethodFilter::PUT,
            Verb::Delete => MethodFilter::DELETE,
            Verb::Patch => MethodFilter::PATCH,
        }
    }
}

/// One route: it exists only through one of these.
#[derive(Debug)]
pub struct RouteSpec {
    /// The path with its parameters in braces; also the `endpoint` label.
    pub pattern: &'static str,
    /// The method.
    pub method: Verb,
    /// Total time of a request whose caller asks for none; none means the configured default.
    pub deadline: Option<Duration>,
    /// Requests in flight at once; none means the configured default at start.
    pub concurrency: Option<usize>,
    /// One sentence for people.
    pub does: &'static str,
}

/// In whose words a route refuses what never gets to its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    /// Problem bodies.
    Native,
    /// Errors of SQS, in the protocol of the request.
    Sqs,
}

/// Left with every request that came over TLS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secured;

/// Collects routes.
pub struct ApiBuilder {
    shared: Arc<Shared>,
    specs: Vec<&'static RouteSpec>,
    router: Router,
    plain: PlainRoutes,
}

/// The finished plane. Clones are the same plane.
#[derive(Clone)]
pub struct Api {
    pub(crate) shared: Arc<Shared>,
    specs: Arc<[&'static RouteSpec]>,
    router: Router,
    plain: Arc<PlainRoutes>,
    /// Whether requests come over TLS.
    is_secured: bool,
}

/// Routes without parameters by path and method. The router has them too, for what is rare: other methods, and HEAD.
/// Looking here first spares a short request a twelfth of its instructions.
type PlainRoutes = HashMap<&'static str, Vec<(Method, Endpoint)>>;

/// A handler with its layers.
type Endpoint = Box<dyn Fn(Request) -> Answering + Send + Sync>;

/// What all routes and connections of a plane share.
pub(crate) struct Shared {
    pub kernel: KernelHandle,
    pub limits: Snapshot<HttpLimits>,
    pub metrics: Arc<Metrics>,
    /// Closed while the plane drains.
    pub entrance: DrainGuard,
    pub counters: Counters,
}

/// Counters found once, so that no request looks up a label.
pub(crate) struct Counters {
    deadlines: Counter,
    drains: Counter,
    stalled_bodies: Counter,
    large_bodies: Counter,
    large_heads: Counter,
    inflations: Counter,
}

impl ApiBuilder {
    /// A plane without routes.
    pub fn new(kernel: KernelHandle, limits: Snapshot<HttpLimits>) -> Self {
        let metrics = Arc::clone(kernel.metrics());
        let counters = Counters::new(&metrics);
        let shared = Shared { kernel, limits, metrics, entrance: DrainGuard::default(), counters };
        ApiBuilder { shared: Arc::new(shared), specs: Vec::new(), router: Router::new(), plain: PlainRoutes::new() }
    }

    /// Adds a route with every layer around its handler. Two routes of one pattern and method are a mistake and panic.
    pub fn route<H, T>(self, spec: &'static RouteSpec, handler: H) -> Self
    where
        H: Handler<T, Call>,
        T: 'static,
    {
        self.route_in(ErrorFormat::Native, spec, handler)
    }

    /// Adds a route that refuses in these words.
    pub(crate) fn route_in<H, T>(mut self, error_format: ErrorFormat, spec: &'static RouteSpec, handler: H) -> Self
    where
        H: Handler<T, Call>,
        T: 'static,
    {
        let state = RouteState::new(spec, error_format, Arc::clone(&self.shared));
        let guarded = Guarded::new(handler, Arc::new(state));
        self.router = self.router.route(spec.pattern, on(spec.method.filter(), guarded.clone()));
        if !spec.pattern.contains('{') {
            let endpoint = move |request| guarded.clone().call(request, ());
            self.plain.entry(spec.pattern).or_default().push((spec.method.method(), Box::new(endpoint)));
        }
        self.specs.push(spec);
        self
    }

    /// The kernel the plane runs under.
    pub(crate) fn kernel(&self) -> &KernelHandle {
        &self.shared.kernel
    }

    /// The plane, ready to serve.
    pub fn build(self) -> Api {
        let unmatched = Arc::new(RouteState::unmatched(Arc::clone(&self.shared)));
        let router = self
            .router
            .fallback(Guarded::new(not_found, Arc::clone(&unmatched)))
            .method_not_allowed_fallback(Guarded::new(method_not_allowed, unmatched));
        Api { shared: self.shared, specs: self.specs.into(), router, plain: Arc::new(self.plain), is_secured: false }
    }
}

impl Api {
    /// Every route declared, in order.
    pub fn routes(&self) -> &[&'static RouteSpec] {
        &self.specs
    }

    /// Requests being answered now.
    pub fn requests_in_flight(&self) -> usize {
        self.shared.entrance.inside()
    }

    /// The plane as a listener with or without TLS serves it.
    pub(crate) fn secured(self, is_secured: bool) -> Self {
        Api { is_secured, ..self }
    }

    /// Answers one request.
    pub(crate) fn answer(&self, mut request: Request) -> Answering {
        if self.is_secured {
            request.extensions_mut().insert(Secured);
        }
        if let Some(endpoint) = self.plain_endpoint(&request) {
            return endpoint(request);
        }
        let routed = self.router.clone().call(request);
        Box::pin(async {
            let Ok(response) = routed.await;
            response
        })
    }

    fn plain_endpoint(&self, request: &Request) -> Option<&Endpoint> {
        let methods = self.plain.get(request.uri().path())?;
        methods.iter().find(|(method, _)| method == request.method()).map(|(_, endpoint)| endpoint)
    }

    /// Answers one request that came over no connection.
    #[cfg(test)]
    pub(crate) async fn answer_to(&self, request: Request) -> axum::response::Response {
        self.shared.entrance.open();
        self.answer(request).await
    }
}

async fn not_found() -> Problem {
    Error::new(Kind::NotFound, "no route has this path").into()
}

async fn method_not_allowed(uri: Uri, route: Option<Extension<MatchedPath>>) -> Problem {
    // The queues of SQS lie at the root, where a path with two names need not be one of them.
    let is_queues = route.is_some_and(|Extension(route)| route.as_str().starts_with("/{account}/"));
    if is_queues && !sqs::is_sqs_path(uri.path()) {
        return not_found().await;
    }
    Problem::schema(StatusCode::METHOD_NOT_ALLOWED, "the route has other methods; see Allow")
}

impl Counters {
    fn new(metrics: &Metrics) -> Self {
        Counters {
            deadlines: metrics.io_timeouts.at("request"),
            drains: metrics.tasks_canceled.at("http_request"),
            stalled_bodies: metrics.io_timeouts.at("read"),
            large_bodies: metrics.frame_rejects.at("body"),
            large_heads: metrics.frame_rejects.at("header"),
            inflations: metrics.frame_rejects.at("inflate"),
        }
    }

    pub(crate) fn count(&self, what: Counted) {
        match what {
            Counted::Nothing => return,
            Counted::Deadline => self.deadlines.inc(),
            Counted::Drain => self.drains.inc(),
            Counted::StalledBody => self.stalled_bodies.inc(),
            Counted::LargeBody => self.large_bodies.inc(),
            Counted::LargeHead => self.large_heads.inc(),
            Counted::Inflation => self.inflations.inc(),
        };
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use ron_kernel::{Builder, KernelOptions};

    use super::*;

    const fn spec(pattern: &'static str, method: Verb) -> RouteSpec {
        RouteSpec { pattern, method, deadline: None, concurrency: None, does: "says where it is" }
    }

    static READ: RouteSpec = spec("/plain", Verb::Get);
    static WRITE: RouteSpec = spec("/plain", Verb::Put);
    static NAMED: RouteSpec = spec("/named/{name}", Verb::Get);

    #[tokio::test]
    async fn a_route_is_found_the_same_with_parameters_and_without() {
        let kernel = Builder::new(KernelOptions::default(), Metrics::new());
        let builder = ApiBuilder::new(kernel.handle(), Snapshot::new(HttpLimits::default()));
        let builder = builder.route(&READ, async || "read").route(&WRITE, async || "written");
        let api = builder.route(&NAMED, async || "named").build();
        for (method, path, content) in [
            (Method::GET, "/plain?a=b", "read"),
            (Method::PUT, "/plain", "written"),
            (Method::HEAD, "/plain", ""),
            (Method::GET, "/named/x", "named"),
            (Method::HEAD, "/named/x", ""),
        ] {
            let mut request = Request::new(Body::empty());
            *request.method_mut() = method.clone();
            *request.uri_mut() = Uri::from_static(path);
            let response = api.answer_to(request).await;
            assert_eq!(response.status(), 200, "{method} {path}");
            assert!(response.headers().contains_key("x-corr-id"), "{method} {path}");
            let body = axum::body::to_bytes(response.into_body(), 100).await.expect("a body");
            assert_eq!(body, content, "{method} {path}");
        }
        for path in ["/plain/", "/plai", "/named"] {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = Uri::from_static(path);
            assert_eq!(api.answer_to(request).await.status(), 404, "{path}");
        }
    }
}
