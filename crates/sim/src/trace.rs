//! One line per event, in fixed columns.

use ron_policy::{Action, Event, Millis, Plan, TaskId};

/// Receiver of trace lines; nothing is formatted when nobody reads.
pub(crate) struct Trace<'a> {
    seed: u64,
    sink: Option<&'a mut dyn FnMut(&str)>,
}

impl<'a> Trace<'a> {
    pub(crate) fn new(seed: u64, sink: Option<&'a mut dyn FnMut(&str)>) -> Self {
        Trace { seed, sink }
    }

    pub(crate) fn event(&mut self, now: Millis, plan: &Plan, event: &Event, actions: &[Action]) {
        if self.sink.is_none() {
            return;
        }
        let (kind, subject, detail) = describe_event(plan, event);
        let described = actions.iter().map(|action| describe_action(plan, action));
        let followed: Vec<String> = detail.into_iter().chain(described).collect();
        self.line(now, kind, &subject, &followed.join("; "));
    }

    pub(crate) fn job(&mut self, now: Millis, plan: &Plan, task: TaskId, what: impl FnOnce() -> String) {
        if self.sink.is_some() {
            self.line(now, "job", &task_name(plan, task), &what());
        }
    }

    fn line(&mut self, now: Millis, kind: &str, subject: &str, followed: &str) {
        let seed = self.seed;
        if let Some(sink) = &mut self.sink {
            sink(&format!("{now:>7} {seed:>8} {kind:<18} {subject:<12} {followed}"));
        }
    }
}

fn service_name(plan: &Plan, service: u16) -> &'static str {
    plan.services.get(usize::from(service)).map_or("?", |service| service.name)
}

fn task_name(plan: &Plan, task: TaskId) -> String {
    format!("{}/t{}[{}]", service_name(plan, task.service), task.task, task.instance)
}

fn describe_event(plan: &Plan, event: &Event) -> (&'static str, String, Option<String>) {
    let of = |task: &TaskId| task_name(plan, *task);
    let named = |service: &u16| service_name(plan, *service).to_owned();
    match event {
        Event::Boot => ("boot", "-".to_owned(), None),
        Event::Started { task } => ("started", of(task), None),
        Event::BootReady { task } => ("boot_ready", of(task), None),
        Event::Exited { task, reason } => ("exited", of(task), Some(format!("({reason})"))),
        Event::Beat { task } => ("beat", of(task), None),
        Event::TimerFired => ("timer_fired", "-".to_owned(), None),
        Event::DependencyChanged { service, name, met } => {
            ("dependency_changed", named(service), Some(format!("({name}={met})")))
        }
        Event::Pressure { service, cause, on } => ("pressure", named(service), Some(format!("({cause}={on})"))),
        Event::RestartRequested { service } => ("restart_requested", named(service), None),
        Event::DrainRequested => ("drain_requested", "-".to_owned(), None),
        Event::DrainDeadlineChanged { deadline_ms } => {
            ("drain_deadline_changed", "-".to_owned(), Some(format!("({deadline_ms})")))
        }
        Event::PhaseDrained { phase } => ("phase_drained", phase.name().to_owned(), None),
    }
}

fn describe_action(plan: &Plan, action: &Action) -> String {
    let of = |task: &TaskId| task_name(plan, *task);
    match action {
        Action::Start { task } => format!("start {}", of(task)),
        Action::StartAfter { task, delay_ms } => format!("start {} after {delay_ms}", of(task)),
        Action::Publish { service, state } => format!("{} is {}", service_name(plan, *service), state.name()),
        Action::StopPhase { phase, services, deadline } => {
            let names: Vec<&str> = services.iter().map(|service| service_name(plan, *service)).collect();
            format!("stop {} of {} by {deadline}", phase.name(), names.join(","))
        }
        Action::Abort { task, why } => format!("abort {} ({why:?})", of(task)),
        Action::Straggler { task } => format!("straggler {}", of(task)),
        Action::Finish { code } => format!("finish {code}"),
    }
}
