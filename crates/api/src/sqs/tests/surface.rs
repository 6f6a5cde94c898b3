//! Both protocols through all layers, down to a mailbox in memory.

use axum::body::Body;
use http::{HeaderMap, Method, StatusCode, Uri};
use ron_auth::RootKey;
use ron_kernel::{Builder, KernelOptions, Metrics, Snapshot};
use svc_mailbox::{LiveOptions, MailboxOptions};

use super::protocol::REQUEST_ID_HEADER;
use super::*;
use crate::limits::HttpLimits;
use crate::mailbox_routes;
use crate::route::Api;

/// The SQS surface over a mailbox in memory, on a kernel of its own.
struct ServedSurface {
    api: Api,
    /// Dropped with the surface, and the kernel with it.
    _running: tokio::task::JoinSet<ron_kernel::ExitReport>,
}

struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl ServedSurface {
    async fn start(options: SqsOptions) -> ServedSurface {
        ServedSurface::within(HttpLimits::default(), options).await
    }

    async fn within(limits: HttpLimits, options: SqsOptions) -> ServedSurface {
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let authority = Authority::new(RootKey::generate(), None, ron_kernel::clock::unix_millis);
        let (live, limits) = (Snapshot::new(LiveOptions::default()), Snapshot::new(limits));
        let mailbox = svc_mailbox::install(&mut builder, MailboxOptions::default(), live);
        let keyring = Keyring::open(None).expect("no file");
        let plane = ApiBuilder::new(builder.handle(), limits);
        let plane = mailbox_routes(plane, mailbox.clone(), authority.clone());
        let api = sqs_routes(plane, mailbox, authority, keyring, options).build();
        let kernel = builder.build().expect("a valid plan");
        let mut status = kernel.handle().watch_status();
        let mut running = tokio::task::JoinSet::new();
        running.spawn(kernel.run());
        status.wait_for(|status| status.is_ready()).await.expect("the kernel lives");
        ServedSurface { api, _running: running }
    }

    async fn ask(&self, method: Method, target: &str, headers: HeaderMap, body: &str) -> Answered {
        let (parts, body) = self.respond(method, target, headers, body).await.into_parts();
        let body = axum::body::to_bytes(body, 1 << 24).await.expect("a whole body");
        Answered { status: parts.status, headers: parts.headers, body: String::from_utf8(body.to_vec()).expect("text") }
    }

    /// The answer before anybody reads it.
    async fn respond(&self, method: Method, target: &str, headers: HeaderMap, body: &str) -> Response {
        let mut request = Request::new(Body::from(body.to_owned()));
        *request.method_mut() = method;
        *request.uri_mut() = target.parse::<Uri>().expect("a target");
        *request.headers_mut() = headers;
        request.headers_mut().insert(header::HOST, HeaderValue::from_static("node:9000"));
        self.api.answer_to(request).await
    }

    async fn json(&self, path: &str, action: &str, body: &str) -> Answered {
        let mut headers = headers(None, Some("application/x-amz-json-1.0"));
        headers.insert(protocol::TARGET_HEADER, format!("AmazonSQS.{action}").parse().expect("plain"));
        self.ask(Method::POST, path, headers, body).await
    }

    async fn form(&self, path: &str, body: &str) -> Answered {
        self.ask(Method::POST, path, headers(None, Some("application/x-www-form-urlencoded")), body).await
    }

    async fn get(&self, target: &str) -> Answered {
        self.ask(Method::GET, target, HeaderMap::new(), "").await
    }
}

impl Answered {
    #[track_caller]
    fn fine(self) -> String {
        assert_eq!(self.status, 200, "{}", self.body);
        assert_eq!(self.headers[REQUEST_ID_HEADER], self.headers["x-corr-id"]);
        self.body
    }

    #[track_caller]
    fn refused(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.headers["x-amzn-query-error"], format!("{code};Sender"), "{}", self.body);
        assert_eq!(self.headers[REQUEST_ID_HEADER], self.headers["x-corr-id"]);
    }
}

/// The text of the first element of this name.
fn element<'a>(xml: &'a str, name: &str) -> &'a str {
    let (_, rest) = xml.split_once(&format!("<{name}>")).expect(xml);
    rest.split_once(&format!("</{name}>")).expect(xml).0
}

fn unsigned() -> SqsOptions {
    SqsOptions { signatures: false, ..SqsOptions::default() }
}

#[tokio::test]
async fn what_one_protocol_sends_the_other_receives() {
    let served = ServedSurface::start(unsigned()).await;
    let made = served.form("/", "Action=CreateQueue&QueueName=jobs&Attribute.1.Name=DelaySeconds&Attribute.1.Value=0");
    let url = element(&made.await.fine(), "QueueUrl").to_owned();
    assert_eq!(url, "http://node:9000/000000000000/jobs");

    let sent =
        served.json("/", "SendMessage", &format!(r#"{{"QueueUrl":"{url}","MessageBody":"a\r\n<b>"}}"#)).await.fine();
    let sent: Value = serde_json::from_str(&sent).expect("json");
    let form = format!("Action=ReceiveMessage&QueueUrl={url}&AttributeName.1=All");
    let received = served.form("/", &form).await.fine();
    assert_eq!(element(&received, "Body"), "a&#13;\n&lt;b&gt;");
    assert_eq!(element(&received, "MessageId"), sent["MessageId"]);
    assert_eq!(element(&received, "MD5OfBody"), sent["MD5OfMessageBody"]);
    let receipt = element(&received, "ReceiptHandle");
    // Here the path names the queue.
    let deleted =
        served.json("/000000000000/jobs", "DeleteMessage", &format!(r#"{{"ReceiptHandle":"{receipt}"}}"#)).await;
    assert_eq!(deleted.fine(), "");

    let sent = served.get("/000000000000/jobs/?Action=SendMessage&MessageBody=by+address").await.fine();
    let received = served.json("/", "ReceiveMessage", r#"{"QueueUrl":"jobs"}"#).await.fine();
    let received: Value = serde_json::from_str(&received).expect("json");
    assert_eq!(received["Messages"][0]["Body"], "by address");
    assert_eq!(received["Messages"][0]["MessageId"], element(&sent, "MessageId"));
    let nothing = served.json("/", "ReceiveMessage", r#"{"QueueUrl":"jobs"}"#).await;
    assert_eq!(nothing.fine(), "{}");
}

#[tokio::test]
async fn what_is_no_request_is_told_so() {
    let served = ServedSurface::start(unsigned()).await;
    for target in ["/", "/?QueueName=jobs", "/000000000000/jobs", "/000000000000/jobs/?Version=2012-11-05"] {
        let browser = served.get(target).await;
        assert_eq!((browser.status.as_u16(), browser.body.trim()), (404, "<UnknownOperationException/>"), "{target}");
        assert_eq!(browser.headers[header::CONTENT_TYPE], "text/xml");
    }
    served.form("/", "QueueName=jobs").await.refused(400, "MissingAction");
    served.get("/?Action=ListQueues&Action=GetQueueUrl").await.refused(400, "MalformedInput");
    served.get("/?Action=Fly").await.refused(400, "InvalidAction");
    served.json("/", "Fly", "{}").await.refused(400, "InvalidAction");
    served.json("/", "SendMessage", "{\"QueueUrl\":").await.refused(400, "SerializationException");
    served.json("/", "SendMessage", "[]").await.refused(400, "SerializationException");
    served.form("/", "Action=SendMessage&MessageBody=%ff").await.refused(400, "MalformedInput");
    let missing = served.get("/?Action=GetQueueUrl&QueueName=nowhere").await;
    missing.refused(400, "AWS.SimpleQueueService.NonExistentQueue");
    assert_eq!(element(&missing.body, "Message"), "The specified queue does not exist for this wsdl version.");
    let missing = served.json("/", "GetQueueUrl", r#"{"QueueName":"nowhere"}"#).await;
    missing.refused(400, "AWS.SimpleQueueService.NonExistentQueue");
    assert!(missing.body.contains("The specified queue does not exist."), "{}", missing.body);
}

#[tokio::test]
async fn the_trace_of_a_request_arrives_with_its_messages() {
    let served = ServedSurface::start(unsigned()).await;
    served.form("/", "Action=CreateQueue&QueueName=jobs").await.fine();
    let traced = |content_type| {
        let mut headers = headers(None, Some(content_type));
        headers.insert("x-amzn-trace-id", HeaderValue::from_static("Root=1-67"));
        headers
    };
    let form = "Action=SendMessage&QueueUrl=jobs&MessageBody=one";
    let sent = served.ask(Method::POST, "/", traced("application/x-www-form-urlencoded"), form).await.fine();
    assert!(!sent.contains("MD5OfMessageSystemAttributes"), "{sent}");
    let mut headers = traced("application/x-amz-json-1.0");
    headers.insert(protocol::TARGET_HEADER, HeaderValue::from_static("AmazonSQS.SendMessageBatch"));
    let own = r#"{"AWSTraceHeader":{"DataType":"String","StringValue":"Root=own"}}"#;
    let batch = format!(
        r#"{{"QueueUrl":"jobs","Entries":[{{"Id":"two","MessageBody":"two"}},
            {{"Id":"three","MessageBody":"three","MessageSystemAttributes":{own}}}]}}"#
    );
    served.ask(Method::POST, "/", headers, &batch).await.fine();
    let asked = r#"{"QueueUrl":"jobs","MaxNumberOfMessages":10,"MessageSystemAttributeNames":["AWSTraceHeader"]}"#;
    let received: Value = serde_json::from_str(&served.json("/", "ReceiveMessage", asked).await.fine()).expect("json");
    let mut traces: Vec<_> = received["Messages"].as_array().expect("messages").iter().collect();
    traces.sort_by_key(|message| message["Body"].as_str().map(str::to_owned));
    let traces: Vec<_> = traces.iter().map(|message| message["Attributes"]["AWSTraceHeader"].as_str()).collect();
    assert_eq!(traces, [Some("Root=1-67"), Some("Root=own"), Some("Root=1-67")]);
}

#[tokio::test]
async fn a_queue_that_is_not_there_is_a_mistake_of_the_caller_in_both_protocols() {
    let served = ServedSurface::start(unsigned()).await;
    for (action, json, form) in requests() {
        // These name no queue by its URL, or make one.
        if matches!(action, Action::CreateQueue | Action::ListQueues) || json.contains("Arn") || json.contains("Task") {
            continue;
        }
        let code = "AWS.SimpleQueueService.NonExistentQueue";
        served.json("/", action.name(), json).await.refused(400, code);
        served.form("/", form).await.refused(400, code);
        let (path, member) = ("/000000000000/nowhere", "QueueUrl=http");
        if form.contains(member) {
            served.form(path, &form.replace(member, "Unused=http")).await.refused(400, code);
        }
    }
}

#[tokio::test]
async fn nothing_is_done_without_a_signature() {
    let served = ServedSurface::start(SqsOptions::default()).await;
    for action in Action::ALL {
        let name = action.name();
        let answer = served.json("/", name, "{}").await;
        assert_eq!(answer.status, 403, "{name}: {}", answer.body);
        let answer = served.get(&format!("/000000000000/jobs?Action={name}")).await;
        assert_eq!(answer.status, 403, "{name}: {}", answer.body);
    }
}

#[tokio::test]
async fn paths_of_the_native_surface_stay_its_own() {
    let served = ServedSurface::start(unsigned()).await;
    for (method, path, status) in [
        (Method::GET, "/v1/nothing", 404),
        (Method::POST, "/v1/nothing", 404),
        (Method::PUT, "/v1/nothing", 404),
        (Method::GET, "/nothing", 404),
        (Method::DELETE, "/v1/send", 405),
        (Method::PUT, "/000000000000/jobs", 405),
    ] {
        let answer = served.ask(method.clone(), path, HeaderMap::new(), "").await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        assert_eq!(answer.headers[header::CONTENT_TYPE], "application/problem+json", "{method} {path}");
    }
}

#[tokio::test]
async fn a_receive_that_is_asked_for_again_counts_until_its_answer_has_left() {
    const BODY_BYTES: usize = 100 * 1024;
    let limits = HttpLimits { answer_memory_bytes_max: 10 * BODY_BYTES, ..HttpLimits::default() };
    let served = ServedSurface::within(limits, unsigned()).await;
    let attributes = r#"{"FifoQueue":"true","ContentBasedDeduplication":"true"}"#;
    let made = format!(r#"{{"QueueName":"jobs.fifo","Attributes":{attributes}}}"#);
    served.json("/", "CreateQueue", &made).await.fine();
    let sent = format!(r#"{{"MessageGroupId":"g","MessageBody":"{}"}}"#, "x".repeat(BODY_BYTES));
    served.json("/000000000000/jobs.fifo", "SendMessage", &sent).await.fine();
    let mut unread = Vec::new();
    let again = "Action=ReceiveMessage&ReceiveRequestAttemptId=a";
    let form = || headers(None, Some("application/x-www-form-urlencoded"));
    while unread.len() < 20 {
        let response = served.respond(Method::POST, "/000000000000/jobs.fifo", form(), again).await;
        if response.status() != 200 {
            assert_eq!(response.status(), 429);
            break;
        }
        unread.push(response);
    }
    assert!((1..=10).contains(&unread.len()), "{} answers that nobody has read", unread.len());
    unread.clear();
    let received = served.form("/000000000000/jobs.fifo", again).await.fine();
    assert!(received.len() > BODY_BYTES, "what was refused can be asked for again");
}
