//! The layers around every handler, in one future: id, admission, bounds, deadline, panic, problem body, measure.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use futures_util::FutureExt as _;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};
use http_body::Body as _;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use ron_cells::Pass;
use ron_kernel::{Deadline, clock};
use ron_types::web_page::PageHeaders;
use ron_types::{Error, Kind};
use tokio::time::Instant;

use crate::admission::{Admission, RoutePermits};
use crate::body;
use crate::call::{self, Call};
use crate::corr::{CORR_ID_HEADER, CorrId};
use crate::error_format::{ErrorFormat, ErrorFormats, ProblemJson, RefusedRequest};
use crate::fair_share::Sharer;
use crate::limits::HttpLimits;
use crate::operation::Operation;
use crate::problem::{Counted, Problem};
use crate::recognition::{AnyoneRecognizer, Recognized, Recognizer};
use crate::route::{HttpMethod, Peer, Shared};
use crate::unmatched::PathSpace;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// A handler with the layers around it: permit, deadline, metrics, error format.
#[derive(Clone)]
pub(crate) struct Guarded<H> {
    handler: H,
    route: Arc<RouteState>,
}

/// Future of an answer.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Everything a route needs at each request, found once.
pub(crate) struct RouteState {
    endpoint: &'static str,
    error_formats: Option<&'static ErrorFormats>,
    claims: Option<fn(&str) -> bool>,
    /// The handler bounds the body.
    takes_stream: bool,
    is_open_to_pages: bool,
    deadline: Option<Duration>,
    recognizer: Arc<dyn Recognizer>,
    /// Service that does the work; none where the plane answers by itself.
    service: Option<&'static str>,
    permits: RoutePermits,
    busy: Counter,
    latency: Latency,
    shared: Arc<Shared>,
}

enum Latency {
    /// Histogram of the one method a route has.
    Route(Histogram),
    /// Unknown paths come with any; the names are a closed set all the same.
    Unmatched([(Method, Histogram); 5], Histogram),
}

impl RouteState {
    pub(crate) fn new(operation: &'static Operation, recognizer: Arc<dyn Recognizer>, shared: Arc<Shared>) -> Self {
        let Operation { spec, error_formats, claims, takes_stream, is_open_to_pages, .. } = operation;
        let latency = Latency::Route(shared.metrics.request_latency.at(spec.pattern, spec.method.name()));
        let state = RouteState::of(spec.pattern, latency, shared);
        let permits = RoutePermits::new(spec.concurrency);
        let (error_formats, claims) = (*error_formats, *claims);
        let (takes_stream, is_open_to_pages) = (*takes_stream, *is_open_to_pages);
        let deadline = spec.deadline;
        RouteState { recognizer, permits, deadline, error_formats, claims, takes_stream, is_open_to_pages, ..state }
    }

    pub(crate) fn unmatched(shared: Arc<Shared>) -> Self {
        let at = |method| shared.metrics.request_latency.at("unmatched", method);
        let known = [
            (Method::GET, at(HttpMethod::Get.name())),
            (Method::POST, at(HttpMethod::Post.name())),
            (Method::PUT, at(HttpMethod::Put.name())),
            (Method::DELETE, at(HttpMethod::Delete.name())),
            (Method::PATCH, at(HttpMethod::Patch.name())),
        ];
        let latency = Latency::Unmatched(known, at("other"));
        RouteState::of("unmatched", latency, shared)
    }

    /// What no route has of the paths of a protocol with words of its own for that.
    pub(crate) fn unmatched_of(space: &PathSpace, shared: Arc<Shared>) -> Self {
        let error_formats = Some(space.error_formats);
        RouteState { error_formats, is_open_to_pages: true, ..RouteState::unmatched(shared) }
    }

    /// A route that anyone may ask, with the configured bounds.
    fn of(endpoint: &'static str, latency: Latency, shared: Arc<Shared>) -> Self {
        RouteState {
            endpoint,
            error_formats: None,
            claims: None,
            takes_stream: false,
            is_open_to_pages: false,
            deadline: None,
            recognizer: Arc::new(AnyoneRecognizer),
            service: None,
            permits: RoutePermits::new(None),
            busy: shared.metrics.busy_rejections.at(endpoint),
            latency,
            shared,
        }
    }

    /// The route of a service: while that is not to be asked, its requests are refused here.
    pub(crate) fn of_service(self, service: &'static str) -> Self {
        RouteState { service: Some(service), ..self }
    }

    fn latency(&self, method: &Method) -> &Histogram {
        match &self.latency {
            Latency::Route(histogram) => histogram,
            Latency::Unmatched(known, other) => {
                known.iter().find(|(name, _)| name == method).map_or(other, |(_, histogram)| histogram)
            }
        }
    }

    fn refuse_busy(&self) -> Problem {
        self.busy.inc();
        Error::busy(format_args!("route {}, or your share of it,", self.endpoint)).into()
    }
}

impl<H> Guarded<H> {
    pub(crate) fn new(handler: H, route: Arc<RouteState>) -> Self {
        Guarded { handler, route }
    }
}

impl<H, T> Handler<T, ()> for Guarded<H>
where
    H: Handler<T, Call>,
    T: 'static,
{
    type Future = Answering;

    /// The request is taken apart before anybody waits, so that what waits is small.
    fn call(self, request: Request, (): ()) -> Answering {
        let started = clock::now();
        let Guarded { handler, route } = self;
        let origin = Origin::new(&route, &request);
        let admitted = admit(&route, handler, request, &origin, started);
        Box::pin(async move {
            let answer = match admitted {
                Ok(admitted) => admitted.run(&origin, route.endpoint).await,
                Err(Refused::Problem(problem)) => Err(problem),
                Err(Refused::Answered(response)) => Ok(*response),
            };
            let response = origin.finish(answer, &route.shared);
            route.latency(&origin.method).observe((clock::now() - started).as_secs_f64());
            response
        })
    }
}

/// Facts about a request that its answer needs after the handler consumed it.
struct Origin {
    corr_id: CorrId,
    method: Method,
    uri: Uri,
    version: Version,
    error_format: &'static dyn ErrorFormat,
    /// Whether the path is one that the operation claims.
    is_claimed: bool,
}

/// A request that was let in, and its handler on the way.
struct Admitted<F> {
    deadline: Deadline,
    answer: F,
    _pass: Pass,
    admission: Admission,
}

/// A request that was not let in.
enum Refused {
    Problem(Problem),
    /// The recognizer of its callers has written the answer.
    Answered(Box<Response>),
}

impl<T: Into<Problem>> From<T> for Refused {
    fn from(problem: T) -> Self {
        Refused::Problem(problem.into())
    }
}

/// Lets a request in, cheapest questions first: nothing is read or reserved for a caller who has not shown a credential
/// where one is asked for.
fn admit<H, T>(
    route: &RouteState,
    handler: H,
    request: Request,
    origin: &Origin,
    started: Instant,
) -> Result<Admitted<H::Future>, Refused>
where
    H: Handler<T, Call>,
    T: 'static,
{
    let Some(pass) = route.shared.entrance.enter() else { return Err(draining().into()) };
    if !origin.is_claimed {
        return Err(not_found().into());
    }
    let limits = route.shared.limits.get();
    check_head(&request, &limits.value)?;
    if !route.takes_stream {
        check_body(&request, &limits.value)?;
    }
    let deadline = Deadline::at(started + call::budget(request.headers(), route.deadline, &limits.value)?);
    let (head, body) = request.into_parts();
    let recognized = route.recognizer.recognize(&head, &origin.corr_id).map_err(Refused::Answered)?;
    if matches!(recognized, Recognized::Anyone) && !route.is_open_to_pages {
        refuse_pages(&head, &route.shared)?;
    }
    if let Some(service) = route.service {
        route.shared.kernel.outages().get().value.check(service)?;
    }
    let sharer = Sharer { claim: recognized.claim(), address: Peer::of(&head).address };
    let Some(admission) = route.permits.admit(sharer, &route.shared.shares) else {
        return Err(route.refuse_busy().into());
    };
    let call = Call {
        corr_id: origin.corr_id,
        deadline,
        endpoint: route.endpoint,
        limits: limits.value.of_body(),
        admission: admission.clone(),
        bearer: recognized.bearer(),
    };
    let answer = handler.call(Request::from_parts(head, body), call);
    Ok(Admitted { deadline, answer, _pass: pass, admission })
}

impl<F: Future<Output = Response>> Admitted<F> {
    async fn run(self, origin: &Origin, endpoint: &'static str) -> Result<Response, Problem> {
        match self.deadline.run("request", AssertUnwindSafe(self.answer).catch_unwind()).await {
            Ok(Ok(response)) => self.admission.counted(response, origin),
            Ok(Err(_panic)) => {
                tracing::error!(corr_id = %origin.corr_id, endpoint, "the handler panicked");
                Err(Problem::internal("the handler of this route failed; the node goes on"))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Admission {
    /// The answer with what it holds of the memory for answers. What may have changed something is not refused for want
    /// of it: handlers whose answers are large ask before they do what cannot be undone.
    fn counted(&self, mut response: Response, origin: &Origin) -> Result<Response, Problem> {
        let is_multiplexed = origin.version >= Version::HTTP_2;
        let share = self.answer_share(response.body().size_hint().exact(), is_multiplexed, origin.method.is_safe())?;
        if let Some(share) = share {
            response.extensions_mut().insert(share);
        }
        Ok(response)
    }
}

fn check_head(request: &Request, limits: &HttpLimits) -> Result<(), Problem> {
    let uri = request.uri();
    // Each line also has a colon, a space and an end of two bytes.
    let lines: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let target = uri.path().len() + uri.query().map_or(0, str::len);
    if lines + target > limits.header_bytes_max {
        let detail = format!("target and headers are over {} bytes", limits.header_bytes_max);
        let problem = Problem::too_large(detail, Counted::LargeHead);
        return Err(Problem { status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, ..problem });
    }
    Ok(())
}

/// What the caller says of its body beforehand.
fn check_body(request: &Request, limits: &HttpLimits) -> Result<(), Problem> {
    if request.body().size_hint().lower() > limits.body_bytes_max as u64 {
        return Err(body::too_large(limits.body_bytes_max));
    }
    Ok(())
}

/// A credential is more than a page of somebody else can know, so only requests without one are asked where they come
/// from.
fn refuse_pages(head: &Parts, shared: &Shared) -> Result<(), Error> {
    let own_names = shared.own_names.load();
    let Some(own_names) = own_names.as_ref() else { return Ok(()) };
    let header = |name: HeaderName| head.headers.get(name).map(HeaderValue::as_bytes);
    let authority = || head.uri.authority().map(|authority| authority.as_str().as_bytes());
    let headers = PageHeaders {
        host: header(header::HOST).or_else(authority),
        origin: header(header::ORIGIN),
        fetch_site: header(SEC_FETCH_SITE),
    };
    own_names.refuse(headers).map_or(Ok(()), |reason| Err(Error::new(Kind::Forbidden, reason)))
}

/// The answer where no route has the path.
pub(crate) fn not_found() -> Problem {
    Error::new(Kind::NotFound, "no route has this path").into()
}

fn draining() -> Problem {
    let error = Error::new(Kind::Canceled, "the node is shutting down; ask another one");
    Problem { retry_after: Some(Duration::from_secs(1)), closes: true, ..error.into() }
}

impl Origin {
    fn new(route: &RouteState, request: &Request) -> Self {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let is_claimed = route.claims.is_none_or(|claims| claims(uri.path()));
        // Chosen here, because the handler consumes the request; most routes have nothing to choose.
        let error_format = match route.error_formats {
            Some(formats) if is_claimed => (formats.choose)(request),
            _ => &ProblemJson,
        };
        let corr_id = CorrId::of(request.headers());
        Origin { corr_id, method, uri, version: request.version(), error_format, is_claimed }
    }

    fn finish(&self, answer: Result<Response, Problem>, shared: &Shared) -> Response {
        let mut response = answer.unwrap_or_else(|problem| self.problem(&problem, shared));
        if let Some(problem) = response.extensions_mut().remove::<Problem>() {
            response = self.problem(&problem, shared);
        }
        response.headers_mut().insert(CORR_ID_HEADER, self.corr_id.header_value());
        // Said with the answer and not left to the connection, which hears of a drain a moment later: its client would
        // send the next request to a node that refuses it. What takes the connection over says so in the same header.
        if shared.entrance.is_closed() && self.version < Version::HTTP_2 {
            response.headers_mut().entry(header::CONNECTION).or_insert(HeaderValue::from_static("close"));
        }
        response
    }

    fn problem(&self, problem: &Problem, shared: &Shared) -> Response {
        shared.counters.count(problem.counted);
        // HTTP/2 has no header that closes a connection.
        let closes = problem.closes && self.version < Version::HTTP_2;
        let request = RefusedRequest { corr_id: &self.corr_id, path: self.uri.path(), closes };
        self.error_format.write(problem, &request)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use ron_kernel::spec::{ServiceSpec, TaskSpec};
    use ron_kernel::{Builder, KernelOptions, Metrics, Snapshot};
    use ron_policy::{Phase, RestartLaw};

    use super::*;
    use crate::route::ApiBuilder;
    use crate::surface::Surface;

    /// Error format that writes only the code and the path.
    struct Terse;

    impl ErrorFormat for Terse {
        fn media_type(&self) -> &'static str {
            "text/plain"
        }

        fn write(&self, problem: &Problem, request: &RefusedRequest<'_>) -> Response {
            let mut response = Response::new(Body::from(format!("{} at {}", problem.code, request.path)));
            *response.status_mut() = problem.status;
            response
        }
    }

    static TERSE: ErrorFormats = ErrorFormats {
        all: &[&Terse, &ProblemJson],
        choose: |request| if request.headers().contains_key("x-long") { &ProblemJson } else { &Terse },
    };

    static SLOW: Operation = Operation::get("/slow/{number}", "tests", "never ends")
        .deadline(Duration::from_millis(50))
        .error_formats(&TERSE)
        .claims(|path| path != "/slow/none");

    static SURFACE: Surface = Surface { service: "tests", about: "", tags: &["tests"], operations: &[&SLOW] };

    static QUICK: Operation = Operation::get("/quick", "others", "ends at once");

    static OTHER: Surface = Surface { service: "others", about: "", tags: &["others"], operations: &[&QUICK] };

    async fn refusal(path: &'static str, header: Option<&'static str>) -> (u16, String) {
        let kernel = Builder::new(KernelOptions::default(), Metrics::new());
        let builder = ApiBuilder::new(kernel.handle(), Snapshot::new(HttpLimits::default()));
        let api = builder.surface(&SURFACE).operation(&SLOW, std::future::pending::<&'static str>).build();
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = Uri::from_static(path);
        if let Some(header) = header {
            request.headers_mut().insert(header, http::HeaderValue::from_static("1"));
        }
        let response = api.answer_to(request).await;
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.expect("a whole body");
        (status, String::from_utf8(body.to_vec()).expect("text"))
    }

    static WAITER: TaskSpec =
        TaskSpec { owner: "tests", name: "waiter", count: "1", phase: Phase::Work, heartbeat: None, does: "" };
    static OUT: ServiceSpec = ServiceSpec {
        name: "tests",
        required: false,
        depends_on: &[],
        law: RestartLaw::MACRONODE,
        tasks: &[&WAITER],
        does: "",
    };

    #[tokio::test(start_paused = true)]
    async fn the_requests_of_a_service_that_is_out_are_refused_and_no_others() {
        let mut node = Builder::new(KernelOptions::default(), Metrics::new());
        let builder = ApiBuilder::new(node.handle(), Snapshot::new(HttpLimits::default()));
        let api = builder.surface(&SURFACE).operation(&SLOW, std::future::pending::<&'static str>);
        let api = api.surface(&OTHER).operation(&QUICK, async || "done").build();
        // It never says that it is ready.
        node.service(&OUT).task(&WAITER, 1, |context| async move {
            context.stopping().await;
            Ok(())
        });
        let kernel = node.build().expect("a valid plan");
        let handle = kernel.handle();
        let ask = async {
            handle.watch_status().wait_for(|status| !status.view.services.is_empty()).await.expect("it runs");
            let mut answers = Vec::new();
            for path in ["/slow/1", "/quick"] {
                let mut request = Request::new(Body::empty());
                *request.uri_mut() = Uri::from_static(path);
                answers.push(api.answer_to(request).await.status().as_u16());
            }
            handle.drain().await.expect("the supervisor listens");
            answers
        };
        let (_report, answers) = tokio::join!(kernel.run(), ask);
        assert_eq!(answers, [503, 200]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_in_the_format_that_was_chosen_for_its_request() {
        assert_eq!(refusal("/slow/1", None).await, (504, "E_TIMEOUT at /slow/1".to_owned()));
        let (status, body) = refusal("/slow/1", Some("x-long")).await;
        assert_eq!((status, body.contains("urn:macronode:error:E_TIMEOUT")), (504, true), "{body}");
        // A path that nobody claims has no format but the plane's.
        let (status, body) = refusal("/slow/none", None).await;
        assert_eq!((status, body.contains("urn:macronode:error:E_NOT_FOUND")), (404, true), "{body}");
    }
}
