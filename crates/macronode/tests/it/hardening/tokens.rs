//! A token costs no more than its size, a runtime that stands still shows, and secrets belong to one node.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use biscuit_auth::UnverifiedBiscuit;
use biscuit_auth::builder::BlockBuilder;
use ron_auth::{Authority, Grant, KEY_FILE, REVOKED_FILE, Revocations, RootKey, inspect};
use ron_kernel::clock;
use serde_json::json;
use testkit::{MailboxClient, Node, Outgoing, Plane, Signal, Take, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::options;

const BINARY: &str = env!("CARGO_BIN_EXE_macronode");
const JSON: (&str, &str) = ("content-type", "application/json");
const RIGHTS: [&str; 3] = ["mailbox:send:*", "mailbox:recv:*", "mailbox:ack:*"];

/// A token for the mailbox of a running node.
fn mint(data_dir: &Path, rights: &[&str], expires_ms: Option<u64>) -> String {
    let key = RootKey::load(&data_dir.join(KEY_FILE)).expect("readable").expect("there");
    let rights = rights.iter().map(|right| right.parse().expect("valid")).collect();
    let grant = Grant { subject: "ann".to_owned(), rights, expires_ms, ..Grant::default() };
    Authority::new(key, None, clock::unix_millis).mint(&grant).expect("minted")
}

/// The token with a block of rules that a holder wrote.
pub fn append(token: &str, code: &str) -> String {
    let block = BlockBuilder::new().code(code).expect("valid rules");
    UnverifiedBiscuit::from_base64(token).and_then(|token| token.append(block)?.to_base64()).expect("appended")
}

/// Rules that keep an engine busy for years: every combination of eight out of forty.
pub fn bomb() -> String {
    let facts: String = (0..40).map(|number| format!("n({number}); ")).collect();
    format!("{facts} m($a) <- n($a), n($b), n($c), n($d), n($e), n($f), n($g), n($h), $a > 100;")
}

#[tokio::test]
async fn rule_01_a_token_costs_no_more_than_its_size() {
    let mut node = options().start().await.expect("a node");
    let good = mint(&node.data_dir(), &RIGHTS, None);
    let expired = mint(&node.data_dir(), &RIGHTS, Some(1));
    let revoked = mint(&node.data_dir(), &RIGHTS, None);
    let id = inspect(&revoked).expect("read").blocks[0].revocation_id.clone();
    Revocations::append(&node.data_dir().join(REVOKED_FILE), &id, "").expect("revoked");
    MailboxClient::of(&node).await.expect("connected").topic("t", &json!({})).await.expect("made");
    let mut client = MailboxClient::connect(node.api, &good).await.expect("connected");
    let bombs: Vec<String> = [&good, &expired, &revoked]
        .into_iter()
        .flat_map(|token| {
            let regular = "check if resource($r), $r.matches(\"(a*)*b\");";
            [append(token, &bomb()), append(token, regular), append(token, "check if operation(\"x\") or true;")]
        })
        .collect();
    // More at once than the node has threads, with an honest sender among them.
    for round in 0..4 {
        let shown: Vec<String> = bombs.iter().map(|token| format!("Bearer {token}")).collect();
        let shown: Vec<[(&str, &str); 2]> =
            shown.iter().map(|value| [("authorization", value.as_str()), JSON]).collect();
        let asked = shown.iter().map(|header| node.post(Plane::Api, "/v1/recv", r#"{"topic":"t"}"#, header));
        let sent = client.send(Outgoing { topic: "t", payload: b"x", ..Outgoing::default() });
        let (replies, sent) = tokio::join!(futures_util::future::join_all(asked), sent);
        sent.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        for (reply, token) in replies.into_iter().zip(&bombs) {
            let reply = reply.expect("an answer at once");
            assert_eq!(reply.status, 401, "{}: {}", inspect(token).is_ok(), reply.text());
        }
    }
    assert_eq!(node.get(Plane::Admin, "/readyz").await.expect("answers").status, 200);
    node.signal(Signal::Term);
    let status = node.wait_exit(Duration::from_secs(10)).await.expect("it drains");
    assert_eq!(status.code(), Some(0), "{}", node.stderr());
}

/// A node whose runtime stands still, as `/readyz` says.
async fn stalled(ms: u64) -> Node {
    let node = options().chaos().start().await.expect("a node");
    let asked = node.post(Plane::Admin, &format!("/chaos/stall?ms={ms}"), "", &[]).await.expect("asked");
    assert_eq!(asked.status, 202, "{}", asked.text());
    let told = eventually("the stall shows", async || {
        let reply = node.get(Plane::Admin, "/readyz").await.ok()?;
        (reply.status == 503).then(|| reply.text())
    });
    let told = told.await;
    assert!(told.contains("the runtime has not turned for") && told.contains("\"state\":\"unready\""), "{told}");
    assert!(node.metric("runtime_still_seconds").await >= 2.0);
    node
}

#[tokio::test]
async fn rule_01_sigterm_ends_a_node_whose_runtime_stands_still() {
    let mut node = stalled(60_000).await;
    node.signal(Signal::Term);
    let status = node.wait_exit(Duration::from_secs(20)).await.expect("it ends long before the stall does");
    assert_eq!(status.code(), Some(75), "{}", node.stderr());
    let said = node.stderr();
    assert!(said.contains("MN0015") && said.contains("the runtime has not turned for"), "{said}");
}

#[tokio::test]
async fn rule_01_an_order_to_drain_ends_a_node_whose_runtime_stands_still() {
    let mut node = stalled(60_000).await;
    let asked = node.post(Plane::Admin, "/drain", "", &[]).await.expect("answered");
    assert_eq!(asked.status, 202, "{}", asked.text());
    let status = node.wait_exit(Duration::from_secs(20)).await.expect("it ends long before the stall does");
    assert_eq!(status.code(), Some(75), "{}", node.stderr());
}

#[tokio::test]
async fn rule_01_a_runtime_that_turns_again_is_ready_again() {
    let mut node = stalled(4_000).await;
    node.wait_ready(Duration::from_secs(20)).await.expect("it recovers");
    assert!(node.metric("runtime_still_seconds").await < 2.0);
    node.signal(Signal::Term);
    let status = node.wait_exit(Duration::from_secs(20)).await.expect("it drains");
    assert_eq!(status.code(), Some(0), "{}", node.stderr());
}

#[tokio::test]
async fn rule_17_a_revocation_list_that_cannot_be_read_is_a_refusal_to_be_ready() {
    let node = options().start().await.expect("a node");
    let list = node.data_dir().join(REVOKED_FILE);
    let token = mint(&node.data_dir(), &RIGHTS, None);
    let id = inspect(&token).expect("read").blocks[0].revocation_id.clone();
    fs::write(&list, format!("# revoked\n{id}\n{}\n", &id[1..])).expect("written");
    let told = eventually("the list is found bad", async || {
        let reply = node.get(Plane::Admin, "/readyz").await.ok()?;
        (reply.status == 503).then(|| reply.text())
    });
    let told = told.await;
    assert!(told.contains("access: waits for revocations") && told.contains("line 3"), "{told}");
    let bearer = format!("Bearer {token}");
    let refused = node.post(Plane::Api, "/v1/recv", r#"{"topic":"t"}"#, &[("authorization", &bearer), JSON]).await;
    assert_eq!(refused.expect("answered").status, 401, "the lines that can be read hold");
    fs::write(&list, format!("{id}\n")).expect("mended");
    let mended = async || node.get(Plane::Admin, "/readyz").await.ok().filter(|reply| reply.status == 200);
    let ready = eventually("the node is ready again", mended).await;
    assert!(!ready.text().contains("revoked tokens"), "{}", ready.text());
}

#[tokio::test]
async fn rule_17_a_revocation_list_that_is_gone_or_empty_lets_nobody_in_again() {
    let node = options().start().await.expect("a node");
    let list = node.data_dir().join(REVOKED_FILE);
    let token = mint(&node.data_dir(), &RIGHTS, None);
    let id = inspect(&token).expect("read").blocks[0].revocation_id.clone();
    let bearer = format!("Bearer {token}");
    let status = async || {
        let headers = [("authorization", bearer.as_str()), JSON];
        node.post(Plane::Api, "/v1/recv", r#"{"topic":"t"}"#, &headers).await.expect("answered").status
    };
    let ready = async |expected: u16| {
        let reply = node.get(Plane::Admin, "/readyz").await.ok()?;
        (reply.status == expected).then(|| reply.text())
    };
    assert_eq!(status().await, 404, "a good token");
    Revocations::append(&list, &id, "").expect("revoked");
    eventually("it is revoked", async || (status().await == 401).then_some(())).await;
    for what in ["empty", "gone"] {
        match what {
            "empty" => fs::write(&list, "").expect("emptied"),
            _ => fs::remove_file(&list).expect("removed"),
        }
        let told = eventually("the list is found bad", async || ready(503).await).await;
        assert!(told.contains("access: waits for revocations") && told.contains("gone or empty"), "{what}: {told}");
        assert_eq!(status().await, 401, "{what}: the last list stays in force");
        fs::write(&list, format!("{id}\n")).expect("restored");
        eventually("the node is ready again", async || ready(200).await).await;
        assert_eq!(status().await, 401, "{what}: and after it");
    }
}

/// Runs a command of the binary to its end; one that does not end is an error.
async fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(arguments).env_remove("MACRO_TOKEN").env("NO_COLOR", "1").stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    for _ in 0..6000 {
        if child.try_wait().expect("ours").is_some() {
            return child.wait_with_output().expect("ended");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    child.kill().expect("ours");
    panic!("{arguments:?} did not end: {:?}", child.wait_with_output());
}

async fn start_in(data_dir: &Path) -> Output {
    let data_dir = data_dir.to_str().expect("text");
    let planes = ["--api", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--oap", "127.0.0.1:0"];
    run(&[&["run", "--data-dir", data_dir][..], &planes].concat()).await
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn rule_17_a_list_that_no_start_can_read_says_what_to_do() {
    let mut node = options().start().await.expect("a node");
    node.signal(Signal::Term);
    node.wait_exit(Duration::from_secs(20)).await.expect("it drains");
    let list = node.data_dir().join(REVOKED_FILE);
    Revocations::append(&list, &"00".repeat(64), "").expect("revoked");
    fs::remove_file(&list).expect("removed");
    for why in ["is gone, and there were ids in it", "directory"] {
        let ended = start_in(&node.data_dir()).await;
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(70), "{said}");
        for word in ["MN0012", "the list of revoked tokens", "revoked cannot be read", why, "restore it from a backup"]
        {
            assert!(said.contains(word), "{word} is missing in {said}");
        }
        let _ = fs::create_dir(&list);
    }
}

#[tokio::test]
async fn rule_17_a_missing_key_beside_existing_data_is_a_refusal_to_start() {
    let mut node = options().start().await.expect("a node");
    node.signal(Signal::Term);
    node.wait_exit(Duration::from_secs(20)).await.expect("it drains");
    let data_dir = node.data_dir();
    for name in ["auth.key", "mailbox.key"] {
        let (key, aside): (PathBuf, PathBuf) = (data_dir.join(name), data_dir.join("aside"));
        fs::rename(&key, &aside).expect("moved");
        let ended = start_in(&data_dir).await;
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(70), "{said}");
        for word in ["MN0023", name, "is missing", "restore it from a backup", "umask 077"] {
            assert!(said.contains(word), "{word} is missing in {said}");
        }
        assert!(!key.exists(), "{name} is not made anew");
        fs::rename(&aside, &key).expect("moved back");
    }
    fs::remove_file(data_dir.join(KEY_FILE)).expect("removed");
    let minting = [
        "token",
        "mint",
        "--subject",
        "a",
        "--allow",
        "mailbox:send:t",
        "--data-dir",
        data_dir.to_str().expect("text"),
    ];
    let ended = run(&minting).await;
    assert!(ended.status.code() == Some(70) && text(&ended.stderr).contains("MN0023"), "{}", text(&ended.stderr));
    assert!(!data_dir.join(KEY_FILE).exists(), "nor by the command that mints");
}

#[tokio::test]
async fn rule_25_an_expired_token_extends_nothing() {
    let node = options().start().await.expect("a node");
    let mut operator = MailboxClient::of(&node).await.expect("connected");
    operator.topic("t", &json!({})).await.expect("made");
    for _ in 0..2 {
        operator.send(Outgoing { topic: "t", payload: b"x", ..Outgoing::default() }).await.expect("sent");
    }
    let token = mint(&node.data_dir(), &RIGHTS, Some(clock::unix_millis() + 6_000));
    let mut client = MailboxClient::connect(node.api, &token).await.expect("connected");
    let leased = client
        .recv("t", Take { max: 2, visibility_ms: 30_000, wait_ms: 1_000 })
        .await
        .expect("leased before it expires");
    let receipts: Vec<&str> = leased.iter().map(|message| message.receipt.as_str()).collect();
    assert_eq!(receipts.len(), 2);
    client.extend(&receipts, 30_000).await.expect("a good token prolongs");
    let none = Take { max: 1, visibility_ms: 1_000, wait_ms: 0 };
    eventually("the token expires", async || client.recv("t", none).await.is_err().then_some(())).await;
    let error = client.extend(&receipts, 30_000).await.expect_err("it holds nothing longer");
    assert_eq!(error.status(), Some(401), "{error:?}");
    client.extend(&receipts[..1], 0).await.expect("a lease may be ended");
    assert_eq!(client.ack(&receipts[1..]).await.expect("what was begun is brought to its end"), [true]);
}

/// A peer that answers every request alike and keeps what it was shown.
async fn liar() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let shown = Arc::new(Mutex::new(String::new()));
    let keeps = Arc::clone(&shown);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = vec![0; 16 * 1024];
            let length = stream.read(&mut bytes).await.unwrap_or(0);
            keeps.lock().expect("whole").push_str(&text(&bytes[..length]));
            let body = format!(r#"{{"proof":"{}"}}"#, "0".repeat(64));
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, shown)
}

/// A peer that passes on whatever it is asked to the node, and keeps what it was shown.
async fn relay(node: SocketAddr) -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let shown = Arc::new(Mutex::new(String::new()));
    let keeps = Arc::clone(&shown);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = vec![0; 16 * 1024];
            let length = stream.read(&mut bytes).await.unwrap_or(0);
            keeps.lock().expect("whole").push_str(&text(&bytes[..length]));
            let mut onward = TcpStream::connect(node).await.expect("the node listens");
            onward.write_all(&bytes[..length]).await.expect("the node reads");
            let _ = tokio::time::timeout(Duration::from_secs(5), tokio::io::copy(&mut onward, &mut stream)).await;
        }
    });
    (address, shown)
}

#[tokio::test]
async fn rule_25_the_commands_do_not_show_the_operator_token_to_who_passes_them_on() {
    let node = options().start().await.expect("a node");
    let data_dir = node.data_dir();
    let data_dir = data_dir.to_str().expect("text");
    let (admin, shown_by_admin) = relay(node.admin).await;
    let (api, shown_by_api) = relay(node.api).await;
    for arguments in [
        vec!["service", "restart", "http", "--admin", &admin, "--data-dir", data_dir],
        vec!["mailbox", "topics", "--api", &api, "--data-dir", data_dir],
    ] {
        let ended = run(&arguments).await;
        let said = text(&ended.stderr);
        assert!(ended.status.code() == Some(70) && said.contains("MN0018"), "{arguments:?}: {said}");
        assert!(said.contains("the token was not sent"), "{arguments:?}: {said}");
    }
    for shown in [shown_by_admin, shown_by_api] {
        let shown = shown.lock().expect("whole").clone();
        assert!(shown.contains("/identity?nonce=") && !shown.contains(&node.token), "{shown}");
    }
}

#[tokio::test]
async fn rule_25_the_commands_show_the_operator_token_to_its_own_node_only() {
    let node = options().start().await.expect("a node");
    let data_dir = node.data_dir();
    let data_dir = data_dir.to_str().expect("text");
    let token_file = format!("{data_dir}/operator.token");
    let (address, shown) = liar().await;
    for arguments in [
        vec!["drain", "--admin", &address, "--data-dir", data_dir],
        vec!["service", "restart", "http", "--admin", &address, "--data-dir", data_dir],
        vec!["mailbox", "topics", "--api", &address, "--data-dir", data_dir],
    ] {
        let ended = run(&arguments).await;
        let said = text(&ended.stderr);
        assert!(ended.status.code() == Some(70) && said.contains("MN0018"), "{arguments:?}: {said}");
        assert!(said.contains("the token was not sent"), "{arguments:?}: {said}");
    }
    run(&["mailbox", "topics", "--api", &address, "--token-file", &token_file]).await;
    let shown = shown.lock().expect("whole").clone();
    assert_eq!(shown.matches("/identity?nonce=").count(), 3, "{shown}");
    assert_eq!(shown.matches(&node.token).count(), 1, "only where it was named: {shown}");
    for arguments in
        [vec!["service", "restart", "http", "--data-dir", data_dir], vec!["mailbox", "topics", "--data-dir", data_dir]]
    {
        let ended = run(&arguments).await;
        assert_eq!(ended.status.code(), Some(0), "{arguments:?}: {}", text(&ended.stderr));
    }
}
