//! `macronode mailbox redrive`: orders to move dead letters back, and how they go.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::{Value, json};

use super::args::{RedriveArgs, RedriveCommand, RedriveTarget};
use super::types::{counted, one_line, relative, segment, span};
use crate::client::{ApiClient, NodeAnswer};
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::errors::{Code, Exit, Failure};

const TASKS: &str = "/v1/dlq/tasks";
/// Time between two looks at an order.
const LOOK: Duration = Duration::from_millis(250);
/// Time the node has to count a large topic.
const COUNT_PATIENCE: Duration = Duration::from_secs(25);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Task {
    id: u64,
    from: String,
    to: Option<String>,
    state: String,
    moved: u64,
    looked_at: u64,
    to_look_at: Option<u64>,
    failed: u64,
    last_error: Option<String>,
    rate_per_second: Option<u32>,
    ordered_ts: u64,
    eta_ts: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ordered {
    task: Option<Task>,
    would_move: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tasks {
    tasks: Vec<Task>,
    next: Option<u64>,
}

/// Orders, or does something about an order.
pub async fn redrive(args: &RedriveArgs) -> Result<Report, Failure> {
    match &args.command {
        None => order(args).await,
        Some(RedriveCommand::List(node)) => {
            let answer = ApiClient::find(&node.node)?.get(TASKS).await?;
            if node.node.json {
                return Ok(Report::clean(answer.text() + "\n"));
            }
            let Tasks { tasks, next } = answer.read(TASKS)?;
            let older = next.map_or("", |_| "older orders are not shown\n");
            Ok(Report::clean(list(&tasks) + older))
        }
        Some(RedriveCommand::Pause(target)) => control(target, "pause").await,
        Some(RedriveCommand::Resume(target)) => control(target, "resume").await,
        Some(RedriveCommand::Cancel(target)) => control(target, "cancel").await,
    }
}

async fn control(target: &RedriveTarget, word: &str) -> Result<Report, Failure> {
    let path = format!("{TASKS}/{}/{word}", target.id);
    let answer = ApiClient::find(&target.node)?.post(&path, &json!({})).await?;
    if target.node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    Ok(Report::clean(format!("{}\n", read_task(&answer, &path)?.in_words())))
}

async fn order(args: &RedriveArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    let topic = args.topic.as_deref().unwrap_or_default();
    let path = format!("/v1/topics/{}/dlq/reprocess", segment(topic));
    let answer = client.post_within(&path, &body(args), COUNT_PATIENCE).await?;
    let ordered: Ordered = answer.read(&path)?;
    let Some(task) = ordered.task else {
        let count = counted(ordered.would_move.unwrap_or(0), "dead letter");
        let text = if args.node.json { answer.text() } else { format!("{count} of {topic} would be moved") };
        return Ok(Report::clean(text + "\n"));
    };
    if args.follow {
        return follow(&mut client, task, args.node.json).await;
    }
    let text = match args.node.json {
        true => answer.text() + "\n",
        false => format!("{}\nfollow it with `macronode mailbox redrive list`\n", task.in_words()),
    };
    Ok(Report::clean(text))
}

fn body(args: &RedriveArgs) -> Value {
    let mut body = json!({});
    if let Some(text) = &args.contains_error {
        body["filter"] = json!({"error_contains": text});
    }
    if let Some(to) = &args.to {
        body["to"] = to.as_str().into();
    }
    if let Some(rate) = args.rate {
        body["rate_per_second"] = rate.into();
    }
    if let Some(limit) = args.limit {
        body["limit"] = limit.into();
    }
    if args.dry_run {
        body["dry_run"] = true.into();
    }
    body
}

/// Shows an order until it has come to its end. It goes on without this command.
async fn follow(client: &mut ApiClient, mut task: Task, is_json: bool) -> Result<Report, Failure> {
    let path = format!("{TASKS}/{}", task.id);
    let bar = progress_bar();
    let mut last = None;
    while !task.is_over() {
        tokio::time::sleep(LOOK).await;
        let answer = client.get(&path).await?;
        task = read_task(&answer, &path)?;
        // Looking goes by pages, moving one by one.
        let done = task.looked_at.max(task.moved + task.failed);
        bar.set_length(task.to_look_at.unwrap_or(done).max(done));
        bar.set_position(done);
        bar.set_message(format!("{} {}: {} moved, {} failed", task.id, task.state, task.moved, task.failed));
        last = Some(answer);
    }
    bar.finish_and_clear();
    let text = match (is_json, last) {
        (true, Some(answer)) => answer.text(),
        _ => task.in_words(),
    };
    let is_well = task.state == "done" && task.failed == 0;
    Ok(Report { text: text + "\n", exit: if is_well { Exit::Clean } else { Exit::Failed } })
}

fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("order {msg} {wide_bar} {pos}/{len} {eta}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn read_task(answer: &NodeAnswer, path: &str) -> Result<Task, Failure> {
    let ordered: Ordered = answer.read(path)?;
    ordered.task.ok_or_else(|| Failure::new(Code::NodeRefused, format!("the answer to {path} names no order")))
}

fn list(tasks: &[Task]) -> String {
    if tasks.is_empty() {
        return "no orders since the node started\n".to_owned();
    }
    let mut rows = vec![row(["order", "state", "from", "to", "moved", "looked at", "failed", "ordered", "note"])];
    rows.extend(tasks.iter().map(|task| {
        let to = task.to.as_deref().unwrap_or("each its own");
        let looked_at = match task.to_look_at {
            Some(all) => format!("{}/{all}", task.looked_at),
            None => task.looked_at.to_string(),
        };
        let numbers = [task.id, task.moved, task.failed].map(|number| number.to_string());
        let [id, moved, failed] = numbers.each_ref().map(String::as_str);
        row([id, &task.state, &task.from, to, moved, &looked_at, failed, &relative(task.ordered_ts), &task.note()])
    }));
    table(0, &rows)
}

impl Task {
    fn is_over(&self) -> bool {
        !matches!(self.state.as_str(), "waiting" | "running" | "paused")
    }

    fn note(&self) -> String {
        if let Some(error) = &self.last_error {
            return one_line(error);
        }
        let now = ron_kernel::clock::unix_millis();
        let left = self.eta_ts.filter(|_| !self.is_over()).map(|eta| eta.saturating_sub(now));
        let rate = self.rate_per_second.map(|rate| format!("{rate} a second"));
        let parts: Vec<String> =
            rate.into_iter().chain(left.map(|left| format!("about {} left", span(left)))).collect();
        parts.join(", ")
    }

    fn in_words(&self) -> String {
        let Task { id, state, failed, .. } = self;
        let failed = if *failed > 0 { format!(", {failed} failed: {}", self.note()) } else { String::new() };
        format!("order {id} is {state}: {} moved{failed}", counted(self.moved, "dead letter"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(state: &str) -> Task {
        serde_json::from_value(json!({
            "id": 3, "from": "orders.dlq", "state": state, "moved": 7, "looked_at": 9, "to_look_at": 40, "failed": 0,
            "rate_per_second": 5, "ordered_ts": ron_kernel::clock::unix_millis(),
        }))
        .expect("the shape of an order")
    }

    #[test]
    fn orders_are_told_and_listed() {
        assert_eq!(task("running").in_words(), "order 3 is running: 7 dead letters moved");
        let failed = Task { failed: 2, last_error: Some("no\nroom".to_owned()), ..task("failed") };
        assert_eq!(failed.in_words(), "order 3 is failed: 7 dead letters moved, 2 failed: no\\nroom");
        let text = list(&[task("paused")]);
        assert!(text.contains("3      paused  orders.dlq  each its own  7      9/40       0"), "{text}");
        assert!(text.contains("5 a second"), "{text}");
        for (state, is_over) in [("waiting", false), ("paused", false), ("done", true), ("canceled", true), ("", true)]
        {
            assert_eq!(task(state).is_over(), is_over, "{state}");
        }
    }
}
