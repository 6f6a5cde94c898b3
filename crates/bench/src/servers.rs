//! The two servers of the HTTP rows: the same handlers on bare axum, and behind the layers of the public plane.

use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use anyhow::Context as _;
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use ron_api::{ApiBuilder, HttpLimits, Operation, Surface};
use ron_kernel::spec::{ServiceSpec, TaskSpec};
use ron_kernel::{Builder, KernelOptions, Metrics, Snapshot, TaskError};
use ron_policy::{Phase, RestartLaw};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

/// Path that answers with a small JSON body.
pub const PING: &str = "/v1/ping";
/// Gives a message back, as the node's development route of the same path does.
pub const ECHO: &str = "/v1/echo";

static PING_OPERATION: Operation = Operation::get(PING, "bench", "answers a small JSON body");

static SURFACE: Surface = Surface { service: "bench", about: "", tags: &["bench"], operations: &[&PING_OPERATION] };

static LISTENER: TaskSpec = TaskSpec {
    owner: "macronode",
    name: "overlay_http",
    count: "1",
    phase: Phase::Intake,
    heartbeat: Some(Duration::from_secs(5)),
    does: "serves the plane",
};

static PLANE: ServiceSpec = ServiceSpec {
    name: "http",
    required: true,
    depends_on: &[],
    law: RestartLaw::MACRONODE,
    tasks: &[&LISTENER],
    does: "the plane that is measured",
};

#[derive(Serialize)]
struct Pong {
    ok: bool,
    service: &'static str,
}

#[derive(Deserialize, Serialize)]
struct Echo {
    message: String,
}

async fn ping() -> Json<Pong> {
    Json(Pong { ok: true, service: "bench" })
}

async fn echo(Json(echo): Json<Echo>) -> Json<Echo> {
    Json(echo)
}

/// Serves the handlers on bare axum.
pub fn serve_bare() -> anyhow::Result<()> {
    serve(Router::new().route(PING, get(ping)).route(ECHO, post(echo)))
}

/// Serves any routes on bare axum.
pub fn serve(router: Router) -> anyhow::Result<()> {
    let (runtime, listener) = start()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?.tap_io(|stream| {
            // The layered plane does the same; fails only on a socket that is already gone.
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await.context("the bare server ended")
    })
}

/// Serves the handlers behind every layer, as a task of a kernel.
pub fn serve_layers() -> anyhow::Result<()> {
    let (runtime, listener) = start()?;
    let report = runtime.block_on(async {
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let limits = Snapshot::new(HttpLimits::default());
        let api = ApiBuilder::new(builder.handle(), limits);
        let api = api.surface(&SURFACE).operation(&PING_OPERATION, ping).build();
        builder.service(&PLANE).task(&LISTENER, 1, move |context| {
            let (listener, api) = (listener.try_clone(), api.clone());
            async move {
                let listener = listener.map_err(|error| TaskError::Failed(error.to_string()))?;
                ron_api::serve(context, listener, None, api).await
            }
        });
        Ok::<_, anyhow::Error>(builder.build()?.run().await)
    })?;
    anyhow::bail!("the layered server ended with code {}", report.code)
}

/// The runtime a node has, and a port, which is printed.
fn start() -> anyhow::Result<(Runtime, TcpListener)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?.port());
    std::thread::spawn(leave_with_parent);
    Ok((runtime, listener))
}

/// The parent holds the other end of stdin and never writes.
fn leave_with_parent() {
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}
