//! `macronode index pin`, `unpin`, `reindex` and `capacity`.

use serde::Deserialize;
use serde_json::json;

use super::args::{ReindexArgs, SubjectArgs};
use crate::cli::ApiArgs;
use crate::client::ApiClient;
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::commands::text::one_line;
use crate::errors::Failure;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Done {
    id: String,
    changed: bool,
    replayed: bool,
}

/// Pins an id.
pub async fn pin(args: &SubjectArgs) -> Result<Report, Failure> {
    administer("pin", &args.id, args.key.as_deref(), &args.node).await
}

/// Unpins an id.
pub async fn unpin(args: &SubjectArgs) -> Result<Report, Failure> {
    administer("unpin", &args.id, args.key.as_deref(), &args.node).await
}

/// Has an id looked up again.
pub async fn reindex(args: &ReindexArgs) -> Result<Report, Failure> {
    administer("reindex", &args.id, args.key.as_deref(), &args.node).await
}

async fn administer(action: &str, id: &str, key: Option<&str>, node: &ApiArgs) -> Result<Report, Failure> {
    let path = format!("/admin/{action}");
    let mut client = ApiClient::find(node)?;
    let headers: Vec<(&str, &str)> = key.iter().map(|key| ("idempotency-key", *key)).collect();
    let answer = client.post_with(&path, &headers, &json!({"id": id})).await?;
    if node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    Ok(Report::clean(show(action, &answer.read(&path)?)))
}

fn show(action: &str, done: &Done) -> String {
    let how = match (done.changed, done.replayed) {
        (true, false) => "done",
        (false, false) => "nothing to do",
        (_, true) => "done before, under this key",
    };
    format!("{action} {}: {how}\n", one_line(&done.id))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Capacity {
    lambda: f64,
    service_s: f64,
    hits: f64,
    workers: u64,
    workers_wanted: u64,
}

/// Compares resolvers with load.
pub async fn capacity(node: &ApiArgs) -> Result<Report, Failure> {
    const PATH: &str = "/index/capacity";
    let answer = ApiClient::find(node)?.get(PATH).await?;
    if node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    Ok(Report::clean(rule(&answer.read(PATH)?)))
}

fn rule(capacity: &Capacity) -> String {
    let Capacity { lambda, service_s, hits, workers, workers_wanted } = capacity;
    let verdict = match workers >= workers_wanted {
        true => "enough",
        false => "too few: raise index.resolvers, or the queue fills and questions are refused",
    };
    let rows = [
        row(["lookups", &format!("{lambda:.1} a second")]),
        row(["each takes", &format!("{:.1} ms", service_s * 1000.0)]),
        row(["from memory", &format!("{hits:.1} a second, without a resolver")]),
        row(["resolvers", &format!("{workers}; at least {workers_wanted} are needed: {verdict}")]),
    ];
    table(0, &rows) + "resolvers >= ceil(lookups a second x seconds each / 0.7)\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_told_apart_from_what_was_done_before() {
        let done = |changed, replayed| show("pin", &Done { id: "name:a".to_owned(), changed, replayed });
        assert_eq!(done(true, false), "pin name:a: done\n");
        assert_eq!(done(false, false), "pin name:a: nothing to do\n");
        assert_eq!(done(true, true), "pin name:a: done before, under this key\n");
    }

    #[test]
    fn the_rule_is_shown_with_its_numbers() {
        let capacity = Capacity { lambda: 700.0, service_s: 0.05, hits: 9000.0, workers: 64, workers_wanted: 50 };
        let text = rule(&capacity);
        assert!(text.contains("resolvers    64; at least 50 are needed: enough\n"), "{text}");
        assert!(text.contains("each takes   50.0 ms\n"), "{text}");
        assert!(rule(&Capacity { workers_wanted: 65, ..capacity }).contains("too few"));
    }
}
