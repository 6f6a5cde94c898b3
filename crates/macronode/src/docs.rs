//! The generated documents: what the specs declare, as Markdown. A golden test keeps docs/ equal to this.

use std::fmt::Write as _;

use ron_api::{NODE_SURFACE, Surface, http_reference};
use ron_kernel::builder::SUPERVISOR;
use ron_kernel::flowchart::Flowchart;
use ron_kernel::metrics::{COLLECTED, METRICS, MetricSpec};
use ron_kernel::spec::{ServiceSpec, TaskSpec};
use ron_policy::{Plan, ServicePlan, TaskPlan, drain_plan};
use ron_types::limits;
use serde::Serialize;

use crate::services::{self, Service};
use crate::specs::{HTTP, OAP, queues, served_by_http, units};

mod cli;

pub use cli::cli;

const NOTE: &str = "Generated from the specs by `cargo xtask docgen`; edits here are overwritten.\n";

/// A generated document: its path below docs/ and the function that writes it.
pub type Page = (&'static str, fn() -> String);

/// Every generated document, by file name.
pub const PAGES: &[Page] = &[
    ("cli.md", cli),
    ("concurrency.md", concurrency),
    ("config.md", config),
    ("http.md", http),
    ("metrics.md", metrics),
];

/// Text of docs/concurrency.md.
pub fn concurrency() -> String {
    let mut page = format!("# Tasks, queues and gates\n\n{NOTE}\n");
    page.push_str("The same picture, live: `macronode topology`, or `/` on the admin plane.\n\n## Map\n\n```mermaid\n");
    page.push_str(&map());
    page.push_str(
        "```\n\n## Services\n\nA service starts when what it needs is serving, and stops before it. It \
         runs without what it passes requests on to (serves), and stops before that, too.\n\n",
    );
    table(
        &mut page,
        &["service", "required", "needs", "serves", "tasks", "after more than 5 restarts in 60 s", "what it is"],
        service_rows(),
    );
    page.push_str("\n## Tasks\n\nPhases of a drain: 1 intake, 2 work, 3 flush, 4 observe.\n\n");
    table(&mut page, &["task", "service", "how many", "phase", "heartbeat", "what it does"], task_rows());
    page.push_str("\n## Queues\n\n");
    let head = ["queue", "kind", "items", "bytes", "from", "to", "when full", "answer", "on restart", "on drain"];
    table(&mut page, &head, queue_rows());
    page.push_str("\n## Gates\n\nPermits are asked for without waiting; none left is Busy.\n\n");
    table(&mut page, &["facet", "name", "permits", "what it bounds"], gate_rows());
    let deadline = limits::DRAIN_DEADLINE.as_millis();
    let _ = write!(page, "\n## Drain\n\nThe order of a drain with the default deadline of {deadline} ms:\n\n");
    table(&mut page, &["step", "phase", "services", "tasks", "aborted after"], drain_rows());
    page
}

/// Text of docs/metrics.md.
pub fn metrics() -> String {
    let mut page = format!("# Metrics\n\n{NOTE}\n");
    page.push_str(
        "Scraped from `/metrics` on the admin plane. Label values come from the specs, so every set is bounded.\n\n",
    );
    let specs = METRICS.iter().chain(COLLECTED).chain(ron_admin::PROCESS_METRICS);
    let specs = specs.chain(services::all().flat_map(Service::metrics));
    table(&mut page, &["metric", "kind", "labels", "what it says"], specs.map(metric_row).collect());
    page
}

/// Text of docs/http.md.
pub fn http() -> String {
    let of_services = services::all().flat_map(|service| service.surfaces().iter().copied());
    let surfaces: Vec<&Surface> = of_services.chain([&NODE_SURFACE]).collect();
    http_reference(&surfaces)
}

/// Text of docs/config.md.
pub fn config() -> String {
    crate::config::markdown()
}

fn metric_row(spec: &MetricSpec) -> Vec<String> {
    vec![format!("`{}`", spec.name), spec.kind.to_owned(), spec.labels.join(", "), spec.help.to_owned()]
}

fn table(page: &mut String, head: &[&str], rows: Vec<Vec<String>>) {
    let _ = writeln!(page, "| {} |", head.join(" | "));
    let _ = writeln!(page, "|{}", " --- |".repeat(head.len()));
    for row in rows {
        let _ = writeln!(page, "| {} |", row.join(" | "));
    }
}

fn service_rows() -> Vec<Vec<String>> {
    let row = |spec: &ServiceSpec| {
        let tasks: Vec<&str> = spec.tasks.iter().map(|task| task.name).collect();
        vec![
            spec.name.to_owned(),
            if spec.required { "yes" } else { "no" }.to_owned(),
            spec.depends_on.join(", "),
            served_by(spec).join(", "),
            tasks.join(", "),
            word(&spec.law.then),
            spec.does.to_owned(),
        ]
    };
    units().map(row).collect()
}

fn task_rows() -> Vec<Vec<String>> {
    let row = |service: &str, task: &TaskSpec| {
        let heartbeat = task.heartbeat.map_or_else(|| "none".to_owned(), |every| format!("{} s", every.as_secs()));
        let phase = task.phase.number().to_string();
        vec![task.name.to_owned(), service.to_owned(), task.count.to_owned(), phase, heartbeat, task.does.to_owned()]
    };
    let declared = units().flat_map(|spec| spec.tasks.iter().map(move |task| row(spec.name, task)));
    std::iter::once(row("kernel", &SUPERVISOR)).chain(declared).collect()
}

fn queue_rows() -> Vec<Vec<String>> {
    let row = |spec: &&ron_kernel::spec::QueueSpec| {
        vec![
            format!("`{}`", spec.name),
            word(&spec.kind),
            spec.capacity.to_string(),
            spec.bytes_max.map_or_else(String::new, |bytes| format!("{} MiB", bytes / limits::MIB)),
            spec.from.to_owned(),
            spec.to.to_owned(),
            word(&spec.overflow).replace('_', " "),
            spec.answer.to_owned(),
            word(&spec.on_restart),
            word(&spec.on_drain),
        ]
    };
    queues().map(|spec| row(&spec)).collect()
}

fn gate_rows() -> Vec<Vec<String>> {
    let permits = |per_cpu| format!("{per_cpu} for each core");
    services::gates()
        .map(|g| vec![g.facet.to_owned(), g.name.to_owned(), permits(g.permits_per_cpu), g.does.to_owned()])
        .collect()
}

fn drain_rows() -> Vec<Vec<String>> {
    let services = units().map(|spec| ServicePlan {
        name: spec.name,
        required: spec.required,
        depends_on: spec.depends_on.to_vec(),
        serves: served_by(spec),
        law: spec.law,
        tasks: spec.tasks.iter().map(|task| task_plan(task)).collect(),
    });
    let plan = Plan { services: services.collect(), drain_deadline_ms: limits::DRAIN_DEADLINE.as_millis() as u64 };
    let rows = drain_plan(&plan).into_iter().enumerate().map(|(step, drain)| {
        let phase = format!("{} {}", drain.phase.number(), drain.phase.name());
        let deadline = format!("{} ms", drain.deadline_ms);
        vec![(step + 1).to_string(), phase, drain.services.join(", "), drain.tasks.join(", "), deadline]
    });
    rows.collect()
}

fn task_plan(task: &TaskSpec) -> TaskPlan {
    TaskPlan { name: task.name, instances: 1, phase: task.phase, heartbeat_ms: None }
}

/// Names of the services that a plane passes requests on to, on a node that runs everything.
fn served_by(spec: &ServiceSpec) -> Vec<&'static str> {
    match spec.name {
        name if name == HTTP.name => served_by_http().collect(),
        name if name == OAP.name => services::all().map(|service| service.spec().name).collect(),
        _ => Vec::new(),
    }
}

/// The declared map: units with their tasks, queues between tasks.
fn map() -> String {
    let mut map = Flowchart::default();
    map.service("kernel", "kernel", [(SUPERVISOR.name, SUPERVISOR.name.to_owned())]);
    for spec in units() {
        map.service(spec.name, spec.name, spec.tasks.iter().map(|task| (task.name, task.name.to_owned())));
    }
    for spec in units() {
        spec.depends_on.iter().for_each(|dependency| map.need(spec.name, dependency));
        served_by(spec).iter().for_each(|other| map.serve(spec.name, other));
    }
    queues().for_each(|queue| map.queue(queue, &format!("({})", queue.capacity)));
    map.finish()
}

/// A unit variant as it is written in JSON.
fn word<T: Serialize>(value: &T) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    json.as_str().unwrap_or_default().to_lowercase()
}
