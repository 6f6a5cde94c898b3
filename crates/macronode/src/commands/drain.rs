//! `macronode drain`: asks the node to leave, or shows what that would take.

use super::Report;
use super::table::{row, table};
use super::view::Topology;
use crate::cli::DrainArgs;
use crate::client::Client;
use crate::config::TimeSpan;
use crate::errors::Failure;

/// Drains the node, or rehearses a drain.
pub async fn drain(args: &DrainArgs) -> Result<Report, Failure> {
    let client = Client::find(&args.client)?;
    if args.dry_run {
        let answer = client.get("/topology").await?.expect_success("/topology")?;
        let live: Topology = answer.read("/topology")?;
        return Ok(Report::clean(if args.client.json { steps_json(&answer.text()) } else { rehearse(&live) }));
    }
    let answer = client.post("/drain").await?.expect_success("/drain")?;
    let text = format!("the node at {} is leaving; follow it with `macronode status`\n", client.address());
    Ok(Report::clean(if args.client.json { answer.text() + "\n" } else { text }))
}

fn steps_json(topology: &str) -> String {
    let topology: serde_json::Value = serde_json::from_str(topology).unwrap_or_default();
    format!("{}\n", topology["drain"])
}

fn rehearse(live: &Topology) -> String {
    let mut rows = vec![row(["step", "phase", "over after", "services", "tasks"])];
    for (index, step) in live.drain.iter().enumerate() {
        let after = TimeSpan(step.deadline_ms).to_string();
        let number = (index + 1).to_string();
        rows.push(row([&number, &step.phase, &after, &step.services.join(", "), &step.tasks.join(", ")]));
    }
    let total = TimeSpan(live.drain.iter().map(|step| step.deadline_ms).max().unwrap_or(0));
    let waiting = live.queues.iter().filter(|queue| queue.depth > 0);
    let waiting: Vec<Vec<String>> = waiting
        .map(|queue| {
            let fate = match queue.on_drain.as_str() {
                "drained" => "worked off first",
                "discarded" => "dropped; nobody waits for it",
                "kept" => "kept for the next start",
                other => other,
            };
            row([&queue.name, &format!("{} waiting", queue.depth), fate])
        })
        .collect();
    let waiting = match waiting.is_empty() {
        true => "nothing waits in a queue now\n".to_owned(),
        false => format!("waiting now\n{}", table(2, &waiting)),
    };
    format!(
        "a drain takes at most {total}; what is left of a phase when it is over is aborted\n\n{}\n{waiting}",
        table(0, &rows)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rehearsal_shows_phases_deadlines_and_what_waits() {
        let live = serde_json::from_value(json!({
            "drain": [
                {"phase": "intake", "services": ["http", "oap"], "tasks": ["listener"], "deadline_ms": 2250},
                {"phase": "observe", "services": ["kernel"], "tasks": ["metrics_server"], "deadline_ms": 3000},
            ],
            "queues": [{"name": "work", "depth": 12, "on_drain": "drained"}, {"name": "telemetry", "depth": 0}],
        }))
        .expect("the shape of /topology");
        let expected = "\
a drain takes at most 3s; what is left of a phase when it is over is aborted

step  phase    over after  services   tasks
1     intake   2250ms      http, oap  listener
2     observe  3s          kernel     metrics_server

waiting now
  work  12 waiting  worked off first
";
        assert_eq!(rehearse(&live), expected);
    }
}
