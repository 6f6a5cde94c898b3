//! The layers around every handler, in one future: id, admission, bounds, deadline, panic, problem body, measure.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use futures_util::FutureExt as _;
use http::{Method, StatusCode, Uri, Version};
use http_body::Body as _;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use ron_cells::Pass;
use ron_kernel::{Deadline, clock};
use ron_types::{Error, Kind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::body;
use crate::call::{self, Call};
use crate::corr::{CORR_ID_HEADER, CorrId};
use crate::limits::HttpLimits;
use crate::problem::{Counted, Problem};
use crate::route::{ErrorFormat, RouteSpec, Shared, Verb};
use crate::sqs::{self, Protocol, REQUEST_ID_HEADER};

/// A handler with its layers.
#[derive(Clone)]
pub(crate) struct Guarded<H> {
    handler: H,
    route: Arc<RouteState>,
}

/// An answer on its way.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Everything a route needs at each request, found once.
pub(crate) struct RouteState {
    endpoint: &'static str,
    error_format: ErrorFormat,
    deadline: Option<Duration>,
    permits: Arc<Semaphore>,
    busy: Counter,
    latency: Latency,
    shared: Arc<Shared>,
}

enum Latency {
    /// A route has one method.
    Route(Histogram),
    /// Unknown paths come with any; the names are a closed set all the same.
    Unmatched([(Method, Histogram); 5], Histogram),
}

impl RouteState {
    pub(crate) fn new(spec: &'static RouteSpec, error_format: ErrorFormat, shared: Arc<Shared>) -> Self {
        let latency = Latency::Route(shared.metrics.request_latency.at(spec.pattern, spec.method.name()));
        RouteState { error_format, ..RouteState::of(spec.pattern, spec.deadline, spec.concurrency, latency, shared) }
    }

    pub(crate) fn unmatched(shared: Arc<Shared>) -> Self {
        let at = |method| shared.metrics.request_latency.at("unmatched", method);
        let known = [
            (Method::GET, at(Verb::Get.name())),
            (Method::POST, at(Verb::Post.name())),
            (Method::PUT, at(Verb::Put.name())),
            (Method::DELETE, at(Verb::Delete.name())),
            (Method::PATCH, at(Verb::Patch.name())),
        ];
        let latency = Latency::Unmatched(known, at("other"));
        RouteState::of("unmatched", None, None, latency, shared)
    }

    fn of(
        endpoint: &'static str,
        deadline: Option<Duration>,
        concurrency: Option<usize>,
        latency: Latency,
        shared: Arc<Shared>,
    ) -> Self {
        let permits = concurrency.unwrap_or_else(|| shared.limits.get().value.route_concurrency_max);
        let permits = Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        let busy = shared.metrics.busy_rejections.at(endpoint);
        RouteState { endpoint, error_format: ErrorFormat::Native, deadline, permits, busy, latency, shared }
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
        Error::busy(format_args!("route {}", self.endpoint)).into()
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
        let origin = Origin::new(route.error_format, &request);
        let admitted = admit(&route, handler, request, &origin, started);
        Box::pin(async move {
            let answer = match admitted {
                Ok(admitted) => admitted.run(&origin, route.endpoint).await,
                Err(problem) => Err(problem),
            };
            let response = origin.finish(answer, &route.shared);
            route.latency(&origin.method).observe((clock::now() - started).as_secs_f64());
            response
        })
    }
}

/// What is kept of a request for its answer.
struct Origin {
    corr_id: CorrId,
    method: Method,
    uri: Uri,
    version: Version,
    /// Set if the answer must be in the words of SQS.
    sqs: Option<Protocol>,
}

/// A request that was let in, and its handler on the way.
struct Admitted<F> {
    deadline: Deadline,
    answer: F,
    _pass: Pass,
    _permit: OwnedSemaphorePermit,
}

fn admit<H, T>(
    route: &RouteState,
    handler: H,
    request: Request,
    origin: &Origin,
    started: Instant,
) -> Result<Admitted<H::Future>, Problem>
where
    H: Handler<T, Call>,
    T: 'static,
{
    let Some(pass) = route.shared.entrance.enter() else { return Err(draining()) };
    let Ok(permit) = Arc::clone(&route.permits).try_acquire_owned() else { return Err(route.refuse_busy()) };
    let limits = route.shared.limits.get();
    check_size(&request, &limits.value)?;
    let deadline = Deadline::at(started + call::budget(request.headers(), route.deadline, &limits.value)?);
    let call = Call { corr_id: origin.corr_id, deadline, endpoint: route.endpoint, limits: limits.value.of_body() };
    Ok(Admitted { deadline, answer: handler.call(request, call), _pass: pass, _permit: permit })
}

impl<F: Future<Output = Response>> Admitted<F> {
    async fn run(self, origin: &Origin, endpoint: &'static str) -> Result<Response, Problem> {
        match self.deadline.run("request", AssertUnwindSafe(self.answer).catch_unwind()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(_panic)) => {
                tracing::error!(corr_id = %origin.corr_id, endpoint, "the handler panicked");
                Err(Problem::internal("the handler of this route failed; the node goes on"))
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn check_size(request: &Request, limits: &HttpLimits) -> Result<(), Problem> {
    let uri = request.uri();
    // Each line also has a colon, a space and an end of two bytes.
    let lines: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let target = uri.path().len() + uri.query().map_or(0, str::len);
    if lines + target > limits.header_bytes_max {
        let detail = format!("target and headers are over {} bytes", limits.header_bytes_max);
        let problem = Problem::too_large(detail, Counted::LargeHead);
        return Err(Problem { status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, ..problem });
    }
    // What the caller says beforehand.
    if request.body().size_hint().lower() > limits.body_bytes_max as u64 {
        return Err(body::too_large(limits.body_bytes_max));
    }
    Ok(())
}

fn draining() -> Problem {
    let error = Error::new(Kind::Canceled, "the node is shutting down; ask another one");
    Problem { retry_after: Some(Duration::from_secs(1)), closes: true, ..error.into() }
}

impl Origin {
    fn new(error_format: ErrorFormat, request: &Request) -> Self {
        let corr_id = CorrId::of(request.headers());
        let is_sqs = error_format == ErrorFormat::Sqs && sqs::is_sqs_path(request.uri().path());
        let sqs = is_sqs.then(|| Protocol::of(request.headers()));
        let (method, uri) = (request.method().clone(), request.uri().clone());
        Origin { corr_id, method, uri, version: request.version(), sqs }
    }

    fn finish(&self, answer: Result<Response, Problem>, shared: &Shared) -> Response {
        let mut response = answer.unwrap_or_else(|problem| self.problem(&problem, shared));
        if let Some(problem) = response.extensions_mut().remove::<Problem>() {
            response = self.problem(&problem, shared);
        }
        response.headers_mut().insert(CORR_ID_HEADER, self.corr_id.header_value());
        if self.sqs.is_some() {
            response.headers_mut().insert(REQUEST_ID_HEADER, self.corr_id.header_value());
        }
        response
    }

    fn problem(&self, problem: &Problem, shared: &Shared) -> Response {
        shared.counters.count(problem.counted);
        let http1 = self.version < Version::HTTP_2;
        match self.sqs {
            None => problem.render(Some(&self.corr_id), Some(self.uri.path()), http1),
            Some(protocol) => protocol.refusal(&problem.into(), &self.corr_id, problem.closes && http1),
        }
    }
}

#[cfg(test)]
mod tests;
