//! `macronode index name set`, `name get` and `name remove`.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::args::{NameGetArgs, NameRemoveArgs, NameSetArgs};
use super::course;
use super::resolve::exit_of;
use super::words::{Ask, Resolved};
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
    course: Vec<Ask>,
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
    let path = format!("{}{}", path_of(&args.name), if args.look.fresh { "?fresh=true" } else { "" });
    let mut client = ApiClient::find(&args.node)?;
    let answer = client.ask(Method::GET, &path, None, PATIENCE).await?;
    // A refusal does not say whom the node asked. What it has just found out, also that it found nothing, it remembers.
    if args.look.trace && matches!(answer.status, 404 | 504) {
        return missed(&mut client, args).await;
    }
    let answer = client.accepted(&path, answer)?;
    let report = shown(&args.name, &answer, args.node.json)?;
    if args.node.json || !args.look.trace {
        return Ok(report);
    }
    let named: Named = answer.read(&path)?;
    let took_ms = named.course.iter().filter_map(|ask| ask.ended_ms).fold(0.0, f64::max);
    Ok(Report::clean(report.text + &course::draw(&named.source, took_ms, &named.course)))
}

/// Draws the lookup of a name that stands for nothing, as far as anybody knows.
async fn missed(client: &mut ApiClient, args: &NameGetArgs) -> Result<Report, Failure> {
    let label = args.name.strip_prefix("name:").unwrap_or(&args.name);
    let path = format!("/resolve/{}?max=1", segment(&format!("name:{label}")));
    let answer = client.get(&path).await?;
    let resolved: Resolved = answer.read(&path)?;
    let exit = exit_of(&resolved.outcome);
    if args.node.json {
        return Ok(Report { text: answer.text() + "\n", exit });
    }
    let drawn = course::draw(&resolved.source, resolved.took_ms, &resolved.course);
    Ok(Report { text: format!("{}  {}\n{drawn}", resolved.outcome, one_line(&resolved.id)), exit })
}

/// Lets a name stand for nothing.
pub async fn remove(args: &NameRemoveArgs) -> Result<Report, Failure> {
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
