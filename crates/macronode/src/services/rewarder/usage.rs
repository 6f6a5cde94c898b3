//! `macronode reward usage`: what a running node did for whom, and sealing it as the usage of an epoch.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Map, Value};
use svc_rewarder::EpochId;

use crate::cli::ApiArgs;
use crate::client::ApiClient;
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::errors::{Code, Failure};

const PATH: &str = "/rewarder/usage";
/// Rows of one request; all pages are shown.
const PAGE_ROWS: u32 = 1000;

/// What to do with a node's own usage.
#[derive(Debug, Subcommand)]
pub enum UsageCommand {
    /// Seal everything since the last seal as the usage of an epoch; the same epoch again gives the same file. A token
    /// that may not compute every epoch seals the rows of its own subject.
    Seal(SealArgs),
    /// Show what the node did for whom since the last seal, or the sealed file of an epoch.
    Show(ShowArgs),
}

/// What to seal.
#[derive(Args, Debug)]
pub struct SealArgs {
    /// The epoch that it is the usage of
    pub epoch: EpochId,
    /// Give all rows to one actor, such as the operator of this node
    #[arg(long = "as", value_name = "ACTOR")]
    pub as_actor: Option<String>,
    /// Write the sealed file here; - is the standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The node to ask.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// What to show.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// A sealed epoch; what is not sealed yet if absent
    pub epoch: Option<EpochId>,
    /// The node to ask.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// A sealed file, as the node tells of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Sealed {
    epoch: String,
    tenant: Option<String>,
    #[serde(rename = "as")]
    as_actor: Option<String>,
    rows: u64,
    bytes: u64,
    b3: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Page {
    rows: Vec<Row>,
    next: Option<String>,
    sealed: Vec<Sealed>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Row {
    actor: String,
    metric: String,
    quantity: String,
}

/// Carries out a `reward usage` command.
pub async fn usage(command: &UsageCommand) -> Result<Report, Failure> {
    match command {
        UsageCommand::Seal(args) => seal(args).await,
        UsageCommand::Show(args) => show(args).await,
    }
}

async fn seal(args: &SealArgs) -> Result<Report, Failure> {
    let mut body = Map::from_iter([("epoch".to_owned(), Value::from(args.epoch.as_str()))]);
    body.extend(args.as_actor.clone().map(|actor| ("as".to_owned(), Value::from(actor))));
    let mut client = ApiClient::find(&args.node)?;
    let path = format!("{PATH}/seal");
    let answer = client.post(&path, &Value::Object(body)).await?;
    let sealed: Sealed = answer.read(&path)?;
    if let Some(out) = &args.out {
        let file = client.get(&format!("{PATH}/{}", args.epoch)).await?;
        if out.as_os_str() == "-" {
            return Ok(Report::clean(file.text()));
        }
        std::fs::write(out, &file.body).map_err(|error| unwritable(out, &error))?;
    }
    let text = if args.node.json { answer.text() + "\n" } else { sealed_text(&sealed, args.out.as_ref()) };
    Ok(Report::clean(text))
}

fn sealed_text(sealed: &Sealed, out: Option<&PathBuf>) -> String {
    let own = sealed.tenant.as_ref().map_or_else(String::new, |tenant| format!(", those of {tenant} alone"));
    let given = sealed.as_actor.as_ref().map_or_else(String::new, |actor| format!(", all of it as {actor}"));
    let Sealed { epoch, rows, bytes, b3, .. } = sealed;
    let head = format!("{epoch} is sealed: {rows} rows, {bytes} bytes{own}{given}\n{b3}\n");
    match out {
        Some(out) => head + &format!("written to {}\n", out.display()),
        None => head + &format!("next: macronode reward usage show {} > usage.csv\n", sealed.epoch),
    }
}

async fn show(args: &ShowArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    if let Some(epoch) = &args.epoch {
        return Ok(Report::clean(client.get(&format!("{PATH}/{epoch}")).await?.text()));
    }
    let mut shown = Page::default();
    loop {
        let after = shown.next.take().map_or_else(String::new, |actor| format!("&after={}", percent(&actor)));
        let path = format!("{PATH}?limit={PAGE_ROWS}{after}");
        let answer = client.get(&path).await?;
        if args.node.json && shown.rows.is_empty() && !answer.text().contains("\"next\"") {
            return Ok(Report::clean(answer.text() + "\n"));
        }
        let page: Page = answer.read(&path)?;
        shown.rows.extend(page.rows);
        (shown.next, shown.sealed) = (page.next, page.sealed);
        if shown.next.is_none() {
            break;
        }
    }
    Ok(Report::clean(if args.node.json { rows_json(&shown) } else { page_text(&shown) }))
}

/// The rows of all pages in the shape of one.
fn rows_json(page: &Page) -> String {
    let row = |row: &Row| serde_json::json!({"actor": row.actor, "metric": row.metric, "quantity": row.quantity});
    let rows: Vec<Value> = page.rows.iter().map(row).collect();
    serde_json::json!({"rows": rows, "rows_total": page.rows.len()}).to_string() + "\n"
}

fn page_text(page: &Page) -> String {
    let mut text = if page.rows.is_empty() {
        "nothing was counted since the last seal\n".to_owned()
    } else {
        let mut rows = vec![row(["actor", "metric", "quantity"])];
        rows.extend(page.rows.iter().map(|one| row([&one.actor, &one.metric, &one.quantity])));
        table(0, &rows)
    };
    if !page.sealed.is_empty() {
        let mut rows = vec![row(["sealed", "rows", "hash"])];
        rows.extend(page.sealed.iter().map(|one| row([&one.epoch, &one.rows.to_string(), &one.b3])));
        text = text + "\n" + &table(0, &rows);
    }
    text
}

/// An actor in a query: everything but letters and digits as `%xx`.
fn percent(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn unwritable(path: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::PayoutsRefused, format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_seals_are_shown_in_columns() {
        let row = |actor: &str, quantity: &str| Row {
            actor: actor.to_owned(),
            metric: "mailbox.bytes_sent".to_owned(),
            quantity: quantity.to_owned(),
        };
        let sealed = Sealed { epoch: "2026-10".to_owned(), rows: 4, b3: "b3:ab".to_owned(), ..Sealed::default() };
        let page = Page { rows: vec![row("alice", "70"), row("bo", "7")], next: None, sealed: vec![sealed] };
        assert_eq!(
            page_text(&page),
            "actor  metric              quantity\nalice  mailbox.bytes_sent  70\nbo     mailbox.bytes_sent  7\n\n\
             sealed   rows  hash\n2026-10  4     b3:ab\n"
        );
        assert_eq!(page_text(&Page::default()), "nothing was counted since the last seal\n");
        assert_eq!(percent("a b/ü&x"), "a%20b%2F%C3%BC%26x");
    }
}
