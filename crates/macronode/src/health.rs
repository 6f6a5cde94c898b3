//! The health reporter: measures pressure, aggregates telemetry, keeps the service manager informed.

use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use ron_kernel::queue::{Payload, QueueProbe, QueueReceiver};
use ron_kernel::{KernelHandle, TaskContext, TaskResult};
use ron_policy::{PressureLimits, PressureMeter};
use ron_types::limits::RUNTIME_STILL_MAX;

/// Pause between two samples of pressure.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// Measurements are taken up this long after the first of them: far less than the queue needs to fill up.
const TELEMETRY_PAUSE: Duration = Duration::from_millis(5);
/// Unit and cause of the pressure that open files make.
const FILES: (&str, &str) = ("http", "file_descriptors");
/// Open files above this share of the limit are pressure.
const FILES_PRESSURE: f32 = 0.9;

/// One finished job, as a worker measured it.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Kind of the job, for metrics.
    pub kind: &'static str,
    /// Time the job waited in the queue.
    pub waited: Duration,
    /// Time the worker took.
    pub worked: Duration,
}

impl Payload for Measurement {}

/// A queue with the meter of its pressure.
struct Watched {
    probe: QueueProbe,
    meter: PressureMeter,
    refused_before: u64,
}

/// The task: samples pressure, informs the service manager and takes up measurements until it is told to stop.
pub async fn health_reporter(
    context: TaskContext,
    queues: Vec<QueueProbe>,
    mut telemetry: QueueReceiver<Measurement>,
) -> TaskResult {
    let kernel = context.kernel().clone();
    let queues = queues.into_iter().filter(|queue| queue.spec().holds_up_writers);
    let mut watched: Vec<Watched> = queues.map(|queue| Watched::new(queue, &kernel)).collect();
    let mut files = resumed_meter(&kernel, FILES, PressureLimits { on_fill: FILES_PRESSURE, ..Default::default() });
    let mut manager = ServiceManager::default();
    let mut latencies = Latencies { kernel: kernel.clone(), by_kind: Vec::new() };
    let mut sample = tokio::time::interval(SAMPLE_EVERY);
    // After a stall, the missed samples would all show the same moment.
    sample.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut events = kernel.bus().subscribe("observe", kernel.metrics());
    context.ready().await;
    let stopping = context.stopping();
    tokio::pin!(stopping);
    loop {
        tokio::select! {
            () = &mut stopping => {
                manager.tell(&kernel);
                return Ok(());
            }
            // Whatever happened, the status is what counts; a resync is as good as an event.
            Some(_) = events.recv() => manager.tell(&kernel),
            _ = sample.tick() => {
                context.beat();
                manager.tell(&kernel);
                for queue in &mut watched {
                    queue.sample(&kernel).await?;
                }
                if let Some(on) = files.sample(kernel.now_ms(), open_files_share()) {
                    let (service, cause) = FILES;
                    kernel.pressure(service, cause, on).await?;
                }
            }
            Some(first) = telemetry.recv() => {
                // Many at a time: under load, waking up for each would cost more than the work it measures.
                latencies.record(first);
                tokio::time::sleep(TELEMETRY_PAUSE).await;
                while let Some(measurement) = telemetry.try_recv() {
                    latencies.record(measurement);
                }
            }
        }
    }
}

/// A meter that knows what a former life of the task said: nobody else would ever take that back.
fn resumed_meter(kernel: &KernelHandle, of: (&str, &str), limits: PressureLimits) -> PressureMeter {
    let status = kernel.status();
    let is_on = status.view.pressure.iter().any(|pressure| (pressure.service, pressure.cause) == of);
    PressureMeter::resumed(limits, is_on)
}

/// The histograms of the kinds of work, each looked up once.
struct Latencies {
    kernel: KernelHandle,
    by_kind: Vec<(&'static str, Histogram)>,
}

impl Latencies {
    fn record(&mut self, measurement: Measurement) {
        let seconds = (measurement.waited + measurement.worked).as_secs_f64();
        match self.by_kind.iter().find(|(kind, _)| *kind == measurement.kind) {
            Some((_, histogram)) => histogram.observe(seconds),
            None => {
                let histogram = self.kernel.metrics().request_latency.at("worker", measurement.kind);
                histogram.observe(seconds);
                self.by_kind.push((measurement.kind, histogram));
            }
        }
    }
}

impl Watched {
    fn new(probe: QueueProbe, kernel: &KernelHandle) -> Self {
        let (refused_before, spec) = (probe.busy(), probe.spec());
        let meter = resumed_meter(kernel, (spec.service, spec.name), PressureLimits::default());
        Watched { probe, meter, refused_before }
    }

    /// A queue that refused something since the last look was full in between, whatever it holds now.
    async fn sample(&mut self, kernel: &KernelHandle) -> Result<(), ron_types::Error> {
        let refused = self.probe.busy();
        let fill = if refused > self.refused_before { 1.0 } else { self.probe.fill() };
        self.refused_before = refused;
        if let Some(on) = self.meter.sample(kernel.now_ms(), fill) {
            let spec = self.probe.spec();
            tracing::warn!(queue = spec.name, service = spec.service, on, "queue pressure changed");
            kernel.pressure(spec.service, spec.name, on).await?;
        }
        Ok(())
    }
}

/// Share of the process's file descriptors in use; zero where it cannot be known.
fn open_files_share() -> f32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let open = std::fs::read_dir("/proc/self/fd").map(|files| files.count());
    match (open, limit) {
        (Ok(open), Some(limit)) if limit > 0 => open as f32 / limit as f32,
        _ => 0.0,
    }
}

/// State last told to the service manager (systemd).
#[derive(Default)]
struct ServiceManager {
    ready: bool,
    stopping: bool,
    watchdog_told_ms: u64,
}

impl ServiceManager {
    /// READY once the node serves, STOPPING once it drains, WATCHDOG twice an interval while the kernel's loop turns.
    fn tell(&mut self, kernel: &KernelHandle) {
        if !self.ready && kernel.status().is_ready() {
            self.ready = true;
            notify(sd_notify::NotifyState::Ready);
        }
        if !self.stopping && kernel.is_draining() {
            self.stopping = true;
            notify(sd_notify::NotifyState::Stopping);
        }
        let now = kernel.now_ms();
        let due = watchdog_interval().is_some_and(|every| now - self.watchdog_told_ms >= every.as_millis() as u64 / 2);
        if due && kernel.last_turn_age() < RUNTIME_STILL_MAX {
            self.watchdog_told_ms = now;
            notify(sd_notify::NotifyState::Watchdog);
        }
    }
}

fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Tells the service manager, if there is one.
pub fn notify(state: sd_notify::NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the service manager could not be told");
    }
}

/// Tells the service manager that the configuration is being read again.
pub fn notify_reloading() {
    match sd_notify::NotifyState::monotonic_usec_now() {
        Ok(now) => {
            if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Reloading, now]) {
                tracing::debug!(%error, "the service manager could not be told");
            }
        }
        Err(error) => tracing::debug!(%error, "no monotonic clock for the service manager"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ron_kernel::spec::{Fate, Overflow, QueueKind, QueueSpec, ServiceSpec};
    use ron_kernel::{Builder, Kernel, KernelOptions, Metrics};
    use ron_policy::RestartLaw;

    use super::*;
    use crate::specs::{HEALTH_REPORTER, TELEMETRY};

    static NODE: ServiceSpec = ServiceSpec {
        name: "node",
        required: true,
        depends_on: &[],
        law: RestartLaw::MACRONODE,
        tasks: &[&HEALTH_REPORTER],
        does: "",
    };

    const fn queue(name: &'static str, overflow: Overflow, holds_up_writers: bool) -> QueueSpec {
        QueueSpec {
            owner: "test",
            service: "node",
            name,
            kind: QueueKind::Mpsc,
            capacity: 8,
            bytes_max: None,
            from: "",
            to: "",
            overflow,
            holds_up_writers,
            answer: "",
            on_restart: Fate::Kept,
            on_drain: Fate::Discarded,
        }
    }

    static FULL: [QueueSpec; 5] = [
        queue("work", Overflow::RejectNew, true),
        queue("orders", Overflow::AwaitSend, true),
        queue("lookups_of_anyone", Overflow::RejectNew, false),
        queue("outboxes_of_peers", Overflow::PermitThenSend, false),
        queue("inboxes_of_watchers", Overflow::DropOldest, false),
    ];

    /// A node that only reports its health, with these queues of this depth.
    fn reporting(queues: &'static [QueueSpec], depth: &Arc<AtomicUsize>) -> Kernel {
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        for spec in queues {
            let depth = Arc::clone(depth);
            builder.shown(spec, move || depth.load(Ordering::Relaxed));
        }
        let (_measured, measurements) = builder.queue(&TELEMETRY);
        let probes = builder.queue_probes();
        builder
            .service(&NODE)
            .task(&HEALTH_REPORTER, 1, move |context| health_reporter(context, probes.clone(), measurements.clone()));
        builder.build().expect("a valid plan")
    }

    async fn causes(handle: &KernelHandle) -> Vec<&'static str> {
        tokio::time::sleep(Duration::from_secs(30)).await;
        handle.status().view.pressure.iter().map(|pressure| pressure.cause).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_holds_up_writers_is_pressure() {
        let kernel = reporting(&FULL, &Arc::new(AtomicUsize::new(8)));
        let handle = kernel.handle();
        let look = async {
            let causes = causes(&handle).await;
            handle.drain().await.expect("the supervisor listens");
            causes
        };
        let (_report, causes) = tokio::join!(kernel.run(), look);
        assert_eq!(causes, ["work", "orders"], "what refuses or holds up writers, and nothing else");
    }

    #[tokio::test(start_paused = true)]
    async fn pressure_ends_though_the_reporter_was_restarted_meanwhile() {
        let depth = Arc::new(AtomicUsize::new(8));
        let kernel = reporting(&FULL[..1], &depth);
        let handle = kernel.handle();
        let look = async {
            let before = causes(&handle).await;
            depth.store(0, Ordering::Relaxed);
            handle.restart_service(NODE.name).await.expect("it is one of the node");
            let after = causes(&handle).await;
            handle.drain().await.expect("the supervisor listens");
            (before, after)
        };
        let (_report, (before, after)) = tokio::join!(kernel.run(), look);
        assert_eq!((before, after), (vec!["work"], Vec::new()));
    }
}
