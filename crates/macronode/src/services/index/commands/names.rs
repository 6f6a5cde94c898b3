//! `macronode index name set`, `name get` and `name remove`.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::args::{NameGetArgs, NameSetArgs};
use crate::client::{ApiClient, NodeAnswer, PATIENCE};
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::commands::text::{one_line, relative, segment};
use crate::config::TimeSpan;
use crate::errors::Failure;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
    value: String,
    sequence: u64,
    expires_ms: u64,
    source: String,
}

/// Lets a name stand for some content.
pub async fn set(args: &NameSetArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    let answer = put(&mut client, &args.name, &args.id, args.ttl).await?;
    shown(&args.name, &answer, args.node.json)
}

/// Sets a name, for another command.
pub async fn put(
    client: &mut ApiClient,
    name: &str,
    value: &str,
    ttl: Option<TimeSpan>,
) -> Result<NodeAnswer, Failure> {
    let path = path_of(name);
    let mut body = json!({"value": value});
    if let Some(ttl) = ttl {
        body["ttl_s"] = Value::from(ttl.duration().as_secs());
    }
    let answer = client.ask(Method::PUT, &path, Some(&body), PATIENCE).await?;
    client.accepted(&path, answer)
}

/// Shows what a name stands for.
pub async fn get(args: &NameGetArgs) -> Result<Report, Failure> {
    let answer = ApiClient::find(&args.node)?.get(&path_of(&args.name)).await?;
    shown(&args.name, &answer, args.node.json)
}

/// Lets a name stand for nothing.
pub async fn remove(args: &NameGetArgs) -> Result<Report, Failure> {
    let path = path_of(&args.name);
    let mut client = ApiClient::find(&args.node)?;
    let answer = client.ask(Method::DELETE, &path, None, PATIENCE).await?;
    let answer = client.accepted(&path, answer)?;
    if args.node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    let removed: Named = answer.read(&path)?;
    Ok(Report::clean(format!("{} stands for nothing\n", one_line(&removed.name))))
}

fn path_of(name: &str) -> String {
    format!("/names/{}", segment(name))
}

fn shown(name: &str, answer: &NodeAnswer, json: bool) -> Result<Report, Failure> {
    if json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    Ok(Report::clean(show(&answer.read(&path_of(name))?)))
}

fn show(named: &Named) -> String {
    let mut rows = vec![
        row(["name", &one_line(&named.name)]),
        row(["stands for", &one_line(&named.value)]),
        row(["number", &named.sequence.to_string()]),
        row(["ends", &relative(named.expires_ms)]),
    ];
    if !named.source.is_empty() {
        rows.push(row(["from", &one_line(&named.source)]));
    }
    table(0, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_with_its_record() {
        let named = Named { name: "name:a@00".to_owned(), value: "b3:11".to_owned(), sequence: 3, ..Named::default() };
        let text = show(&named);
        assert!(text.starts_with("name        name:a@00\nstands for  b3:11\nnumber      3\n"), "{text}");
        assert_eq!(path_of("a/b@00"), "/names/a%2Fb%4000");
    }
}
