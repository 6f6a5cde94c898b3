//! The rewarder of a running node: uploads, answers by the book, what becomes of epochs, kill -9.

use std::path::Path;

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Node, Plane, Reply, ask, eventually};

use crate::options;
use crate::process::Process;

pub const UNSIGNED: &str = "[rewarder]\nunsigned_policies = true\n";

/// Writes the settings of a ledger, which nobody else may read.
pub fn write_settings(path: &Path, text: impl AsRef<[u8]>) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("its owner's alone");
}

/// A caller with a token.
pub struct Caller {
    pub api: std::net::SocketAddr,
    pub bearer: String,
}

impl Caller {
    pub fn of(node: &Node) -> Caller {
        Caller { api: node.api, bearer: format!("Bearer {}", node.token) }
    }

    pub async fn ask(&self, method: Method, path: &str, body: impl Into<bytes::Bytes>) -> Reply {
        let headers = [("authorization", self.bearer.as_str()), ("content-type", "application/json")];
        ask(self.api, method, path, &headers, body).await.expect("answered")
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.ask(Method::GET, path, "").await
    }

    /// Uploads a file; gives its hash.
    pub async fn upload(&self, content: &str) -> String {
        let b3 = b3(content);
        let put = self.ask(Method::PUT, &format!("/rewarder/inputs/{b3}"), content.to_owned()).await;
        assert!(matches!(put.status, 200 | 201), "{}", put.text());
        b3
    }

    pub async fn compute(&self, epoch: &str, body: &Value) -> Reply {
        self.ask(Method::POST, &format!("/rewarder/epochs/{epoch}/compute"), body.to_string()).await
    }

    /// Waits until the epoch is none of those on their way.
    pub async fn ended(&self, epoch: &str) -> Value {
        eventually("the end of an epoch", async || {
            let answer = self.get(&format!("/rewarder/epochs/{epoch}")).await.json().ok()?;
            let state = answer["state"].as_str()?;
            (!matches!(state, "computing" | "released")).then_some(answer)
        })
        .await
    }
}

pub fn b3(content: &str) -> String {
    blake3::hash(content.as_bytes()).to_hex().to_string()
}

pub fn policy() -> Value {
    json!({"id": "demo", "ruleset": 1, "assets": [{"asset": "RON", "pool": "1000003", "weights": {"usage": "1"}}]})
}

pub fn body(b3: &str) -> Value {
    json!({"inputs": [{"b3": b3}], "policy": policy(), "unsigned": true})
}

/// A usage file of so many actors; another number gives other bytes.
pub fn usage(actors: usize, number: usize) -> String {
    let rows = (0..actors).map(|actor| format!("a{actor:05},{}\n", 10 + actor + number));
    std::iter::once("actor,quantity\n".to_owned()).chain(rows).collect()
}

#[tokio::test]
async fn an_epoch_goes_from_an_upload_to_settled_payouts() {
    let node = options().config(UNSIGNED).start().await.expect("started");
    let caller = Caller::of(&node);
    let uploaded = caller.upload(&usage(300, 0)).await;
    let again = caller.ask(Method::PUT, &format!("/rewarder/inputs/b3:{uploaded}"), usage(300, 0)).await;
    assert_eq!(again.status, 200, "it is here already");
    let begun = caller.compute("2026-11", &body(&uploaded)).await;
    assert_eq!((begun.status, begun.header("location")), (202, "/rewarder/epochs/2026-11"), "{}", begun.text());
    let epoch = caller.ended("2026-11").await;
    assert_eq!(epoch["state"], "settled", "{epoch}");
    assert_eq!((&epoch["assets"][0]["paid"], &epoch["assets"][0]["delta"]), (&json!("1000003"), &json!("0")));
    let settlement = caller.get("/rewarder/epochs/2026-11/settlement").await.json().expect("JSON");
    assert_eq!((&settlement["intents"], &settlement["sent"]), (&json!(300), &json!(300)));
    assert_eq!(settlement["reconciliation"]["agrees"], true, "{settlement}");

    let duplicate = caller.compute("2026-11", &body(&uploaded)).await;
    assert_eq!((duplicate.status, &duplicate.json().expect("JSON")["commitment"]), (200, &epoch["commitment"]));
    let other = caller.upload(&usage(300, 1)).await;
    assert_eq!(caller.compute("2026-11", &body(&other)).await.status, 409, "other inputs");

    let lines = caller.get("/rewarder/epochs/2026-11/allocations").await;
    assert_eq!((lines.status, lines.text().lines().count()), (200, 300));
    let first: Value = serde_json::from_str(lines.text().lines().next().expect("a line")).expect("JSON");
    let actor = first["actor"].as_str().expect("an id");
    let explained = caller.get(&format!("/rewarder/epochs/2026-11/explain/{actor}")).await.json().expect("JSON");
    assert_eq!(explained["assets"][0]["amount"], first["amount"], "{explained}");
    for format in ["oz", "sum"] {
        let proof = caller.get(&format!("/rewarder/epochs/2026-11/proof/{actor}?format={format}")).await;
        let proof = proof.json().expect("JSON");
        assert_eq!(proof["proofs"][0]["amount"], first["amount"], "{proof}");
    }
    let manifest = caller.get("/rewarder/epochs/2026-11/artifacts/run.json").await;
    assert_eq!(format!("b3:{}", b3(&manifest.text())), epoch["commitment"].as_str().expect("a hash"));
    assert_eq!(caller.get("/rewarder/epochs/2026-11/artifacts/passwd").await.status, 404);
    assert_eq!(caller.get("/rewarder/epochs/2026-12").await.status, 404);
    assert_eq!(caller.get("/rewarder/epochs/..%2f..").await.status, 400);

    assert_eq!(caller.compute("2026-12", &body(&other)).await.status, 202);
    caller.ended("2026-12").await;
    let diff = caller.get("/rewarder/epochs/2026-12/diff/2026-11").await;
    assert_eq!((diff.status, &diff.json().expect("JSON")["from"]), (200, &json!("2026-11")), "{}", diff.text());
    let list = caller.get("/rewarder/epochs?limit=1").await.json().expect("JSON");
    assert_eq!((&list["epochs"][0]["epoch"], &list["next"]), (&json!("2026-11"), &json!("2026-11")), "{list}");
    assert_eq!(caller.ask(Method::DELETE, &format!("/rewarder/inputs/{other}"), "").await.status, 204);
    assert_eq!(caller.ask(Method::DELETE, &format!("/rewarder/inputs/{other}"), "").await.status, 404);
}

#[tokio::test]
async fn bad_requests_are_refused_with_the_place_and_leave_nothing() {
    let inputs = tempfile::tempdir().expect("a folder");
    std::fs::write(inputs.path().join("bad.csv"), "actor,quantity\nann,5\nbob,-1\n").expect("written");
    std::fs::write(inputs.path().join("good.csv"), "actor,quantity\nann,5\nbob,1\n").expect("written");
    let config = format!("{UNSIGNED}inputs_dir = {:?}\n", inputs.path().display().to_string());
    let node = options().config(config).start().await.expect("started");
    let caller = Caller::of(&node);
    let with = |inputs: Value| json!({"inputs": inputs, "policy": policy(), "unsigned": true});
    let absent = "0".repeat(64);
    for (body, status, word) in [
        (with(json!([])), 400, "inputs"),
        (with(json!([{"b3": absent}])), 404, "was not uploaded"),
        (with(json!([{"b3": "xyz"}])), 400, "64 hexadecimal digits"),
        (with(json!([{"path": "../secret"}])), 400, "`..`"),
        (with(json!([{"path": "/etc/passwd"}])), 400, "from the root"),
        (with(json!([{"path": "missing.csv"}])), 404, "missing.csv"),
        (with(json!([{"meter": "never"}])), 404, "never"),
        (with(json!([{"path": "good.csv", "meter": "x"}])), 400, "inputs[0]"),
        (json!({"inputs": [{"path": "good.csv"}], "policy": policy()}), 400, "not signed"),
        (json!({"inputs": [{"path": "good.csv"}], "policy": {"id": "x"}, "unsigned": true}), 400, "policy"),
        (json!({"inputs": [{"path": "good.csv"}], "policy": policy(), "unsigned": true, "more": 1}), 400, "more"),
        (
            json!({"inputs": [{"path": "good.csv"}], "policy": policy(), "unsigned": true, "carry_from": "never"}),
            404,
            "never",
        ),
    ] {
        let answer = caller.compute("e1", &body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        assert!(answer.text().contains(word), "{body}: {}", answer.text());
    }
    let large = json!({"inputs": [], "policy": "x".repeat(1_100_000)});
    assert_eq!(caller.compute("e1", &large).await.status, 413);
    assert_eq!(caller.get("/rewarder/epochs/e1").await.status, 404, "nothing was begun");

    assert_eq!(caller.compute("e1", &with(json!([{"path": "bad.csv"}]))).await.status, 202);
    let refused = caller.ended("e1").await;
    assert_eq!((&refused["state"], &refused["refusal"]["bad_rows"]), (&json!("refused"), &json!(1)), "{refused}");
    let bad = &refused["refusal"]["first_bad_rows"][0];
    assert_eq!(
        (&bad["file"], &bad["row"], &bad["column"]),
        (&json!("bad.csv"), &json!(2), &json!("quantity")),
        "{bad}"
    );
    let pinned = with(json!([{"path": "good.csv", "b3": absent}]));
    assert_eq!(caller.compute("e1", &pinned).await.status, 202, "a refused epoch can be tried again");
    let refused = caller.ended("e1").await;
    assert!(refused["refusal"]["reason"].as_str().is_some_and(|reason| reason.contains("good.csv")), "{refused}");
    let good = with(json!([{"path": "good.csv"}]));
    assert_eq!(caller.compute("e1", &good).await.status, 202);
    assert_eq!(caller.ended("e1").await["state"], "settled");
    assert_eq!(caller.compute("e1", &good).await.status, 200, "the same again");

    let wrong = caller.ask(Method::PUT, &format!("/rewarder/inputs/{absent}"), "other bytes").await;
    assert_eq!(wrong.status, 422, "{}", wrong.text());
    let left = std::fs::read_dir(node.data_dir().join("rewarder/inputs")).expect("there").count();
    assert_eq!(left, 0, "nothing of it was kept");
}

#[tokio::test]
async fn tokens_allow_what_they_say_and_settled_epochs_may_be_public() {
    let config = format!("{UNSIGNED}page = \"public\"\n");
    let node = options().config(config).start().await.expect("started");
    let operator = Caller::of(&node);
    let b3 = operator.upload(&usage(3, 0)).await;
    let by_hand = json!({"id": "demo", "ruleset": 1, "release": {"by_hand": true},
        "assets": [{"asset": "RON", "pool": "10", "weights": {"usage": "1"}}]});
    let held = json!({"inputs": [{"b3": b3}], "policy": by_hand, "unsigned": true});
    assert_eq!(operator.compute("e1", &held).await.status, 202);
    assert_eq!(operator.ended("e1").await["state"], "held");
    let grant = json!({"subject": "ann", "rights": ["rewarder:read:e1", "rewarder:release:e2"]});
    let minted = operator.ask(Method::POST, "/v1/tokens", grant.to_string()).await.json().expect("JSON");
    let ann = Caller { api: node.api, bearer: format!("Bearer {}", minted["token"].as_str().expect("a token")) };
    let nobody = async |path: &str| ask(node.api, Method::GET, path, &[], "").await.expect("answered").status;
    assert_eq!(ann.get("/rewarder/epochs/e1").await.status, 200);
    assert_eq!(ann.get("/rewarder/epochs/e2").await.status, 403);
    assert_eq!(ann.get("/rewarder/epochs").await.status, 403);
    assert_eq!(ann.ask(Method::POST, "/rewarder/epochs/e1/release", "").await.status, 403);
    assert_eq!(ann.compute("e1", &held).await.status, 403);
    assert_eq!(ann.ask(Method::PUT, &format!("/rewarder/inputs/{b3}"), "x").await.status, 403);
    assert_eq!((nobody("/rewarder/epochs/e1").await, nobody("/rewarder/epochs/e1/proof/a00000").await), (401, 401));
    assert_eq!((nobody("/rewarder/epochs").await, nobody("/ledger/accounts").await), (401, 401));
    let grant = json!({"subject": "bob", "rights": ["rewarder:compute:e3", "rewarder:upload:inputs"]});
    let minted = operator.ask(Method::POST, "/v1/tokens", grant.to_string()).await.json().expect("JSON");
    let bob = Caller { api: node.api, bearer: format!("Bearer {}", minted["token"].as_str().expect("a token")) };
    assert_eq!(bob.upload(&usage(3, 0)).await, b3);
    assert_eq!(bob.compute("e3", &held).await.status, 202);
    assert_eq!(operator.ended("e3").await["state"], "held");
    assert_eq!(bob.ask(Method::POST, "/rewarder/epochs/e3/release", "").await.status, 403, "who computes pays nobody");
    assert_eq!((bob.get("/rewarder/epochs/e3").await.status, bob.get("/ledger/accounts").await.status), (403, 403));
    assert_eq!(bob.get("/rewarder/stats").await.status, 403);
    // Nor does a right on one epoch spend what another left over, read what was sealed for it, or correct it.
    let drawn = |part: Value| {
        let mut order = held.clone();
        order.as_object_mut().expect("an object").extend(part.as_object().expect("an object").clone());
        order
    };
    for part in [json!({"carry_from": "e1"}), json!({"inputs": [{"b3": b3}, {"meter": "e1"}]})] {
        let refused = bob.compute("e3", &drawn(part)).await;
        assert_eq!(refused.status, 403, "{}", refused.text());
    }
    let correction = json!({"commitment": b3, "corrects": "e1", "unsigned": true}).to_string();
    assert_eq!(bob.ask(Method::POST, "/rewarder/epochs/e3/correct", correction).await.status, 403);
    assert_eq!(bob.ask(Method::DELETE, "/rewarder/epochs/e3/artifacts", "").await.status, 403);
    assert_eq!(bob.ask(Method::POST, "/rewarder/usage/seal", r#"{"epoch":"e1"}"#).await.status, 403);

    let released = operator.ask(Method::POST, "/rewarder/epochs/e1/release", "").await;
    assert_eq!((released.status, &released.json().expect("JSON")["released_by"]), (200, &json!("operator")));
    assert_eq!(operator.ended("e1").await["state"], "settled");
    assert_eq!(operator.ask(Method::POST, "/rewarder/epochs/e1/release", "").await.status, 200, "again is fine");
    assert_eq!((nobody("/rewarder/epochs/e1").await, nobody("/rewarder/epochs/e1/proof/a00000").await), (200, 200));
    assert_eq!(nobody("/rewarder/epochs/e1/allocations").await, 401, "the whole list is not public");
}

/// What is there already is read to its end, so that its connection goes on, and counts once.
#[tokio::test]
async fn an_upload_that_is_there_is_read_to_its_end() {
    let node = options().config(UNSIGNED).start().await.expect("started");
    let caller = Caller::of(&node);
    let content = usage(20_000, 0);
    let path = format!("/rewarder/inputs/{}", b3(&content));
    let headers = [("authorization", caller.bearer.as_str())];
    let mut client = testkit::Client::connect(node.api).await.expect("it listens");
    let mut counted = Vec::new();
    for expected in [201, 200, 200] {
        let put = client.request(Method::PUT, &path, &headers, content.clone()).await.expect("on one connection");
        assert_eq!(put.status, expected, "{}", put.text());
        counted.push(caller.get("/rewarder/stats").await.json().expect("JSON")["inputs_bytes"].clone());
    }
    assert!(counted.iter().all(|bytes| *bytes == json!(content.len())), "{counted:?}");
    let other = caller.ask(Method::PUT, &path, "other bytes").await;
    assert_eq!(other.status, 422, "they are not those of the file: {}", other.text());
}

/// Everybody may see what concerns an id that it names, and nothing of others; a token that allows something else takes
/// nothing of that away.
#[tokio::test]
async fn a_public_epoch_shows_nobody_but_the_id_that_was_named() {
    let node = options().config(format!("{UNSIGNED}page = \"public\"\n")).start().await.expect("started");
    let operator = Caller::of(&node);
    let b3 = operator.upload("actor,quantity\nann,500\nbob,333\nzoe,77\n").await;
    // Held because of what single payees get, which the reason says.
    let careful = json!({"id": "demo", "ruleset": 1, "release": {"total_max": {"RON": "5"}},
        "assets": [{"asset": "RON", "pool": "910", "weights": {"usage": "1"}}]});
    let held = json!({"inputs": [{"b3": b3}], "policy": careful, "unsigned": true});
    assert_eq!(operator.compute("e1", &held).await.status, 202);
    assert_eq!(operator.ended("e1").await["state"], "held");
    assert_eq!(operator.ask(Method::POST, "/rewarder/epochs/e1/release", "").await.status, 200);
    let settled = operator.ended("e1").await;
    assert!(settled["state"] == "settled" && settled["held_because"].is_string(), "{settled}");
    let grant = json!({"subject": "mel", "rights": ["mailbox:*:*"]});
    let minted = operator.ask(Method::POST, "/v1/tokens", grant.to_string()).await.json().expect("JSON");
    let mel = format!("Bearer {}", minted["token"].as_str().expect("a token"));
    let strangers: [&[(&str, &str)]; 2] = [&[], &[("authorization", &mel)]];
    for headers in strangers {
        let asked = async |path: &str| {
            let path = format!("/rewarder/epochs/e1{path}");
            ask(node.api, Method::GET, &path, headers, "").await.expect("answered")
        };
        for (path, status) in [
            ("", 200),
            ("/distribution", 200),
            ("/explain/ann", 200),
            ("/explain/carl", 200),
            ("/proof/ann", 200),
            ("/proof/carl", 200),
            ("/proof/ann?format=sum", if headers.is_empty() { 401 } else { 403 }),
            ("/proof/carl?format=sum", if headers.is_empty() { 401 } else { 403 }),
        ] {
            let answer = asked(path).await;
            assert_eq!(answer.status, status, "{path} {headers:?}: {}", answer.text());
            for other in ["bob", "zoe", "\"333\"", "\"77\"", "held_because"] {
                assert!(!answer.text().contains(other), "{path} shows {other}: {}", answer.text());
            }
        }
    }
    let sum = operator.get("/rewarder/epochs/e1/proof/carl?format=sum").await;
    assert!(sum.status == 200 && sum.text().contains("zoe"), "who may read it all has its neighbours as proof");
}

#[tokio::test]
async fn a_quarantined_epoch_is_told_apart_from_one_in_conflict() {
    let node = options().config(UNSIGNED).start().await.expect("started");
    let caller = Caller::of(&node);
    // Two spellings of one address are one payee: the amounts would not add up.
    let address = "0x00000000000000000000000000000000000000";
    let b3 = caller.upload(&format!("actor,quantity\n{address}Aa,5\n{address}aa,5\n")).await;
    assert_eq!(caller.compute("e1", &body(&b3)).await.status, 202);
    assert_eq!(caller.ended("e1").await["state"], "quarantined");
    let again = caller.compute("e1", &body(&b3)).await;
    let told = again.json().expect("a problem");
    assert_eq!((again.status, &told["code"]), (422, &json!("E_QUARANTINE")), "{told}");
    assert!(told["detail"].as_str().is_some_and(|detail| detail.contains("paid nobody")), "{told}");
    let released = caller.ask(Method::POST, "/rewarder/epochs/e1/release", r#"{"lift_quarantine":true}"#).await;
    assert_eq!(released.status, 422, "it has no amounts: {}", released.text());
    assert_eq!(caller.get("/rewarder/epochs/e1/proof/x").await.status, 422);
    let other = caller.upload(&usage(2, 0)).await;
    let conflict = caller.compute("e1", &body(&other)).await;
    assert_eq!((conflict.status, &conflict.json().expect("a problem")["code"]), (409, &json!("E_DUPLICATE")));
    // The description says what is answered.
    let described = node.get(Plane::Api, "/openapi.json").await.expect("answered").json().expect("JSON");
    let answers = &described["paths"]["/rewarder/epochs/{epoch}/compute"]["post"]["responses"];
    for (status, code) in [("409", "E_DUPLICATE"), ("422", "E_QUARANTINE")] {
        let words = answers[status]["description"].as_str().unwrap_or_default();
        assert!(words.contains(code), "{status}: {answers}");
    }
    assert!(!answers["409"]["description"].as_str().unwrap_or_default().contains("E_QUARANTINE"), "{answers}");
}

#[tokio::test]
async fn artifacts_are_removed_to_make_room_and_what_was_paid_stays() {
    let config = format!("{UNSIGNED}epochs_bytes_max = \"2MiB\"\n");
    let node = options().config(config).start().await.expect("started");
    let caller = Caller::of(&node);
    // Long ids, so that few payouts take many bytes.
    let rows = (0..1_400).map(|actor| format!("{actor:05}{},1\n", "x".repeat(900)));
    let b3 = caller.upload(&std::iter::once("actor,quantity\n".to_owned()).chain(rows).collect::<String>()).await;
    assert_eq!(caller.compute("e1", &body(&b3)).await.status, 202);
    assert_eq!(caller.ended("e1").await["state"], "settled");
    let stats = caller.get("/rewarder/stats").await.json().expect("JSON");
    assert!(stats["epochs_bytes"].as_u64() > Some(1 << 20), "{stats}");
    // There is some room when the second begins, and not enough while it is written.
    assert_eq!(caller.compute("e2", &body(&b3)).await.status, 202);
    let full = caller.ended("e2").await;
    let reason = full["refusal"]["reason"].as_str().unwrap_or_default();
    assert!(full["state"] == "refused" && reason.contains("rewarder.epochs_bytes_max"), "{full}");
    assert_eq!(caller.get("/rewarder/stats").await.json().expect("JSON")["epochs_bytes"], stats["epochs_bytes"]);
    assert_eq!(caller.compute("e1", &body(&b3)).await.status, 200, "what is there is found");
    let removed = caller.ask(Method::DELETE, "/rewarder/epochs/e1/artifacts", "").await;
    assert_eq!((removed.status, &removed.json().expect("JSON")["artifacts_removed_by"]), (200, &json!("operator")));
    assert!(!node.data_dir().join("rewarder/epochs/e1").exists());
    let epoch = caller.get("/rewarder/epochs/e1").await.json().expect("JSON");
    assert_eq!((&epoch["state"], &epoch["assets"][0]["paid"]), (&json!("settled"), &json!("1000003")), "{epoch}");
    assert_eq!(caller.get("/rewarder/epochs/e1/proof/nobody").await.status, 404);
    assert_eq!(caller.compute("e1", &body(&b3)).await.status, 200, "and is still not computed again");
    assert_eq!(caller.compute("e2", &body(&b3)).await.status, 202, "there is room");
    let again = caller.ended("e2").await;
    assert_eq!(again["state"], "held", "its usage was paid: {again}");
}

#[tokio::test]
async fn what_the_node_itself_did_is_an_input_and_epochs_tell_what_becomes_of_them() {
    let node = options().config(UNSIGNED).start().await.expect("started");
    let caller = Caller::of(&node);
    let mut alice = testkit::MailboxClient::of(&node).await.expect("it listens");
    alice
        .send(testkit::Outgoing { topic: "t", payload: b"12345", ..testkit::Outgoing::default() })
        .await
        .expect("sent");
    let sealed = caller.ask(Method::POST, "/rewarder/usage/seal", r#"{"epoch":"own"}"#).await;
    assert!(matches!(sealed.status, 200 | 201), "{}", sealed.text());
    let bearer = caller.bearer.clone();
    let (events, address) = (tokio::net::TcpStream::connect(node.api), node.api);
    let mut events = events.await.expect("it listens");
    let ask = format!("GET /rewarder/events?epoch=e1 HTTP/1.1\r\nhost: {address}\r\nauthorization: {bearer}\r\n\r\n");
    tokio::io::AsyncWriteExt::write_all(&mut events, ask.as_bytes()).await.expect("asked");
    let mut heard = String::new();
    hear(&mut events, &mut heard, "event: opened").await;
    let assets = json!([{"asset": "RON", "pool": "100", "weights": {"mailbox.messages_sent": "1"}}]);
    let policy = json!({"id": "own", "ruleset": 1, "assets": assets});
    let request = json!({"inputs": [{"meter": "own"}], "policy": policy, "unsigned": true});
    let begun = caller.compute("e1", &request).await;
    assert_eq!(begun.status, 202, "{}", begun.text());
    let epoch = caller.ended("e1").await;
    assert_eq!((&epoch["state"], &epoch["assets"][0]["paid"]), (&json!("settled"), &json!("100")), "{epoch}");
    hear(&mut events, &mut heard, "event: settled").await;
    assert!(heard.contains(r#""epoch":"e1""#) && heard.contains("event: released"), "{heard}");
    assert_eq!(caller.compute("e1", &request).await.status, 200, "the same usage again is the same request");
}

/// Reads a stream until it has said this.
async fn hear(stream: &mut tokio::net::TcpStream, heard: &mut String, words: &str) {
    let mut piece = [0; 4096];
    while !heard.contains(words) {
        let read = tokio::io::AsyncReadExt::read(stream, &mut piece);
        let read = tokio::time::timeout(testkit::PATIENCE_MAX, read).await.expect("in time").expect("readable");
        assert!(read > 0, "{words} is missing in {heard}");
        heard.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
}

#[tokio::test]
async fn in_amnesia_nothing_is_paid_from_inputs_that_die_with_the_node() {
    let inputs = tempfile::tempdir().expect("a folder");
    std::fs::write(inputs.path().join("usage.csv"), usage(3, 0)).expect("written");
    let config = format!("{UNSIGNED}inputs_dir = {:?}\n", inputs.path().display().to_string());
    let node = options().amnesia().config(config).start().await.expect("started");
    let caller = Caller::of(&node);
    let named = json!({"inputs": [{"path": "usage.csv"}], "policy": policy(), "unsigned": true});
    assert_eq!(caller.compute("e1", &named).await.status, 202);
    let held = caller.ended("e1").await;
    assert_eq!(held["state"], "held", "{held}");
    let released = caller.ask(Method::POST, "/rewarder/epochs/e1/release", "").await;
    assert_eq!(released.status, 409, "{}", released.text());
    let upload = caller.ask(Method::PUT, &format!("/rewarder/inputs/{}", b3("x")), "x").await;
    assert_eq!(upload.status, 503, "{}", upload.text());
}

pub fn caller_of(node: &Process) -> Caller {
    Caller { api: node.api, bearer: format!("Bearer {}", node.token) }
}

#[tokio::test]
async fn a_node_that_is_killed_pays_everybody_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let data_dir = folder.path().join("data");
    std::fs::write(folder.path().join("macronode.toml"), UNSIGNED).expect("written");
    let config = folder.path().join("macronode.toml").display().to_string();
    let rounds = if testkit::soak() { 50 } else { 4 };
    let mut expected = 0_u64;
    for round in 0..rounds {
        let mut node = Process::start(folder.path(), &data_dir, &["--config", &config]).await;
        let caller = caller_of(&node);
        for earlier in 0..round {
            let state = caller.get(&format!("/rewarder/epochs/round-{earlier}")).await;
            if state.status == 404 {
                // Not sealed before the kill: it does not exist, and is asked for again.
                compute_round(&caller, earlier).await;
            }
            assert_eq!(caller.ended(&format!("round-{earlier}")).await["state"], "settled");
        }
        expected = 3_000 * (round + 1);
        compute_round(&caller, round).await;
        // Somewhere between the first row and the last payout: later in each round.
        tokio::task::yield_now().await;
        for _ in 0..round {
            let _ = caller.get(&format!("/rewarder/epochs/round-{round}")).await;
        }
        node.signal(Signal::KILL);
        node.wait_exit().await;
    }
    let node = Process::start(folder.path(), &data_dir, &["--config", &config]).await;
    let caller = caller_of(&node);
    for round in 0..rounds {
        let path = format!("/rewarder/epochs/round-{round}");
        if caller.get(&path).await.status == 404 {
            compute_round(&caller, round).await;
        }
        assert_eq!(caller.ended(&format!("round-{round}")).await["state"], "settled");
        let settlement = caller.get(&format!("{path}/settlement")).await.json().expect("JSON");
        assert_eq!(settlement["reconciliation"]["assets"][0]["found_count"], "3000", "{settlement}");
    }
    assert_eq!(expected, 3_000 * rounds);
    assert_no_leftovers(&data_dir);
}

async fn compute_round(caller: &Caller, round: u64) {
    let b3 = caller.upload(&usage(3_000, round as usize)).await;
    let begun = caller.compute(&format!("round-{round}"), &body(&b3)).await;
    assert!(matches!(begun.status, 200 | 202), "{}", begun.text());
}

pub fn assert_no_leftovers(data_dir: &Path) {
    for folder in std::fs::read_dir(data_dir.join("rewarder/epochs")).expect("there") {
        for file in std::fs::read_dir(folder.expect("readable").path()).expect("a folder") {
            let name = file.expect("readable").file_name().into_string().expect("text");
            assert!(!name.starts_with("tmp-"), "{name} is left over");
        }
    }
}
