//! Routes as declared, and the plane put together from them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};
use hashbrown::HashMap;
use http::request::Parts;
use http::{Method, Uri};
use prometheus_client::metrics::counter::Counter;
use ron_auth::Authority;
use ron_cells::DrainGuard;
use ron_kernel::connection_limiter::network_of;
use ron_kernel::{KernelHandle, Metrics, Snapshot};
use ron_types::web_page::OwnNames;
use tower::Service as _;

use crate::admission::SharedShares;
use crate::call::Call;
use crate::guard::{Answering, Guarded, RouteState};
use crate::limits::HttpLimits;
use crate::openapi;
use crate::operation::Operation;
use crate::problem::Counted;
use crate::recognition::{AnyoneRecognizer, Recognizer, TokenRecognizer};
use crate::surface::Surface;
use crate::unmatched::{PathSpace, Unmatched};

/// The HTTP methods a route may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpMethod {
    /// GET; HEAD is answered as well.
    Get,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// DELETE.
    Delete,
    /// PATCH.
    Patch,
    /// OPTIONS, which browsers send before a page of somebody else may ask.
    Options,
}

impl HttpMethod {
    /// Name of the method in capital letters.
    pub const fn name(self) -> &'static str {
        match self {
            HttpMethod::Get => "GET",
            HttpMethod::Post => "POST",
            HttpMethod::Put => "PUT",
            HttpMethod::Delete => "DELETE",
            HttpMethod::Patch => "PATCH",
            HttpMethod::Options => "OPTIONS",
        }
    }

    const fn method(self) -> Method {
        match self {
            HttpMethod::Get => Method::GET,
            HttpMethod::Post => Method::POST,
            HttpMethod::Put => Method::PUT,
            HttpMethod::Delete => Method::DELETE,
            HttpMethod::Patch => Method::PATCH,
            HttpMethod::Options => Method::OPTIONS,
        }
    }

    const fn filter(self) -> MethodFilter {
        match self {
            HttpMethod::Get => MethodFilter::GET,
            HttpMethod::Post => MethodFilter::POST,
            HttpMethod::Put => MethodFilter::PUT,
            HttpMethod::Delete => MethodFilter::DELETE,
            HttpMethod::Patch => MethodFilter::PATCH,
            HttpMethod::Options => MethodFilter::OPTIONS,
        }
    }
}

/// The part of an operation that serving needs; the rest describes it.
#[derive(Debug)]
pub(crate) struct RouteSpec {
    /// The path with its parameters in braces; also the `endpoint` label.
    pub pattern: &'static str,
    /// HTTP method of the route.
    pub method: HttpMethod,
    /// Total time of a request whose caller asks for none; none means the configured default.
    pub deadline: Option<Duration>,
    /// Requests in flight at once; none means the configured default at start.
    pub concurrency: Option<usize>,
    /// Sentence for the description: what the route does.
    pub does: &'static str,
}

/// Left with every request that came over TLS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secured;

/// Left with every request: where it came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Address of the peer, of IPv6 its network of 64 bits: what one household has is one address.
    pub address: IpAddr,
    /// Address of the node at which the connection was accepted.
    pub accepted_at: Option<SocketAddr>,
}

impl Peer {
    pub(crate) fn new(address: IpAddr, accepted_at: Option<SocketAddr>) -> Self {
        Peer { address: network_of(address), accepted_at }
    }

    pub(crate) fn of(head: &Parts) -> Self {
        let peer = head.extensions.get().copied();
        peer.unwrap_or(Peer { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), accepted_at: None })
    }
}

/// Collects surfaces, and the operations that they mount.
pub struct ApiBuilder {
    shared: Arc<Shared>,
    /// Decides on the tokens of operations that need one.
    authority: Option<Authority>,
    /// Names by which the node is reached, beside those of its listener.
    names: Vec<String>,
    surfaces: Vec<&'static Surface>,
    operations: Vec<&'static Operation>,
    spaces: Vec<&'static PathSpace>,
    router: Router,
    plain: PlainRoutes,
}

/// The finished plane. Clones are the same plane.
#[derive(Clone)]
pub struct Api {
    pub(crate) shared: Arc<Shared>,
    operations: Arc<[&'static Operation]>,
    router: Router,
    plain: Arc<PlainRoutes>,
    /// Names by which the node is reached, beside those of its listener.
    names: Arc<[String]>,
    /// Whether the plane is served over TLS.
    is_secured: bool,
    /// Peer of the connection that this clone answers.
    peer: Option<Peer>,
}

/// Routes without parameters by path and method. The router has them too, for what is rare: other methods, and HEAD.
/// Looking here first spares a short request a twelfth of its instructions.
type PlainRoutes = HashMap<&'static str, Vec<(Method, Endpoint)>>;

/// A handler with its layers, its types erased.
pub(crate) type Endpoint = Box<dyn Fn(Request) -> Answering + Send + Sync>;

/// State that all routes and connections of a plane share.
pub(crate) struct Shared {
    pub kernel: KernelHandle,
    pub limits: Snapshot<HttpLimits>,
    pub metrics: Arc<Metrics>,
    /// Guard that turns requests away once the plane drains.
    pub entrance: DrainGuard,
    pub counters: Counters,
    pub shares: Arc<SharedShares>,
    /// Names that requests without a credential must call the node by; none if the listener is not on loopback, where
    /// no web page reaches further than its own network does anyway.
    pub own_names: ArcSwapOption<OwnNames>,
}

/// Counters found once, so that no request looks up a label.
pub(crate) struct Counters {
    deadlines: Counter,
    drains: Counter,
    stalled_bodies: Counter,
    large_bodies: Counter,
    large_heads: Counter,
    inflations: Counter,
    body_memory: Counter,
}

impl ApiBuilder {
    /// A plane without any surface.
    pub fn new(kernel: KernelHandle, limits: Snapshot<HttpLimits>) -> Self {
        let metrics = Arc::clone(kernel.metrics());
        let counters = Counters::new(&metrics);
        let shares = SharedShares::new(limits.clone(), &metrics);
        let (entrance, own_names) = Default::default();
        let shared = Arc::new(Shared { kernel, limits, metrics, entrance, counters, shares, own_names });
        let (surfaces, operations, spaces) = (Vec::new(), Vec::new(), Vec::new());
        let (router, plain) = (Router::new(), PlainRoutes::new());
        ApiBuilder { shared, authority: None, names: Vec::new(), surfaces, operations, spaces, router, plain }
    }

    /// What callers of the plane share, for other planes of the node: there is one share for each, wherever it asks.
    pub fn shares(&self) -> Arc<SharedShares> {
        Arc::clone(&self.shared.shares)
    }

    /// Decides on the tokens of the operations that follow; they are looked at before anything of a request is read.
    pub fn authority(mut self, authority: &Authority) -> Self {
        self.authority = Some(authority.clone());
        self
    }

    /// Adds the name in an origin, `http://name:port`, to those by which the node is reached.
    pub(crate) fn reached_at(mut self, origin: &str) -> Self {
        let name = origin.parse().ok().and_then(|uri: Uri| uri.host().map(str::to_owned));
        self.names.extend(name);
        self
    }

    /// Adds a surface. Its operations are to follow, all of them: what is declared is what is described.
    pub fn surface(mut self, surface: &'static Surface) -> Self {
        self.surfaces.push(surface);
        self
    }

    /// Below a prefix, refuses what no route has in the words of the protocol that the paths belong to.
    pub(crate) fn path_space(mut self, space: &'static PathSpace) -> Self {
        self.spaces.push(space);
        self
    }

    /// Serves an operation with every layer around its handler.
    ///
    /// # Panics
    ///
    /// Panics if no surface added before declares the operation, if its pattern and method are taken, and if it needs a
    /// token and nobody decides on tokens: these are mistakes in the code, seen at the first start.
    pub fn operation<H, T>(self, operation: &'static Operation, handler: H) -> Self
    where
        H: Handler<T, Call>,
        T: 'static,
    {
        let recognizer: Arc<dyn Recognizer> = match (operation.takes_token(), &self.authority) {
            (false, _) => Arc::new(AnyoneRecognizer),
            (true, Some(authority)) => {
                Arc::new(TokenRecognizer { authority: authority.clone(), even_expired: operation.takes_expired_token })
            }
            (true, None) => panic!("{} needs a token and nobody decides on tokens", operation.spec.pattern),
        };
        self.operation_for(operation, recognizer, handler)
    }

    /// Serves an operation that recognizes its callers in its own way.
    pub(crate) fn operation_for<H, T>(
        mut self,
        operation: &'static Operation,
        recognizer: Arc<dyn Recognizer>,
        handler: H,
    ) -> Self
    where
        H: Handler<T, Call>,
        T: 'static,
    {
        let spec = &operation.spec;
        let declared = self.surfaces.iter().find(|surface| surface.declares(operation));
        let Some(surface) = declared else { panic!("no surface declares {} {}", spec.method.name(), spec.pattern) };
        let route = RouteState::new(operation, recognizer, Arc::clone(&self.shared)).of_service(surface.service);
        let guarded = Guarded::new(handler, Arc::new(route));
        self.router = self.router.route(spec.pattern, on(spec.method.filter(), guarded.clone()));
        if !spec.pattern.contains('{') {
            let endpoint = move |request| guarded.clone().call(request, ());
            self.plain.entry(spec.pattern).or_default().push((spec.method.method(), Box::new(endpoint)));
        }
        self.operations.push(operation);
        self
    }

    /// Kernel that the plane's tasks run under.
    pub(crate) fn kernel(&self) -> &KernelHandle {
        &self.shared.kernel
    }

    /// The surfaces added so far, in order.
    pub(crate) fn surfaces(&self) -> &[&'static Surface] {
        &self.surfaces
    }

    /// Whether an operation has this method and pattern.
    pub(crate) fn serves(&self, method: HttpMethod, pattern: &str) -> bool {
        self.operations.iter().any(|operation| operation.spec.method == method && operation.spec.pattern == pattern)
    }

    /// The plane with its description, ready to serve.
    ///
    /// # Panics
    ///
    /// Panics if a surface declares an operation that it did not mount.
    pub fn build(self) -> Api {
        let ApiBuilder { shared, names, surfaces, operations, spaces, router, plain, .. } = openapi::describe(self);
        for declared in surfaces.iter().flat_map(|surface| surface.operations) {
            let is_mounted = operations.iter().any(|mounted| std::ptr::eq(*mounted, *declared));
            assert!(is_mounted, "{} {} is not mounted", declared.spec.method.name(), declared.spec.pattern);
        }
        let unmatched = Unmatched::new(&shared, &operations, spaces);
        let no_path = Arc::clone(&unmatched);
        let router = router
            .fallback(move |request: Request| no_path.no_path(request))
            .method_not_allowed_fallback(move |request: Request| unmatched.no_method(request));
        let (operations, plain, names) = (operations.into(), Arc::new(plain), names.into());
        Api { shared, operations, router, plain, names, is_secured: false, peer: None }
    }
}

impl Api {
    /// Everything that is served, in the order it was added.
    pub fn operations(&self) -> &[&'static Operation] {
        &self.operations
    }

    /// Number of requests being answered now.
    pub fn requests_in_flight(&self) -> usize {
        self.shared.entrance.inside()
    }

    /// The plane as a listener with or without TLS serves it.
    pub(crate) fn secured(self, is_secured: bool) -> Self {
        Api { is_secured, ..self }
    }

    /// From now on the plane is served at this address. On loopback, where the browser of whoever works on the machine
    /// reaches it, requests of web pages are refused.
    pub(crate) fn listens_at(&self, address: SocketAddr) {
        let names = || OwnNames::new(self.names.iter().cloned());
        self.shared.own_names.store(address.ip().is_loopback().then(names).map(Arc::new));
    }

    /// The plane as the peer of one connection meets it.
    pub(crate) fn met_by(self, peer: Peer) -> Self {
        Api { peer: Some(peer), ..self }
    }

    /// Finds the route of a request and answers it.
    pub(crate) fn answer(&self, mut request: Request) -> Answering {
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
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

impl Counters {
    fn new(metrics: &Metrics) -> Self {
        Counters {
            deadlines: metrics.io_timeouts.at("request"),
            drains: metrics.tasks_canceled.at("http_request"),
            stalled_bodies: metrics.io_timeouts.at("read"),
            large_bodies: metrics.frame_rejects.at("body"),
            large_heads: metrics.frame_rejects.at("header"),
            inflations: metrics.frame_rejects.at("inflate"),
            body_memory: metrics.busy_rejections.at("body_memory"),
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
            Counted::BodyMemory => self.body_memory.inc(),
        };
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use ron_kernel::{Builder, KernelOptions};

    use super::*;

    static READ: Operation = Operation::get("/plain", "places", "reads");
    static WRITE: Operation = Operation::put("/plain", "places", "writes");
    static NAMED: Operation = Operation::get("/named/{name}", "places", "reads by name");
    static NUMBERED: Operation = Operation::get("/{shelf}/{number}", "places", "reads by number").claims(is_numbered);

    static PLACES: Surface =
        Surface { service: "tests", about: "", tags: &["places"], operations: &[&READ, &WRITE, &NAMED, &NUMBERED] };

    fn is_numbered(path: &str) -> bool {
        path.rsplit('/').next().is_some_and(|number| number.parse::<u32>().is_ok())
    }

    fn empty() -> (Builder, ApiBuilder) {
        let kernel = Builder::new(KernelOptions::default(), Metrics::new());
        let api = ApiBuilder::new(kernel.handle(), Snapshot::new(HttpLimits::default()));
        (kernel, api)
    }

    fn places(builder: ApiBuilder) -> ApiBuilder {
        let builder = builder.surface(&PLACES).operation(&READ, async || "read").operation(&WRITE, async || "written");
        builder.operation(&NAMED, async || "named").operation(&NUMBERED, async || "numbered")
    }

    fn request(method: &Method, path: &'static str) -> Request {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method.clone();
        *request.uri_mut() = Uri::from_static(path);
        request
    }

    #[tokio::test]
    async fn a_route_is_found_the_same_with_parameters_and_without() {
        let (_kernel, builder) = empty();
        let api = places(builder).build();
        for (method, path, content) in [
            (Method::GET, "/plain?a=b", "read"),
            (Method::PUT, "/plain", "written"),
            (Method::HEAD, "/plain", ""),
            (Method::GET, "/named/x", "named"),
            (Method::HEAD, "/named/x", ""),
            (Method::GET, "/shelf/7", "numbered"),
        ] {
            let response = api.answer_to(request(&method, path)).await;
            assert_eq!(response.status(), 200, "{method} {path}");
            assert!(response.headers().contains_key("x-corr-id"), "{method} {path}");
            let body = axum::body::to_bytes(response.into_body(), 100).await.expect("a body");
            assert_eq!(body, content, "{method} {path}");
        }
        for path in ["/plain/", "/plai", "/named"] {
            assert_eq!(api.answer_to(request(&Method::GET, path)).await.status(), 404, "{path}");
        }
    }

    #[tokio::test]
    async fn a_pattern_has_only_the_paths_that_its_operations_claim() {
        let (_kernel, builder) = empty();
        let api = places(builder).build();
        for (method, path, status) in [
            (Method::GET, "/shelf/7", 200),
            (Method::GET, "/shelf/seven", 404),
            (Method::PUT, "/shelf/7", 405),
            (Method::PUT, "/shelf/seven", 404),
            (Method::PUT, "/named/x", 405),
        ] {
            assert_eq!(api.answer_to(request(&method, path)).await.status(), status, "{method} {path}");
        }
    }

    #[test]
    #[should_panic(expected = "no surface declares GET /plain")]
    fn what_is_not_declared_is_not_mounted() {
        let (_kernel, builder) = empty();
        drop(builder.operation(&READ, async || "read"));
    }

    #[test]
    #[should_panic(expected = "PUT /plain is not mounted")]
    fn what_is_declared_must_be_mounted() {
        let (_kernel, builder) = empty();
        drop(builder.surface(&PLACES).operation(&READ, async || "read").build());
    }
}
