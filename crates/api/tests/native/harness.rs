//! A node with the mailbox and its surfaces, and a client of the native one that may do everything.

use std::net::SocketAddr;
use std::sync::Arc;

use ron_api::{HttpLimits, Keyring, SqsOptions, mailbox_routes, sqs_routes};
use ron_auth::{Authority, ResourceScope, RootKey};
use ron_kernel::{ExitReport, KernelHandle, Metrics};
use serde_json::{Value, json};
use svc_mailbox::{LiveOptions, Mailbox};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

pub use crate::served::within;
use crate::served::{self, serve_mailbox};

pub struct Node {
    pub address: SocketAddr,
    pub mailbox: Mailbox,
    pub metrics: Arc<Metrics>,
    pub token: String,
    pub authority: Authority,
    handle: KernelHandle,
    _kernel: JoinSet<ExitReport>,
}

impl Node {
    pub async fn start() -> Node {
        Node::with(HttpLimits::default()).await
    }

    pub async fn with(limits: HttpLimits) -> Node {
        let metrics = Metrics::new();
        let authority = Authority::new(RootKey::generate(), None, ron_kernel::clock::unix_millis);
        let every: Vec<_> = svc_mailbox::capabilities::CAPABILITIES.verbs.iter().map(|verb| verb.action).collect();
        let token = served::token(&authority, &every, ResourceScope::Any);
        let routes = |api, mailbox: Mailbox| {
            let keyring = Keyring::open(None).expect("in memory");
            let api = mailbox_routes(api, mailbox.clone(), authority.clone());
            let options = SqsOptions { signatures: false, ..SqsOptions::default() };
            sqs_routes(api, mailbox, authority.clone(), keyring, options)
        };
        let served = serve_mailbox(Arc::clone(&metrics), LiveOptions::default(), limits, routes).await;
        let (address, mailbox, handle, kernel) = served;
        Node { address, mailbox, metrics, token, authority, handle, _kernel: kernel }
    }

    /// A token to look after topics: `*`, a name, or with a star at its end how names begin.
    pub fn admin_of(&self, scope: &str) -> String {
        let scope: ResourceScope = scope.parse().expect("a scope");
        served::token(&self.authority, &[svc_mailbox::capabilities::ADMIN], scope)
    }

    /// Has the node begin to leave.
    pub async fn drain(&self) {
        self.handle.drain().await.expect("the supervisor listens");
    }

    /// The status and the body of an answer.
    pub async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.ask_with(&self.token, method, path, body).await
    }

    /// The same with another token.
    pub async fn ask_with(&self, token: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.exchange(token, method, path, "content-type: application/json", body).await
    }

    /// Does something to a queue through SQS.
    pub async fn sqs(&self, action: &str, body: Value) -> Value {
        let headers = format!("content-type: application/x-amz-json-1.0\r\nx-amz-target: AmazonSQS.{action}");
        let (status, answer) = self.exchange(&self.token, "POST", "/", &headers, body).await;
        assert_eq!(status, 200, "{action}: {answer}");
        answer
    }

    async fn exchange(&self, token: &str, method: &str, path: &str, headers: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n\
             authorization: Bearer {token}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let asked = async {
            let mut stream = TcpStream::connect(self.address).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            std::io::Result::Ok(text)
        };
        let text = within(asked).await.expect("answered");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, if body.is_empty() { json!({}) } else { serde_json::from_str(body).expect(body) })
    }

    /// Asks for what must be done.
    pub async fn ok(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.ask(method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }
}
