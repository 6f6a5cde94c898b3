//! The surface as a whole: requests in both protocols through the layers, and what comes back.

use http::{HeaderMap, HeaderValue, header};
use serde_json::Value;

use super::model::{
    AddPermission, CancelMessageMoveTask, ChangeMessageVisibility, ChangeMessageVisibilityBatch, CreateQueue,
    DeleteMessage, DeleteMessageBatch, GetQueueAttributes, GetQueueUrl, ListDeadLetterSourceQueues,
    ListMessageMoveTasks, ListQueues, OfQueue, ReceiveMessage, RemovePermission, SendMessage, SendMessageBatch,
    SetQueueAttributes, StartMessageMoveTask, TagQueue, UntagQueue,
};
use super::*;

mod refusals;
mod surface;

/// For each action its name, a request as clients write it in JSON, and the same as they write it as a form.
const REQUESTS: &str = include_str!("tests/requests.txt");

fn requests() -> Vec<(Action, &'static str, &'static str)> {
    let mut lines = REQUESTS.lines();
    let mut next = || Some((Action::parse(lines.next()?).expect("an action"), lines.next()?, lines.next()?));
    std::iter::from_fn(&mut next).collect()
}

/// Reads a request in both protocols, and returns it as both understood it.
fn in_both<T>(json: &str, form: &str) -> String
where
    T: DeserializeOwned + FromForm + PartialEq + std::fmt::Debug,
{
    let from_json: T = json::decode(json.as_bytes(), None).expect(json);
    let form = Form::read(None, form.as_bytes()).expect(form);
    let from_form: T = query::decode(&form).expect("the same request");
    assert_eq!(from_json, from_form);
    format!("{from_json:?}")
}

#[test]
fn both_protocols_say_the_same() {
    let requests = requests();
    let covered: Vec<Action> = requests.iter().map(|(action, ..)| *action).collect();
    assert_eq!(covered, Action::ALL);
    for (action, json, form) in requests {
        assert_eq!(Form::read(None, form.as_bytes()).and_then(|form| form.action()), Ok(action));
        let read: fn(&str, &str) -> String = match action {
            Action::AddPermission => in_both::<AddPermission>,
            Action::CancelMessageMoveTask => in_both::<CancelMessageMoveTask>,
            Action::ChangeMessageVisibility => in_both::<ChangeMessageVisibility>,
            Action::ChangeMessageVisibilityBatch => in_both::<ChangeMessageVisibilityBatch>,
            Action::CreateQueue => in_both::<CreateQueue>,
            Action::DeleteMessage => in_both::<DeleteMessage>,
            Action::DeleteMessageBatch => in_both::<DeleteMessageBatch>,
            Action::DeleteQueue | Action::ListQueueTags | Action::PurgeQueue => in_both::<OfQueue>,
            Action::GetQueueAttributes => in_both::<GetQueueAttributes>,
            Action::GetQueueUrl => in_both::<GetQueueUrl>,
            Action::ListDeadLetterSourceQueues => in_both::<ListDeadLetterSourceQueues>,
            Action::ListMessageMoveTasks => in_both::<ListMessageMoveTasks>,
            Action::ListQueues => in_both::<ListQueues>,
            Action::ReceiveMessage => in_both::<ReceiveMessage>,
            Action::RemovePermission => in_both::<RemovePermission>,
            Action::SendMessage => in_both::<SendMessage>,
            Action::SendMessageBatch => in_both::<SendMessageBatch>,
            Action::SetQueueAttributes => in_both::<SetQueueAttributes>,
            Action::StartMessageMoveTask => in_both::<StartMessageMoveTask>,
            Action::TagQueue => in_both::<TagQueue>,
            Action::UntagQueue => in_both::<UntagQueue>,
        };
        let understood = read(json, form);
        // Every member is in the samples, so none may be missed; a value has its text or its bytes.
        let missing = understood.replace("string_value: None", "").replace("binary_value: None", "");
        let has_gaps = action != Action::DeleteMessageBatch && missing.contains("None");
        assert!(!has_gaps, "{action:?}: {understood}");
        let texts = strings(&serde_json::from_str(json).expect("json"));
        for text in texts {
            assert!(understood.contains(&format!("{text:?}")), "{action:?} lacks {text:?}: {understood}");
        }
    }
}

/// Every string in a value, names of members aside.
fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(strings).collect(),
        Value::Object(members) => members.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn wrong_json_is_a_serialization_exception_and_nothing_more() {
    let read = |body: &[u8]| json::decode::<SendMessage>(body, None);
    for body in [
        &br#"{"MessageBody":5}"#[..],
        br#"{"MessageBody":["a"]}"#,
        br#"{"DelaySeconds":"5"}"#,
        br#"{"DelaySeconds":1.5}"#,
        br#"{"DelaySeconds":99999999999999999999}"#,
        br#"{"DelaySeconds":true}"#,
        br#"{"MessageAttributes":[]}"#,
        br#"{"MessageAttributes":{"a":["String","b"]}}"#,
        br#"{"MessageAttributes":{"a":"b"}}"#,
        br#"{"MessageAttributes":{"a":null}}"#,
        br#"{"MessageAttributes":{"a":{"StringValue":1}}}"#,
        br#"{"QueueUrl":{}}"#,
        br#"{"MessageBody":"a","MessageBody":"b"}"#,
        br#"["http://node/0/jobs","text"]"#,
        br#""text""#,
        b"null",
        b"7",
        b"{",
        br#"{"MessageBody":"a"#,
        br#"{"MessageBody":"\ud800"}"#,
        b"{\"MessageBody\":\"\xff\"}",
        b"{\"MessageBody\":\"a\x01\"}",
        br#"{"MessageBody":"a"} x"#,
        b"\xff\xfe",
        "[".repeat(100_000).as_bytes(),
    ] {
        let error = read(body).expect_err("wrong");
        assert_eq!((error.shape, error.status.as_u16()), ("SerializationException", 400), "{error:?}");
        assert!(!error.message.is_empty() && error.message.len() <= 512, "{error:?}");
        let error = json::decode::<SendMessage>(body, Some("http://node/0/jobs")).expect_err("wrong on a path, too");
        assert_eq!(error.shape, "SerializationException", "{error:?}");
    }
    let batch = |body: &str| json::decode::<SendMessageBatch>(body.as_bytes(), None).map_err(|error| error.shape);
    assert_eq!(batch(r#"{"Entries":[["a","b"]]}"#), Err("SerializationException"));
    assert_eq!(batch(r#"{"Entries":{"Id":"a"}}"#), Err("SerializationException"));
    assert_eq!(batch(r#"{"Entries":[null]}"#), Err("SerializationException"));
}

#[test]
fn members_may_be_missing_null_or_unknown() {
    for body in ["", " \n", "{}", r#"{"QueueUrl":null,"Attributes":null}"#, r#"{"Color":{"deep":[1,{"a":null}]}}"#] {
        let request: SetQueueAttributes = json::decode(body.as_bytes(), None).expect(body);
        assert_eq!(request, SetQueueAttributes::default(), "{body:?}");
    }
    let form = Form::read(Some("Action=SetQueueAttributes&Color=blue&X-Amz-Date=x&&="), b"").expect("a form");
    assert_eq!(query::decode::<SetQueueAttributes>(&form), Ok(SetQueueAttributes::default()));
}

#[test]
fn the_queue_of_the_path_stands_in_for_one_not_named() {
    let path = "http://node/000000000000/jobs";
    for (body, expected) in [
        ("", path),
        ("{}", path),
        (r#"{"QueueUrl":null}"#, path),
        (r#"{"QueueUrl":"http://node/000000000000/other"}"#, "http://node/000000000000/other"),
    ] {
        let request: OfQueue = json::decode(body.as_bytes(), Some(path)).expect(body);
        assert_eq!(request.queue_url.as_deref(), Some(expected), "{body:?}");
    }
    for (body, expected) in [("", path), ("QueueUrl=other", "other")] {
        let mut form = Form::read(None, body.as_bytes()).expect(body);
        form.default_queue_url(path);
        assert_eq!(query::decode::<OfQueue>(&form).expect(body).queue_url.as_deref(), Some(expected), "{body:?}");
    }
}

#[test]
fn paths_of_queues_begin_with_an_account_of_digits() {
    for (path, is_sqs, queue) in [
        ("/", true, None),
        ("/000000000000/jobs", true, Some("/000000000000/jobs")),
        ("/000000000000/jobs.fifo/", true, Some("/000000000000/jobs.fifo")),
        ("/1/j", true, Some("/1/j")),
        ("/v1/topics", false, None),
        ("/000000000000", false, None),
        ("/000000000000/", false, None),
        ("/000000000000//", false, None),
        ("/000000000000/.", false, None),
        ("/000000000000/..", false, None),
        ("/000000000000/../", false, None),
        ("/000000000000/a/b", false, None),
        ("//a", false, None),
        ("", false, None),
    ] {
        assert_eq!((is_sqs_path(path), queue_path(path)), (is_sqs, queue), "{path}");
    }
}

fn headers(target: Option<&'static str>, content_type: Option<&'static str>) -> HeaderMap {
    let target = target.map(|value| (protocol::TARGET_HEADER, HeaderValue::from_static(value)));
    let content_type = content_type.map(|value| (header::CONTENT_TYPE, HeaderValue::from_static(value)));
    target.into_iter().chain(content_type).collect()
}

#[test]
fn headers_tell_the_protocol_and_in_json_the_action() {
    let (send, form) = (Some("AmazonSQS.SendMessage"), Some("application/x-www-form-urlencoded; charset=utf-8"));
    for (target, content_type, expected) in [
        (send, Some("application/x-amz-json-1.0"), Some(Ok(Action::SendMessage))),
        (send, Some("application/x-amz-json-1.1"), Some(Ok(Action::SendMessage))),
        (send, Some("Application/JSON; charset=utf-8"), Some(Ok(Action::SendMessage))),
        (send, None, Some(Ok(Action::SendMessage))),
        (send, Some(""), Some(Ok(Action::SendMessage))),
        (send, Some("text/plain"), Some(Err("UnknownOperationException"))),
        (send, form, Some(Err("UnknownOperationException"))),
        (Some("AmazonSQS.Fly"), Some("application/x-amz-json-1.0"), Some(Err("UnknownOperationException"))),
        (Some("SendMessage"), None, Some(Err("UnknownOperationException"))),
        (Some("DynamoDB.SendMessage"), None, Some(Err("UnknownOperationException"))),
        (Some(""), None, Some(Err("UnknownOperationException"))),
        (None, Some("application/x-amz-json-1.0"), Some(Err("UnknownOperationException"))),
        (None, form, None),
        (None, Some("text/plain"), None),
        (None, None, None),
    ] {
        let headers = headers(target, content_type);
        let action =
            (Protocol::of(&headers) == Protocol::Json).then(|| json::action_of(&headers).map_err(|error| error.shape));
        assert_eq!(action, expected, "{target:?} {content_type:?}");
    }
}

#[test]
fn forms_are_read_as_they_were_meant() {
    let texts = |form: &str| {
        let form = Form::read(Some(form), b"").expect(form);
        query::decode::<GetQueueAttributes>(&form).expect("no numbers in it").attribute_names.unwrap_or_default()
    };
    for (form, expected) in [
        ("AttributeName=All", &["All"][..]),
        ("AttributeName.1=b&AttributeName.10=d&AttributeName.2=c", &["b", "c", "d"]),
        ("AttributeName.7=x", &["x"]),
        ("AttributeName.x=y&AttributeName.=z&AttributeName.-1=z&AttributeName.99999999999=z", &[]),
        ("AttributeNames.1=x", &[]),
        ("AttributeName.1=a%2Bb+c%20d", &["a+b c d"]),
    ] {
        assert_eq!(texts(form), expected, "{form}");
    }
    let alone = Form::read(None, b"Attribute.Name=DelaySeconds&Attribute.Value=5").expect("a form");
    let request: SetQueueAttributes = query::decode(&alone).expect("a request");
    let expected = [("DelaySeconds".to_owned(), "5".to_owned())];
    assert_eq!(request.attributes, Some(expected.into()));

    // A form that was signed as it is may repeat a name; in a query, whose order no signature keeps, it may not.
    let last = Form::read(None, b"QueueName=a&QueueName=b").expect("a form");
    assert_eq!(last.get("QueueName"), Some("b"));
    for twice in ["QueueName=a&QueueName=b", "QueueName=a&QueueName=a", "QueueName=a&Queue%4eame=b"] {
        assert_eq!(Form::read(Some(twice), b"").map_err(|error| error.code).err(), Some("MalformedInput"), "{twice}");
    }
    let body_first = Form::read(Some("QueueName=a&Action=x"), b"QueueName=b").expect("a form");
    assert_eq!((body_first.get("QueueName"), body_first.get("Action")), (Some("b"), Some("x")));
}

#[test]
fn wrong_forms_are_refused_by_name() {
    for form in ["DelaySeconds=x", "DelaySeconds=", "DelaySeconds=1.5", "DelaySeconds=99999999999999999999"] {
        let form = Form::read(None, form.as_bytes()).expect("a form");
        let error = query::decode::<SendMessage>(&form).expect_err("no number");
        assert_eq!((error.code, error.status.as_u16()), ("InvalidParameterValue", 400));
        assert!(error.message.contains("DelaySeconds"), "{error:?}");
    }
    for form in [&b"MessageBody=%ff"[..], b"\xff=1", b"MessageBody=%C3"] {
        assert_eq!(Form::read(None, form).map_err(|error| error.code).err(), Some("MalformedInput"), "{form:?}");
    }
    for (form, code) in [("", "MissingAction"), ("Action=Fly", "InvalidAction"), ("Action=", "InvalidAction")] {
        let form = Form::read(Some(form), b"").expect("a form");
        assert_eq!(form.action().map_err(|error| error.code), Err(code));
    }
}
