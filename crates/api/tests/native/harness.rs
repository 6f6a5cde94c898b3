//! A node with the mailbox and its surfaces, and a client of the native one that may do everything.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use ron_api::{ApiBuilder, HttpLimits, Keyring, SqsOptions, mailbox_routes, serve, sqs_routes};
use ron_auth::{Authority, Grant, Op, RootKey, TopicScope};
use ron_kernel::spec::{ServiceSpec, TaskSpec};
use ron_kernel::{Builder, Deadline, ExitReport, KernelOptions, Metrics, Snapshot, TaskError};
use ron_policy::{NodeState, Phase, RestartLaw};
use serde_json::{Value, json};
use svc_mailbox::{LiveOptions, MailboxOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Nothing here takes this long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(30);

static LISTENER: TaskSpec = TaskSpec {
    owner: "macronode",
    name: "overlay_http",
    count: "1",
    phase: Phase::Intake,
    heartbeat: Some(Duration::from_secs(3)),
    does: "serves the plane",
};

static PLANE: ServiceSpec = ServiceSpec {
    name: "plane",
    required: true,
    depends_on: &["mailbox"],
    law: RestartLaw::MACRONODE,
    tasks: &[&LISTENER],
    does: "the plane under test",
};

pub struct Node {
    pub address: SocketAddr,
    pub metrics: Arc<Metrics>,
    pub token: String,
    _kernel: JoinSet<ExitReport>,
}

impl Node {
    pub async fn start() -> Node {
        Node::with(HttpLimits::default()).await
    }

    pub async fn with(limits: HttpLimits) -> Node {
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let handle = builder.handle();
        let authority = Authority::new(RootKey::generate(), None, ron_kernel::clock::unix_millis);
        let (ops, topics) = (Op::ALL.to_vec(), vec![TopicScope::Any]);
        let grant = Grant { subject: "someone".to_owned(), ops, topics, ..Grant::default() };
        let token = authority.mint(&grant).expect("a token");
        let options = MailboxOptions { segment_bytes: 2 << 20, ..MailboxOptions::default() };
        let live = Snapshot::new(LiveOptions::default());
        let mailbox = svc_mailbox::install(&mut builder, options, live, authority.clone(), None);
        let keyring = Keyring::open(None).expect("in memory");
        let api = ApiBuilder::new(handle.clone(), Snapshot::new(limits));
        let api = mailbox_routes(api, mailbox.clone(), authority.clone(), keyring.clone());
        let sqs = SqsOptions { signatures: false, ..SqsOptions::default() };
        let api = sqs_routes(api, mailbox, authority, keyring, sqs).build();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        builder.service(&PLANE).task(&LISTENER, 1, move |context| {
            let (listener, api) = (listener.try_clone(), api.clone());
            async move {
                let listener = listener.map_err(|error| TaskError::Failed(error.to_string()))?;
                serve(context, listener, None, api).await
            }
        });
        let mut kernel = JoinSet::new();
        kernel.spawn(builder.build().expect("a valid plan").run());
        let mut status = handle.watch_status();
        within(status.wait_for(|status| status.view.state == NodeState::Ready)).await.expect("the kernel lives");
        Node { address, metrics: Arc::clone(handle.metrics()), token, _kernel: kernel }
    }

    /// The status and the body of an answer.
    pub async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.exchange(method, path, "content-type: application/json", body).await
    }

    /// Does something to a queue through SQS.
    pub async fn sqs(&self, action: &str, body: Value) -> Value {
        let headers = format!("content-type: application/x-amz-json-1.0\r\nx-amz-target: AmazonSQS.{action}");
        let (status, answer) = self.exchange("POST", "/", &headers, body).await;
        assert_eq!(status, 200, "{action}: {answer}");
        answer
    }

    async fn exchange(&self, method: &str, path: &str, headers: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n{headers}\r\n\
             authorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
            self.token,
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

pub async fn within<F: Future>(future: F) -> F::Output {
    Deadline::after(PATIENCE).run("test", future).await.expect("in time")
}
