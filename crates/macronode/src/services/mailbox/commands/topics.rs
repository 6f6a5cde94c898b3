//! `macronode mailbox topics`: listed, made, looked at, changed, emptied and removed.

use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::args::{ListArgs, TopicsArgs, TopicsCommand};
use super::types::{counted, missing_dlq, one_line, relative, segment};
use crate::cli::ApiArgs;
use crate::client::{ApiClient, NodeAnswer, PATIENCE};
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::config::{Size, TimeSpan};
use crate::errors::Failure;

const PATH: &str = "/v1/topics";
/// Maximum topics in one page.
const PAGE: usize = 1000;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Topic {
    name: String,
    created_ts: u64,
    dead_letters_of: Option<String>,
    dlq_missing: Option<String>,
    settings: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Page {
    topics: Vec<Value>,
    next: Option<String>,
}

/// Carries out a `mailbox topics` command.
pub async fn topics(args: &TopicsArgs) -> Result<Report, Failure> {
    match &args.command {
        None => list(&args.list).await,
        Some(TopicsCommand::List(args)) => list(args).await,
        Some(TopicsCommand::Create { name, settings, node }) => {
            shown(node, Method::PUT, name, Some(&changed(settings))).await
        }
        Some(TopicsCommand::Show { name, node }) => shown(node, Method::GET, name, None).await,
        Some(TopicsCommand::Set { name, settings, node }) => {
            shown(node, Method::PATCH, name, Some(&changed(settings))).await
        }
        Some(TopicsCommand::Delete { name, node }) => {
            ask(node, Method::DELETE, &path_of(name), None).await?;
            let text = if node.json { "{}\n".to_owned() } else { format!("topic {name} is removed\n") };
            Ok(Report::clean(text))
        }
        Some(TopicsCommand::Purge { name, node }) => {
            let path = format!("{}/purge", path_of(name));
            let answer = ask(node, Method::POST, &path, None).await?;
            if node.json {
                return Ok(Report::clean(answer.text() + "\n"));
            }
            let purged = answer.read::<Value>(&path)?["purged"].as_u64().unwrap_or(0);
            Ok(Report::clean(format!("{} removed from topic {name}\n", counted(purged, "message"))))
        }
    }
}

fn path_of(name: &str) -> String {
    format!("{PATH}/{}", segment(name))
}

async fn ask(node: &ApiArgs, method: Method, path: &str, body: Option<&Value>) -> Result<NodeAnswer, Failure> {
    let mut client = ApiClient::find(node)?;
    let answer = client.ask(method, path, body, PATIENCE).await?;
    client.accepted(path, answer)
}

/// Asks for one topic and shows what it is now.
async fn shown(node: &ApiArgs, method: Method, name: &str, body: Option<&Value>) -> Result<Report, Failure> {
    let path = path_of(name);
    let answer = ask(node, method, &path, body).await?;
    if node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    Ok(Report::clean(show(&answer.read(&path)?)))
}

async fn list(args: &ListArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    let names = all(&mut client, args.prefix.as_deref().unwrap_or("")).await?;
    if args.node.json {
        return Ok(Report::clean(format!("{}\n", serde_json::json!({"topics": names}))));
    }
    let topics: Vec<Topic> = names.into_iter().filter_map(|topic| serde_json::from_value(topic).ok()).collect();
    Ok(Report::clean(list_text(&topics)))
}

/// Every topic whose name begins like this, page after page.
async fn all(client: &mut ApiClient, prefix: &str) -> Result<Vec<Value>, Failure> {
    let (mut topics, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("{PATH}?limit={PAGE}&prefix={}{after}", segment(prefix));
        let page: Page = client.get(&path).await?.read(PATH)?;
        topics.extend(page.topics);
        match page.next {
            Some(next) => after = format!("&after={}", segment(&next)),
            None => return Ok(topics),
        }
    }
}

fn list_text(topics: &[Topic]) -> String {
    if topics.is_empty() {
        return "no topics\n".to_owned();
    }
    let mut rows = vec![row(["topic", "groups", "visibility", "attempts", "retention", "partitions", "made"])];
    rows.extend(topics.iter().map(|topic| {
        let setting = |name: &str| topic.settings.get(name).map_or_else(String::new, |value| in_words(name, value));
        let mut made = relative(topic.created_ts);
        if topic.settings.get("paused").is_some_and(|paused| *paused == true) {
            made += ", PAUSED";
        }
        row([
            &topic.name,
            &setting("groups"),
            &setting("visibility_ms"),
            &setting("max_attempts"),
            &setting("retention_ms"),
            &setting("partitions"),
            &made,
        ])
    }));
    table(0, &rows)
}

fn show(topic: &Topic) -> String {
    let mut rows: Vec<Vec<String>> =
        topic.settings.iter().map(|(name, value)| row([name, &in_words(name, value)])).collect();
    rows.extend(topic.dead_letters_of.as_ref().map(|source| row(["dead letters of", source])));
    rows.extend(topic.dlq_missing.as_ref().map(|dlq| row(["dlq missing", &missing_dlq(dlq)])));
    format!("{} made {}\n{}", topic.name, relative(topic.created_ts), table(2, &rows))
}

/// A setting as it is written on the command line.
fn in_words(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => one_line(text),
        Value::Number(number) if name.ends_with("_ms") => TimeSpan(number.as_u64().unwrap_or(0)).to_string(),
        other => other.to_string(),
    }
}

/// JSON body of the settings that change.
fn changed(settings: &[(String, String)]) -> Value {
    let mut body = Map::new();
    for (name, text) in settings {
        let mut group = |name: &str, part: &str, value: Value| {
            let group = body.entry(name).or_insert(Value::Null);
            if !group.is_object() {
                *group = Value::Object(Map::new());
            }
            group[part] = value;
        };
        match name.split_once('.') {
            Some(("labels", label)) => group("labels", label, text.as_str().into()),
            Some(("breaker", part)) => group("breaker", part, setting(part, text)),
            _ => {
                body.insert(name.clone(), setting(name, text));
            }
        }
    }
    body.into()
}

/// A number, a time, a size, a switch, nothing, or a word; the node says whether it fits.
fn setting(name: &str, text: &str) -> Value {
    let time =
        || name.ends_with("_ms").then(|| text.parse::<TimeSpan>().ok()).flatten().map(|time| Value::from(time.0));
    let size = || name.contains("bytes").then(|| text.parse::<Size>().ok()).flatten().map(|size| Value::from(size.0));
    let number = || text.parse::<u64>().ok().map(Value::from);
    let word = match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "none" | "null" => Value::Null,
        other => other.into(),
    };
    number().or_else(time).or_else(size).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_read_as_people_write_them() {
        let written = [
            ("visibility_ms", "30s"),
            ("retention_ms", "5000"),
            ("payload_bytes_max", "64KiB"),
            ("max_attempts", "3"),
            ("groups", "fifo"),
            ("paused", "true"),
            ("dlq", "none"),
            ("labels.team", "5"),
            ("labels.cost", "x"),
            ("breaker.failing_percent", "40"),
            ("breaker.pause_ms", "1m"),
        ];
        let written = written.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let expected = json!({
            "visibility_ms": 30_000, "retention_ms": 5000, "payload_bytes_max": 65_536, "max_attempts": 3,
            "groups": "fifo", "paused": true, "dlq": null, "labels": {"team": "5", "cost": "x"},
            "breaker": {"failing_percent": 40, "pause_ms": 60_000},
        });
        assert_eq!(changed(&written), expected);
        assert_eq!(setting("max_attempts", "-3"), json!("-3"), "the node names the field and what is wrong");
    }

    fn topic() -> Topic {
        serde_json::from_value(json!({
            "name": "orders", "created_ts": ron_kernel::clock::unix_millis(),
            "settings": {"groups": "fifo", "visibility_ms": 30_000, "max_attempts": 5, "retention_ms": 345_600_000,
                         "partitions": 1, "paused": true, "dlq": null},
        }))
        .expect("the shape of a topic")
    }

    #[test]
    fn topics_are_listed_and_shown() {
        let text = list_text(&[topic()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "topic   groups  visibility  attempts  retention  partitions  made");
        assert!(lines[1].starts_with("orders  fifo    30s         5         96h        1           "), "{text}");
        assert!(lines[1].ends_with("PAUSED"), "{text}");
        assert_eq!(list_text(&[]), "no topics\n");
        let text = show(&topic());
        assert!(text.starts_with("orders made "), "{text}");
        assert!(text.contains("\n  visibility_ms  30s\n") && text.contains("\n  dlq            none\n"), "{text}");
        assert!(!text.contains("missing"), "{text}");
        let text = show(&Topic { dlq_missing: Some("grave".to_owned()), ..topic() });
        assert!(text.contains("\n  dlq missing    grave is gone: "), "{text}");
    }
}
