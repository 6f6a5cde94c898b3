//! A node with nothing but the plane, and a client that shows every byte.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ron_api::{
    Api, ApiBuilder, Call, HttpLimits, Operation, Payload, Problem, Surface, Work, WorkItem, dev_routes, serve,
};
use ron_kernel::spec::{ServiceSpec, TaskSpec};
use ron_kernel::{Builder, Deadline, ExitReport, KernelHandle, KernelOptions, Metrics, Snapshot, TaskError};
use ron_policy::{NodeState, Phase, RestartLaw};
use ron_types::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Nothing here takes this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(20);

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
    depends_on: &[],
    law: RestartLaw::MACRONODE,
    tasks: &[&LISTENER],
    does: "the plane under test",
};

static HOLD: Operation = Operation::get("/hold", "tests", "answers when it is let").concurrency(1);
static PANIC: Operation = Operation::get("/panic", "tests", "panics");
static LENGTH: Operation = Operation::post("/length", "tests", "measures the body");
static CALL: Operation = Operation::get("/call", "tests", "says what it knows of the request");

static SURFACE: Surface =
    Surface { service: "tests", about: "", tags: &["tests"], operations: &[&HOLD, &PANIC, &LENGTH, &CALL] };

pub struct Node {
    pub address: SocketAddr,
    pub handle: KernelHandle,
    pub limits: Snapshot<HttpLimits>,
    /// One permit lets one request out of `/hold`.
    pub release: Arc<Semaphore>,
    pub api: Api,
    kernel: JoinSet<ExitReport>,
}

/// Works on the spot.
struct DirectWork;

impl Work for DirectWork {
    fn submit(&self, item: WorkItem, _call: Call) -> BoxFuture<'static, Result<Bytes, Error>> {
        async move {
            match item {
                WorkItem::Echo(bytes) if bytes == "refuse me" => Err(Error::busy("queue work")),
                WorkItem::Echo(bytes) => Ok(bytes),
                WorkItem::Sleep(time) | WorkItem::Burn(time) => {
                    tokio::time::sleep(time).await;
                    Ok(Bytes::new())
                }
            }
        }
        .boxed()
    }
}

impl Node {
    pub async fn start(limits: HttpLimits) -> Node {
        Node::start_with(limits, None).await
    }

    pub async fn start_with(limits: HttpLimits, tls: Option<Arc<rustls::ServerConfig>>) -> Node {
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let handle = builder.handle();
        let limits = Snapshot::new(limits);
        let release = Arc::new(Semaphore::new(0));
        let api = plane(&handle, &limits, &release);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let served = api.clone();
        builder.service(&PLANE).task(&LISTENER, 1, move |context| {
            let (listener, tls, api) = (listener.try_clone(), tls.clone(), served.clone());
            async move {
                let listener = listener.map_err(|error| TaskError::Failed(error.to_string()))?;
                serve(context, listener, tls, api).await
            }
        });
        let mut kernel = JoinSet::new();
        kernel.spawn(builder.build().expect("a valid plan").run());
        let mut status = handle.watch_status();
        let ready = status.wait_for(|status| status.view.state == NodeState::Ready);
        within("start", ready).await.expect("the kernel lives");
        Node { address, handle, limits, release, api, kernel }
    }

    pub fn metrics(&self) -> &Metrics {
        self.handle.metrics()
    }

    pub async fn connect(&self) -> Client {
        let stream = within("connect", TcpStream::connect(self.address)).await.expect("connected");
        Client { stream, received: Vec::new() }
    }

    /// One request on its own connection.
    pub async fn ask(&self, request: impl AsRef<[u8]>) -> Answer {
        let mut client = self.connect().await;
        client.send(request).await;
        client.answer().await
    }

    /// Waits until this many requests are inside.
    pub async fn until_in_flight(&self, count: usize) {
        within("requests in flight", async {
            while self.api.requests_in_flight() != count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    pub async fn begin_drain(&self) {
        self.handle.drain().await.expect("the kernel takes it");
    }

    pub async fn ended(&mut self) -> ExitReport {
        within("end", self.kernel.join_next()).await.expect("one kernel").expect("it does not panic")
    }
}

fn plane(handle: &KernelHandle, limits: &Snapshot<HttpLimits>, release: &Arc<Semaphore>) -> Api {
    let release = Arc::clone(release);
    let hold = move || {
        let release = Arc::clone(&release);
        async move {
            release.acquire().await.expect("never closed").forget();
            "released"
        }
    };
    async fn panics() -> Result<&'static str, Problem> {
        panic!("a mistake in a handler")
    }
    async fn length(Payload(body): Payload) -> String {
        body.len().to_string()
    }
    async fn call(call: Call) -> String {
        format!("{} {} {}", call.corr_id, call.endpoint, call.deadline.remaining().as_secs())
    }
    let builder = ApiBuilder::new(handle.clone(), limits.clone())
        .surface(&SURFACE)
        .operation(&HOLD, hold)
        .operation(&PANIC, panics)
        .operation(&LENGTH, length)
        .operation(&CALL, call);
    dev_routes(builder, Arc::new(DirectWork)).build()
}

pub async fn within<F: Future>(op: &'static str, future: F) -> F::Output {
    Deadline::after(PATIENCE).run(op, future).await.expect("in time")
}

pub fn get(target: &str) -> String {
    get_with(target, "")
}

/// `headers` are whole lines.
pub fn get_with(target: &str, headers: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n")
}

pub fn post(target: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("POST {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub fn echo(body: &str) -> Vec<u8> {
    post("/v1/echo", "content-type: application/json\r\n", body)
}

pub struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Client {
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        within("send", self.stream.write_all(bytes.as_ref())).await.expect("the peer takes it");
    }

    pub async fn answer(&mut self) -> Answer {
        let head_end = loop {
            if let Some(end) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            assert!(self.receive().await > 0, "closed before an answer: {:?}", String::from_utf8_lossy(&self.received));
        };
        let head = String::from_utf8(self.received[..head_end].to_vec()).expect("text");
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status line");
        let headers: HashMap<String, String> =
            lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.into(), value.into())).collect();
        let length: usize = headers.get("content-length").map_or(0, |length| length.parse().expect("a number"));
        while self.received.len() < head_end + 4 + length {
            assert!(self.receive().await > 0, "closed inside a body");
        }
        let rest = self.received.split_off(head_end + 4 + length);
        let body = self.received.split_off(head_end + 4);
        self.received = rest;
        Answer { status: status.parse().expect("a number"), headers, body }
    }

    /// Waits for the end of the connection and returns how many bytes came before it.
    pub async fn closed(&mut self) -> usize {
        let mut bytes = self.received.len();
        loop {
            match self.receive().await {
                0 => return bytes,
                more => bytes += more,
            }
        }
    }

    async fn receive(&mut self) -> usize {
        let mut chunk = [0; 4096];
        let bytes = within("receive", self.stream.read(&mut chunk)).await.unwrap_or(0);
        self.received.extend_from_slice(&chunk[..bytes]);
        bytes
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// Checks that this is a whole problem and returns it.
    pub fn problem(&self, status: u16, code: &str) -> serde_json::Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem: serde_json::Value = serde_json::from_slice(&self.body).expect("json");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["code"], code);
        assert_eq!(problem["type"], format!("urn:macronode:error:{code}"));
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
        assert_eq!(problem["corr_id"], self.header("x-corr-id"));
        assert!(problem["instance"].is_string(), "{problem}");
        let comes_back: u64 = self.header("retry-after").parse().unwrap_or(0);
        assert_eq!(comes_back >= 1, matches!(status, 429 | 503), "{problem}");
        problem
    }
}
