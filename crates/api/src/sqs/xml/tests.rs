//! Answers and refusals as XML, letter by letter.

use super::*;
use crate::sqs::model::{Attributes, DeadLetterSources, MoveCanceled, MoveStarted, Moves, QueueUrl, Received, Tags};

fn map(pairs: &[(&str, &str)]) -> Map {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// An action, its answer and the XML of that.
type Row = (&'static str, ActionOutput, &'static str);

fn of_queues() -> Vec<Row> {
    let url = || "http://node/000000000000/jobs".to_owned();
    vec![
        ("DeleteQueue", ActionOutput::Nothing, ""),
        (
            "CreateQueue",
            ActionOutput::QueueUrl(QueueUrl { queue_url: url() }),
            "<CreateQueueResult><QueueUrl>http://node/000000000000/jobs</QueueUrl></CreateQueueResult>",
        ),
        (
            "ListQueues",
            ActionOutput::Queues(Queues { queue_urls: vec![url(), url()], next_token: Some("t".into()) }),
            "<ListQueuesResult><QueueUrl>http://node/000000000000/jobs</QueueUrl>\
             <QueueUrl>http://node/000000000000/jobs</QueueUrl><NextToken>t</NextToken></ListQueuesResult>",
        ),
        (
            "ListDeadLetterSourceQueues",
            ActionOutput::DeadLetterSources(DeadLetterSources { queue_urls: vec![url()], next_token: None }),
            "<ListDeadLetterSourceQueuesResult><QueueUrl>http://node/000000000000/jobs</QueueUrl>\
             </ListDeadLetterSourceQueuesResult>",
        ),
        (
            "GetQueueAttributes",
            ActionOutput::Attributes(Attributes { attributes: map(&[("DelaySeconds", "0"), ("Policy", "{\"a\":1}")]) }),
            "<GetQueueAttributesResult><Attribute><Name>DelaySeconds</Name><Value>0</Value></Attribute>\
             <Attribute><Name>Policy</Name><Value>{&quot;a&quot;:1}</Value></Attribute></GetQueueAttributesResult>",
        ),
        (
            "ListQueueTags",
            ActionOutput::Tags(Tags { tags: map(&[("team", "a&b")]) }),
            "<ListQueueTagsResult><Tag><Key>team</Key><Value>a&amp;b</Value></Tag></ListQueueTagsResult>",
        ),
    ]
}

fn of_messages() -> Vec<Row> {
    let full = Sent {
        id: Some("a".into()),
        message_id: "m".into(),
        md5_of_message_body: "b".into(),
        md5_of_message_attributes: Some("c".into()),
        md5_of_message_system_attributes: Some("d".into()),
        sequence_number: Some("00000000000000000001".into()),
    };
    let plain = Sent { message_id: "m".into(), md5_of_message_body: "b".into(), ..Sent::default() };
    let text =
        AttributeValue { data_type: Some("String".into()), string_value: Some("1 < 2".into()), binary_value: None };
    let bytes =
        AttributeValue { data_type: Some("Binary".into()), string_value: None, binary_value: Some("AP8=".into()) };
    let message = Message {
        message_id: "m".into(),
        receipt_handle: "r+/=".into(),
        md5_of_body: "b".into(),
        body: "a & <b>\r\n\t\"é\" 😀".into(),
        attributes: map(&[("SenderId", "AKID"), ("SentTimestamp", "1")]),
        md5_of_message_attributes: Some("c".into()),
        message_attributes: [("one".to_owned(), text), ("two".to_owned(), bytes)].into(),
    };
    let short = Message { message_id: "n".into(), ..Message::default() };
    let failed =
        Failed { id: "z".into(), sender_fault: true, code: "InvalidParameterValue".into(), message: "No.".into() };
    let settled = Done::Settled { id: "a".into() };
    vec![
        (
            "SendMessage",
            ActionOutput::Sent(plain),
            "<SendMessageResult><MessageId>m</MessageId><MD5OfMessageBody>b</MD5OfMessageBody></SendMessageResult>",
        ),
        (
            "SendMessageBatch",
            ActionOutput::Batch(Batch { successful: vec![Done::Sent(full)], failed: vec![failed] }),
            "<SendMessageBatchResult><SendMessageBatchResultEntry><Id>a</Id><MessageId>m</MessageId>\
             <MD5OfMessageBody>b</MD5OfMessageBody><MD5OfMessageAttributes>c</MD5OfMessageAttributes>\
             <MD5OfMessageSystemAttributes>d</MD5OfMessageSystemAttributes>\
             <SequenceNumber>00000000000000000001</SequenceNumber></SendMessageBatchResultEntry>\
             <BatchResultErrorEntry><Id>z</Id><SenderFault>true</SenderFault><Code>InvalidParameterValue</Code>\
             <Message>No.</Message></BatchResultErrorEntry></SendMessageBatchResult>",
        ),
        (
            "DeleteMessageBatch",
            ActionOutput::Batch(Batch { successful: vec![settled.clone()], failed: Vec::new() }),
            "<DeleteMessageBatchResult><DeleteMessageBatchResultEntry><Id>a</Id></DeleteMessageBatchResultEntry>\
             </DeleteMessageBatchResult>",
        ),
        (
            "ChangeMessageVisibilityBatch",
            ActionOutput::Batch(Batch { successful: vec![settled], failed: Vec::new() }),
            "<ChangeMessageVisibilityBatchResult><ChangeMessageVisibilityBatchResultEntry><Id>a</Id>\
             </ChangeMessageVisibilityBatchResultEntry></ChangeMessageVisibilityBatchResult>",
        ),
        (
            "ReceiveMessage",
            ActionOutput::Received(Received { messages: vec![message, short] }),
            "<ReceiveMessageResult><Message><MessageId>m</MessageId><ReceiptHandle>r+/=</ReceiptHandle>\
             <MD5OfBody>b</MD5OfBody><Body>a &amp; &lt;b&gt;&#13;\n\t&quot;é&quot; 😀</Body>\
             <Attribute><Name>SenderId</Name><Value>AKID</Value></Attribute>\
             <Attribute><Name>SentTimestamp</Name><Value>1</Value></Attribute>\
             <MD5OfMessageAttributes>c</MD5OfMessageAttributes>\
             <MessageAttribute><Name>one</Name><Value><StringValue>1 &lt; 2</StringValue>\
             <DataType>String</DataType></Value></MessageAttribute>\
             <MessageAttribute><Name>two</Name><Value><BinaryValue>AP8=</BinaryValue>\
             <DataType>Binary</DataType></Value></MessageAttribute></Message>\
             <Message><MessageId>n</MessageId><ReceiptHandle></ReceiptHandle><MD5OfBody></MD5OfBody><Body></Body>\
             </Message></ReceiveMessageResult>",
        ),
        (
            "ReceiveMessage",
            ActionOutput::Received(Received::default()),
            "<ReceiveMessageResult></ReceiveMessageResult>",
        ),
    ]
}

fn of_moves() -> Vec<Row> {
    let running = MoveTask {
        task_handle: Some("t".into()),
        status: "RUNNING",
        source_arn: "arn:1".into(),
        destination_arn: Some("arn:2".into()),
        max_number_of_messages_per_second: Some(5),
        approximate_number_of_messages_moved: 1,
        approximate_number_of_messages_to_move: Some(2),
        failure_reason: None,
        started_timestamp: 3,
    };
    let ended = MoveTask { status: "FAILED", failure_reason: Some("Gone"), ..MoveTask::default() };
    vec![
        (
            "StartMessageMoveTask",
            ActionOutput::MoveStarted(MoveStarted { task_handle: "t".into() }),
            "<StartMessageMoveTaskResult><TaskHandle>t</TaskHandle></StartMessageMoveTaskResult>",
        ),
        (
            "ListMessageMoveTasks",
            ActionOutput::Moves(Moves { results: vec![running, ended] }),
            "<ListMessageMoveTasksResult><ListMessageMoveTasksResultEntry><TaskHandle>t</TaskHandle>\
             <Status>RUNNING</Status><SourceArn>arn:1</SourceArn><DestinationArn>arn:2</DestinationArn>\
             <MaxNumberOfMessagesPerSecond>5</MaxNumberOfMessagesPerSecond>\
             <ApproximateNumberOfMessagesMoved>1</ApproximateNumberOfMessagesMoved>\
             <ApproximateNumberOfMessagesToMove>2</ApproximateNumberOfMessagesToMove>\
             <StartedTimestamp>3</StartedTimestamp></ListMessageMoveTasksResultEntry>\
             <ListMessageMoveTasksResultEntry><Status>FAILED</Status><SourceArn></SourceArn>\
             <ApproximateNumberOfMessagesMoved>0</ApproximateNumberOfMessagesMoved>\
             <FailureReason>Gone</FailureReason><StartedTimestamp>0</StartedTimestamp>\
             </ListMessageMoveTasksResultEntry></ListMessageMoveTasksResult>",
        ),
        (
            "CancelMessageMoveTask",
            ActionOutput::MoveCanceled(MoveCanceled { approximate_number_of_messages_moved: 7 }),
            "<CancelMessageMoveTaskResult><ApproximateNumberOfMessagesMoved>7</ApproximateNumberOfMessagesMoved>\
             </CancelMessageMoveTaskResult>",
        ),
    ]
}

#[test]
fn answers_are_flattened_as_the_model_says() {
    let id = CorrId::parse(b"id-1").expect("plain");
    for (action, given, expected) in of_queues().into_iter().chain(of_messages()).chain(of_moves()) {
        let xml = String::from_utf8(answer(action, &given, &id)).expect("text");
        let expected = format!(
            "<?xml version=\"1.0\"?><{action}Response xmlns=\"http://queue.amazonaws.com/doc/2012-11-05/\">{expected}\
             <ResponseMetadata><RequestId>id-1</RequestId></ResponseMetadata></{action}Response>"
        );
        assert_eq!(xml, expected);
    }
}

#[test]
fn text_cannot_break_out_or_be_lost() {
    for (text, expected) in [
        ("", ""),
        ("plain", "plain"),
        ("]]>&amp;<!--", "]]&gt;&amp;amp;&lt;!--"),
        ("\r", "&#13;"),
        ("a\r\nb\n\tc", "a&#13;\nb\n\tc"),
        ("\0\u{1}\u{b}\u{1f}", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
        ("\u{fffe}x\u{ffff}", "\u{fffd}x\u{fffd}"),
        ("é😀\u{7f}\u{85}", "é😀\u{7f}\u{85}"),
    ] {
        let mut out = String::new();
        escape(&mut out, text);
        assert_eq!(out, expected, "{text:?}");
    }
}
