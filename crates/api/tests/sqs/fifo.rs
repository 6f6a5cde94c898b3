//! Queues that keep order: groups, deduplication, sequence numbers, attempts, and receipts that are late.

use serde_json::{Value, json};

use crate::harness::{Node, invalid, merged, missing, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_needs_a_group_and_a_way_to_be_known_again() {
    let node = Node::start().await;
    let url = node.queue("jobs.fifo", json!({})).await;
    let send = |more: Value| merged(json!({"QueueUrl": url, "MessageBody": "hi"}), more);
    let unknown = "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided \
                   explicitly";
    let (good, over) = ("x!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~".to_owned(), "x".repeat(129));
    let long = format!(
        "Value {over} for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include alphanumeric and \
         punctuation characters. 1 to 128 in length."
    );
    node.all_refused(vec![
        (
            "SendMessage",
            send(json!({"MessageDeduplicationId": "d"})),
            missing("The request must contain the parameter MessageGroupId."),
        ),
        ("SendMessage", send(json!({"MessageGroupId": "g"})), invalid(unknown)),
        ("SendMessage", send(json!({"MessageGroupId": over, "MessageDeduplicationId": "d"})), invalid(&long)),
        (
            "SendMessage",
            send(json!({"MessageGroupId": "g", "MessageDeduplicationId": "a b"})),
            invalid(
                "Value a b for parameter MessageDeduplicationId is invalid. Reason: MessageDeduplicationId can only \
                 include alphanumeric and punctuation characters. 1 to 128 in length.",
            ),
        ),
        (
            "SendMessage",
            send(json!({"MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 2})),
            invalid(
                "Value 2 for parameter DelaySeconds is invalid. Reason: The request include parameter that is not \
                 valid for this queue type.",
            ),
        ),
    ])
    .await;
    let longest = "x".repeat(128);
    node.ok("SendMessage", send(json!({"MessageGroupId": longest, "MessageDeduplicationId": longest}))).await;
    node.ok("SendMessage", send(json!({"MessageGroupId": good, "MessageDeduplicationId": good, "DelaySeconds": 0})))
        .await;
    let messages = node.receive(&url, json!({"MaxNumberOfMessages": 10, "AttributeNames": ["All"]})).await;
    assert_eq!(messages[1]["Attributes"]["MessageGroupId"], json!(good));
    assert_eq!(messages[1]["Attributes"]["MessageDeduplicationId"], json!(good));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_is_the_message_it_repeats() {
    let node = Node::start().await;
    let url = node.queue("jobs.fifo", json!({})).await;
    let first = node.send_in(&url, "g", "id", "one").await;
    let again = node.send_in(&url, "g", "id", "another body").await;
    let elsewhere = node.send_in(&url, "h", "id", "another group").await;
    assert_eq!(first["MessageId"], again["MessageId"]);
    assert_eq!(first["MessageId"], elsewhere["MessageId"], "the whole queue knows it");
    assert_eq!(first["SequenceNumber"], again["SequenceNumber"]);
    let message = node.one(&url, json!({"AttributeNames": ["All"]})).await;
    assert_eq!((&message["Body"], &message["MessageId"]), (&json!("one"), &first["MessageId"]));
    assert_eq!(message["Attributes"]["SequenceNumber"], first["SequenceNumber"]);
    node.ok("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]})).await;
    let late = node.send_in(&url, "g", "id", "one").await;
    assert_eq!(late["MessageId"], first["MessageId"], "it is known after it is gone");
    assert!(node.bodies(&url).await.is_empty());
    node.ok("PurgeQueue", json!({"QueueUrl": url})).await;
    let new = node.send_in(&url, "g", "id", "one").await;
    assert_ne!(new["MessageId"], first["MessageId"], "a purge forgets what was known");
    assert!(text(&new["SequenceNumber"]) > text(&first["SequenceNumber"]));
    assert_eq!(text(&new["SequenceNumber"]).len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_are_found_by_content_and_within_groups_if_the_queue_says_so() {
    let node = Node::start().await;
    let attributes = json!({"ContentBasedDeduplication": "true", "DeduplicationScope": "messageGroup"});
    let url = node.queue("jobs.fifo", attributes).await;
    let send = |group: &str, body: &str, more: Value| {
        merged(json!({"QueueUrl": url, "MessageBody": body, "MessageGroupId": group}), more)
    };
    let mut seen = Vec::new();
    for (group, body, more) in [
        ("g", "same", json!({})),
        ("g", "same", json!({"MessageAttributes": {"a": {"DataType": "String", "StringValue": "other"}}})),
        ("h", "same", json!({})),
        ("g", "other", json!({})),
        ("g", "same", json!({"MessageDeduplicationId": "explicit"})),
    ] {
        seen.push(text(&node.ok("SendMessage", send(group, body, more)).await["MessageId"]));
    }
    assert_eq!(seen[0], seen[1], "attributes do not count");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 4);
    assert_eq!(node.attribute(&url, "ApproximateNumberOfMessages").await.as_deref(), Some("4"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_served_in_order_and_waits_for_what_is_in_flight() {
    let node = Node::start().await;
    let url = node.queue("jobs.fifo", json!({})).await;
    for (group, body) in [("g", "g1"), ("h", "h1"), ("g", "g2"), ("g", "g3")] {
        node.send_in(&url, group, body, body).await;
    }
    let messages = node.receive(&url, json!({"MaxNumberOfMessages": 10})).await;
    let bodies: Vec<String> = messages.iter().map(|message| text(&message["Body"])).collect();
    assert_eq!(bodies, ["g1", "g2", "g3", "h1"], "one group is taken before the next");
    node.send_in(&url, "g", "g4", "g4").await;
    let delete = |place: usize| json!({"QueueUrl": url, "ReceiptHandle": messages[place]["ReceiptHandle"]});
    node.ok("DeleteMessage", delete(0)).await;
    node.ok("DeleteMessage", delete(1)).await;
    assert!(node.bodies(&url).await.is_empty(), "one of the group is still in flight");
    let release = json!({"QueueUrl": url, "ReceiptHandle": messages[2]["ReceiptHandle"], "VisibilityTimeout": 0});
    node.ok("ChangeMessageVisibility", release).await;
    assert_eq!(node.bodies(&url).await, ["g3", "g4"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_receipt_is_refused_where_order_is_kept() {
    let node = Node::start().await;
    let url = node.queue("jobs.fifo", json!({})).await;
    node.send_in(&url, "g", "1", "hi").await;
    let late = text(&node.one(&url, json!({"VisibilityTimeout": 0})).await["ReceiptHandle"]);
    let delete = |handle: &str| json!({"QueueUrl": url, "ReceiptHandle": handle});
    let message =
        format!("Value {late} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.");
    node.refused("DeleteMessage", delete(&late), invalid(&message)).await;
    let batch = json!({"QueueUrl": url, "Entries": [{"Id": "a", "ReceiptHandle": late}]});
    let answer = node.ok("DeleteMessageBatch", batch).await;
    assert_eq!(
        answer,
        json!({"Failed": [
            {"Id": "a", "SenderFault": true, "Code": "InvalidParameterValue", "Message": message}
        ]})
    );
    let good = text(&node.one(&url, json!({})).await["ReceiptHandle"]);
    node.refused("DeleteMessage", delete(&late), invalid(&message)).await;
    for _ in 0..2 {
        node.ok("DeleteMessage", delete(&good)).await;
    }
    node.ok("DeleteMessage", delete(&late)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_is_answered_again_until_its_messages_are_touched() {
    let node = Node::start().await;
    let url = node.queue("jobs.fifo", json!({})).await;
    for body in ["1", "2", "3", "4"] {
        node.send_in(&url, "g", body, body).await;
    }
    fn attempt(id: &str, seconds: u32) -> Value {
        json!({"ReceiveRequestAttemptId": id, "MaxNumberOfMessages": 2, "VisibilityTimeout": seconds})
    }
    let first = node.receive(&url, attempt("a", 60)).await;
    assert_eq!(first.len(), 2);
    assert_eq!(node.receive(&url, attempt("a", 60)).await, first, "the same messages and receipts");
    assert!(node.receive(&url, attempt("b", 60)).await.is_empty(), "another attempt finds the group taken");
    node.ok("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": first[0]["ReceiptHandle"]})).await;
    assert!(node.receive(&url, attempt("a", 60)).await.is_empty(), "one of them is gone: this is a new receive");
    node.ok("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": first[1]["ReceiptHandle"]})).await;
    let second = node.receive(&url, attempt("a", 60)).await;
    assert_eq!((second.len(), &second[0]["Body"]), (2, &json!("3")), "and may be asked for again");
    assert_eq!(node.receive(&url, attempt("a", 60)).await, second);
    let change = json!({"QueueUrl": url, "ReceiptHandle": second[0]["ReceiptHandle"], "VisibilityTimeout": 0});
    node.ok("ChangeMessageVisibility", change).await;
    let third = node.receive(&url, attempt("a", 60)).await;
    assert!(third.iter().all(|message| message["ReceiptHandle"] != second[0]["ReceiptHandle"]), "{third:?}");
    for id in ["", "a b"] {
        let message = format!(
            "Value {id} for parameter ReceiveRequestAttemptId is invalid. Reason: ReceiveRequestAttemptId can only \
             include alphanumeric and punctuation characters. 1 to 128 in length."
        );
        let request = merged(json!({"QueueUrl": url}), attempt(id, 1));
        node.refused("ReceiveMessage", request, invalid(&message)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_whose_client_vanished_before_its_answer_can_be_repeated() {
    let node = Node::start().await;
    let url = node.queue("jobs.fifo", json!({})).await;
    for round in 0..5 {
        let (id, body) = (format!("attempt-{round}"), round.to_string());
        let attempt = json!({"ReceiveRequestAttemptId": id, "WaitTimeSeconds": 2, "VisibilityTimeout": 600});
        let asked = merged(json!({"QueueUrl": url}), attempt.clone()).to_string();
        let mut asking = Box::pin(node.post("ReceiveMessage", asked.as_bytes()));
        let waiters = || node.mailbox.node_stats().shards.iter().map(|shard| shard.numbers.waiters).sum::<u64>();
        while waiters() == 0 {
            assert!(futures_util::poll!(&mut asking).is_pending());
            tokio::task::yield_now().await;
        }
        // The message is on its way to this client when it closes its connection.
        node.send_in(&url, "g", &body, &body).await;
        drop(asking);
        let again = node.receive(&url, attempt).await;
        assert_eq!(again.len(), 1, "round {round}");
        assert_eq!(again[0]["Body"], json!(body));
        node.ok("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": again[0]["ReceiptHandle"]})).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_keeps_its_order_and_numbers_its_messages() {
    let node = Node::start().await;
    let url = node.queue("jobs.fifo", json!({"ContentBasedDeduplication": "true"})).await;
    let entries: Vec<Value> = (0..10)
        .map(|index| json!({"Id": format!("e{index}"), "MessageBody": index.to_string(), "MessageGroupId": "g"}))
        .collect();
    let answer = node.ok("SendMessageBatch", json!({"QueueUrl": url, "Entries": entries})).await;
    let numbers: Vec<String> =
        answer["Successful"].as_array().expect("all").iter().map(|sent| text(&sent["SequenceNumber"])).collect();
    assert!(numbers.len() == 10 && numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    let expected: Vec<String> = (0..10).map(|index| index.to_string()).collect();
    assert_eq!(node.bodies(&url).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_with_an_entry_that_lacks_its_ids_is_refused_as_a_whole() {
    let node = Node::start().await;
    let url = node.queue("jobs.fifo", json!({})).await;
    let by_content = node.queue("content.fifo", json!({"ContentBasedDeduplication": "true"})).await;
    let batch = |url: &str, wrong: Value| {
        let good = json!({"Id": "good", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"});
        json!({"QueueUrl": url, "Entries": [good, merged(json!({"Id": "wrong", "MessageBody": "y"}), wrong)]})
    };
    let no_group = missing("The request must contain the parameter MessageGroupId.");
    let no_id = invalid(
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly",
    );
    node.all_refused(vec![
        ("SendMessageBatch", batch(&url, json!({"MessageDeduplicationId": "e"})), no_group),
        ("SendMessageBatch", batch(&url, json!({"MessageGroupId": "g"})), no_id),
        ("SendMessageBatch", batch(&url, json!({})), no_id),
        ("SendMessageBatch", batch(&by_content, json!({})), no_group),
    ])
    .await;
    for url in [&url, &by_content] {
        assert_eq!(node.attribute(url, "ApproximateNumberOfMessages").await.as_deref(), Some("0"), "{url}");
    }
    node.ok("SendMessageBatch", batch(&by_content, json!({"MessageGroupId": "g"}))).await;
    let one_fails = batch(&url, json!({"MessageGroupId": "a b", "MessageDeduplicationId": "e"}));
    let answer = node.ok("SendMessageBatch", one_fails).await;
    assert_eq!(answer["Failed"][0]["Id"], "wrong", "an id that is there and wrong concerns its entry alone");
    assert_eq!(answer["Successful"][0]["Id"], "good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_whose_messages_come_back_goes_behind_the_groups_that_wait() {
    let node = Node::start().await;
    let url = node.queue("jobs.fifo", json!({})).await;
    for (group, body) in [("g", "g1"), ("h", "h1"), ("i", "i1")] {
        node.send_in(&url, group, body, body).await;
    }
    let short = json!({"VisibilityTimeout": 0});
    let mut bodies = Vec::new();
    for _ in 0..4 {
        bodies.push(text(&node.one(&url, short.clone()).await["Body"]));
    }
    assert_eq!(bodies, ["g1", "h1", "i1", "g1"], "received for no time at all");
    let message = node.one(&url, json!({"VisibilityTimeout": 600})).await;
    assert_eq!(message["Body"], "h1");
    let release = json!({"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0});
    node.ok("ChangeMessageVisibility", release).await;
    node.send_in(&url, "j", "j1", "j1").await;
    assert_eq!(node.bodies(&url).await, ["i1", "g1", "h1", "j1"], "behind those that waited, before what came later");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_hidden_for_longer_holds_back_those_after_it_and_none_before() {
    let node = Node::start().await;
    let url = node.queue("jobs.fifo", json!({})).await;
    for body in ["1", "2", "3", "4"] {
        node.send_in(&url, "g", body, body).await;
    }
    let messages = node.receive(&url, json!({"MaxNumberOfMessages": 3, "VisibilityTimeout": 1})).await;
    let hide = json!({"QueueUrl": url, "ReceiptHandle": messages[1]["ReceiptHandle"], "VisibilityTimeout": 600});
    node.ok("ChangeMessageVisibility", hide).await;
    let back = node.receive(&url, json!({"MaxNumberOfMessages": 10, "WaitTimeSeconds": 5})).await;
    let bodies: Vec<String> = back.iter().map(|message| text(&message["Body"])).collect();
    assert_eq!(bodies, ["1"], "the third waits for the second, as does the fourth, which nobody has had");
    node.ok("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": back[0]["ReceiptHandle"]})).await;
    assert!(node.bodies(&url).await.is_empty());
    node.ok("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": messages[1]["ReceiptHandle"]})).await;
    assert_eq!(node.bodies(&url).await, ["3", "4"]);
}
