//! The layers around a handler, and the error_format in which they refuse.

use axum::body::Body;
use axum::response::IntoResponse as _;
use http::{HeaderValue, header};
use ron_kernel::{Builder, KernelOptions, Metrics, Snapshot};

use super::*;
use crate::extract::Payload;
use crate::route::ApiBuilder;

static QUEUE: RouteSpec = RouteSpec {
    pattern: "/{account}/{queue}",
    method: Verb::Post,
    deadline: Some(Duration::from_millis(50)),
    concurrency: Some(1),
    does: "a route that speaks SQS",
};

/// A request that gets a refusal of the guard in one of the two protocols.
#[derive(Clone, Copy, Debug)]
struct Sample {
    path: &'static str,
    target: Option<&'static str>,
    body: &'static str,
}

const JSON: Sample = Sample { path: "/000000000000/jobs", target: Some("AmazonSQS.SendMessage"), body: "{}" };
const QUERY: Sample = Sample { path: "/000000000000/jobs", target: None, body: "Action=SendMessage" };
const NATIVE: Sample = Sample { path: "/v1/nothing", target: Some("AmazonSQS.SendMessage"), body: "{}" };

impl Sample {
    fn request(self) -> Request {
        let mut request = Request::new(Body::from(self.body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(self.path);
        if let Some(target) = self.target {
            request.headers_mut().insert("x-amz-target", HeaderValue::from_static(target));
        }
        request
    }
}

struct GuardedRoute {
    route: Arc<RouteState>,
    /// What the plane runs under.
    _kernel: Builder,
}

impl GuardedRoute {
    fn new(limits: HttpLimits) -> GuardedRoute {
        let kernel = Builder::new(KernelOptions::default(), Metrics::new());
        let shared = ApiBuilder::new(kernel.handle(), Snapshot::new(limits)).build().shared;
        shared.entrance.open();
        GuardedRoute { route: Arc::new(RouteState::new(&QUEUE, ErrorFormat::Sqs, shared)), _kernel: kernel }
    }

    async fn ask<H: Handler<T, Call>, T: 'static>(&self, sample: Sample, handler: H) -> Response {
        Guarded::new(handler, Arc::clone(&self.route)).call(sample.request(), ()).await
    }
}

async fn fine(Payload(_): Payload) -> &'static str {
    "fine"
}

async fn panics(Payload(_): Payload) -> &'static str {
    panic!("a mistake in a handler")
}

async fn waits(Payload(_): Payload) -> &'static str {
    std::future::pending().await
}

/// The shape in JSON, the code in XML, whichever the body is.
async fn code_of(response: Response) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a whole body");
    let text = String::from_utf8(bytes.to_vec()).expect("text");
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(json) => json["__type"].as_str().or_else(|| json["code"].as_str()).expect("a name").to_owned(),
        Err(_) => {
            let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
            code.map_or(text.as_str(), |(code, _)| code).to_owned()
        }
    }
}

async fn check(response: Response, sample: Sample, status: u16, code: &str) {
    let headers = response.headers().clone();
    assert_eq!(response.status(), status, "{sample:?}");
    assert_eq!(headers["x-amzn-requestid"], headers["x-corr-id"], "{sample:?}");
    let fault = if status < 500 { "Sender" } else { "Receiver" };
    assert_eq!(headers["x-amzn-query-error"], format!("{code};{fault}"), "{sample:?}");
    let owed = matches!(status, 429 | 503);
    assert_eq!(headers.get(header::RETRY_AFTER).is_some_and(|value| value == "1"), owed, "{sample:?}");
    assert_eq!(headers.get("x-amz-retry-after").is_some_and(|value| value == "1000"), owed, "{sample:?}");
    let (media_type, name) = match sample.target {
        Some(_) => ("application/x-amz-json-1.0", format!("com.amazonaws.sqs#{code}")),
        None => ("text/xml", code.to_owned()),
    };
    assert_eq!(headers[header::CONTENT_TYPE], media_type);
    assert_eq!(code_of(response).await, name, "{sample:?}");
}

#[tokio::test]
async fn refusals_of_the_layers_are_in_the_words_of_sqs() {
    let limits = HttpLimits { body_bytes_max: 100, header_bytes_max: 1000, ..HttpLimits::default() };
    let guarded = GuardedRoute::new(limits);
    for sample in [JSON, QUERY] {
        let response = guarded.ask(sample, fine).await;
        assert_eq!((response.status(), response.headers().contains_key("x-amzn-requestid")), (StatusCode::OK, true));

        check(guarded.ask(sample, panics).await, sample, 500, "InternalFailure").await;
        check(guarded.ask(sample, waits).await, sample, 504, "RequestTimeout").await;

        let permit = guarded.route.permits.try_acquire().expect("nobody else is here");
        check(guarded.ask(sample, fine).await, sample, 429, "RequestThrottled").await;
        drop(permit);

        let large = Sample { body: "0123456789".repeat(11).leak(), ..sample };
        let response = guarded.ask(large, fine).await;
        assert_eq!(response.headers()[header::CONNECTION], "close", "the rest of the body is not read");
        check(response, sample, 413, "RequestEntityTooLarge").await;

        guarded.route.shared.entrance.close();
        let response = guarded.ask(sample, fine).await;
        assert_eq!(response.headers()[header::CONNECTION], "close", "the node goes");
        check(response, sample, 503, "ServiceUnavailable").await;
        guarded.route.shared.entrance.open();
    }
}

#[tokio::test]
async fn paths_that_only_look_like_a_queue_keep_the_native_words() {
    let guarded = GuardedRoute::new(HttpLimits::default());
    let handler = async || Problem::from(Error::new(Kind::NotFound, "no route has this path")).into_response();
    let response = guarded.ask(NATIVE, handler).await;
    assert_eq!(response.status(), 404);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    assert!(!response.headers().contains_key("x-amzn-requestid"));
    assert_eq!(code_of(response).await, "E_NOT_FOUND");
}
