//! Small holes of the SQS surface that are closed, and its signatures as clients make them.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::Method;
use serde_json::{Value, json};
use testkit::{MailboxClient, Node, Reply, SqsKey, ask};

use crate::options;

async fn start(config: &str) -> Node {
    options().config(config).start().await.expect("the node starts")
}

/// A key of the node with these rights.
async fn key(node: &Node, rights: &[&str]) -> SqsKey {
    let mut operator = MailboxClient::of(node).await.expect("the node listens");
    let made = operator.post("/v1/sqs/keys", &json!({"rights": rights})).await.expect("a key");
    let text = |name: &str| made[name].as_str().expect("a text").to_owned();
    SqsKey::new(text("access_key_id"), text("secret_access_key"))
}

/// Asks for what must be done.
async fn done(node: &Node, key: &SqsKey, action: &str, request: Value) -> Value {
    let reply = key.call(node.api, action, &request.to_string()).await;
    assert_eq!(reply.status, 200, "{action}: {}", reply.text());
    if reply.body.is_empty() { Value::Null } else { reply.json().expect("JSON") }
}

fn code(reply: &Reply) -> &str {
    reply.header("x-amzn-query-error").split(';').next().unwrap_or_default()
}

#[tokio::test]
async fn rule_10_the_table_of_receive_attempts_counts_attributes_for_each_queue() {
    let node = start("").await;
    let key = key(&node, &["mailbox:*:*"]).await;
    let make = |name: &str| json!({"QueueName": name, "Attributes": {"FifoQueue": "true"}});
    for name in ["large.fifo", "small.fifo"] {
        done(&node, &key, "CreateQueue", make(name)).await;
    }
    let receive = async |queue: &str, attempt: &str| {
        let asked = json!({"QueueUrl": queue, "ReceiveRequestAttemptId": attempt, "VisibilityTimeout": 600});
        let answer = done(&node, &key, "ReceiveMessage", asked).await;
        answer["Messages"][0]["MessageId"].as_str().map(str::to_owned)
    };
    let send = async |queue: &str, index: usize, attributes: Value| {
        let id = index.to_string();
        let message = json!({"QueueUrl": queue, "MessageBody": "x", "MessageGroupId": id, "MessageDeduplicationId": id,
            "MessageAttributes": attributes});
        done(&node, &key, "SendMessage", message).await["MessageId"].as_str().map(str::to_owned)
    };
    let small = send("small.fifo", 0, json!({})).await;
    assert_eq!(receive("small.fifo", "first").await, small);
    // A byte of body and nearly a mebibyte of attributes: twelve of them are more than one queue may hold.
    let value = "v".repeat(100_000);
    let attributes: Value =
        (0..10).map(|index| (format!("a{index}"), json!({"DataType": "String", "StringValue": value}))).collect();
    let mut sent = Vec::new();
    for index in 0..12 {
        sent.push(send("large.fifo", index, attributes.clone()).await);
        assert_eq!(receive("large.fifo", &format!("attempt-{index}")).await, sent[index]);
    }
    assert_eq!(receive("large.fifo", "attempt-11").await, sent[11], "the last is answered again");
    assert_eq!(receive("large.fifo", "attempt-0").await, None, "the first made room: its message is in flight");
    assert_eq!(receive("small.fifo", "first").await, small, "another queue keeps what it has");
}

#[tokio::test]
async fn rule_25_signatures_cover_the_bytes_on_the_wire() {
    let node = start("").await;
    let key = key(&node, &["mailbox:*:*"]).await;
    done(&node, &key, "CreateQueue", json!({"QueueName": "jobs"})).await;
    let body = json!({"QueueUrl": "jobs", "MessageBody": "packed"}).to_string();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body.as_bytes()).expect("a vector grows");
    let packed = encoder.finish().expect("a vector grows");
    let headers = [
        ("content-encoding", "gzip"),
        ("content-type", "application/x-amz-json-1.0"),
        ("x-amz-target", "AmazonSQS.SendMessage"),
    ];
    let post = async |signed_body: &[u8], more: &[(&str, &str)]| {
        let signed = key.sign(node.api, "POST", "/", &headers, signed_body);
        let signed = signed.iter().map(|(name, value)| (*name, value.as_str()));
        let headers: Vec<_> = headers.into_iter().chain(signed).chain(more.iter().copied()).collect();
        ask(node.api, Method::POST, "/", &headers, packed.clone()).await.expect("an answer")
    };
    let reply = post(&packed, &[]).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let reply = post(body.as_bytes(), &[]).await;
    assert_eq!((reply.status, code(&reply)), (403, "SignatureDoesNotMatch"), "what it inflates to was never sent");
    for repeated in [("x-amz-target", "AmazonSQS.DeleteQueue"), ("content-type", "text/plain")] {
        let reply = post(&packed, &[repeated]).await;
        assert_eq!(reply.status, 400, "{repeated:?}: {}", reply.text());
        assert_eq!(code(&reply), "IncompleteSignature", "{repeated:?}");
    }

    // Whoever saw a request cannot make another of it: not by the order of its query, not by dots in its path.
    let get = async |signed: &str, sent: &str| {
        let headers = key.sign(node.api, "GET", signed, &[], b"");
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        ask(node.api, Method::GET, sent, &headers, "").await.expect("an answer")
    };
    let good = "/?Action=GetQueueUrl&QueueName=jobs";
    assert_eq!(get(good, good).await.status, 200);
    let (one, two) = ("/?Action=GetQueueUrl&Action=ListQueues", "/?Action=ListQueues&Action=GetQueueUrl");
    for sent in [one, two] {
        let reply = get(one, sent).await;
        assert_eq!((reply.status, code(&reply)), (400, "MalformedInput"), "{sent}: {}", reply.text());
    }
    let path = "/000000000000/jobs?Action=GetQueueAttributes";
    assert_eq!(get(path, path).await.status, 200);
    for sent in [
        "/000000000000/./jobs?Action=GetQueueAttributes",
        "/000000000000//jobs?Action=GetQueueAttributes",
        "/000000000000/x/../jobs?Action=GetQueueAttributes",
        "/000000000000/%6aobs?Action=GetQueueAttributes",
    ] {
        let reply = get(path, sent).await;
        assert!(matches!(reply.status, 403 | 404), "{sent}: {} {}", reply.status, reply.text());
    }
    let reply = get("/?Action=ListQueues", "/000000000000/..?Action=ListQueues").await;
    assert_eq!(reply.status, 404, "{}", reply.text());
}

#[tokio::test]
async fn rule_25_a_list_of_queues_costs_a_page() {
    /// Queues of others than the one who asks: more than a page looks at.
    const OTHERS: usize = 2_100;
    const CONNECTIONS: usize = 16;
    let node = start("").await;
    let makers = (0..CONNECTIONS).map(async |maker| {
        let mut operator = MailboxClient::of(&node).await.expect("the node listens");
        for index in (maker..OTHERS).step_by(CONNECTIONS) {
            operator.topic(&format!("a{index:04}"), &json!({})).await.expect("made");
        }
    });
    futures_util::future::join_all(makers).await;
    let mut operator = MailboxClient::of(&node).await.expect("the node listens");
    for name in ["a9998", "a9999", "b"] {
        operator.topic(name, &json!({})).await.expect("made");
    }
    let names = |answer: &Value| -> Vec<String> {
        let urls = answer["QueueUrls"].as_array().cloned().unwrap_or_default();
        let name = |url: &Value| url.as_str().and_then(|url| url.rsplit('/').next()).unwrap_or_default().to_owned();
        urls.iter().map(name).collect()
    };
    let everything = key(&node, &["mailbox:*:*"]).await;
    let all = done(&node, &everything, "ListQueues", json!({})).await;
    assert_eq!((names(&all).len(), all.get("NextToken")), (1_000, None), "a page, and no token that nobody asked for");

    let few = key(&node, &["mailbox:send:a9998", "mailbox:send:b"]).await;
    let first = done(&node, &few, "ListQueues", json!({})).await;
    assert_eq!(names(&first), [""; 0], "the first page ends before its queues");
    let (mut seen, mut token) = (Vec::new(), first["NextToken"].clone());
    assert!(token.is_string(), "and says so: {first}");
    while !token.is_null() {
        let page = done(&node, &few, "ListQueues", json!({"NextToken": token})).await;
        seen.extend(names(&page));
        token = page["NextToken"].clone();
    }
    let count = |name: &str| seen.iter().filter(|seen| *seen == name).count();
    assert_eq!((count("a9998"), count("a9999"), count("b")), (1, 0, 1), "{seen:?}");
    let near = names(&done(&node, &few, "ListQueues", json!({"QueueNamePrefix": "b"})).await);
    assert_eq!(near.first().map(String::as_str), Some("b"), "a prefix is looked up, not walked to");
}

#[test]
fn rule_25_attributes_without_effect_say_so() {
    let page = include_str!("../../../../../docs/sqs.md");
    let (_, section) = page.split_once("## Kept and shown, without effect").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let without_effect = [
        "Policy",
        "KmsMasterKeyId",
        "KmsDataKeyReusePeriodSeconds",
        "SqsManagedSseEnabled",
        "FifoThroughputLimit",
        "AddPermission",
    ];
    for name in without_effect {
        assert!(section.contains(&format!("`{name}`")), "{name} is not named");
    }
}

#[tokio::test]
async fn presigned_requests_do_the_whole_job_of_a_queue() {
    let node = start("sqs.presigned = true\n").await;
    let key = key(&node, &["mailbox:*:*"]).await;
    let send = async |target: String, method: Method, body: &str| {
        let form = [("content-type", "application/x-www-form-urlencoded")];
        let headers = if body.is_empty() { &[][..] } else { &form };
        ask(node.api, method, &target, headers, body.to_owned()).await.expect("an answer")
    };
    let get = async |target: &str| send(key.presign(node.api, "GET", target, 60, b""), Method::GET, "").await;
    assert_eq!(get("/?Action=CreateQueue&QueueName=jobs").await.status, 200);
    let sent = get("/000000000000/jobs?Action=SendMessage&MessageBody=by%20address%2B").await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    let form = "Action=SendMessage&MessageBody=by+form";
    let target = key.presign(node.api, "POST", "/000000000000/jobs", 60, form.as_bytes());
    assert_eq!(send(target.clone(), Method::POST, form).await.status, 200);
    let other = send(target, Method::POST, "Action=SendMessage&MessageBody=by+forge").await;
    assert_eq!((other.status, code(&other)), (403, "SignatureDoesNotMatch"), "the body is covered");
    let received = get("/000000000000/jobs?Action=ReceiveMessage&MaxNumberOfMessages=10").await.text();
    assert!(received.contains("<Body>by address+</Body>") && received.contains("<Body>by form</Body>"), "{received}");

    let good = key.presign(node.api, "GET", "/?Action=ListQueues", 60, b"");
    assert_eq!(send(good.clone(), Method::GET, "").await.status, 200);
    assert_eq!(send(good.clone(), Method::GET, "").await.status, 200, "it is good until it expires");
    for (from, to, status, refused) in [
        ("ListQueues", "PurgeQueue", 403, "SignatureDoesNotMatch"),
        ("X-Amz-Expires=60", "X-Amz-Expires=600", 403, "SignatureDoesNotMatch"),
        ("X-Amz-Expires=60", "X-Amz-Expires=604801", 400, "IncompleteSignature"),
        ("&X-Amz-Signature", "&x=1&X-Amz-Signature", 403, "SignatureDoesNotMatch"),
        ("us-east-1", "us-west-1", 403, "SignatureDoesNotMatch"),
    ] {
        assert!(good.contains(from), "{good}");
        let reply = send(good.replace(from, to), Method::GET, "").await;
        assert_eq!((reply.status, code(&reply)), (status, refused), "{to}: {}", reply.text());
    }
    let strict = start("").await;
    let target = key.presign(strict.api, "GET", "/?Action=ListQueues", 60, b"");
    let reply = ask(strict.api, Method::GET, &target, &[], "").await.expect("an answer");
    assert_eq!((reply.status, code(&reply)), (403, "InvalidSecurity"), "off unless the operator wants it");
}

#[tokio::test]
async fn ids_of_messages_are_uuids_here_and_either_form_finds_them_there() {
    let node = start("").await;
    let key = key(&node, &["mailbox:*:*"]).await;
    done(&node, &key, "CreateQueue", json!({"QueueName": "jobs"})).await;
    let sent = done(&node, &key, "SendMessage", json!({"QueueUrl": "jobs", "MessageBody": "x"})).await;
    let uuid = sent["MessageId"].as_str().expect("an id");
    let dashes: Vec<usize> = uuid.match_indices('-').map(|(at, _)| at).collect();
    assert_eq!((uuid.len(), dashes), (36, vec![8, 13, 18, 23]), "{uuid}");
    let mut operator = MailboxClient::of(&node).await.expect("the node listens");
    let shown = operator.get(&format!("/v1/messages/{uuid}")).await.expect("found by the id of SQS");
    let ulid = shown["message"]["msg_id"].as_str().expect("an id").to_owned();
    assert_eq!(ulid.len(), 26);
    assert_eq!(
        operator.get(&format!("/v1/messages/{ulid}")).await.expect("found by its own")["message"]["msg_id"],
        ulid
    );
}

#[tokio::test]
async fn queues_of_separate_regions_do_not_see_each_other() {
    let node = start("sqs.regions = \"separate\"\n").await;
    let here = key(&node, &["mailbox:*:*"]).await;
    let there = here.in_region("eu-west-1");
    for (key, delay) in [(&here, "1"), (&there, "2")] {
        let attributes = json!({"DelaySeconds": delay});
        done(&node, key, "CreateQueue", json!({"QueueName": "jobs", "Attributes": attributes})).await;
    }
    done(&node, &there, "CreateQueue", json!({"QueueName": "dead"})).await;
    for (key, count, delay) in [(&here, 1, "1"), (&there, 2, "2")] {
        let listed = done(&node, key, "ListQueues", json!({})).await;
        assert_eq!(listed["QueueUrls"].as_array().map(Vec::len), Some(count), "{listed}");
        let asked = json!({"QueueUrl": "jobs", "AttributeNames": ["DelaySeconds", "QueueArn"]});
        let arn = format!("arn:aws:sqs:{}:000000000000:jobs", key.region);
        let shown = done(&node, key, "GetQueueAttributes", asked).await;
        assert_eq!(shown["Attributes"], json!({"DelaySeconds": delay, "QueueArn": arn}));
    }
    let missing = here.call(node.api, "GetQueueUrl", r#"{"QueueName":"dead"}"#).await;
    assert_eq!(code(&missing), "AWS.SimpleQueueService.NonExistentQueue");
    let policy = |arn: &str| json!({"deadLetterTargetArn": arn, "maxReceiveCount": 3}).to_string();
    let dead = "arn:aws:sqs:eu-west-1:000000000000:dead";
    let set = json!({"QueueUrl": "jobs", "Attributes": {"RedrivePolicy": policy(dead)}});
    let reply = here.call(node.api, "SetQueueAttributes", &set.to_string()).await;
    assert_eq!((reply.status, code(&reply)), (400, "InvalidParameterValue"), "{}", reply.text());
    done(&node, &there, "SetQueueAttributes", set).await;
    let asked = json!({"QueueUrl": "jobs", "AttributeNames": ["RedrivePolicy"]});
    let shown = done(&node, &there, "GetQueueAttributes", asked).await;
    assert!(shown["Attributes"]["RedrivePolicy"].as_str().is_some_and(|text| text.contains(dead)), "{shown}");
    let sources = done(&node, &there, "ListDeadLetterSourceQueues", json!({"QueueUrl": "dead"})).await;
    assert!(sources["queueUrls"][0].as_str().is_some_and(|url| url.ends_with("/000000000000/jobs")), "{sources}");
    // A right to one region is the prefix of its topics.
    let confined = key(&node, &["mailbox:*:eu-west-1.*"]).await;
    let reply = confined.call(node.api, "GetQueueUrl", r#"{"QueueName":"jobs"}"#).await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    done(&node, &confined.in_region("eu-west-1"), "GetQueueUrl", json!({"QueueName": "jobs"})).await;
}
