//! Dead letters and redrives touch only what belongs to them and what the caller may touch.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};
use testkit::{Delivered, MailboxClient, MailboxError, Node, Outgoing, Take, ask, eventually};

use crate::options;

const TAKE: Take = Take { max: 100, visibility_ms: 60_000, wait_ms: 10_000 };
const MIB: usize = 1024 * 1024;

async fn started() -> (Node, MailboxClient) {
    let node = options().start().await.expect("the node starts");
    let operator = MailboxClient::of(&node).await.expect("the node listens");
    (node, operator)
}

/// Somebody with these rights, written as `verb:topic`.
async fn guest(node: &Node, operator: &mut MailboxClient, rights: &[&str]) -> (String, MailboxClient) {
    let rights: Vec<String> = rights.iter().map(|right| format!("mailbox:{right}")).collect();
    let minted = operator.post("/v1/tokens", &json!({"subject": "guest", "rights": rights})).await.expect("minted");
    let token = minted["token"].as_str().expect("a token").to_owned();
    let client = MailboxClient::connect(node.api, &token).await.expect("the node listens");
    (token, client)
}

fn status(answer: Result<Value, MailboxError>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(error) => error.status().unwrap_or_else(|| panic!("no answer: {error}")),
    }
}

/// An action of SQS by the bearer of a token.
async fn sqs(node: &Node, token: &str, action: &str, body: Value) -> (u16, Value) {
    let (bearer, target) = (format!("Bearer {token}"), format!("AmazonSQS.{action}"));
    let headers = [
        ("authorization", bearer.as_str()),
        ("x-amz-target", target.as_str()),
        ("content-type", "application/x-amz-json-1.0"),
    ];
    let reply = ask(node.api, Method::POST, "/", &headers, body.to_string()).await.expect("an answer");
    (reply.status, reply.json().unwrap_or_default())
}

/// Sends payloads to a topic and rejects them: they are dead letters then.
async fn bury(client: &mut MailboxClient, topic: &str, payloads: &[&str]) {
    for payload in payloads {
        let message = Outgoing { topic, payload: payload.as_bytes(), ..Outgoing::default() };
        client.send(message).await.expect("sent");
    }
    let mut buried = 0;
    while buried < payloads.len() {
        let taken = client.recv(topic, TAKE).await.expect("received");
        let receipts: Vec<&str> = taken.iter().map(|message| message.receipt.as_str()).collect();
        client.post("/v1/nack", &json!({"receipts": receipts, "reject": true})).await.expect("rejected");
        buried += taken.len();
    }
}

fn texts(messages: &[Delivered]) -> Vec<String> {
    let mut texts: Vec<String> = messages.iter().map(Delivered::text).collect();
    texts.sort_unstable();
    texts
}

/// The payloads of a page.
fn shown(page: &Value) -> Vec<String> {
    let messages = page["messages"].as_array().expect("a list");
    let payload = |message: &Value| STANDARD.decode(message["payload_b64"].as_str().expect("a text")).expect("base64");
    messages.iter().map(|message| String::from_utf8(payload(message)).expect("text")).collect()
}

async fn until_state(client: &mut MailboxClient, task: &Value, state: &str) -> Value {
    let path = format!("/v1/dlq/tasks/{}", task["task"]["id"]);
    eventually(&format!("a task that is {state}"), async || {
        let now = client.get(&path).await.expect("known");
        (now["task"]["state"] == state).then_some(now)
    })
    .await
}

#[tokio::test]
async fn rule_07_a_topic_with_the_name_of_dead_letters_is_nobody_elses() {
    let (node, mut operator) = started().await;
    let everything = ["admin:orders.dlq", "send:orders.dlq", "recv:orders.dlq"];
    let (_, mut stranger) = guest(&node, &mut operator, &everything).await;
    // Before the topic is there: neither made by its name nor by a message.
    assert_eq!(status(stranger.topic("orders.dlq", &json!({})).await), 400);
    let early = Outgoing { topic: "orders.dlq", payload: b"mine", ..Outgoing::default() };
    assert_eq!(stranger.send(early).await.expect_err("not made").status(), Some(400));
    assert_eq!(status(operator.topic("jobs", &json!({"dlq": "other.dlq"})).await), 400);
    operator.topic("orders", &json!({"max_attempts": 1})).await.expect("made");
    assert_eq!(status(operator.topic("orders.dlq", &json!({})).await), 409);

    bury(&mut operator, "orders", &["dead"]).await;
    let listed = operator.get("/v1/dlq/orders").await.expect("listed");
    assert_eq!((shown(&listed), &listed["messages"][0]["topic"]), (vec!["dead".to_owned()], &json!("orders.dlq")));
    let view = operator.get("/v1/topics/orders.dlq").await.expect("there");
    assert_eq!(view["dead_letters_of"], "orders");
    let task = operator.post("/v1/dlq/orders/reprocess", &json!({})).await.expect("ordered");
    until_state(&mut operator, &task, "done").await;
    assert_eq!(texts(&operator.recv("orders", TAKE).await.expect("received")), ["dead"]);
}

#[tokio::test]
async fn rule_07_dead_letters_go_to_a_topic_and_not_to_its_name() {
    let (node, mut operator) = started().await;
    operator.topic("grave", &json!({})).await.expect("made");
    operator.topic("jobs", &json!({"dlq": "grave"})).await.expect("made");
    operator.topic("mails", &json!({"dlq": "jobs.dlq"})).await.expect("made");
    assert_eq!(status(operator.call(Method::DELETE, "/v1/topics/grave", &Value::Null).await), 409);
    let gone = status(operator.call(Method::DELETE, "/v1/topics/jobs", &Value::Null).await);
    assert_eq!(gone, 409, "the dead letters that come with it are another's, too");

    // SQS lets it go. Whoever makes the name anew gets nothing of what was for the first.
    let (deleted, said) = sqs(&node, &node.token, "DeleteQueue", json!({"QueueUrl": "grave"})).await;
    assert_eq!(deleted, 200, "{said}");
    let (_, mut stranger) = guest(&node, &mut operator, &["admin:grave", "recv:grave"]).await;
    stranger.topic("grave", &json!({})).await.expect("made anew");
    assert_eq!(operator.get("/v1/topics/jobs").await.expect("there")["dlq_missing"], "grave");
    bury(&mut operator, "jobs", &["secret"]).await;
    assert_eq!(stranger.held("grave").await.expect("counted"), 0);
    assert_eq!(shown(&operator.get("/v1/dlq/jobs").await.expect("listed")), ["secret"], "in its own dead letters");
}

/// Everything that moves messages from one topic to another, or makes them move: as somebody with `admin` on `mine` and
/// `mine.dlq`, and with the right it needs on the other side besides.
#[tokio::test]
async fn rule_08_what_moves_messages_asks_for_the_right_where_they_go() {
    let (node, mut operator) = started().await;
    let arn = |queue: &str| format!("arn:aws:sqs:us-east-1:000000000000:{queue}");
    let policy = |queue: &str| json!({"deadLetterTargetArn": arn(queue), "maxReceiveCount": 3}).to_string();
    for topic in ["theirs", "mine"] {
        operator.topic(topic, &json!({})).await.expect("made");
    }
    operator.topic("buried", &json!({"dlq": "mine"})).await.expect("made");
    bury(&mut operator, "mine", &["a"]).await;
    let native = [
        ("PUT", "/v1/topics/mine-new", json!({"dlq": "theirs"}), "admin:theirs"),
        ("PATCH", "/v1/topics/mine", json!({"dlq": "theirs"}), "admin:theirs"),
        ("PATCH", "/v1/topics/mine", json!({"dlq": null}), ""),
        ("POST", "/v1/dlq/mine/reprocess", json!({"to": "theirs", "dry_run": true}), "send:theirs"),
        ("POST", "/v1/dlq/mine/reprocess", json!({"to": "theirs"}), "send:theirs"),
        ("POST", "/v1/dlq/mine.dlq/reprocess", json!({"to": "theirs"}), "send:theirs"),
        ("POST", "/v1/dlq/mine.dlq/reprocess", json!({}), "send:mine"),
        ("POST", "/v1/dlq/mine/reprocess", json!({}), ""),
        ("GET", "/v1/dlq/buried", Value::Null, "admin:buried"),
        ("POST", "/v1/dlq/buried/reprocess", json!({}), "admin:buried"),
    ];
    let of_sqs = [
        (
            "SetQueueAttributes",
            json!({"QueueUrl": "mine", "Attributes": {"RedrivePolicy": policy("theirs")}}),
            "admin:theirs",
        ),
        (
            "CreateQueue",
            json!({"QueueName": "mine-too", "Attributes": {"RedrivePolicy": policy("theirs")}}),
            "admin:theirs",
        ),
        ("SetQueueAttributes", json!({"QueueUrl": "mine", "Attributes": {"RedrivePolicy": ""}}), ""),
        ("StartMessageMoveTask", json!({"SourceArn": arn("mine"), "DestinationArn": arn("theirs")}), "send:theirs"),
        ("StartMessageMoveTask", json!({"SourceArn": arn("mine")}), "send:buried"),
    ];
    let own = ["admin:mine", "admin:mine.dlq", "admin:mine-new", "admin:mine-too"];
    let (poor, mut without) = guest(&node, &mut operator, &own).await;
    for (method, path, body, right) in native {
        let method: Method = method.parse().expect("a method");
        let refused = status(without.call(method.clone(), path, &body).await);
        assert_eq!(refused == 403, !right.is_empty(), "{method} {path} {body} without {right:?}: {refused}");
        if !right.is_empty() {
            let rights = [&own[..], &[right]].concat();
            let (_, mut with) = guest(&node, &mut operator, &rights).await;
            let answer = status(with.call(method.clone(), path, &body).await);
            assert_eq!(answer, 200, "{method} {path} {body} with {right}");
        }
    }
    for (action, body, right) in of_sqs {
        let (refused, said) = sqs(&node, &poor, action, body.clone()).await;
        assert_eq!(refused == 403, !right.is_empty(), "{action} {body} without {right:?}: {said}");
        if !right.is_empty() {
            let (rich, _) = guest(&node, &mut operator, &[&own[..], &[right]].concat()).await;
            let answer = eventually("the end of the move before", async || {
                let (answer, said) = sqs(&node, &rich, action, body.clone()).await;
                (!said.to_string().contains("already a task running")).then_some((answer, said))
            });
            assert_eq!(answer.await.0, 200, "{action} {body} with {right}");
        }
    }
}

/// Changes a byte of every place where the log has this text.
fn damage(folder: &Path, text: &[u8]) -> usize {
    let mut places = 0;
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            places += damage(&entry, text);
            continue;
        }
        let bytes = fs::read(&entry).unwrap_or_default();
        let found = bytes.windows(text.len()).enumerate().filter(|(_, window)| *window == text);
        for (place, _) in found {
            let file = File::options().write(true).open(&entry).expect("it may be written");
            file.write_all_at(b"#", place as u64).expect("written");
            places += 1;
        }
    }
    places
}

#[tokio::test]
async fn rule_14_a_damaged_dead_letter_does_not_stop_the_others() {
    let (node, mut operator) = started().await;
    operator.topic("orders", &json!({})).await.expect("made");
    bury(&mut operator, "orders", &["first", "the-damaged-one", "last"]).await;
    assert!(damage(&node.data_dir(), b"the-damaged-one") > 0, "it was received once, so it is read from the disk now");
    let taken = operator.recv("orders.dlq", TAKE).await.expect("the others are delivered");
    assert_eq!(texts(&taken), ["first", "last"]);
    let receipts: Vec<&str> = taken.iter().map(|message| message.receipt.as_str()).collect();
    assert_eq!(operator.ack(&receipts).await.expect("answered"), [true, true]);
    bury(&mut operator, "orders", &["later"]).await;
    assert_eq!(texts(&operator.recv("orders.dlq", TAKE).await.expect("delivered")), ["later"]);
    let listed = operator.get("/v1/dlq/orders").await.expect("listed");
    let damaged: Vec<&Value> =
        listed["messages"].as_array().expect("a list").iter().filter(|one| one["damaged"] == true).collect();
    assert_eq!(damaged.len(), 1, "it is set aside once and can be looked at: {listed}");
    assert_eq!(damaged[0]["state"], "delayed");
}

#[tokio::test]
async fn rule_15_a_reprocess_moves_only_the_letters_of_its_topic() {
    let (_node, mut operator) = started().await;
    for topic in ["orders", "bills"] {
        operator.topic(topic, &json!({"dlq": "grave"})).await.expect("made");
    }
    bury(&mut operator, "orders", &["o1", "o2"]).await;
    bury(&mut operator, "bills", &["b1", "b2", "b3"]).await;
    operator.send(Outgoing { topic: "grave", payload: b"sent", ..Outgoing::default() }).await.expect("sent");
    assert_eq!(shown(&operator.get("/v1/dlq/orders").await.expect("listed")), ["o1", "o2"]);
    let counted = operator.post("/v1/dlq/bills/reprocess", &json!({"dry_run": true})).await.expect("counted");
    assert_eq!(counted["would_move"], 3);
    for (topic, to, moved) in [("orders", Value::Null, 2), ("bills", json!("elsewhere"), 3)] {
        if let Some(to) = to.as_str() {
            operator.topic(to, &json!({})).await.expect("made");
        }
        let ordered = operator.post(&format!("/v1/dlq/{topic}/reprocess"), &json!({"to": to})).await.expect("ordered");
        let done = until_state(&mut operator, &ordered, "done").await;
        assert_eq!((&done["task"]["moved"], &done["task"]["failed"]), (&json!(moved), &json!(0)), "{done}");
    }
    assert_eq!(texts(&operator.recv("orders", TAKE).await.expect("received")), ["o1", "o2"]);
    assert_eq!(texts(&operator.recv("elsewhere", TAKE).await.expect("received")), ["b1", "b2", "b3"]);
    assert_eq!(texts(&operator.recv("grave", TAKE).await.expect("received")), ["sent"], "nobody's letter stays");
}

#[tokio::test]
async fn rule_16_a_paused_redrive_holds_up_nobody_elses() {
    let (_node, mut operator) = started().await;
    for topic in ["slow", "quick"] {
        operator.topic(topic, &json!({"dlq": "grave"})).await.expect("made");
    }
    operator.topic("alone", &json!({})).await.expect("made");
    // So many that none of the slow ones comes to its end before it is paused.
    let many: Vec<String> = (0..50).map(|n| format!("s{n:02}")).collect();
    bury(&mut operator, "slow", &many.iter().map(String::as_str).collect::<Vec<_>>()).await;
    bury(&mut operator, "quick", &["q1", "q2"]).await;
    bury(&mut operator, "alone", &["a1"]).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let body = json!({"rate_per_second": 1});
        let ordered = operator.post("/v1/dlq/slow/reprocess", &body).await.expect("ordered");
        let path = format!("/v1/dlq/tasks/{}/pause", ordered["task"]["id"]);
        operator.post(&path, &json!({})).await.expect("paused");
        held.push(ordered);
    }
    for (topic, texts_of) in [("quick", &["q1", "q2"][..]), ("alone", &["a1"])] {
        let ordered = operator.post(&format!("/v1/dlq/{topic}/reprocess"), &json!({})).await.expect("ordered");
        until_state(&mut operator, &ordered, "done").await;
        assert_eq!(texts(&operator.recv(topic, TAKE).await.expect("received")), texts_of);
    }
    // Those of the same topic do not wait for it either, and it goes on when it is let.
    let some = operator.post("/v1/dlq/slow/reprocess", &json!({"limit": 20})).await.expect("ordered");
    assert_eq!(until_state(&mut operator, &some, "done").await["task"]["moved"], 20);
    let path = format!("/v1/dlq/tasks/{}", held[1]["task"]["id"]);
    let paused = operator.get(&path).await.expect("known")["task"].clone();
    assert_eq!(paused["state"], "paused");
    operator.post(&format!("{path}/resume"), &json!({})).await.expect("resumed");
    eventually("a message moved by the one that was paused", async || {
        let task = operator.get(&path).await.expect("known")["task"].clone();
        (task["moved"].as_u64() > paused["moved"].as_u64()).then_some(())
    })
    .await;
    let first = operator.get(&format!("/v1/dlq/tasks/{}", held[0]["task"]["id"])).await.expect("known");
    assert_eq!(first["task"]["state"], "paused");
}

#[tokio::test]
async fn rule_12_pages_are_bounded_in_bytes() {
    const COUNT: usize = 6;
    const PAGE_BYTES_MAX: usize = 5 * MIB;
    let (_node, mut operator) = started().await;
    operator.topic("large", &json!({})).await.expect("made");
    let payloads: Vec<String> = (0..COUNT).map(|n| format!("{n:02}").repeat(MIB / 2)).collect();
    for topic in ["large", "waiting"] {
        operator.topic(topic, &json!({})).await.expect("made");
    }
    for payload in &payloads {
        let message = Outgoing { topic: "waiting", payload: payload.as_bytes(), ..Outgoing::default() };
        operator.send(message).await.expect("sent");
    }
    bury(&mut operator, "large", &payloads.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for is_browse in [true, false] {
        let (mut seen, mut next, mut pages) = (Vec::new(), None::<String>, 0);
        loop {
            let page = match (is_browse, &next) {
                (true, next) => {
                    let body = json!({"limit": 100, "cursor": next});
                    operator.post("/v1/topics/waiting/browse", &body).await
                }
                (false, None) => operator.get("/v1/dlq/large?limit=100").await,
                (false, Some(next)) => operator.get(&format!("/v1/dlq/large?limit=100&cursor={next}")).await,
            };
            let page = page.expect("a page");
            let bytes = page.to_string().len();
            assert!(bytes <= PAGE_BYTES_MAX, "a page of {bytes} bytes");
            seen.extend(shown(&page));
            pages += 1;
            next = page["next"].as_str().map(str::to_owned);
            if next.is_none() {
                break;
            }
        }
        assert!(seen == payloads, "every message is in one of {pages} pages, in order");
        assert!(pages >= COUNT / 4, "{pages} pages");
    }
    // A redrive with a filter on payloads looks at all of it, some at a time; and its tasks come in pages, too.
    let filter = json!({"filter": {"payload_contains": "0303"}});
    let ordered = operator.post("/v1/dlq/large/reprocess", &filter).await.expect("ordered");
    assert_eq!(until_state(&mut operator, &ordered, "done").await["task"]["moved"], 1);
    let second = operator.post("/v1/dlq/large/reprocess", &filter).await.expect("ordered");
    let page = operator.get("/v1/dlq/tasks?limit=1").await.expect("a page");
    assert_eq!(page["tasks"][0]["id"], second["task"]["id"]);
    let rest = operator.get(&format!("/v1/dlq/tasks?limit=5&cursor={}", page["next"])).await.expect("the rest");
    assert_eq!(rest["tasks"][0]["id"], ordered["task"]["id"]);
    assert_eq!((rest["tasks"].as_array().map(Vec::len), rest.get("next")), (Some(1), None));
}

#[tokio::test]
async fn rule_25_attributes_of_the_node_cannot_be_set_from_outside() {
    let (node, mut operator) = started().await;
    operator.topic("t", &json!({})).await.expect("made");
    let forged = |name: &str| json!({name: "somebody else"});
    for name in ["$sender", "$type.n", "$trace", "$"] {
        let message = json!({"topic": "t", "payload_b64": "eA==", "attrs": forged(name)});
        assert_eq!(status(operator.post("/v1/send", &message).await), 400, "{name}");
        let batch = json!({"topic": "t", "messages": [{"payload_b64": "eA==", "attrs": forged(name)}]});
        assert_eq!(status(operator.post("/v1/send:batch", &batch).await), 400, "{name}");
        let attribute = json!({name: {"DataType": "String", "StringValue": "x"}});
        let message = json!({"QueueUrl": "t", "MessageBody": "x", "MessageAttributes": attribute});
        assert_eq!(sqs(&node, &node.token, "SendMessage", message).await.0, 400, "{name}");
    }
    let attribute = json!({"n": {"DataType": "Number", "StringValue": "7"}});
    let message = json!({"QueueUrl": "t", "MessageBody": "x", "MessageAttributes": attribute});
    let (sent, said) = sqs(&node, &node.token, "SendMessage", message).await;
    assert_eq!(sent, 200, "{said}");
    let page = operator.post("/v1/topics/t/browse", &json!({"filter": {"attrs": {"$type.n": "Number"}}})).await;
    let message = page.expect("browsed")["messages"][0].clone();
    let path = format!("/v1/messages/{}", message["msg_id"].as_str().expect("an id"));
    assert_eq!(status(operator.call(Method::PATCH, &path, &json!({"attrs": forged("$sender")})).await), 400);
    let edited = operator.call(Method::PATCH, &path, &json!({"attrs": {"n": "8", "m": "x"}})).await.expect("edited");
    let sender = &message["attrs"]["$sender"];
    assert_eq!(edited["attrs"], json!({"n": "8", "m": "x", "$type.n": "Number", "$sender": sender}), "nor taken away");
}

#[tokio::test]
async fn rule_25_no_sends_in_a_second_means_none() {
    let (node, mut operator) = started().await;
    operator.topic("t", &json!({})).await.expect("made");
    let grant = |limits: Value| json!({"subject": "mute", "rights": ["mailbox:*:t"], "limits": limits});
    for (grant, may_send) in [
        (grant(json!({"mailbox.sends_per_second": 0})), false),
        (json!({"subject": "mute", "ops": ["send", "recv"], "topics": ["t"], "sends_per_second": 0}), false),
        (grant(json!({"mailbox.sends_per_second": 1000})), true),
    ] {
        let minted = operator.post("/v1/tokens", &grant).await.expect("minted");
        let token = minted["token"].as_str().expect("a token");
        let mut mute = MailboxClient::connect(node.api, token).await.expect("the node listens");
        let expected = if may_send { 200 } else { 403 };
        let message = json!({"topic": "t", "payload_b64": "eA=="});
        assert_eq!(status(mute.post("/v1/send", &message).await), expected, "{grant}");
        let (answer, said) = sqs(&node, token, "SendMessage", json!({"QueueUrl": "t", "MessageBody": "x"})).await;
        assert_eq!(answer, expected, "{grant}: {said}");
        mute.recv("t", Take { wait_ms: 0, ..TAKE }).await.expect("the rest of its rights is as it was");
    }
}
