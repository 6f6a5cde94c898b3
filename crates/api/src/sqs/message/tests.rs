//! Messages: what is legal, how it is stored, and how it comes back.

use super::*;

fn text(data_type: &str, value: &str) -> AttributeValue {
    AttributeValue { data_type: Some(data_type.into()), string_value: Some(value.into()), binary_value: None }
}

fn bytes(data_type: &str, base64: &str) -> AttributeValue {
    AttributeValue { data_type: Some(data_type.into()), string_value: None, binary_value: Some(base64.into()) }
}

fn draft(body: &str) -> Draft {
    Draft { body: Some(body.to_owned()), ..Draft::default() }
}

fn with(name: &str, value: AttributeValue) -> Draft {
    Draft { attributes: [(name.to_owned(), value)].into(), ..draft("hi") }
}

fn standard() -> TopicSettings {
    attributes::defaults(TopicSettings::default(), false)
}

fn fifo(labels: &[(&str, &str)]) -> TopicSettings {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    TopicSettings { labels, ..attributes::defaults(TopicSettings::default(), true) }
}

fn made(draft: Draft, settings: &TopicSettings) -> Result<(Outgoing, Sent), SqsError> {
    draft.outgoing(settings, Origin { sender: "me", corr_id: "corr", trace: None })
}

#[test]
fn characters_that_may_not_be_in_a_message_are_found() {
    for (body, found) in [
        ("plain", None),
        ("\t\n\r \u{7f}\u{80}äöü\u{D7FF}\u{E000}\u{FFFD}\u{10000}\u{10FFFF}", None),
        ("a\u{0}", Some('\u{0}')),
        ("a\u{8}b\u{1}", Some('\u{8}')),
        ("\u{b}", Some('\u{b}')),
        ("\u{1f}", Some('\u{1f}')),
        ("a\u{FFFE}", Some('\u{FFFE}')),
        ("\u{FFFF}", Some('\u{FFFF}')),
    ] {
        assert_eq!(illegal_character(body), found, "{body:?}");
        let result = made(draft(body), &standard());
        assert_eq!(result.err().map(|error| error.shape), found.map(|_| "InvalidMessageContents"), "{body:?}");
    }
}

#[test]
fn a_body_is_needed() {
    for body in [None, Some(String::new())] {
        let error = made(Draft { body, ..Draft::default() }, &standard()).expect_err("no body");
        assert_eq!(
            (error.code, &*error.message),
            ("MissingParameter", "The request must contain the parameter MessageBody.")
        );
    }
}

#[test]
fn the_size_counts_body_and_attributes_and_is_held_to_the_queue() {
    let settings = TopicSettings { payload_bytes_max: 1024, ..standard() };
    let sized = |body: usize, draft: Draft| Draft { body: Some("x".repeat(body)), ..draft };
    // "n" + "String" + "value" are 12 bytes, "n" + "Binary" + 3 bytes are 10.
    for (draft, fits) in [
        (sized(1024, Draft::default()), true),
        (sized(1025, Draft::default()), false),
        (sized(1012, with("n", text("String", "value"))), true),
        (sized(1013, with("n", text("String", "value"))), false),
        (sized(1014, with("n", bytes("Binary", "AAEC"))), true),
        (sized(1015, with("n", bytes("Binary", "AAEC"))), false),
    ] {
        let result = made(draft, &settings);
        assert_eq!(result.is_ok(), fits);
        if let Err(error) = result {
            let message = "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.";
            assert_eq!((error.code, &*error.message), ("InvalidParameterValue", message));
        }
    }
    assert_eq!(with("n", bytes("Binary", "AA==")).size(), 2 + 1 + 6 + 1);
}

#[test]
fn names_of_attributes_are_held_to_the_rules() {
    let (max, over) = ("n".repeat(256), "n".repeat(257));
    for (name, fits) in [
        ("a", true),
        ("A-b_c.9", true),
        ("AWSome", true),
        (&max, true),
        (&over, false),
        ("", false),
        (".a", false),
        ("a.", false),
        ("a..b", false),
        ("AWS.a", false),
        ("aws.a", false),
        ("amazon.a", false),
        ("Amazon.A", false),
        ("a b", false),
        ("ä", false),
        ("$type.a", false),
    ] {
        assert_eq!(is_attribute_name(name), fits, "{name}");
        let result = made(with(name, text("String", "v")), &standard());
        assert_eq!(result.err().map(|error| error.code), (!fits).then_some("InvalidParameterValue"), "{name}");
    }
}

#[test]
fn types_and_values_of_attributes_are_held_to_the_rules() {
    let long = format!("String.{}", "x".repeat(250));
    let digits = "1".repeat(38);
    for (value, expected) in [
        (text("String", "v"), None),
        (text("String.custom", "v"), None),
        (text("Number", "42"), None),
        (text("Number.int", "-4.2e10"), None),
        (text("Number", &digits), None),
        (
            text("Number", &format!("{digits}1")),
            Some("Can't cast the value of message (user) attribute 'n' to a number."),
        ),
        (text("Number", "x"), Some("Can't cast the value of message (user) attribute 'n' to a number.")),
        (bytes("Binary", "AAEC"), None),
        (bytes("Binary.gif", "AA"), None),
        (text("String", ""), Some("Message (user) attribute 'n' must contain a non-empty value of type 'String'.")),
        (bytes("Binary", ""), Some("Message (user) attribute 'n' must contain a non-empty value of type 'Binary'.")),
        (text("Binary", "x"), Some("Message (user) attribute 'n' must contain a non-empty value of type 'Binary'.")),
        (
            bytes("Number", "AA=="),
            Some("Message (user) attribute 'n' must contain a non-empty value of type 'Number'."),
        ),
        (AttributeValue::default(), Some("The message attribute 'n' must contain a non-empty attribute type.")),
        (
            text("Strings", "v"),
            Some(
                "The type of message (user) attribute 'n' is invalid. You must use only the \
            following supported type prefixes: Binary, Number, String.",
            ),
        ),
        (
            text(&long, "v"),
            Some(
                "The type of message (user) attribute 'n' is invalid. You must use only the \
            following supported type prefixes: Binary, Number, String.",
            ),
        ),
        (bytes("Binary", "*"), Some("BinaryValue of 'n' is not base64")),
        (
            text("String", "a\u{8}"),
            Some(
                "Invalid binary character '#x8' was found in the value of message (user) attribute 'n', the set of \
                 allowed characters is #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
            ),
        ),
    ] {
        let said = format!("{value:?}");
        let message = made(with("n", value), &standard()).err().map(|error| error.message);
        assert_eq!(message.as_deref(), expected, "{said}");
    }
}

#[test]
fn at_most_ten_attributes_go_with_a_message() {
    let many = |count: usize| Draft {
        attributes: (0..count).map(|index| (format!("n{index}"), text("String", "v"))).collect(),
        ..draft("hi")
    };
    assert!(made(many(10), &standard()).is_ok());
    let error = made(many(11), &standard()).expect_err("eleven");
    assert_eq!(error.message, "Number of message attributes [11] exceeds the allowed maximum [10].");
}

#[test]
fn numbers_are_told_from_other_texts() {
    for good in
        ["0", "-1", "+1", "1.5", ".5", "5.", "1e5", "1E-128", "-12.5e+3", "000000000000000000000000000000000000000001"]
    {
        assert!(is_number(good), "{good}");
    }
    for bad in ["", "-", ".", "e5", "1e", "1e999", "1e+-5", "1,5", "0x10", "NaN", "1 ", "--1", "1.2.3"] {
        assert!(!is_number(bad), "{bad}");
    }
}

#[test]
fn delays_depend_on_the_kind_of_queue() {
    let delayed = |seconds| Draft { delay_seconds: Some(seconds), ..draft("hi") };
    for (seconds, expected) in [(0, Ok(Some(0))), (900, Ok(Some(900_000))), (901, Err(())), (-1, Err(()))] {
        let result = made(delayed(seconds), &standard()).map(|(outgoing, _)| outgoing.delay_ms);
        match (result, expected) {
            (Err(error), Err(())) => assert_eq!(
                error.message,
                format!(
                    "Value {seconds} for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and \
                         <= 900."
                )
            ),
            (result, expected) => assert_eq!(result.ok(), expected.ok(), "{seconds}"),
        }
    }
    let in_line =
        |seconds| Draft { group_id: Some("g".into()), deduplication_id: Some("d".into()), ..delayed(seconds) };
    assert_eq!(made(in_line(0), &fifo(&[])).expect("the queue's own").0.delay_ms, None);
    let error = made(in_line(2), &fifo(&[])).expect_err("not for one message");
    assert_eq!(
        error.message,
        "Value 2 for parameter DelaySeconds is invalid. Reason: The request include parameter that is not valid for \
         this queue type."
    );
}

#[test]
fn groups_and_deduplication_depend_on_the_kind_of_queue() {
    let ids = |group: Option<&str>, id: Option<&str>| Draft {
        group_id: group.map(str::to_owned),
        deduplication_id: id.map(str::to_owned),
        ..draft("abc")
    };
    let sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let (plain, content) = (fifo(&[]), fifo(&[(CONTENT_BASED, "true")]));
    let by_group = fifo(&[(DEDUPLICATION_SCOPE, "messageGroup")]);
    for (settings, group, id, key, dedup) in [
        (&standard(), None, None, None, Dedup::Payload),
        (&standard(), Some("g"), None, None, Dedup::Payload),
        (&standard(), None, Some("d"), None, Dedup::Payload),
        (&plain, Some("g"), Some("d"), Some("d"), Dedup::Topic),
        (&content, Some("g"), None, Some(sha), Dedup::Topic),
        (&content, Some("g"), Some("d"), Some("d"), Dedup::Topic),
        (&by_group, Some("g"), Some("d"), Some("d"), Dedup::Group),
    ] {
        let (outgoing, _) = made(ids(group, id), settings).expect("good");
        assert_eq!((outgoing.group.as_deref(), outgoing.idem_key.as_deref(), outgoing.dedup), (group, key, dedup));
    }
    let long = "x".repeat(129);
    let id_reason = "can only include alphanumeric and punctuation characters. 1 to 128 in length.";
    for (settings, group, id, message) in [
        (&plain, None, Some("d"), "The request must contain the parameter MessageGroupId.".to_owned()),
        (
            &plain,
            Some("g"),
            None,
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided \
             explicitly"
                .to_owned(),
        ),
        (
            &standard(),
            None,
            Some("a b"),
            format!(
                "Value a b for parameter MessageDeduplicationId is invalid. Reason: MessageDeduplicationId {id_reason}"
            ),
        ),
        (
            &plain,
            Some("g"),
            Some(long.as_str()),
            format!(
                "Value {long} for parameter MessageDeduplicationId is invalid. Reason: MessageDeduplicationId {id_reason}"
            ),
        ),
        (
            &plain,
            Some("a b"),
            Some("d"),
            format!("Value a b for parameter MessageGroupId is invalid. Reason: MessageGroupId {id_reason}"),
        ),
        (
            &standard(),
            Some(""),
            None,
            format!("Value  for parameter MessageGroupId is invalid. Reason: MessageGroupId {id_reason}"),
        ),
    ] {
        assert_eq!(made(ids(group, id), settings).expect_err(&message).message, message);
    }
}

#[test]
fn attributes_are_kept_with_their_types() {
    let attributes = [
        ("b".to_owned(), bytes("Binary.gif", "AA")),
        ("n".to_owned(), text("Number", "1")),
        ("s".to_owned(), text("String", "v")),
    ];
    let system_attributes = [("AWSTraceHeader".to_owned(), text("String", "Root=1"))];
    let draft = Draft { attributes: attributes.into(), system_attributes: system_attributes.into(), ..draft("msg") };
    let (outgoing, sent) = made(draft, &standard()).expect("good");
    let kept: Vec<_> = outgoing.attrs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected = [
        ("b", "AA=="),
        ("$type.b", "Binary.gif"),
        ("n", "1"),
        ("$type.n", "Number"),
        ("s", "v"),
        ("$trace", "Root=1"),
        ("$sender", "me"),
    ];
    assert_eq!(kept, expected);
    assert_eq!(sent.md5_of_message_body, "6e2baaf3b97dbeef01c0043275f9a0e7");
    assert!(sent.md5_of_message_attributes.is_some() && sent.md5_of_message_system_attributes.is_some());
}

#[test]
fn the_trace_of_a_request_stands_in_for_the_attribute() {
    let trace_of = |system_attributes: MessageAttributes| {
        let origin = Origin { sender: "", corr_id: "corr", trace: Some("Root=request") };
        let (outgoing, sent) =
            Draft { system_attributes, ..draft("hi") }.outgoing(&standard(), origin).expect("a message");
        (outgoing.attrs, sent.md5_of_message_system_attributes.is_some())
    };
    let kept = |trace: &str| vec![("$trace".to_owned(), trace.to_owned())];
    assert_eq!(trace_of(MessageAttributes::new()), (kept("Root=request"), false));
    let named = [("AWSTraceHeader".to_owned(), text("String", "Root=own"))];
    assert_eq!(trace_of(named.into()), (kept("Root=own"), true), "what the message says itself goes first");
}

#[test]
fn only_the_trace_header_may_be_added_by_infrastructure() {
    let system = |name: &str, value| Draft { system_attributes: [(name.to_owned(), value)].into(), ..draft("hi") };
    assert!(made(system("AWSTraceHeader", text("String", "x")), &standard()).is_ok());
    for draft in [
        system("Other", text("String", "x")),
        system("AWSTraceHeader", text("Number", "1")),
        system("AWSTraceHeader", text("String", "")),
    ] {
        assert_eq!(made(draft, &standard()).err().map(|error| error.code), Some("InvalidParameterValue"));
    }
}
