//! A node with nothing but the mailbox and its SQS surface, without signatures, and a client of it.

use std::net::SocketAddr;

use ron_api::{HttpLimits, Keyring, SqsOptions, sqs_routes};
use ron_auth::{Action, Authority, ResourceScope, RootKey};
use ron_kernel::{ExitReport, Metrics};
use serde_json::{Value, json};
use svc_mailbox::types::TopicName;
use svc_mailbox::{LiveOptions, Mailbox};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

pub use crate::served::within;
use crate::served::{self, serve_mailbox};

pub const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:";

pub struct Node {
    address: SocketAddr,
    pub mailbox: Mailbox,
    authority: Authority,
    /// Goes with every request, if any.
    pub token: Option<String>,
    _kernel: JoinSet<ExitReport>,
}

/// What was answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The value of `x-amzn-query-error`.
    pub query_error: Option<String>,
    pub body: Value,
}

/// What a refusal must look like: shape, legacy code, status, message.
pub type Refusal<'a> = (&'a str, &'a str, u16, &'a str);

impl Node {
    pub async fn start() -> Node {
        Node::with(open(), LiveOptions::default()).await
    }

    /// A node that wants to know who asks.
    pub async fn guarded() -> Node {
        Node::with(SqsOptions { signatures: true, ..open() }, LiveOptions::default()).await
    }

    pub async fn with(options: SqsOptions, live: LiveOptions) -> Node {
        let authority = Authority::new(RootKey::generate(), None, ron_kernel::clock::unix_millis);
        let routes = |api, mailbox| {
            sqs_routes(api, mailbox, authority.clone(), Keyring::open(None).expect("in memory"), options)
        };
        let served = serve_mailbox(Metrics::new(), live, HttpLimits::default(), routes).await;
        let (address, mailbox, _, kernel) = served;
        Node { address, mailbox, authority, token: None, _kernel: kernel }
    }

    /// From now on these actions on these queues are all that is allowed.
    pub fn narrow(&mut self, actions: &[Action], scope: ResourceScope) {
        self.token = Some(served::token(&self.authority, actions, scope));
    }

    /// Sends these bytes as the body of an action.
    pub async fn post(&self, action: &str, body: &[u8]) -> Answer {
        let token = self.token.as_ref().map(|token| format!("authorization: Bearer {token}\r\n"));
        let token = token.unwrap_or_default();
        let head = format!(
            "POST / HTTP/1.1\r\nhost: node:9000\r\nconnection: close\r\ncontent-type: application/x-amz-json-1.0\r\n\
             x-amz-target: AmazonSQS.{action}\r\n{token}content-length: {}\r\n\r\n",
            body.len()
        );
        let asked = async {
            let mut stream = TcpStream::connect(self.address).await?;
            stream.write_all(&[head.as_bytes(), body].concat()).await?;
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await?;
            std::io::Result::Ok(bytes)
        };
        let bytes = within(asked).await.expect("answered");
        let text = String::from_utf8(bytes).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let query_error = head.lines().find_map(|line| line.strip_prefix("x-amzn-query-error: ")).map(str::to_owned);
        assert!(head.contains("x-amzn-requestid: "), "{head}");
        let body = if body.is_empty() { json!({}) } else { serde_json::from_str(body).expect(body) };
        Answer { status, query_error, body }
    }

    pub async fn ask(&self, action: &str, request: Value) -> Answer {
        self.post(action, request.to_string().as_bytes()).await
    }

    /// Asks for what must be done.
    pub async fn ok(&self, action: &str, request: Value) -> Value {
        let shown = request.to_string();
        let answer = self.ask(action, request).await;
        assert_eq!(answer.status, 200, "{action} {shown:.300}: {:?}", answer.body);
        answer.body
    }

    /// Asks for what must be refused, in just these words.
    pub async fn refused(&self, action: &str, request: Value, refusal: Refusal<'_>) {
        let shown = request.to_string();
        let answer = self.ask(action, request).await;
        let (shape, code, status, message) = refusal;
        let told = (answer.status, answer.query_error.as_deref(), &answer.body);
        let body = json!({"__type": type_of(shape), "message": message});
        let fault = if status < 500 { "Sender" } else { "Receiver" };
        assert_eq!(told, (status, Some(format!("{code};{fault}").as_str()), &body), "{action} {shown:.300}");
    }

    pub async fn all_refused(&self, table: Vec<(&str, Value, Refusal<'_>)>) {
        for (action, request, refusal) in table {
            self.refused(action, request, refusal).await;
        }
    }

    /// Makes a queue; its URL.
    pub async fn queue(&self, name: &str, attributes: Value) -> String {
        let mut attributes = attributes;
        if name.ends_with(".fifo") {
            attributes["FifoQueue"] = json!("true");
        }
        let made = self.ok("CreateQueue", json!({"QueueName": name, "Attributes": attributes})).await;
        made["QueueUrl"].as_str().expect("a URL").to_owned()
    }

    pub async fn send(&self, url: &str, body: &str) -> Value {
        self.ok("SendMessage", json!({"QueueUrl": url, "MessageBody": body})).await
    }

    /// Sends to a queue that keeps order.
    pub async fn send_in(&self, url: &str, group: &str, id: &str, body: &str) -> Value {
        let message = json!({"QueueUrl": url, "MessageBody": body, "MessageGroupId": group});
        self.ok("SendMessage", merged(message, json!({"MessageDeduplicationId": id}))).await
    }

    pub async fn receive(&self, url: &str, more: Value) -> Vec<Value> {
        let answer = self.ok("ReceiveMessage", merged(json!({"QueueUrl": url}), more)).await;
        answer["Messages"].as_array().cloned().unwrap_or_default()
    }

    /// Bodies of up to ten messages.
    pub async fn bodies(&self, url: &str) -> Vec<String> {
        let messages = self.receive(url, json!({"MaxNumberOfMessages": 10})).await;
        messages.iter().map(|message| text(&message["Body"])).collect()
    }

    pub async fn one(&self, url: &str, more: Value) -> Value {
        let mut messages = self.receive(url, merged(json!({"WaitTimeSeconds": 10}), more)).await;
        assert_eq!(messages.len(), 1, "{messages:?}");
        messages.remove(0)
    }

    /// Messages that are visible and messages that are not.
    pub async fn counts(&self, url: &str) -> (u64, u64) {
        let count = async |name: &str| self.attribute(url, name).await.and_then(|count| count.parse().ok());
        let visible = count("ApproximateNumberOfMessages").await.expect("a number");
        (visible, count("ApproximateNumberOfMessagesNotVisible").await.expect("a number"))
    }

    pub async fn attribute(&self, url: &str, name: &str) -> Option<String> {
        let asked = json!({"QueueUrl": url, "AttributeNames": [name]});
        self.ok("GetQueueAttributes", asked).await["Attributes"][name].as_str().map(str::to_owned)
    }
}

/// Options that ask nobody for a signature.
pub fn open() -> SqsOptions {
    let base_url = Some("http://node:9000".to_owned());
    SqsOptions { signatures: false, base_url, ..SqsOptions::default() }
}

/// A shape with its namespace: those that are not in the model have another.
pub fn type_of(shape: &str) -> String {
    let unmodelled = [
        "AccessDeniedException",
        "InvalidParameterValueException",
        "MissingRequiredParameterException",
        "SerializationException",
    ];
    let namespace = if unmodelled.contains(&shape) { "com.amazon.coral.service" } else { "com.amazonaws.sqs" };
    format!("{namespace}#{shape}")
}

pub fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

pub fn name(text: &str) -> TopicName {
    text.parse().expect("a name")
}

/// The members of both.
pub fn merged(mut one: Value, two: Value) -> Value {
    let (Some(all), Value::Object(more)) = (one.as_object_mut(), two) else { panic!("two objects are needed") };
    all.extend(more);
    one
}

pub fn no_queue() -> Refusal<'static> {
    ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", 400, "The specified queue does not exist.")
}

/// A parameter that is needed and not there.
pub fn missing(message: &str) -> Refusal<'_> {
    ("MissingRequiredParameterException", "MissingParameter", 400, message)
}

pub fn invalid(message: &str) -> Refusal<'_> {
    ("InvalidParameterValueException", "InvalidParameterValue", 400, message)
}
