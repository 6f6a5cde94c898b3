//! A service made by the recipe of docs/adding-a-service.md: it greets. What would be its crate, its surface and its
//! file in `services/` stand here one after the other.

use std::sync::Arc;

use axum::response::{IntoResponse as _, Response};
use clap::Subcommand;
use macronode::services::{Failure, Installed, Parts, Report, Routes, Section, Service, ServiceCommand};
use ron_api::{ApiBuilder, Bearer, Operation, Path, Problem, Surface};
use ron_auth::{Action, Authority, Capabilities, LimitSpec, VerbSpec};
use ron_kernel::gate::Gate;
use ron_kernel::queue::{Payload, QueueReceiver, QueueSender};
use ron_kernel::spec::{Fate, GateSpec, Overflow, QueueKind, QueueSpec, ServiceSpec, TaskSpec};
use ron_kernel::{Builder, Snapshot, TaskContext, TaskResult};
use ron_policy::{Phase, RestartLaw};
use ron_types::Error;
use ron_types::settings::{live, whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use utoipa::ToSchema;

// ---- crates/greeter/src/specs.rs ----

static GREETER_WORKER: TaskSpec = TaskSpec {
    owner: "svc-greeter",
    name: "greeter_worker",
    count: "1",
    phase: Phase::Work,
    heartbeat: None,
    does: "says the greetings",
};

static GREETER: ServiceSpec = ServiceSpec {
    name: "greeter",
    required: true,
    depends_on: &[],
    law: RestartLaw::MACRONODE,
    tasks: &[&GREETER_WORKER],
    does: "greets whoever asks",
};

static GREETINGS: QueueSpec = QueueSpec {
    owner: "svc-greeter",
    service: "greeter",
    name: "greetings",
    kind: QueueKind::Mpsc,
    capacity: 16,
    bytes_max: None,
    from: "callers",
    to: "greeter_worker",
    overflow: Overflow::RejectNew,
    holds_up_writers: false,
    answer: "Busy: HTTP 429 with Retry-After",
    on_restart: Fate::Kept,
    on_drain: Fate::Drained,
};

static GREETER_CALLS: GateSpec =
    GateSpec { facet: "greeter", name: "greeter_calls", permits_per_cpu: 2, does: "greetings at once" };

// ---- crates/greeter/src/config.rs ----

/// The greeter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Times a greeting is said.
    #[schemars(extend("x-setting" = live(whole(1, 10))))]
    pub repeat: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { repeat: 1 }
    }
}

// ---- crates/greeter/src/capabilities.rs ----

const GREET: Action = Action::new("greeter:greet");

static CAPABILITIES: Capabilities = Capabilities {
    service: "greeter",
    resource: "name",
    verbs: &[VerbSpec { action: GREET, does: "be greeted" }],
    limits: &[LimitSpec { name: "greeter.greetings_per_second", does: "greetings in a second" }],
}
.validated();

// ---- crates/greeter/src/lib.rs: the handle and its task ----

struct Job {
    name: String,
    reply: oneshot::Sender<String>,
}

impl Payload for Job {}

#[derive(Clone)]
struct Greeter {
    jobs: QueueSender<Job>,
    gate: Gate,
}

fn install(builder: &mut Builder, permits: usize, repeat: Snapshot<usize>) -> Greeter {
    let (jobs, taken) = builder.queue(&GREETINGS);
    let gate = builder.gate(&GREETER_CALLS, permits);
    builder
        .service(&GREETER)
        .task(&GREETER_WORKER, 1, move |context| greeter_worker(context, taken.clone(), repeat.clone()));
    Greeter { jobs, gate }
}

async fn greeter_worker(context: TaskContext, mut jobs: QueueReceiver<Job>, repeat: Snapshot<usize>) -> TaskResult {
    context.ready().await;
    loop {
        let job = tokio::select! {
            () = context.stopping() => break,
            job = jobs.recv() => job,
        };
        let Some(Job { name, reply }) = job else { break };
        let _ = reply.send(format!("hello {name} ").repeat(repeat.get().value).trim_end().to_owned());
    }
    Ok(())
}

impl Greeter {
    async fn greet(&self, name: String) -> Result<String, Error> {
        let _permit = self.gate.try_acquire(1)?;
        let (reply, answer) = oneshot::channel();
        self.jobs.offer(Job { name, reply })?;
        answer.await.map_err(|_| Error::canceled("the greeter has left"))
    }
}

// ---- crates/api/src/greeter.rs: the surface ----

static GREETING: Operation =
    Operation::get("/v1/greetings/{name}", "greetings", "greets somebody").allows(GREET).answers::<Greeting>();

pub static SURFACE: Surface =
    Surface { service: "greeter", about: "Says hello.", tags: &["greetings"], operations: &[&GREETING] };

/// A greeting.
#[derive(Serialize, ToSchema)]
struct Greeting {
    /// What was said.
    text: String,
}

fn greeter_routes(plane: ApiBuilder, greeter: Greeter, authority: Authority) -> ApiBuilder {
    let app = Arc::new((greeter, authority));
    plane.surface(&SURFACE).operation(&GREETING, move |bearer: Bearer, path: Path<String>| {
        let app = Arc::clone(&app);
        async move { greeting(&app.0, &app.1, bearer, path).await }
    })
}

async fn greeting(
    greeter: &Greeter,
    authority: &Authority,
    bearer: Bearer,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    bearer.allow(authority, GREET, &name)?;
    let text = greeter.greet(name).await?;
    Ok(ron_api::Json(Greeting { text }).into_response())
}

// ---- crates/macronode/src/services/greeter.rs ----

/// What can be asked of `macronode greeter`.
#[derive(Debug, Subcommand)]
enum GreeterCommand {
    /// Say hello without a node.
    Hello {
        /// To whom.
        name: String,
    },
}

fn command(command: &GreeterCommand) -> Result<Report, Failure> {
    let GreeterCommand::Hello { name } = command;
    Ok(Report::clean(format!("hello {name}\n")))
}

/// The greeter.
pub struct GreeterService;

impl Service for GreeterService {
    fn spec(&self) -> &'static ServiceSpec {
        &GREETER
    }

    fn queues(&self) -> Vec<&'static QueueSpec> {
        vec![&GREETINGS]
    }

    fn gates(&self) -> &'static [&'static GateSpec] {
        static GATES: [&GateSpec; 1] = [&GREETER_CALLS];
        &GATES
    }

    fn sections(&self) -> &'static [Section] {
        const SECTIONS: &[Section] = &[Section::of::<Options>("greeter")];
        SECTIONS
    }

    fn capabilities(&self) -> Option<&'static Capabilities> {
        Some(&CAPABILITIES)
    }

    fn surfaces(&self) -> &'static [&'static Surface] {
        static SURFACES: [&Surface; 1] = [&SURFACE];
        &SURFACES
    }

    fn commands(&self) -> Vec<ServiceCommand> {
        vec![ServiceCommand::new("greeter", "Greet", &["macronode greeter hello ann"], command)]
    }

    fn install(&self, node: &mut Parts<'_>) -> Result<Installed, Failure> {
        let repeat = node.config.derive(|config| config.section::<Options>().repeat);
        let permits = node.config.get().value.permits_of(&GREETER_CALLS);
        let (greeter, authority) = (install(node.builder, permits, repeat), node.authority.clone());
        let routes: Routes = Box::new(move |plane| greeter_routes(plane, greeter, authority));
        Ok(routes.into())
    }
}
