//! A tiny real kernel with the admin plane beside it, and a client that speaks to it over a socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ron_kernel::spec::{ServiceSpec, TaskSpec};
use ron_kernel::status::NodeStatus;
use ron_kernel::{Builder, ExitReport, KernelHandle, KernelOptions, Metrics};
use ron_policy::{Phase, RestartLaw};
use ron_types::Error;
use serde_json::{Value, json};

use crate::{AdminOptions, AdminThread, Control, OperatorToken, ReloadReport, supervise};

pub(super) const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

const LAW: RestartLaw = RestartLaw { jitter_ms: (1, 2), ..RestartLaw::MACRONODE };
const WORKER: TaskSpec =
    TaskSpec { owner: "test", name: "worker", count: "2", phase: Phase::Work, heartbeat: None, does: "works" };
const SERVER: TaskSpec = TaskSpec {
    owner: "test",
    name: "metrics_server",
    count: "1",
    phase: Phase::Observe,
    heartbeat: Some(Duration::from_secs(5)),
    does: "stands for the admin thread",
};
const WORK: ServiceSpec =
    ServiceSpec { name: "work", required: true, depends_on: &["admin"], law: LAW, tasks: &[&WORKER], does: "works" };
const ADMIN: ServiceSpec =
    ServiceSpec { name: "admin", required: true, depends_on: &[], law: LAW, tasks: &[&SERVER], does: "is watched" };

/// What a test wants to be different.
pub(super) struct Setup {
    pub chaos: bool,
    pub connections_max: usize,
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Two meetings of the first worker with the test: its runtime stands still from the one to the other.
    pub block: Option<Arc<Barrier>>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup { chaos: false, connections_max: 64, tls: None, block: None }
    }
}

pub(super) struct Node {
    pub address: SocketAddr,
    pub admin: Arc<AdminThread>,
    pub kernel: KernelHandle,
    run: JoinHandle<ExitReport>,
}

struct FakeControl;

impl Control for FakeControl {
    fn reload(&self) -> BoxFuture<'static, Result<ReloadReport, Error>> {
        let report = ReloadReport { version: 7, changed: vec!["http.deadline".to_owned()], ..ReloadReport::default() };
        async { Ok(report) }.boxed()
    }

    fn set_log_filter(&self, filter: &str) -> Result<(), String> {
        if filter == "debug" { Ok(()) } else { Err("no such level".to_owned()) }
    }

    fn version(&self) -> Value {
        json!({ "version": "1.2.3" })
    }

    fn notes(&self) -> Vec<String> {
        vec!["mind the gap".to_owned()]
    }
}

impl Node {
    pub(super) fn start(setup: Setup) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let options = AdminOptions {
            listener,
            tls: setup.tls,
            token: OperatorToken::parse(TOKEN).unwrap(),
            chaos: setup.chaos,
            connections_max: setup.connections_max,
        };
        let admin = Arc::new(AdminThread::start(options, builder.handle(), Arc::new(FakeControl)).unwrap());
        let supervised = Arc::clone(&admin);
        builder.service(&ADMIN).task(&SERVER, 1, move |context| supervise(context, Arc::clone(&supervised)));
        builder.service(&WORK).task(&WORKER, 2, move |context| {
            let block = setup.block.clone().filter(|_| context.instance() == 0);
            async move {
                context.ready().await;
                if let Some(barrier) = block {
                    barrier.wait();
                    barrier.wait();
                }
                context.stopping().await;
                Ok(())
            }
        });
        let kernel = builder.build().unwrap();
        let handle = kernel.handle();
        let run = std::thread::spawn(move || runtime().block_on(kernel.run()));
        Node { address, admin, kernel: handle, run }
    }

    pub(super) fn ready(setup: Setup) -> Node {
        let node = Node::start(setup);
        node.wait_for(|status| status.view.accepts_reads);
        node
    }

    pub(super) fn wait_for(&self, wanted: impl FnMut(&Arc<NodeStatus>) -> bool) {
        let mut status = self.kernel.watch_status();
        let waited = ron_kernel::Deadline::after(Duration::from_secs(10));
        runtime().block_on(async { waited.run("status", status.wait_for(wanted)).await.unwrap().map(drop) }).unwrap();
    }

    /// Asks for a drain and waits until the kernel has ended.
    pub(super) fn drained(self) -> (Arc<AdminThread>, SocketAddr) {
        runtime().block_on(self.kernel.drain()).unwrap();
        self.ended()
    }

    /// Waits until the kernel has ended, which was asked for a drain before.
    pub(super) fn ended(self) -> (Arc<AdminThread>, SocketAddr) {
        assert_eq!(self.run.join().unwrap().code, 0);
        (self.admin, self.address)
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        call(self.address, "GET", path, None, "")
    }

    pub(super) fn post(&self, path: &str, body: &str) -> Answer {
        call(self.address, "POST", path, Some(TOKEN), body)
    }
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

pub(super) struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

pub(super) fn request(method: &str, path: &str, token: Option<&str>, body: &str) -> String {
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{token}content-length: {length}\r\n\r\n{body}"
    )
}

pub(super) fn call(address: SocketAddr, method: &str, path: &str, token: Option<&str>, body: &str) -> Answer {
    exchange(connect(address), &request(method, path, token, body))
}

pub(super) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

pub(super) fn exchange(mut stream: impl Read + Write, request: &str) -> Answer {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer);
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{ended:?} after {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}
