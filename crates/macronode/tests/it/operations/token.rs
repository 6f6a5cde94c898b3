//! Tokens as an operator handles them: made, narrowed, read and taken back, with no node running.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ron_auth::{Action, Authority, KEY_FILE, REVOKED_FILE, Revocations, RootKey};
use ron_kernel::clock;
use serde_json::Value;
use svc_mailbox::capabilities::{RECV, SEND};

use crate::process::{BINARY, Outcome, command, finish, run};

const MINT: [&str; 10] =
    ["token", "mint", "--subject", "ann", "--op", "send", "--topic", "orders", "--topic", "jobs.*"];

async fn token(folder: &Path, arguments: &[&str]) -> String {
    let outcome = run(folder, arguments).await;
    outcome.expect(0, &[]);
    outcome.stdout.trim().to_owned()
}

async fn with_input(folder: &Path, arguments: &[&str], input: &str) -> Outcome {
    let path = folder.join("input");
    fs::write(&path, input).expect("written");
    let mut prepared = command(BINARY, folder);
    prepared.args(arguments).stdin(fs::File::open(path).expect("there"));
    finish(prepared).await
}

/// Decides like a node that has its data in this folder.
fn authority(data: &Path) -> Authority {
    let key = RootKey::load(&data.join(KEY_FILE)).expect("readable").expect("there");
    let authority = Authority::new(key, None, clock::unix_millis);
    authority.set_revoked(Revocations::load(&data.join(REVOKED_FILE)).expect("readable").ids);
    authority
}

fn may(authority: &Authority, token: &str, action: Action, topic: &str) -> bool {
    authority.authorize(Some(token), action, topic, None).is_ok()
}

#[tokio::test]
async fn a_token_is_made_narrowed_and_taken_back() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (here, data) = (folder.path(), folder.path().join("macronode-data"));
    let parent = token(here, &MINT).await;
    assert_eq!(fs::metadata(data.join(KEY_FILE)).expect("made").permissions().mode() & 0o777, 0o600);
    let narrowed = with_input(here, &["token", "attenuate", "--topic", "jobs.a", "--expires", "1h"], &parent).await;
    narrowed.expect(0, &[]);
    let child = narrowed.stdout.trim();

    let before = authority(&data);
    assert!(may(&before, &parent, SEND, "orders") && may(&before, &parent, SEND, "jobs.b"));
    assert!(may(&before, child, SEND, "jobs.a") && !may(&before, child, SEND, "orders"));
    assert!(!may(&before, &parent, RECV, "orders"));

    run(here, &["token", "revoke", "--token", child]).await.expect(0, &["revoked", "30 s"]);
    run(here, &["token", "revoke", "--token", child]).await.expect(0, &["revoked before"]);
    let after = authority(&data);
    assert!(!may(&after, child, SEND, "jobs.a") && may(&after, &parent, SEND, "orders"));
    run(here, &["token", "inspect", "--token", child]).await.expect(0, &["revoked        YES"]);

    let shown = run(here, &["token", "inspect", "--json", "--token", &parent]).await;
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let id = shown["blocks"][0]["revocation_id"].as_str().expect("an id");
    run(here, &["token", "revoke", "--id", id]).await.expect(0, &[id]);
    assert!(!may(&authority(&data), &parent, SEND, "orders"));
}

#[tokio::test]
async fn a_token_is_read_in_words_and_in_json() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let here = folder.path();
    let more =
        ["--expires", "2h", "--sends-per-second", "7", "--payload-bytes-max", "1024", "--data-dir", "d", "--json"];
    let minted = run(here, &[MINT.as_slice(), &more].concat()).await;
    minted.expect(0, &[]);
    let minted: Value = serde_json::from_str(&minted.stdout).expect("JSON");
    let token = minted["token"].as_str().expect("a token");
    assert_eq!(minted["subject"], "ann");

    let words = ["ann", "in 1 h 59 min", "mailbox.sends_per_second=7", "mailbox.payload_bytes_max=1024"];
    let read = run(here, &["token", "inspect", "--token", token, "--data-dir", "d"]).await;
    read.expect(0, &words);
    read.expect(0, &["right          mailbox:send:orders", "right          mailbox:send:jobs.*"]);
    read.expect(0, &["verifies       yes", "revoked        no", minted["revocation_id"].as_str().expect("an id")]);
    let read = with_input(here, &["token", "inspect", "--json", "--data-dir", "d"], &format!("{token}\n")).await;
    let read: Value = serde_json::from_str(&read.stdout).expect("JSON");
    assert_eq!((&read["verifies"], &read["revoked"], &read["expired"]), (&true.into(), &false.into(), &false.into()));
    assert_eq!(read["expires_ms"], minted["expires_ms"]);

    run(here, &["token", "inspect", "--token", token]).await.expect(0, &["unknown", KEY_FILE]);
    assert!(!here.join("macronode-data").exists(), "reading makes nothing");
    run(here, &[MINT.as_slice(), &["--data-dir", "other"]].concat()).await.expect(0, &[]);
    run(here, &["token", "inspect", "--token", token, "--data-dir", "other"]).await.expect(0, &["NO: "]);
    run(here, &["token", "revoke", "--token", token, "--data-dir", "other"]).await.expect(64, &["MN0022", "other"]);
}

#[tokio::test]
async fn rights_are_given_in_full_or_in_short() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (here, data) = (folder.path(), folder.path().join("macronode-data"));
    let full = ["--allow", "mailbox:send:orders", "--allow", "mailbox:*:jobs.*", "--limit"];
    let mint = [&["token", "mint", "--subject", "ann"], &full[..], &["mailbox.sends_per_second=7"]].concat();
    let parent = token(here, &mint).await;
    let child = with_input(here, &["token", "attenuate", "--allow", "mailbox:recv:jobs.a"], &parent).await;
    let authority = authority(&data);
    assert!(may(&authority, &parent, SEND, "orders") && !may(&authority, &parent, RECV, "orders"));
    assert!(may(&authority, &parent, SEND, "jobs.a") && may(&authority, &parent, RECV, "jobs.a"));
    assert!(
        may(&authority, child.stdout.trim(), RECV, "jobs.a") && !may(&authority, child.stdout.trim(), SEND, "jobs.a")
    );
    let words = ["mailbox:send:orders", "mailbox:admin:jobs.*", "limit          mailbox.sends_per_second=7"];
    run(here, &["token", "inspect", "--token", &parent]).await.expect(0, &words);
    let help = run(here, &["token", "mint", "--help"]).await;
    help.expect(0, &["mailbox:<verb>:<topic>", "recv", "take messages out", "--limit mailbox.payload_bytes_max=<n>"]);
}

#[tokio::test]
async fn mistakes_are_named_and_leave_nothing_behind() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let here = folder.path();
    let mint = |more: &[&'static str]| [&["token", "mint"], more].concat();
    for (arguments, words) in [
        (
            mint(&["--subject", "a", "--op", "write", "--topic", "t"]),
            ["--op: ", "send, recv, ack, nack, admin, or all"],
        ),
        (mint(&["--subject", "a", "--op", "send"]), ["--topic", "required"]),
        (mint(&["--subject", "a", "--topic", "t"]), ["--op", "required"]),
        (mint(&["--subject", "a"]), ["--allow", "required"]),
        (mint(&["--subject", "a", "--allow", "shop:buy:chat"]), ["--allow: ", "known: mailbox"]),
        (
            mint(&["--subject", "a", "--allow", "mailbox:publish:chat"]),
            ["MN0022", "send, recv, ack, nack, admin, or *"],
        ),
        (mint(&["--subject", "a", "--allow", "mailbox:send"]), ["--allow: ", "service:verb:resource"]),
        (mint(&["--subject", "a", "--allow", "mailbox:send:t", "--limit", "x"]), ["--limit", "name=100"]),
        (
            mint(&["--subject", "a", "--allow", "mailbox:send:t", "--limit", "mailbox.sends=1"]),
            ["--limit: ", "mailbox.sends_per_second, mailbox.payload_bytes_max"],
        ),
        (mint(&["--subject", "a b", "--op", "all", "--topic", "t"]), ["MN0022", "a b"]),
        (mint(&["--subject", "a", "--op", "all", "--topic", "a*b"]), ["--topic", "a*b"]),
        (mint(&["--subject", "a", "--op", "all", "--topic", "t", "--expires", "soon"]), ["soon", "1h"]),
        (
            mint(&["--subject", "a", "--op", "all", "--topic", "t", "--sends-per-second", "x"]),
            ["'x'", "sends-per-second"],
        ),
        (vec!["token", "inspect", "--token", "ab!cd"], ["MN0022", "not a capability token"]),
        (vec!["token", "inspect"], ["MN0022", "standard input"]),
        (vec!["token", "attenuate", "--token", "AAAA", "--topic", "t"], ["MN0022", "not a capability token"]),
        (vec!["token", "attenuate", "--token", "AAAA"], ["MN0022", "narrow"]),
        (vec!["token", "attenuate", "--token", "AAAA", "--allow", "shop:buy:t"], ["--allow: ", "known: mailbox"]),
        (vec!["token", "revoke", "--id", "xyz"], ["MN0022", "hex digits"]),
        (vec!["token", "revoke", "--id", "00", "--token", "x"], ["--id", "--token"]),
        (vec!["token"], ["mint", "revoke"]),
    ] {
        let outcome = run(here, &arguments).await;
        outcome.expect(64, &words);
        assert!(outcome.stdout.is_empty() && !outcome.said().contains("panicked"), "{}", outcome.said());
    }
    let id = "ab".repeat(64);
    run(here, &["token", "revoke", "--id", &id]).await.expect(70, &["MN0012", "macronode-data"]);
    run(here, &["token", "revoke", "--token", "x", "--data-dir", "d"]).await.expect(70, &["MN0023", "--data-dir"]);
    assert_eq!(fs::read_dir(here).expect("there").count(), 0, "a refused command leaves nothing behind");

    fs::create_dir(here.join("d")).expect("made");
    fs::write(here.join("d").join(KEY_FILE), "damaged").expect("written");
    let outcome = run(here, &[MINT.as_slice(), &["--data-dir", "d"]].concat()).await;
    outcome.expect(70, &["MN0023", "auth.key"]);
    fs::write(here.join("macronode.toml"), "amnesia = true\n").expect("written");
    run(here, &MINT).await.expect(70, &["MN0023", "amnesia", "operator token"]);
    assert!(!here.join("macronode-data").exists());
}
