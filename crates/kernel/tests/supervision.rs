//! The shell under paused time: restarts, freezes, drain order, chaos, readiness, and conformance with the policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ron_kernel::handle::ChaosOrder;
use ron_kernel::kernel::ConfigChange;
use ron_kernel::spec::{ServiceSpec, TaskSpec};
use ron_kernel::{Builder, ExitReport, KernelHandle, KernelOptions, Metrics, TaskContext, TaskError, TaskResult};
use ron_policy::{Action, Escalation, Event, NodeState, Phase, RestartLaw, State, Supervisor};

const fn task(name: &'static str, phase: Phase) -> TaskSpec {
    TaskSpec { owner: "test", name, count: "1", phase, heartbeat: Some(Duration::from_secs(3)), does: "" }
}

const fn service(name: &'static str, depends_on: &'static [&'static str]) -> ServiceSpec {
    ServiceSpec { name, required: true, depends_on, law: RestartLaw::MACRONODE, tasks: &[], does: "" }
}

static WORKER: TaskSpec = task("worker", Phase::Work);
static LISTENER: TaskSpec = task("listener", Phase::Intake);
static WORKERS: ServiceSpec = service("workers", &[]);
static HTTP: ServiceSpec = service("http", &["workers"]);

/// A task that serves until it is told to stop.
async fn well_behaved(context: TaskContext) -> TaskResult {
    context.ready().await;
    loop {
        tokio::select! {
            () = context.stopping() => return Ok(()),
            () = context.heartbeat() => {}
        }
    }
}

fn builder() -> Builder {
    Builder::new(KernelOptions { record: true, ..KernelOptions::default() }, Metrics::new())
}

async fn reach(handle: &KernelHandle, state: NodeState) {
    let mut status = handle.watch_status();
    status.wait_for(|status| status.view.state == state).await.expect("the kernel lives");
}

/// Runs the node beside a script; the script ends by asking for a drain.
async fn run<F: Future<Output = ()>>(builder: Builder, script: impl FnOnce(KernelHandle) -> F) -> ExitReport {
    let kernel = builder.build().expect("a valid plan");
    let handle = kernel.handle();
    let (report, ()) = tokio::join!(kernel.run(), script(handle));
    conforms(&report);
    report
}

/// The recorded run, given to a fresh policy, leads to the same actions.
fn conforms(report: &ExitReport) {
    let plan = ron_policy::Plan {
        services: vec![
            ron_policy::ServicePlan {
                name: "workers",
                required: true,
                depends_on: vec![],
                serves: vec![],
                law: RestartLaw::MACRONODE,
                tasks: vec![ron_policy::TaskPlan {
                    name: "worker",
                    instances: 3,
                    phase: Phase::Work,
                    heartbeat_ms: Some(3000),
                }],
            },
            ron_policy::ServicePlan {
                name: "http",
                required: true,
                depends_on: vec!["workers"],
                serves: vec![],
                law: RestartLaw::MACRONODE,
                tasks: vec![ron_policy::TaskPlan {
                    name: "listener",
                    instances: 1,
                    phase: Phase::Intake,
                    heartbeat_ms: Some(3000),
                }],
            },
        ],
        drain_deadline_ms: 3000,
    };
    let mut replayed = Supervisor::new(plan, 0).expect("the same plan");
    assert!(report.record.len() > 5, "there is something to compare");
    for (now, event, actions) in &report.record {
        assert_eq!(&replayed.step(*now, event.clone()), actions, "at {now} ms on {event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_starts_in_order_and_drains_in_order() {
    let mut builder = builder();
    builder.service(&WORKERS).task(&WORKER, 3, well_behaved);
    builder.service(&HTTP).task(&LISTENER, 1, well_behaved);
    let report = run(builder, |handle| async move {
        reach(&handle, NodeState::Ready).await;
        handle.drain().await.expect("the supervisor listens");
    })
    .await;
    assert_eq!((report.code, report.aborted.len()), (0, 0));
    let started: Vec<u16> = report
        .record
        .iter()
        .filter_map(|(_, event, _)| match event {
            Event::Started { task } => Some(task.service),
            _ => None,
        })
        .collect();
    assert_eq!(started, [0, 0, 0, 1], "the listener waits for the workers");
    let stopped: Vec<Phase> = report
        .record
        .iter()
        .flat_map(|(_, _, actions)| actions)
        .filter_map(|action| match action {
            Action::StopPhase { phase, .. } => Some(*phase),
            _ => None,
        })
        .collect();
    assert_eq!(stopped, [Phase::Intake, Phase::Work]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_restarted_by_the_law_and_counted() {
    let lives = Arc::new(AtomicUsize::new(0));
    let mut builder = builder();
    let metrics = Arc::clone(builder.handle().metrics());
    let counted = Arc::clone(&lives);
    builder.service(&WORKERS).task(&WORKER, 3, move |context| {
        let first_life = context.instance() == 0 && counted.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            assert!(!first_life, "planted panic");
            well_behaved(context).await
        }
    });
    builder.service(&HTTP).task(&LISTENER, 1, well_behaved);
    let report = run(builder, |handle| async move {
        reach(&handle, NodeState::Ready).await;
        let row = handle.topology().tasks.into_iter().find(|task| task.name == "worker" && task.instance == 0);
        let row = row.expect("declared");
        assert_eq!(row.view.restarts_total, 1);
        assert!(row.view.last_exit.expect("it ended once").contains("planted panic"));
        handle.drain().await.expect("the supervisor listens");
    })
    .await;
    assert_eq!(report.code, 0);
    assert_eq!(metrics.service_restarts.at("workers").get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_task_is_dead_and_a_killed_one_too() {
    let mut builder = builder();
    builder.service(&WORKERS).task(&WORKER, 3, well_behaved);
    builder.service(&HTTP).task(&LISTENER, 1, well_behaved);
    let report = run(builder, |handle| async move {
        reach(&handle, NodeState::Ready).await;
        assert_eq!(handle.chaos("worker", 1.0, ChaosOrder::Freeze).await.expect("known").len(), 3);
        let mut status = handle.watch_status();
        status.wait_for(|status| !status.is_ready()).await.expect("silence is noticed");
        reach(&handle, NodeState::Ready).await;
        assert!(
            handle.topology().tasks.iter().any(|task| task.view.last_exit.as_deref() == Some("missed its heartbeat"))
        );
        assert_eq!(handle.chaos("listener", 0.1, ChaosOrder::Kill).await.expect("known"), ["listener"]);
        status.wait_for(|status| !status.is_ready()).await.expect("the listener is gone");
        reach(&handle, NodeState::Ready).await;
        assert!(handle.chaos("nobody", 0.1, ChaosOrder::Kill).await.is_err());
        assert!(handle.chaos("worker", 0.0, ChaosOrder::Kill).await.is_err());
        handle.drain().await.expect("the supervisor listens");
    })
    .await;
    assert_eq!(report.code, 0);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_task_is_aborted_at_the_deadline_named_and_reported() {
    let mut builder = builder();
    builder.service(&WORKERS).task(&WORKER, 3, |context| async move {
        context.ready().await;
        match context.instance() {
            1 => std::future::pending().await,
            _ => well_behaved(context).await,
        }
    });
    builder.service(&HTTP).task(&LISTENER, 1, well_behaved);
    let report = run(builder, |handle| async move {
        reach(&handle, NodeState::Ready).await;
        handle.drain().await.expect("the supervisor listens");
        handle.drain().await.expect("asking twice is asking once");
    })
    .await;
    assert_eq!(report.code, 75);
    assert_eq!(report.aborted, ["worker[1]"]);
    assert!(report.drained_in <= Duration::from_secs(3), "{:?}", report.drained_in);
}

#[tokio::test(start_paused = true)]
async fn a_drain_takes_as_long_as_was_configured_last() {
    let mut builder = builder();
    builder.service(&WORKERS).task(&WORKER, 3, |context| async move {
        context.ready().await;
        std::future::pending().await
    });
    builder.service(&HTTP).task(&LISTENER, 1, well_behaved);
    let updates = builder.config_updates();
    let report = run(builder, |handle| async move {
        reach(&handle, NodeState::Ready).await;
        let change = ConfigChange { version: 2, restart: Vec::new(), drain_deadline: Duration::from_secs(1) };
        updates.offer(change).expect("there is room");
        while handle.topology().drain.last().is_none_or(|step| step.deadline_ms > 1_000) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        handle.drain().await.expect("the supervisor listens");
    })
    .await;
    assert_eq!((report.code, report.aborted.len()), (75, 3));
    assert!(report.drained_in <= Duration::from_secs(1), "{:?}", report.drained_in);
}

#[tokio::test(start_paused = true)]
async fn a_plane_is_ready_without_what_it_serves_and_knows_that_it_is_out() {
    static OUT: ServiceSpec = ServiceSpec { required: false, ..service("out", &[]) };
    let mut builder = builder();
    builder.service(&OUT).task(&WORKER, 1, |context| async move {
        context.stopping().await;
        Ok(())
    });
    builder.service(&WORKERS).task(&WORKER, 1, well_behaved);
    builder.service(&HTTP).serves(["out"]).task(&LISTENER, 1, well_behaved);
    let kernel = builder.build().expect("a valid plan");
    let handle = kernel.handle();
    let look = async {
        reach(&handle, NodeState::Ready).await;
        let outages = handle.outages().keep();
        let checked = ["out", "http", "stranger"].map(|name| outages.value.check(name).is_ok());
        handle.drain().await.expect("the supervisor listens");
        checked
    };
    let (report, checked) = tokio::join!(kernel.run(), look);
    assert_eq!((report.code, checked), (0, [false, true, true]));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_serves_in_a_crash_loop_is_measured_as_one_that_limps() {
    const LAW: RestartLaw = RestartLaw { more_than: 0, then: Escalation::Unready, ..RestartLaw::MACRONODE };
    static LOOPING: ServiceSpec = ServiceSpec { required: false, law: LAW, ..service("looping", &[]) };
    let lives = Arc::new(AtomicUsize::new(0));
    let mut builder = builder();
    builder.service(&LOOPING).task(&WORKER, 1, move |context| {
        let is_first = lives.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            context.ready().await;
            if is_first { Err(TaskError::Failed("once".to_owned())) } else { well_behaved(context).await }
        }
    });
    let kernel = builder.build().expect("a valid plan");
    let handle = kernel.handle();
    let look = async {
        let mut status = handle.watch_status();
        let serves = |state| move |service: &ron_policy::ServiceView| service.serving && service.state == state;
        status.wait_for(|status| status.view.services.iter().any(serves(State::Unready))).await.expect("it lives");
        let measured = handle.metrics().readyz_state.at("looping").get();
        handle.drain().await.expect("the supervisor listens");
        measured
    };
    let (_report, measured) = tokio::join!(kernel.run(), look);
    assert_eq!(measured, 1, "its requests are answered");
}

#[tokio::test(start_paused = true)]
async fn a_first_start_that_fails_ends_the_process_with_its_code() {
    let mut builder = builder();
    builder.service(&WORKERS).task(&WORKER, 3, well_behaved);
    builder
        .service(&HTTP)
        .task(&LISTENER, 1, |_| async { Err(TaskError::Init { code: 70, detail: "the port is taken".to_owned() }) });
    let report = run(builder, |_| async {}).await;
    assert_eq!(report.code, 70);
}

#[tokio::test(start_paused = true)]
async fn an_operator_restart_lets_the_task_finish_first() {
    let orderly = Arc::new(AtomicUsize::new(0));
    let mut builder = builder();
    builder.service(&WORKERS).task(&WORKER, 3, well_behaved);
    let ends = Arc::clone(&orderly);
    builder.service(&HTTP).task(&LISTENER, 1, move |context| {
        let ends = Arc::clone(&ends);
        async move {
            let result = well_behaved(context).await;
            ends.fetch_add(1, Ordering::Relaxed);
            result
        }
    });
    let ends = Arc::clone(&orderly);
    let report = run(builder, |handle| async move {
        reach(&handle, NodeState::Ready).await;
        handle.restart_service("http").await.expect("known");
        handle.watch_status().wait_for(|status| !status.is_ready()).await.expect("it goes down");
        reach(&handle, NodeState::Ready).await;
        assert_eq!(ends.load(Ordering::Relaxed), 1, "it ended by itself");
        let error = handle.restart_service("htp").await.expect_err("unknown");
        assert!(error.detail.contains("http"), "the known names are listed: {error}");
        handle.drain().await.expect("the supervisor listens");
    })
    .await;
    assert_eq!(report.code, 0);
}
