//! `macronode token`: tokens are made and narrowed, read and taken back with files alone; no node needs to run.

pub mod args;

use std::io::Read as _;
use std::path::{Path, PathBuf};

pub use args::TokenCommand;
use args::{AttenuateArgs, GivenToken, InspectArgs, MintArgs, NodeArgs, RevokeArgs, allowed};
use ron_auth::{
    Asked, AuthError, Authority, Capabilities, Grant, Inspection, KEY_FILE, Narrowing, REVOKED_FILE, Revocations,
    RootKey, attenuate, inspect, inspect_with,
};
use ron_kernel::clock;
use serde_json::{Value, json};
use toml::Table;

use super::Report;
use super::table::{row, table};
use crate::config::{self, Config, Sources, TimeSpan};
use crate::data_dir::DataDir;
use crate::errors::{Code, Failure};
use crate::services;

/// No token on standard input is longer than this.
const INPUT_BYTES_MAX: u64 = 64 * 1024;

/// Carries out a `token` command.
pub fn token(command: &TokenCommand) -> Result<Report, Failure> {
    match command {
        TokenCommand::Mint(args) => mint(args),
        TokenCommand::Attenuate(args) => narrow(args),
        TokenCommand::Inspect(args) => show(args),
        TokenCommand::Revoke(args) => revoke(args),
    }
}

/// Services whose verbs and limits can be granted.
pub fn known() -> Vec<&'static Capabilities> {
    services::capabilities().collect()
}

/// List of what each service lets an operator grant, for the help.
fn grantable() -> String {
    let mut text = "What can be granted, as service:verb:resource:\n".to_owned();
    for service in known() {
        text += &format!("\n  {}:<verb>:<{}>\n", service.service, service.resource);
        let verbs = service.verbs.iter().map(|verb| row([verb.action.verb(), verb.does]));
        text += &table(4, &verbs.chain([row(["*", "all of these"])]).collect::<Vec<_>>());
        let limits = service.limits.iter().map(|limit| row([&format!("--limit {}=<n>", limit.name), limit.does]));
        text += &table(4, &limits.collect::<Vec<_>>());
    }
    text + "\n--op and --topic are short for the service whose resource is a topic."
}

fn mint(args: &MintArgs) -> Result<Report, Failure> {
    let limits = args.limits.iter().cloned().collect();
    let asked = Asked {
        rights: &args.allow,
        limits: Some(&limits),
        ops: &args.ops,
        topics: &args.topics,
        short_limits: &[("sends_per_second", args.sends_per_second), ("payload_bytes_max", args.payload_bytes_max)],
    };
    let allowed = allowed(&asked, &known())?;
    let grant = Grant {
        subject: args.subject.clone(),
        rights: allowed.rights,
        limits: allowed.limits,
        expires_ms: args.expires.map(from_now),
    };
    // A grant that cannot be must not leave a key behind.
    Authority::new(RootKey::generate(), None, clock::unix_millis).mint(&grant).map_err(refused)?;
    let folder = folder_to_write(&args.node)?;
    let data = DataDir::open(&folder, false).map_err(|error| unusable_folder(&folder, &error))?;
    data.signing_key().map_err(|error| Failure::new(Code::SigningKeyUnusable, error.to_string()))?;
    let key = RootKey::load_or_create(&folder.join(KEY_FILE)).map_err(|error| unusable_key(&folder, error))?;
    let token = Authority::new(key, None, clock::unix_millis).mint(&grant).map_err(refused)?;
    made(&token, args.node.json)
}

fn narrow(args: &AttenuateArgs) -> Result<Report, Failure> {
    let asked = Asked { rights: &args.allow, ops: &args.ops, topics: &args.topics, ..Asked::default() };
    let rights = allowed(&asked, &known())?.rights;
    let narrowing = Narrowing { rights, expires_ms: args.expires.map(from_now) };
    let token = attenuate(&given(&args.given)?, &narrowing).map_err(refused)?;
    made(&token, args.json)
}

/// A new token alone in its line, so that a shell can take it.
fn made(token: &str, is_json: bool) -> Result<Report, Failure> {
    if !is_json {
        return Ok(Report::clean(format!("{token}\n")));
    }
    let read = inspect(token).map_err(refused)?;
    let id = read.blocks.last().map(|block| block.revocation_id.as_str());
    let body = json!({
        "token": token, "subject": read.subject, "expires_ms": read.expires_ms, "revocation_id": id,
    });
    Ok(Report::clean(format!("{body}\n")))
}

fn show(args: &InspectArgs) -> Result<Report, Failure> {
    let token = given(&args.given)?;
    let folder = folder_to_read(&args.node);
    let key = RootKey::load(&folder.join(KEY_FILE)).map_err(|error| unusable_key(&folder, error))?;
    let read = match &key {
        Some(key) => inspect_with(&token, &key.public()),
        None => inspect(&token),
    };
    let read = read.map_err(refused)?;
    let revoked = Revocations::load(&folder.join(REVOKED_FILE)).map_err(|error| unusable_folder(&folder, &error))?;
    let is_revoked = read.blocks.iter().any(|block| revoked.ids.contains(&block.revocation_id));
    if args.node.json {
        let mut body = serde_json::to_value(&read).unwrap_or_default();
        body["revoked"] = Value::Bool(is_revoked);
        body["expired"] = Value::Bool(read.expires_ms.is_some_and(|at_ms| clock::unix_millis() >= at_ms));
        return Ok(Report::clean(format!("{body}\n")));
    }
    Ok(Report::clean(described(&read, is_revoked, &folder, clock::unix_millis())))
}

fn revoke(args: &RevokeArgs) -> Result<Report, Failure> {
    let folder = folder_to_write(&args.node)?;
    let (id, note) = match &args.id {
        Some(id) => (id.trim().to_owned(), String::new()),
        None => id_of(&given(&args.given)?, &folder)?,
    };
    let path = folder.join(REVOKED_FILE);
    let is_new = Revocations::append(&path, &id, &note).map_err(|error| match error {
        AuthError::File { source, .. } => unusable_folder(&folder, &source),
        error => refused(error),
    })?;
    if args.node.json {
        return Ok(Report::clean(format!("{}\n", json!({"revoked": id, "new": is_new}))));
    }
    let said = if is_new { "revoked; a running node follows within 30 s" } else { "was revoked before" };
    Ok(Report::clean(format!("{id} {said}\n")))
}

/// Revocation id of the token's last block, which spares the tokens it was made from; and its subject.
fn id_of(token: &str, folder: &Path) -> Result<(String, String), Failure> {
    let key = RootKey::load(&folder.join(KEY_FILE)).map_err(|error| unusable_key(folder, error))?.ok_or_else(|| {
        let place = folder.display();
        let message = format!("there is no {KEY_FILE} in {place}: name the node's data directory with --data-dir");
        Failure::new(Code::SigningKeyUnusable, message)
    })?;
    let read = inspect_with(token, &key.public()).map_err(refused)?;
    let id = read.blocks.last().map(|block| block.revocation_id.clone());
    match id {
        Some(id) if read.verifies == Some(true) => Ok((id, read.subject.unwrap_or_default())),
        _ => {
            let message = format!("the token is not one of the node with its data in {}", folder.display());
            Err(Failure::new(Code::CapabilityUnusable, message))
        }
    }
}

fn described(read: &Inspection, is_revoked: bool, folder: &Path, now_ms: u64) -> String {
    let verifies = match read.verifies {
        Some(true) => "yes".to_owned(),
        Some(false) => "NO: it is not one of this node, or it was changed".to_owned(),
        None => format!("unknown: there is no {KEY_FILE} in {}", folder.display()),
    };
    let expires = read.expires_ms.map_or_else(|| "never".to_owned(), |at_ms| in_words(at_ms, now_ms));
    let mut rows = vec![
        row(["subject", read.subject.as_deref().unwrap_or("none")]),
        row(["verifies", &verifies]),
        row(["revoked", if is_revoked { "YES" } else { "no" }]),
        row(["expires", &expires]),
    ];
    rows.extend(read.rights.iter().map(|right| row(["right", right])));
    rows.extend(read.limits.iter().map(|(name, value)| row(["limit", &format!("{name}={value}")])));
    for block in read.blocks.iter().skip(1) {
        rows.extend(block.source.lines().map(|line| row(["narrowed", line.trim_end_matches(';')])));
    }
    rows.extend(read.blocks.iter().map(|block| row(["revocation id", &block.revocation_id])));
    table(0, &rows)
}

/// Time until a token expires, as in "in 2 h 5 min", or since it did.
fn in_words(at_ms: u64, now_ms: u64) -> String {
    let seconds = at_ms.abs_diff(now_ms) / 1000;
    let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let first = units.iter().position(|(scale, _)| seconds >= *scale).unwrap_or(units.len() - 1);
    let parts = units[first..].iter().take(2).scan(seconds, |left, (scale, unit)| {
        let count = *left / scale;
        *left %= scale;
        Some((count, *unit))
    });
    let parts: Vec<String> = parts
        .enumerate()
        .filter(|(i, (count, _))| *i == 0 || *count > 0)
        .map(|(_, (n, u))| format!("{n} {u}"))
        .collect();
    let span = parts.join(" ");
    if at_ms > now_ms { format!("in {span}") } else { format!("EXPIRED {span} ago") }
}

/// The token of the command line, else of standard input.
fn given(given: &GivenToken) -> Result<String, Failure> {
    let unreadable = |error| Failure::new(Code::CapabilityUnusable, format!("cannot read standard input: {error}"));
    let text = match &given.token {
        Some(token) => token.clone(),
        None => {
            let mut text = String::new();
            std::io::stdin().lock().take(INPUT_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
            text
        }
    };
    match text.trim() {
        "" => {
            let message = "no token was given: name it with --token, or write it to standard input";
            Err(Failure::new(Code::CapabilityUnusable, message))
        }
        token => Ok(token.to_owned()),
    }
}

/// The data directory of a node that keeps its key; guessing wrong would make a key that no node uses.
fn folder_to_write(args: &NodeArgs) -> Result<PathBuf, Failure> {
    if let Some(folder) = &args.data_dir {
        return Ok(folder.clone());
    }
    let config = config::load(&Sources::of_process(None, Table::new()))?.config;
    if config.amnesia {
        let message = "the node is configured with amnesia and keeps its key in memory; use its operator token, \
                       or name a data directory with --data-dir";
        return Err(Failure::new(Code::SigningKeyUnusable, message));
    }
    Ok(config.data_dir)
}

/// The data directory, or the best guess.
fn folder_to_read(args: &NodeArgs) -> PathBuf {
    let loaded = || config::load(&Sources::of_process(None, Table::new()));
    let configured = || loaded().map_or_else(|_| Config::default(), |loaded| loaded.config).data_dir;
    args.data_dir.clone().unwrap_or_else(configured)
}

fn from_now(time: TimeSpan) -> u64 {
    clock::unix_millis().saturating_add(time.0)
}

fn refused(error: AuthError) -> Failure {
    Failure::new(Code::CapabilityUnusable, error.to_string())
}

fn unusable_key(folder: &Path, error: AuthError) -> Failure {
    let cause = match error {
        AuthError::File { source, .. } => source.to_string(),
        error => error.to_string(),
    };
    let path = folder.join(KEY_FILE);
    Failure::new(Code::SigningKeyUnusable, format!("cannot use the signing key {}: {cause}", path.display()))
}

fn unusable_folder(folder: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::DataDirUnusable, format!("cannot use {}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_in_two_units_at_most() {
        const NOW: u64 = 1_800_000_000_000;
        for (at_ms, expected) in [
            (NOW + 1_000, "in 1 s"),
            (NOW + 999, "in 0 s"),
            (NOW + 61_000, "in 1 min 1 s"),
            (NOW + 3_600_000, "in 1 h"),
            (NOW + 90_061_000, "in 1 d 1 h"),
            (NOW, "EXPIRED 0 s ago"),
            (NOW - 120_000, "EXPIRED 2 min ago"),
        ] {
            assert_eq!(in_words(at_ms, NOW), expected);
        }
    }
}
