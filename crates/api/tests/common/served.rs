//! A node with nothing but the mailbox and a plane, for the suites of its surfaces.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use ron_api::{ApiBuilder, HttpLimits, serve};
use ron_auth::{Action, Authority, Grant, ResourceScope, Right};
use ron_kernel::spec::{ServiceSpec, TaskSpec};
use ron_kernel::{Builder, Deadline, ExitReport, KernelHandle, KernelOptions, Metrics, Snapshot, TaskError};
use ron_policy::{NodeState, Phase, RestartLaw};
use svc_mailbox::{LiveOptions, Mailbox, MailboxOptions};
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

/// Starts it with these routes; it runs until the tasks that are returned are dropped.
pub async fn serve_mailbox(
    metrics: Arc<Metrics>,
    live: LiveOptions,
    limits: HttpLimits,
    routes: impl FnOnce(ApiBuilder, Mailbox) -> ApiBuilder,
) -> (SocketAddr, Mailbox, KernelHandle, JoinSet<ExitReport>) {
    let mut builder = Builder::new(KernelOptions::default(), metrics);
    let handle = builder.handle();
    let options = MailboxOptions { segment_bytes: 2 << 20, ..MailboxOptions::default() };
    let mailbox = svc_mailbox::install(&mut builder, options, Snapshot::new(live));
    let api = routes(ApiBuilder::new(handle.clone(), Snapshot::new(limits)), mailbox.clone()).build();
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
    (address, mailbox, handle, kernel)
}

/// A token for these actions on these topics.
pub fn token(authority: &Authority, actions: &[Action], scope: ResourceScope) -> String {
    let rights = actions.iter().map(|action| Right::new(*action, scope.clone())).collect();
    authority.mint(&Grant { subject: "someone".to_owned(), rights, ..Grant::default() }).expect("a token")
}

pub async fn within<F: Future>(future: F) -> F::Output {
    Deadline::after(PATIENCE).run("test", future).await.expect("in time")
}
