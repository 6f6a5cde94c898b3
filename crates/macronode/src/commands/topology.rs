//! `macronode topology`: what runs, and whether it is what is declared.

use std::collections::BTreeSet;

use super::Report;
use super::table::{row, table};
use super::view::{Queue, Topology, Version};
use crate::adapters::declared;
use crate::cli::TopologyArgs;
use crate::client::Client;
use crate::errors::{Code, Exit, Failure};

/// Asks the node and shows or compares its topology.
pub async fn topology(args: &TopologyArgs) -> Result<Report, Failure> {
    let client = Client::find(&args.client)?;
    if args.mermaid {
        let path = "/topology?as=mermaid";
        return Ok(Report::clean(client.get(path).await?.expect_success(path)?.text()));
    }
    let answer = client.get("/topology").await?.expect_success("/topology")?;
    let live: Topology = answer.read("/topology")?;
    match (args.check, args.client.json) {
        (true, _) => {
            let version: Version = client.get("/version").await?.expect_success("/version")?.read("/version")?;
            Ok(compare(&live, &declared(&version.services, version.dev)))
        }
        (false, true) => Ok(Report::clean(answer.text() + "\n")),
        (false, false) => Ok(Report::clean(show(&live))),
    }
}

fn show(live: &Topology) -> String {
    let services = live.services.iter().map(|service| {
        let needs = match service.depends_on.is_empty() {
            true => String::new(),
            false => format!("needs {}", service.depends_on.join(", ")),
        };
        row([&service.name, &service.state, &needs, &service.does])
    });
    let queues = live.queues.iter().map(|queue| {
        let fill = format!("{}/{}", queue.depth, queue.capacity);
        let counts = format!("high {}, busy {}, dropped {}", queue.high_water, queue.busy, queue.dropped);
        row([&queue.unit, &queue.name, &bar(queue), &fill, &queue.policy, &counts])
    });
    let gates = live.gates.iter().map(|gate| {
        let fill = format!("{}/{} in use", gate.in_flight, gate.permits);
        row([&gate.name, &fill, &format!("busy {}", gate.busy)])
    });
    let parts = [
        ("services", services.collect::<Vec<_>>()),
        ("tasks", task_rows(live)),
        ("queues", queues.collect()),
        ("gates", gates.collect()),
    ];
    let shown = parts.iter().filter(|(_, rows)| !rows.is_empty());
    let sections: Vec<String> = shown.map(|(title, rows)| format!("{title}\n{}", table(2, rows))).collect();
    format!("{}\n\n{}", live.state, sections.join("\n"))
}

/// A row for each pool of tasks, with how many of it run.
fn task_rows(live: &Topology) -> Vec<Vec<String>> {
    let mut pools: Vec<(&str, &str)> = Vec::new();
    for task in &live.tasks {
        if !pools.contains(&(&task.unit, &task.name)) {
            pools.push((&task.unit, &task.name));
        }
    }
    let pool_row = |(unit, name): (&str, &str)| {
        let pool: Vec<_> = live.tasks.iter().filter(|task| task.unit == unit && task.name == name).collect();
        let running = pool.iter().filter(|task| task.state == "running").count();
        let restarts: u64 = pool.iter().map(|task| task.restarts_total).sum();
        let last = pool.iter().filter_map(|task| task.last_exit.as_deref()).next_back().unwrap_or("");
        let last = if last.is_empty() { String::new() } else { format!("last exit: {last}") };
        let up = format!("{running}/{} running", pool.len());
        row([unit, name, &up, &format!("{restarts} restarts"), &last])
    };
    pools.into_iter().map(pool_row).collect()
}

/// Ten cells that fill up; an item that waits is never shown as none.
fn bar(queue: &Queue) -> String {
    let cells = (queue.depth * 10).div_ceil(queue.capacity.max(1)).min(10);
    format!("[{}{}]", "#".repeat(cells), ".".repeat(10 - cells))
}

fn compare(live: &Topology, declared: &[(&str, &str)]) -> Report {
    let named = |kind: &'static str| move |name: &String| (kind.to_owned(), name.clone());
    let running: BTreeSet<(String, String)> = (live.services.iter().map(|row| &row.name).map(named("service")))
        .chain(live.tasks.iter().map(|row| &row.name).map(named("task")))
        .chain(live.queues.iter().map(|row| &row.name).map(named("queue")))
        .chain(live.gates.iter().map(|row| &row.name).map(named("gate")))
        .collect();
    let declared: BTreeSet<(String, String)> =
        declared.iter().map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned())).collect();
    let missing: Vec<_> = declared.difference(&running).collect();
    let strange: Vec<_> = running.difference(&declared).collect();
    if missing.is_empty() && strange.is_empty() {
        return Report::clean(format!("ok: what runs is what is declared, {} parts\n", running.len()));
    }
    let lines = |parts: &[&(String, String)], fault: &str| -> String {
        parts.iter().map(|(kind, name)| format!("{kind} {name}: {fault}\n")).collect()
    };
    let text = format!(
        "{}{}{} {}: {} not running, {} not declared\n",
        lines(&missing, "declared but not running"),
        lines(&strange, "running but not declared"),
        Code::TopologyDiffers,
        Code::TopologyDiffers.text(),
        missing.len(),
        strange.len()
    );
    Report { text, exit: Exit::Failed }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live() -> Topology {
        serde_json::from_value(json!({
            "state": "ready",
            "services": [{"name": "http", "state": "ready", "depends_on": ["workers"], "does": "serves HTTP"}],
            "tasks": [
                {"unit": "workers", "name": "worker", "instance": 0, "state": "running", "restarts_total": 0},
                {"unit": "workers", "name": "worker", "instance": 1, "state": "restarting", "restarts_total": 4,
                 "last_exit": "panicked"},
            ],
            "queues": [{"unit": "workers", "name": "work", "capacity": 512, "depth": 12, "policy": "reject_new",
                        "high_water": 40, "busy": 3, "dropped": 0}],
            "gates": [{"name": "search_qps", "permits": 8, "in_flight": 2, "busy": 1}],
        }))
        .expect("the shape of /topology")
    }

    #[test]
    fn people_see_pools_bars_and_permits() {
        let expected = "\
ready

services
  http  ready  needs workers  serves HTTP

tasks
  workers  worker  1/2 running  4 restarts  last exit: panicked

queues
  workers  work  [#.........]  12/512  reject_new  high 40, busy 3, dropped 0

gates
  search_qps  2/8 in use  busy 1
";
        assert_eq!(show(&live()), expected);
    }

    #[test]
    fn bars_fill_up() {
        for (depth, expected) in [(0, "[..........]"), (1, "[#.........]"), (50, "[#####.....]"), (100, "[##########]")]
        {
            assert_eq!(bar(&Queue { depth, capacity: 100, ..Queue::default() }), expected);
        }
    }

    #[test]
    fn a_difference_is_named_and_fails() {
        let same = [("service", "http"), ("task", "worker"), ("queue", "work"), ("gate", "search_qps")];
        assert_eq!(compare(&live(), &same), Report::clean("ok: what runs is what is declared, 4 parts\n"));
        let other = [("service", "http"), ("task", "worker"), ("queue", "telemetry"), ("gate", "search_qps")];
        let report = compare(&live(), &other);
        assert_eq!(report.exit, Exit::Failed);
        let expected = "\
queue telemetry: declared but not running
queue work: running but not declared
MN0020 what runs differs from what is declared: 1 not running, 1 not declared
";
        assert_eq!(report.text, expected);
    }
}
