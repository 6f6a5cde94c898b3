//! `macronode sqs`: access keys for programs that speak SQS to a running node.

mod args;

use std::collections::BTreeMap;

pub use args::SqsCommand;
use args::{CreateArgs, KeyCommand};
use http::Method;
use ron_api::SqsSection;
use ron_auth::{Asked, Right};
use serde::Deserialize;
use serde_json::{Map, Value};
use svc_mailbox::capabilities::CAPABILITIES;

use super::commands::types::{one_line, relative, segment};
use crate::cli::ApiArgs;
use crate::client::{ApiClient, PATIENCE, configured};
use crate::commands::table::{row, table};
use crate::commands::token::args::allowed;
use crate::commands::{Report, wait};
use crate::errors::Failure;

const PATH: &str = "/v1/sqs/keys";
/// Region clients sign with by default; the node takes any.
const REGION: &str = "us-east-1";

/// An access key, as the node shows it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Key {
    access_key_id: String,
    secret_access_key: String,
    note: String,
    rights: Vec<String>,
    limits: BTreeMap<String, u64>,
    created_ms: u64,
    expires_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Keys {
    keys: Vec<Key>,
}

/// Carries out an `sqs` command.
pub fn sqs(command: &SqsCommand) -> Result<Report, Failure> {
    let SqsCommand::Key(command) = command;
    match command {
        KeyCommand::Create(args) => wait(create(args)),
        KeyCommand::List { node } => wait(list(node)),
        KeyCommand::Revoke { id, node } => wait(revoke(id, node)),
    }
}

async fn create(args: &CreateArgs) -> Result<Report, Failure> {
    let wanted = wanted(args)?;
    let mut client = ApiClient::find(&args.node)?;
    let answer = client.post(PATH, &wanted).await?;
    if args.node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    Ok(Report::clean(variables(&answer.read(PATH)?, &endpoint(&args.node, &client))))
}

/// Where programs reach the queues: the configured beginning of their URLs, else where the node was asked. An address
/// that was named is another node's, as far as this configuration can tell.
fn endpoint(args: &ApiArgs, client: &ApiClient) -> String {
    let configured = configured().section::<SqsSection>().base_url.clone().filter(|_| args.api.is_none());
    configured.map_or_else(|| client.url(), |url| url.trim_end_matches('/').to_owned())
}

/// JSON body of a key to make; what the caller does not say is left to the node.
fn wanted(args: &CreateArgs) -> Result<Value, Failure> {
    let prefixes = args.prefixes.iter().map(|start| format!("{start}*"));
    let topics: Vec<String> = args.topics.iter().cloned().chain(prefixes).collect();
    let limits = args.limits.iter().cloned().collect();
    let asked = Asked {
        rights: &args.allow,
        limits: Some(&limits),
        ops: &args.ops,
        topics: &topics,
        short_limits: &[("sends_per_second", args.sends_per_second), ("payload_bytes_max", args.payload_bytes_max)],
    };
    let allowed = allowed(&asked, &[&CAPABILITIES])?;
    let rights: Vec<String> = allowed.rights.iter().map(Right::to_string).collect();
    let said = [
        ("note", args.note.clone().map(Value::from)),
        ("rights", (!rights.is_empty()).then(|| rights.into())),
        ("limits", (!allowed.limits.is_empty()).then(|| allowed.limits.into_iter().collect())),
        ("expires_in_ms", args.expires.map(|time| time.0.into())),
    ];
    let said = said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Ok(said.collect::<Map<_, _>>().into())
}

/// Environment variables for clients, ready to be pasted; SDKs differ in the variable they read a region from.
fn variables(key: &Key, url: &str) -> String {
    format!(
        "AWS_ACCESS_KEY_ID={}\nAWS_SECRET_ACCESS_KEY={}\nAWS_ENDPOINT_URL={url}\n\
         AWS_REGION={REGION}\nAWS_DEFAULT_REGION={REGION}\n",
        key.access_key_id, key.secret_access_key
    )
}

async fn list(node: &ApiArgs) -> Result<Report, Failure> {
    let answer = ApiClient::find(node)?.get(PATH).await?;
    if node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    Ok(Report::clean(list_text(&answer.read::<Keys>(PATH)?.keys)))
}

fn list_text(keys: &[Key]) -> String {
    if keys.is_empty() {
        return "no access keys; make one with `macronode sqs key create`\n".to_owned();
    }
    let mut rows = vec![row(["access key", "allows", "made", "expires", "limits", "note"])];
    rows.extend(keys.iter().map(|key| {
        let expires = key.expires_ms.map_or_else(|| "never".to_owned(), relative);
        let limits: Vec<String> = key.limits.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let limits = if limits.is_empty() { "none".to_owned() } else { limits.join(",") };
        row([
            &key.access_key_id,
            &shortened(&key.rights).join(","),
            &relative(key.created_ms),
            &expires,
            &limits,
            &one_line(&key.note),
        ])
    }));
    table(0, &rows)
}

/// The rights in a line for people: where a queue has every verb, `*` says so.
fn shortened(rights: &[String]) -> Vec<String> {
    let mut short: Vec<String> = Vec::new();
    for text in rights {
        let Ok(right) = text.parse::<Right>() else { continue };
        let has =
            |verb: &ron_auth::VerbSpec| rights.contains(&Right::new(verb.action, right.scope.clone()).to_string());
        let every = CAPABILITIES.verbs.iter().all(has);
        let text = if every { format!("{}:*:{}", CAPABILITIES.service, right.scope) } else { text.clone() };
        if !short.contains(&text) {
            short.push(text);
        }
    }
    short
}

async fn revoke(id: &str, node: &ApiArgs) -> Result<Report, Failure> {
    let path = format!("{PATH}/{}", segment(id));
    let mut client = ApiClient::find(node)?;
    let answer = client.ask(Method::DELETE, &path, None, PATIENCE).await?;
    client.accepted(&path, answer)?;
    let text =
        if node.json { "{}\n".to_owned() } else { format!("{id} is revoked; nothing signed with it is taken\n") };
    Ok(Report::clean(text))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: CreateArgs,
    }

    fn wanted_by(line: &str) -> Value {
        let line = Line::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"));
        wanted(&line.args).expect("known words")
    }

    #[test]
    fn what_is_said_is_asked_for_and_nothing_else() {
        assert_eq!(wanted_by("create"), json!({}));
        let expected = json!({
            "note": "n", "rights": ["mailbox:send:orders", "mailbox:recv:orders", "mailbox:send:j-*", "mailbox:recv:j-*"],
            "expires_in_ms": 3_600_000, "limits": {"mailbox.sends_per_second": 5},
        });
        for line in [
            "create --note n --op send --op recv --topic orders --prefix j- --expires 1h --quota 5",
            "create --note n --op recv,send --queue orders --topic j-* --expires 1h --limit mailbox.sends_per_second=5",
            "create --note n --allow mailbox:send:orders --allow mailbox:recv:orders --allow mailbox:send:j-* \
             --allow mailbox:recv:j-* --expires 1h --quota 5",
        ] {
            assert_eq!(wanted_by(line), expected, "{line}");
        }
        assert_eq!(wanted_by("create --ops all")["rights"].as_array().map(Vec::len), Some(5));
        assert_eq!(wanted_by("create --ops all"), wanted_by("create --allow mailbox:*:*"));
    }

    #[test]
    fn keys_are_shown_as_variables_and_as_a_table() {
        let key = Key {
            access_key_id: "MNSQ1".into(),
            secret_access_key: "hush".into(),
            note: "a\nb".into(),
            rights: ["ack:*", "send:*", "ack:a", "admin:a", "nack:a", "recv:a", "send:a"]
                .map(|right| format!("mailbox:{right}"))
                .into(),
            limits: BTreeMap::from([("mailbox.sends_per_second".into(), 5)]),
            ..Key::default()
        };
        let expected = "AWS_ACCESS_KEY_ID=MNSQ1\nAWS_SECRET_ACCESS_KEY=hush\n\
                        AWS_ENDPOINT_URL=http://127.0.0.1:8080\nAWS_REGION=us-east-1\nAWS_DEFAULT_REGION=us-east-1\n";
        assert_eq!(variables(&key, "http://127.0.0.1:8080"), expected);
        let text = list_text(&[key]);
        for words in
            ["MNSQ1       mailbox:ack:*,mailbox:send:*,mailbox:*:a  ", "never", "mailbox.sends_per_second=5", "a\\nb"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("hush"));
        assert!(list_text(&[]).contains("sqs key create"));
    }
}
