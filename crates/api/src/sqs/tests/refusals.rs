//! Refusals of the plane's layers, as clients of SQS see them.

use axum::body::Body;
use axum::handler::Handler;
use futures_util::FutureExt as _;
use http::{Method, Uri};
use ron_kernel::{Builder, KernelOptions, Metrics, Snapshot};

use super::*;
use crate::extract::Payload;
use crate::limits::HttpLimits;
use crate::route::Api;

static QUEUE: Operation =
    post("/{account}/{queue}", "takes one request at a time").deadline(Duration::from_millis(50)).concurrency(1);

static QUEUES: Surface = Surface { service: "mailbox", about: "", tags: &["SQS"], operations: &[&QUEUE] };

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

/// A plane with one queue, and what it runs under.
fn plane<H: Handler<T, Call>, T: 'static>(limits: &HttpLimits, handler: H) -> (Api, Builder) {
    let kernel = Builder::new(KernelOptions::default(), Metrics::new());
    let builder = ApiBuilder::new(kernel.handle(), Snapshot::new(limits.clone()));
    (builder.surface(&QUEUES).operation(&QUEUE, handler).build(), kernel)
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
    let (fine, _kernel) = plane(&limits, fine);
    let (panicking, _kernel) = plane(&limits, panics);
    let (waiting, _kernel) = plane(&limits, waits);
    for sample in [JSON, QUERY] {
        assert_eq!(fine.answer_to(sample.request()).await.status(), 200);

        check(panicking.answer_to(sample.request()).await, sample, 500, "InternalFailure").await;
        check(waiting.answer_to(sample.request()).await, sample, 504, "RequestTimeout").await;

        let first = waiting.answer_to(sample.request());
        let mut first = std::pin::pin!(first);
        assert!(first.as_mut().now_or_never().is_none(), "it has the only permit");
        check(waiting.answer_to(sample.request()).await, sample, 429, "RequestThrottled").await;
        first.await;

        let large = Sample { body: "0123456789".repeat(11).leak(), ..sample };
        let response = fine.answer_to(large.request()).await;
        assert_eq!(response.headers()[header::CONNECTION], "close", "the rest of the body is not read");
        check(response, sample, 413, "RequestEntityTooLarge").await;

        // Not through `answer_to`, which opens the entrance.
        fine.shared.entrance.close();
        let response = fine.answer(sample.request()).await;
        assert_eq!(response.headers()[header::CONNECTION], "close", "the node goes");
        check(response, sample, 503, "ServiceUnavailable").await;
    }
}

#[tokio::test]
async fn paths_that_only_look_like_a_queue_keep_the_words_of_the_plane() {
    let (api, _kernel) = plane(&HttpLimits::default(), fine);
    let response = api.answer_to(NATIVE.request()).await;
    assert_eq!(response.status(), 404);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    assert!(!response.headers().contains_key("x-amzn-requestid"));
    assert_eq!(code_of(response).await, "E_NOT_FOUND");
}
